/* test_compile_products.c: products as machine code: axes, sizes, element types, epilogues,
 * weights. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "tests/support/compile_case.h"
#include "tests/support/effort.h"

#include <stdio.h>

typedef int64_t axis;

static sn_node *product(sn_node *x, sn_node *y) { /* [.., K] by [K, ..] */
    axis last = x->rank - 1;
    return cc_dot(x, y, 0, NULL, NULL, 1, &last, (axis[]){0});
}

/* Up to four batch axes, anywhere in the operands. */
static void batches(void **state) {
    (void)state;
    sn_module *m = sn_module_new("batches");
    static const axis order[] = {0, 1, 2, 3};
    static const sn_dim size[] = {2, 3, 2, 2};
    for (int n = 0; n <= 4; n++) {
        sn_dim a[6], b[6];
        axis last[1] = {n + 1}, mid[1] = {n}, first[1] = {0}, second[1] = {1}, transposed[4];
        for (int i = 0; i < n; i++) {
            a[i] = b[i] = size[i];
            transposed[i] = n + 1 - i;
        }
        a[n] = 5, a[n + 1] = 19, b[n] = 19, b[n + 1] = 7;
        sn_dim c_shape[6] = {19, 7};
        for (int i = 0; i < n; i++) c_shape[transposed[i]] = size[i];
        char x[16], y[16], z[16];
        snprintf(x, sizeof x, "x%d", n);
        snprintf(y, sizeof y, "y%d", n);
        snprintf(z, sizeof z, "z%d", n);
        sn_node *l = cc_input(m, x, SN_F32, n + 2, a), *r = cc_input(m, y, SN_F32, n + 2, b);
        sn_node *odd = cc_input(m, z, SN_F32, n + 2, c_shape);
        cc_entry(m, cc_dot(l, r, n, order, order, 1, last, mid), "plain%d", n);
        cc_entry(m, cc_dot(l, l, n, order, order, 1, last, last), "transposed%d", n);
        cc_entry(m, cc_dot(l, odd, n, order, transposed, 1, last, first), "batch_last%d", n);
        cc_entry(m, cc_dot(odd, odd, n, transposed, transposed, 1, second, second), "both_last%d",
                 n);
        cc_entry(m, cc_dot(l, odd, n, order, transposed, 0, NULL, NULL), "outer%d", n);
        sn_node *bias = cc_input(m, "bias", SN_F32, SHAPE(7));
        cc_entry(m, sn_b_binary(SN_OP_add, cc_dot(l, r, n, order, order, 1, last, mid), bias),
                 "bias%d", n);
    }
    cc_check(m, 4, 4, 0, NULL, 2e-5);
}

static void axes_of_factors(void **state) {
    (void)state;
    sn_module *m = sn_module_new("axes");
    sn_dim t = sn_symbol_add(m, "T", 0, 64);
    sn_node *x = cc_input(m, "x", SN_F32, SHAPE(3, t, 4, 5)),
            *y = cc_input(m, "y", SN_F32, SHAPE(5, 4, 6, 2));
    sn_node *w = cc_param(m, "w", SN_F32, SHAPE(5, 4, 6, 2));
    for (int k = 0; k < 2; k++) {
        sn_node *r = k ? w : y;
        cc_entry(m, cc_dot(x, r, 0, NULL, NULL, 2, (axis[]){2, 3}, (axis[]){1, 0}), "two_%d", k);
        cc_entry(m, cc_dot(x, r, 0, NULL, NULL, 2, (axis[]){3, 2}, (axis[]){0, 1}),
                 "two_transposed_%d", k);
        cc_entry(m, cc_dot(x, r, 0, NULL, NULL, 1, (axis[]){2}, (axis[]){1}), "inner_%d", k);
        cc_entry(m, cc_dot(x, r, 1, (axis[]){2}, (axis[]){1}, 1, (axis[]){3}, (axis[]){0}),
                 "batch_%d", k);
    }
    cc_entry(m, cc_dot(x, x, 2, (axis[]){0, 1}, (axis[]){0, 1}, 2, (axis[]){2, 3}, (axis[]){2, 3}),
             "no_free");
    cc_entry(m, cc_dot(x, x, 0, NULL, NULL, 4, (axis[]){0, 1, 2, 3}, (axis[]){0, 1, 2, 3}),
             "scalar");
    cc_entry(m, cc_dot(x, x, 1, (axis[]){1}, (axis[]){1}, 0, NULL, NULL), "outer");
    cc_check(m, 0, 4, 3, (int64_t[]){9, 0, 1}, 5e-5);
}

