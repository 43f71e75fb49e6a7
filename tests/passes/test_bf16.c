/* Option `compute` bf16: products are what the definition says, factors rounded to bf16 and pairs along K
 * summed the odd one first, in every bit: at every level, on every target, for every number of
 * threads, forward and in gradients, by kernels and by the evaluator. */
#include "codegen/emit/target.h"
#include "frontend/sinter.h"
#include "passes/passes.h"
#include "tests/support/noise.h"
#include "tests/support/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FORMATS SN_SOURCE_DIR "/tests/data/gguf/formats"

enum { MAX_T = 37, MAX_N = 100, MAX_K = 301 };

static float x[MAX_T * MAX_K], w[MAX_N * MAX_K], dy[MAX_T * MAX_N];
/* x w^T [T, N]; dy w [T, K]; dy^T x [N, K] */
static float want[3][MAX_N * MAX_K], got[3][MAX_N * MAX_K];

static void need(bool ok, const sn_error *err) {
    if (!ok) fail_msg("%s", err->message);
}

static float normal(float v) {
    return fabsf(v) < FLT_MIN ? 0 : v;
}

static float rounded(float v) {
    return normal(sn_bf16_to_f32(sn_f32_to_bf16(normal(v))));
}

/* sum over k < n of a[k a_step] b[k b_step] */
static float sum(const float *a, int a_step, const float *b, int b_step, int n) {
    float s = 0;
    for (int k = 0; k < n; k += 2) {
        const int odd = k + 1;
        if (odd < n) s = normal(fmaf(rounded(a[odd * a_step]), rounded(b[odd * b_step]), s));
        s = normal(fmaf(rounded(a[k * a_step]), rounded(b[k * b_step]), s));
    }
    return s;
}

/* By AMX: of 32 k the even ones and the odd ones from 0 on, then both together. */
static float tiled_sum(const float *a, int a_step, const float *b, int b_step, int n) {
    float s = 0;
    for (int k = 0; k < n; k += 32) {
        float half[2] = {0, 0};
        for (int i = k; i < n && i < k + 32; i++)
            half[i & 1] = normal(fmaf(rounded(a[i * a_step]), rounded(b[i * b_step]), half[i & 1]));
        s = normal(s + normal(half[0] + half[1]));
    }
    return s;
}

static bool tiled; /* which of them is wanted */

static float sum_of(const float *a, int a_step, const float *b, int b_step, int n) {
    return (tiled ? tiled_sum : sum)(a, a_step, b, b_step, n);
}

/* Large and small ones, and subnormal ones. */
static void fill(float *v, int n, uint32_t seed) {
    for (int i = 0; i < n; i++) {
        v[i] = noise_at((uint32_t)i + seed);
        if (i % 31 == 7) v[i] *= 0x1p-63f;
        if (i % 37 == 5) v[i] *= 0x1p-126f;
    }
}

static void prepare(int T, int N, int K) {
    fill(x, T * K, 1);
    fill(w, N * K, 77777);
    fill(dy, T * N, 999999);
    for (int t = 0; t < T; t++)
        for (int n = 0; n < N; n++) want[0][t * N + n] = sum_of(x + t * K, 1, w + n * K, 1, K);
    for (int t = 0; t < T; t++)
        for (int k = 0; k < K; k++) want[1][t * K + k] = sum_of(dy + t * N, 1, w + k, K, N);
    for (int n = 0; n < N; n++)
        for (int k = 0; k < K; k++) want[2][n * K + k] = sum_of(dy + n, N, x + k, K, T);
}

static void define(sn_module *m, int N, int K) {
    sn_entry_begin(m, "run");
    sn_dim T = sn_symbol(m, "T", 0, MAX_T);
    sn_tensor in = sn_input(m, "x", SN_F32, T, K), d = sn_input(m, "dy", SN_F32, T, N);
    sn_tensor weight = sn_param(m, "w", SN_F32, N, K);
    sn_output("y", sn_linear(in, weight, NULL));
    sn_output("dx", sn_matmul(d, weight));
    sn_output("dw", sn_matmul(sn_transpose(d, 1, 0), in));
}

typedef struct way {
    int level, threads;
    const char *target, *compute; /* NULL: bf16 */
} way;

static sn_options options(const way *how) {
    sn_options o = sn_options_default();
    o.level = how->level;
    o.threads = how->threads;
    o.target = how->target;
    o.compute = how->compute ? how->compute : "bf16";
    return o;
}

