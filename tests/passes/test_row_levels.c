/* test_row_levels.c: operands of a product's epilogue whose rows repeat from item to item, or have
 * gaps between items: one product over all rows reads them in place, and agrees with the
 * evaluator. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "codegen/program/program.h"
#include "tests/support/compile_case.h"

enum { K = 19, ITEMS = 3, N = 48 };

static sn_node *product(sn_node *x, sn_node *w) { /* [.., K] by [K, ..] */
    int64_t last = x->rank - 1;
    return cc_dot(x, w, 0, NULL, NULL, 1, &last, (int64_t[]){0});
}

static sn_node *weight(sn_module *m, sn_dtype t) {
    return cc_param(m, t == SN_F32 ? "w" : "wide", t, SHAPE(K, N));
}

static sn_node *add(sn_node *y, sn_node *z) {
    return sn_b_binary(SN_OP_add, y, sn_b_broadcast_like(z, y));
}

static sn_node *swapped(sn_node *x, int a, int b) {
    int64_t perm[] = {0, 1, 2, 3};
    perm[a] = b;
    perm[b] = a;
    return sn_b_transpose(x, x->rank, perm);
}

/* Every entry is one step, a product over all rows. Keeps the module. */
static void expect_whole(sn_module *m, int batch_axes) {
    sn_error err = {0};
    sn_options o = {.level = 4, .backend = "native"};
    sn_program *p = sn_compile(m, &o, &err);
    if (!p) fail_msg("%s", err.message);
    for (int i = 0; i < sn_entry_count(m); i++) {
        const char *name = sn_entry_at(m, i)->name;
        const sn_plan *plan = sn_program_entry(p, name)->code.plan;
        if (plan->n_call != 1 || plan->call[0]->node->op != SN_OP_gemm ||
            plan->call[0]->in[0].rank != 2 + batch_axes)
            fail_msg("%s is more than one product over all rows", name);
    }
    sn_program_free(p);
}

static sn_node *items(sn_module *m, const char *name, sn_dtype t, sn_dim tokens) {
    return cc_input(m, name, t, SHAPE(ITEMS, tokens, K));
}

/* Positions that all items share, what an item's tokens share, both, and parts of longer items. */
static void build_kinds(sn_module *m) {
    sn_dim t = sn_symbol_add(m, "T", 0, 200);
    static const char *const left[] = {"x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7"};
    sn_node *y[8];
    for (int i = 0; i < 8; i++) y[i] = product(items(m, left[i], SN_F32, t), weight(m, SN_F32));
    sn_node *pos = cc_input(m, "pos", SN_F32, SHAPE(t, N)),
            *item = cc_input(m, "item", SN_F32, SHAPE(ITEMS, 1, N)),
            *longer = cc_input(m, "longer", SN_F32, SHAPE(ITEMS, sn_dim_add(m, t, 2), N)),
            *wide = cc_input(m, "wide", SN_F32, SHAPE(ITEMS, t, 2 * N));
    cc_entry(m, add(y[0], pos), "positions");
    cc_entry(m, add(y[1], item), "of_items");
    cc_entry(m, add(add(y[2], pos), item), "both");
    cc_entry(m, add(y[3], sn_b_slice(longer, 1, 1, t)), "gaps");
    cc_entry(m, add(y[4], swapped(cc_input(m, "swapped", SN_F32, SHAPE(t, ITEMS, N)), 0, 1)),
             "swapped");
    cc_entry(m, add(y[5], cc_input(m, "scalars", SN_F32, SHAPE(t, 1))), "one_a_row");
    cc_entry(m, add(y[6], sn_b_slice(sn_b_slice(wide, 2, 5, N), 1, 0, t)), "columns");
    sn_entry *e = cc_entry(m, add(sn_b_unary(SN_OP_tanh, y[7]), pos), "two_results");
    sn_entry_output(m, e, "z", y[7]);
}

static void kinds(void **state) {
    (void)state;
    sn_module *m = sn_module_new("kinds");
    build_kinds(m);
    expect_whole(m, 0);
    cc_check_threads(m, 4, 150);
    cc_check(m, 0, 4, 5, (int64_t[]){150, 17, 2, 1, 0}, 2e-5);
}

