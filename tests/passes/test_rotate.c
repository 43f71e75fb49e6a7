/* test_rotate.c: rotary positions in the product of queries, keys and values: against the evaluator
 * at every level, where they are computed by the product, and where they must not be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "codegen/program/program.h"
#include "tests/support/compile_case.h"
#include "tests/support/effort.h"
#include "tests/support/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Heads of queries, heads of keys, their width, layout of pairs; where only part of the columns is
 * rotated, the first and their number; factors on rotated queries and keys, 0: none; width of values, 0:
 * that of keys. */
typedef struct shape {
    int64_t heads, key_heads, d;
    bool halves, bias;
    int64_t from, part;
    double q_scale, k_scale;
    int64_t value_d;
    bool freq; /* frequencies are a parameter */
} shape;

enum { WIDTH = 40 };

typedef struct qkv {
    sn_tensor q, k, v;
} qkv;

static sn_tensor map(const shape *s, sn_tensor x, const char *name, int64_t heads) {
    char bias[16];
    snprintf(bias, sizeof bias, "%s_bias", name);
    sn_module *m = sn_module_of(x);
    sn_tensor b = s->bias ? sn_param(m, bias, SN_F32, heads * s->d) : NULL;
    return sn_linear(x, sn_param(m, name, SN_F32, heads * s->d, WIDTH), b);
}

/* Rotates the columns of x. */
static sn_tensor rotate(const shape *s, sn_tensor x, sn_tensor pos, double scale) {
    int64_t n = s->part ? s->part : s->d, rest = s->d - s->from - n;
    sn_tensor f = s->freq ? sn_param(sn_module_of(x), "freq", SN_F32, n / 2) : NULL;
    sn_tensor y =
        sn_rope(n < s->d ? sn_slice(x, 3, s->from, n) : x, pos, .halves = s->halves, .freq = f);
    if (scale != 0) y = sn_mul(y, scale);
    if (s->from) y = sn_concat(3, sn_slice(x, 3, 0, s->from), y);
    return rest ? sn_concat(3, y, sn_slice(x, 3, s->d - rest, rest)) : y;
}

static qkv project(const shape *s, sn_tensor x, sn_tensor pos) {
    shape of_values = *s;
    if (s->value_d) of_values.d = s->value_d;
    sn_tensor q = sn_split_heads(map(s, x, "q", s->heads), s->heads);
    sn_tensor k = sn_split_heads(map(s, x, "k", s->key_heads), s->key_heads);
    sn_tensor v = sn_split_heads(map(&of_values, x, "v", s->key_heads), s->key_heads);
    return (qkv){rotate(s, q, pos, s->q_scale), rotate(s, k, pos, s->k_scale), v};
}

static sn_tensor attend(const shape *s, sn_tensor x, sn_tensor pos) {
    qkv a = project(s, x, pos);
    return sn_merge_heads(sn_attention(a.q, a.k, a.v, .causal = true));
}

/* Kernels of a family that rotate: they look up and add; tables of sines look up frequencies. */
static int count_rotating(const sn_program *p, const char *family) {
    int n = 0;
    char *text = explain_text(p, NULL), *rest = text, *line;
    while ((line = strtok_r(rest, "\n", &rest)))
        n += strstr(line, family) && strstr(line, "add") && strstr(line, "gather") &&
             !strstr(line, "sin");
    free(text);
    return n;
}

/* Products rotate the rows of all sequences at once. */
static void expect_all_rows(sn_module *m, const sn_program *p) {
    for (int i = 0; i < sn_entry_count(m); i++) {
        const sn_plan *plan = sn_program_entry(p, sn_entry_at(m, i)->name)->code.plan;
        for (int k = 0; k < plan->n_call; k++)
            if (plan->call[k]->node->op == SN_OP_gemm)
                assert_int_equal(plan->call[k]->in[0].rank, 2);
    }
}

