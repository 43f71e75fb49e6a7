/* The emission vocabulary: loops with carries, tails of every length, conversions and reductions,
 * on every vector width that this machine can run. */
#include "codegen/emit/emit.h"
#include "codegen/emit/signature.h"
#include "codegen/jit/jit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>

static const char *const specs[] = {"native",    "x86-64-v4", "x86-64-v3",
                                    "x86-64-v2", "x86-64",    "aarch64"};
enum { N_SPECS = sizeof specs / sizeof specs[0] };

/* A kernel of one emission function, compiled and loaded for one target. */
typedef struct compiled {
    sn_jit *jit;
    sn_kernel_fn *run;
} compiled;

static compiled compile(const sn_target *t, sn_dtype compute, void (*emit)(em *, int), int arg) {
    sn_error err = {0};
    em e;
    assert_true(em_init(&e, t, "test", compute, &err));
    em_kernel(&e, "kernel");
    emit(&e, arg);
    em_end_kernel(&e);
    LLVMModuleRef mod = em_finish(&e, &err);
    if (!mod) fail_msg("%s: %s", t->name, err.message);
    sn_codegen_options codegen = {.verify = true};
    if (getenv("SN_TEST_ASM")) codegen.dump_asm = codegen.dump_optimised = stderr;
    compiled c = {.jit = sn_jit_create(t, &(sn_jit_options){.codegen = codegen}, &err)};
    if (!c.jit || !sn_jit_compile(c.jit, mod, NULL, &err)) fail_msg("%s: %s", t->name, err.message);
    em_free(&e);
    void *p = sn_jit_lookup(c.jit, "kernel", &err);
    if (!p) fail_msg("%s: %s", t->name, err.message);
    memcpy(&c.run, &p, sizeof p);
    return c;
}

/* Calls f for every target that runs here. */
static void for_targets(void (*f)(const sn_target *)) {
    for (int i = 0; i < N_SPECS; i++) {
        sn_error err = {0};
        sn_target t;
        assert_true(sn_target_init(&t, specs[i], &err));
        if (sn_target_runs_here(&t)) f(&t);
    }
}

/* dot = sum over i < dim[0] of buf[0][i] * buf[1][i], vectors and one masked tail. */
static void emit_dot(em *e, int unused) {
    (void)unused;
    em_val x = em_buf(e, 0), y = em_buf(e, 1), n = em_dim(e, 0);
    em_val whole = em_round_down(e, n, e->lanes);
    sn_dtype t = e->compute;
    em_loop l = em_for(e, 0, whole, e->lanes);
    em_val sum = em_vf(e, 0);
    em_carries(e, &l, &sum, 1);
    em_val a = em_load(e, t, em_gep(e, x, t, l.i), e->lanes);
    em_val b = em_load(e, t, em_gep(e, y, t, l.i), e->lanes);
    sum = em_fma(e, a, b, sum);
    em_end(e, &l);
    em_val rest = em_sub(e, n, whole);
    a = em_load_tail(e, t, em_gep(e, x, t, whole), e->lanes, rest);
    b = em_load_tail(e, t, em_gep(e, y, t, whole), e->lanes, rest);
    sum = em_reduce(e, EM_SUM, em_fma(e, a, b, sum));
    em_store(e, t, em_buf(e, 2), sum);
}

static void dot_on(const sn_target *t) {
    compiled f = compile(t, SN_F32, emit_dot, 0), d = compile(t, SN_F64, emit_dot, 0);
    for (int64_t n = 0; n <= 70; n++) {
        /* exact size on the heap: an address sanitizer build sees what reads past the end */
        float *x = malloc(n * 4 + 4), *y = malloc(n * 4 + 4), r = -1;
        double *u = malloc(n * 8 + 8), *v = malloc(n * 8 + 8), q = -1, expect = 0;
        for (int64_t i = 0; i < n; i++) {
            u[i] = x[i] = (float)(i % 7 - 3);
            v[i] = y[i] = (float)(i % 5 + 1);
            expect += u[i] * v[i];
        }
        x[n] = y[n] = NAN;
        u[n] = v[n] = NAN;
        f.run((void *[]){x, y, &r}, &n, NULL, 0, 1);
        d.run((void *[]){u, v, &q}, &n, NULL, 0, 1);
        assert_true(r == (float)expect);
        assert_true(q == expect);
        free(x), free(y), free(u), free(v);
    }
    sn_jit_destroy(f.jit);
    sn_jit_destroy(d.jit);
}

