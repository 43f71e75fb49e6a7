/* test_experts.c: linear maps selected row by row (sn_expert_linear): only the selected blocks are
 * computed, with the values of the dense product, at every level and for weights in few bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "tests/support/artefact.h"
#include "tests/support/compile_case.h"
#include "tests/support/effort.h"
#include "tests/support/text.h"

#include <math.h>
#include <string.h>

enum { EXPERTS = 5, HIDDEN = 96, WIDTH = 64, ROWS = 150, PER_ROW = 2 };

static float gate[EXPERTS * HIDDEN * WIDTH], up[EXPERTS * HIDDEN * WIDTH],
    down[EXPERTS * HIDDEN * WIDTH], x[ROWS * WIDTH];
static int32_t chosen[ROWS * PER_ROW];

#define PARAMS                                                                                     \
    {                                                                                              \
        SN_BIND("gate", SN_F32, gate, EXPERTS, HIDDEN, WIDTH),                                     \
            SN_BIND("up", SN_F32, up, EXPERTS, HIDDEN, WIDTH),                                     \
            SN_BIND("down", SN_F32, down, EXPERTS, WIDTH, HIDDEN)                                  \
    }

static void fill(float *p, int n, uint32_t seed) {
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        p[i] = (float)(seed >> 8) / (1 << 23) - 1;
    }
}

static int set_up(void **state) {
    fill(gate, EXPERTS * HIDDEN * WIDTH, 1);
    fill(up, EXPERTS * HIDDEN * WIDTH, 2);
    fill(down, EXPERTS * HIDDEN * WIDTH, 3);
    fill(x, ROWS * WIDTH, 4);
    for (int i = 0; i < ROWS * PER_ROW; i++) /* expert 3 is never chosen, some twice in a row */
        chosen[i] = i % 7 == 3 ? 0 : (i * 5 + i / 9) % EXPERTS == 3 ? 4 : (i * 5 + i / 9) % EXPERTS;
    return scratch_make(state) || cc_begin(state);
}

static int clean_up(void **state) {
    return cc_end(state) || scratch_end(state);
}

/* All experts; a sum with zeros and ones selects. */
static sn_tensor dense(sn_tensor in, sn_tensor w, sn_tensor index) {
    int64_t experts = w->shape[0], out = w->shape[1];
    sn_tensor y = sn_linear(in, sn_reshape(w, experts * out, w->shape[2]), NULL);
    sn_dim t = sn_dim_of(in, 0);
    y = sn_reshape(y, t, in->rank == 3 ? PER_ROW : 1, experts, out);
    sn_tensor one = sn_expand(sn_one_hot(index, experts, SN_F32), 3);
    return sn_sum(sn_mul(y, one), 2);
}

typedef sn_tensor selected_map(sn_tensor x, sn_tensor w, sn_tensor index);

static sn_tensor sparse(sn_tensor in, sn_tensor w, sn_tensor index) {
    return sn_expert_linear(in, w, index);
}

static sn_module *make(selected_map *map) {
    sn_module *m = sn_module_new("experts");
    sn_entry_begin(m, "feed");
    sn_dim T = sn_symbol(m, "T", 0, ROWS);
    sn_tensor in = sn_input(m, "x", SN_F32, T, WIDTH), i = sn_input(m, "i", SN_I32, T, PER_ROW);
    sn_tensor wg = sn_param(m, "gate", SN_F32, EXPERTS, HIDDEN, WIDTH);
    sn_tensor wu = sn_param(m, "up", SN_F32, EXPERTS, HIDDEN, WIDTH);
    sn_tensor wd = sn_param(m, "down", SN_F32, EXPERTS, WIDTH, HIDDEN);
    sn_tensor h = sn_mul(sn_silu(map(in, wg, i)), map(in, wu, i));
    sn_output("y", map(h, wd, i));
    return m;
}

static sn_options options(const char *weights, int level, int threads, const char *target) {
    sn_options o = sn_options_default();
    bool int8 = weights && strstr(weights, " x int8");
    o.level = level, o.weights = weights, o.threads = threads, o.target = target;
    if (int8) o.weights = *weights == 'i' && weights[3] == '4' ? "int4" : NULL, o.compute = "int8";
    return o;
}

static sn_program *compile(sn_module *m, const sn_options *o) {
    sn_error err = {0};
    sn_program *p = sn_compile(m, o, &err);
    if (!p) fail_msg("%s", err.message);
    return p;
}

/* Without code, to look at its kernels. */
static sn_program *plan(sn_module *m, const char *weights, int level) {
    sn_options o = options(weights, level, 1, NULL);
    o.plan_only = true;
    return compile(m, &o);
}

