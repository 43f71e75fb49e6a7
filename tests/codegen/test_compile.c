/* test_compile.c: single operations as machine code on every kind of operand: views, axes, element
 * types, sizes. (Entries as a whole: test_compile_entries.c.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "frontend/sinter.h"
#include "tests/support/compile_case.h"
#include "tests/support/effort.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- every kernel family on every kind of view ---- */

enum { N_VIEW = 8 };
static const char *const view_names[N_VIEW] = {"plain",  "transposed", "stepped", "offset",
                                               "column", "row",        "mixed",   "scalar"};

/* An f32 view [12, 10] of an input. */
static sn_node *make_view(sn_module *m, int k) {
    char name[16];
    snprintf(name, sizeof name, "x%d", k);
    sn_node *x;
    switch (k) {
    case 1:
        return sn_b_transpose(cc_input(m, name, SN_F32, SHAPE(10, 12)), AXES(1, 0));
    case 2:
        x = cc_input(m, name, SN_F32, SHAPE(25, 21));
        return cc_slice(x, (sn_dim[]){1, 2}, (sn_dim[]){12, 10}, (int64_t[]){2, 2});
    case 3:
        x = cc_input(m, name, SN_F32, SHAPE(15, 13));
        return cc_slice(x, (sn_dim[]){3, 2}, (sn_dim[]){12, 10}, NULL);
    case 4:
        return sn_b_broadcast(cc_input(m, name, SN_F32, SHAPE(12, 1)), SHAPE(12, 10));
    case 5:
        return sn_b_broadcast(cc_input(m, name, SN_F32, SHAPE(10)), SHAPE(12, 10));
    case 6:
        x = sn_b_transpose(cc_input(m, name, SN_F32, SHAPE(5, 2, 12)), AXES(2, 0, 1));
        return sn_b_reshape(x, SHAPE(12, 10));
    case 7:
        return sn_b_broadcast(cc_input(m, name, SN_F32, SCALAR), SHAPE(12, 10));
    default:
        return cc_input(m, name, SN_F32, SHAPE(12, 10));
    }
}