static void loops_and_tails(void **state) {
    (void)state;
    for_targets(dot_on);
}

/* buf[1][k] = buf[0][k]^2 + buf[1][k - 1] for all copies; branches: an empty one in each. */
static void emit_copies(em *e, int branches) {
    const sn_dtype t = e->compute;
    em_val before = em_f(e, 0);
    em_copies c = em_begin_copies(e);
    for (int k = 0; k < EM_COPIES; k++) {
        em_val x = em_load(e, t, em_gep(e, em_buf(e, 0), t, em_i64(e, k)), 1);
        if (branches) {
            em_branch none = em_if(e, em_cmp(e, EM_GT, x, before));
            em_endif(e, &none);
        }
        before = em_fma(e, x, x, before);
        em_store(e, t, em_gep(e, em_buf(e, 1), t, em_i64(e, k)), before);
        em_end_copy(e, &c);
    }
    em_interleave(e, &c);
}

static void copies_on(const sn_target *t) {
    for (int branches = 0; branches < 2; branches++) {
        compiled f = compile(t, SN_F32, emit_copies, branches);
        float x[EM_COPIES] = {1, 2, 3, 4}, y[EM_COPIES];
        f.run((void *[]){x, y}, NULL, NULL, 0, 1);
        assert_true(y[0] == 1 && y[1] == 5 && y[2] == 14 && y[3] == 30);
        sn_jit_destroy(f.jit);
    }
}

static void copies_alternate(void **state) {
    (void)state;
    for_targets(copies_on);
}

/* buf[1] = buf[0] as another type, first dim[0] elements, `pair` = from * SN_DTYPE_COUNT + to. */
static void emit_convert(em *e, int pair) {
    sn_dtype from = pair / SN_DTYPE_COUNT, to = pair % SN_DTYPE_COUNT;
    em_val n = em_dim(e, 0), x = em_buf(e, 0), y = em_buf(e, 1);
    em_loop l = em_for(e, em_i64(e, 0), n, em_i64(e, e->lanes));
    em_val mask = em_tail_mask(e, em_sub(e, n, l.i), e->lanes);
    em_val v = em_load_mask(e, from, em_gep(e, x, from, l.i), e->lanes, mask, NULL);
    if (!sn_dtype_is_float(from))
        v = em_convert(e, v, from, to);
    else if (!sn_dtype_is_float(to))
        v = em_convert(e, v, e->compute, to);
    em_store_mask(e, to, em_gep(e, y, to, l.i), v, mask);
    em_end(e, &l);
}

static const float values[] = {
    0.0f,          -0.0f,          1,         -1,       0.1f,        1e-8f,      6.1e-5f, 5.9e-8f,
    3e-8f,         2.98023224e-8f, 65504,     65519.9f, 65520,       1e6f,       -3.5f,   2.5f,
    1e-40f,        1e30f,          -1e30f,    3e38f,    127.5f,      -128.9f,    255.9f,  300,
    2147483520.0f, INFINITY,       -INFINITY, NAN,      1.00390625f, 1.01171875f};
enum { N_VALUES = sizeof values / sizeof values[0] };

/* Of a bool the stored byte: it has to be 0 or 1. */
static double load_raw(const void *p, sn_dtype t, int i) {
    return sn_dtype_load(t == SN_BOOL ? SN_U8 : t, p, i);
}

static double saturate(double x, double lo, double hi) {
    return isnan(x) ? 0 : x < lo ? lo : x > hi ? hi : trunc(x) + 0.0; /* no -0 */
}

static double expected(double x, sn_dtype to) {
    switch (to) {
    case SN_F32:
        return (float)x;
    case SN_F64:
        return x;
    case SN_BF16:
        return sn_bf16_to_f32(sn_f32_to_bf16((float)x));
    case SN_F16:
        return sn_f16_to_f32(sn_f32_to_f16((float)x));
    case SN_I32:
        return saturate(x, INT32_MIN, INT32_MAX);
    case SN_I64:
        return saturate(x, -0x1p63, 0x1p63);
    case SN_I8:
        return saturate(x, INT8_MIN, INT8_MAX);
    case SN_U8:
        return saturate(x, 0, 255);
    default:
        return x != 0;
    }
}