static void sizes(void **state) {
    (void)state;
    static const sn_dim M[] = {0, 1, 2, 15, 33}, N[] = {0, 1, 31, 32, 70}, K[] = {0, 1, 17};
    sn_module *m = sn_module_new("sizes");
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 5; j++)
            for (int k = 0; k < 3; k++) {
                if (!effort_takes((size_t)(i + j + k), 5)) continue;
                char a[32], b[32], p[32];
                snprintf(a, sizeof a, "x%d%d", i, k);
                snprintf(b, sizeof b, "y%d%d", j, k);
                snprintf(p, sizeof p, "p%d%d", j, k);
                sn_node *x = cc_input(m, a, SN_F32, SHAPE(M[i], K[k]));
                sn_node *y = (i + j + k) % 2 ? cc_input(m, b, SN_F32, SHAPE(K[k], N[j]))
                                             : cc_param(m, p, SN_F32, SHAPE(K[k], N[j]));
                cc_entry(m, product(x, y), "%d_%d_%d", (int)M[i], (int)N[j], (int)K[k]);
            }
    cc_check(m, 4, 4, 0, NULL, 1e-5);
}

static void large(void **state) { /* several groups of rows, panels, chunks of K */
    (void)state;
    sn_module *m = sn_module_new("large");
    sn_dim t = sn_symbol_add(m, "T", 0, 1000);
    sn_node *x = cc_input(m, "x", SN_F32, SHAPE(t, 70)),
            *y = cc_input(m, "y", SN_F32, SHAPE(70, 150));
    sn_node *w = cc_param(m, "w", SN_F32, SHAPE(70, 150)),
            *bias = cc_param(m, "bias", SN_F32, SHAPE(150));
    sn_node *deep = cc_input(m, "deep", SN_F32, SHAPE(3, 6500)),
            *wd = cc_param(m, "wd", SN_F32, SHAPE(6500, 37));
    sn_node *yd = cc_input(m, "yd", SN_F32, SHAPE(6500, 37));
    cc_entry(m, product(x, y), "inputs");
    cc_entry(m, sn_b_unary(SN_OP_tanh, sn_b_binary(SN_OP_add, product(x, w), bias)), "weights");
    cc_entry(m, cc_dot(x, x, 0, NULL, NULL, 1, (axis[]){0}, (axis[]){0}), "long_sum");
    cc_entry(m, product(deep, wd), "deep_weights");
    cc_entry(m, product(deep, yd), "deep_inputs");
    cc_entry(m, cc_dot(y, x, 0, NULL, NULL, 1, (axis[]){0}, (axis[]){1}), "both_transposed");
    cc_check_threads(m, 4, 777);
    cc_check(m, 4, 4, 3, (int64_t[]){300, 1, 0}, 1e-3);
}

static void types(void **state) {
    (void)state;
    static const sn_dtype kinds[] = {SN_F64, SN_BF16, SN_F16, SN_I32, SN_I64, SN_I8, SN_U8};
    sn_module *m = sn_module_new("types");
    for (int k = 0; k < 7; k++) {
        char a[16], b[16], p[16];
        snprintf(a, sizeof a, "x%d", k);
        snprintf(b, sizeof b, "y%d", k);
        snprintf(p, sizeof p, "p%d", k);
        sn_node *x = cc_input(m, a, kinds[k], SHAPE(2, 5, 19)),
                *y = cc_input(m, b, kinds[k], SHAPE(2, 19, 18));
        if (effort_takes((size_t)k, 2))
            cc_entry(m, cc_dot(x, y, 1, (axis[]){0}, (axis[]){0}, 1, (axis[]){2}, (axis[]){1}),
                     "batched%d", k);
        cc_entry(m, product(x, cc_param(m, p, kinds[k], SHAPE(19, 40))), "weights%d", k);
        if (!effort_takes((size_t)k + 1, 2)) continue;
        cc_entry(m, cc_dot(x, y, 0, NULL, NULL, 2, (axis[]){0, 2}, (axis[]){0, 1}), "two%d", k);
    }
    cc_check(m, 4, 4, 0, NULL, 2e-2);
    m = sn_module_new("wide");
    sn_node *x = cc_input(m, "x", SN_F64, SHAPE(5, 19)),
            *p = cc_param(m, "p", SN_F64, SHAPE(19, 40));
    cc_entry(m, sn_b_unary(SN_OP_tanh, product(x, p)), "f64");
    cc_entry(m, sn_b_cast(product(x, p), SN_F32), "f64_to_f32");
    cc_check(m, 0, 4, 0, NULL, 1e-7);
}

