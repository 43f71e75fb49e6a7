/* test_backend.c: programs whose kernels are oneDNN's primitives: which work they take, on views,
 * without elements, with weights; gradients; a transformer block; builds without oneDNN. The
 * numbers are the evaluator's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include "codegen/backend.h"
#include "tests/support/compile_case.h"
#include "tests/support/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const int64_t lengths[] = {17, 0, 1, 64};
#define LENGTHS 4, lengths

static sn_node *softmax(sn_node *x) {
    return SN_NODE(x->m, softmax, SN_NO_ATTRS, x);
}

static sn_node *norm(int n, sn_node *x, sn_node *gain, sn_node *bias) {
    return sn_node_new(x->m, SN_OP_layer_norm, n, (sn_node *[]){x, gain, bias},
                       SN_ATTRS(SN_FLT(eps, 1e-5)));
}

static void rows(void **state) {
    (void)state;
    sn_module *m = sn_module_new("rows");
    sn_dim t = sn_symbol_add(m, "T", 0, 100);
    sn_node *x = cc_input(m, "x", SN_F32, SHAPE(2, t, 15));
    sn_node *g = cc_param(m, "g", SN_F32, SHAPE(15)), *b = cc_param(m, "b", SN_F32, SHAPE(15));
    cc_entry(m, softmax(x), "softmax");
    cc_entry(m, softmax(sn_b_transpose(x, 3, (int64_t[]){2, 0, 1})), "of_a_transpose");
    cc_entry(m,
             softmax(cc_slice(x, (sn_dim[]){0, 0, 1}, (sn_dim[]){2, t, 7}, (int64_t[]){1, 1, 2})),
             "of_a_slice");
    cc_entry(m, sn_b_transpose(softmax(x), 3, (int64_t[]){1, 0, 2}), "result_transposed");
    cc_entry(m, norm(3, x, g, b), "norm");
    cc_entry(m, norm(2, x, g, NULL), "without_bias");
    cc_entry(m, norm(1, x, NULL, NULL), "plain");
    cc_entry(m, norm(3, x, g, g), "one_vector_twice");
    cc_entry(m,
             norm(3, x,
                  cc_slice(cc_param(m, "gg", SN_F32, SHAPE(30)), (sn_dim[]){0}, (sn_dim[]){15},
                           (int64_t[]){2}),
                  b),
             "strided_gain");
    cc_check_onednn(m, "f32", 9, LENGTHS, 1e-5);
    sn_module_free(m);
}

/* What no primitive takes is native code, and the report says so. */
static void unfit(void **state) {
    (void)state;
    if (!sn_backend_library()) skip();
    sn_module *m = sn_module_new("unfit");
    sn_node *x = cc_input(m, "x", SN_F32, SHAPE(6, 5)), *d = cc_input(m, "d", SN_F64, SHAPE(6, 5));
    cc_entry(m, SN_NODE(m, softmax, SN_ATTRS(SN_INT(axis, 0)), x), "columns");
    cc_entry(m, softmax(d), "f64");
    cc_check_onednn(m, "f32", 0, 0, NULL, 1e-5);
    sn_error err = {0};
    sn_options o = {.level = 4, .plan_only = true, .backend = "onednn"};
    sn_program *p = sn_compile(m, &o, &err);
    assert_non_null(p);
    char *text = explain_text(p, NULL);
    assert_non_null(strstr(text, "native code: the primitive supports the last axis only"));
    assert_non_null(strstr(text, "native code: the primitive supports f32 only"));
    free(text);
    sn_program_free(p);
    sn_module_free(m);
}

static sn_node *linear(sn_node *x, sn_node *w, sn_node *b) {
    return sn_node_new(x->m, SN_OP_linear, b ? 3 : 2, (sn_node *[]){x, w, b}, SN_NO_ATTRS);
}

static bool bf16_here(void) {
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq");
}