static bool same(double a, double b) {
    return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));
}

static void write_as(void *p, sn_dtype t, int i, float x) {
    bool whole = t == SN_I32 || t == SN_I64;
    double v = sn_dtype_is_float(t) || t == SN_BOOL ? x
               : whole                              ? saturate(x, -1e9, 1e9)
               : t == SN_I8                         ? saturate(x, -128, 127)
                                                    : saturate(x, 0, 255);
    sn_dtype_store(t, p, i, v);
}

static void convert_on(const sn_target *t) {
    for (int pair = 0; pair < SN_DTYPE_COUNT * SN_DTYPE_COUNT; pair++) {
        sn_dtype from = pair / SN_DTYPE_COUNT, to = pair % SN_DTYPE_COUNT;
        bool ints = !sn_dtype_is_float(from) && !sn_dtype_is_float(to);
        if (ints && to != SN_BOOL && to != SN_I64) continue; /* narrowing wraps, nothing to hold */
        sn_dtype compute = from == SN_F64 || to == SN_F64 ? SN_F64 : SN_F32;
        compiled c = compile(t, compute, emit_convert, pair);
        for (int64_t n = N_VALUES - 17; n <= N_VALUES; n++) {
            unsigned char x[N_VALUES * 8], y[N_VALUES * 8 + 8];
            memset(y, 0xa5, sizeof y);
            for (int i = 0; i < N_VALUES; i++) write_as(x, from, i, values[i]);
            c.run((void *[]){x, y}, &n, NULL, 0, 1);
            for (int i = 0; i < n; i++) {
                double in = load_raw(x, from, i), out = load_raw(y, to, i), want = expected(in, to);
                if (!same(out, want))
                    fail_msg("%s: %s %g to %s: %g, expected %g", t->name, sn_dtype_name(from), in,
                             sn_dtype_name(to), out, want);
            }
            for (size_t i = (size_t)n * sn_dtype_size(to); i < sizeof y; i++)
                assert_int_equal(y[i], 0xa5); /* nothing is written past the tail */
        }
        sn_jit_destroy(c.jit);
    }
}

static void conversions(void **state) {
    (void)state;
    for_targets(convert_on);
}

/* buf[1] = {max, min, sum} over lanes; a branch; a variable through a loop; the stack. */
static void emit_mixed(em *e, int lanes) {
    em_val x = em_buf(e, 0), y = em_buf(e, 1);
    em_val v = em_load(e, SN_F32, x, lanes);
    em_store(e, SN_F32, y, em_reduce(e, EM_MAX, v));
    em_store(e, SN_F32, em_gep(e, y, SN_F32, em_i64(e, 1)), em_reduce(e, EM_MIN, v));
    em_store(e, SN_F32, em_gep(e, y, SN_F32, em_i64(e, 2)), em_reduce(e, EM_SUM, v));
    em_val stack = em_stack(e, SN_F32, lanes);
    em_store(e, SN_F32, stack, em_mul(e, v, em_f(e, 2)));
    em_var count = em_let(e, em_i64(e, 0));
    em_loop l = em_for(e, em_i64(e, 0), em_i64(e, lanes), em_i64(e, 1));
    em_val s = em_load(e, SN_F32, em_gep(e, stack, SN_F32, l.i), 1);
    em_branch br = em_if(e, em_cmp(e, EM_GT, s, em_f(e, 4)));
    em_set(e, count, em_add(e, em_get(e, count), em_i64(e, 1)));
    em_endif(e, &br);
    em_end(e, &l);
    em_branch even =
        em_if(e, em_cmp(e, EM_EQ, em_and(e, em_get(e, count), em_i64(e, 1)), em_i64(e, 0)));
    em_else(e, &even);
    em_endif(e, &even);
    em_val parity = em_join(e, &even, em_f(e, 0), em_f(e, 1));
    em_store(e, SN_F32, em_gep(e, y, SN_F32, em_i64(e, 3)),
             em_convert(e, em_get(e, count), SN_I64, SN_F32));
    em_store(e, SN_F32, em_gep(e, y, SN_F32, em_i64(e, 4)), parity);
    em_val index = em_sub(e, em_i32(e, lanes - 1), em_iota(e, e->i32, lanes));
    em_val back = em_gather(e, SN_F32, x, index, NULL);
    em_store(e, SN_F32, em_gep(e, y, SN_F32, em_i64(e, 5)), back);
    em_prefetch(e, x, false, 3);
}

