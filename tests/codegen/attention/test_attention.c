/* Emitted attention against loops in double: masks, scores, shapes, threads, targets, infinities. */
#include "codegen/attention/attention.h"
#include "codegen/jit/jit.h"
#include "tests/support/effort.h"
#include "tests/support/noise.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { B_ARG, H_ARG, Q_ARG, K_ARG, FIRST_CAPTURED };

/* --- masks and scores: as IR, and as C -------------------------------------------------------- */
/* Tables that masks and scores may read: document ids [B,T], a dense mask [T,T], a bias [H,T,T]. */
enum { DOC, DENSE, BIAS, SLOPE, N_CAPTURED };

typedef struct tables {
    int t, heads; /* sizes of the axes */
    int32_t *doc;
    uint8_t *dense;
    float *bias;
    float slope; /* rank 0 */
} tables;

typedef struct variant {
    const char *name;
    sn_node *(*ir)(sn_module *m, sn_node *const *arg); /* arg: b, h, q, k, captured ... */
    bool (*mask)(const tables *t, int b, int h, int q, int k);
    double (*score)(const tables *t, double s, int b, int h, int q, int k);
    sn_mask_kind kind;
} variant;

static sn_node *op2(sn_op op, sn_node *x, sn_node *y) {
    return sn_b_binary(op, x, y);
}

static sn_node *number(sn_node *x, double v) {
    return sn_b_const(x->m, (sn_dtype)x->dtype, v);
}

static sn_node *ir_causal(sn_module *m, sn_node *const *a) {
    (void)m;
    return op2(SN_OP_le, a[K_ARG], a[Q_ARG]);
}

static bool is_causal(const tables *t, int b, int h, int q, int k) {
    (void)t, (void)b, (void)h;
    return k <= q;
}

static sn_node *ir_window(sn_module *m, sn_node *const *a) {
    sn_node *low = op2(SN_OP_sub, a[Q_ARG], number(a[Q_ARG], 50));
    return op2(SN_OP_and, ir_causal(m, a), op2(SN_OP_lt, low, a[K_ARG]));
}

static bool is_window(const tables *t, int b, int h, int q, int k) {
    (void)t, (void)b, (void)h;
    return k <= q && q - 50 < k;
}

static sn_node *ir_prefix(sn_module *m, sn_node *const *a) {
    return op2(SN_OP_or, ir_causal(m, a), op2(SN_OP_lt, a[K_ARG], number(a[K_ARG], 37)));
}

static bool is_prefix(const tables *t, int b, int h, int q, int k) {
    (void)t, (void)b, (void)h;
    return k <= q || k < 37;
}

static sn_node *ir_strided(sn_module *m, sn_node *const *a) {
    sn_node *r = op2(SN_OP_mod, op2(SN_OP_sub, a[Q_ARG], a[K_ARG]), number(a[K_ARG], 3));
    return op2(SN_OP_and, ir_causal(m, a), op2(SN_OP_eq, r, number(r, 0)));
}

static bool is_strided(const tables *t, int b, int h, int q, int k) {
    (void)t, (void)b, (void)h;
    return k <= q && (q - k) % 3 == 0;
}

static sn_node *ir_blocks(sn_module *m, sn_node *const *a) {
    (void)m;
    sn_node *x = op2(SN_OP_div, a[Q_ARG], number(a[Q_ARG], 64));
    sn_node *y = op2(SN_OP_div, a[K_ARG], number(a[K_ARG], 64));
    return op2(SN_OP_or, op2(SN_OP_eq, x, y), op2(SN_OP_eq, y, number(y, 1)));
}

static bool is_blocks(const tables *t, int b, int h, int q, int k) {
    (void)t, (void)b, (void)h;
    return q / 64 == k / 64 || k / 64 == 1;
}

/* 2-D neighbourhood of a picture with rows of 16. */
static sn_node *ir_neighbours(sn_module *m, sn_node *const *a) {
    (void)m;
    sn_node *near[2];
    for (int i = 0; i < 2; i++) {
        sn_op op = i ? SN_OP_mod : SN_OP_div;
        sn_node *x = op2(op, a[Q_ARG], number(a[Q_ARG], 16));
        sn_node *y = op2(op, a[K_ARG], number(a[K_ARG], 16));
        near[i] = op2(SN_OP_le, sn_b_unary(SN_OP_abs, op2(SN_OP_sub, x, y)), number(x, 2));
    }
    return op2(SN_OP_and, near[0], near[1]);
}

static bool is_neighbours(const tables *t, int b, int h, int q, int k) {
    (void)t, (void)b, (void)h;
    return abs(q / 16 - k / 16) <= 2 && abs(q % 16 - k % 16) <= 2;
}