/* Rows of three axes that are not contiguous with each other; columns of several; both. */
static void many_levels(void **state) {
    (void)state;
    sn_module *m = sn_module_new("levels");
    sn_dim t = sn_symbol_add(m, "T", 0, 40);
    sn_node *x = cc_input(m, "x", SN_F32, SHAPE(2, ITEMS, t, K)),
            *heads = cc_param(m, "heads", SN_F32, SHAPE(K, 3, 16));
    sn_node *mixed = swapped(cc_input(m, "mixed", SN_F32, SHAPE(t, ITEMS, 2, N)), 0, 2);
    cc_entry(m, add(product(x, weight(m, SN_F32)), mixed), "three");
    sn_node *z = cc_input(m, "z", SN_F32, SHAPE(2, ITEMS, t, K));
    sn_node *middle = cc_input(m, "middle", SN_F32, SHAPE(ITEMS, 1, N));
    cc_entry(m, add(product(z, weight(m, SN_F32)), middle), "middle");
    sn_node *y = product(items(m, "y", SN_F32, t), heads);
    cc_entry(m, add(y, cc_input(m, "angles", SN_F32, SHAPE(t, 1, 16))), "same_for_heads");
    y = product(items(m, "v", SN_F32, t), heads);
    cc_entry(m, add(y, cc_input(m, "some", SN_F32, SHAPE(ITEMS, 1, 3, 1))), "heads_of_items");
    expect_whole(m, 0);
    cc_check_threads(m, 4, 39);
    cc_check(m, 0, 4, 4, (int64_t[]){39, 7, 1, 0}, 2e-5);
}

/* Other element types, items and tokens that are constants, and batch axes besides. */
static void types(void **state) {
    (void)state;
    sn_module *m = sn_module_new("types");
    sn_node *y = product(items(m, "x", SN_F64, 29), weight(m, SN_F64));
    cc_entry(m, add(y, cc_input(m, "pos", SN_F64, SHAPE(29, N))), "f64");
    y = product(items(m, "y", SN_F32, 16), weight(m, SN_F32));
    sn_node *half = cc_input(m, "half", SN_BF16, SHAPE(ITEMS, 18, N));
    half = sn_b_slice(half, 1, 2, 16);
    cc_entry(m, add(y, SN_NODE(m, cast, SN_ATTRS(SN_INT(dtype, SN_F32)), half)), "bf16");
    expect_whole(m, 0);
    cc_check_threads(m, 4, 0);
    cc_check(m, 0, 4, 0, NULL, 2e-5);

    m = sn_module_new("batches");
    sn_node *a = cc_input(m, "a", SN_F32, SHAPE(5, ITEMS, 21, K)),
            *b = cc_input(m, "b", SN_F32, SHAPE(5, K, N));
    int64_t zero = 0, one = 1, last = 3;
    y = cc_dot(a, b, 1, &zero, &zero, 1, &last, &one);
    cc_entry(m, add(y, cc_input(m, "pos", SN_F32, SHAPE(21, N))), "batches");
    expect_whole(m, 1);
    cc_check_threads(m, 4, 0);
    cc_check(m, 0, 4, 0, NULL, 2e-5);
}

/* Where halves of a gate meet, and where rows are summed. */
static void other_epilogues(void **state) {
    (void)state;
    sn_module *m = sn_module_new("others");
    sn_dim t = sn_symbol_add(m, "T", 0, 100);
    sn_node *pos = cc_input(m, "pos", SN_F32, SHAPE(t, 32));
    sn_node *both = product(items(m, "x", SN_F32, t), cc_param(m, "both", SN_F32, SHAPE(K, 64)));
    sn_node *gate = sn_b_slice(both, 2, 0, 32), *up = sn_b_slice(both, 2, 32, 32);
    gate = SN_NODE(m, silu, SN_NO_ATTRS, gate);
    cc_entry(m, add(sn_b_binary(SN_OP_mul, gate, up), pos), "gate");
    expect_whole(m, 0);
    sn_node *y = product(items(m, "y", SN_F32, t), cc_param(m, "v", SN_F32, SHAPE(K, 32)));
    y = add(y, pos);
    sn_entry *e = cc_entry(m, y, "sums");
    sn_entry_output(m, e, "r", sn_b_reduce(SN_OP_reduce_max, y, 1, (int64_t[]){2}));
    assert_int_equal(cc_count_report(m, 4, "maxima along rows"), 1);
    cc_check_threads(m, 4, 99);
    cc_check(m, 0, 4, 4, (int64_t[]){99, 17, 1, 0}, 2e-5);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(kinds), cmocka_unit_test(many_levels),
                                       cmocka_unit_test(types), cmocka_unit_test(other_epilogues)};
    return cmocka_run_group_tests(tests, cc_begin, cc_end);
}