static void add_families(sn_module *m, sn_node *v, const char *k) {
    sn_node *w = cc_input(m, "w", SN_F32, SHAPE(10, 7)),
            *u = cc_input(m, "u", SN_F32, SHAPE(5, 12));
    sn_node *rows = cc_input(m, "i12", SN_I32, SHAPE(4)),
            *cols = cc_input(m, "i10", SN_I32, SHAPE(4));
    sn_node *to = cc_input(m, "i9", SN_I64, SHAPE(12)),
            *big = cc_input(m, "big", SN_F32, SHAPE(14, 12));
    cc_entry(m, v, "copy_%s", k);
    cc_entry(m, sn_b_unary(SN_OP_neg, v), "elem_%s", k);
    cc_entry(m, SN_NODE(m, softmax, SN_ATTRS(SN_INT(axis, 1)), v), "softmax_%s", k);
    cc_entry(m, SN_NODE(m, softmax, SN_ATTRS(SN_INT(axis, 0)), v), "softmax0_%s", k);
    cc_entry(m, sn_b_reduce(SN_OP_reduce_sum, v, AXES(0)), "column_%s", k);
    cc_entry(m, sn_b_reduce(SN_OP_reduce_max, v, AXES(0, 1)), "all_%s", k);
    cc_entry(m, cc_dot(v, w, 0, NULL, NULL, 1, (int64_t[]){1}, (int64_t[]){0}), "left_%s", k);
    cc_entry(m, cc_dot(u, v, 0, NULL, NULL, 1, (int64_t[]){1}, (int64_t[]){0}), "right_%s", k);
    cc_entry(m, cc_dot(v, v, 0, NULL, NULL, 1, (int64_t[]){0}, (int64_t[]){0}), "self_%s", k);
    cc_entry(m, cc_dot(v, v, 1, (int64_t[]){0}, (int64_t[]){0}, 1, (int64_t[]){1}, (int64_t[]){1}),
             "batched_%s", k);
    cc_entry(m, SN_NODE(m, gather, SN_ATTRS(SN_INT(axis, 0)), v, rows), "gather0_%s", k);
    cc_entry(m, SN_NODE(m, gather, SN_ATTRS(SN_INT(axis, 1)), v, cols), "gather1_%s", k);
    cc_entry(m, SN_NODE(m, gather_nd, SN_NO_ATTRS, v, rows, cols), "at_%s", k);
    cc_entry(m,
             SN_NODE(m, scatter_add,
                     SN_ATTRS(SN_INT(axis, 0), SN_LIST(shape, 2, ((sn_dim[]){9, 10}))), v, to),
             "scatter_%s", k);
    for (int64_t how = 1; how < 3; how++)
        cc_entry(m,
                 SN_NODE(m, scatter_add,
                         SN_ATTRS(SN_INT(axis, 0), SN_LIST(shape, 2, ((sn_dim[]){9, 10})),
                                  SN_INT(combine, how)),
                         v, to),
                 how == 1 ? "largest_%s" : "product_%s", k);
    cc_entry(m, SN_NODE(m, cumsum, SN_ATTRS(SN_INT(axis, 0)), v), "cumsum0_%s", k);
    cc_entry(m, SN_NODE(m, cumsum, SN_ATTRS(SN_INT(axis, 1)), v), "cumsum1_%s", k);
    cc_entry(m, SN_NODE(m, argmax, SN_ATTRS(SN_INT(axis, 1)), v), "argmax_%s", k);
    cc_entry(m, sn_b_concat(m, 2, (sn_node *[]){v, sn_b_unary(SN_OP_abs, v)}, 1), "concat_%s", k);
    cc_entry(m, sn_b_concat(m, 3, (sn_node *[]){v, v, sn_b_slice(v, 0, 2, 3)}, 0), "concat0_%s", k);
    cc_entry(m,
             SN_NODE(m, pad,
                     SN_ATTRS(SN_FLT(value, 2), SN_LIST(low, 2, ((sn_dim[]){1, 0})),
                              SN_LIST(high, 2, ((sn_dim[]){0, 3}))),
                     v),
             "pad_%s", k);
    cc_entry(m, SN_NODE(m, update_slice, SN_ATTRS(SN_LIST(start, 2, ((sn_dim[]){1, 2}))), big, v),
             "update_%s", k);
    cc_entry(m,
             SN_NODE(m, update_slice, SN_ATTRS(SN_LIST(start, 2, ((sn_dim[]){1, 2}))), v,
                     sn_b_slice(sn_b_slice(big, 0, 0, 5), 1, 1, 4)),
             "updated_%s", k);
}

static void views(void **state) {
    (void)state;
    sn_module *m = sn_module_new("views");
    for (int k = 0; k < N_VIEW; k++)
        if (effort_takes((size_t)k, 2)) add_families(m, make_view(m, k), view_names[k]);
    cc_check(m, 2, 2, 0, NULL, 2e-5);
}