static sn_node *read2(sn_module *m, sn_node *table, sn_node *i, sn_node *j) {
    return SN_NODE(m, gather_nd, SN_NO_ATTRS, table, i, j);
}

static sn_node *ir_documents(sn_module *m, sn_node *const *a) {
    sn_node *doc = a[FIRST_CAPTURED + DOC];
    sn_node *same =
        op2(SN_OP_eq, read2(m, doc, a[B_ARG], a[Q_ARG]), read2(m, doc, a[B_ARG], a[K_ARG]));
    return op2(SN_OP_and, same, ir_causal(m, a));
}

static bool is_documents(const tables *t, int b, int h, int q, int k) {
    (void)h;
    return t->doc[b * t->t + q] == t->doc[b * t->t + k] && k <= q;
}

static sn_node *ir_dense(sn_module *m, sn_node *const *a) {
    return read2(m, a[FIRST_CAPTURED + DENSE], a[Q_ARG], a[K_ARG]);
}

static bool is_dense(const tables *t, int b, int h, int q, int k) {
    (void)b, (void)h;
    return t->dense[q * t->t + k];
}

static sn_node *ir_nothing(sn_module *m, sn_node *const *a) {
    (void)m;
    return op2(SN_OP_lt, a[K_ARG], number(a[K_ARG], 0));
}

static bool is_nothing(const tables *t, int b, int h, int q, int k) {
    (void)t, (void)b, (void)h, (void)q;
    return k < 0;
}

/* Rows 10 .. 29 see nothing; not decidable by intervals (floats). */
static sn_node *ir_some_rows(sn_module *m, sn_node *const *a) {
    sn_node *x = sn_b_cast(a[Q_ARG], SN_F32);
    sn_node *far =
        op2(SN_OP_lt, number(x, 9.5), sn_b_unary(SN_OP_abs, op2(SN_OP_sub, x, number(x, 19.5))));
    (void)m;
    return far;
}

static bool is_some_rows(const tables *t, int b, int h, int q, int k) {
    (void)t, (void)b, (void)h, (void)k;
    return fabs(q - 19.5) > 9.5;
}

static sn_node *ir_heads(sn_module *m, sn_node *const *a) {
    sn_node *odd =
        op2(SN_OP_eq, op2(SN_OP_mod, a[H_ARG], number(a[H_ARG], 2)), number(a[H_ARG], 1));
    sn_node *back = op2(SN_OP_le, a[Q_ARG], a[K_ARG]);
    return sn_b_select(odd, back, ir_causal(m, a));
}

static bool is_heads(const tables *t, int b, int h, int q, int k) {
    (void)t, (void)b;
    return h % 2 ? q <= k : k <= q;
}

static sn_node *ir_alibi(sn_module *m, sn_node *const *a) {
    (void)m;
    sn_node *far = sn_b_cast(op2(SN_OP_sub, a[K_ARG + 1], a[Q_ARG + 1]), SN_F32);
    return op2(SN_OP_add, a[0], op2(SN_OP_mul, far, a[1 + FIRST_CAPTURED + SLOPE]));
}

static double alibi(const tables *t, double s, int b, int h, int q, int k) {
    (void)b, (void)h;
    return s + (k - q) * (double)t->slope;
}

static sn_node *ir_softcap(sn_module *m, sn_node *const *a) {
    (void)m;
    sn_node *x = sn_b_unary(SN_OP_tanh, sn_b_scalar(SN_OP_mul, a[0], 0.5));
    return sn_b_scalar(SN_OP_mul, x, 2);
}

static double softcap(const tables *t, double s, int b, int h, int q, int k) {
    (void)t, (void)b, (void)h, (void)q, (void)k;
    return 2 * tanh(s / 2);
}

static sn_node *ir_bias(sn_module *m, sn_node *const *a) {
    sn_node *x = SN_NODE(m, gather_nd, SN_NO_ATTRS, a[1 + FIRST_CAPTURED + BIAS], a[H_ARG + 1],
                         a[Q_ARG + 1], a[K_ARG + 1]);
    return op2(SN_OP_add, a[0], x);
}

static double bias(const tables *t, double s, int b, int h, int q, int k) {
    (void)b;
    return s + (double)t->bias[(h * t->t + q) * t->t + k];
}

