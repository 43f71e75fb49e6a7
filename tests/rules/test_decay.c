/* What passes/raise/decay.c knows about the numbers of an expression: decays must be positive, and their logarithms
 * are taken. Each row is an expression that is positive and known to be, or one that is not positive for some x. */
#include "frontend/sinter.h"
#include "passes/raise/recurrence.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { ROWS = 3, COLUMNS = 4 };

typedef struct row {
    sn_tensor value;
    const char *name;
} row;
#define R(expression)                                                                              \
    { expression, #expression }

static float data[ROWS * COLUMNS];

static const sn_value *numbers(sn_eval *ev, sn_tensor x) {
    const sn_value *v = sn_eval_node(ev, x);
    if (!v) fail_msg("%s", sn_module_error(x->m)->message);
    return v;
}

/* Some x makes a number of it 0 or less, unless `known`; then no number is, and the logarithms are right. */
static void check(sn_module *m, const row *rows, int n, bool known) {
    for (int i = 0; i < ROWS * COLUMNS; i++) data[i] = (float)(i * 7 % 12 - 5) * 1.5F;
    if (sn_module_error(m)->code) fail_msg("%s", sn_module_error(m)->message);
    for (int i = 0; i < n; i++) {
        if (sn_is_positive(rows[i].value) != known) fail_msg("%s", rows[i].name);
        sn_tensor log = sn_log_of(rows[i].value);
        sn_eval *ev = sn_eval_new(m, NULL);
        assert_true(sn_eval_bind(ev, "x", data, sizeof data));
        const sn_value *y = numbers(ev, rows[i].value), *z = known ? numbers(ev, log) : y;
        bool positive = true;
        assert_int_equal(y->n, z->n);
        for (int64_t k = 0; k < y->n; k++) {
            positive = positive && y->data[k] > 0;
            if (known && !(fabs(exp(z->data[k]) - y->data[k]) <= 1e-6 * (1 + y->data[k])))
                fail_msg("%s: %g has the logarithm %g", rows[i].name, y->data[k], z->data[k]);
        }
        if (positive != known) fail_msg("%s", rows[i].name);
        sn_eval_free(ev);
    }
}
#define CHECK(m, rows, known) check(m, rows, (int)(sizeof(rows) / sizeof *(rows)), known)

static sn_module *begin(sn_tensor *x) {
    sn_module *m = sn_module_new("decay");
    sn_entry_begin(m, "e");
    *x = sn_input(m, "x", SN_F32, ROWS, COLUMNS);
    return m;
}

static sn_tensor wide(sn_tensor x) {
    return sn_broadcast(x, 2, ROWS, COLUMNS);
}

/* x + (1 - x) s, which is at least the smaller one of s and 1 if 0 <= x <= 1. */
static sn_tensor between(sn_tensor x, sn_tensor s) {
    return sn_add(x, sn_mul(sn_sub(1, x), s));
}

static void elementwise(void **state) {
    (void)state;
    sn_tensor x, s, e, c;
    sn_module *m = begin(&x);
    s = sn_sigmoid(x), e = sn_exp(x), c = sn_sub(1, s);
    sn_tensor index = sn_cast(sn_iota(m, SN_I32, 1, ROWS, COLUMNS), SN_F32);
    const row positive[] = {
        R(e),
        R(s),
        R(sn_softplus(x)),
        R(sn_full(m, SN_F32, 0.5, 2)),
        R(sn_add(index, 1)),
        R(c),
        R(sn_add(1, sn_neg(s))),
        R(sn_add(sn_neg(s), 1)),
        R(sn_add(1, sn_mul(s, -1))),
        R(sn_add(sn_mul(s, -1), 1)),
        R(sn_sub(1, sn_reshape(s, COLUMNS, ROWS))),
        R(sn_sub(1, wide(s))),
        R(sn_sub(1, sn_swap(sn_reshape(s, 2, 3, 2), 0, 2))),
        R(sn_add(e, s)),
        R(sn_add(sn_relu(x), s)),
        R(sn_add(e, sn_abs(x))),
        R(sn_add(1, s)),
        R(sn_mul(e, s)),
        R(sn_mul(sn_mul(e, c), 3)),
        R(sn_mul(s, s)),
        R(sn_max(x, 0.125)),
        R(sn_max(e, x)),
        R(sn_max(x, s)),
        R(sn_min(e, s)),
        R(sn_min(s, 2)),
        R(sn_sqrt(e)),
        R(sn_sqrt(sn_mul(s, c))),
        R(sn_reshape(e, 12)),
        R(sn_swap(e, 0, 1)),
        R(wide(e)),
        R(sn_slice(e, 1, 1, 2)),
        R(sn_slice(wide(s), 0, 1, 1)),
        R(sn_concat(0, e, s)),
        R(sn_cumsum(e, 1)),
        R(between(sn_min(sn_abs(x), 1), s)),
        R(between(sn_min(1, sn_relu(x)), e)),
        R(between(sn_sub(1, sn_min(sn_abs(x), 1)), s)),
        R(between(sn_mul(s, sn_min(sn_abs(x), 1)), e)),
        R(sn_add(sn_mul(s, sn_sub(1, sn_min(sn_abs(x), 1))), sn_min(sn_abs(x), 1))),
    };
    CHECK(m, positive, true);
    sn_module_free(m);
}

static void not_positive(void **state) {
    (void)state;
    sn_tensor x;
    sn_module *m = begin(&x);
    sn_tensor s = sn_sigmoid(x), e = sn_exp(x);
    sn_tensor index = sn_cast(sn_iota(m, SN_I32, 1, ROWS, COLUMNS), SN_F32);
    const row others[] = {
        R(x),
        R(sn_full(m, SN_F32, 0, 2)),
        R(sn_full(m, SN_F32, -1, 2)),
        R(index),
        R(sn_relu(x)),
        R(sn_sub(0.5, s)),
        R(sn_sub(s, 1)),
        R(sn_sub(1, e)),
        R(sn_add(1, sn_mul(s, -2))),
        R(sn_add(0.5, sn_neg(s))),
        R(sn_sub(1, sn_max(s, x))),
        R(sn_add(x, e)),
        R(sn_mul(e, x)),
        R(sn_mul(e, sn_relu(x))),
        R(sn_mul(x, 2)),
        R(sn_max(x, 0)),
        R(sn_max(x, -1)),
        R(sn_min(e, x)),
        R(sn_min(e, 0)),
        R(sn_sqrt(sn_relu(x))),
        R(sn_concat(0, e, x)),
        R(sn_slice(x, 1, 1, 2)),
        R(sn_cumsum(x, 1)),
        R(sn_cumsum(sn_relu(x), 1)),
        R(between(x, s)),
        R(between(sn_min(x, 1), s)),
        R(between(sn_mul(sn_abs(x), 2), e)),
        R(between(e, e)),
        R(between(sn_min(sn_abs(x), 1), x)),
        R(between(sn_min(sn_abs(x), 1), sn_relu(x))),
        R(between(sn_min(sn_abs(x), 1.5), e)),
        R(sn_sub(s, s)),
        R(sn_square(sn_relu(x))),
    };
    CHECK(m, others, false);
    sn_module_free(m);
}

/* Softmax: each number is at most 1, and so are sums along its axis. */
static void sums(void **state) {
    (void)state;
    sn_tensor x;
    sn_module *m = begin(&x);
    sn_tensor k = sn_softmax(x, 1), s = sn_sigmoid(x), e = sn_exp(x), t = sn_swap(k, 0, 1),
              run = sn_cumsum(k, 1);
    sn_tensor first = sn_slice(k, 1, 0, 1), second = sn_slice(k, 1, 1, 1);
    const row positive[] = {
        R(between(k, s)),
        R(between(run, s)),
        R(between(sn_cumsum(t, 0), sn_swap(s, 0, 1))),
        R(between(sn_sum_keep(k, 1), sn_slice(s, 1, 0, 1))),
        R(between(sn_cumsum(sn_slice(k, 1, 1, 2), 1), sn_slice(s, 1, 0, 2))),
        R(between(sn_sub(run, first), s)),
        R(between(sn_sub(1, k), s)),
        R(between(sn_reshape(k, 12), sn_reshape(s, 12))),
        R(sn_cumsum(s, 0)),
        R(sn_add(sn_reshape(k, 12), sn_mul(sn_reshape(sn_sub(1, k), 12), sn_reshape(s, 12)))),
    };
    CHECK(m, positive, true);
    const row others[] = {
        R(sn_sub(k, k)),
        R(between(sn_mul(sn_cumsum(k, 0), 4), e)),
        R(between(sn_cumsum(t, 1), sn_swap(e, 0, 1))),
        R(between(sn_sub(first, run), sn_mul(s, 0.001))),
        R(between(sn_sub(run, second), sn_mul(s, 0.0001))),
        R(sn_sub(sn_sum_keep(k, 0), 1)),
        R(sn_sub(run, first)),
    };
    CHECK(m, others, false);
    sn_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(elementwise),
                                       cmocka_unit_test(not_positive), cmocka_unit_test(sums)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
