/* bench_gemm.c: interleaved rounds of the FMA peak, Sinter's GEMM and oneDNN with packed weights.
 * Ratios are taken within a round, because the speed of a shared machine drifts. */
#include "bench/bench_gemm.h"
#include "bench/measure.h"
#include "bench/probe.h"
#include "codegen/gemm/gemm.h"
#include "codegen/jit/jit.h"
#include "codegen/backend.h"
#include "codegen/emit/vmath.h"
#include "runtime/clock.h"
#include "runtime/memory.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

static const sn_bench_gemm_shape usual[] = {
    {1024, 3072, 768}, {1024, 768, 3072}, {1024, 768, 768},   {128, 768, 768},
    {64, 768, 768},    {64, 50257, 768},  {1024, 50257, 768}, {4096, 4096, 4096},
    {1, 768, 3072},    {1, 3072, 768},    {4, 3072, 768},     {16, 3072, 768},
};

enum {
    MAX_ROUNDS = 101,
    SKINNY = 16,           /* up to this many rows, weights are streamed from memory */
    SAMPLES = 2000,        /* elements compared with sums in double */
    ROTATE_BYTES = 1 << 30 /* total size of the copies of the weights, for skinny products */
};

int sn_bench_gemm_count(void) {
    return (int)(sizeof usual / sizeof *usual);
}

/* Everything that one shape needs. There are `copies` consecutive copies of the weights. */
typedef struct bench {
    const sn_bench_gemm_options *o;
    sn_bench_gemm_shape s;
    int threads, rounds, copies, repeats;
    size_t panel_bytes, packed_bytes; /* size of one copy, Sinter's and oneDNN's; multiples of 64 */
    float *a, *b, *c, *c_dnnl, *bias;
    char *panels, *packed, *scratch;
    size_t scratch_stride;
    sn_target target;
    sn_jit *jit;
    sn_kernel_fn *run, *pack;
    const sn_backend *library; /* NULL: none */
    void *dnnl;                /* its state */
    sn_matmul product;
} bench;

static void *allocate(size_t bytes, sn_error *err) {
    void *p = sn_memory_alloc(bytes);
    if (p)
        memset(p, 0, bytes);
    else
        sn_fail(err, SN_ERR_MEMORY, "out of memory: the bench needs %zu MB more", bytes >> 20);
    return p;
}

static void fill(float *p, int64_t n) {
    uint32_t x = 1;
    for (int64_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        p[i] = (float)(x >> 8) / (1 << 23) - 1;
    }
}

/* --- the kernel ------------------------------------------------------------------------------- */

/* x + bias, then the tanh form of gelu. */
static em_val bias_gelu(void *ctx, em *e, const em_val *acc, const sn_gemm_at *at) {
    (void)ctx;
    em_val bias = em_gep(e, em_buf(e, 3), SN_F32, at->col);
    em_val x = em_add(e, acc[0], em_load_mask(e, SN_F32, bias, at->lanes, at->mask, NULL));
    em_val inner = em_fma(e, em_mul(e, x, x), em_like(e, x, 0.044715 * 0.7978845608028654),
                          em_like(e, x, 0.7978845608028654));
    em_val half = em_mul(e, x, em_like(e, x, 0.5));
    return em_fma(e, half, sn_vmath_emit(e, SN_V_TANH, em_mul(e, x, inner)), half);
}

static void row_scale(void *ctx, em *e, const sn_gemm_at *at, em_val *state) {
    const bench *b = ctx;
    em_val row = em_gep(e, em_buf(e, 0), SN_F32, em_mul(e, at->row, b->s.k));
    em_loop l = em_for(e, 0, b->s.k / e->lanes * e->lanes, e->lanes);
    em_val sum = em_vf(e, 0);
    em_carries(e, &l, &sum, 1);
    em_val x = em_load(e, SN_F32, em_gep(e, row, SN_F32, l.i), e->lanes);
    sum = em_fma(e, x, x, sum);
    em_end(e, &l);
    em_val mean = em_div(e, em_reduce(e, EM_SUM, sum), em_f(e, (double)b->s.k));
    state[0] = em_div(e, em_f(e, 1), em_sqrt(e, em_add(e, mean, em_f(e, 1e-5))));
}