/* Everything that may follow a product, fused or not. */
static void epilogues(void **state) {
    (void)state;
    sn_module *m = sn_module_new("epilogues");
    sn_dim t = sn_symbol_add(m, "T", 0, 300);
    sn_node *x = cc_input(m, "x", SN_F32, SHAPE(2, t, 19));
    sn_node *p = product(x, cc_param(m, "w", SN_F32, SHAPE(19, 36)));
    sn_node *full = cc_input(m, "full", SN_F32, SHAPE(2, t, 36)),
            *row = cc_param(m, "row", SN_F32, SHAPE(36));
    sn_node *column = cc_input(m, "column", SN_F32, SHAPE(2, t, 1)),
            *one = cc_input(m, "one", SN_F32, SCALAR);
    sn_node *middle = cc_input(m, "middle", SN_F32, SHAPE(2, 1, 36)),
            *outer = cc_input(m, "outer", SN_F32, SHAPE(2, 1, 1));
    sn_node *per_row = cc_input(m, "per_row", SN_F32, SHAPE(t, 1)),
            *flags = cc_input(m, "flags", SN_BOOL, SHAPE(2, t, 36));
    sn_node *whole = cc_input(m, "whole", SN_I32, SHAPE(t, 36)),
            *half = cc_input(m, "half", SN_BF16, SHAPE(2, t, 36));
    sn_node *transposed =
        sn_b_transpose(cc_input(m, "transposed", SN_F32, SHAPE(2, 36, t)), AXES(0, 2, 1));
    sn_node *operands[] = {full,
                           row,
                           column,
                           one,
                           middle,
                           outer,
                           per_row,
                           transposed,
                           sn_b_cast(whole, SN_F32),
                           sn_b_cast(half, SN_F32)};
    for (int i = 0; i < 10; i++) {
        if (effort_takes((size_t)i, 2))
            cc_entry(m, sn_b_binary(SN_OP_mul, p, operands[i]), "mul%d", i);
        if (effort_takes((size_t)i + 1, 2))
            cc_entry(m, sn_b_binary(SN_OP_sub, operands[i], sn_b_unary(SN_OP_neg, p)), "sub%d", i);
    }
    sn_node *z = sn_b_binary(SN_OP_add, p, row), *g = SN_NODE(m, gelu, SN_NO_ATTRS, z);
    cc_entry(m, sn_b_select(flags, p, one), "select");
    cc_entry(m, sn_b_scalar(SN_OP_lt, p, 0.25), "bool");
    cc_entry(m, sn_b_cast(sn_b_scalar(SN_OP_mul, p, 3), SN_I32), "integer");
    cc_entry(m, sn_b_cast(z, SN_BF16), "narrow");
    cc_entry(m, sn_b_transpose(g, AXES(1, 0, 2)), "stored_transposed");
    cc_entry(m, sn_b_transpose(g, AXES(2, 0, 1)), "transposed");
    cc_entry(m, sn_b_reduce(SN_OP_reduce_max, g, AXES(2)), "reduced");
    cc_entry(m, sn_b_binary(SN_OP_mul, z, z), "square");
    cc_entry(m, sn_b_binary(SN_OP_add, z, sn_b_cast(sn_b_dim(m, SN_I32, t), SN_F32)), "length");
    sn_node *index = sn_b_iota(m, SN_F32, SHAPE(2, t, 36), 2);
    cc_entry(m, sn_b_binary(SN_OP_add, z, index), "index");
    cc_entry(m, sn_b_binary(SN_OP_add, z, sn_b_unary(SN_OP_exp, full)), "computed_operand");
    sn_entry *e = cc_entry(m, g, "both");
    sn_entry_output(m, e, "z", z);
    sn_entry_output(m, e, "p", p);
    sn_entry_output(m, e, "positive", sn_b_binary(SN_OP_lt, sn_b_const(m, SN_F32, 0), z));
    sn_node *chain = p; /* too long for any kernel */
    for (int i = 0; i < 150; i++)
        chain = sn_b_binary(i % 2 ? SN_OP_add : SN_OP_max, sn_b_scalar(SN_OP_mul, chain, 0.5),
                            i % 3 ? row : full);
    cc_entry(m, chain, "long");
    cc_check(m, 0, 4, 3, (int64_t[]){17, 0, 1}, 1e-2);
}