static void views_of_values(void **state) { /* views of what another kernel has made */
    (void)state;
    sn_module *m = sn_module_new("views");
    sn_dim t = sn_symbol_add(m, "T", 0, 512);
    sn_node *x = cc_input(m, "x", SN_F32, SHAPE(t, 6, 4)), *e = sn_b_unary(SN_OP_exp, x);
    sn_node *transposed = sn_b_transpose(e, AXES(1, 0, 2)),
            *back = sn_b_transpose(e, AXES(2, 1, 0));
    cc_entry(m, transposed, "stored_transposed");
    cc_entry(m, back, "last_axis_moves");
    cc_entry(m, sn_b_reshape(transposed, SHAPE(6, sn_dim_mul(m, t, 4))), "merged_after_transpose");
    cc_entry(m, sn_b_unary(SN_OP_abs, back), "read_transposed");
    cc_entry(m, sn_b_reduce(SN_OP_reduce_sum, transposed, AXES(1)), "column_of_transposed");
    cc_entry(m, sn_b_reduce(SN_OP_reduce_sum, back, AXES(2)), "row_of_transposed");
    cc_entry(m, sn_b_binary(SN_OP_add, transposed, sn_b_unary(SN_OP_neg, transposed)),
             "two_readers");
    cc_entry(m, sn_b_binary(SN_OP_sub, e, sn_b_slice(e, 1, 0, 1)), "slice_spread");
    cc_entry(m, sn_b_binary(SN_OP_mul, sn_b_reduce(SN_OP_reduce_sum, e, AXES(0)), e),
             "column_spread");
    sn_node *softmax = SN_NODE(m, softmax, SN_ATTRS(SN_INT(axis, 2)), x);
    cc_entry(m, sn_b_transpose(softmax, AXES(1, 0, 2)), "rows_stored_transposed");
    cc_entry(m,
             cc_dot(transposed, transposed, 1, (int64_t[]){0}, (int64_t[]){0}, 1, (int64_t[]){2},
                    (int64_t[]){2}),
             "product_of_heads");
    cc_check(m, 0, 4, 4, (int64_t[]){17, 0, 1, 200}, 2e-5);
}

/* ---- axes ---- */

static void reductions(void **state) {
    (void)state;
    static const sn_dtype types[] = {SN_F32, SN_F64, SN_BF16, SN_I32, SN_I64, SN_I8, SN_U8};
    sn_module *m = sn_module_new("reductions");
    for (int k = 0; k < 7; k++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", k);
        sn_node *x = cc_input(m, name, types[k], SHAPE(3, 4, 5, 6));
        for (int mask = 1; mask < 16; mask++) {
            int64_t axes[4];
            int n = 0;
            for (int a = 0; a < 4; a++)
                if (mask >> a & 1) axes[n++] = a;
            const char *t = sn_dtype_name(types[k]);
            cc_entry(m, sn_b_reduce(SN_OP_reduce_sum, x, n, axes), "sum_%s_%d", t, mask);
            if (k != 0 && k < 5) continue;
            cc_entry(m, sn_b_reduce(SN_OP_reduce_max, x, n, axes), "max_%s_%d", t, mask);
            cc_entry(m, sn_b_reduce(SN_OP_reduce_min, x, n, axes), "min_%s_%d", t, mask);
        }
    }
    cc_check(m, 2, 2, 0, NULL, 8e-3);
}

static void reductions_of_odd_sizes(void **state) {
    (void)state;
    sn_module *m = sn_module_new("reductions");
    sn_dim t = sn_symbol_add(m, "T", 0, 6000);
    sn_node *x = cc_input(m, "x", SN_F32, SHAPE(2, t, 1)),
            *y = cc_input(m, "y", SN_F32, SHAPE(t, 1, 3));
    sn_node *one = cc_input(m, "one", SN_F32, SHAPE(1, 1)),
            *long_ = cc_input(m, "l", SN_F32, SHAPE(t));
    for (int mask = 1; mask < 8; mask++) {
        int64_t axes[3];
        int n = 0;
        for (int a = 0; a < 3; a++)
            if (mask >> a & 1) axes[n++] = a;
        cc_entry(m, sn_b_reduce(SN_OP_reduce_sum, x, n, axes), "x%d", mask);
        cc_entry(m, sn_b_reduce(SN_OP_reduce_max, y, n, axes), "y%d", mask);
        cc_entry(m, sn_b_reduce(SN_OP_reduce_sum, sn_b_unary(SN_OP_abs, y), n, axes), "abs%d",
                 mask);
    }
    cc_entry(m, sn_b_reduce(SN_OP_reduce_sum, one, AXES(0, 1)), "one");
    cc_entry(m, sn_b_reduce(SN_OP_reduce_sum, one, AXES(1)), "one_row");
    cc_entry(m, sn_b_reduce(SN_OP_reduce_sum, long_, AXES(0)), "long");
    cc_entry(m, SN_NODE(m, softmax, SN_ATTRS(SN_INT(axis, 0)), long_), "long_softmax");
    cc_entry(m, sn_b_unary(SN_OP_tanh, long_), "long_elementwise");
    sn_node *spread = sn_b_broadcast(cc_input(m, "s", SN_F32, SHAPE(3, 1)), SHAPE(3, t));
    cc_entry(m, sn_b_reduce(SN_OP_reduce_sum, spread, AXES(1)), "nothing_varies");
    cc_entry(m, sn_b_reduce(SN_OP_reduce_sum, spread, AXES(0)), "column_of_nothing");
    cc_check(m, 0, 4, 4, (int64_t[]){33, 0, 1, 5003}, 2e-4);
}

