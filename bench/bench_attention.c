/* bench_attention.c: interleaved rounds of the FMA peak and of attention with every requested mask.
 * Shares and ratios are taken within a round, because the speed of a shared machine drifts. */
#include "bench/bench_attention.h"
#include "bench/measure.h"
#include "bench/probe.h"
#include "codegen/attention/attention.h"
#include "codegen/jit/jit.h"
#include "runtime/clock.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

static const sn_bench_attention_shape usual[] = {
    {1, 12, 12, 1024, 1024, 64, false},  {1, 12, 12, 1024, 1024, 64, true},
    {1, 32, 32, 2048, 2048, 128, false}, {8, 12, 12, 128, 128, 64, false},
    {8, 12, 12, 128, 128, 64, true},
};

enum { MAX_ROUNDS = 51, MAX_MASKS = 16, SAMPLES = 40, SLOPE = 0, DOC = 1, BIAS = 2 };

/* --- masks and scores ------------------------------------------------------------------------- */

typedef sn_node *build_fn(sn_module *m, sn_node *const *arg); /* b, h, q, k, captured ... */

typedef struct variant {
    const char *name;
    build_fn *mask, *score; /* score's arg[-1]: the score */
    bool (*sees)(int q, int k);
    double (*adds)(int h, int q, int k); /* NULL: the score is unchanged */
} variant;

enum { HEAD = 1, Q, K, CAPTURED };
enum { WINDOW = 256, PREFIX = 128, DOCUMENT = 300 };

static sn_node *causal(sn_module *m, sn_node *const *a) {
    (void)m;
    return sn_b_binary(SN_OP_le, a[K], a[Q]);
}

static bool sees_causal(int q, int k) {
    return k <= q;
}

static sn_node *window(sn_module *m, sn_node *const *a) {
    sn_node *low = sn_b_scalar(SN_OP_sub, a[Q], WINDOW);
    return sn_b_binary(SN_OP_and, causal(m, a), sn_b_binary(SN_OP_lt, low, a[K]));
}

static bool sees_window(int q, int k) {
    return k <= q && q - WINDOW < k;
}

static sn_node *prefix(sn_module *m, sn_node *const *a) {
    return sn_b_binary(SN_OP_or, causal(m, a), sn_b_scalar(SN_OP_lt, a[K], PREFIX));
}

static bool sees_prefix(int q, int k) {
    return k <= q || k < PREFIX;
}

static sn_node *documents(sn_module *m, sn_node *const *a) {
    sn_node *doc = a[CAPTURED + DOC];
    sn_node *x = SN_NODE(m, gather_nd, SN_NO_ATTRS, doc, a[Q]),
            *y = SN_NODE(m, gather_nd, SN_NO_ATTRS, doc, a[K]);
    return sn_b_binary(SN_OP_and, causal(m, a), sn_b_binary(SN_OP_eq, x, y));
}

static bool sees_documents(int q, int k) {
    return k <= q && q / DOCUMENT == k / DOCUMENT;
}

static sn_node *strided(sn_module *m, sn_node *const *a) {
    sn_node *r = sn_b_scalar(SN_OP_mod, sn_b_binary(SN_OP_sub, a[Q], a[K]), 4);
    return sn_b_binary(SN_OP_and, causal(m, a), sn_b_scalar(SN_OP_eq, r, 0));
}

static bool sees_strided(int q, int k) {
    return k <= q && (q - k) % 4 == 0;
}

/* Always true, but interval analysis cannot prove it: the cost of evaluating a mask. */
static sn_node *opaque(sn_module *m, sn_node *const *a) {
    (void)m;
    sn_node *x = sn_b_scalar(SN_OP_xor, a[K], 5), *y = sn_b_scalar(SN_OP_xor, a[Q], 3);
    return sn_b_scalar(SN_OP_lt, sn_b_scalar(SN_OP_mul, sn_b_binary(SN_OP_sub, x, y), 0), 1);
}

static sn_node *alibi(sn_module *m, sn_node *const *a) {
    (void)m;
    sn_node *far = sn_b_cast(sn_b_binary(SN_OP_sub, a[K], a[Q]), SN_F32);
    return sn_b_binary(SN_OP_add, a[-1], sn_b_binary(SN_OP_mul, far, a[CAPTURED + SLOPE]));
}

