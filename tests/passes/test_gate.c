/* test_gate.c: gates, act(x Wg) (x Wu): the two maps become one product, and what joins its halves
 * is in its epilogue; or not, where a half is needed elsewhere. As machine code at every level. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "tests/support/compile_case.h"
#include "passes/passes.h"

#include <stdio.h>
#include <string.h>

enum { K = 19 };

static sn_node *product(sn_node *x, sn_node *w) { /* [.., K] by [K, ..] */
    int64_t last = x->rank - 1;
    return cc_dot(x, w, 0, NULL, NULL, 1, &last, (int64_t[]){0});
}

/* x W + b, [.., n]; the names of W and b begin with `name` and the width. */
static sn_node *map(sn_node *x, const char *name, sn_dim n, bool bias) {
    char w[24], b[24];
    snprintf(w, sizeof w, "%s%d", name, (int)n);
    snprintf(b, sizeof b, "b_%s%d", name, (int)n);
    sn_dtype t = (sn_dtype)x->dtype;
    sn_node *y = product(x, cc_param(x->m, w, t, SHAPE(x->shape[x->rank - 1], n)));
    return bias ? sn_b_binary(SN_OP_add, y, cc_param(x->m, b, t, SHAPE(n))) : y;
}

static sn_node *part(sn_node *x, sn_dim from, sn_dim size) {
    return sn_b_slice(x, x->rank - 1, from, size);
}

static sn_node *times(sn_node *x, sn_node *y) {
    return sn_b_binary(SN_OP_mul, x, y);
}

static sn_node *relu(sn_node *x) {
    return sn_b_scalar(SN_OP_max, x, 0);
}

static sn_node *act(sn_op op, sn_node *x) {
    return op == SN_OP_silu  ? SN_NODE(x->m, silu, SN_NO_ATTRS, x)
           : op == SN_OP_max ? relu(x)
                             : sn_b_unary(op, x);
}

/* How many products of the module take their halves as pairs. */
static int count_pairs(sn_module *m) {
    sn_passes run;
    sn_pass_options o = {.level = 4, .backend = "native", .constant_params = true, .verify = true};
    int n = 0;
    assert_true(sn_passes_run(&run, m, &o));
    for (int i = 0; i < sn_entry_count(m); i++) {
        sn_order order = sn_entry_topo(m, sn_entry_at(m, i));
        for (int j = 0; j < order.n; j++)
            n += order.node[j]->op == SN_OP_gemm && sn_attr_get(order.node[j], SN_A_pair);
    }
    return n;
}

/* Builds the module twice: for the passes, and for the machine, at levels from `lowest` on. */
static void check(void (*build)(sn_module *), int pairs, int lowest, double tol) {
    sn_module *m = sn_module_new("gates");
    build(m);
    assert_int_equal(sn_module_error(m)->code, SN_OK);
    assert_int_equal(count_pairs(m), pairs);
    sn_module_free(m);
    m = sn_module_new("gates");
    build(m);
    cc_check_threads(m, 4, 100);
    cc_check(m, lowest, 4, 5, (int64_t[]){0, 1, 2, 17, 100}, tol);
}

/* Different left factors: products of the same one would be merged, whatever the entry. */
static sn_node *rows(sn_module *m, const char *name, sn_dtype t) {
    return cc_input(m, name, t, SHAPE(2, sn_symbol_add(m, "T", 0, 300), K));
}

/* ---- gates that are fused ---- */

static void build_acts(sn_module *m) {
    static const sn_op op[] = {SN_OP_silu, SN_OP_max, SN_OP_sigmoid, SN_OP_tanh, SN_OP_gelu};
    static const sn_dim width[] = {48, 64, 37, 5, 33};
    for (int i = 0; i < 10; i++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        sn_node *x = rows(m, name, SN_F32);
        sn_node *gate = map(x, "gate", width[i / 2], i % 2),
                *up = map(x, "up", width[i / 2], i % 2);
        cc_entry(m, times(act(op[i / 2], gate), up), "%s_%d", sn_ops[op[i / 2]].name, i % 2);
    }
}