static em_val scaled(void *ctx, em *e, em_val x, const sn_gemm_at *at, const em_val *state) {
    (void)ctx, (void)at;
    return em_mul(e, x, em_splat(e, state[0], at->lanes));
}

static bool look_up(sn_jit *jit, const char *name, sn_kernel_fn **f, sn_error *err) {
    void *p = sn_jit_lookup(jit, name, err);
    memcpy(f, &p, sizeof p);
    return p != NULL;
}

/* M is a run-time size, as in a model; N and K are constants. */
static bool compile(bench *b, double *ms, sn_error *err) {
    sn_gemm g = {.m = EM_SIZE_DIM(0),
                 .n = EM_SIZE_CONST(b->s.n),
                 .k = EM_SIZE_CONST(b->s.k),
                 .a = {.buf = 0, .row = EM_SIZE_CONST(b->s.k)},
                 .b = {.buf = 1},
                 .c = {.buf = 2, .row = EM_SIZE_CONST(b->s.n)},
                 .b_packed = true,
                 .ctx = b};
    g.a.col = g.c.col = EM_SIZE_CONST(1);
    g.a.offset = g.b.offset = g.c.offset = EM_SIZE_CONST(0);
    if (b->o->bias_gelu) g.epilogue = bias_gelu;
    if (b->o->row_norm) {
        g.row_prologue = row_scale;
        g.prologue = scaled;
        g.n_state = 1;
    }
    sn_gemm_pack pack = {.dtype = SN_F32,
                         .k = EM_SIZE_CONST(b->s.k),
                         .n = EM_SIZE_CONST(b->s.n),
                         .row = EM_SIZE_CONST(b->s.n),
                         .col = EM_SIZE_CONST(1)};
    em e;
    if (!em_init(&e, &b->target, "bench_gemm", SN_F32, err)) return false;
    double start = sn_clock();
    sn_gemm_emit(&e, "gemm", &g);
    LLVMModuleRef mod = em_finish(&e, err);
    bool ok =
        mod && sn_jit_compile(b->jit, mod, NULL, err) && look_up(b->jit, "gemm", &b->run, err);
    *ms = (sn_clock() - start) * 1e3;
    em_free(&e);
    if (!ok || !em_init(&e, &b->target, "bench_pack", SN_F32, err)) return false;
    sn_gemm_emit_pack(&e, "pack", &pack);
    mod = em_finish(&e, err);
    ok = mod && sn_jit_compile(b->jit, mod, NULL, err) && look_up(b->jit, "pack", &b->pack, err);
    em_free(&e);
    b->scratch_stride = ((size_t)sn_gemm_scratch(&g, &b->target, SN_F32) + 4095) / 4096 * 4096 + 64;
    return ok;
}

static void run_kernel(const bench *b, sn_kernel_fn *f, void *const *buf, const int64_t *dim) {
#pragma omp parallel num_threads(b->threads)
    {
        int t = omp_get_thread_num();
        f(buf, dim, b->scratch + b->scratch_stride * (size_t)t, t, omp_get_num_threads());
    }
}

/* --- one shape -------------------------------------------------------------------------------- */

