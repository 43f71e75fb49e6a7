/* test_prologue.c: norms that a product computes while it copies its left factor's rows: against
 * the evaluator at every level, where they may be, and where they must not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "tests/support/compile_case.h"
#include "tests/support/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sn_node *linear(sn_node *x, sn_node *w, sn_node *b) {
    return sn_node_new(x->m, SN_OP_linear, b ? 3 : 2, (sn_node *[]){x, w, b}, SN_NO_ATTRS);
}

static sn_node *layer_norm(sn_node *x, sn_node *gain, sn_node *bias) {
    return SN_NODE(x->m, layer_norm, SN_ATTRS(SN_FLT(eps, 1e-5)), x, gain, bias);
}

static sn_node *rms_norm(sn_node *x, sn_node *gain) {
    return SN_NODE(x->m, rms_norm, SN_ATTRS(SN_FLT(eps, 1e-5)), x, gain);
}

/* Products that compute a prologue at this level. */
static int count_prologues(sn_module *m, int level) {
    return cc_count_report(m, level, "prologue:");
}

typedef struct leaves {
    sn_node *x, *gain, *bias, *w, *b;
} leaves;

static leaves make_leaves(sn_module *m, sn_dtype t, int rank, const sn_dim *shape, sn_dim n) {
    sn_dim k = shape[rank - 1];
    return (leaves){cc_input(m, "x", t, rank, shape), cc_param(m, "gain", t, 1, &k),
                    cc_param(m, "bias", t, 1, &k), cc_param(m, "w", t, SHAPE(n, k)),
                    cc_param(m, "b", t, 1, &n)};
}

/* Both norms, with and without what else is fused, for these sizes; then the same bits from any
 * number of threads. */
static void check_norms(sn_dtype t, bool tokens, sn_dim k, sn_dim n, double tol) {
    sn_module *m = sn_module_new("norms");
    sn_dim len = tokens ? sn_symbol_add(m, "T", 0, 16) : 1;
    leaves l = make_leaves(m, t, SHAPE(2, len, k), n);
    cc_entry(m, linear(layer_norm(l.x, l.gain, l.bias), l.w, l.b), "layer");
    cc_entry(m, linear(rms_norm(l.x, l.gain), l.w, NULL), "rms");
    sn_node *up = linear(layer_norm(l.x, l.gain, l.bias), l.w, l.b);
    cc_entry(m, SN_NODE(m, gelu_tanh, SN_NO_ATTRS, up), "gelu");
    assert_int_equal(count_prologues(m, 4), 3);
    assert_int_equal(count_prologues(m, 2), 0);
    cc_check_threads(m, 4, 16);
    cc_check(m, 0, 4, tokens ? 4 : 0, (int64_t[]){13, 16, 1, 0}, tol);
}

static void norms(void **state) {
    (void)state;
    check_norms(SN_F32, true, 83, 70, 2e-5);
    check_norms(SN_F32, true, 192, 33, 2e-5);
    check_norms(SN_F32, false, 200, 96, 2e-5);
    check_norms(SN_F64, true, 45, 40, 1e-12);
}

/* One row: which operand has the rows is not to be told by the shape. */
static void single_row(void **state) {
    (void)state;
    sn_module *m = sn_module_new("row");
    leaves l = make_leaves(m, SN_F32, SHAPE(1, 1, 96), 64);
    cc_entry(m, linear(layer_norm(l.x, l.gain, l.bias), l.w, l.b), "layer");
    cc_entry(m, linear(rms_norm(l.x, l.gain), l.w, NULL), "rms");
    assert_int_equal(count_prologues(m, 4), 2);
    cc_check(m, 3, 4, 0, NULL, 2e-5);
}

/* The residual goes around a product that has both: its epilogue reads the rows themselves. */
static void residual(void **state) {
    (void)state;
    sn_module *m = sn_module_new("residual");
    sn_dim t = sn_symbol_add(m, "T", 0, 32);
    leaves l = make_leaves(m, SN_F32, SHAPE(t, 64), 64);
    sn_node *y = linear(layer_norm(l.x, l.gain, l.bias), l.w, l.b);
    y = sn_b_binary(SN_OP_add, y, l.x);
    cc_entry(m, sn_b_binary(SN_OP_add, linear(rms_norm(y, l.gain), l.w, l.b), y), "twice");
    assert_int_equal(count_prologues(m, 4), 2);
    cc_check(m, 0, 4, 2, (int64_t[]){31, 1}, 5e-5);
}