static const variant masks[] = {
    {"causal", ir_causal, is_causal, NULL, SN_MASK_DECIDABLE},
    {"window", ir_window, is_window, NULL, SN_MASK_DECIDABLE},
    {"prefix", ir_prefix, is_prefix, NULL, SN_MASK_DECIDABLE},
    {"strided", ir_strided, is_strided, NULL, SN_MASK_DECIDABLE},
    {"blocks", ir_blocks, is_blocks, NULL, SN_MASK_DECIDABLE},
    {"neighbours", ir_neighbours, is_neighbours, NULL, SN_MASK_DECIDABLE},
    {"documents", ir_documents, is_documents, NULL, SN_MASK_DECIDABLE},
    {"dense", ir_dense, is_dense, NULL, SN_MASK_DECIDABLE},
    {"nothing", ir_nothing, is_nothing, NULL, SN_MASK_DECIDABLE},
    {"some_rows", ir_some_rows, is_some_rows, NULL, SN_MASK_UNDECIDABLE},
    {"heads", ir_heads, is_heads, NULL, SN_MASK_DECIDABLE},
};
enum { N_MASKS = sizeof masks / sizeof *masks };

static const variant scores[] = {
    {"alibi", ir_alibi, NULL, alibi, 0},
    {"softcap", ir_softcap, NULL, softcap, 0},
    {"bias", ir_bias, NULL, bias, 0},
};

/* --- a case ----------------------------------------------------------------------------------- */

typedef struct shape {
    int b, h, hk, tq, tk, d, dv;
    bool packed; /* q, k, v are views of one [B,T,(H+2Hk)d] product, out is [B,T,H*dv] */
    sn_dtype compute, stored;
    const char *target; /* NULL: this machine */
    const variant *mask, *score;
    double tolerance;
} shape;

enum { PARTS = 9 }; /* buffer of sums over parts of the keys */

typedef struct problem {
    shape s;
    tables t;
    sn_module *m;
    sn_attention a;
    sn_attention_captured captured[N_CAPTURED];
    void *buf[PARTS + 1];
    int64_t dim[4]; /* B, Tq, Tk */
    int64_t n_out, n_lse;
    int64_t stride[4][3]; /* of q, k, v, out: batch, head, row */
    void *base;           /* q, k and v */
    int64_t at[3];        /* offsets of q, k, v in base */
} problem;

static double get(sn_dtype t, const void *p, int64_t i) {
    if (t == SN_F64) return ((const double *)p)[i];
    if (t == SN_BF16) return (double)sn_bf16_to_f32(((const uint16_t *)p)[i]);
    return (double)((const float *)p)[i];
}

static void put(sn_dtype t, void *p, int64_t i, double v) {
    if (t == SN_F64)
        ((double *)p)[i] = v;
    else if (t == SN_BF16)
        ((uint16_t *)p)[i] = sn_f32_to_bf16((float)v);
    else
        ((float *)p)[i] = (float)v;
}

static void *zeroed(int64_t n) {
    void *p = NULL;
    assert_int_equal(posix_memalign(&p, 64, (size_t)n + 64), 0);
    memset(p, 0, (size_t)n + 64);
    return p;
}

static void make_tables(problem *p) {
    int t = p->s.tq > p->s.tk ? p->s.tq : p->s.tk;
    if (t < 1) t = 1;
    uint32_t seed = 77;
    p->t = (tables){.t = t, .heads = p->s.h, .slope = 0.03f};
    int b = p->s.b ? p->s.b : 1;
    p->t.doc = zeroed((int64_t)b * t * 4);
    p->t.dense = zeroed((int64_t)t * t);
    p->t.bias = zeroed((int64_t)p->s.h * t * t * 4);
    for (int i = 0; i < b; i++)
        for (int j = 0; j < t; j++) p->t.doc[i * t + j] = j / (20 + 45 * (i + 1)) + 3;
    for (int64_t i = 0; i < (int64_t)t * t; i++)
        p->t.dense[i] = (i / t / 40 + i % t / 70) % 2 == 0 && noise_next(&seed) > -0.5;
    for (int64_t i = 0; i < (int64_t)p->s.h * t * t; i++) p->t.bias[i] = noise_next(&seed);
    p->captured[DOC] = (sn_attention_captured){.buf = 5,
                                               .dtype = SN_I32,
                                               .offset = EM_SIZE_CONST(0),
                                               .rank = 2,
                                               .shape = {EM_SIZE_CONST(b), EM_SIZE_CONST(t)},
                                               .stride = {EM_SIZE_CONST(t), EM_SIZE_CONST(1)}};
    p->captured[DENSE] = (sn_attention_captured){.buf = 6,
                                                 .dtype = SN_BOOL,
                                                 .offset = EM_SIZE_CONST(0),
                                                 .rank = 2,
                                                 .shape = {EM_SIZE_CONST(t), EM_SIZE_CONST(t)},
                                                 .stride = {EM_SIZE_CONST(t), EM_SIZE_CONST(1)}};
    p->captured[BIAS] = (sn_attention_captured){
        .buf = 7,
        .dtype = SN_F32,
        .offset = EM_SIZE_CONST(0),
        .rank = 3,
        .shape = {EM_SIZE_CONST(p->s.h), EM_SIZE_CONST(t), EM_SIZE_CONST(t)},
        .stride = {EM_SIZE_CONST((int64_t)t * t), EM_SIZE_CONST(t), EM_SIZE_CONST(1)}};
    p->captured[SLOPE] =
        (sn_attention_captured){.buf = 8, .dtype = SN_F32, .offset = EM_SIZE_CONST(0)};
    p->buf[5] = p->t.doc, p->buf[6] = p->t.dense, p->buf[7] = p->t.bias, p->buf[8] = &p->t.slope;
}