/* At level 4: the number of products that rotate, and of other kernels. */
static void expect_fused(sn_module *m, int gemms, int loops) {
    sn_error err = {0};
    sn_options o = sn_options_default();
    o.plan_only = true;
    o.backend = "native";
    o.strict_fusion = !loops; /* no remark on what is rotated in a kernel of its own */
    sn_program *p = sn_compile(m, &o, &err);
    if (!p) fail_msg("%s", err.message);
    assert_int_equal(count_rotating(p, "gemm"), gemms);
    assert_int_equal(count_rotating(p, "map_reduce"), loops);
    expect_all_rows(m, p);
    sn_program_free(p);
}

/* B items of T tokens, then one position list for all items and one for each. */
static sn_module *whole_forward(const shape *s, bool one_item) {
    sn_module *m = sn_module_new("forward");
    sn_dim t = sn_symbol_add(m, "T", 0, 64), b = one_item ? 1 : 3;
    sn_tensor x = cc_input(m, "x", SN_F32, SHAPE(b, t, WIDTH));
    cc_entry(m, attend(s, x, cc_input(m, "i40", SN_I32, SHAPE(t))), "shared");
    sn_tensor z = cc_input(m, "z", SN_F32, SHAPE(b, t, WIDTH));
    if (!one_item) cc_entry(m, attend(s, z, cc_input(m, "i50", SN_I32, SHAPE(b, t))), "each");
    return m;
}

/* Neighbours, and halves of heads that fill halves of panels. */
static void in_the_product(void **state) {
    (void)state;
    static const shape shapes[] = {
        {4, 2, 64, .bias = true},    {2, 1, .d = 48},
        {8, 4, 8, .bias = true},     {2, 2, .d = 6, .freq = true},
        {4, 4, 32, .halves = true},  {4, 2, 64, .halves = true, .bias = true},
        {3, 1, 128, .halves = true}, {5, 1, 96, .halves = true, .bias = true},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if (!effort_takes(i, 3)) continue;
        sn_module *m = whole_forward(&shapes[i], i % 2);
        expect_fused(m, i % 2 ? 1 : 2, 0);
        if (i % 4 == 3) cc_check_threads(m, 4, 17);
        cc_check(m, i == 4 ? 0 : 4, 4, 3, (int64_t[]){17, 1, 0}, 2e-4);
    }
}

/* Halves that are in one panel, part of the columns of each head, and factors. */
static void in_part(void **state) {
    (void)state;
    static const shape shapes[] = {
        {2, 2, 8, .halves = true, .bias = true}, /* halves within vectors */
        {2, 1, 16, .halves = true},              /* ... or two vectors of eight lanes */
        {3, 1, 64, .halves = true, .bias = true, .part = 16},               /* GPT-NeoX */
        {2, 1, 64, .halves = true, .part = 32},                             /* Phi */
        {1, 1, 192, .bias = true, .from = 128, .part = 64, .value_d = 128}, /* latent attention */
        {2, 1, 64, .halves = true, .bias = true, .from = 16, .part = 16, .q_scale = 0.25},
        {2, 2, 128, .halves = true, .part = 64, .q_scale = 1.2, .k_scale = 1.2},
        {2, 1, 16, .bias = true, .part = 4, .k_scale = -3}, /* GPT-J */
        {4, 2, 6, .q_scale = 0.5},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if (!effort_takes(i, 3)) continue;
        sn_module *m = whole_forward(&shapes[i], i % 2);
        expect_fused(m, i % 2 ? 1 : 2, 0);
        cc_check(m, 4, 4, 3, (int64_t[]){17, 1, 0}, 2e-4);
    }
}

/* Halves in different panels, or heads that are not blocks as wide as what is rotated: one kernel for
 * queries and one for keys, and no copies. */
static void odd_blocks(void **state) {
    (void)state;
    static const shape shapes[] = {{2, 1, 48, .halves = true},
                                   {2, 1, 80, .halves = true, .bias = true, .part = 32},
                                   {1, 1, 128, .halves = true, .part = 96, .k_scale = 1.5},
                                   {2, 1, 16, .from = 2, .part = 10}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        sn_module *m = whole_forward(&shapes[i], true);
        expect_fused(m, 0, 2);
        cc_check(m, 4, 4, 2, (int64_t[]){17, 1}, 2e-4);
    }
}