static void acts(void **state) {
    (void)state;
    check(build_acts, 10, 4, 2e-5);
}

/* One product of adjacent weights, in either order; before a product again. */
static void build_spellings(sn_module *m) {
    sn_node *x = rows(m, "x", SN_F32), *both = map(x, "both", 96, true);
    sn_node *gate = act(SN_OP_silu, part(both, 0, 48)), *up = part(both, 48, 48);
    sn_node *down = cc_param(m, "down", SN_F32, SHAPE(48, K));
    cc_entry(m, sn_b_binary(SN_OP_add, product(times(gate, up), down), x), "feed_forward");
    gate = act(SN_OP_silu, part(both, 48, 48));
    cc_entry(m, times(part(both, 0, 48), gate), "transposed");
    cc_entry(m, sn_b_binary(SN_OP_sub, gate, part(both, 0, 48)), "difference");
    sn_node *y = rows(m, "y", SN_F32);
    cc_entry(m, times(relu(map(y, "one", 32, true)), map(y, "other", 32, false)), "one_bias");
    sn_node *whole = sn_b_unary(SN_OP_tanh, sn_b_scalar(SN_OP_mul, both, 0.5));
    cc_entry(m, times(part(whole, 0, 48), part(whole, 48, 48)), "work_before");
}

static void spellings(void **state) {
    (void)state;
    check(build_spellings, 5, 0, 2e-5);
}

/* What follows the gate joins, too; a half's activation may be a result besides. */
static void build_followers(sn_module *m) {
    sn_node *x = rows(m, "x", SN_F32), *both = map(x, "both", 96, false);
    sn_dim t = x->shape[1];
    sn_node *gate = act(SN_OP_silu, part(both, 0, 48)), *y = times(gate, part(both, 48, 48));
    sn_node *full = cc_input(m, "full", SN_F32, SHAPE(2, t, 48)),
            *row = cc_input(m, "row", SN_F32, SHAPE(48)),
            *column = cc_input(m, "column", SN_F32, SHAPE(2, t, 1)),
            *transposed =
                sn_b_transpose(cc_input(m, "transposed", SN_F32, SHAPE(2, 48, t)), AXES(0, 2, 1));
    cc_entry(m, sn_b_binary(SN_OP_add, y, full), "residual");
    cc_entry(m, sn_b_binary(SN_OP_add, times(y, row), column), "row_and_column");
    cc_entry(m, sn_b_binary(SN_OP_add, y, transposed), "transposed");
    cc_entry(m, sn_b_cast(y, SN_BF16), "narrow");
    cc_entry(m, sn_b_transpose(y, AXES(2, 0, 1)), "stored_transposed");
    cc_entry(m, sn_b_reduce(SN_OP_reduce_sum, y, AXES(2)), "summed");
    sn_entry *e = cc_entry(m, y, "several");
    sn_entry_output(m, e, "gate", gate);
    sn_entry_output(m, e, "positive", sn_b_scalar(SN_OP_lt, part(both, 48, 48), 0));
}

static void followers(void **state) {
    (void)state;
    check(build_followers, 6, 4, 2e-2); /* not where it is only summed: by the kernel that sums */
}

static void build_wide(sn_module *m) {
    sn_node *x = rows(m, "x", SN_F64), *y = rows(m, "y", SN_F64);
    cc_entry(m, times(act(SN_OP_silu, map(x, "gate", 24, true)), map(x, "up", 24, true)), "whole");
    cc_entry(m, times(relu(map(y, "gate", 37, true)), map(y, "up", 37, false)), "odd");
}

static void wide(void **state) {
    (void)state;
    check(build_wide, 2, 4, 1e-10);
}

