/* Option `compute` int8: linear maps are exactly what the definition says (rows and weights rounded
 * to 8 bits, i32 sums, scales), at every level, on every target, for every number of threads; what
 * contradicts it is refused. */
#include "tests/support/noise.h"
#include "frontend/sinter.h"
#include "passes/passes.h"
#include "tests/support/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_N = 1030, MAX_M = 37, MAX_K = 12334, SOME_N = 70, MAX_W = 40 * MAX_K };

static void need(bool ok, const sn_error *err) {
    if (!ok) fail_msg("%s", err->message);
}

static float largest(int n, const float *x) {
    float most = 1e-30f;
    for (int i = 0; i < n; i++) most = fmaxf(most, fabsf(x[i]));
    return most;
}

static float w[MAX_W], bias[MAX_N], x[MAX_M * MAX_K];
static float y[MAX_M * MAX_N], want[MAX_M * MAX_N];
static int8_t qw[MAX_W], qx[MAX_K];

/* want = x W^T + b. Without b every step is rounded as in the kernels, so bits are the same. */
static void compute(int M, int N, int K, bool biased) {
    float scale[MAX_N];
    for (int j = 0; j < N; j++) {
        scale[j] = largest(K, w + j * K) * (float)(1 / 127.0);
        for (int k = 0; k < K; k++) qw[j * K + k] = (int8_t)rintf(w[j * K + k] / scale[j]);
    }
    for (int i = 0; i < M; i++) {
        float most = largest(K, x + i * K), steps = 127 / most, s = most * (float)(1 / 127.0);
        for (int k = 0; k < K; k++) qx[k] = (int8_t)rintf(x[i * K + k] * steps);
        for (int j = 0; j < N; j++) {
            int32_t sum = 0;
            for (int k = 0; k < K; k++) sum += qx[k] * qw[j * K + k];
            volatile float part = (float)sum * s;
            want[i * N + j] = part * scale[j];
            if (biased) want[i * N + j] += bias[j];
        }
    }
}

static void fill(int M, int N, int K) {
    for (int i = 0; i < N * K; i++) w[i] = noise_at((uint32_t)i);
    for (int i = 0; i < N; i++) bias[i] = noise_at((uint32_t)i + 7777);
    for (int i = 0; i < M * K; i++) x[i] = noise_at((uint32_t)i + 99999);
    memset(w, 0, sizeof *w * (size_t)K);                                 /* a column of zeros */
    for (int k = 0; k < K; k++) w[(N > 1) * K + k] = k % 2 ? 127 : -127; /* and of the extremes */
    for (int k = 0; k < K && M > 2; k++) x[2 * K + k] = k % 2 ? 1 : -1;
    for (int k = 0; k < K && M > 3; k++) x[3 * K + k] = 0;
}

typedef struct way {
    int level, threads;
    const char *target, *weights;
} way;

static void define(sn_module *m, int N, int K, bool biased) {
    sn_entry_begin(m, "run");
    sn_dim T = sn_symbol(m, "T", 0, MAX_M);
    sn_tensor in = sn_input(m, "x", SN_F32, T, K);
    sn_output("y", sn_linear(in, sn_param(m, "w", SN_F32, N, K),
                             biased ? sn_param(m, "b", SN_F32, N) : NULL));
}

static sn_program *compile(sn_module *m, const way *how, sn_error *err) {
    sn_options o = sn_options_default();
    o.level = how->level;
    o.threads = how->threads;
    o.target = how->target;
    o.weights = how->weights;
    o.compute = "int8";
    return sn_compile(m, &o, err);
}

static sn_program *build(sn_module *m, int N, int K, bool biased, const way *how, sn_error *err) {
    define(m, N, K, biased);
    return compile(m, how, err);
}

static void check_rows(sn_session *s, int M, int N, int K, bool biased) {
    sn_error err = {0};
    memset(y, -1, sizeof y);
    sn_arg_binding xi = SN_BIND("x", SN_F32, x, M, K), yo = SN_BIND("y", SN_F32, y, M, N);
    need(sn_run(s, "run", &xi, 1, &yo, 1, &err), &err);
    for (int i = 0; i < M * N; i++) {
        double limit = biased ? 1e-6 * (1 + fabs((double)want[i])) : 0;
        if (!(fabs((double)y[i] - (double)want[i]) <= limit))
            fail_msg("N %d, K %d: row %d of %d, column %d is %g, not %g", N, K, i / N, M, i % N,
                     (double)y[i], (double)want[i]);
    }
}

static void check(int M, int N, int K, bool biased, way how) {
    sn_error err = {0};
    sn_module *m = sn_module_new("int8");
    assert_non_null(m);
    fill(M, N, K);
    compute(M, N, K, biased);
    sn_program *p = build(m, N, K, biased, &how, &err);
    need(p != NULL, &err);
    sn_arg_binding param[] = {SN_BIND("w", SN_F32, w, N, K), SN_BIND("b", SN_F32, bias, N)};
    sn_session *s = sn_session_new_arrays(p, param, biased ? 2 : 1, &err);
    need(s != NULL, &err);
    static const int rows[] = {0, 1, 2, 16};
    for (int i = 0; i < 4; i++)
        if (rows[i] < M) check_rows(s, rows[i], N, K, biased);
    check_rows(s, M, N, K, biased);
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
}