static void mixed_on(const sn_target *t) {
    for (int lanes = 1; lanes <= 17; lanes++) {
        compiled c = compile(t, SN_F32, emit_mixed, lanes);
        float x[17], y[5 + 17], count = 0, max = -INFINITY, min = INFINITY, sum = 0;
        for (int i = 0; i < lanes; i++) {
            x[i] = (float)((i * 7 + 3) % 11 - 4);
            max = fmaxf(max, x[i]), min = fminf(min, x[i]), sum += x[i], count += x[i] > 2;
        }
        c.run((void *[]){x, y}, NULL, NULL, 0, 1);
        assert_true(y[0] == max && y[1] == min && y[2] == sum && y[3] == count);
        assert_true(y[4] == (float)((int)count % 2));
        for (int i = 0; i < lanes; i++) assert_true(y[5 + i] == x[lanes - 1 - i]);
        sn_jit_destroy(c.jit);
    }
}

static void control_and_lanes(void **state) {
    (void)state;
    for_targets(mixed_on);
}

static void emit_nan(em *e, int unused) {
    (void)unused;
    em_val a = em_load(e, SN_F32, em_buf(e, 0), 4), b = em_load(e, SN_F32, em_buf(e, 1), 4);
    em_store(e, SN_F32, em_buf(e, 2), em_max_nan(e, a, b));
    em_store(e, SN_F32, em_buf(e, 3), em_min_nan(e, a, b));
    em_store(e, SN_F32, em_buf(e, 4), em_max(e, a, b));
}

static void nan_on(const sn_target *t) {
    compiled c = compile(t, SN_F32, emit_nan, 0);
    float a[4] = {NAN, 1, NAN, 1}, b[4] = {1, NAN, NAN, 2}, hi[4], lo[4], fast[4];
    c.run((void *[]){a, b, hi, lo, fast}, NULL, NULL, 0, 1);
    for (int i = 0; i < 3; i++) assert_true(isnan(hi[i]) && isnan(lo[i]));
    assert_true(hi[3] == 2 && lo[3] == 1 && fast[0] == 1 && isnan(fast[1]) && fast[3] == 2);
    sn_jit_destroy(c.jit);
}

static void nan_rules(void **state) {
    (void)state;
    for_targets(nan_on);
}

/* Every unit goes to one thread, for any number of threads. */
static void emit_share(em *e, int unused) {
    (void)unused;
    em_val lo, hi;
    em_share(e, em_dim(e, 0), &lo, &hi);
    em_loop l = em_for(e, lo, hi, em_i64(e, 1));
    em_val p = em_gep(e, em_buf(e, 0), SN_I32, l.i);
    em_store(e, SN_I32, p, em_add(e, em_load(e, SN_I32, p, 1), em_i32(e, 1)));
    em_end(e, &l);
}

static void shares(void **state) {
    (void)state;
    sn_target t;
    sn_error err = {0};
    assert_true(sn_target_init(&t, NULL, &err));
    compiled c = compile(&t, SN_F32, emit_share, 0);
    for (int64_t n = 0; n < 20; n++)
        for (int64_t threads = 1; threads < 7; threads++) {
            int32_t hits[20] = {0};
            for (int64_t tid = 0; tid < threads; tid++)
                c.run((void *[]){hits}, &n, NULL, tid, threads);
            for (int i = 0; i < 20; i++) assert_int_equal(hits[i], i < n);
        }
    sn_jit_destroy(c.jit);
}