static void indices(void **state) {
    (void)state;
    static const sn_dtype kinds[] = {SN_I32, SN_I64, SN_U8, SN_I8};
    static const sn_dtype types[] = {SN_F32, SN_F64, SN_BF16, SN_I32, SN_BOOL};
    sn_module *m = sn_module_new("indices");
    static const sn_dim shape[3] = {130, 4, 5};
    for (int k = 0; k < 4; k++)
        for (int axis = 0; axis < 3; axis++) {
            char in[32], ix[32];
            sn_dtype t = types[(k + axis) % 5];
            snprintf(in, sizeof in, "x%d", (k + axis) % 5);
            snprintf(ix, sizeof ix, "i%d_%d", axis ? 4 : kinds[k] == SN_I8 ? 127 : 130, k);
            sn_node *x = cc_input(m, in, t, 3, shape), *i = cc_input(m, ix, kinds[k], SHAPE(2, 3));
            sn_node *g = SN_NODE(m, gather, SN_ATTRS(SN_INT(axis, axis)), x, i);
            cc_entry(m, g, "gather_%d_%d", k, axis);
            snprintf(ix, sizeof ix, "i4s_%d", k);
            sn_node *s = cc_input(m, ix, kinds[k], SCALAR);
            cc_entry(m, SN_NODE(m, gather, SN_ATTRS(SN_INT(axis, axis)), x, s), "one_%d_%d", k,
                     axis);
            if (t == SN_BOOL) continue;
            cc_entry(m,
                     SN_NODE(m, scatter_add, SN_ATTRS(SN_INT(axis, axis), SN_LIST(shape, 3, shape)),
                             g, i),
                     "scatter_%d_%d", k, axis);
            cc_entry(m, SN_NODE(m, cumsum, SN_ATTRS(SN_INT(axis, axis)), x), "cumsum_%d_%d", k,
                     axis);
            cc_entry(m, SN_NODE(m, argmax, SN_ATTRS(SN_INT(axis, axis)), x), "argmax_%d_%d", k,
                     axis);
        }
    for (int rank = 1; rank <= 3; rank++) {
        static const char *const names[] = {"i130_a", "i4_a", "i5_a"};
        sn_node *in[4] = {cc_input(m, "big", SN_F32, rank, shape)};
        for (int a = 0; a < rank; a++) in[a + 1] = cc_input(m, names[a], kinds[a], SHAPE(7, 5));
        cc_entry(m, sn_node_new(m, SN_OP_gather_nd, rank + 1, in, SN_NO_ATTRS), "at_%d", rank);
        in[0] = cc_input(m, "values", SN_F32, SHAPE(7, 5));
        cc_entry(m,
                 sn_node_new(m, SN_OP_scatter_nd_add, rank + 1, in,
                             SN_ATTRS(SN_LIST(shape, rank, shape))),
                 "at_add_%d", rank);
    }
    cc_check(m, 2, 2, 0, NULL, 2e-2);
}

