/* test_compile_entries.c: whole entries as machine code: several results, views and inputs as
 * results, states, kernels with many operands, empty and scalar tensors, taps, threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "tests/support/compile_case.h"

#include <stdio.h>
#include <string.h>

static void output(sn_entry *e, const char *name, sn_node *n) {
    sn_entry_output(n->m, e, name, n);
}

static void assign(sn_entry *e, const char *state, sn_node *n) {
    sn_entry_assign(n->m, e, state, n);
}

static sn_node *update(sn_node *x, sn_node *y, sn_dim row) {
    sn_dim start[SN_MAX_RANK] = {row};
    return SN_NODE(x->m, update_slice, SN_ATTRS(SN_LIST(start, x->rank, start)), x, y);
}

/* ---- results ---- */

static void several_results(void **state) {
    (void)state;
    sn_module *m = sn_module_new("results");
    sn_dim t = sn_symbol_add(m, "T", 0, 300);
    sn_node *x = cc_input(m, "x", SN_F32, SHAPE(t, 19)), *e = sn_b_unary(SN_OP_exp, x);
    sn_entry *a = cc_entry(m, sn_b_unary(SN_OP_tanh, e), "chain");
    output(a, "exp", e);
    output(a, "exp_again", e);
    output(a, "x", x);
    output(a, "mask", sn_b_scalar(SN_OP_lt, e, 1));
    sn_node *sum = sn_b_reduce(SN_OP_reduce_sum, e, AXES(1)), *p = sn_b_binary(SN_OP_div, e, sum);
    sn_entry *b = cc_entry(m, p, "rows");
    output(b, "sum", sum);
    output(b, "exp", e);
    output(b, "max", sn_b_reduce(SN_OP_reduce_max, p, AXES(1)));
    output(b, "column", sn_b_reduce(SN_OP_reduce_sum, p, AXES(0)));
    output(b, "all", sn_b_reduce(SN_OP_reduce_sum, p, AXES(0, 1)));
    sn_entry *c = cc_entry(m, sn_b_transpose(e, AXES(1, 0)), "views");
    output(c, "flat", sn_b_reshape(e, SHAPE(sn_dim_mul(m, t, 19))));
    output(c, "part", sn_b_slice(e, 1, 3, 7));
    output(c, "spread", sn_b_broadcast(sum, SHAPE(2, t, 3)));
    output(c, "transposed_input", sn_b_transpose(x, AXES(1, 0)));
    output(c, "e", e);
    sn_entry *d = cc_entry(m, sn_b_const(m, SN_F32, 2.5), "constants");
    output(d, "spread", sn_b_broadcast(sn_b_const(m, SN_I32, -3), SHAPE(t, 3)));
    output(d, "iota", sn_b_iota(m, SN_I64, SHAPE(t, 3), 0));
    output(d, "halves", sn_b_iota(m, SN_BF16, SHAPE(t), 0));
    output(d, "length", sn_b_dim(m, SN_I64, t));
    output(d, "flag", sn_b_const(m, SN_BOOL, 1));
    output(d, "computed", sn_b_scalar(SN_OP_lt, sn_b_iota(m, SN_I32, SHAPE(3, t), 1), 5));
    cc_check(m, 0, 4, 4, (int64_t[]){17, 0, 1, 256}, 1e-5);
}

static void many_results_and_operands(void **state) {
    (void)state;
    sn_module *m = sn_module_new("many");
    sn_node *x = cc_input(m, "x", SN_F32, SHAPE(6, 19)),
            *w = cc_param(m, "w", SN_F32, SHAPE(19, 19));
    sn_node *p = cc_dot(x, w, 0, NULL, NULL, 1, (int64_t[]){1}, (int64_t[]){0});
    for (int k = 0; k < 2; k++) {
        sn_node *v = k ? p : x;
        sn_entry *e = cc_entry(m, v, k ? "results_of_product" : "results");
        for (int i = 0; i < 20; i++) {
            char name[16];
            snprintf(name, sizeof name, "y%d", i);
            v = sn_b_unary(i % 2 ? SN_OP_tanh : SN_OP_neg, sn_b_scalar(SN_OP_add, v, 0.125 * i));
            output(e, name, v);
        }
    }
    sn_node *sum = x;
    for (int i = 0; i < 60; i++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        sum = sn_b_binary(SN_OP_add, sum, cc_input(m, name, SN_F32, SHAPE(6, 19)));
    }
    cc_entry(m, sum, "operands");
    sn_entry *e = cc_entry(m, x, "reductions");
    for (int i = 0; i < 40; i++) {
        char name[16];
        snprintf(name, sizeof name, "y%d", i);
        output(e, name, sn_b_reduce(SN_OP_reduce_sum, sn_b_scalar(SN_OP_mul, x, i + 1), AXES(1)));
    }
    cc_check(m, 0, 4, 0, NULL, 2e-5);
}