/* What stands between a product and the rotation is named. */
static void between(void **state) {
    (void)state;
    sn_module *m = sn_module_new("between");
    const shape s = {2, 2, .d = 16};
    sn_tensor x = cc_input(m, "x", SN_F32, SHAPE(2, 8, WIDTH));
    sn_tensor y = sn_tanh(sn_split_heads(map(&s, x, "q", 2), 2));
    cc_entry(m, sn_rope(y, cc_input(m, "i40", SN_I32, SHAPE(8))), "tanh");
    sn_error err = {0};
    sn_options o = sn_options_default();
    o.plan_only = o.strict_fusion = true;
    o.backend = "native";
    assert_null(sn_compile(m, &o, &err));
    if (!strstr(err.message, "`tanh` (")) fail_msg("%s", err.message);
    if (!strstr(err.message, "stands between the product and the rotation. Instead: "))
        fail_msg("%s", err.message);
    sn_module_free(m);
}

/* The gradient rotates part of the columns back in one kernel, too. */
static void gradient_in_part(void **state) {
    (void)state;
    sn_module *m = sn_module_new("gradient");
    sn_dim t = sn_symbol_add(m, "T", 0, 64);
    const shape s = {0, 0, 24, .halves = true, .from = 8, .part = 12, .q_scale = 0.5};
    sn_tensor x = cc_input(m, "x", SN_F32, SHAPE(2, 3, t, 24)), g;
    sn_tensor y = rotate(&s, x, cc_input(m, "i40", SN_I32, SHAPE(t)), s.q_scale);
    sn_grad(sn_sum_all(sn_mul(y, cc_input(m, "y", SN_F32, SHAPE(2, 3, t, 24)))), 1, &x, &g);
    cc_entry(m, g, "gradient");
    expect_fused(m, 0, 1);
    cc_check(m, 0, 4, 2, (int64_t[]){17, 1}, 2e-4);
}

/* A single map that is rotated, one whose columns are other things, too, and one whose columns are
 * also read as they were. */
static void other_users(void **state) {
    (void)state;
    sn_module *m = sn_module_new("users");
    sn_dim t = sn_symbol_add(m, "T", 0, 64);
    const shape s = {2, 2, .d = 16};
    sn_tensor x[4], part[4];
    for (int i = 0; i < 4; i++)
        x[i] = cc_input(m, (const char *[]){"x", "y", "z", "w"}[i], SN_F32, SHAPE(2, t, WIDTH));
    sn_tensor pos = cc_input(m, "i40", SN_I32, SHAPE(t));
    sn_tensor one = sn_expand(map(&s, x[0], "one", 1), 1); /* [2, 1, T, 16] */
    cc_entry(m, sn_rope(one, pos), "single");
    cc_entry(m, sn_rope(map(&s, x[1], "one", 1), pos), "no_heads");
    sn_split(map(&s, x[2], "four", 4), 2, 4, part); /* k, v, q, more */
    sn_tensor k = sn_rope(sn_expand(part[0], 1), pos), q = sn_rope(sn_expand(part[2], 1), pos);
    sn_tensor y = sn_attention(q, k, sn_expand(part[1], 1));
    sn_entry *e = cc_entry(m, y, "apart");
    sn_entry_output(m, e, "more", sn_tanh(part[3]));
    qkv a = project(&s, x[3], pos);
    e = cc_entry(m, sn_attention(a.q, a.k, a.v), "taken_out");
    sn_entry_output(m, e, "k", a.k);
    sn_entry_output(m, e, "v", a.v);
    sn_entry_output(m, e, "raw", map(&s, x[3], "q", 2));
    expect_fused(m, 4, 0);
    cc_check_threads(m, 4, 17);
    cc_check(m, 3, 4, 2, (int64_t[]){17, 1}, 2e-4);
}