static sn_program *compile(sn_module *m, const way *how, sn_error *err) {
    const sn_options o = options(how);
    return sn_compile(m, &o, err);
}

static void check(int T, int N, int K, way how) {
    sn_error err = {0};
    sn_module *m = sn_module_new("bf16");
    assert_non_null(m);
    define(m, N, K);
    sn_program *p = compile(m, &how, &err);
    if (!p && err.code == SN_ERR_TARGET) { /* a target that this machine is not */
        sn_module_free(m);
        return;
    }
    need(p != NULL, &err);
    prepare(T, N, K);
    sn_arg_binding param = SN_BIND("w", SN_F32, w, N, K);
    sn_session *s = sn_session_new_arrays(p, &param, 1, &err);
    for (int rows = T; s && rows > 0; rows = rows == T ? 2 : rows - 1) {
        prepare(rows, N, K);
        memset(got, -1, sizeof got);
        sn_arg_binding in[] = {SN_BIND("x", SN_F32, x, rows, K),
                               SN_BIND("dy", SN_F32, dy, rows, N)},
                       out[] = {SN_BIND("y", SN_F32, got[0], rows, N),
                                SN_BIND("dx", SN_F32, got[1], rows, K),
                                SN_BIND("dw", SN_F32, got[2], N, K)};
        need(sn_run(s, "run", in, 2, out, 3, &err), &err);
        const int size[] = {rows * N, rows * K, N * K};
        for (int o = 0; o < 3; o++)
            for (int i = 0; i < size[o]; i++)
                if (!(got[o][i] == want[o][i]))
                    fail_msg(
                        "level %d, %s, %d threads, %d rows: element %d of result %d is %a, not %a",
                        how.level, how.target ? how.target : "this CPU", how.threads, rows, i, o,
                        (double)got[o][i], (double)want[o][i]);
    }
    need(s || err.code == SN_ERR_TARGET, &err);
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
}

/* AMX has an order of its own, for any number of threads and rows; elsewhere it is that of bf16. */
static void unordered(void **state) {
    (void)state;
    sn_target t;
    sn_error err = {0};
    need(sn_target_init(&t, NULL, &err), &err);
    tiled = sn_target_take_amx(&t);
    for (int threads = 1; threads <= 3; threads++)
        check(MAX_T, 70, threads == 2 ? 301 : 128,
              (way){.level = 4, .threads = threads, .compute = "bf16-unordered"});
    tiled = false;
    static const char *const without[] = {"native,-amx-bf16",
                                          "native,-avx512f"}; /* tiles need both */
    for (int i = 0; i < 2; i++)
        check(MAX_T, 70, 128, (way){.level = 4, .target = without[i], .compute = "bf16-unordered"});
}

static void levels(void **state) {
    (void)state;
    for (int level = 0; level <= 4; level++) check(MAX_T, 70, 128, (way){.level = level});
}

static void sizes(void **state) {
    (void)state;
    static const int size[][2] = {{2, 1}, {3, 2}, {33, 31}, {MAX_N, MAX_K}};
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        check(MAX_T, size[i][0], size[i][1], (way){.level = 4});
}

