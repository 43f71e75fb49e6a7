/* test_row_sums.c: reductions along rows of a product's result, whose first stage the product's
 * epilogue computes: against the evaluator at every level, where they may be and where not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "tests/support/compile_case.h"
#include "tests/support/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sn_node *product(sn_node *x, sn_node *w) { /* [.., K] by [K, N] */
    int64_t last = x->rank - 1, first = 0;
    return cc_dot(x, w, 0, NULL, NULL, 1, &last, &first);
}

static sn_node *reduce(sn_op op, sn_node *x) { /* along rows */
    int64_t last = x->rank - 1;
    return sn_b_reduce(op, x, 1, &last);
}

static sn_node *reduce_all(sn_op op, sn_node *x) {
    int64_t axes[] = {0, 1, 2, 3};
    return sn_b_reshape(sn_b_reduce(op, x, x->rank, axes), 0, NULL);
}

static sn_node *square(sn_node *x) {
    return sn_b_binary(SN_OP_mul, x, x);
}

static int count_sums(sn_module *m, int level) {
    return cc_count_report(m, level, "sums along rows");
}

static void add_output(sn_entry *e, const char *name, sn_node *n) {
    sn_entry_output(n->m, e, name, n);
}

/* Sums, sums of squares, maxima and minima, with and without the value itself. */
static void kinds(void **state) {
    (void)state;
    sn_module *m = sn_module_new("kinds");
    sn_dim t = sn_symbol_add(m, "T", 0, 40);
    sn_node *x = cc_input(m, "x", SN_F32, SHAPE(t, 37)),
            *w = cc_param(m, "w", SN_F32, SHAPE(37, 96));
    sn_node *y = product(x, w);
    add_output(cc_entry(m, y, "sum"), "r", reduce(SN_OP_reduce_sum, y));
    add_output(cc_entry(m, y, "squares"), "r", reduce(SN_OP_reduce_sum, square(y)));
    add_output(cc_entry(m, y, "max"), "r", reduce(SN_OP_reduce_max, y));
    add_output(cc_entry(m, y, "min"), "r", reduce(SN_OP_reduce_min, y));
    sn_entry *e = cc_entry(m, y, "two");
    add_output(e, "r", reduce(SN_OP_reduce_sum, square(y)));
    add_output(e, "s", reduce(SN_OP_reduce_max, y));
    cc_entry(m, reduce(SN_OP_reduce_sum, square(y)), "alone");
    cc_entry(m, reduce(SN_OP_reduce_max, y), "max_alone");
    assert_int_equal(count_sums(m, 4), 4);
    assert_int_equal(cc_count_report(m, 4, "maxima along rows"), 3);
    assert_int_equal(cc_count_report(m, 4, "minima along rows"), 1);
    assert_int_equal(cc_count_report(m, 3, "along rows"), 0);
    cc_check_threads(m, 4, 39);
    cc_check(m, 0, 4, 5, (int64_t[]){39, 1, 14, 2, 0}, 2e-5);
}

/* Other element types, sizes that leave a panel's rest, one panel, batches, K in pieces, factors
 * that change. */