static const sn_region *make_region(problem *p, const variant *v, bool score) {
    sn_module *m = p->m;
    int t = p->t.t;
    sn_dim two[] = {p->s.b ? p->s.b : 1, t}, square[] = {t, t}, cube[] = {p->s.h, t, t};
    sn_node *arg[1 + FIRST_CAPTURED + N_CAPTURED];
    int n = 0;
    if (score) arg[n] = sn_arg(m, n, SN_F32, 0, NULL), n++;
    for (int i = 0; i < 4; i++, n++)
        arg[n] = sn_arg(m, n, i % 2 && score ? SN_I64 : SN_I32, 0, NULL);
    if (score) /* q and k of one type */
        arg[3] = sn_arg(m, 3, SN_I32, 0, NULL), arg[4] = sn_arg(m, 4, SN_I32, 0, NULL);
    arg[n] = sn_arg(m, n, SN_I32, 2, two), n++;
    arg[n] = sn_arg(m, n, SN_BOOL, 2, square), n++;
    arg[n] = sn_arg(m, n, SN_F32, 3, cube), n++;
    arg[n] = sn_arg(m, n, SN_F32, 0, NULL), n++;
    sn_node *out = v->ir(m, arg);
    const sn_region *r = sn_region_new(m, n, arg, 1, &out);
    if (sn_module_error(m)->code) fail_msg("%s: %s", v->name, sn_module_error(m)->message);
    return r;
}

static sn_attention_operand operand(int buf, sn_dtype t, int64_t offset, const int64_t *stride) {
    return (sn_attention_operand){.buf = buf,
                                  .dtype = t,
                                  .offset = EM_SIZE_CONST(offset),
                                  .batch = EM_SIZE_CONST(stride[0]),
                                  .head = EM_SIZE_CONST(stride[1]),
                                  .row = EM_SIZE_CONST(stride[2])};
}

static void make_problem(problem *p, const shape *s) {
    *p = (problem){.s = *s, .m = sn_module_new("t"), .dim = {s->b, s->tq, s->tk}};
    int64_t h = s->h, hk = s->hk, d = s->d, dv = s->dv, row = h * d + hk * d + hk * dv, n;
    if (s->packed) {
        int64_t strides[4][3] = {{s->tq * row, d, row},
                                 {s->tk * row, d, row},
                                 {s->tk * row, dv, row},
                                 {s->tq * h * dv, dv, h * dv}};
        memcpy(p->stride, strides, sizeof strides);
        p->at[1] = h * d, p->at[2] = h * d + hk * d;
        n = s->b * row * (s->tq > s->tk ? s->tq : s->tk);
    } else {
        int64_t strides[4][3] = {{h * s->tq * d, s->tq * d, d},
                                 {hk * s->tk * d, s->tk * d, d},
                                 {hk * s->tk * dv, s->tk * dv, dv},
                                 {h * s->tq * dv, s->tq * dv, dv}};
        memcpy(p->stride, strides, sizeof strides);
        p->at[1] = s->b * h * s->tq * d, p->at[2] = p->at[1] + s->b * hk * s->tk * d;
        n = p->at[2] + s->b * hk * s->tk * dv;
    }
    p->n_out = s->b * h * s->tq * dv, p->n_lse = 2 * s->b * h * s->tq;
    p->base = zeroed(n * 8);
    uint32_t seed = 5;
    for (int64_t i = 0; i < n; i++) put(s->stored, p->base, i, 2 * noise_next(&seed));
    make_tables(p);
    p->buf[0] = p->base;
    p->buf[3] = zeroed((p->n_out + 16) * 8), p->buf[4] = zeroed((p->n_lse + 16) * 8);
    p->a = (sn_attention){.d = s->d,
                          .dv = s->dv,
                          .heads = s->h,
                          .gqa_ratio = s->h / s->hk,
                          .batch = EM_SIZE_DIM(0),
                          .tq = EM_SIZE_DIM(1),
                          .tk = EM_SIZE_DIM(2),
                          .scale = 1 / sqrt(s->d),
                          .q = operand(0, s->stored, p->at[0], p->stride[0]),
                          .k = operand(0, s->stored, p->at[1], p->stride[1]),
                          .v = operand(0, s->stored, p->at[2], p->stride[2]),
                          .out = operand(3, s->compute, 0, p->stride[3]),
                          .lse_buf = 4,
                          .lse_parts = 2,
                          .n_captured = N_CAPTURED,
                          .captured = p->captured};
    if (s->mask) p->a.mask = make_region(p, s->mask, false);
    if (s->score) p->a.score = make_region(p, s->score, true);
}