static void levels(void **state) {
    (void)state;
    for (int level = 0; level <= 4; level++) {
        check(MAX_M, SOME_N, 70, false, (way){.level = level});
        check(MAX_M, SOME_N, 70, true, (way){.level = level});
    }
}

static void sizes(void **state) {
    (void)state;
    static const int size[][2] = {{1, 1024}, {1, 1031}, {1030, 1}, {520, 2},  {345, 3},   {257, 4},
                                  {210, 5},  {79, 13},  {33, 64},  {33, 127}, {33, MAX_K}};
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        check(MAX_M, size[i][0], size[i][1], false, (way){.level = 4});
}

/* Targets of this machine's architecture; it may lack what some of them use. */
static void targets(void **state) {
    (void)state;
    static const char *const names[] = {"x86-64", "x86-64-v3", "x86-64-v3,+avxvnni", "x86-64-v4",
                                        "x86-64-v4,+avx512vnni"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        sn_error err = {0};
        way how = {.level = 4, .target = names[i]};
        sn_module *m = sn_module_new("int8");
        sn_program *p = build(m, 35, 64, false, &how, &err);
        sn_session *s = p ? sn_session_new_arrays(p, NULL, 0, NULL) : NULL;
        sn_session_free(s);
        sn_program_free(p);
        sn_module_free(m);
        if (!p) continue;
        check(MAX_M, SOME_N, 70, false, how);
        check(3, 35, MAX_K, false, how);
    }
}

static void threads(void **state) {
    (void)state;
    for (int n = 1; n <= 5; n += 2) check(MAX_M, SOME_N, 270, false, (way){4, n, NULL, NULL});
}

/* The graph after the passes, fused nodes and panels included, means the same. */
static void evaluator(void **state) {
    (void)state;
    enum { M = 5, N = 35 };
    static const int k[] = {64, 75};
    for (int i = 0; i < 4; i++) {
        int K = k[i / 2];
        int64_t rows = M;
        sn_passes run;
        sn_pass_options o = {.level = i % 2 * 4,
                             .backend = "native",
                             .weights = "int8",
                             .int8_compute = true,
                             .constant_params = true,
                             .verify = true,
                             .off = "hoist"};
        sn_module *m = sn_module_new("int8");
        fill(M, N, K);
        compute(M, N, K, false);
        define(m, N, K, false);
        assert_true(sn_passes_run(&run, m, &o));
        sn_eval *ev = sn_eval_new(m, &rows);
        sn_eval_set_exact(ev, false);
        assert_true(sn_eval_bind(ev, "x", x, sizeof *x * (size_t)(M * K)));
        assert_true(sn_eval_bind(ev, "w", w, sizeof *w * (size_t)(N * K)));
        const sn_value *v = sn_eval_node(ev, sn_entry_at(m, 0)->output[0].node);
        assert_non_null(v);
        for (int j = 0; j < M * N; j++) assert_true((float)v->data[j] == want[j]);
        sn_eval_free(ev);
        sn_module_free(m);
    }
}

/* Several maps of one tensor, a gate and a chain of maps: every level gives the same bits, and at
 * the highest one no kernel only quantises what a product has made. */
static void build_block(sn_module *m) {
    enum { IN = 76, OUT = 64 };
    sn_entry_begin(m, "run");
    sn_tensor in = sn_input(m, "x", SN_F32, sn_symbol(m, "T", 0, MAX_M), IN);
    sn_tensor gate = sn_linear(in, sn_param(m, "u", SN_F32, OUT, IN), NULL);
    sn_tensor up = sn_linear(in, sn_param(m, "v", SN_F32, OUT, IN), NULL);
    sn_tensor both = sn_mul(sn_relu(gate), up);
    sn_output("y", sn_linear(both, sn_param(m, "d", SN_F32, IN, OUT), NULL));
}

static void blocks(void **state) {
    (void)state;
    enum { IN = 76, OUT = 64, M = 21 };
    static float first[M * IN];
    fill(M, OUT, IN);
    for (int level = 0; level <= 4; level++) {
        sn_error err = {0};
        sn_module *m = sn_module_new("int8");
        build_block(m);
        sn_program *p = compile(m, &(way){.level = level}, &err);
        need(p != NULL, &err);
        sn_arg_binding param[] = {SN_BIND("u", SN_F32, w, OUT, IN),
                                  SN_BIND("v", SN_F32, w + 5, OUT, IN),
                                  SN_BIND("d", SN_F32, w + 9, IN, OUT)};
        sn_session *s = sn_session_new_arrays(p, param, 3, &err);
        need(s != NULL, &err);
        float *out = level ? y : first;
        sn_arg_binding xi = SN_BIND("x", SN_F32, x, M, IN), yo = SN_BIND("y", SN_F32, out, M, IN);
        need(sn_run(s, "run", &xi, 1, &yo, 1, &err), &err);
        if (level) assert_memory_equal(first, y, sizeof first);
        char *text = explain_text(p, "run");
        if (level == 4) {
            assert_non_null(strstr(text, "gate of 2 x 64 columns"));
            assert_non_null(strstr(text, "product of 8-bit integers"));
            assert_non_null(strstr(text, "entry run: 2 kernel calls"));
        }
        free(text);
        sn_session_free(s);
        sn_program_free(p);
        sn_module_free(m);
    }
}