static double adds_alibi(int h, int q, int k) {
    (void)h;
    return (k - q) * 0.01;
}

static sn_node *bias(sn_module *m, sn_node *const *a) {
    sn_node *x = SN_NODE(m, gather_nd, SN_NO_ATTRS, a[CAPTURED + BIAS], a[HEAD], a[Q], a[K]);
    return sn_b_binary(SN_OP_add, a[-1], x);
}

static double bias_value(int h, int q, int k) {
    return ((h * 31 + q * 7 + k * 13) % 64) / 64.0;
}

static const variant variants[] = {
    {"full", NULL, NULL, NULL, NULL},
    {"causal", causal, NULL, sees_causal, NULL},
    {"window", window, NULL, sees_window, NULL},
    {"prefix", prefix, NULL, sees_prefix, NULL},
    {"documents", documents, NULL, sees_documents, NULL},
    {"strided", strided, NULL, sees_strided, NULL},
    {"opaque", opaque, NULL, NULL, NULL},
    {"alibi", NULL, alibi, NULL, adds_alibi},
    {"bias", NULL, bias, NULL, bias_value},
};

/* --- one shape -------------------------------------------------------------------------------- */

typedef struct bench {
    const sn_bench_attention_options *o;
    sn_bench_attention_shape s;
    int threads, rounds, repeats;
    sn_target target;
    sn_jit *jit;
    sn_module *m;
    sn_attention spec[MAX_MASKS];
    sn_attention_captured captured[3];
    const variant *variant[MAX_MASKS];
    sn_kernel_fn *run[MAX_MASKS];
    int n;
    int64_t stride[4][3], at[3];
    float *qkv, *out, *bias, slope;
    int32_t *doc;
    char *scratch;
    size_t scratch_stride;
    double pairs[MAX_MASKS], compile_ms[MAX_MASKS];
} bench;

static void *allocate(size_t bytes, sn_error *err) {
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    if (p)
        memset(p, 0, bytes);
    else
        sn_fail(err, SN_ERR_MEMORY, "out of memory: the bench needs %zu MB more", bytes >> 20);
    return p;
}

static bool choose_variants(bench *b, sn_error *err) {
    const char *list = b->o->masks ? b->o->masks : "full,causal";
    while (*list) {
        size_t len = strcspn(list, ",");
        const variant *found = NULL;
        for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
            if (strlen(variants[i].name) == len && !strncmp(variants[i].name, list, len))
                found = &variants[i];
        if (!found || b->n == MAX_MASKS)
            return sn_fail(err, SN_ERR_USAGE, "bench attention: no mask '%.*s'", (int)len, list);
        b->variant[b->n++] = found;
        list += len + (list[len] == ',');
    }
    return true;
}

static const sn_region *make_region(bench *b, build_fn *build, bool score) {
    if (!build) return NULL;
    sn_module *m = b->m;
    sn_dim t[] = {b->s.h, b->s.tq, b->s.tk}, line = b->s.tk > b->s.tq ? b->s.tk : b->s.tq;
    sn_node *arg[8];
    int n = 0;
    if (score) arg[n] = sn_arg(m, n, SN_F32, 0, NULL), n++;
    for (int i = 0; i < 4; i++, n++) arg[n] = sn_arg(m, n, SN_I32, 0, NULL);
    arg[n] = sn_arg(m, n, SN_F32, 0, NULL), n++;
    arg[n] = sn_arg(m, n, SN_I32, 1, &line), n++;
    arg[n] = sn_arg(m, n, SN_F32, 3, t), n++;
    sn_node *out = build(m, arg + score);
    return sn_region_new(m, n, arg, 1, &out);
}

static void set_strides(bench *b) {
    const sn_bench_attention_shape *s = &b->s;
    int64_t d = s->d, h = s->h, hk = s->hk, row = (h + 2 * hk) * d;
    int64_t packed[4][3] = {{s->tq * row, d, row},
                            {s->tk * row, d, row},
                            {s->tk * row, d, row},
                            {s->tq * h * d, d, h * d}};
    int64_t separate[4][3] = {{h * s->tq * d, s->tq * d, d},
                              {hk * s->tk * d, s->tk * d, d},
                              {hk * s->tk * d, s->tk * d, d},
                              {h * s->tq * d, s->tq * d, d}};
    memcpy(b->stride, s->packed ? packed : separate, sizeof packed);
    b->at[1] = s->packed ? h * d : s->b * h * s->tq * d;
    b->at[2] = b->at[1] + (s->packed ? hk * d : s->b * hk * s->tk * d);
}