static void run(sn_program *p, int rows, int32_t *index, float *y) {
    sn_error err = {0};
    sn_arg_binding param[] = PARAMS;
    sn_session *s = sn_session_new_arrays(p, param, 3, &err);
    if (!s) fail_msg("%s", err.message);
    sn_arg_binding in[] = {SN_BIND("x", SN_F32, x, rows, WIDTH),
                           SN_BIND("i", SN_I32, index, rows, PER_ROW)};
    sn_arg_binding out = SN_BIND("y", SN_F32, y, rows, PER_ROW, WIDTH);
    if (!sn_run(s, "feed", in, 2, &out, 1, &err)) fail_msg("%s", err.message);
    sn_session_free(s);
}

enum { SIZES = 3, MAX_SIZE = ROWS * PER_ROW * WIDTH };
static const int rows[SIZES] = {1, 3, ROWS};

static void evaluate(selected_map *map, const char *weights, int level, int threads,
                     const char *target, float y[SIZES][MAX_SIZE]) {
    sn_module *m = make(map);
    sn_options o = options(weights, level, threads, target);
    sn_program *p = compile(m, &o);
    for (int i = 0; i < SIZES; i++) run(p, rows[i], chosen, y[i]);
    sn_program_free(p);
    sn_module_free(m);
}

/* The selected products are those of all products. */
static void values(void **state) {
    (void)state;
    static const char *const weights[] = {NULL,   "bf16",        "int8",
                                          "int4", "int8 x int8", "int4 x int8"};
    static const char *const targets[] = {NULL, NULL, NULL, NULL, NULL, "x86-64-v3", "x86-64"};
    static float want[SIZES][MAX_SIZE], y[SIZES][MAX_SIZE], again[SIZES][MAX_SIZE];
    for (size_t w = 0; w < 6; w++) {
        evaluate(dense, weights[w], 2, 1, NULL, want);
        for (size_t i = 0; i < 7; i++) { /* levels, and other targets at level 4 */
            int level = i < 4 ? (int)i : 4;
            if (i != 4 && !effort_takes(w + i, 4)) continue;
            evaluate(sparse, weights[w], level, 1, targets[i], y);
            for (int k = 0; k < SIZES; k++)
                for (int j = 0; j < rows[k] * PER_ROW * WIDTH; j++)
                    if (!(fabsf(y[k][j] - want[k][j]) <= 1e-3f))
                        fail_msg("%s, level %d, %d rows: element %d is %g, not %g", weights[w],
                                 level, rows[k], j, (double)y[k][j], (double)want[k][j]);
        }
        evaluate(sparse, weights[w], 4, 1, NULL, y);
        evaluate(sparse, weights[w], 4, 3, NULL, again);
        assert_memory_equal(y, again, sizeof y);
    }
}

/* No kernel computes a product with all experts. */
static void only_selected(void **state) {
    (void)state;
    static const char *const weights[] = {NULL, "bf16", "int8", "int4", "int8 x int8"};
    for (int w = 0; w < 5; w++)
        for (int level = 0; level <= 4; level += 2) {
            sn_module *m = make(sparse);
            sn_program *p = plan(m, weights[w], level);
            char *text = explain_text(p, "feed");
            int blocks = 0;
            for (const char *at = text; (at = strstr(at, "1 of 5 blocks")); at++) blocks++;
            assert_int_equal(blocks, level == 4 ? 2 : 3);
            assert_null(strstr(text, "480*T"));
            assert_non_null(strstr(text, "36864*T mult"));
            if (level == 4) assert_non_null(strstr(text, "gate of 2 x 480 columns"));
            free(text);
            sn_program_free(p);
            sn_module_free(m);
        }
}

/* A router reads the same rows as the experts: its map is not merged with theirs. */
static void with_router(void **state) {
    (void)state;
    for (int sigmoid = 0; sigmoid < 2; sigmoid++) {
        sn_module *m = sn_module_new("router");
        sn_entry_begin(m, "feed");
        sn_dim T = sn_symbol(m, "T", 1, ROWS);
        sn_tensor in = sn_input(m, "x", SN_F32, T, WIDTH), i;
        sn_tensor score = sn_linear(in, sn_param(m, "router", SN_F32, EXPERTS, WIDTH), NULL);
        score = sigmoid ? sn_sigmoid(score) : sn_softmax(score, -1);
        sn_tensor factor = sn_mul(sn_top_k(score, PER_ROW, &i), 2);
        sn_tensor g = sn_param(m, "gate", SN_F32, EXPERTS, HIDDEN, WIDTH);
        sn_tensor u = sn_param(m, "up", SN_F32, EXPERTS, HIDDEN, WIDTH);
        sn_tensor y = sn_mul(sn_silu(sn_expert_linear(in, g, i)), sn_expert_linear(in, u, i));
        sn_output("y", sn_sum(sn_mul(y, sn_expand(factor, 2)), 1));
        sn_program *p = plan(m, NULL, 4);
        char *text = explain_text(p, "feed");
        assert_non_null(strstr(text, "gate of 2 x 480 columns, 1 of 5 blocks"));
        free(text);
        sn_program_free(p);
        sn_module_free(m);
    }
}

