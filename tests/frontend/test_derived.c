/* test_derived.c: operations made of others: values by formulas, all levels, gradients, text form. */
#include "frontend/sinter.h"
#include "ir/ir.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/support/jit_run.h"
#include "tests/support/scratch.h"

enum { N = 7, V = 5 };
static const double filter[] = {1, 4, 6, 4, 1, 1, 1};

/* x: -90, -60 … 90; targets: -1, 0 … 5 */
static void *data(void *ctx, const sn_node *leaf, const int64_t *symbol, size_t *bytes) {
    (void)ctx, (void)symbol;
    *bytes = (leaf->rank == 2 ? N * V : N) * 4;
    float *f = malloc(*bytes);
    int32_t *k = (int32_t *)(void *)f;
    for (int i = 0; i < (int)*bytes / 4; i++)
        if (leaf->dtype == SN_I32)
            k[i] = i - 1;
        else
            f[i] = leaf->rank == 2 ? (float)sin(i) : (float)(30 * (i - 3));
    return f;
}

static sn_module *make(sn_tensor *loss, sn_tensor wrt[2]) {
    sn_module *m = sn_module_new("derived");
    sn_tensor x = sn_input(m, "x", SN_F32, N), k = sn_input(m, "k", SN_I32, N);
    sn_tensor logits = sn_input(m, "logits", SN_F32, N, V);
    sn_entry_begin(m, "all");
    sn_output("log_sigmoid", sn_log_sigmoid(x));
    sn_output("asin", sn_asin(sn_mul(x, 1 / 128.0)));
    sn_output("acos", sn_acos(sn_mul(x, 1 / 128.0)));
    sn_tensor whole = sn_round(sn_mul(x, 1 / 48.0)); /* -2, -1, -1, 0, 1, 1, 2 */
    sn_output("ends", sn_sub(sn_asin(whole), sn_acos(whole)));
    sn_output("powi", sn_powi(sn_mul(x, 0.1), 3));
    sn_output("inverse", sn_powi(sn_add(x, 1), -2));
    sn_output("integers", sn_powi(k, 5));
    sn_output("flip", sn_flip(logits, 0));
    sn_tensor some = sn_gt(x, 0), log_x = sn_log(sn_max(x, 0)); /* -inf, ln 30, ln 60, ln 90 */
    sn_tensor sums = sn_cumlogsumexp(log_x, 0), slope;
    sn_grad(sn_sum_all(sn_where(some, sums, 0)), 1, &log_x, &slope);
    sn_output("sums", sums);
    sn_tensor product = sn_scatter_product(sn_mul(x, 1 / 30.0), 0, sn_mul(k, 0), 1), others;
    sn_grad(sn_sum_all(product), 1, &x, &others);
    sn_output("others", others); /* of -3, -2 … 3, over 30 */
    sn_output("slope", slope);
    sn_output("large", sn_cumlogsumexp(x, 0));
    sn_tensor index = sn_mod(sn_iota(m, SN_I32, 0, N, 2), V); /* row i, twice: i mod V */
    sn_output("take_along", sn_take_along(logits, 1, index));
    sn_output("array", sn_mul(x, sn_array(m, SN_F32, filter, N)));
    sn_output("smooth", sn_smooth_cross_entropy(logits, k, 0.1));
    sn_output("strict", sn_strict_mask(m, 3, 4));
    sn_output("left", sn_shift_left(k, sn_mul(k, 8)));
    sn_output("right", sn_shift_right(sn_mul(k, -1000), k));
    sn_tensor part = sn_sum_all(sn_log_sigmoid(sn_mul(x, 0.01)));
    part = sn_add(part, sn_sum_all(sn_powi(sn_add(sn_mul(x, 0.01), 3), -2)));
    sn_tensor filtered =
        sn_mul(sn_flip(logits, 0), sn_reshape(sn_array(m, SN_F32, filter, N), N, 1));
    *loss = sn_add(part, sn_sum_all(sn_mul(filtered, sn_flip(logits, 1))));
    sn_tensor order = sn_argsort(logits, 0, false);
    *loss = sn_add(*loss, sn_sum_all(sn_mul(sn_take_along(logits, 0, order), logits)));
    *loss = sn_add(*loss, sn_sum_all(sn_smooth_cross_entropy(logits, k, 0.1)));
    *loss = sn_add(*loss, sn_sum_all(sn_cumlogsumexp(logits, 0)));
    sn_tensor rows = sn_mod(k, 3), least = sn_add(logits, 2), one = sn_mul(logits, least);
    *loss = sn_add(*loss,
                   sn_sum_all(sn_square(sn_max(sn_scatter_max(logits, 0, sn_abs(rows), 4), -9))));
    *loss = sn_add(*loss, sn_sum_all(sn_scatter_product(least, 0, sn_abs(rows), 4)));
    *loss = sn_add(*loss, sn_sum_all(sn_mul(one, sn_sparsemax(logits, 1))));
    *loss = sn_add(*loss, sn_sum_all(sn_mul(one, sn_entmax(sn_mul(logits, 2), 0))));
    sn_tensor half = sn_mul(logits, 0.5);
    *loss = sn_add(*loss, sn_sum_all(sn_mul(sn_asin(half), sn_square(sn_acos(half)))));
    wrt[0] = x, wrt[1] = logits;
    return m;
}

/* Sum of the positive ones of -90, -60 … 90 to number i. */
static double positive_to(int i) {
    double sum = 0;
    for (int t = 0; t <= i; t++) sum += fmax(30 * (t - 3), 0);
    return sum;
}