static void targets(void **state) {
    (void)state;
    static const char *const names[] = {"x86-64-v3", "x86-64-v4", "znver4"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        check(MAX_T, 67, 131, (way){.level = 4, .target = names[i]});
}

static void threads(void **state) {
    (void)state;
    for (int n = 1; n <= 3; n++) check(MAX_T, 96, 200, (way){.level = 4, .threads = n});
}

/* Rows select blocks of columns. */
static void experts(void **state) {
    (void)state;
    enum { T = 5, BLOCKS = 3, OUT = 32 };
    int32_t index[T] = {2, 0, 1, 2, 1};
    for (int K = 63; K <= 64; K++) {
        prepare(T, BLOCKS * OUT, K);
        sn_error err = {0};
        sn_module *m = sn_module_new("experts");
        sn_entry_begin(m, "run");
        sn_tensor all = sn_linear(sn_input(m, "x", SN_F32, T, K),
                                  sn_param(m, "w", SN_F32, BLOCKS * OUT, K), NULL);
        sn_output("y", sn_take_blocks(all, sn_input(m, "i", SN_I32, T, 1), BLOCKS));
        sn_program *p = compile(m, &(way){.level = 4}, &err);
        need(p != NULL, &err);
        sn_arg_binding param = SN_BIND("w", SN_F32, w, BLOCKS * OUT, K);
        sn_session *s = sn_session_new_arrays(p, &param, 1, &err);
        need(s != NULL, &err);
        sn_arg_binding in[] = {SN_BIND("x", SN_F32, x, T, K), SN_BIND("i", SN_I32, index, T, 1)},
                       out = SN_BIND("y", SN_F32, got[0], T, 1, OUT);
        need(sn_run(s, "run", in, 2, &out, 1, &err), &err);
        for (int t = 0; t < T; t++)
            for (int n = 0; n < OUT; n++)
                assert_true(got[0][t * OUT + n] == want[0][t * BLOCKS * OUT + index[t] * OUT + n]);
        sn_session_free(s);
        sn_program_free(p);
        sn_module_free(m);
    }
}

/* ---- experts whose weights change: the rows that name one are multiplied with its map ---- */

enum { TOKENS = 16, EACH = 2, EXPERTS = 4, WIDTH = 20, IN = 35, CHOICES = TOKENS * EACH };
static int32_t choice[CHOICES]; /* not 3 */
static float minus_x[TOKENS * IN];

/* The chosen maps of x by w; in the gradients rows of dy, the weights of the sum of the results. */
static void prepare_trained(void) {
    float a[CHOICES], b[CHOICES];
    fill(x, TOKENS * IN, 1);
    for (int i = 0; i < TOKENS * IN; i++) minus_x[i] = -x[i];
    for (int r = 0; r < CHOICES; r++) choice[r] = (7 * r + r / 5) % 3;
    fill(w, EXPERTS * WIDTH * IN, 77777);
    fill(dy, CHOICES * WIDTH, 999999);
    memset(want, 0, sizeof want);
    for (int r = 0; r < CHOICES; r++) {
        const float *map = w + choice[r] * WIDTH * IN;
        for (int n = 0; n < WIDTH; n++)
            want[0][r * WIDTH + n] = sum(x + r / EACH * IN, 1, map + n * IN, 1, IN);
        for (int k = 0; k < IN; k++)
            want[1][r / EACH * IN + k] += sum(dy + r * WIDTH, 1, map + k, IN, WIDTH);
    }
    for (int i = 0; i < EXPERTS * WIDTH * IN; i++) {
        int n = 0;
        for (int r = 0; r < CHOICES; r++) {
            if (choice[r] != i / (WIDTH * IN)) continue;
            a[n] = dy[r * WIDTH + i / IN % WIDTH];
            b[n++] = x[r / EACH * IN + i % IN];
        }
        want[2][i] = sum(a, 1, b, 1, n);
    }
}

static void define_trained(sn_module *m) {
    sn_entry_begin(m, "run");
    sn_tensor wrt[] = {sn_neg(sn_input(m, "-x", SN_F32, TOKENS, IN)), /* stored as bf16 */
                       sn_input(m, "w", SN_F32, EXPERTS * WIDTH, IN)};
    sn_tensor y = sn_take_blocks(sn_linear(wrt[0], wrt[1], NULL),
                                 sn_input(m, "i", SN_I32, TOKENS, EACH), EXPERTS),
              by = sn_input(m, "dy", SN_F32, TOKENS, EACH, WIDTH), d[2];
    sn_grad(sn_sum_all(sn_mul(y, by)), 2, wrt, d);
    sn_output("y", y);
    sn_output("dx", d[0]);
    sn_output("dw", d[1]);
}

static const int of_trained[] = {CHOICES * WIDTH, TOKENS *IN, EXPERTS *WIDTH *IN};

static void check_trained(way how) {
    sn_error err = {0};
    sn_module *m = sn_module_new("trained");
    define_trained(m);
    sn_program *p = compile(m, &how, &err);
    sn_session *s = p ? sn_session_new_arrays(p, NULL, 0, &err) : NULL;
    need(s || err.code == SN_ERR_TARGET, &err);
    sn_arg_binding in[] = {SN_BIND("-x", SN_F32, minus_x, TOKENS, IN),
                           SN_BIND("w", SN_F32, w, EXPERTS * WIDTH, IN),
                           SN_BIND("i", SN_I32, choice, TOKENS, EACH),
                           SN_BIND("dy", SN_F32, dy, TOKENS, EACH, WIDTH)},
                   out[] = {SN_BIND("y", SN_F32, got[0], TOKENS, EACH, WIDTH),
                            SN_BIND("dx", SN_F32, got[1], TOKENS, IN),
                            SN_BIND("dw", SN_F32, got[2], EXPERTS * WIDTH, IN)};
    if (s) need(sn_run(s, "run", in, 4, out, 3, &err), &err);
    for (int o = 0; s && o < 3; o++)
        for (int i = 0; i < of_trained[o]; i++)
            if (!(got[o][i] == want[o][i]))
                fail_msg("level %d, %s: element %d of result %d is %a, not %a", how.level,
                         how.target ? how.target : "this CPU", i, o, (double)got[o][i],
                         (double)want[o][i]);
    if (s) {
        char *text = explain_text(p, "run");
        int n = 0;
        for (const char *at = text; (at = strstr(at, "products of bf16")); at++) n++;
        assert_int_equal(n, 3);
        assert_non_null(strstr(text, "bf16[16,35]"));
        free(text);
    }
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
}

static void trained_experts(void **state) {
    (void)state;
    prepare_trained();
    check_trained((way){.level = 0});
    check_trained((way){.level = 4});
    check_trained((way){.level = 4, .target = "x86-64-v3"});
    check_trained((way){.level = 4, .target = "x86-64-v4"});
    sn_module *m = sn_module_new("trained");
    define_trained(m);
    sn_eval *ev = sn_eval_new(m, NULL);
    sn_eval_set_exact(ev, false);
    sn_eval_set_bf16(ev, true);
    assert_true(sn_eval_bind(ev, "-x", minus_x, sizeof minus_x));
    assert_true(sn_eval_bind(ev, "w", w, sizeof *w * (size_t)(EXPERTS * WIDTH * IN)));
    assert_true(sn_eval_bind(ev, "i", choice, sizeof choice));
    assert_true(sn_eval_bind(ev, "dy", dy, sizeof *dy * (size_t)(CHOICES * WIDTH)));
    for (int o = 0; o < 3; o++) {
        const sn_value *v = sn_eval_node(ev, sn_entry_at(m, 0)->output[o].node);
        assert_non_null(v);
        for (int i = 0; i < of_trained[o]; i++) assert_true((float)v->data[i] == want[o][i]);
    }
    sn_eval_free(ev);
    sn_module_free(m);
}

/* ---- weights in fewer bits: their values are rounded to bf16 ---- */

static float stored[MAX_N * MAX_K], factor[MAX_N]; /* of a row; it multiplies the product */

static float largest(const float *v, int n) {
    float most = 0;
    for (int i = 0; i < n; i++)
        if (fabsf(v[i]) > fabsf(most)) most = v[i];
    return most;
}

static void store_int8(int N, int K) {
    for (int i = 0; i < N * K; i++) {
        if (i % K == 0) factor[i / K] = fabsf(largest(w + i, K)) * (float)(1 / 127.0);
        stored[i] = rintf(w[i] / factor[i / K]);
    }
}

static void store_int4(int N, int K) {
    for (int n = 0; n < N; n++) factor[n] = 1;
    for (int i = 0; i < N * K; i++) {
        const float scale = rounded(largest(w + i / 32 * 32, 32) * -0.125f);
        stored[i] = fmaxf(-8, fminf(7, rintf(w[i] / scale))) * scale;
    }
}

/* Rows of blocks, as they are in a file, repeated. */
static void store_blocks(int N, int K, const float *v) {
    for (int n = 0; n < N; n++) factor[n] = 1;
    for (int i = 0; i < N * K; i++) stored[i] = v[i % (2 * K)];
}

static float product_of_stored(int i, int N, int K) {
    return sum(x + i / N * K, 1, stored + i % N * K, 1, K) * factor[i % N];
}

static void check_stored(const char *name, int N, int K, const char *weights,
                         const sn_weights *file, way how) {
    sn_error err = {0};
    sn_module *m = sn_module_new("stored");
    sn_entry_begin(m, "run");
    sn_tensor in = sn_input(m, "x", SN_F32, sn_symbol(m, "T", 0, MAX_T), K);
    sn_tensor weight = sn_param(m, name, SN_F32, file ? 2 : N, K);
    for (int j = 2; file && j < N; j *= 2) weight = sn_concat(0, weight, weight);
    sn_output("y", sn_linear(in, weight, NULL));
    sn_options o = options(&how);
    o.weights = weights;
    o.source = file;
    sn_program *p = sn_compile(m, &o, &err);
    need(p || err.code == SN_ERR_TARGET, &err);
    sn_arg_binding param = SN_BIND(name, SN_F32, w, N, K);
    sn_session *s = !p     ? NULL
                    : file ? sn_session_new(p, file, &err)
                           : sn_session_new_arrays(p, &param, 1, &err);
    need(s || err.code == SN_ERR_TARGET, &err);
    for (int rows = MAX_T; s && rows > 0; rows = rows == MAX_T ? 2 : rows - 1) {
        sn_arg_binding xi = SN_BIND("x", SN_F32, x, rows, K),
                       yo = SN_BIND("y", SN_F32, got[0], rows, N);
        need(sn_run(s, "run", &xi, 1, &yo, 1, &err), &err);
        for (int i = 0; i < rows * N; i++) {
            const float y = product_of_stored(i, N, K);
            if (!(got[0][i] == y))
                fail_msg("%s %s, level %d, %s: element %d of %d rows is %a, not %a", weights, name,
                         how.level, how.target ? how.target : "this CPU", i, rows,
                         (double)got[0][i], (double)y);
        }
    }
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
}

/* The graph after the passes, fused nodes and panels included, means the same. */
static void evaluator(void **state) {
    (void)state;
    enum { T = 5, N = 35 };
    static const char *const weights[] = {NULL, NULL, "int8", "int4"};
    for (int way = 0; way < 4; way++) {
        const int K = way ? 64 : 63, n_out = weights[way] ? 1 : 3;
        int64_t rows = T;
        sn_passes run;
        sn_pass_options o = {.level = 4,
                             .backend = "native",
                             .bf16_compute = true,
                             .constant_params = true,
                             .weights = weights[way],
                             .verify = true,
                             .off = "hoist"};
        sn_module *m = sn_module_new("bf16");
        prepare(T, N, K);
        if (way == 2) store_int8(N, K);
        if (way == 3) store_int4(N, K);
        for (int i = 0; i < T * N && way > 1; i++) want[0][i] = product_of_stored(i, N, K);
        define(m, N, K);
        assert_true(sn_passes_run(&run, m, &o));
        sn_eval *ev = sn_eval_new(m, &rows);
        sn_eval_set_exact(ev, false);
        assert_true(sn_eval_bind(ev, "x", x, sizeof *x * (size_t)(T * K)));
        assert_true(sn_eval_bind(ev, "dy", dy, sizeof *dy * (size_t)(T * N)));
        assert_true(sn_eval_bind(ev, "w", w, sizeof *w * (size_t)(N * K)));
        const int size[] = {T * N, T * K, N * K};
        for (int k = 0; k < n_out; k++) {
            const sn_value *v = sn_eval_node(ev, sn_entry_at(m, 0)->output[k].node);
            assert_non_null(v);
            for (int i = 0; i < size[k]; i++) assert_true((float)v->data[i] == want[k][i]);
        }
        sn_eval_free(ev);
        sn_module_free(m);
    }
}

static void fewer_bits(void **state) {
    (void)state;
    static const char *const names[] = {NULL, "x86-64-v3", "x86-64-v4"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        prepare(MAX_T, 70, 160);
        store_int8(70, 160);
        check_stored("w", 70, 160, "int8", NULL, (way){.level = 4, .target = names[i]});
        store_int4(70, 160);
        check_stored("w", 70, 160, "int4", NULL, (way){.level = i ? 4 : 0, .target = names[i]});
        check_stored("w", 70, 160, "int4", NULL,
                     (way){.level = 4, .threads = 2, .target = names[i]});
    }
    store_int8(33, 67); /* not whole vectors along K */
    check_stored("w", 33, 67, "int8", NULL, (way){.level = 4});
}

static void blocks_of_files(void **state) {
    (void)state;
    static const char *const names[] = {"Q4_0", "Q8_0", "Q4_K", "Q6_K"};
    sn_error err = {0};
    sn_weights *file = sn_weights_open(FORMATS ".gguf", &err),
               *values = sn_weights_open(FORMATS ".safetensors", &err);
    need(file && values, &err);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const sn_weight *t = sn_weights_find(values, names[i]);
        assert_non_null(t);
        const int N = 16, K = (int)t->shape[1];
        assert_true(K <= MAX_K);
        fill(x, MAX_T * K, 1);
        store_blocks(N, K, t->data);
        check_stored(names[i], N, K, "stored", file, (way){.level = 4});
    }
    sn_weights_close(file);
    sn_weights_close(values);
}