static void nothing_and_scalars(void **state) {
    (void)state;
    sn_module *m = sn_module_new("small");
    sn_node *s = cc_input(m, "s", SN_F32, SCALAR),
            *one = cc_input(m, "one", SN_F32, SHAPE(1, 1, 1));
    sn_node *none = cc_input(m, "none", SN_F32, SHAPE(3, 0, 5)),
            *k = cc_input(m, "k", SN_I32, SCALAR);
    sn_entry *e = cc_entry(m, sn_b_unary(SN_OP_exp, s), "scalar");
    output(e, "twice", sn_b_scalar(SN_OP_mul, s, 2));
    output(e, "same", s);
    output(e, "integer", sn_b_scalar(SN_OP_add, k, 1));
    output(e, "mixed", sn_b_binary(SN_OP_add, s, sn_b_cast(k, SN_F32)));
    output(e, "spread", sn_b_broadcast(sn_b_unary(SN_OP_tanh, s), SHAPE(3, 2)));
    output(e, "as_tensor", sn_b_reshape(s, SHAPE(1, 1)));
    sn_entry *f = cc_entry(m, SN_NODE(m, softmax, SN_ATTRS(SN_INT(axis, 2)), one), "one");
    output(f, "sum", sn_b_reduce(SN_OP_reduce_sum, one, AXES(0, 1, 2)));
    output(f, "scalar", sn_b_reshape(sn_b_unary(SN_OP_neg, one), SCALAR));
    output(f, "cumsum", SN_NODE(m, cumsum, SN_ATTRS(SN_INT(axis, 1)), one));
    sn_entry *g = cc_entry(m, sn_b_unary(SN_OP_exp, none), "nothing");
    output(g, "sum", sn_b_reduce(SN_OP_reduce_sum, none, AXES(1)));
    output(g, "max", sn_b_reduce(SN_OP_reduce_max, none, AXES(0, 1)));
    output(g, "softmax", SN_NODE(m, softmax, SN_ATTRS(SN_INT(axis, 1)), none));
    output(g, "transposed", sn_b_transpose(none, AXES(2, 1, 0)));
    output(g, "flat", sn_b_reshape(none, SHAPE(0)));
    output(g, "joined", sn_b_concat(m, 2, (sn_node *[]){none, none}, 1));
    output(
        g, "product",
        cc_dot(none, none, 1, (int64_t[]){0}, (int64_t[]){0}, 1, (int64_t[]){1}, (int64_t[]){1}));
    output(g, "padded",
           SN_NODE(m, pad,
                   SN_ATTRS(SN_FLT(value, 1), SN_LIST(low, 3, ((sn_dim[]){0, 2, 0})),
                            SN_LIST(high, 3, ((sn_dim[]){1, 0, 0}))),
                   none));
    cc_check(m, 0, 4, 0, NULL, 1e-6);
}

/* ---- states ---- */