static void free_problem(problem *p) {
    void *all[] = {p->base, p->buf[3], p->buf[4], p->buf[PARTS], p->t.doc, p->t.dense, p->t.bias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    sn_module_free(p->m);
}

/* Row (b, h, q) of the result and its log-sum-exp, in double. */
static double reference(const problem *p, int b, int h, int q, double *out) {
    const shape *s = &p->s;
    int hk = h / (s->h / s->hk);
    double *x = calloc((size_t)s->tk + 1, sizeof *x), top = -INFINITY, sum = 0;
    bool nan = false;
    for (int k = 0; k < s->tk; k++) {
        int64_t qi = p->at[0] + b * p->stride[0][0] + h * p->stride[0][1] + q * p->stride[0][2];
        int64_t ki = p->at[1] + b * p->stride[1][0] + hk * p->stride[1][1] + k * p->stride[1][2];
        for (int i = 0; i < s->d; i++)
            x[k] += get(s->stored, p->base, qi + i) * get(s->stored, p->base, ki + i);
        x[k] /= sqrt(s->d);
        if (s->score) x[k] = s->score->score(&p->t, x[k], b, h, q, k);
        if (s->mask && !s->mask->mask(&p->t, b, h, q, k)) x[k] = -INFINITY;
        nan |= isnan(x[k]);
        top = fmax(top, x[k]);
    }
    for (int i = 0; i < s->dv; i++) out[i] = 0;
    for (int k = 0; k < s->tk && top > -INFINITY; k++) {
        double w = exp(x[k] - top);
        sum += w;
        if (x[k] == -INFINITY) continue;
        int64_t vi = p->at[2] + b * p->stride[2][0] + hk * p->stride[2][1] + k * p->stride[2][2];
        for (int i = 0; i < s->dv; i++) out[i] += w * get(s->stored, p->base, vi + i);
    }
    for (int i = 0; i < s->dv && sum > 0; i++) out[i] /= sum;
    for (int i = 0; i < s->dv && nan; i++) out[i] = NAN;
    free(x);
    return nan ? NAN : top > -INFINITY ? top + log(sum) : -INFINITY;
}

static bool near(double x, double want, double tolerance) {
    if (isnan(want) || isinf(want)) return isnan(want) ? isnan(x) : x == want;
    return fabs(x - want) <= tolerance * (1 + fabs(want));
}

static void check_problem(const problem *p, const char *what) {
    const shape *s = &p->s;
    double *want = calloc((size_t)s->dv, sizeof *want);
    for (int b = 0; b < s->b; b++)
        for (int h = 0; h < s->h; h++)
            for (int q = 0; q < s->tq; q++) {
                double lse = reference(p, b, h, q, want);
                int64_t at = b * p->stride[3][0] + h * p->stride[3][1] + q * p->stride[3][2];
                for (int i = 0; i < s->dv; i++)
                    if (!near(get(s->compute, p->buf[3], at + i), want[i], s->tolerance))
                        fail_msg("%s: out[%d,%d,%d,%d] = %g, not %g (d %d, Tq %d, Tk %d)", what, b,
                                 h, q, i, get(s->compute, p->buf[3], at + i), want[i], s->d, s->tq,
                                 s->tk);
                int64_t part = 2 * ((int64_t)b * s->h + h) * s->tq + q;
                double got = get(s->compute, p->buf[4], part);
                got += got == -INFINITY ? 0 : get(s->compute, p->buf[4], part + s->tq);
                if (!near(got, lse, s->tolerance))
                    fail_msg("%s: lse[%d,%d,%d] = %g, not %g", what, b, h, q, got, lse);
            }
    free(want);
}

/* One kernel, any number of runs. */
typedef struct compiled {
    sn_target target;
    sn_jit *jit;
    sn_kernel_fn *run, *finish; /* finish: adds up parts of keys */
} compiled;

static sn_kernel_fn *look_up(const compiled *c, const char *name) {
    sn_error err = {0};
    sn_kernel_fn *run;
    void *f = sn_jit_lookup(c->jit, name, &err);
    if (!f) fail_msg("%s", err.message);
    memcpy(&run, &f, sizeof f);
    return run;
}

static bool compile(compiled *c, problem *p) {
    sn_error err = {0};
    em e;
    if (!sn_target_init(&c->target, p->s.target, &err)) fail_msg("%s", err.message);
    if (!sn_target_runs_here(&c->target)) return false;
    int64_t parts = sn_attention_split_bytes(&p->a, &c->target, p->s.compute);
    if (parts) {
        p->a.splits_buf = PARTS;
        p->buf[PARTS] = zeroed(parts);
        memset(p->buf[PARTS], 0xff, (size_t)parts);
    }
    c->jit = sn_jit_create(&c->target, NULL, &err);
    assert_true(em_init(&e, &c->target, "att", p->s.compute, &err));
    sn_attention_emit(&e, "att", &p->a);
    LLVMModuleRef mod = em_finish(&e, &err);
    if (!mod || !sn_jit_compile(c->jit, mod, NULL, &err)) fail_msg("%s", err.message);
    c->run = look_up(c, "att");
    c->finish = parts ? look_up(c, "att_finish") : NULL;
    em_free(&e);
    return true;
}

static void run(const compiled *c, problem *p, int threads) {
    int64_t size = sn_attention_scratch(&p->a, &c->target, p->s.compute, p->s.tq, p->s.tk);
    assert_true(size > 0);
    memset(p->buf[3], 0x55, (size_t)p->n_out * sn_dtype_size(p->s.compute));
    memset(p->buf[4], 0x55, (size_t)p->n_lse * sn_dtype_size(p->s.compute));
    for (int half = 0; half < 1 + (c->finish != NULL); half++)
        for (int t = 0; t < threads; t++) {
            void *scratch = zeroed(size);
            memset(scratch, 0xff, (size_t)size); /* NaN: nothing may rely on what is there */
            ((uint8_t *)scratch)[size] = 0x77;
            (half ? c->finish : c->run)(p->buf, p->dim, scratch, t, threads);
            assert_int_equal(((uint8_t *)scratch)[size], 0x77);
            free(scratch);
        }
}

/* 1, 2 and 3 threads give the same bits, which are right. */
static void check_shape(const shape *s, const char *what) {
    problem p;
    compiled c;
    make_problem(&p, s);
    if (compile(&c, &p)) {
        size_t bytes = (size_t)p.n_out * sn_dtype_size(s->compute);
        void *first = zeroed((int64_t)bytes);
        run(&c, &p, 1);
        memcpy(first, p.buf[3], bytes);
        check_problem(&p, what);
        for (int threads = 2; threads <= 3; threads++) {
            run(&c, &p, threads);
            assert_memory_equal(first, p.buf[3], bytes);
        }
        free(first);
        sn_jit_destroy(c.jit);
    }
    free_problem(&p);
}

static shape base_shape(void) {
    return (shape){.b = 2,
                   .h = 4,
                   .hk = 4,
                   .tq = 150,
                   .tk = 150,
                   .d = 64,
                   .dv = 64,
                   .packed = true,
                   .compute = SN_F32,
                   .stored = SN_F32,
                   .tolerance = 2e-6};
}

/* --- tests ------------------------------------------------------------------------------------ */

static void full(void **state) {
    (void)state;
    static const char *const names[] = {"packed", "apart", "groups", "one K/V head"};
    for (int i = effort_is_long() ? 0 : 2; i < 4; i++) {
        shape s = base_shape();
        s.packed = i % 3 == 0, s.hk = 4 >> (i > 1 ? i - 1 : 0);
        check_shape(&s, names[i]);
    }
}

static void head_sizes(void **state) {
    (void)state;
    static const int sizes[][2] = {{4, 4},  {20, 20},   {48, 48},   {63, 63}, {80, 80}, {1, 1},
                                   {3, 50}, {128, 128}, {256, 256}, {64, 48}, {33, 17}, {96, 128}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (!effort_takes(i, 5)) continue;
        shape s = base_shape();
        s.b = 1, s.h = s.hk = 2, s.tq = s.tk = 70 + (int)i;
        s.d = sizes[i][0], s.dv = sizes[i][1], s.packed = i % 2;
        s.mask = i % 3 ? &masks[0] : NULL;
        char what[32];
        snprintf(what, sizeof what, "d %d dv %d", s.d, s.dv);
        check_shape(&s, what);
    }
}

static void lengths(void **state) {
    (void)state;
    static const int sizes[][2] = {{1, 1},   {1, 300}, {300, 1},  {17, 64},
                                   {16, 65}, {3, 7},   {49, 129}, {200, 96}};
    for (int i = 0; i < (int)(sizeof sizes / sizeof *sizes); i++) {
        int m = i * 5 % (N_MASKS + 1) - 1;
        if (!effort_takes((size_t)i, 2)) continue;
        shape s = base_shape();
        s.h = s.hk = 2, s.d = s.dv = 32, s.packed = false;
        s.mask = m < 0 ? NULL : &masks[m];
        s.tq = sizes[i][0], s.tk = sizes[i][1];
        check_shape(&s, m < 0 ? "lengths" : masks[m].name);
    }
}

/* Decoding: few queries take another way, which all heads of a group share. */
static void few_queries(void **state) {
    (void)state;
    static const int sizes[][4] = {{1, 4, 40, 24}, {2, 1, 64, 64}, {6, 2, 7, 130}, {1, 4, 16, 300}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int m = (int)i; m < 5; m += 2) {
            if (!effort_takes((size_t)m - i, 4)) continue;
            shape s = base_shape();
            s.tq = sizes[i][0], s.hk = sizes[i][1], s.d = sizes[i][2], s.dv = sizes[i][3];
            s.tk = 70 + 100 * (m % 2), s.packed = i % 2;
            s.mask = m ? &masks[(m * 3 + i) % N_MASKS] : NULL, s.score = m == 2 ? &scores[2] : NULL;
            if (m == 3) s.compute = s.stored = SN_F64;
            if (m == 4) s.stored = SN_BF16;
            check_shape(&s, "few");
        }
}

/* Few heads and queries over many keys: these are split in parts, and some see nothing. */
static void keys_in_parts(void **state) {
    (void)state;
    static const int sizes[][5] = {/* batch, Tq, K/V heads, Tk, d */
                                   {1, 1, 1, 1100, 64},
                                   {1, 3, 2, 700, 20},
                                   {2, 1, 1, 2049, 64},
                                   {1, 6, 4, 1030, 33},
                                   {1, 5, 1, 513, 128}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int m = 0; m < 3; m++) {
            if (!effort_takes(i + 2 * (size_t)m, 3)) continue;
            shape s = base_shape();
            s.b = sizes[i][0], s.tq = sizes[i][1], s.hk = sizes[i][2], s.tk = sizes[i][3];
            s.d = s.dv = sizes[i][4], s.packed = i % 2;
            s.mask = m ? &masks[(m * 3 + i) % N_MASKS] : NULL, s.score = m == 2 ? &scores[2] : NULL;
            if (m == 1 && i == 1) s.compute = s.stored = SN_F64;
            check_shape(&s, "parts");
        }
}

/* A table far below all scores: what stands in for keys beyond the last must not be above it. */
static void low_table(void **state) {
    (void)state;
    for (int i = 0; i < (effort_is_long() ? 2 : 1); i++) {
        shape s = base_shape();
        problem p;
        compiled c;
        s.tq = s.tk = 97 + 2 * i, s.score = &scores[2], s.tolerance = 1e-4;
        make_problem(&p, &s);
        for (int64_t j = 0; j < (int64_t)s.h * s.tk * s.tk; j++) p.t.bias[j] -= 1000;
        if (compile(&c, &p)) {
            run(&c, &p, 2);
            check_problem(&p, "low table");
            sn_jit_destroy(c.jit);
        }
        free_problem(&p);
    }
}

static void nothing_to_do(void **state) {
    (void)state;
    shape s = base_shape();
    s.tk = 0, s.packed = false;
    check_shape(&s, "Tk = 0");
    s.tq = 0, s.tk = 5;
    check_shape(&s, "Tq = 0");
    s.tq = 5, s.b = 0;
    check_shape(&s, "B = 0");
}

/* The default run takes half of them; lengths, types and every_score take the others. */
static void every_mask(void **state) {
    (void)state;
    for (int m = 0; m < N_MASKS; m++) {
        shape s = base_shape();
        s.mask = &masks[m], s.d = s.dv = 16, s.b = 2, s.h = s.hk = 2, s.tq = s.tk = 150 + 30 * m;
        if (effort_takes((size_t)m, 2)) check_shape(&s, masks[m].name);
        problem p;
        make_problem(&p, &s);
        char why[256];
        assert_int_equal(sn_attention_explain(&p.a, why, sizeof why), masks[m].kind);
        assert_true(strlen(why) > 10);
        free_problem(&p);
    }
}

static void every_score(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof scores / sizeof *scores; i++)
        for (int m = -1; m < 1; m++) {
            if (!effort_takes(i + (size_t)(m + 1), 2)) continue;
            shape s = base_shape();
            s.score = &scores[i], s.mask = m < 0 ? NULL : &masks[i * 3];
            s.d = s.dv = 24;
            check_shape(&s, scores[i].name);
        }
}