static void targets(void **state) {
    (void)state;
    sn_target t;
    sn_error err = {0};
    assert_true(sn_target_init(&t, "x86-64-v4", &err));
    assert_true(t.vector_bytes == 64 && t.vector_regs == 32 && t.has_fma && t.has_avx512);
    assert_int_equal(sn_target_lanes(&t, SN_F64), 8);
    assert_true(sn_target_init(&t, "x86-64-v4,-avx512vl", &err));
    assert_true(t.vector_bytes == 32 && t.vector_regs == 16 && t.has_avx2);
    assert_true(sn_target_init(&t, "x86-64-v3,-fma,+avxvnni", &err));
    assert_true(!t.has_fma && t.has_vnni && t.vector_bytes == 32);
    /* a feature brings those that it needs, and goes with each of them */
    static const char *const needs[][2] = {{"ssse3", "sse3"},
                                           {"sse4.1", "ssse3"},
                                           {"sse4.2", "sse4.1"},
                                           {"avx", "sse4.2"},
                                           {"f16c", "avx"},
                                           {"fma", "avx"},
                                           {"avx2", "avx"},
                                           {"avxvnni", "avx2"},
                                           {"avx512f", "avx2"},
                                           {"avx512f", "fma"},
                                           {"avx512f", "f16c"},
                                           {"avx512bw", "avx512f"},
                                           {"avx512cd", "avx512f"},
                                           {"avx512dq", "avx512f"},
                                           {"avx512vl", "avx512f"},
                                           {"avx512vbmi", "avx512bw"},
                                           {"avx512vbmi2", "avx512bw"},
                                           {"avx512vnni", "avx512f"},
                                           {"avx512bf16", "avx512bw"},
                                           {"avx512fp16", "avx512vl"},
                                           {"avx512fp16", "avx512dq"}};
    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++)
        for (int less = 0; less < 2; less++) {
            char one[60], both[120];
            sn_target u;
            snprintf(one, sizeof one, "sapphirerapids,-%s", needs[i][1]);
            snprintf(both, sizeof both, "%s,-%s", one, needs[i][0]);
            if (!less) {
                snprintf(one, sizeof one, "x86-64,+%s", needs[i][0]);
                snprintf(both, sizeof both, "x86-64,+%s,+%s", needs[i][1], needs[i][0]);
            }
            assert_true(sn_target_init(&t, one, &err) && sn_target_init(&u, both, &err));
            if (t.feature_set != u.feature_set) fail_msg("%s is not %s", one, both);
        }
    assert_true(sn_target_init(&t, "aarch64,+bf16", &err));
    assert_true(t.vector_bytes == 16 && t.vector_regs == 32 && t.has_fma && t.has_bf16);
    assert_true(sn_target_init(&t, "aarch64,sve=512", &err));
    assert_true(t.vector_bytes == 64 && t.sve_bytes == 64 && sn_target_has(&t, "sve"));
    assert_true(sn_target_init(&t, "neoverse-v1,sve=256,-sve", &err));
    assert_true(t.vector_bytes == 16 && t.sve_bytes == 0);
    assert_false(sn_target_init(&t, "x86-64-v33", &err));
    assert_int_equal(err.code, SN_ERR_TARGET);
    assert_non_null(strstr(err.message, "x86-64-v3,"));
    static const char *const bad[] = {
        "x86-64-v3,avx2",  "x86-64-v3,+avx513", "x86-64-v3,+neon",  "",
        "aarch64,sve=128", "aarch64,sve=2560",  "x86-64-v3,sve=256"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        err = (sn_error){0};
        assert_false(sn_target_init(&t, bad[i], &err));
        assert_int_equal(err.code, SN_ERR_TARGET);
    }
    for (size_t i = 0; sn_target_known(i); i++) { /* every name makes a target machine */
        err = (sn_error){0};
        assert_true(sn_target_init(&t, sn_target_known(i), &err));
        LLVMTargetMachineRef tm = sn_target_machine(&t, i % 2, &err);
        assert_non_null(tm);
        LLVMDisposeTargetMachine(tm);
    }
}

/* A mistake in a kernel is an error of em_finish, not a crash. */
static void emission_errors(void **state) {
    (void)state;
    sn_target t;
    sn_error err = {0};
    em e;
    assert_true(sn_target_init(&t, NULL, &err));
    assert_true(em_init(&e, &t, "bad", SN_F32, &err));
    em_kernel(&e, "k");
    em_add(&e, em_f(&e, 1), em_i32(&e, 1));
    em_end_kernel(&e);
    assert_null(em_finish(&e, &err));
    assert_non_null(strstr(err.message, "em_add"));
    em_free(&e);
    err = (sn_error){0};
    assert_false(em_init(&e, &t, "bad", SN_I32, &err));
    em_free(&e);
}