typedef struct model { /* experts.h */
    const void *weights;
    int64_t bytes, threads;
    void *pool;
    int32_t target, mapped;
} model;

/* An artefact gives the same bits. */
static void ahead_of_time(void **state) {
    (void)state;
    static float want[MAX_SIZE], got[MAX_SIZE];
    sn_error err = {0};
    int (*open)(model *, const char *),
        (*call)(model *, void *, int64_t, const float *, const int32_t *, float *);
    void (*close)(model *);
    int64_t (*workspace_of)(const model *, int64_t);
    const artefact_symbol names[] = {{(void *)&open, "experts_open"},
                                     {(void *)&close, "experts_close"},
                                     {(void *)&workspace_of, "experts_feed_workspace"},
                                     {(void *)&call, "experts_feed"}};
    sn_module *m = make(sparse);
    sn_options o = options("int4", 4, 2, NULL);
    sn_program *p = compile(m, &o);
    sn_arg_binding param[] = PARAMS;
    sn_session *s = sn_session_new_arrays(p, param, 3, &err);
    if (!s) fail_msg("%s", err.message);
    run(p, ROWS, chosen, want);
    sn_emit_options emit = sn_emit_options_default();
    emit.name = "experts";
    emit.dir = scratch_dir;
    emit.compile = options("int4", 4, 2, NULL);
    if (!sn_emit(s, &emit, &err)) fail_msg("%s", err.message);
    void *lib = artefact_load("experts", names, 4);
    model a = {0};
    assert_int_equal(open(&a, scratch_path("experts.weights")), 0);
    void *workspace = aligned_alloc(64, ((size_t)workspace_of(&a, ROWS) + 63) / 64 * 64);
    assert_non_null(workspace);
    assert_int_equal(call(&a, workspace, ROWS, x, chosen, got), 0);
    assert_memory_equal(want, got, sizeof want);
    free(workspace);
    close(&a);
    dlclose(lib);
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
}

/* Indices outside are clamped, as those of look-ups are. */
static void clamped(void **state) {
    (void)state;
    static float y[2][2 * PER_ROW * WIDTH];
    static int32_t strange[] = {-1, INT32_MAX, 2, INT32_MIN}, near[] = {0, EXPERTS - 1, 2, 0};
    sn_module *m = make(sparse);
    sn_options o = options(NULL, 4, 2, NULL);
    sn_program *p = compile(m, &o);
    run(p, 0, chosen, y[0]);
    run(p, 2, strange, y[0]);
    run(p, 2, near, y[1]);
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    sn_program_free(p);
    sn_module_free(m);
}

/* Blocks of a product that others read as a whole, of blocks that are not whole panels, with biases,
 * with an epilogue that counts columns, of long rows, by several indices. */
static void other_uses(void **state) {
    (void)state;
    sn_module *m = sn_module_new("uses");
    sn_dim t = sn_symbol_add(m, "T", 0, 64);
    sn_node *in = cc_input(m, "x", SN_F32, SHAPE(t, 40));
    sn_node *i = cc_input(m, "i4_a", SN_I32, SHAPE(t, 3)),
            *k = cc_input(m, "i4_b", SN_I64, SHAPE(t, 1));
    sn_node *w = cc_param(m, "w", SN_F32, SHAPE(4, 32, 40)),
            *narrow = cc_param(m, "narrow", SN_F32, SHAPE(4, 6, 40)),
            *bias = cc_param(m, "bias", SN_F32, SHAPE(128));
    sn_node *all = sn_linear(in, sn_reshape(w, 128, 40), bias);
    sn_entry *e = cc_entry(m, sn_take_blocks(all, i, 4), "whole");
    sn_entry_output(m, e, "all", all);
    sn_entry_output(m, e, "other", sn_tanh(sn_take_blocks(all, k, 4)));
    cc_entry(m, sn_expert_linear(in, narrow, i), "narrow");
    cc_entry(m, sn_take_blocks(sn_mul(all, all), i, 4), "square");
    sn_node *column = sn_iota(m, SN_F32, 1, t, 128), *z = cc_input(m, "z", SN_F32, SHAPE(t, 128));
    cc_entry(m, sn_take_blocks(sn_add(sn_mul(all, column), sn_exp(z)), i, 4), "columns");
    cc_entry(m, sn_take_blocks(sn_add(all, sn_mul(z, column)), i, 4), "columns_added");
    sn_node *deep = cc_input(m, "deep", SN_F32, SHAPE(5, 7, 3300)),
            *wide = cc_param(m, "wide", SN_F32, SHAPE(3, 64, 3300));
    cc_entry(m, sn_expert_linear(deep, wide, cc_input(m, "i3_c", SN_I32, SHAPE(5, 7))), "deep");
    sn_tensor values = sn_top_k(in, 3, &i);
    e = cc_entry(m, values, "top");
    sn_entry_output(m, e, "index", i);
    cc_check(m, 0, 4, 3, (int64_t[]){33, 1, 0}, 1e-4);
}