static void products(void **state) {
    (void)state;
    sn_module *m = sn_module_new("products");
    sn_dim t = sn_symbol_add(m, "T", 0, 100);
    sn_node *x = cc_input(m, "x", SN_F32, SHAPE(2, t, 33)),
            *y = cc_input(m, "y", SN_F32, SHAPE(2, t, 33));
    sn_node *w = cc_param(m, "w", SN_F32, SHAPE(48, 33)), *b = cc_param(m, "b", SN_F32, SHAPE(48));
    sn_node *column = cc_param(m, "c", SN_F32, SHAPE(48, 1));
    cc_entry(m, linear(x, w, NULL), "weights");
    cc_entry(m, linear(x, w, b), "bias");
    cc_entry(m,
             linear(cc_slice(x, (sn_dim[]){0, 0, 0}, (sn_dim[]){2, t, 11}, (int64_t[]){1, 1, 3}),
                    cc_slice(w, (sn_dim[]){0, 0}, (sn_dim[]){48, 11}, (int64_t[]){1, 3}), b),
             "views");
    cc_entry(m, sn_b_unary(SN_OP_tanh, linear(x, w, b)), "epilogue");
    cc_entry(m, sn_b_binary(SN_OP_add, linear(x, w, NULL), linear(y, w, NULL)), "sum");
    cc_entry(m, linear(sn_b_slice(x, 2, 4, 1), column, b), "k_is_1");
    cc_entry(m, linear(x, sn_b_slice(w, 0, 5, 1), NULL), "n_is_1");
    cc_entry(m, SN_NODE(m, matmul, SN_NO_ATTRS, x, sn_b_transpose(y, 3, (int64_t[]){0, 2, 1})),
             "scores");
    cc_entry(m, SN_NODE(m, matmul, SN_NO_ATTRS, sn_b_transpose(x, 3, (int64_t[]){0, 2, 1}), y),
             "sum_over_T");
    cc_entry(m, SN_NODE(m, matmul, SN_NO_ATTRS, x, cc_param(m, "each", SN_F32, SHAPE(2, 33, 20))),
             "constant_batch");
    sn_node *all = cc_input(m, "all", SN_F32, SHAPE(2, 1, 48));
    cc_entry(m, sn_b_binary(SN_OP_add, linear(x, w, NULL), all), "no_bias");
    cc_check_onednn(m, "f32", 12, LENGTHS, 2e-5);
    cc_check_onednn(m, "bf16", bf16_here() ? 12 : 0, LENGTHS, 2e-5);
    sn_module_free(m);
}

/* Products that no primitive takes as they stand. */
static void odd_products(void **state) {
    (void)state;
    sn_module *m = sn_module_new("odd_products");
    sn_dim t = sn_symbol_add(m, "T", 0, 100), shape[] = {2, t, 33};
    sn_node *y = cc_input(m, "y", SN_F32, 3, shape), *w = cc_param(m, "w", SN_F32, SHAPE(48, 33));
    sn_node *b = cc_param(m, "b", SN_F32, SHAPE(48));
    sn_node *product = linear(y, w, NULL);
    sn_entry *e = cc_entry(m, sn_b_binary(SN_OP_add, product, b), "also_without_bias");
    sn_entry_output(m, e, "z", product);
    sn_node *row = sn_b_broadcast(cc_input(m, "r", SN_F32, SHAPE(1, 33)), 3, shape);
    cc_entry(m, SN_NODE(m, matmul, SN_NO_ATTRS, row, sn_b_transpose(y, 3, (int64_t[]){0, 2, 1})),
             "repeated_rows");
    cc_entry(m, SN_NODE(m, matmul, SN_NO_ATTRS, row, sn_b_transpose(row, 3, (int64_t[]){0, 2, 1})),
             "repeated_batch");
    cc_entry(m, linear(cc_input(m, "h", SN_BF16, 3, shape), w, b), "half");
    cc_entry(m, linear(cc_input(m, "d", SN_F64, 3, shape), sn_b_cast(w, SN_F64), NULL), "double");
    cc_check_onednn(m, "f32", -1, LENGTHS, 2e-2);
    sn_module_free(m);
}

static void convolutions(void **state) {
    (void)state;
    sn_module *m = sn_module_new("convolutions");
    sn_dim t = sn_symbol_add(m, "T", 0, 100);
    sn_node *x = cc_input(m, "x", SN_F32, SHAPE(t, 4, 9, 8)),
            *last = cc_input(m, "y", SN_F32, SHAPE(t, 9, 8, 4));
    sn_node *w = cc_param(m, "w", SN_F32, SHAPE(6, 4, 3, 2)),
            *b = cc_param(m, "b", SN_F32, SHAPE(6));
    sn_node *part = cc_param(m, "p", SN_F32, SHAPE(6, 2, 3, 3));
    cc_entry(m, sn_conv2d(x, w, b, .stride = {2, 1}, .padding = {1, 1}, .dilation = {2, 1}), "all");
    cc_entry(m, sn_conv2d(x, w, NULL), "plain");
    cc_entry(m, sn_conv2d(x, part, b, .groups = 2, .padding = {1, 1}), "groups");
    cc_entry(m, sn_conv2d(sn_transpose(last, 0, 3, 1, 2), w, b), "channels_last");
    cc_entry(m, sn_relu(sn_conv2d(x, w, b)), "epilogue");
    cc_check_onednn(m, "f32", 5, LENGTHS, 2e-5);
    cc_check(m, 0, 4, LENGTHS, 2e-5);
}