static void sizes(void **state) {
    (void)state;
    sn_module *m = sn_module_new("sizes");
    static const sn_dim N[] = {32, 64, 33, 31, 48, 160};
    for (int i = 0; i < 6; i++) {
        char name[16], left[16];
        snprintf(name, sizeof name, "w%d", i);
        snprintf(left, sizeof left, "x%d", i);
        sn_node *w = i % 2 ? cc_input(m, name, SN_F32, SHAPE(19, N[i]))
                           : cc_param(m, name, SN_F32, SHAPE(19, N[i]));
        sn_node *y = product(cc_input(m, left, SN_F32, SHAPE(29, 19)), w);
        add_output(cc_entry(m, y, "n%d", (int)N[i]), "r", reduce(SN_OP_reduce_sum, square(y)));
    }
    sn_node *a = cc_input(m, "a", SN_F32, SHAPE(3, 5, 21)),
            *b = cc_input(m, "b", SN_F32, SHAPE(3, 21, 64));
    int64_t zero = 0, one = 1, two = 2;
    sn_node *y = cc_dot(a, b, 1, &zero, &zero, 1, &two, &one);
    add_output(cc_entry(m, y, "batches"), "r", reduce(SN_OP_reduce_sum, y));
    sn_node *heads = product(a, cc_param(m, "heads", SN_F32, SHAPE(21, 2, 64)));
    add_output(cc_entry(m, heads, "heads"), "r", reduce(SN_OP_reduce_sum, square(heads)));
    y = cc_dot(a, a, 0, NULL, NULL, 2, (int64_t[]){0, 1}, (int64_t[]){0, 1}); /* [21, 21] */
    add_output(cc_entry(m, y, "narrow"), "r", reduce(SN_OP_reduce_sum, y));
    sn_node *deep = cc_input(m, "deep", SN_F32, SHAPE(6500, 15)),
            *dw = cc_input(m, "dw", SN_F32, SHAPE(6500, 64));
    y = cc_dot(deep, dw, 0, NULL, NULL, 1, &zero, &zero);
    add_output(cc_entry(m, y, "chunks"), "r", reduce(SN_OP_reduce_sum, square(y)));
    assert_int_equal(count_sums(m, 4), 6);
    cc_check_threads(m, 4, 0);
    cc_check(m, 4, 4, 0, NULL, 1e-3);

    m = sn_module_new("wide");
    y = product(cc_input(m, "x", SN_F64, SHAPE(17, 19)),
                cc_param(m, "w", SN_F64, SHAPE(19, 48))); /* three panels of 16 */
    add_output(cc_entry(m, y, "squares"), "r", reduce(SN_OP_reduce_sum, square(y)));
    add_output(cc_entry(m, y, "max"), "r", reduce(SN_OP_reduce_max, y));
    assert_int_equal(count_sums(m, 4), 1);
    cc_check_threads(m, 4, 0);
    cc_check(m, 0, 4, 0, NULL, 1e-12);
}

/* What the epilogue computes before it sums: bias, activation, residual. */
static void after_epilogue(void **state) {
    (void)state;
    sn_module *m = sn_module_new("after");
    sn_dim t = sn_symbol_add(m, "T", 0, 40);
    sn_node *x = cc_input(m, "x", SN_F32, SHAPE(2, t, 24)),
            *rest = cc_input(m, "rest", SN_F32, SHAPE(2, t, 64)),
            *w = cc_param(m, "w", SN_F32, SHAPE(24, 64)),
            *bias = cc_param(m, "b", SN_F32, SHAPE(64));
    sn_node *y = sn_b_binary(SN_OP_add, product(x, w), bias);
    y = sn_b_binary(SN_OP_add, SN_NODE(m, silu, SN_NO_ATTRS, y), rest);
    sn_entry *e = cc_entry(m, y, "value");
    add_output(e, "r", reduce(SN_OP_reduce_sum, square(y)));
    cc_entry(m, reduce(SN_OP_reduce_sum, square(y)), "alone");
    cc_entry(m, reduce(SN_OP_reduce_sum, sn_b_binary(SN_OP_mul, y, rest)), "with_rest");
    e = cc_entry(m, y, "norms"); /* the global norm */
    sn_node *sum = sn_b_binary(SN_OP_add, reduce_all(SN_OP_reduce_sum, square(y)),
                               reduce_all(SN_OP_reduce_sum, square(rest)));
    add_output(e, "norm", sn_b_unary(SN_OP_sqrt, sum));
    add_output(e, "most", reduce_all(SN_OP_reduce_max, sn_b_unary(SN_OP_abs, y)));
    assert_int_equal(count_sums(m, 4), 4);
    assert_int_equal(cc_count_report(m, 4, "maxima along rows"), 1);
    cc_check_threads(m, 4, 33);
    cc_check(m, 0, 4, 4, (int64_t[]){33, 1, 16, 0}, 1e-4);
}

/* Where a kernel goes over the rows anyway, where more waits for the result than a product may
 * store, and where a product of the same row is needed first: no two stages. */