static bool is_optnone(const em *e, const char *name) {
    LLVMValueRef fn = LLVMGetNamedFunction(e->mod, name);
    unsigned kind = LLVMGetEnumAttributeKindForName("optnone", 7);
    assert_non_null(fn);
    return LLVMGetEnumAttributeAtIndex(fn, LLVMAttributeFunctionIndex, kind) != NULL;
}

/* Outer loops may be optimised until they are settled; other functions also afterwards. */
static void outer_loops(void **state) {
    (void)state;
    sn_target t;
    sn_error err = {0};
    em e;
    assert_true(sn_target_init(&t, NULL, &err));
    assert_true(em_init(&e, &t, "outer", SN_F32, &err));
    em_kernel(&e, "outer");
    em_outer(&e);
    em_end_kernel(&e);
    em_kernel(&e, "inner");
    em_end_kernel(&e);
    assert_non_null(em_finish(&e, &err));
    assert_false(is_optnone(&e, "outer"));
    em_settle_outer(e.mod);
    assert_true(is_optnone(&e, "outer"));
    assert_false(is_optnone(&e, "inner"));
    assert_false(LLVMVerifyModule(e.mod, LLVMReturnStatusAction, NULL));
    em_free(&e);
}

#define FILL_PARAMS(P) P(ptr, to) P(i64, n) P(i64, value)
EM_SIGNATURE(fill, FILL_PARAMS)
#define WIPE_PARAMS(P) P(ptr, to) P(i64, n) P(i64, pattern)
EM_SIGNATURE(wipe, WIPE_PARAMS)

static void emit_fill(em *e, int mistake) {
    em_val n = em_i64(e, 5), value = em_i64(e, 7), to = em_buf(e, 0);
    LLVMBasicBlockRef here = LLVMGetInsertBlock(e->b);
    em_val kernel = e->fn;
    em_val fill = fill_function(e, "fill");
    fill_args p = fill_params(e);
    em_loop l = em_for(e, em_i64(e, 0), p.n, em_i64(e, 1));
    em_store(e, SN_I64, em_gep(e, p.to, SN_I64, l.i), p.value);
    em_end(e, &l);
    em_ret(e, NULL);
    e->fn = kernel;
    LLVMPositionBuilderAtEnd(e->b, here);
    switch (mistake) {
    case 0:
        fill_call(e, fill, (fill_args){.value = value, .to = to, .n = n});
        break;
    case 1:
        fill_call(e, fill, (fill_args){.to = to, .n = n});
        break;
    case 2:
        fill_call(e, fill, (fill_args){.to = n, .n = n, .value = value});
        break;
    case 3:
        wipe_call(e, fill, (wipe_args){.to = to, .n = n, .pattern = value});
        break;
    }
}

/* Arguments go by name; what is missing or wrong is named in the error. */
static void named_parameters(void **state) {
    (void)state;
    static const char *const message[] = {NULL, "'value' is missing", "'to' has the wrong type",
                                          "signature of another"};
    sn_target t;
    sn_error err = {0};
    assert_true(sn_target_init(&t, NULL, &err));
    compiled c = compile(&t, SN_F32, emit_fill, 0);
    int64_t out[6] = {0};
    void *buf[] = {out};
    c.run(buf, NULL, NULL, 0, 1);
    for (int i = 0; i < 6; i++) assert_int_equal(out[i], i < 5 ? 7 : 0);
    sn_jit_destroy(c.jit);
    for (int mistake = 1; mistake < 4; mistake++) {
        em e;
        err = (sn_error){0};
        assert_true(em_init(&e, &t, "bad", SN_F32, &err));
        em_kernel(&e, "k");
        emit_fill(&e, mistake);
        em_end_kernel(&e);
        assert_null(em_finish(&e, &err));
        assert_non_null(strstr(err.message, message[mistake]));
        em_free(&e);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(targets),
                                       cmocka_unit_test(loops_and_tails),
                                       cmocka_unit_test(copies_alternate),
                                       cmocka_unit_test(conversions),
                                       cmocka_unit_test(control_and_lanes),
                                       cmocka_unit_test(nan_rules),
                                       cmocka_unit_test(shares),
                                       cmocka_unit_test(emission_errors),
                                       cmocka_unit_test(named_parameters),
                                       cmocka_unit_test(outer_loops)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