static sn_attention_operand operand(int buf, int64_t offset, const int64_t *stride) {
    return (sn_attention_operand){.buf = buf,
                                  .dtype = SN_F32,
                                  .offset = EM_SIZE_CONST(offset),
                                  .batch = EM_SIZE_CONST(stride[0]),
                                  .head = EM_SIZE_CONST(stride[1]),
                                  .row = EM_SIZE_CONST(stride[2])};
}

static bool compile(bench *b, int i, sn_error *err) {
    const sn_bench_attention_shape *s = &b->s;
    char name[32];
    snprintf(name, sizeof name, "attention_%d", i);
    b->spec[i] = (sn_attention){.d = s->d,
                                .dv = s->d,
                                .heads = s->h,
                                .gqa_ratio = s->h / s->hk,
                                .batch = EM_SIZE_CONST(s->b),
                                .tq = EM_SIZE_DIM(0),
                                .tk = EM_SIZE_DIM(1),
                                .scale = 1 / sqrt(s->d),
                                .q = operand(0, b->at[0], b->stride[0]),
                                .k = operand(0, b->at[1], b->stride[1]),
                                .v = operand(0, b->at[2], b->stride[2]),
                                .out = operand(1, 0, b->stride[3]),
                                .lse_buf = -1,
                                .mask = make_region(b, b->variant[i]->mask, false),
                                .score = make_region(b, b->variant[i]->score, true),
                                .n_captured = 3,
                                .captured = b->captured};
    if (sn_module_error(b->m)->code)
        return sn_fail(err, SN_ERR_INTERNAL, "%s", sn_module_error(b->m)->message);
    em e;
    double start = sn_clock();
    if (!em_init(&e, &b->target, name, SN_F32, err)) return false;
    sn_attention_emit(&e, name, &b->spec[i]);
    LLVMModuleRef mod = em_finish(&e, err);
    void *f = NULL;
    if (mod && sn_jit_compile(b->jit, mod, NULL, err)) f = sn_jit_lookup(b->jit, name, err);
    memcpy(&b->run[i], &f, sizeof f);
    b->compile_ms[i] = (sn_clock() - start) * 1e3;
    em_free(&e);
    size_t scratch = (size_t)sn_attention_scratch(&b->spec[i], &b->target, SN_F32, s->tq, s->tk);
    scratch = (scratch + 4095) / 4096 * 4096 + 64;
    if (scratch > b->scratch_stride) b->scratch_stride = scratch;
    return f != NULL;
}