static void indices_that_are_values_too(void **state) {
    (void)state;
    sn_module *m = sn_module_new("indices");
    sn_node *i = cc_input(m, "i5", SN_I32, SHAPE(5)),
            *table = cc_input(m, "t", SN_F32, SHAPE(5, 5));
    sn_node *g = SN_NODE(m, gather, SN_ATTRS(SN_INT(axis, 0)), table, i);
    cc_entry(m, sn_b_binary(SN_OP_add, g, sn_b_cast(i, SN_F32)), "index_along_both_axes");
    cc_entry(m, sn_b_binary(SN_OP_mul, g, sn_b_reduce(SN_OP_reduce_max, g, AXES(1))),
             "row_of_rows");
    sn_node *count = sn_b_iota(m, SN_F32, SHAPE(5, 5), 0);
    cc_entry(m, SN_NODE(m, gather, SN_ATTRS(SN_INT(axis, 0)), count, i), "table_of_numbers");
    cc_entry(
        m,
        SN_NODE(m, gather_nd, SN_NO_ATTRS, sn_b_broadcast(sn_b_const(m, SN_F32, 3), SHAPE(5)), i),
        "table_of_one_number");
    cc_entry(m,
             SN_NODE(m, gather_nd, SN_NO_ATTRS, sn_b_scalar(SN_OP_mul, table, 2), i,
                     sn_b_iota(m, SN_I32, SHAPE(5), 0)),
             "computed_table");
    cc_check(m, 0, 4, 0, NULL, 1e-5);
}

/* ---- broadcasting ---- */

static void broadcasts(void **state) {
    (void)state;
    sn_module *m = sn_module_new("broadcasts");
    sn_dim t = sn_symbol_add(m, "T", 0, 64);
    const sn_dim full[3] = {3, t, 17};
    for (int a = 0; a < 8; a++)
        for (int b = a; b < 8; b++) {
            sn_dim p[3], q[3];
            char x[16], y[16];
            for (int i = 0; i < 3; i++) p[i] = a >> i & 1 ? full[i] : 1;
            for (int i = 0; i < 3; i++) q[i] = b >> i & 1 ? full[i] : 1;
            snprintf(x, sizeof x, "x%d", a);
            snprintf(y, sizeof y, "y%d", b);
            int drop = b < 2 ? 2 : b < 4 && b % 2 == 0 ? 1 : 0; /* leading ones may be missing */
            drop = q[0] != 1 ? 0 : drop;
            sn_node *l = cc_input(m, x, SN_F32, 3, p),
                    *r = cc_input(m, y, SN_F32, 3 - drop, q + drop);
            cc_entry(m, sn_b_binary(SN_OP_add, l, sn_b_unary(SN_OP_abs, r)), "add_%d_%d", a, b);
        }
    cc_check(m, 2, 2, 3, (int64_t[]){5, 0, 1}, 1e-6);
}

/* ---- element types ---- */

static void casts(void **state) {
    (void)state;
    sn_module *m = sn_module_new("casts");
    for (int from = 0; from < SN_DTYPE_COUNT; from++) {
        char name[16];
        snprintf(name, sizeof name, from == SN_U8 ? "i120_%d" : "x%d", from);
        sn_node *x = cc_input(m, name, (sn_dtype)from, SHAPE(3, 19));
        for (int to = 0; to < SN_DTYPE_COUNT; to++) {
            bool negative = to == SN_U8 && sn_dtype_is_float((sn_dtype)from);
            sn_node *y = negative ? sn_b_unary(SN_OP_abs, x) : x; /* not in u8's range otherwise */
            cc_entry(m, sn_b_cast(y, (sn_dtype)to), "cast_%s_%s", sn_dtype_name((sn_dtype)from),
                     sn_dtype_name((sn_dtype)to));
        }
    }
    cc_check(m, 2, 2, 0, NULL, 0);
}