/* Rotated differently from the others, or not a product's result: separate kernels. */
static void left_alone(void **state) {
    (void)state;
    sn_module *m = sn_module_new("alone");
    sn_dim t = sn_symbol_add(m, "T", 0, 64);
    const shape s = {2, 2, .d = 16};
    sn_tensor x = cc_input(m, "x", SN_F32, SHAPE(2, t, WIDTH));
    sn_tensor pos = cc_input(m, "i40", SN_I32, SHAPE(t));
    qkv a = project(&s, x, pos);
    sn_tensor q = sn_split_heads(map(&s, x, "q", 2), 2);
    cc_entry(m, sn_attention(sn_rope(q, pos, .base = 500), a.k, a.v), "other_base");
    x = cc_input(m, "z", SN_F32, SHAPE(2, t, WIDTH));
    sn_tensor w = cc_state(m, "w", SN_F32, SHAPE(32, WIDTH));
    cc_entry(m, sn_rope(sn_split_heads(sn_linear(x, w, NULL), 2), pos), "trained_weight");
    cc_entry(m, sn_rope(sn_split_heads(sn_tanh(map(&s, x, "q", 2)), 2), pos), "changed");
    sn_tensor last = sn_slice(sn_split_heads(map(&s, x, "q", 2), 2), 2, sn_dim_sub(m, t, t), 1);
    cc_entry(m, sn_rope(last, sn_slice(pos, 0, 0, 1)), "first_token");
    expect_fused(m, 1, 4);
    cc_check(m, 3, 4, 2, (int64_t[]){17, 1}, 2e-4);
}

/* Two maps that are rotated differently are merged: the user cannot help it, and it is not a miss. */
static void merged_maps(void **state) {
    (void)state;
    sn_error err = {0};
    sn_module *m = sn_module_new("merged");
    const shape of_q = {2, 1, 48, .from = 32, .part = 16}, of_k = {1, 1, .d = 16};
    sn_tensor x = cc_input(m, "x", SN_F32, SHAPE(2, 9, WIDTH));
    sn_tensor pos = cc_input(m, "i40", SN_I32, SHAPE(9));
    sn_entry_begin(m, "forward");
    sn_output("q", rotate(&of_q, sn_split_heads(map(&of_q, x, "q", 2), 2), pos, 0));
    sn_output("k", rotate(&of_k, sn_split_heads(map(&of_k, x, "k", 1), 1), pos, 0));
    sn_options o = {.level = 4, .plan_only = true, .strict_fusion = true, .backend = "native"};
    sn_program *p = sn_compile(m, &o, &err);
    if (!p) fail_msg("%s", err.message);
    const char *const *list;
    int n = sn_program_remarks(p, "forward", false, &list, &err), found = 0;
    for (int i = 0; i < n; i++) found += strstr(list[i], "that this one was joined with") != NULL;
    assert_int_equal(found, 1);
    sn_program_free(p);
    sn_module_free(m);
}

/* Neighbours are swapped, and then halves: one product swaps only one kind. */
static void two_distances(void **state) {
    (void)state;
    sn_module *m = sn_module_new("two");
    const shape s = {1, 1, .d = 32};
    sn_tensor x = cc_input(m, "x", SN_F32, SHAPE(5, WIDTH)), y = map(&s, x, "q", 1);
    sn_tensor i = sn_arange(m, SN_I32, 32);
    sn_node *near = SN_NODE(m, gather, SN_ATTRS(SN_INT(axis, 1)), y, sn_b_scalar(SN_OP_xor, i, 1));
    sn_node *far_at = sn_b_scalar(SN_OP_mod, sn_b_scalar(SN_OP_add, i, 16), 32);
    sn_node *far = SN_NODE(m, gather, SN_ATTRS(SN_INT(axis, 1)), y, far_at);
    cc_entry(m, sn_add(sn_mul(near, y), far), "near_first");
    cc_entry(m, sn_add(sn_mul(far, y), near), "far_first");
    cc_check(m, 4, 4, 0, NULL, 2e-4);
}

static sn_tensor rotate_by_hand(sn_tensor x, sn_tensor angle) { /* as Hugging Face's models do */
    sn_tensor whole = sn_concat(-1, angle, angle);
    sn_tensor other = sn_concat(-1, sn_neg(sn_slice(x, -1, 16, 16)), sn_slice(x, -1, 0, 16));
    return sn_add(sn_mul(x, sn_cos(whole)), sn_mul(other, sn_sin(whole)));
}

