/* Row kernels at their edges: a NaN among the elements of a row, which a maximum may overlook only
 * if the rest of the kernel does not, widths below, at and beyond the unrolled loops. */
#include "tests/jit_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 6 };
static const int64_t widths[] = {1, 15, 16, 17, 63, 64, 65, 200, 259};

/* Row 0 is plain; row 1 begins, row 2 ends with NaN; row 3 is NaN, row 4 -inf throughout; row 5 has
 * both and an infinity. */
static double element(int row, int64_t i, int64_t n) {
    double plain = sin((double)(row * 1000 + i)) * 3;
    switch (row) {
    case 1:
        return i == 0 ? NAN : plain;
    case 2:
        return i == n - 1 ? NAN : plain;
    case 3:
        return NAN;
    case 4:
        return -INFINITY;
    case 5:
        return i == n / 2 ? NAN : i == n / 3 ? INFINITY : i % 5 ? plain : -INFINITY;
    default:
        return plain;
    }
}

static void *make_data(void *ctx, const sn_node *leaf, const int64_t *symbol, size_t *bytes) {
    int64_t n = sn_dim_eval(leaf->m, leaf->shape[1], symbol);
    (void)ctx;
    float *x = malloc(*bytes = sizeof *x * (size_t)(ROWS * n));
    for (int64_t i = 0; x && i < ROWS * n; i++) x[i] = (float)element((int)(i / n), i % n, n);
    return x;
}

static sn_tensor softmax(sn_tensor x) {
    return sn_softmax(x, -1);
}
static sn_tensor log_softmax(sn_tensor x) {
    return sn_log_softmax(x, -1);
}
static sn_tensor logsumexp(sn_tensor x) {
    return sn_logsumexp(x, -1);
}
static sn_tensor largest(sn_tensor x) {
    return sn_amax(x, -1);
}
static sn_tensor below_largest(sn_tensor x) { /* only NaN itself would show */
    return sn_sub(x, sn_amax_keep(x, -1));
}
static sn_tensor range(sn_tensor x) {
    return sn_div(sn_sub(x, sn_amin_keep(x, -1)), sn_sub(sn_amax_keep(x, -1), sn_amin_keep(x, -1)));
}
static sn_tensor masked(sn_tensor x) { /* what the mask hides is not seen */
    return sn_softmax(sn_where(sn_lt(x, 1), x, -INFINITY), -1);
}
static sn_tensor chosen(sn_tensor x) { /* the sum sees it, what is chosen does not */
    sn_tensor sum = sn_sum_keep(x, -1);
    return sn_where(sn_lt(sum, 0), sum, sn_mul(x, sn_amax_keep(x, -1)));
}

static sn_tensor (*const kernels[])(sn_tensor) = {softmax,       log_softmax, logsumexp, largest,
                                                  below_largest, range,       masked,    chosen};

static void nan_in_rows(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++)
        for (int level = 0; level <= 4; level += 2) {
            sn_module *m = sn_module_new("rows");
            sn_dim n = sn_symbol(m, "N", 1, 1000);
            sn_entry_begin(m, "main");
            sn_output("y", kernels[k](sn_input(m, "x", SN_F32, ROWS, n)));
            sn_options o = {.level = level, .threads = 2, .cache_dir = ""};
            jit_run r;
            if (!jit_open(&r, m, &o, make_data, NULL)) fail_msg("%s", r.why);
            for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
                if (!jit_check(&r, "main", &widths[w], 1e-5, 1))
                    fail_msg("kernel %zu, level %d, width %lld: %s", k, level, (long long)widths[w],
                             r.why);
            jit_close(&r);
            sn_module_free(m);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nan_in_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