static void integers(void **state) {
    (void)state;
    static const sn_dtype types[] = {SN_I32, SN_I64, SN_I8, SN_U8};
    static const sn_op ops[] = {SN_OP_add, SN_OP_sub, SN_OP_mul, SN_OP_div, SN_OP_mod,
                                SN_OP_max, SN_OP_min, SN_OP_lt,  SN_OP_le,  SN_OP_eq,
                                SN_OP_ne,  SN_OP_and, SN_OP_or,  SN_OP_xor};
    sn_module *m = sn_module_new("integers");
    for (int k = 0; k < 4; k++) {
        char a[16], b[16];
        snprintf(a, sizeof a, "x%d", k);
        snprintf(b, sizeof b, "y%d", k);
        sn_node *x = cc_input(m, a, types[k], SHAPE(5, 19)),
                *y = cc_input(m, b, types[k], SHAPE(5, 19));
        for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
            cc_entry(m, sn_b_binary(ops[i], x, y), "%s_%d", sn_ops[ops[i]].name, k);
            cc_entry(m, sn_b_scalar(ops[i], x, 3), "%s3_%d", sn_ops[ops[i]].name, k);
        }
        cc_entry(m, sn_b_unary(SN_OP_abs, x), "abs_%d", k);
        cc_entry(m, sn_b_unary(SN_OP_sign, x), "sign_%d", k);
        cc_entry(m, sn_b_unary(SN_OP_neg, x), "neg_%d", k);
    }
    cc_check(m, 2, 2, 0, NULL, 0);
}

static void floats_of_16_bits(void **state) {
    (void)state;
    static const sn_dtype types[] = {SN_BF16, SN_F16};
    sn_module *m = sn_module_new("halves");
    for (int k = 0; k < 2; k++) {
        sn_node *x = cc_input(m, k ? "x1" : "x0", types[k], SHAPE(5, 19));
        sn_node *w = cc_input(m, k ? "w1" : "w0", types[k], SHAPE(19, 33));
        sn_node *p = cc_param(m, k ? "p1" : "p0", types[k], SHAPE(19, 33));
        cc_entry(m, sn_b_binary(SN_OP_mul, x, sn_b_unary(SN_OP_tanh, x)), "elem_%d", k);
        cc_entry(m, SN_NODE(m, softmax, SN_ATTRS(SN_INT(axis, 1)), x), "softmax_%d", k);
        cc_entry(m, sn_b_transpose(x, AXES(1, 0)), "transpose_%d", k);
        cc_entry(m, cc_dot(x, w, 0, NULL, NULL, 1, (int64_t[]){1}, (int64_t[]){0}), "dot_%d", k);
        cc_entry(m, cc_dot(x, p, 0, NULL, NULL, 1, (int64_t[]){1}, (int64_t[]){0}), "weights_%d",
                 k);
        sn_node *wide = sn_b_cast(x, SN_F32);
        cc_entry(
            m, cc_dot(wide, sn_b_cast(p, SN_F32), 0, NULL, NULL, 1, (int64_t[]){1}, (int64_t[]){0}),
            "wide_weights_%d", k);
        cc_entry(m, sn_b_reduce(SN_OP_reduce_sum, wide, AXES(0)), "column_%d", k);
    }
    cc_check(m, 0, 4, 0, NULL, 2e-2);
}

static void precision_between(void **state) { /* f64 inside kernels whose operands are f32 */
    (void)state;
    sn_module *m = sn_module_new("wide");
    sn_node *x = cc_input(m, "x", SN_F32, SHAPE(4, 19)),
            *w = cc_param(m, "w", SN_F32, SHAPE(19, 7));
    sn_node *d = sn_b_scalar(SN_OP_add, sn_b_cast(x, SN_F64), 1e9);
    cc_entry(m, sn_b_cast(sn_b_scalar(SN_OP_sub, d, 1e9), SN_F32), "there_and_back");
    sn_node *p = cc_dot(x, w, 0, NULL, NULL, 1, (int64_t[]){1}, (int64_t[]){0});
    cc_entry(m, sn_b_scalar(SN_OP_mul, sn_b_cast(p, SN_F64), 3), "product_then_wide");
    cc_entry(m, sn_b_reduce(SN_OP_reduce_sum, sn_b_cast(x, SN_F64), AXES(1)), "wide_sum");
    sn_node *bias = cc_input(m, "bias", SN_F64, SHAPE(7));
    cc_entry(m, sn_b_binary(SN_OP_add, p, sn_b_cast(bias, SN_F32)), "narrow_bias");
    cc_check(m, 0, 4, 0, NULL, 2e-6);
}