static bool set_up(bench *b, sn_error *err) {
    const sn_bench_attention_shape *s = &b->s;
    if (s->b < 1 || s->h < 1 || s->hk < 1 || s->h % s->hk || s->tq < 1 || s->tk < 1 || s->d < 1)
        return sn_fail(err, SN_ERR_USAGE,
                       "bench attention: sizes must be at least 1, and heads a "
                       "multiple of K/V heads");
    if (s->packed && s->tq != s->tk)
        return sn_fail(err, SN_ERR_USAGE, "bench attention: a packed product has Tq = Tk");
    b->m = sn_module_new("bench");
    sn_jit_options options = {.perf_map = sn_debug_get()->perf};
    b->jit = b->m ? sn_jit_create(&b->target, &options, err) : NULL;
    if (!b->jit || !choose_variants(b, err)) return false;
    set_strides(b);
    int64_t t = s->tq > s->tk ? s->tq : s->tk, square = (int64_t)s->tq * s->tk;
    em_size one = EM_SIZE_CONST(1), zero = EM_SIZE_CONST(0);
    b->captured[SLOPE] = (sn_attention_captured){.buf = 2, .dtype = SN_F32, .offset = zero};
    b->captured[DOC] = (sn_attention_captured){.buf = 3,
                                               .dtype = SN_I32,
                                               .offset = zero,
                                               .rank = 1,
                                               .shape = {EM_SIZE_CONST(t)},
                                               .stride = {one}};
    b->captured[BIAS] = (sn_attention_captured){
        .buf = 4,
        .dtype = SN_F32,
        .offset = zero,
        .rank = 3,
        .shape = {EM_SIZE_CONST(s->h), EM_SIZE_CONST(s->tq), EM_SIZE_CONST(s->tk)},
        .stride = {EM_SIZE_CONST(square), EM_SIZE_CONST(s->tk), one}};
    bool with_bias = false;
    for (int i = 0; i < b->n; i++) {
        if (!compile(b, i, err)) return false;
        with_bias |= b->variant[i]->score == bias;
        bool (*sees)(int, int) = b->variant[i]->sees;
        for (int q = 0; q < s->tq; q++)
            for (int k = 0; k < s->tk; k++) b->pairs[i] += !sees || sees(q, k);
    }
    size_t n = (size_t)s->b * (size_t)(s->h * s->tq + 2 * s->hk * s->tk) * (size_t)s->d;
    b->qkv = allocate(n * 4, err);
    b->out = allocate((size_t)(s->b * s->h * s->tq) * (size_t)s->d * 4, err);
    b->doc = allocate((size_t)t * 4, err);
    b->bias = allocate(with_bias ? (size_t)s->h * (size_t)square * 4 : 64, err);
    b->scratch = allocate(b->scratch_stride * (size_t)b->threads, err);
    if (!b->qkv || !b->out || !b->doc || !b->bias || !b->scratch) return false;
    uint32_t x = 1;
    for (size_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        b->qkv[i] = (float)(x >> 8) / (1 << 23) - 1;
    }
    for (int i = 0; i < t; i++) b->doc[i] = i / DOCUMENT;
    for (int64_t i = 0; with_bias && i < s->h * square; i++)
        b->bias[i] =
            (float)bias_value((int)(i / square), (int)(i / s->tk % s->tq), (int)(i % s->tk));
    b->slope = 0.01f;
    return true;
}