/* Written in plain operations, for positions that all items share. */
static void by_hand(void **state) {
    (void)state;
    sn_module *m = sn_module_new("hand");
    sn_dim t = sn_symbol_add(m, "T", 0, 64);
    const shape s = {4, 2, 32, .halves = true, .bias = true};
    sn_tensor x = cc_input(m, "x", SN_F32, SHAPE(3, t, WIDTH));
    sn_tensor pos = sn_expand(sn_cast(cc_input(m, "i40", SN_I32, SHAPE(t)), SN_F32), 1);
    sn_tensor step = sn_div(sn_cast(sn_arange(m, SN_I32, 16), SN_F32), 16.0);
    sn_tensor angle = sn_mul(pos, sn_div(1, sn_pow(10000, step)));
    sn_tensor q = rotate_by_hand(sn_split_heads(map(&s, x, "q", 4), 4), angle);
    sn_tensor k = rotate_by_hand(sn_split_heads(map(&s, x, "k", 2), 2), angle);
    sn_tensor v = sn_split_heads(map(&s, x, "v", 2), 2);
    sn_tensor y = sn_merge_heads(sn_attention(q, k, v, .causal = true)), g;
    cc_entry(m, y, "plain");
    expect_fused(m, 1, 0);
    sn_grad(sn_sum_all(sn_tanh(q)), 1, &x, &g);
    cc_entry(m, g, "gradient");
    cc_check_threads(m, 4, 17);
    cc_check(m, 0, 4, 3, (int64_t[]){17, 1, 0}, 2e-4);
}

/* ---- by the frontend's sessions ---- */

enum { HEADS = 2, KEY_HEADS = 1, D = 64, CAPACITY = 12, TOKENS = 9 };
enum { N_Q = HEADS * D * WIDTH, N_K = KEY_HEADS * D * WIDTH, N_Y = HEADS * D };

typedef struct weights {
    float q[N_Q], k[N_K], v[N_K];
} weights;

/* How a decoder is compiled; target NULL: this machine. */
typedef struct decoder {
    shape s;
    const char *narrow, *target;
} decoder;

static sn_program *compile_decoder(sn_module *m, const decoder *d, int level) {
    sn_error err = {0};
    static const char *const names[] = {"prefill", "decode"};
    for (int i = 0; i < 2; i++) {
        sn_entry_begin(m, names[i]);
        sn_dim past = sn_symbol(m, "P", 0, CAPACITY - 1);
        sn_dim t = i ? 1 : sn_symbol(m, "T", 1, CAPACITY);
        sn_tensor x = sn_input(m, "x", SN_F32, 1, t, WIDTH);
        qkv a = project(&d->s, x, sn_add(sn_arange(m, SN_I32, t), past));
        sn_tensor k = sn_kv_cache(a.k, "k_cache", past, CAPACITY);
        sn_tensor v = sn_kv_cache(a.v, "v_cache", past, CAPACITY);
        sn_output("y", sn_merge_heads(sn_attention(a.q, k, v, .causal = true)));
        sn_output("v", a.v);
    }
    sn_options o = sn_options_default();
    o.level = level;
    o.weights = d->narrow;
    o.target = d->target;
    sn_program *p = sn_compile(m, &o, &err);
    if (!p) fail_msg("%s", err.message);
    return p;
}

static void run_entry(sn_session *s, const char *name, int64_t past, int64_t t, float *x, float *y,
                      float *v) {
    sn_error err = {0};
    sn_arg_binding in[] = {SN_BIND("x", SN_F32, x, 1, t, WIDTH), SN_BIND_DIM("P", past)};
    sn_arg_binding out[] = {SN_BIND("y", SN_F32, y, 1, t, N_Y),
                            SN_BIND("v", SN_F32, v, 1, KEY_HEADS, t, D)};
    if (!sn_run(s, name, in, 2, out, 2, &err)) fail_msg("%s", err.message);
}