/* A pre-norm block as in GPT, and one as in BERT: norms behind the residuals, nothing masked. */
static sn_tensor block(sn_tensor x, const char *name, bool gpt) {
    enum { D = 32, HEADS = 4 };
    sn_tensor part[3];
    sn_scope_push(sn_module_of(x), "%s", name);
    sn_tensor n = gpt ? sn_nn_layer_norm(x, "ln_1", 1e-5) : x;
    sn_split(sn_mul(sn_nn_linear(n, "qkv", 3 * D, SN_BIAS), 0.2), 2, 3, part);
    for (int i = 0; i < 3; i++) part[i] = sn_split_heads(part[i], HEADS);
    sn_tensor y = sn_merge_heads(sn_attention(part[0], part[1], part[2], .causal = gpt));
    x = sn_add(x, sn_mul(sn_nn_linear(y, "out", D, SN_BIAS), 0.2));
    x = gpt ? x : sn_nn_layer_norm(x, "ln_1", 1e-5);
    n = gpt ? sn_nn_layer_norm(x, "ln_2", 1e-5) : x;
    n = sn_gelu(sn_mul(sn_nn_linear(n, "up", 4 * D, SN_BIAS), 0.2));
    x = sn_add(x, sn_mul(sn_nn_linear(n, "down", D, SN_BIAS), 0.2));
    x = gpt ? x : sn_nn_layer_norm(x, "ln_2", 1e-5);
    sn_scope_pop(sn_module_of(x));
    return x;
}

static void blocks(void **state) {
    (void)state;
    for (int gpt = 0; gpt < 2; gpt++) {
        sn_module *m = sn_module_new("blocks");
        sn_dim t = sn_symbol_add(m, "T", 0, 100);
        cc_entry(m, block(cc_input(m, "x", SN_F32, SHAPE(2, t, 32)), "h", gpt), "main");
        /* 4 linear maps, 2 products of attention, its softmax, 2 norms; masks may add products */
        cc_check_onednn(m, "f32", gpt ? -1 : 9, LENGTHS, 1e-4);
        cc_check(m, 0, 4, LENGTHS, 1e-4);
    }
}

/* What flows back: through norms and softmax with a product between them, and a convolution. */
static void gradients(void **state) {
    (void)state;
    sn_module *m = sn_module_new("gradients");
    sn_dim t = sn_symbol_add(m, "T", 0, 100);
    sn_node *x = cc_input(m, "x", SN_F32, SHAPE(2, t, 33)),
            *g = cc_param(m, "g", SN_F32, SHAPE(33));
    sn_node *b = cc_param(m, "b", SN_F32, SHAPE(33)), *w = cc_param(m, "w", SN_F32, SHAPE(48, 33));
    sn_node *y = cc_input(m, "y", SN_F32, SHAPE(2, t, 48)), *d[4];
    sn_node *p = softmax(linear(norm(3, x, g, b), w, NULL));
    sn_grad(sn_sum_all(sn_mul(p, y)), 3, ((sn_node *[]){x, b, w}), d);
    sn_entry *e = cc_entry(m, d[0], "rows");
    sn_entry_output(m, e, "b", d[1]);
    sn_entry_output(m, e, "w", d[2]);
    /* forward: norm, product, softmax; back: softmax, two products, norm */
    cc_check_onednn(m, "f32", 7, LENGTHS, 5e-5);
    cc_check_onednn(m, "bf16", -1, LENGTHS, 2e-2);

    sn_node *image = cc_input(m, "image", SN_F32, SHAPE(t, 4, 9, 8));
    sn_node *k = cc_param(m, "k", SN_F32, SHAPE(6, 2, 3, 2)),
            *c = cc_param(m, "c", SN_F32, SHAPE(6));
    sn_node *z = sn_conv2d(image, k, c, .stride = {2, 1}, .padding = {1, 1}, .groups = 2);
    sn_grad(sn_sum_all(sn_mul(z, z)), 3, ((sn_node *[]){image, k, c}), d);
    e = cc_entry(m, d[0], "image");
    sn_entry_output(m, e, "k", d[1]);
    sn_entry_output(m, e, "c", d[2]);
    cc_check_onednn(m, "f32", 10, LENGTHS, 1e-4);
    sn_module_free(m);
}

/* A build without oneDNN reports that when oneDNN is requested. */
static void availability(void **state) {
    (void)state;
    sn_module *m = sn_module_new("availability");
    cc_entry(m, softmax(cc_input(m, "x", SN_F32, SHAPE(6, 5))), "main");
    sn_error err = {0};
    sn_options o = {.level = 4, .backend = "onednn"};
    sn_program *p = sn_compile(m, &o, &err);
    if (sn_backend_library()) {
        assert_non_null(p);
        assert_int_equal(sn_program_stats(p).onednn, 1);
        assert_int_equal(sn_program_stats(p).kernels, 0);
    } else {
        assert_null(p);
        assert_int_equal(err.code, SN_ERR_TARGET);
        assert_non_null(strstr(err.message, "this build has no oneDNN"));
    }
    sn_program_free(p);
    sn_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows),      cmocka_unit_test(unfit),
        cmocka_unit_test(products),  cmocka_unit_test(odd_products),
        cmocka_unit_test(blocks),    cmocka_unit_test(convolutions),
        cmocka_unit_test(gradients), cmocka_unit_test(availability),
    };
    return cmocka_run_group_tests(tests, cc_begin, cc_end);
}