static void release(bench *b) {
    void *const all[] = {b->qkv, b->out, b->doc, b->bias, b->scratch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    sn_jit_destroy(b->jit);
    if (b->m) sn_module_free(b->m);
}

static double time_kernel(const bench *b, int i) {
    void *buf[] = {b->qkv, b->out, (void *)&b->slope, b->doc, b->bias};
    int64_t dim[] = {b->s.tq, b->s.tk};
    double start = sn_clock();
    for (int r = 0; r < b->repeats; r++)
#pragma omp parallel num_threads(b->threads)
    {
        int t = omp_get_thread_num();
        b->run[i](buf, dim, b->scratch + b->scratch_stride * (size_t)t, t, omp_get_num_threads());
    }
    return (sn_clock() - start) / b->repeats;
}

/* Maximum error of sampled rows against sums in double. */
static double measure_error(const bench *b, int which) {
    const sn_bench_attention_shape *s = &b->s;
    const variant *v = b->variant[which];
    double *x = calloc((size_t)s->tk, sizeof *x), worst = 0;
    for (int n = 0; n < SAMPLES && x; n++) {
        int bi = n % s->b, h = n * 7 % s->h, q = (int)((int64_t)n * 7919 % s->tq),
            hk = h / (s->h / s->hk);
        const float *qr =
            b->qkv + b->at[0] + bi * b->stride[0][0] + h * b->stride[0][1] + q * b->stride[0][2];
        const float *kr = b->qkv + b->at[1] + bi * b->stride[1][0] + hk * b->stride[1][1];
        const float *vr = b->qkv + b->at[2] + bi * b->stride[2][0] + hk * b->stride[2][1];
        const float *o = b->out + bi * b->stride[3][0] + h * b->stride[3][1] + q * b->stride[3][2];
        double top = -INFINITY, sum = 0;
        for (int k = 0; k < s->tk; k++) {
            x[k] = 0;
            for (int i = 0; i < s->d; i++)
                x[k] += (double)qr[i] * (double)kr[k * b->stride[1][2] + i];
            x[k] /= sqrt(s->d);
            if (v->adds) x[k] += v->adds(h, q, k);
            if (v->sees && !v->sees(q, k)) x[k] = -INFINITY;
            top = fmax(top, x[k]);
        }
        for (int k = 0; k < s->tk; k++) sum += x[k] = exp(x[k] - top);
        for (int i = 0; i < s->d; i++) {
            double y = 0;
            for (int k = 0; k < s->tk; k++) y += x[k] * (double)vr[k * b->stride[2][2] + i];
            worst = sn_bench_worse(worst, fabs(y / sum - (double)o[i]));
        }
    }
    free(x);
    return worst;
}

static int compare(const void *a, const void *b) {
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double median(const double *x, int n) {
    double sorted[MAX_ROUNDS];
    memcpy(sorted, x, sizeof *x * (size_t)n);
    qsort(sorted, (size_t)n, sizeof *sorted, compare);
    return sorted[n / 2];
}

static void measure(bench *b, sn_bench_attention_result *r) {
    static double time[MAX_MASKS][MAX_ROUNDS], peak[MAX_MASKS][MAX_ROUNDS];
    const sn_bench_attention_shape *s = &b->s;
    double per_pair = 4.0 * s->b * s->h * s->d, rough;
    for (int i = 0; i < b->n; i++) {
        b->repeats = 1;
        time_kernel(b, i);
        r[i].max_error = measure_error(b, i);
    }
    rough = time_kernel(b, 0);
    b->repeats = rough < 0.01 ? (int)(0.01 / rough) + 1 : 1;
    for (int n = 0; n < b->rounds; n++) {
        double before = sn_probe_fma_peak(b->threads, 0.008);
        for (int i = 0; i < b->n; i++) {
            time[i][n] = time_kernel(b, i);
            double after = sn_probe_fma_peak(b->threads, 0.008);
            peak[i][n] = (before + after) / 2;
            before = after;
        }
    }
    for (int i = 0; i < b->n; i++) {
        double share[MAX_ROUNDS], ratio[MAX_ROUNDS], flop = per_pair * b->pairs[i];
        r[i].shape = *s;
        r[i].mask = b->variant[i]->name;
        r[i].compile_ms = b->compile_ms[i];
        r[i].ms_min = INFINITY;
        for (int n = 0; n < b->rounds; n++) {
            share[n] = flop / time[i][n] * 1e-9 / peak[i][n] * 100;
            ratio[n] = time[i][n] / time[0][n];
            r[i].ms_min = fmin(r[i].ms_min, time[i][n] * 1e3);
            r[i].peak_best = fmax(r[i].peak_best, peak[i][n]);
            r[i].ms_max = fmax(r[i].ms_max, time[i][n] * 1e3);
        }
        r[i].ms = median(time[i], b->rounds) * 1e3;
        r[i].gflops = flop / r[i].ms * 1e-6;
        r[i].best = flop / r[i].ms_min * 1e-6;
        r[i].peak = median(peak[i], b->rounds);
        r[i].percent = median(share, b->rounds);
        r[i].vs_first = median(ratio, b->rounds);
        if (s->tq <= 8) r[i].gbs = 8.0 * s->b * s->hk * s->tk * s->d / r[i].ms * 1e-6;
    }
}

int sn_bench_attention(const sn_bench_attention_options *o, sn_bench_attention_result *results,
                       int room, sn_error *err) {
    const sn_bench_attention_shape *shapes = o->shape ? o->shape : usual;
    int n_shape = o->shape ? o->n_shape : (int)(sizeof usual / sizeof *usual), done = 0;
    bench *b = calloc(1, sizeof *b);
    bool ok = b || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (int i = 0; ok && i < n_shape; i++) {
        *b = (bench){.o = o, .s = shapes[i], .repeats = 1};
        b->threads = o->threads > 0 ? o->threads : omp_get_max_threads();
        b->rounds = o->rounds <= 0 ? 9 : o->rounds < MAX_ROUNDS ? o->rounds : MAX_ROUNDS;
        ok = sn_target_init(&b->target, o->target, err) && set_up(b, err);
        if (ok && done + b->n > room)
            ok = sn_fail(err, SN_ERR_USAGE, "bench attention: more results than room");
        if (ok && o->progress)
            fprintf(o->progress, "attention B %d H %d T %d,%d D %d\n", b->s.b, b->s.h, b->s.tq,
                    b->s.tk, b->s.d);
        if (ok) {
            memset(results + done, 0, sizeof *results * (size_t)b->n);
            measure(b, results + done);
            done += b->n;
        }
        release(b);
    }
    free(b);
    return ok ? done : -1;
}