/* Somebody else needs the rows' scales too: the product reads integers and scales from memory, and
 * its epilogue keeps its other operands. */
static void shared_scales(void **state) {
    (void)state;
    enum { IN = 64, OUT = 96, M = 5 };
    static float first[M * (OUT + 1)], got[M * (OUT + 1)], add[M * OUT];
    fill(M, OUT, IN);
    for (int i = 0; i < M * OUT; i++) add[i] = (float)(i % 7);
    for (int level = 0; level <= 4; level += 4) {
        sn_error err = {0};
        float *out = level ? got : first;
        sn_module *m = sn_module_new("int8");
        sn_entry_begin(m, "run");
        sn_dim rows = sn_symbol(m, "T", 0, MAX_M);
        sn_tensor in = sn_input(m, "x", SN_F32, rows, IN);
        sn_tensor z = sn_linear(in, sn_param(m, "w", SN_F32, OUT, IN), NULL);
        sn_tensor most = sn_max(sn_amax_keep(sn_abs(in), -1), 1e-30);
        sn_output("z", sn_add(z, sn_input(m, "add", SN_F32, rows, OUT)));
        sn_output("scale", sn_mul(most, 1 / 127.0));
        sn_program *p = compile(m, &(way){.level = level}, &err);
        need(p != NULL, &err);
        sn_session *s =
            sn_session_new_arrays(p, (sn_arg_binding[]){SN_BIND("w", SN_F32, w, OUT, IN)}, 1, &err);
        need(s != NULL, &err);
        sn_arg_binding to[] = {SN_BIND("z", SN_F32, out, M, OUT),
                               SN_BIND("scale", SN_F32, out + M * OUT, M, 1)};
        sn_arg_binding from[] = {SN_BIND("x", SN_F32, x, M, IN),
                                 SN_BIND("add", SN_F32, add, M, OUT)};
        need(sn_run(s, "run", from, 2, to, 2, &err), &err);
        sn_session_free(s);
        sn_program_free(p);
        sn_module_free(m);
    }
    for (int i = 0; i < M * OUT; i++) assert_float_equal(first[i], got[i], 1e-4);
    for (int r = 0; r < M; r++) {
        float scale = largest(IN, x + r * IN) / 127;
        assert_float_equal(got[M * OUT + r], scale, 1e-6 * scale);
    }
}

static void contradictions(void **state) {
    (void)state;
    static const struct {
        const char *weights, *says;
    } cases[] = {{"f32", "choose weights int8 or stored"}, {"bf16", "or compute f32"}};
    for (int i = 0; i < 2; i++) {
        sn_error err = {0};
        sn_module *m = sn_module_new("int8");
        assert_null(build(m, 35, 64, false, &(way){4, 0, NULL, cases[i].weights}, &err));
        assert_int_equal(err.code, SN_ERR_USAGE);
        assert_non_null(strstr(err.message, cases[i].says));
        sn_module_free(m);
    }
    sn_options o = sn_options_default();
    sn_error err = {0};
    o.compute = "int9";
    sn_module *m = sn_module_new("int8");
    sn_entry_begin(m, "run");
    sn_output("y", sn_neg(sn_input(m, "x", SN_F32, 3)));
    assert_null(sn_compile(m, &o, &err));
    assert_non_null(
        strstr(err.message, "compute 'int9': choose f32, bf16, bf16-unordered or int8"));
    sn_module_free(m);
}

/* Sums longer than i32 holds stay products of floats, and a remark says so. */
static void longest_sum(void **state) {
    (void)state;
    enum { LONGEST = 133144 }; /* 127 * 127 times that fits, once more does not */
    for (int more = 0; more < 2; more++) {
        sn_error err = {0};
        sn_module *m = sn_module_new("int8");
        define(m, 1, LONGEST + more, false);
        sn_options o = sn_options_default();
        o.compute = "int8", o.plan_only = true;
        sn_program *p = sn_compile(m, &o, &err);
        need(p != NULL, &err);
        char *text = explain_text(p, "run");
        assert_int_equal(strstr(text, "product of 8-bit integers") != NULL, !more);
        assert_int_equal(strstr(text, "might not fit 32 bits") != NULL, more);
        free(text);
        sn_program_free(p);
        sn_module_free(m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels),         cmocka_unit_test(sizes),
        cmocka_unit_test(targets),        cmocka_unit_test(threads),
        cmocka_unit_test(evaluator),      cmocka_unit_test(blocks),
        cmocka_unit_test(contradictions), cmocka_unit_test(shared_scales),
        cmocka_unit_test(longest_sum)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