/* Gradients are those of the dense product, which no kernel computes. */
static void gradients(void **state) {
    (void)state;
    sn_module *m = sn_module_new("grad");
    sn_tensor in = cc_input(m, "x", SN_F32, SHAPE(6, 8)),
              i = cc_input(m, "i3_a", SN_I32, SHAPE(6, 2));
    sn_tensor w = cc_param(m, "w", SN_F32, SHAPE(3, 4, 8)),
              v = cc_param(m, "v", SN_F32, SHAPE(3, 8, 4));
    sn_tensor h = sn_tanh(sn_expert_linear(in, w, i)); /* [6, 2, 4] */
    sn_tensor y = sn_grouped_matmul(h, v, i);
    sn_tensor p = sn_top_k(in, 2, NULL), grad[3];
    sn_tensor loss = sn_add(sn_sum_all(sn_mul(y, y)), sn_sum_all(sn_mul(p, p)));
    sn_grad(loss, 3, ((sn_tensor[]){in, w, v}), grad);
    sn_entry *e = cc_entry(m, grad[0], "x");
    sn_entry_output(m, e, "w", grad[1]);
    sn_entry_output(m, e, "v", grad[2]);
    sn_program *planned = plan(m, NULL, 4);
    char *text = explain_text(planned, e->name);
    int grouped = 0, ragged = 0;
    for (const char *at = text; (at = strstr(at, "grouped product")); at++) grouped++;
    for (const char *at = text; (at = strstr(at, "rows of a group")); at++) ragged++;
    assert_int_equal(grouped, 4); /* two forward, two for the rows' gradients */
    assert_int_equal(ragged, 2);
    assert_null(strstr(text, "gemm"));
    free(text);
    sn_program_free(planned);
    cc_check(m, 0, 4, 0, NULL, 1e-4);
}

/* Products with matrices that rows look up have such gradients, however they are written. */
static void gradients_of_look_ups(void **state) {
    (void)state;
    sn_module *m = sn_module_new("look_ups");
    sn_tensor in = cc_input(m, "x", SN_F32, SHAPE(6, 8)),
              i = cc_input(m, "i3_a", SN_I32, SHAPE(6, 2));
    sn_tensor w = cc_param(m, "w", SN_F32, SHAPE(3, 4, 8)),
              v = cc_param(m, "v", SN_F32, SHAPE(3, 4, 8)), grad[3];
    sn_tensor y = sn_tanh(sn_einsum("tjoi,ti->tjo", sn_gather(w, 0, i), in)); /* [6, 2, 4] */
    y = sn_einsum("tjo,tjoi->tji", y, sn_gather(v, 0, i));
    sn_grad(sn_sum_all(sn_square(y)), 3, ((sn_tensor[]){in, w, v}), grad);
    sn_entry *e = cc_entry(m, grad[0], "x");
    sn_entry_output(m, e, "w", grad[1]);
    sn_entry_output(m, e, "v", grad[2]);
    sn_program *planned = plan(m, NULL, 4);
    char *text = explain_text(planned, e->name);
    int ragged = 0;
    for (const char *at = text; (at = strstr(at, "rows of a group")); at++) ragged++;
    assert_int_equal(ragged, 2);
    assert_null(strstr(text, "gemm"));
    assert_null(strstr(text, "scatter"));
    free(text);
    sn_program_free(planned);
    cc_check(m, 4, 4, 0, NULL, 1e-4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),        cmocka_unit_test(only_selected),
        cmocka_unit_test(clamped),       cmocka_unit_test(with_router),
        cmocka_unit_test(ahead_of_time), cmocka_unit_test(other_uses),
        cmocka_unit_test(gradients),     cmocka_unit_test(gradients_of_look_ups),
    };
    return cmocka_run_group_tests(tests, set_up, clean_up);
}