/* What is computed from weights only, once. */
static void prepared(void **state) {
    (void)state;
    sn_module *m = sn_module_new("prepared");
    sn_dim t = sn_symbol_add(m, "T", 0, 300);
    sn_node *x = cc_input(m, "x", SN_F32, SHAPE(t, 19)),
            *w = cc_param(m, "w", SN_F32, SHAPE(36, 19));
    sn_node *v = cc_param(m, "v", SN_F32, SHAPE(4, 19)), *b = cc_param(m, "b", SN_F32, SHAPE(36));
    sn_node *transposed = sn_b_transpose(w, AXES(1, 0));
    cc_entry(m, product(x, transposed), "transposed");
    cc_entry(m, product(x, sn_b_transpose(sn_b_concat(m, 2, (sn_node *[]){w, v}, 0), AXES(1, 0))),
             "joined");
    cc_entry(m, product(x, sn_b_slice(transposed, 1, 3, 20)), "part");
    cc_entry(m, product(x, sn_b_scalar(SN_OP_mul, transposed, 2)), "scaled");
    cc_entry(m, product(x, sn_b_unary(SN_OP_exp, transposed)), "computed");
    cc_entry(m, sn_b_unary(SN_OP_tanh, w), "weights_only");
    cc_entry(m, transposed, "weights_themselves");
    cc_entry(m, sn_b_binary(SN_OP_mul, b, sn_b_cast(sn_b_dim(m, SN_I32, t), SN_F32)),
             "with_length");
    cc_entry(m, sn_b_reduce(SN_OP_reduce_sum, sn_b_broadcast(b, SHAPE(t, 36)), AXES(0)),
             "summed_length");
    sn_node *table = SN_NODE(m, softmax, SN_ATTRS(SN_INT(axis, 1)), w);
    cc_entry(
        m,
        SN_NODE(m, gather, SN_ATTRS(SN_INT(axis, 0)), table, cc_input(m, "i36", SN_I32, SHAPE(t))),
        "table");
    sn_entry *e = cc_entry(m, product(x, transposed), "twice");
    sn_entry_output(m, e, "w", w);
    sn_entry_output(m, e, "z", product(sn_b_unary(SN_OP_neg, x), transposed));
    cc_check(m, 0, 4, 3, (int64_t[]){17, 0, 1}, 2e-5);
}

/* Both operands of each step depend on the previous one: 2^40 paths lead to the parameter. */
static void deep_weights(void **state) {
    (void)state;
    sn_module *m = sn_module_new("deep_weights");
    sn_dim t = sn_symbol_add(m, "T", 0, 50);
    sn_node *w = cc_param(m, "w", SN_F32, SHAPE(9, 16)), *x = cc_input(m, "x", SN_F32, SHAPE(t, 9));
    for (int i = 0; i < 40; i++)
        w = sn_b_binary(SN_OP_sub, sn_b_unary(SN_OP_tanh, w), sn_b_scalar(SN_OP_mul, w, 0.5));
    cc_entry(m, product(x, w), "deep");
    cc_check(m, 0, 4, 2, (int64_t[]){3, 0}, 1e-5);
}

/* One column to more than a vector: row kernels, narrow microtiles, panels with empty microtiles; plain
 * and with an epilogue, batched, of all element types; K around the least that row kernels take. */
static void few_columns(void **state) {
    (void)state;
    static const sn_dtype type[] = {SN_F32, SN_F64, SN_BF16};
    static const int columns[] = {1, 2, 3, 4, 5, 20}, depths[] = {13, 77};
    for (size_t t = 0; t < sizeof type / sizeof *type; t++) {
        sn_module *m = sn_module_new("columns");
        sn_dim len = sn_symbol_add(m, "T", 0, 64);
        for (int i = t ? 3 : 0; i < (t ? 4 : 6); i++)
            for (int j = t ? 1 : 0; j < 2; j++) {
                if (!t && !effort_takes((size_t)(i + j), 2)) continue;
                sn_dim n = columns[i], k = depths[j];
                char x[24], w[24], y[24], z[24];
                snprintf(x, sizeof x, "x%d", (int)k);
                snprintf(w, sizeof w, "w%d_%d", (int)n, (int)k);
                snprintf(y, sizeof y, "y%d_%d", (int)n, (int)k);
                snprintf(z, sizeof z, "z%d", (int)k);
                sn_node *a = cc_input(m, x, type[t], SHAPE(len, k));
                sn_node *p = cc_param(m, w, type[t], SHAPE(n, k));
                sn_node *c = cc_dot(a, p, 0, NULL, NULL, 1, (axis[]){1}, (axis[]){1});
                cc_entry(m, c, "linear%d_%d", (int)n, (int)k);
                cc_entry(m, sn_b_unary(SN_OP_tanh, sn_b_binary(SN_OP_add, c, c)), "tanh%d_%d",
                         (int)n, (int)k);
                sn_node *b = cc_input(m, y, type[t], SHAPE(3, n, k));
                sn_node *d = cc_input(m, z, type[t], SHAPE(3, 5, k));
                cc_entry(m, cc_dot(d, b, 1, (axis[]){0}, (axis[]){0}, 1, (axis[]){2}, (axis[]){2}),
                         "batch%d_%d", (int)n, (int)k);
            }
        cc_check(m, 4, 4, 3, (int64_t[]){0, 14, 19}, type[t] == SN_BF16 ? 2e-2 : 2e-5);
    }
}