static void release(bench *b) {
    void *const all[] = {b->a, b->b, b->c, b->c_dnnl, b->bias, b->panels, b->packed, b->scratch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    sn_jit_destroy(b->jit);
    if (b->dnnl) b->library->close(b->dnnl);
}

static bool set_up(bench *b, double *compile_ms, sn_error *err) {
    sn_bench_gemm_shape s = b->s;
    if (s.m < 1 || s.n < 1 || s.k < 1)
        return sn_fail(err, SN_ERR_USAGE,
                       "bench gemm: sizes must be at least 1, not %lld,%lld,%lld", (long long)s.m,
                       (long long)s.n, (long long)s.k);
    b->jit = sn_jit_create(&b->target, NULL, err);
    if (!b->jit || !compile(b, compile_ms, err)) return false;
    b->panel_bytes = (size_t)sn_gemm_packed_size(SN_F32, s.k, s.n) * sizeof(float);
    b->copies = s.m <= SKINNY ? (int)(ROTATE_BYTES / b->panel_bytes) + 1 : 1;
    b->a = allocate((size_t)(s.m * s.k) * sizeof(float), err);
    b->b = allocate((size_t)(s.n * s.k) * sizeof(float), err);
    b->c = allocate((size_t)(s.m * s.n) * sizeof(float), err);
    b->c_dnnl = allocate((size_t)(s.m * s.n) * sizeof(float), err);
    b->bias = allocate((size_t)s.n * sizeof(float), err);
    b->panels = allocate(b->panel_bytes * (size_t)b->copies, err);
    b->scratch = allocate(b->scratch_stride * (size_t)b->threads, err);
    if (!b->a || !b->b || !b->c || !b->c_dnnl || !b->bias || !b->panels || !b->scratch)
        return false;
    fill(b->a, s.m * s.k);
    fill(b->b, s.n * s.k);
    for (int i = 0; i < b->copies; i++)
        run_kernel(b, b->pack, (void *[]){b->b, b->panels + b->panel_bytes * (size_t)i}, NULL);

    b->product = (sn_matmul){.m = s.m,
                             .n = s.n,
                             .k = s.k,
                             .a_row = s.k,
                             .a_col = 1,
                             .b_row = s.n,
                             .b_col = 1,
                             .c_row = s.n,
                             .c_col = 1,
                             .packed = 1};
    b->library = sn_backend_library();
    if (b->library && b->library->gemm) b->dnnl = b->library->open(NULL);
    if (!b->dnnl) return true;
    omp_set_num_threads(b->threads);
    int64_t bytes = b->library->gemm->packed_bytes(b->dnnl, &b->product, err);
    if (bytes < 0) return false;
    b->packed_bytes = ((size_t)bytes + 63) / 64 * 64;
    b->packed = allocate(b->packed_bytes * (size_t)b->copies, err);
    if (!b->packed) return false;
    for (int i = 0; i < b->copies; i++)
        if (!b->library->gemm->pack(b->dnnl, &b->product, b->b,
                                    b->packed + b->packed_bytes * (size_t)i, err))
            return false;
    return true;
}

/* Seconds per product, the mean over repeats; the copies of the weights are used in turn. */
static double time_native(const bench *b) {
    void *buf[] = {b->a, b->panels, b->c, b->bias};
    run_kernel(b, b->run, buf, &b->s.m);
    double start = sn_clock();
    for (int i = 0; i < b->repeats; i++) {
        buf[1] = b->panels + b->panel_bytes * (size_t)((i + 1) % b->copies);
        run_kernel(b, b->run, buf, &b->s.m);
    }
    return (sn_clock() - start) / b->repeats;
}

static bool time_dnnl(const bench *b, double *seconds, sn_error *err) {
    bool ok = b->library->gemm->run(b->dnnl, &b->product, b->a, b->packed, NULL, b->c_dnnl, err);
    double start = sn_clock();
    for (int i = 0; i < b->repeats && ok; i++) {
        const char *w = b->packed + b->packed_bytes * (size_t)((i + 1) % b->copies);
        ok = b->library->gemm->run(b->dnnl, &b->product, b->a, w, NULL, b->c_dnnl, err);
    }
    *seconds = (sn_clock() - start) / b->repeats;
    return ok;
}

static int compare(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static double median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, compare);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* Maximum |C - exact| / sum of |a b| over sampled elements; fused forms are not checked here. */
static double measure_error(const bench *b) {
    sn_bench_gemm_shape s = b->s;
    double worst = 0;
    uint64_t x = 12345;
    for (int i = 0; i < SAMPLES; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        int64_t row = (int64_t)((x >> 33) % (uint64_t)s.m),
                col = (int64_t)((x >> 13) % (uint64_t)s.n);
        double sum = 0, size = 1e-30;
        for (int64_t k = 0; k < s.k; k++) {
            double p = (double)b->a[row * s.k + k] * (double)b->b[k * s.n + col];
            sum += p;
            size += fabs(p);
        }
        worst = sn_bench_worse(worst, fabs((double)b->c[row * s.n + col] - sum) / size);
    }
    return worst;
}

static bool measure(bench *b, sn_bench_gemm_result *r, sn_error *err) {
    double native[MAX_ROUNDS], dnnl[MAX_ROUNDS], ratio[MAX_ROUNDS], peak[MAX_ROUNDS],
        read[MAX_ROUNDS];
    double flop = 2.0 * (double)b->s.m * (double)b->s.n * (double)b->s.k;
    b->repeats = b->copies > 1 ? b->copies : 1;
    double once = time_native(b);
    if (b->copies == 1) b->repeats = once > 0.01 ? 1 : (int)(0.01 / once) + 1;
    for (int i = 0; i < b->rounds; i++) {
        peak[i] = sn_probe_fma_peak(b->threads, 0.02);
        read[i] = b->copies > 1
                      ? sn_probe_read(b->threads, b->panels, b->panel_bytes * (size_t)b->copies)
                      : 0;
        native[i] = time_native(b);
        dnnl[i] = 0;
        if (b->dnnl && !time_dnnl(b, &dnnl[i], err)) return false;
        ratio[i] = dnnl[i] / native[i];
    }
    int n = b->rounds;
    double t = median(native, n);
    r->ms = t * 1e3;
    r->ms_min = native[0] * 1e3;
    r->ms_max = native[n - 1] * 1e3;
    r->gflops = flop / t * 1e-9;
    r->dnnl_gflops = b->dnnl ? flop / median(dnnl, n) * 1e-9 : 0;
    r->best = flop / native[0] * 1e-9;
    r->dnnl_best = b->dnnl ? flop / dnnl[0] * 1e-9 : 0;
    r->ratio = median(ratio, n);
    r->peak = median(peak, n);
    r->peak_best = peak[n - 1];
    r->read_gbs = median(read, n);
    r->gbs = (double)b->panel_bytes / t * 1e-9;
    r->max_error = b->o->bias_gelu || b->o->row_norm ? 0 : measure_error(b);
    return true;
}

bool sn_bench_gemm(const sn_bench_gemm_options *o, sn_bench_gemm_result *results, sn_error *err) {
    sn_target target;
    if (!sn_target_init(&target, o->target, err)) return false;
    if (!sn_target_runs_here(&target))
        return sn_fail(err, SN_ERR_TARGET, "this machine cannot run code for %s", target.name);
    int n = o->shape ? o->n_shape : sn_bench_gemm_count(), before = omp_get_max_threads();
    int rounds = o->rounds > 0 ? o->rounds : 15;
    bool ok = true;
    for (int i = 0; i < n && ok; i++) {
        bench b = {.o = o,
                   .s = o->shape ? o->shape[i] : usual[i],
                   .threads = o->threads > 0 ? o->threads : before,
                   .rounds = rounds < MAX_ROUNDS ? rounds : MAX_ROUNDS,
                   .target = target};
        results[i] = (sn_bench_gemm_result){.shape = b.s};
        ok = set_up(&b, &results[i].compile_ms, err) && measure(&b, &results[i], err);
        if (ok && o->progress) {
            fprintf(o->progress, "gemm %d/%d\r", i + 1, n);
            fflush(o->progress);
        }
        release(&b);
        omp_set_num_threads(before);
    }
    return ok;
}