static double wanted_sum(const char *name, int i) {
    double sum = 0;
    if (!strcmp(name, "sums")) return log(positive_to(i));
    for (int t = 0; t <= i && !strcmp(name, "large"); t++) sum += exp(30 * (t - 3));
    if (sum) return log(sum);
    for (int t = i; t < N && i > 3; t++) sum += 30 * (i - 3) / positive_to(t);
    return sum;
}

static double wanted(const char *name, int i) {
    double x = 30 * (i - 3);
    int k = i - 1;
    if (!strcmp(name, "log_sigmoid")) return x < 0 ? x - log1p(exp(x)) : -log1p(exp(-x));
    if (!strcmp(name, "asin")) return asin(x / 128);
    if (!strcmp(name, "acos")) return acos(x / 128);
    if (!strcmp(name, "ends")) return asin(rint(x / 48)) - acos(rint(x / 48));
    if (!strcmp(name, "powi")) return pow(0.1 * x, 3);
    if (!strcmp(name, "inverse")) return pow(x + 1, -2);
    if (!strcmp(name, "integers")) return pow(k, 5);
    if (!strcmp(name, "others")) return i == 3 ? -36 / 30.0 : 0;
    if (!strcmp(name, "flip")) return sin((N - 1 - i / V) * V + i % V);
    if (!strcmp(name, "take_along")) return sin(i / 2 * V + i / 2 % V);
    if (!strcmp(name, "array")) return x * filter[i];
    if (!strcmp(name, "strict")) return i % 4 < i / 4 + 1;
    if (!strcmp(name, "left")) return k < 0 || k > 3 ? 0 : (double)(int32_t)((uint32_t)k << 8 * k);
    if (!strcmp(name, "right")) return k < 0 ? 0 : floor(-1000.0 * k / (1 << k));
    if (strcmp(name, "smooth")) return wanted_sum(name, i);
    double sum = 0, mean = 0;
    for (int c = 0; c < V; c++) sum += exp(sin(i * V + c)), mean += sin(i * V + c) / V;
    if (k < 0 || k >= V) return 0;
    return 0.9 * (log(sum) - sin(i * V + k)) + 0.1 * (log(sum) - mean);
}

static void values(void **state) {
    (void)state;
    sn_tensor loss, wrt[2];
    for (int level = 0; level <= 4; level += 4) {
        sn_module *m = make(&loss, wrt);
        sn_options o = {.level = level, .threads = 1};
        jit_run r;
        jit_result got = {.n = 0};
        bool ok = jit_open(&r, m, &o, data, NULL) && jit_call(&r, "all", NULL, &got) &&
                  jit_check(&r, "all", NULL, 1e-5, 0);
        if (!ok) fail_msg("%s", r.why);
        for (int v = 0; v < got.n; v++)
            for (size_t i = 0; i < got.value[v].n; i++) {
                double want = wanted(got.value[v].name, (int)i);
                double is = jit_element(&got.value[v], i);
                if (is != want && !(isnan(is) && isnan(want)) &&
                    !(fabs(is - want) <= 1e-5 * (1 + fabs(want))))
                    fail_msg("%s[%zu] is %g, not %g", got.value[v].name, i, is, want);
            }
        assert_int_equal(got.n, 18);
        jit_result_free(&got);
        jit_close(&r);
        sn_module_free(m);
    }
}

static void gradients(void **state) {
    (void)state;
    sn_tensor loss, wrt[2];
    sn_error err = {0};
    sn_grad_error worst;
    sn_module *m = make(&loss, wrt);
    int32_t k[N] = {-1, 0, 1, 2, 3, 4, 5};
    sn_arg_binding bound = SN_BIND("k", SN_I32, k, N);
    if (!sn_check_grad(loss, 2, wrt, &bound, 1, &worst, &err)) fail_msg("%s", err.message);
    assert_true(worst.error < 1e-6);
    sn_module_free(m);
}

static void text_form(void **state) {
    (void)state;
    sn_tensor loss, wrt[2];
    char *text[2];
    size_t n[2];
    sn_error err = {0};
    sn_module *m = make(&loss, wrt);
    for (int i = 0; i < 2; i++) {
        FILE *f = open_memstream(&text[i], &n[i]);
        sn_print_module(f, m);
        fclose(f);
        sn_module_free(m);
        m = i ? NULL : sn_parse(text[0], "derived.sn", true, &err);
        if (!i && !m) fail_msg("%s", err.message);
    }
    assert_string_equal(text[0], text[1]);
    free(text[0]);
    free(text[1]);
}

static void mistakes(void **state) {
    (void)state;
    sn_module *m = sn_module_new("mistakes");
    sn_powi(sn_input(m, "k", SN_I32, N), -1);
    assert_non_null(strstr(sn_module_error(m)->message, "the exponent -1 of a tensor of i32"));
    sn_module_free(m);
    m = sn_module_new("mistakes");
    sn_array(m, SN_F32, filter, 3);
    assert_non_null(strstr(sn_module_error(m)->message, "an array of 7 values does not have"));
    sn_module_free(m);
    m = sn_module_new("mistakes");
    sn_take_along(sn_input(m, "x", SN_F32, N, V), 0, sn_input(m, "k", SN_I32, N, 2));
    assert_non_null(strstr(sn_module_error(m)->message, "expected the same shape but for axis 0"));
    sn_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(values), cmocka_unit_test(gradients),
                                       cmocka_unit_test(text_form), cmocka_unit_test(mistakes)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