static void left_alone(void **state) {
    (void)state;
    sn_module *m = sn_module_new("alone");
    sn_node *x = cc_input(m, "x", SN_F32, SHAPE(40, 64)),
            *w = cc_param(m, "w", SN_F32, SHAPE(64, 64));
    sn_node *y = product(x, w), *many = y;
    sn_entry *e = cc_entry(m, y, "many");
    for (int i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "out%d", i);
        many = sn_b_unary(SN_OP_tanh, many);
        add_output(e, name, many);
    }
    add_output(e, "r", reduce(SN_OP_reduce_sum, y));
    sn_node *other = product(y, w); /* waits for y */
    cc_entry(m, reduce(SN_OP_reduce_sum, sn_b_binary(SN_OP_mul, y, other)), "both");
    cc_entry(m, reduce(SN_OP_reduce_sum, cc_input(m, "z", SN_F32, SHAPE(40, 64))), "no_product");
    assert_int_equal(count_sums(m, 4), 1);
    cc_check(m, 4, 4, 0, NULL, 1e-4);
}

/* The last axis of a product with vectors is one of rows: it has no panels, and no columns that
 * rotary embeddings could swap. */
static void without_columns(void **state) {
    (void)state;
    sn_module *m = sn_module_new("without_columns");
    sn_dim t = sn_symbol_add(m, "T", 1, 40);
    sn_tensor x = sn_input(m, "x", SN_F32, 3, t, 32, 16), v = sn_input(m, "v", SN_F32, 3, 16);
    sn_entry_begin(m, "sum");
    sn_tensor y = sn_einsum("btki,bi->btk", x, v);
    sn_output("r", sn_sum(sn_square(y), 2));
    sn_entry_begin(m, "swap");
    sn_output("r", sn_rope(sn_mul(y, 2), sn_arange(m, SN_I32, t)));
    assert_int_equal(count_sums(m, 4), 0);
    cc_check(m, 4, 4, 1, (int64_t[]){7}, 1e-4);
}

/* Infinities and NaN in a row are found. */
static void not_finite(void **state) {
    (void)state;
    sn_module *m = sn_module_new("not_finite");
    sn_node *x = cc_input(m, "x", SN_F32, SHAPE(7, 16)),
            *w = cc_param(m, "w", SN_F32, SHAPE(16, 64));
    sn_node *y = sn_b_unary(SN_OP_log, product(x, w)); /* NaN of what is below 0 */
    sn_entry *e = cc_entry(m, y, "log");
    add_output(e, "max", reduce(SN_OP_reduce_max, y));
    add_output(e, "sum", reduce(SN_OP_reduce_sum, y));
    assert_int_equal(cc_count_report(m, 4, "maxima along rows"), 1);
    cc_check(m, 0, 4, 0, NULL, 1e-4);
}

/* A step of training that clips: the gradients' squares are summed where these are made. */
static void clipped(void **state) {
    (void)state;
    sn_module *m = sn_module_new("clipped");
    sn_optimizer o = {.kind = SN_SGD, .max_norm = 0.5};
    sn_tensor param[] = {sn_state(m, "up", SN_F32, 24, 64), sn_state(m, "down", SN_F32, 64, 32)};
    sn_entry_begin(m, "step");
    sn_tensor x = sn_input(m, "x", SN_F32, sn_symbol(m, "T", 1, 40), 24);
    sn_tensor y = sn_matmul(sn_silu(sn_matmul(x, param[0])), param[1]);
    sn_tensor loss = sn_mul(sn_sum_all(sn_square(y)), 0.01);
    sn_output("norm", sn_optimize(loss, sn_scalar(m, SN_F32, 0.1), 2, param, &o));
    assert_int_equal(count_sums(m, 4), 2); /* of the two gradients */
    cc_check_threads(m, 4, 33);
    cc_check(m, 0, 4, 2, (int64_t[]){33, 1}, 2e-4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds),           cmocka_unit_test(sizes),
        cmocka_unit_test(after_epilogue),  cmocka_unit_test(left_alone),
        cmocka_unit_test(without_columns), cmocka_unit_test(not_finite),
        cmocka_unit_test(clipped)};
    return cmocka_run_group_tests(tests, cc_begin, cc_end);
}