/* Rows that the threads divide elsewhere than between tiles of rows. */
static void few_columns_threads(void **state) {
    (void)state;
    sn_module *m = sn_module_new("columns");
    sn_dim len = sn_symbol_add(m, "T", 0, 64), k = 4099;
    sn_node *x = cc_input(m, "x", SN_F32, SHAPE(len, k));
    for (int n = 1; n <= 4; n += 3) {
        sn_node *w = cc_param(m, n == 1 ? "w1" : "w4", SN_F32, SHAPE(n, k));
        cc_entry(m, cc_dot(x, w, 0, NULL, NULL, 1, (axis[]){1}, (axis[]){1}), "columns%d", n);
    }
    cc_check_threads(m, 4, 61);
    sn_module_free(m);
}

/* X X^T and X^T X, where one triangle is multiplied, with epilogues that read other values on both sides
 * of the diagonal. Products of two tensors that lie as X does have kernels of their own. */
static void symmetric(void **state) {
    (void)state;
    static const int rows[] = {64, 97, 150}, depths[] = {40, 517};
    static const axis one = 1, zero = 0;
    sn_module *m = sn_module_new("symmetric");
    sn_dim t = sn_symbol_add(m, "T", 0, 200);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 2; j++) {
            sn_dim n = i < 3 ? rows[i] : t, k = depths[j];
            char a[32];
            snprintf(a, sizeof a, "x%d_%d", i, j);
            sn_node *x = cc_input(m, a, i == 1 ? SN_F64 : SN_F32, SHAPE(n, k));
            snprintf(a, sizeof a, "y%d_%d", i, j);
            sn_node *y = cc_input(m, a, x->dtype, SHAPE(n, n));
            sn_node *p = cc_dot(x, x, 0, NULL, NULL, 1, &one, &one);
            cc_entry(m, p, "plain%d_%d", i, j);
            p = sn_b_binary(SN_OP_add, sn_b_scalar(SN_OP_mul, y, 0.5), p);
            cc_entry(m, sn_b_unary(SN_OP_tanh, p), "fused%d_%d", i, j);
            if (i == 0 && j == 1) {
                sn_node *other = cc_input(m, "other", SN_F32, SHAPE(n, k));
                cc_entry(m, cc_dot(x, other, 0, NULL, NULL, 1, &one, &one), "two");
            }
            if (i != 2) continue;
            cc_entry(m, cc_dot(x, x, 0, NULL, NULL, 1, &zero, &zero), "columns%d", j);
            sn_node *z = cc_input(m, j ? "z1" : "z0", SN_F32, SHAPE(3, 70, k));
            cc_entry(m, cc_dot(z, z, 1, &zero, &zero, 1, (axis[]){2}, (axis[]){2}), "batch%d", j);
        }
    cc_check_threads(m, 4, 133);
    assert_int_equal(cc_count_report(m, 4, "symmetric"), 19); /* not of 40 columns */
    cc_check(m, 0, 4, 3, (int64_t[]){0, 65, 129}, 2e-4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches),     cmocka_unit_test(axes_of_factors),
        cmocka_unit_test(sizes),       cmocka_unit_test(large),
        cmocka_unit_test(types),       cmocka_unit_test(epilogues),
        cmocka_unit_test(prepared),    cmocka_unit_test(deep_weights),
        cmocka_unit_test(few_columns), cmocka_unit_test(few_columns_threads),
        cmocka_unit_test(symmetric),
    };
    return cmocka_run_group_tests(tests, cc_begin, cc_end);
}