/* Rows known before, long ones, many panels. */
static void build_sizes(sn_module *m) {
    static const sn_dim size[] = {1, 2, 15, 32}, width[] = {16, 47, 400};
    for (int i = 0; i < 12; i++) {
        char name[16];
        sn_dim n = size[i / 3], f = width[i % 3];
        snprintf(name, sizeof name, "x%d_%d", (int)n, (int)f);
        sn_node *x = cc_input(m, name, SN_F32, SHAPE(n, 70));
        cc_entry(m, times(act(SN_OP_silu, map(x, "gate", f, i % 2)), map(x, "up", f, i % 2)), "%s",
                 name);
    }
    sn_node *deep = cc_input(m, "deep", SN_F32, SHAPE(3, 6500));
    cc_entry(m, times(relu(map(deep, "far", 37, true)), map(deep, "away", 37, true)), "deep");
}

static void sizes(void **state) {
    (void)state;
    check(build_sizes, 13, 4, 5e-3);
}

/* ---- halves that have to be stored ---- */

static void build_apart(sn_module *m) {
    sn_node *x = rows(m, "x", SN_F32), *both = map(x, "both", 96, true);
    sn_node *a = part(both, 0, 48), *b = part(both, 48, 48), *y = times(relu(a), b);
    sn_entry *e = cc_entry(m, y, "half_is_a_result");
    sn_entry_output(m, e, "b", b);
    e = cc_entry(m, y, "product_is_a_result");
    sn_entry_output(m, e, "both", both);
    e = cc_entry(m, y, "half_is_summed");
    sn_entry_output(m, e, "sum", sn_b_reduce(SN_OP_reduce_sum, b, AXES(2)));
    e = cc_entry(m, y, "half_is_multiplied");
    sn_entry_output(m, e, "z", product(b, cc_param(m, "down", SN_F32, SHAPE(48, K))));
    cc_entry(m, times(part(both, 0, 47), part(both, 49, 47)), "not_halves");
    cc_entry(m, times(part(both, 0, 32), times(part(both, 32, 32), part(both, 64, 32))), "thirds");
    cc_entry(m, times(part(both, 0, 64), part(both, 32, 64)), "overlap");
    sn_node *full = cc_input(m, "full", SN_F32, SHAPE(2, x->shape[1], 96));
    sn_node *sum = sn_b_binary(SN_OP_add, both, full);
    cc_entry(m, times(part(sum, 0, 48), part(sum, 48, 48)), "unknown_before");
    e = cc_entry(m, y, "product_is_read");
    sn_entry_output(m, e, "sum", sum);
    sn_node *late = sn_b_unary(SN_OP_tanh, both);
    cc_entry(m, times(part(both, 0, 48), part(late, 48, 48)), "different_steps");
    sn_node *row = sn_b_iota(m, SN_F32, SHAPE(2, x->shape[1], 48), 1);
    cc_entry(m, times(times(a, row), b), "index");
    cc_entry(m, sn_b_unary(SN_OP_exp, a), "one_half");
}

static void apart(void **state) {
    (void)state;
    check(build_apart, 0, 4, 1e-2);
}

/* Why not, where halves meet. */
static void reasons(void **state) {
    (void)state;
    sn_module *m = sn_module_new("gates");
    sn_passes run;
    sn_pass_options o = {.level = 4, .backend = "native", .constant_params = true};
    build_apart(m);
    assert_true(sn_passes_run(&run, m, &o));
    static const char *const why[] = {"a half is read by something else",
                                      "a half of it is a result", "read as a whole",
                                      "at different steps", "more than these two maps"};
    for (int k = 0; k < 5; k++) {
        int found = 0;
        for (int i = 0; i < run.n_remark; i++) found += strstr(run.remark[i].text, why[k]) != NULL;
        if (!found) fail_msg("nothing says '%s'", why[k]);
    }
    sn_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(acts),    cmocka_unit_test(spellings), cmocka_unit_test(followers),
        cmocka_unit_test(wide),    cmocka_unit_test(sizes),     cmocka_unit_test(apart),
        cmocka_unit_test(reasons),
    };
    return cmocka_run_group_tests(tests, cc_begin, cc_end);
}