static void states(void **state) {
    (void)state;
    sn_module *m = sn_module_new("states");
    sn_dim t = sn_symbol_add(m, "T", 0, 9);
    sn_node *a = cc_state(m, "a", SN_F32, SHAPE(9, 9)), *b = cc_state(m, "b", SN_F32, SHAPE(9, 9));
    sn_node *x = cc_input(m, "x", SN_F32, SHAPE(t, 9)), *n = cc_state(m, "n", SN_I64, SCALAR);
    sn_node *doubled = sn_b_scalar(SN_OP_mul, a, 2), *transposed = sn_b_transpose(a, AXES(1, 0));

    /* the value at the start, whatever is assigned later */
    sn_entry *e = cc_entry(m, a, "old_value");
    assign(e, "a", doubled);
    e = cc_entry(m, doubled, "new_value");
    assign(e, "a", doubled);
    e = cc_entry(m, sn_b_slice(a, 0, 2, 3), "old_part");
    assign(e, "a", sn_b_unary(SN_OP_neg, a));
    e = cc_entry(m, x, "swap");
    assign(e, "a", b);
    assign(e, "b", a);
    e = cc_entry(m, x, "transpose");
    assign(e, "a", transposed);
    e = cc_entry(m, x, "transpose_and_keep");
    assign(e, "a", transposed);
    assign(e, "b", a);
    e = cc_entry(m, x, "copy_and_change");
    assign(e, "b", a);
    assign(e, "a", doubled);
    e = cc_entry(m, x, "same");
    assign(e, "a", a);
    assign(e, "b", sn_b_broadcast(sn_b_const(m, SN_F32, 0), SHAPE(9, 9)));

    e = cc_entry(m, x, "write"); /* in place */
    assign(e, "a", update(a, x, 0));
    sn_node *written = update(a, x, 0);
    e = cc_entry(m, written, "write_and_read");
    assign(e, "a", written);
    output(e, "rows", sn_b_slice(written, 0, 0, t));
    output(e, "sum", sn_b_reduce(SN_OP_reduce_sum, written, AXES(1)));
    e = cc_entry(m, a, "write_but_keep_the_old");
    assign(e, "a", written);
    output(e, "new", written);
    e = cc_entry(m, sn_b_reduce(SN_OP_reduce_sum, transposed, AXES(1)), "read_before_write");
    assign(e, "a", written);
    sn_node *twice = update(update(a, x, 0), sn_b_slice(b, 0, 1, 2), 4);
    e = cc_entry(m, sn_b_slice(twice, 1, 1, 3), "write_twice");
    assign(e, "a", twice);
    assign(e, "b", sn_b_unary(SN_OP_exp, twice));
    e = cc_entry(m, x, "both_from_one");
    assign(e, "a", written);
    assign(e, "b", written);
    e = cc_entry(m, written, "written_elsewhere"); /* overwritten, though assigned something else */
    assign(e, "a", b);
    e = cc_entry(m, x, "written_elsewhere_too");
    assign(e, "a", b);
    assign(e, "b", written);
    e = cc_entry(m, update(b, x, 0), "not_assigned"); /* b must stay */
    output(e, "b", b);
    sn_node *from_itself = update(a, sn_b_slice(a, 0, 1, t), 0);
    e = cc_entry(m, x, "from_itself");
    assign(e, "a", sn_b_slice(sn_b_concat(m, 2, (sn_node *[]){from_itself, a}, 0), 0, 0, 9));

    e = cc_entry(m, n, "counter");
    assign(e, "n", sn_b_scalar(SN_OP_add, n, 1));
    e = cc_entry(m, sn_b_binary(SN_OP_add, a, sn_b_cast(n, SN_F32)), "only_assigned");
    assign(e, "c", sn_b_unary(SN_OP_abs, b));
    cc_check(m, 0, 4, 3, (int64_t[]){5, 0, 8}, 1e-5);
}

/* ---- threads ---- */

static void threads(void **state) {
    (void)state;
    sn_module *m = sn_module_new("threads");
    sn_dim t = sn_symbol_add(m, "T", 0, 3000);
    sn_node *x = cc_input(m, "x", SN_F32, SHAPE(t, 64)), *i = cc_input(m, "i50", SN_I32, SHAPE(t));
    sn_node *w = cc_param(m, "w", SN_F32, SHAPE(64, 200)),
            *flat = cc_input(m, "f", SN_F32, SHAPE(sn_dim_mul(m, t, 50)));
    sn_node *p = cc_dot(x, w, 0, NULL, NULL, 1, (int64_t[]){1}, (int64_t[]){0});
    cc_entry(m, SN_NODE(m, gelu, SN_NO_ATTRS, p), "product");
    cc_entry(m, SN_NODE(m, softmax, SN_ATTRS(SN_INT(axis, 1)), p), "rows");
    cc_entry(m, SN_NODE(m, softmax, SN_ATTRS(SN_INT(axis, 0)), x), "columns");
    cc_entry(m, sn_b_reduce(SN_OP_reduce_sum, sn_b_unary(SN_OP_exp, x), AXES(0, 1)), "sum");
    cc_entry(m, sn_b_unary(SN_OP_tanh, flat), "elementwise");
    cc_entry(m, sn_b_reduce(SN_OP_reduce_sum, flat, AXES(0)), "long_sum");
    cc_entry(m,
             SN_NODE(m, scatter_add,
                     SN_ATTRS(SN_INT(axis, 0), SN_LIST(shape, 2, ((sn_dim[]){50, 64}))), x, i),
             "scatter");
    cc_entry(m, SN_NODE(m, cumsum, SN_ATTRS(SN_INT(axis, 0)), x), "cumsum");
    cc_entry(m, sn_b_transpose(x, AXES(1, 0)), "transpose");
    for (int level = 0; level <= 4; level += 2) cc_check_threads(m, level, 2003);
    sn_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_results),
        cmocka_unit_test(many_results_and_operands),
        cmocka_unit_test(nothing_and_scalars),
        cmocka_unit_test(states),
        cmocka_unit_test(threads),
    };
    return cmocka_run_group_tests(tests, cc_begin, cc_end);
}