static void targets(void **state) {
    (void)state;
    static const char *const names[] = {"x86-64-v4", "x86-64-v3", "x86-64-v2", "x86-64"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int m = (int)i % 2; m < 3; m += 2) {
            shape s = base_shape();
            s.target = names[i], s.b = 1, s.d = 40, s.dv = 36;
            s.mask = m ? &masks[m] : NULL, s.score = m == 2 ? &scores[1] : NULL;
            check_shape(&s, names[i]);
        }
}

static void types(void **state) {
    (void)state;
    shape s = base_shape();
    s.compute = s.stored = SN_F64, s.tolerance = 1e-13, s.b = 1, s.d = s.dv = 24;
    check_shape(&s, "f64");
    s.mask = &masks[1], s.d = 20, s.dv = 7, s.packed = false;
    check_shape(&s, "f64 window");
    s = base_shape();
    s.stored = SN_BF16, s.mask = &masks[0];
    check_shape(&s, "bf16 in memory");
}

/* Keys that a mask hides may hold anything; what is visible goes through. */
static void not_finite(void **state) {
    (void)state;
    for (int packed = 0; packed < (effort_is_long() ? 2 : 1); packed++) {
        shape s = base_shape();
        s.packed = packed, s.mask = &masks[0], s.b = 1, s.h = s.hk = 1, s.d = s.dv = 32;
        problem p;
        compiled c;
        make_problem(&p, &s);
        assert_true(compile(&c, &p));
        for (int where = 0; where < 4; where++) {
            int64_t k = p.at[1] + 90 * p.stride[1][2] + 3, v = p.at[2] + 90 * p.stride[2][2] + 5;
            int64_t at = where & 2 ? k : v;
            double bad = where & 1 ? INFINITY : NAN, before = get(SN_F32, p.base, at);
            put(SN_F32, p.base, at, bad);
            run(&c, &p, 1);
            const float *out = p.buf[3];
            for (int q = 0; q < s.tq; q++)
                for (int i = 0; i < s.dv; i++) {
                    double x = (double)out[q * p.stride[3][2] + i];
                    if (q < 90 || (!(where & 2) && i != 5))
                        assert_true(isfinite(x));
                    else if (!(where & 2)) /* a visible value: NaN, or infinity with a weight */
                        assert_true(where & 1 ? x == INFINITY : isnan(x));
                    else if (where == 2)
                        assert_true(isnan(x));
                    else /* the score is +inf or -inf by the sign of q: NaN or not counted */
                        assert_true(isnan(x) || isfinite(x));
                }
            if (where == 2) /* and where the key is visible: all of it as the reference has it */
                check_problem(&p, "NaN in K");
            put(SN_F32, p.base, at, before);
        }
        sn_jit_destroy(c.jit);
        free_problem(&p);
    }
}