/* Some tokens at once, then the others one by one. */
static void decode(const decoder *d, int level, weights *w, float *x, float *y, float *v) {
    enum { FIRST = 5 };
    sn_error err = {0};
    sn_module *m = sn_module_new("decoder");
    sn_program *p = compile_decoder(m, d, level);
    assert_int_equal(count_rotating(p, "gemm"), level == 4 ? 2 : 0);
    sn_arg_binding param[] = {SN_BIND("q", SN_F32, w->q, HEADS * D, WIDTH),
                              SN_BIND("k", SN_F32, w->k, KEY_HEADS * D, WIDTH),
                              SN_BIND("v", SN_F32, w->v, KEY_HEADS * D, WIDTH)};
    sn_session *s = sn_session_new_arrays(p, param, 3, &err);
    if (!s) fail_msg("%s", err.message);
    run_entry(s, "prefill", 0, FIRST, x, y, v);
    for (int t = FIRST; t < TOKENS; t++)
        run_entry(s, "decode", t, 1, x + t * WIDTH, y + t * N_Y, v + t * KEY_HEADS * D);
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
}

static void fill(float *p, int n, int step) {
    for (int i = 0; i < n; i++) p[i] = (float)((i + 1) * step % 211) / 300 - 0.35f;
}

/* Decoding with a cache and with weights of fewer bits, for vectors of any width: as on the level
 * without. */
static void decoding(void **state) {
    (void)state;
    static const char *const narrow[] = {NULL, "bf16", "int8", "int4"}, *const target[] = {
                                                                            NULL, "x86-64-v3",
                                                                            "x86-64", NULL};
    static weights w;
    static float x[TOKENS * WIDTH], y[2][TOKENS * N_Y], v[2][TOKENS * KEY_HEADS * D];
    fill(w.q, N_Q, 37), fill(w.k, N_K, 53), fill(w.v, N_K, 71), fill(x, TOKENS * WIDTH, 91);
    for (int i = 0; i < 8; i++) { /* by default every type once, each layout with two */
        if (!effort_takes((size_t)(i / 2 + i), 2)) continue;
        const decoder d = {.s = {HEADS, KEY_HEADS, D, .halves = i % 2, .part = i < 2 ? 0 : 16,
                                 .k_scale = i < 4 ? 0 : 2},
                           .narrow = narrow[i / 2],
                           .target = target[i / 2]};
        for (int l = 0; l < 2; l++) decode(&d, l ? 4 : 2, &w, x, y[l], v[l]);
        for (int j = 0; j < TOKENS * N_Y; j++)
            assert_true(fabsf(y[0][j] - y[1][j]) <= 2e-5f * (1 + fabsf(y[0][j])));
    }
}

/* Values share the product with what is rotated, but are never touched: also NaN and infinities. */
static void values_pass(void **state) {
    (void)state;
    static weights w;
    static float x[TOKENS * WIDTH], y[TOKENS * N_Y], v[2][TOKENS * KEY_HEADS * D];
    fill(w.q, N_Q, 37), fill(w.k, N_K, 53), fill(w.v, N_K, 71), fill(x, TOKENS * WIDTH, 91);
    w.v[3 * WIDTH] = NAN;
    w.v[8 * WIDTH + 1] = INFINITY;
    w.v[9 * WIDTH + 1] = -INFINITY;
    for (int halves = 0; halves < 2; halves++) {
        if (!effort_takes((size_t)halves, 2)) continue;
        const decoder d = {.s = {HEADS, KEY_HEADS, D, .halves = halves}};
        for (int l = 0; l < 2; l++) decode(&d, l ? 4 : 2, &w, x, y, v[l]);
        int strange = 0;
        for (int i = 0; i < TOKENS * KEY_HEADS * D; i++) {
            strange += !isfinite(v[0][i]);
            assert_true(v[0][i] == v[1][i] || (isnan(v[0][i]) && isnan(v[1][i])));
        }
        assert_int_equal(strange, 3 * TOKENS);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_the_product),   cmocka_unit_test(in_part),
        cmocka_unit_test(odd_blocks),       cmocka_unit_test(between),
        cmocka_unit_test(gradient_in_part), cmocka_unit_test(other_users),
        cmocka_unit_test(left_alone),       cmocka_unit_test(merged_maps),
        cmocka_unit_test(two_distances),    cmocka_unit_test(decoding),
        cmocka_unit_test(values_pass),      cmocka_unit_test(by_hand),
    };
    return cmocka_run_group_tests(tests, cc_begin, cc_end);
}