/* ---- products of a few numbers ---- */

enum { FEW_T = 3, FEW_K = 5, FEW_N = 20 };
static float few_a[FEW_T][FEW_K], few_b[FEW_K + 1][FEW_N];

/* a b, of b the first K rows of K + 1. */
static void check_few(const char *target) {
    float y[FEW_T][FEW_N];
    sn_error err = {0};
    sn_module *m = sn_module_new("few");
    sn_entry_begin(m, "main");
    sn_tensor x = sn_input(m, "a", SN_F32, FEW_T, FEW_K);
    sn_tensor part = sn_slice(sn_input(m, "b", SN_F32, FEW_K + 1, FEW_N), 0, 0, FEW_K);
    sn_output("y", sn_matmul(x, part));
    sn_program *p = compile(m, &(way){.level = 4, .target = target}, &err);
    sn_session *s = p ? sn_session_new_arrays(p, NULL, 0, &err) : NULL;
    need(s || err.code == SN_ERR_TARGET, &err);
    const sn_arg_binding in[] = {SN_BIND("a", SN_F32, few_a, FEW_T, FEW_K),
                                 SN_BIND("b", SN_F32, few_b, FEW_K + 1, FEW_N)};
    const sn_arg_binding out = SN_BIND("y", SN_F32, y, FEW_T, FEW_N);
    if (s) need(sn_run(s, "main", in, 2, &out, 1, &err), &err);
    for (int t = 0; s && t < FEW_T; t++)
        for (int n = 0; n < FEW_N; n++)
            assert_true(y[t][n] == sum(few_a[t], 1, &few_b[0][n], FEW_N, FEW_K));
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
}