/* Large scores that grow from tile to tile: the running maximum must follow. */
static void growing_scores(void **state) {
    (void)state;
    shape s = base_shape();
    s.b = 1, s.h = s.hk = 1, s.tq = 50, s.tk = 300, s.packed = false, s.tolerance = 2e-5;
    problem p;
    compiled c;
    make_problem(&p, &s);
    for (int k = 0; k < s.tk; k++)
        for (int i = 0; i < s.d; i++) {
            int64_t at = p.at[1] + k * p.stride[1][2] + i;
            put(SN_F32, p.base, at, get(SN_F32, p.base, at) * (1 + 0.1 * k));
        }
    assert_true(compile(&c, &p));
    run(&c, &p, 2);
    check_problem(&p, "growing");
    sn_jit_destroy(c.jit);
    free_problem(&p);
}

static void bad_specs(void **state) {
    (void)state;
    sn_target t;
    assert_true(sn_target_init(&t, NULL, NULL));
    for (int i = 0; i < 4; i++) {
        shape s = base_shape();
        s.mask = &masks[0];
        problem p;
        make_problem(&p, &s);
        if (i == 0) p.a.d = 0;
        if (i == 1) p.a.gqa_ratio = 3;
        if (i == 2) p.a.q.dtype = SN_I32;
        if (i == 3) p.a.n_captured = 0;
        em e;
        sn_error err = {0};
        assert_true(em_init(&e, &t, "bad", SN_F32, &err));
        sn_attention_emit(&e, "bad", &p.a);
        assert_null(em_finish(&e, &err));
        assert_true(strstr(err.message, "attention") != NULL);
        em_free(&e);
        free_problem(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full),           cmocka_unit_test(head_sizes),
        cmocka_unit_test(lengths),        cmocka_unit_test(few_queries),
        cmocka_unit_test(keys_in_parts),  cmocka_unit_test(low_table),
        cmocka_unit_test(nothing_to_do),  cmocka_unit_test(every_mask),
        cmocka_unit_test(every_score),    cmocka_unit_test(targets),
        cmocka_unit_test(types),          cmocka_unit_test(not_finite),
        cmocka_unit_test(growing_scores), cmocka_unit_test(bad_specs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