/* Somebody else needs the normalised rows, or there is nothing to copy: they get a kernel. */
static void left_alone(void **state) {
    (void)state;
    sn_module *m = sn_module_new("alone");
    sn_dim t = sn_symbol_add(m, "T", 0, 32);
    leaves l = make_leaves(m, SN_F32, SHAPE(t, 64), 48);
    sn_node *n = layer_norm(l.x, l.gain, l.bias), *y = linear(n, l.w, l.b);
    sn_entry *e = cc_entry(m, y, "output");
    sn_entry_output(m, e, "n", n);
    cc_entry(m, cc_dot(n, y, 0, NULL, NULL, 1, (int64_t[]){0}, (int64_t[]){0}), "weight_gradient");
    cc_entry(m, linear(n, cc_state(m, "s", SN_F32, SHAPE(48, 64)), NULL), "trained_weight");
    cc_entry(m,
             linear(sn_b_binary(SN_OP_add, n, cc_input(m, "y", SN_F32, SHAPE(t, 64))), l.w, NULL),
             "two_operands");
    cc_entry(m, linear(sn_b_unary(SN_OP_exp, l.x), l.w, NULL), "no_sum");
    sn_node *many = cc_input(m, "many", SN_F32, SHAPE(33, 64)); /* rows: cost model */
    cc_entry(m, linear(rms_norm(many, l.gain), l.w, NULL), "many_rows");
    assert_int_equal(count_prologues(m, 4), 0);
    cc_check(m, 4, 4, 2, (int64_t[]){31, 1}, 5e-5);
}

enum { NARROW_K = 96, NARROW_N = 45, NARROW_M = 17 };

/* The product of a norm with weights of fewer bits, T rows of x, into y. */
static void run_narrow(const char *weights, int level, int t, float *x, float *y) {
    static float w[NARROW_N * NARROW_K], gain[NARROW_K], b[NARROW_N];
    for (int i = 0; i < NARROW_N * NARROW_K; i++) w[i] = (float)(i * 37 % 101) / 50 - 1;
    for (int i = 0; i < NARROW_K; i++) gain[i] = 1 + (float)(i % 7) / 10;
    sn_error err = {0};
    sn_module *m = sn_module_new("narrow");
    sn_entry_begin(m, "run");
    sn_tensor in = sn_input(m, "x", SN_F32, sn_symbol(m, "T", 0, NARROW_M), NARROW_K);
    sn_tensor norm = sn_rms_norm(in, sn_param(m, "gain", SN_F32, NARROW_K), 1e-5);
    sn_output("y", sn_linear(norm, sn_param(m, "w", SN_F32, NARROW_N, NARROW_K),
                             sn_param(m, "b", SN_F32, NARROW_N)));
    sn_options o = sn_options_default();
    o.level = level;
    o.weights = weights;
    sn_program *p = sn_compile(m, &o, &err);
    if (!p) fail_msg("%s", err.message);
    char *text = explain_text(p, "run");
    assert_int_equal(strstr(text, "prologue:") != NULL, level == 4);
    free(text);
    sn_arg_binding param[] = {SN_BIND("gain", SN_F32, gain, NARROW_K),
                              SN_BIND("w", SN_F32, w, NARROW_N, NARROW_K),
                              SN_BIND("b", SN_F32, b, NARROW_N)};
    sn_session *s = sn_session_new_arrays(p, param, 3, &err);
    if (!s) fail_msg("%s", err.message);
    sn_arg_binding xi = SN_BIND("x", SN_F32, x, t, NARROW_K),
                   yo = SN_BIND("y", SN_F32, y, t, NARROW_N);
    if (!sn_run(s, "run", &xi, 1, &yo, 1, &err)) fail_msg("%s", err.message);
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
}

static void narrow_weights(void **state) {
    (void)state;
    static const char *const weights[] = {"bf16", "int8", "int4"};
    static const int rows[] = {1, 2, NARROW_M};
    static float x[NARROW_M * NARROW_K], y[2][NARROW_M * NARROW_N];
    for (int i = 0; i < NARROW_M * NARROW_K; i++) x[i] = (float)(i * 73 % 211) / 100 - 1;
    for (int i = 0; i < 9; i++) {
        int t = rows[i % 3];
        for (int l = 0; l < 2; l++) run_narrow(weights[i / 3], l ? 4 : 2, t, x, y[l]);
        for (int j = 0; j < t * NARROW_N; j++)
            assert_true(fabsf(y[0][j] - y[1][j]) <= 2e-5f * (1 + fabsf(y[0][j])));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms),      cmocka_unit_test(single_row),     cmocka_unit_test(residual),
        cmocka_unit_test(left_alone), cmocka_unit_test(narrow_weights),
    };
    return cmocka_run_group_tests(tests, cc_begin, cc_end);
}