/* A part of a matrix with an odd number of rows is multiplied as if nothing were behind it. */
static void odd_parts(void **state) {
    (void)state;
    fill(few_a[0], FEW_T * FEW_K, 1);
    fill(few_b[0], FEW_K * FEW_N, 2);
    for (int n = 0; n < FEW_N; n++) few_b[FEW_K][n] = NAN;
    check_few(NULL);
}

/* The largest number below the normal range is 0, although its nearest bf16 is normal. */
static void below_normal(void **state) {
    (void)state;
    static const char *const targets[] = {NULL, "x86-64-v3", "x86-64-v4"};
    for (int i = 0; i < FEW_T * FEW_K; i++) few_a[i / FEW_K][i % FEW_K] = nextafterf(FLT_MIN, 0);
    for (int i = 0; i < FEW_K * FEW_N; i++) few_b[i / FEW_N][i % FEW_N] = 0x1p100f;
    for (int i = 0; i < 3; i++) check_few(targets[i]);
}

static void reports(void **state) {
    (void)state;
    sn_error err = {0};
    sn_target t;
    need(sn_target_init(&t, NULL, &err), &err);
    for (int unordered = 0; unordered < 2; unordered++) {
        sn_module *m = sn_module_new("bf16");
        define(m, 64, 64);
        way how = {.level = 4, .compute = unordered ? "bf16-unordered" : NULL};
        sn_options o = options(&how);
        o.weights = "int8";
        sn_program *p = sn_compile(m, &o, &err);
        need(p != NULL, &err);
        char *text = explain_text(p, "run");
        bool tiles = unordered && sn_target_take_amx(&t);
        assert_non_null(strstr(text, tiles ? "product of bf16, by AMX\n" : "product of bf16\n"));
        assert_non_null(strstr(text, "weights: i8"));
        free(text);
        sn_program_free(p);
        sn_module_free(m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unordered),       cmocka_unit_test(levels),
        cmocka_unit_test(sizes),           cmocka_unit_test(targets),
        cmocka_unit_test(threads),         cmocka_unit_test(evaluator),
        cmocka_unit_test(experts),         cmocka_unit_test(fewer_bits),
        cmocka_unit_test(blocks_of_files), cmocka_unit_test(trained_experts),
        cmocka_unit_test(odd_parts),       cmocka_unit_test(below_normal),
        cmocka_unit_test(reports)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
