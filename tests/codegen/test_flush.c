/* Subnormal numbers are zero in kernels, at every fusion level, of either back end, in the process
 * and in artefacts; and each thread gets its own floating-point state back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "codegen/backend.h"
#include "frontend/sinter.h"
#include "runtime/threads.h"
#include "tests/support/artefact.h"

#include <omp.h>

enum { N = 160, THREADS = 3 };

#if defined(__x86_64__)
enum { ODD_STATE = 0x1f80 | 0x6000 }; /* rounds towards zero */
static unsigned get_state(void) {
    return __builtin_ia32_stmxcsr();
}
static void set_state(unsigned v) {
    __builtin_ia32_ldmxcsr(v);
}
#else
enum { ODD_STATE = 0 };
static unsigned get_state(void) {
    return 0;
}
static void set_state(unsigned v) {
    (void)v;
}
#endif

/* Of x [N, N] of subnormal numbers and w [N, N] of ones: sums, a product, a chain, a softmax. */
static sn_module *build(void) {
    sn_module *m = sn_module_new("flush");
    sn_entry_begin(m, "go");
    sn_tensor x = sn_input(m, "x", SN_F32, N, N), w = sn_input(m, "w", SN_F32, N, N);
    sn_output("sum", sn_sum(x, -1));
    sn_output("product", sn_matmul(x, w));
    sn_output("chain", sn_mul(sn_add(x, sn_mul(w, 1e-30)), 1e-9));
    sn_output("weights", sn_softmax(sn_mul(sn_log(x), w), -1));
    return m;
}

typedef struct results {
    float sum[N], product[N * N], chain[N * N], weights[N * N];
} results;

static float x[N * N], w[N * N];

static void fill(void) {
    for (int i = 0; i < N * N; i++) x[i] = (float)(i + 1) * 0x1p-149f, w[i] = 1;
}

static bool all_zero(const float *v, int n) {
    for (int i = 0; i < n; i++)
        if (v[i] != 0) return false;
    return true;
}

/* log 0 is -inf, and softmax of nothing is 0 */
static void expect_zeros(const results *r) {
    assert_true(all_zero(r->sum, N));
    assert_true(all_zero(r->product, N * N));
    assert_true(all_zero(r->chain, N * N));
    assert_true(all_zero(r->weights, N * N));
}

/* The calling thread and its team start in an unusual state and must keep it. */
static void set_states(void) {
#pragma omp parallel num_threads(THREADS)
    set_state(ODD_STATE);
}

static void expect_states(void) {
    unsigned state[THREADS] = {0};
#pragma omp parallel num_threads(THREADS)
    state[omp_get_thread_num()] = get_state();
#pragma omp parallel num_threads(THREADS)
    set_state(0x1f80);
    for (int i = 0; i < THREADS; i++) assert_int_equal(state[i] & ~0x3fu, ODD_STATE);
}

static sn_session *open_session(sn_module *m, int level, const char *backend, sn_program **p) {
    sn_error err = {0};
    sn_options o = sn_options_default();
    o.level = level;
    o.backend = backend;
    o.threads = THREADS;
    *p = sn_compile(m, &o, &err);
    if (!*p) fail_msg("%s", err.message);
    sn_session *s = sn_session_new_arrays(*p, NULL, 0, &err);
    if (!s) fail_msg("%s", err.message);
    return s;
}

static void in_process(void **state) {
    (void)state;
    static const char *const backends[] = {"native", "onednn"};
    static results r;
    fill();
    for (int i = 0; i < (sn_backend_library() ? 6 : 5); i++) {
        sn_error err = {0};
        sn_module *m = build();
        sn_program *p;
        sn_session *s = open_session(m, i < 5 ? i : 4, backends[i / 5], &p);
        sn_arg_binding in[] = {SN_BIND("x", SN_F32, x, N, N), SN_BIND("w", SN_F32, w, N, N)};
        sn_arg_binding out[] = {
            SN_BIND("sum", SN_F32, r.sum, N), SN_BIND("product", SN_F32, r.product, N, N),
            SN_BIND("chain", SN_F32, r.chain, N, N), SN_BIND("weights", SN_F32, r.weights, N, N)};
        memset(&r, 1, sizeof r);
        set_states();
        bool ok = sn_run(s, "go", in, 2, out, 4, &err);
        expect_states();
        if (!ok) fail_msg("%s", err.message);
        expect_zeros(&r);
        sn_session_free(s);
        sn_program_free(p);
        sn_module_free(m);
    }
}

/* OpenMP may give less threads, and more later: here the first of two, then the second. */
static void run_first(sn_threads *t, void (*fn)(void *, int64_t, int64_t), void *arg) {
    (void)t;
    fn(arg, 0, 1);
}

static void run_second(sn_threads *t, void (*fn)(void *, int64_t, int64_t), void *arg) {
    fn(arg, 1, t->n);
}

static void other_threads(void **state) {
    (void)state;
    uint64_t before[2] = {0};
    sn_threads t = {.n = 2, .run = run_first};
    unsigned usual = get_state();
    sn_fp_enter(&t, before);
    unsigned inside = get_state();
    t.run = run_second;
    sn_fp_leave(&t, before);
    unsigned left = get_state();
    t.run = run_first;
    sn_fp_leave(&t, before);
    assert_int_equal(left, inside); /* not 0, with which every rounding is a trap */
    assert_int_equal(get_state(), usual);
}

typedef struct model {
    const void *weights;
    int64_t bytes, threads;
    void *pool;
    int32_t target, mapped;
} model;

static void in_an_artefact(void **state) {
    (void)state;
    static results r;
    static _Alignas(64) unsigned char workspace[4 << 20];
    model file = {0};
    int (*open)(model *, const char *);
    void (*close)(model *);
    int64_t (*size)(const model *);
    int (*run)(const model *, void *, const float *, const float *, float *, float *, float *,
               float *);
    fill();
    sn_error err = {0};
    sn_module *m = build();
    sn_program *p;
    sn_session *s = open_session(m, 4, "native", &p);
    sn_emit_options emit = sn_emit_options_default();
    emit.dir = scratch_dir;
    emit.name = "flush";
    if (!sn_emit(s, &emit, &err)) fail_msg("%s", err.message);
    const artefact_symbol names[] = {{(void *)&open, "flush_open"},
                                     {(void *)&close, "flush_close"},
                                     {(void *)&size, "flush_go_workspace"},
                                     {(void *)&run, "flush_go"}};
    void *lib = artefact_load("flush", names, 4);
    assert_int_equal(open(&file, scratch_path("flush.weights")), 0);
    file.threads = THREADS;
    assert_true(size(&file) <= (int64_t)sizeof workspace);
    memset(&r, 1, sizeof r);
    set_states();
    int code = run(&file, workspace, x, w, r.sum, r.product, r.chain, r.weights);
    expect_states();
    assert_int_equal(code, 0);
    expect_zeros(&r);
    close(&file);
    dlclose(lib);
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_process),
        cmocka_unit_test(other_threads),
        cmocka_unit_test(in_an_artefact),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