static void maxima_of_magnitudes(void **state) {
    (void)state;
    sn_module *m = sn_module_new("magnitudes");
    static const double bounds[] = {0, 1, -1, INFINITY, -INFINITY, NAN};
    static const char *const names[] = {"scalar", "d_scalar", "tensor", "d_tensor"};
    for (int k = 0; k < 4; k++) {
        sn_dim n = 33;
        sn_node *x =
            sn_b_unary(SN_OP_abs, cc_input(m, names[k], k % 2 ? SN_F64 : SN_F32, k / 2, &n));
        for (int i = 0; i < 6; i++) {
            cc_entry(m, sn_b_scalar(SN_OP_max, x, bounds[i]), "max_%d_%d", k, i);
            cc_entry(m, sn_b_scalar(SN_OP_min, sn_b_unary(SN_OP_neg, x), bounds[i]), "min_%d_%d", k,
                     i);
        }
    }
    cc_check(m, 0, 4, 0, NULL, 0);
}

static void noise(void **state) {
    (void)state;
    sn_module *m = sn_module_new("noise");
    sn_dim t = sn_symbol_add(m, "T", 0, 4000);
    sn_node *seed = cc_input(m, "seed", SN_I64, SHAPE(2));
    sn_node *u = SN_NODE(
        m, random, SN_ATTRS(SN_INT(stream, 17), SN_LIST(shape, 2, ((sn_dim[]){t, 17}))), seed);
    sn_node *flat = SN_NODE(m, random, SN_ATTRS(SN_INT(stream, -5), SN_LIST(shape, 1, &t)), seed);
    sn_node *x = cc_input(m, "x", SN_F32, SHAPE(t, 17)), *wide = cc_input(m, "d", SN_F64, SHAPE(t));
    cc_entry(m, u, "rows");
    cc_entry(m, flat, "flat");
    cc_entry(m, sn_b_transpose(u, AXES(1, 0)), "transposed");
    cc_entry(m, sn_b_select(sn_b_scalar(SN_OP_lt, u, 0.5), x, sn_b_const(m, SN_F32, 0)), "mask");
    cc_entry(m, sn_b_binary(SN_OP_add, wide, sn_b_cast(flat, SN_F64)), "into_f64");
    cc_entry(m, sn_b_reduce(SN_OP_reduce_sum, u, AXES(1)), "summed");
    sn_node *own = sn_b_broadcast(sn_b_const(m, SN_I64, 7), SHAPE(2));
    cc_entry(m, SN_NODE(m, random, SN_ATTRS(SN_INT(stream, 18), SN_LIST(shape, 1, &t)), own),
             "constant_seed");
    cc_check(m, 0, 4, 4, (int64_t[]){70, 0, 1, 1000}, 2e-6);
}

/* LLVM 19 folds a vector division of 64-bit integers by different constants to wrong quotients. */
static void constant_quotients(void **state) {
    (void)state;
    sn_module *m = sn_module_new("quotients");
    sn_tensor i = sn_arange(m, SN_I64, 4), wide = sn_arange(m, SN_I64, 24);
    cc_entry(m, sn_div(i, i), "div");
    cc_entry(m, sn_mod(sn_mul(wide, 5), sn_sub(wide, 7)), "mod");
    cc_check(m, 0, 4, 1, (int64_t[]){1}, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views),
        cmocka_unit_test(constant_quotients),
        cmocka_unit_test(views_of_values),
        cmocka_unit_test(reductions),
        cmocka_unit_test(reductions_of_odd_sizes),
        cmocka_unit_test(indices),
        cmocka_unit_test(indices_that_are_values_too),
        cmocka_unit_test(broadcasts),
        cmocka_unit_test(casts),
        cmocka_unit_test(integers),
        cmocka_unit_test(floats_of_16_bits),
        cmocka_unit_test(precision_between),
        cmocka_unit_test(maxima_of_magnitudes),
        cmocka_unit_test(noise),
    };
    return cmocka_run_group_tests(tests, cc_begin, cc_end);
}
