/* ref_ops.c: the textbook formula of every composite in plain loops over doubles. Written
 * independently of ir/decomp*.c, so that two implementations must agree. */
#include "tests/support/op_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COMP(name, ...) void ref_##name(const ref_call *c);
#include "ir/ops.def"
void ref_map_reduce_softmax(const ref_call *c);
void ref_gemm(const ref_call *c);
void ref_gate(const ref_call *c);

ref_fn ref_of(sn_op op) {
    static const ref_fn table[SN_OP_COUNT] = {
#define COMP(name, ...) [SN_OP_##name] = ref_##name,
#include "ir/ops.def"
        [SN_OP_flash] = ref_attention,
        [SN_OP_flash_mixed] = ref_mixed_attention,
    };
    return table[op];
}

/* ---- activations ---- */

static void each(const ref_call *c, double (*f)(double)) {
    for (int64_t i = 0; i < c->result->n; i++) c->out[i] = f(c->in[0]->data[i]);
}

static double relu(double x) {
    return isnan(x) ? x : x > 0 ? x : 0;
}
void ref_relu(const ref_call *c) {
    each(c, relu);
}

static double silu(double x) {
    return x / (1 + exp(-x));
}
void ref_silu(const ref_call *c) {
    each(c, silu);
}

static double softplus(double x) {
    return x > 30 ? x : log1p(exp(x));
}
void ref_softplus(const ref_call *c) {
    each(c, softplus);
}

/* ---- rows: outer x size x inner around one axis ---- */

typedef struct rows {
    int64_t size, inner, count; /* elements of a row, their distance, number of rows */
} rows;

static rows rows_of(const sn_value *x, int axis) {
    rows r = {x->shape[axis], 1, 1};
    for (int i = axis + 1; i < x->rank; i++) r.inner *= x->shape[i];
    for (int i = 0; i < x->rank; i++)
        if (i != axis) r.count *= x->shape[i];
    return r;
}

/* Offset of the first element of row i. */
static int64_t row_start(rows r, int64_t i) {
    return i / r.inner * r.size * r.inner + i % r.inner;
}

static int axis_of(const ref_call *c) {
    return (int)sn_attr_int(c->n, SN_A_axis, c->in[0]->rank - 1);
}

static double log_sum(const double *x, rows r) {
    double top = -INFINITY, sum = 0;
    for (int64_t i = 0; i < r.size; i++) top = fmax(top, x[i * r.inner]);
    if (top == -INFINITY) return top;
    for (int64_t i = 0; i < r.size; i++) sum += exp(x[i * r.inner] - top);
    return top + log(sum);
}

/* f(x, log of the sum of e^x over its row) */
static void each_in_row(const ref_call *c, double (*f)(double, double)) {
    rows r = rows_of(c->in[0], axis_of(c));
    for (int64_t i = 0; i < r.count; i++) {
        const double *x = c->in[0]->data + row_start(r, i);
        double lse = log_sum(x, r);
        if (c->n->n_in > 1) lse = log(exp(lse) + exp(c->in[1]->data[i])); /* a sink */
        for (int64_t k = 0; k < r.size; k++)
            c->out[row_start(r, i) + k * r.inner] = f(x[k * r.inner], lse);
    }
}

static double share(double x, double lse) {
    return x == -INFINITY ? 0 : exp(x - lse);
}
void ref_softmax(const ref_call *c) {
    each_in_row(c, share);
}

/* sum over j of g[j] dy[j] / dx[k] */
void ref_softmax_grad(const ref_call *c) {
    rows r = rows_of(c->in[0], axis_of(c));
    for (int64_t i = 0; i < r.count * r.size; i++) {
        int64_t start = row_start(r, i / r.size), k = start + i % r.size * r.inner;
        const double *y = c->in[0]->data, *g = c->in[1]->data;
        c->out[k] = g[k] * y[k];
        for (int64_t j = 0; j < r.size; j++)
            c->out[k] -= g[start + j * r.inner] * y[start + j * r.inner] * y[k];
    }
}

static double log_share(double x, double lse) {
    return x == -INFINITY ? x : x - lse;
}
void ref_log_softmax(const ref_call *c) {
    each_in_row(c, log_share);
}

void ref_logsumexp(const ref_call *c) {
    rows r = rows_of(c->in[0], axis_of(c));
    for (int64_t i = 0; i < r.count; i++) c->out[i] = log_sum(c->in[0]->data + row_start(r, i), r);
}

/* Mean of (x - around)^power over the axes; around: NULL or shaped like the result. */
static void moments(const ref_call *c, int power, const double *around, double *out) {
    const sn_value *x = c->in[0];
    const sn_attr *axes = sn_attr_get(c->n, SN_A_axes);
    double count = 1;
    for (int i = 0; i < axes->n; i++) count *= (double)x->shape[axes->v[i]];
    memset(out, 0, sizeof *out * (size_t)c->result->n);
    for (int64_t i = 0; i < x->n; i++) {
        int64_t rest = i, to = 0, stride = 1;
        for (int k = x->rank; k-- > 0;) {
            int64_t at = rest % x->shape[k];
            rest /= x->shape[k];
            if (c->result->shape[k] != 1) to += at * stride;
            stride *= c->result->shape[k];
        }
        out[to] += pow(x->data[i] - (around ? around[to] : 0), power) / count;
    }
    if (!x->n)
        for (int64_t i = 0; i < c->result->n; i++) out[i] = NAN;
}

void ref_mean(const ref_call *c) {
    moments(c, 1, NULL, c->out);
}

void ref_variance(const ref_call *c) {
    double *mean = malloc(sizeof *mean * (size_t)(c->result->n + 1));
    if (!mean) return;
    moments(c, 1, NULL, mean);
    moments(c, 2, mean, c->out);
    free(mean);
}

/* (x - m) / sqrt(v + eps) * gain + bias; centre: m is the mean, else 0 */
static void norm(const ref_call *c, bool centre) {
    rows r = rows_of(c->in[0], c->in[0]->rank - 1);
    double eps = sn_attr_flt(c->n, SN_A_eps, 1e-5);
    for (int64_t i = 0; i < r.count; i++) {
        const double *x = c->in[0]->data + i * r.size;
        double m = 0, v = 0;
        for (int64_t k = 0; k < r.size && centre; k++) m += x[k] / (double)r.size;
        for (int64_t k = 0; k < r.size; k++) v += (x[k] - m) * (x[k] - m) / (double)r.size;
        for (int64_t k = 0; k < r.size; k++)
            c->out[i * r.size + k] =
                (x[k] - m) / sqrt(v + eps) * (c->n->n_in > 1 ? c->in[1]->data[k] : 1) +
                (c->n->n_in > 2 ? c->in[2]->data[k] : 0);
    }
}

void ref_layer_norm(const ref_call *c) {
    norm(c, true);
}

void ref_rms_norm(const ref_call *c) {
    norm(c, false);
}

/* sum over j of g[j] gain[j] d((x[j] - m) / s) / dx[k] with s^2 = v + eps */
void ref_layer_norm_grad(const ref_call *c) {
    rows r = rows_of(c->in[0], c->in[0]->rank - 1);
    double n = (double)r.size;
    for (int64_t i = 0; i < r.count; i++) {
        const double *x = c->in[0]->data + i * r.size, *g = c->in[1]->data + i * r.size;
        double m = 0, v = sn_attr_flt(c->n, SN_A_eps, 1e-5);
        for (int64_t k = 0; k < r.size; k++) m += x[k] / n;
        for (int64_t k = 0; k < r.size; k++) v += (x[k] - m) * (x[k] - m) / n;
        for (int64_t k = 0; k < r.size; k++) {
            double sum = 0;
            for (int64_t j = 0; j < r.size; j++)
                sum += g[j] * (c->n->n_in > 2 ? c->in[2]->data[j] : 1) *
                       ((j == k) - 1 / n - (x[j] - m) * (x[k] - m) / (n * v));
            c->out[i * r.size + k] = sum / sqrt(v);
        }
    }
}

/* ---- products ---- */

void ref_linear(const ref_call *c) {
    const sn_value *x = c->in[0], *w = c->in[1];
    int64_t out = w->shape[0], in = w->shape[1];
    for (int64_t i = 0; i < c->result->n; i++) {
        double sum = c->n->n_in > 2 ? c->in[2]->data[i % out] : 0;
        for (int64_t k = 0; k < in; k++)
            sum += x->data[i / out * in + k] * w->data[i % out * in + k];
        c->out[i] = sum;
    }
}

/* Offset of matrix g (an index into the result's leading axes) in an operand whose leading axes are
 * broadcast. */
static int64_t matrix_at(const sn_value *r, const sn_value *x, int64_t g, int64_t matrix) {
    int64_t at = 0, stride = matrix;
    for (int k = 3; k <= r->rank; k++) { /* k-th axis from the end */
        int64_t i = g % r->shape[r->rank - k];
        g /= r->shape[r->rank - k];
        if (k > x->rank) continue;
        if (x->shape[x->rank - k] != 1) at += i * stride;
        stride *= x->shape[x->rank - k];
    }
    return at;
}

void ref_matmul(const ref_call *c) {
    const sn_value *x = c->in[0], *y = c->in[1];
    sn_value r = *c->result; /* a vector counts as a matrix of one row or column */
    if (x->rank == 1) {
        r.shape[r.rank] = r.rank ? r.shape[r.rank - 1] : 1;
        r.shape[r.rank ? r.rank - 1 : 0] = 1;
        r.rank++;
    }
    if (y->rank == 1) r.shape[r.rank++] = 1;
    int64_t n = y->rank == 1 ? 1 : y->shape[y->rank - 1], m = r.shape[r.rank - 2];
    int64_t kk = x->shape[x->rank - 1];
    for (int64_t i = 0; i < c->result->n; i++) {
        int64_t g = i / (m * n), row = i / n % m, column = i % n;
        const double *p = x->data + matrix_at(&r, x, g, m * kk) + row * kk;
        const double *q = y->data + matrix_at(&r, y, g, n * kk) + column;
        double sum = 0;
        for (int64_t k = 0; k < kk; k++) sum += p[k] * q[k * n];
        c->out[i] = sum;
    }
}

static int64_t pair(const ref_call *c, sn_attr_key key, int i, int64_t otherwise) {
    const sn_attr *a = sn_attr_get(c->n, key);
    return a ? a->v[i] : otherwise;
}

/* Which element of x is multiplied by tap k of the kernel for element e of the result of shape ys;
 * -1: none. */
static int64_t conv_place(const ref_call *c, const int64_t *ys, int64_t e, int64_t k) {
    const int64_t *xs = c->in[0]->shape, *ws = c->in[1]->shape;
    int64_t group_out = ws[0] / sn_attr_int(c->n, SN_A_groups, 1);
    int64_t j = e % ys[3], i = e / ys[3] % ys[2], o = e / (ys[3] * ys[2]) % ys[1];
    int64_t b = e / (ys[3] * ys[2] * ys[1]), p = k / ws[3] % ws[2], q = k % ws[3];
    int64_t channel = o / group_out * ws[1] + k / (ws[2] * ws[3]);
    int64_t row =
        i * pair(c, SN_A_step, 0, 1) + p * pair(c, SN_A_dilate, 0, 1) - pair(c, SN_A_low, 0, 0);
    int64_t column =
        j * pair(c, SN_A_step, 1, 1) + q * pair(c, SN_A_dilate, 1, 1) - pair(c, SN_A_low, 1, 0);
    if (row < 0 || row >= xs[2] || column < 0 || column >= xs[3]) return -1;
    return ((b * xs[1] + channel) * xs[2] + row) * xs[3] + column;
}

/* Every product of the convolution: element e of its result, element at of x, element tap of w. */
static void each_conv_term(const ref_call *c, const int64_t *ys,
                           void (*f)(const ref_call *c, int64_t e, int64_t at, int64_t tap)) {
    const int64_t *ws = c->in[1]->shape;
    int64_t taps = ws[1] * ws[2] * ws[3], n = ys[0] * ys[1] * ys[2] * ys[3];
    for (int64_t e = 0; e < n; e++)
        for (int64_t k = 0; k < taps; k++) {
            int64_t at = conv_place(c, ys, e, k);
            if (at >= 0) f(c, e, at, e / (ys[3] * ys[2]) % ys[1] * taps + k);
        }
}

static void conv_term(const ref_call *c, int64_t e, int64_t at, int64_t tap) {
    c->out[e] += c->in[0]->data[at] * c->in[1]->data[tap];
}

void ref_conv2d(const ref_call *c) {
    const int64_t *ys = c->result->shape;
    for (int64_t e = 0; e < c->result->n; e++)
        c->out[e] = c->n->n_in > 2 ? c->in[2]->data[e / (ys[3] * ys[2]) % ys[1]] : 0;
    each_conv_term(c, ys, conv_term);
}

static void back_to_x(const ref_call *c, int64_t e, int64_t at, int64_t tap) {
    c->out[at] += c->in[2]->data[e] * c->in[1]->data[tap];
}

static void back_to_w(const ref_call *c, int64_t e, int64_t at, int64_t tap) {
    c->out[tap] += c->in[2]->data[e] * c->in[0]->data[at];
}

void ref_conv2d_grad(const ref_call *c) {
    memset(c->out, 0, sizeof *c->out * (size_t)c->result->n);
    each_conv_term(c, c->in[2]->shape, sn_attr_int(c->n, SN_A_index, 0) ? back_to_w : back_to_x);
}

/* ---- embeddings, positions ---- */

void ref_embedding(const ref_call *c) {
    int64_t d = c->in[0]->shape[1];
    for (int64_t i = 0; i < c->result->n; i++)
        c->out[i] = c->in[0]->data[(int64_t)c->in[1]->data[i / d] * d + i % d];
}

void ref_dequantise(const ref_call *c) {
    const sn_value *q = c->in[0];
    const int last = q->rank - 1;
    const int64_t group = sn_attr_int(c->n, SN_A_group, q->shape[last]);
    for (int64_t i = 0; i < q->n; i++) {
        c->out[i] = q->data[i] * c->in[1]->data[i / group];
        if (c->n->n_in > 2) c->out[i] += c->in[2]->data[i / group];
    }
}

/* Integers in f32, in which a quotient near the middle between two of them is rounded. */
void ref_quantise_rows(const ref_call *c) {
    const int64_t k = c->in[0]->shape[c->in[0]->rank - 1], rows = k ? c->in[0]->n / k : 0;
    for (int64_t i = 0; i < rows; i++) {
        const double *x = c->in[0]->data + i * k;
        double max = 1e-30;
        for (int64_t j = 0; j < k; j++) max = fmax(max, fabs(x[j]));
        if (sn_attr_int(c->n, SN_A_index, 0)) c->out[i] = max / 127;
        for (int64_t j = 0; j < k && !sn_attr_int(c->n, SN_A_index, 0); j++)
            c->out[i * k + j] = rint((double)((float)x[j] * (127 / (float)max)));
    }
}

void ref_take_sorted(const ref_call *c) {
    const sn_value *x = c->in[0], *y = c->result;
    int axis = (int)sn_attr_int(c->n, SN_A_axis, 0);
    int64_t inner = 1, n = x->shape[axis], k = y->shape[axis];
    for (int a = axis + 1; a < x->rank; a++) inner *= x->shape[a];
    for (int64_t i = 0; i < y->n; i++) {
        int64_t from = i / inner / k * n + (int64_t)c->in[1]->data[i];
        c->out[i] = x->data[from * inner + i % inner];
    }
}

void ref_one_hot(const ref_call *c) {
    int64_t n = c->result->shape[c->result->rank - 1];
    for (int64_t i = 0; i < c->result->n; i++) c->out[i] = (double)(i % n) == c->in[0]->data[i / n];
}

void ref_sinusoid(const ref_call *c) {
    int64_t d = c->result->shape[c->result->rank - 1];
    double base = sn_attr_flt(c->n, SN_A_base, 10000);
    bool vaswani = sn_attr_int(c->n, SN_A_vaswani, 0);
    for (int64_t e = 0; e < c->result->n; e++) {
        double t = c->in[0]->data[e / d], i = (double)(e % d / 2);
        double angle = vaswani ? t / pow(base, 2 * i / (double)d)
                               : (t + 1) / pow(base, 2 * (i + 1) / (double)d);
        c->out[e] = e % 2 ? cos(angle) : sin(angle);
    }
}

void ref_rope(const ref_call *c) {
    const sn_value *x = c->in[0], *pos = c->in[1];
    int64_t d = x->shape[x->rank - 1], T = x->shape[x->rank - 2], half = d / 2;
    bool interleaved = sn_attr_int(c->n, SN_A_interleaved, 0);
    double base = sn_attr_flt(c->n, SN_A_base, 10000);
    for (int64_t e = 0; e < x->n; e++) {
        int64_t row = e / d, k = e % d, b = row / (x->n / d / x->shape[0]);
        int64_t i = interleaved ? k / 2 : k % half;
        bool second = interleaved ? k % 2 : k >= half;
        double p = pos->data[pos->rank == 2 ? b * T + row % T : row % T];
        double angle =
            p * (c->n->n_in > 2 ? c->in[2]->data[i] : pow(base, -2 * (double)i / (double)d));
        const double *first = x->data + row * d + (interleaved ? 2 * i : i);
        double u = first[0], v = first[interleaved ? 1 : half];
        c->out[e] = second ? u * sin(angle) + v * cos(angle) : u * cos(angle) - v * sin(angle);
    }
}

/* ---- attention ---- */

static const case_region *region_of(const ref_call *c, sn_attr_key key) {
    for (const case_attr *a = c->row->attr; a->used; a++)
        if (a->attr.key == key) return a->region;
    return NULL;
}

/* log_sums: instead of the results */
static void attention_rows(const ref_call *c, bool log_sums) {
    const sn_value *q = c->in[0], *k = c->in[1], *v = c->in[2];
    int64_t H = q->shape[1], Tq = q->shape[2], d = q->shape[3];
    int64_t Hk = k->shape[1], Tk = k->shape[2], dv = v->shape[3];
    double scale = sn_attr_flt(c->n, SN_A_scale, 1 / sqrt((double)d));
    const case_region *score = region_of(c, SN_A_score), *mask = region_of(c, SN_A_mask);
    for (int64_t row = 0; row < q->shape[0] * H * Tq; row++) {
        int64_t at[4] = {row / (H * Tq), row / Tq % H, row % Tq, 0};
        int64_t head = at[0] * Hk + at[1] / (H / Hk);
        double unused[64], *y = log_sums ? unused : c->out + row * dv;
        double sum = sn_attr_int(c->n, SN_A_sink, 0) ? exp(c->in[3]->data[row]) : 0;
        for (int64_t i = 0; i < dv; i++) y[i] = 0;
        for (int64_t j = 0; j < Tk; j++) {
            double s = 0;
            at[3] = j;
            for (int64_t i = 0; i < d; i++)
                s += scale * q->data[row * d + i] * k->data[(head * Tk + j) * d + i];
            if (score) s = score->plain(s, at, c->in);
            if (mask && !mask->plain(s, at, c->in)) continue;
            sum += exp(s);
            for (int64_t i = 0; i < dv; i++) y[i] += exp(s) * v->data[(head * Tk + j) * dv + i];
        }
        for (int64_t i = 0; i < dv && sum > 0; i++) y[i] /= sum;
        if (log_sums) c->out[row] = log(sum);
    }
}

void ref_attention(const ref_call *c) {
    attention_rows(c, false);
}

/* Of the row: a result's node does not have it. */
static int64_t attr_of_row(const ref_call *c, sn_attr_key key, int64_t otherwise) {
    for (const case_attr *a = c->row->attr; a->used; a++)
        if (a->attr.key == key) return a->attr.i;
    return otherwise;
}

static int64_t mixes_of(const ref_call *c) {
    return attr_of_row(c, SN_A_mix, 0);
}

/* Weights of query q of batch b: p[head * Tk + k], and scores before they mix; first: the operand that
 * is the first matrix. */
static void mixed_weights(const ref_call *c, int first, int64_t b, int64_t q, double *raw,
                          double *p) {
    const sn_value *x = c->in[0], *k = c->in[1];
    int64_t H = x->shape[1], Tq = x->shape[2], d = x->shape[3], Tk = k->shape[2];
    int64_t mix = mixes_of(c);
    const case_region *mask = region_of(c, SN_A_mask);
    const double *w = mix & 1 ? c->in[first]->data : NULL;
    double scale = sn_attr_flt(c->n, SN_A_scale, 1 / sqrt((double)d));
    for (int64_t i = 0; i < H * Tk; i++) {
        const double *u = x->data + ((b * H + i / Tk) * Tq + q) * d,
                     *v = k->data + (b * H * Tk + i) * d;
        raw[i] = 0;
        for (int64_t j = 0; j < d; j++) raw[i] += scale * u[j] * v[j];
    }
    for (int64_t h = 0; h < H; h++) {
        double sum = 0;
        for (int64_t j = 0; j < Tk; j++) {
            int64_t at[4] = {b, h, q, j};
            double s = w ? 0 : raw[h * Tk + j];
            for (int64_t g = 0; g < H && w; g++) s += w[h * H + g] * raw[g * Tk + j];
            p[h * Tk + j] = mask && !mask->plain(s, at, c->in) ? 0 : exp(s);
            sum += p[h * Tk + j];
        }
        for (int64_t j = 0; j < Tk && sum > 0; j++) p[h * Tk + j] /= sum;
    }
}

void ref_mixed_attention(const ref_call *c) {
    const sn_value *x = c->in[0], *v = c->in[2];
    int64_t H = x->shape[1], Tq = x->shape[2], Tk = v->shape[2], dv = v->shape[3];
    int64_t mix = mixes_of(c);
    const double *w = mix & 2 ? c->in[3 + (mix & 1)]->data : NULL;
    double *raw = malloc(sizeof *raw * (size_t)(2 * H * Tk + 1)), *p = raw + H * Tk;
    for (int64_t row = 0; raw && row < x->shape[0] * H * Tq; row++) {
        int64_t b = row / (H * Tq), h = row / Tq % H;
        mixed_weights(c, 3, b, row % Tq, raw, p);
        for (int64_t i = 0; i < dv; i++) c->out[row * dv + i] = 0;
        for (int64_t j = 0; j < Tk; j++) {
            double a = w ? 0 : p[h * Tk + j];
            for (int64_t g = 0; g < H && w; g++) a += w[h * H + g] * p[g * Tk + j];
            for (int64_t i = 0; i < dv; i++)
                c->out[row * dv + i] += a * v->data[((b * H + h) * Tk + j) * dv + i];
        }
    }
    free(raw);
}

/* y[g][k] = sum over h of w[g][h] x[h][k], or of w[h][g]; w NULL: x */
static void mix_rows(int64_t H, int64_t n, const double *w, bool transposed, const double *x,
                     double *y) {
    for (int64_t i = 0; i < H * n; i++) {
        int64_t g = i / n;
        y[i] = w ? 0 : x[i];
        for (int64_t h = 0; h < H && w; h++)
            y[i] += w[transposed ? h * H + g : g * H + h] * x[h * n + i % n];
    }
}

/* Key k of dk or dv of query q: [B,H,Tk], or of the kernel [part,B,Tk,H]. */
static int64_t key_row(const ref_call *c, bool parts, int64_t b, int64_t q, int64_t h, int64_t k) {
    int64_t B = c->in[0]->shape[0], H = c->in[0]->shape[1], Tk = c->in[1]->shape[2];
    int64_t all = SN_MIXED_PART_ROWS * attr_of_row(c, SN_A_query_parts, 1);
    int64_t size = (c->in[0]->shape[2] + all - 1) / all * SN_MIXED_PART_ROWS;
    return parts ? ((q / size * B + b) * Tk + k) * H + h : (b * H + h) * Tk + k;
}

/* The row: q, k, v, the cotangent, the matrices; `which`: the operand of mixed_attention. parts: the
 * kernel's result. */
static void mixed_back(const ref_call *c, int64_t which, bool parts) {
    const sn_value *const *in = c->in;
    int64_t H = in[0]->shape[1], Tq = in[0]->shape[2], d = in[0]->shape[3];
    int64_t Tk = in[2]->shape[2], dv = in[2]->shape[3], mix = mixes_of(c);
    int64_t n = H * Tk;
    const double *A = mix & 1 ? in[4]->data : NULL, *C = mix & 2 ? in[4 + (mix & 1)]->data : NULL;
    double scale = sn_attr_flt(c->n, SN_A_scale, 1 / sqrt((double)d));
    double *raw = malloc(sizeof *raw * (size_t)(6 * n + 1)), *p = raw + n, *da = p + n;
    double *dp = da + n, *dqk = dp + n, *w = dqk + n;
    for (int64_t r = 0; raw && r < in[0]->shape[0] * Tq; r++) {
        int64_t b = r / Tq, q = r % Tq;
        mixed_weights(c, 4, b, q, raw, p);
        for (int64_t i = 0; i < n; i++) {
            da[i] = 0;
            for (int64_t j = 0; j < dv; j++)
                da[i] += in[3]->data[((b * H + i / Tk) * Tq + q) * dv + j] *
                         in[2]->data[(b * n + i) * dv + j];
        }
        mix_rows(H, Tk, C, true, da, dp);
        for (int64_t h = 0; h < H; h++) {
            double sum = 0;
            for (int64_t i = h * Tk; i < (h + 1) * Tk; i++) sum += p[i] * dp[i];
            for (int64_t i = h * Tk; i < (h + 1) * Tk; i++) dp[i] = p[i] * (dp[i] - sum);
        }
        mix_rows(H, Tk, A, true, dp, dqk);
        mix_rows(H, Tk, C, false, p, w);
        for (int64_t i = 0; i < n; i++) {
            int64_t row = (b * H + i / Tk) * Tq + q, key = b * n + i;
            int64_t to = key_row(c, parts, b, q, i / Tk, i % Tk);
            for (int64_t j = 0; j < d && which == 0; j++)
                c->out[row * d + j] += scale * dqk[i] * in[1]->data[key * d + j];
            for (int64_t j = 0; j < d && which == 1; j++)
                c->out[to * d + j] += scale * dqk[i] * in[0]->data[row * d + j];
            for (int64_t j = 0; j < dv && which == 2; j++)
                c->out[to * dv + j] += w[i] * in[3]->data[row * dv + j];
            for (int64_t h = 0; h < H && which >= 3; h++) {
                bool of_scores = which == 3 && (mix & 1);
                c->out[i / Tk * H + h] +=
                    of_scores ? dp[i] * raw[h * Tk + i % Tk] : da[i] * p[h * Tk + i % Tk];
            }
        }
    }
    free(raw);
}

void ref_mixed_attention_grad(const ref_call *c) {
    mixed_back(c, sn_attr_int(c->n, SN_A_index, 0), false);
}

void ref_flash_mixed_grad(const ref_call *c) {
    mixed_back(c, c->row->index, true);
}

/* On one rank. */
void ref_ring_attention(const ref_call *c) {
    attention_rows(c, false);
}

void ref_attention_lse(const ref_call *c) {
    attention_rows(c, true);
}

/* The derivative of the score region at x, by fourth-order differences. */
static double slope_of(const case_region *score, double x, const int64_t *at,
                       const sn_value *const *in) {
    const double h = 1e-3;
    if (!score) return 1;
    double near = score->plain(x + h, at, in) - score->plain(x - h, at, in);
    double far = score->plain(x + 2 * h, at, in) - score->plain(x - 2 * h, at, in);
    return (8 * near - far) / (12 * h);
}

/* The row: q, k, v, g, captured: d of sum(g attention) by operand `which`; captured tensors are
 * added tables [H, Tq, Tk]. p: room for Tk weights, derivatives and derivatives of weights. */
static void attention_back(const ref_call *c, int which, double *p) {
    const sn_value *const *in = c->in, *fwd[MAX_IN];
    const sn_value *q = in[0], *k = in[1], *v = in[2], *g = in[3];
    int64_t H = q->shape[1], Tq = q->shape[2], d = q->shape[3];
    int64_t Hk = k->shape[1], Tk = k->shape[2], dv = v->shape[3];
    double scale = sn_attr_flt(c->n, SN_A_scale, 1 / sqrt((double)d)), *slope = p + Tk,
           *dp = slope + Tk;
    const case_region *score = region_of(c, SN_A_score), *mask = region_of(c, SN_A_mask);
    bool lse = sn_attr_int(c->n, SN_A_lse, 0) != 0;
    for (int i = 0; i < op_case_n_in(c->row) - 1; i++) fwd[i] = in[i < 3 ? i : i + 1];
    for (int64_t row = 0; row < q->shape[0] * H * Tq; row++) {
        int64_t at[4] = {row / (H * Tq), row / Tq % H, row % Tq, 0};
        int64_t head = at[0] * Hk + at[1] / (H / Hk);
        double sum = 0, mean = 0;
        for (int64_t j = 0; j < Tk; j++) {
            double s = 0;
            at[3] = j;
            dp[j] = 0;
            for (int64_t i = 0; i < d; i++)
                s += scale * q->data[row * d + i] * k->data[(head * Tk + j) * d + i];
            for (int64_t i = 0; i < dv; i++)
                dp[j] += g->data[row * dv + i] * v->data[(head * Tk + j) * dv + i];
            slope[j] = slope_of(score, s, at, fwd);
            s = score ? score->plain(s, at, fwd) : s;
            p[j] = mask && !mask->plain(s, at, fwd) ? 0 : exp(s);
            sum += p[j];
        }
        for (int64_t j = 0; j < Tk; j++) {
            if (sum > 0) p[j] /= sum;
            mean += p[j] * dp[j];
        }
        for (int64_t i = 0; i < dv && lse; i++) mean -= g->data[row * dv + i]; /* its cotangent */
        for (int64_t j = 0; j < Tk; j++) {
            double ds = p[j] * (dp[j] - mean), raw = ds * slope[j] * scale;
            int64_t key = head * Tk + j;
            for (int64_t i = 0; i < d && which == 0; i++)
                c->out[row * d + i] += raw * k->data[key * d + i];
            for (int64_t i = 0; i < d && which == 1; i++)
                c->out[key * d + i] += raw * q->data[row * d + i];
            for (int64_t i = 0; i < dv && which == 2; i++)
                c->out[key * dv + i] += p[j] * g->data[row * dv + i];
            if (which == 3) c->out[row % (H * Tq) * Tk + j] += ds;
        }
    }
}

void ref_attention_grad(const ref_call *c) {
    double *p = malloc(sizeof *p * (size_t)(3 * c->in[1]->shape[2] + 1));
    if (p) attention_back(c, (int)sn_attr_int(c->n, SN_A_index, 0), p);
    free(p);
}

/* Results 0, 1 and 2 are those of the composite. */
void ref_flash_grad(const ref_call *c) {
    double *p = malloc(sizeof *p * (size_t)(3 * c->in[1]->shape[2] + 1));
    if (p) attention_back(c, c->row->index, p);
    free(p);
}

/* ---- losses and noise ---- */

void ref_cross_entropy(const ref_call *c) {
    rows r = rows_of(c->in[0], c->in[0]->rank - 1);
    for (int64_t i = 0; i < r.count; i++) {
        const double *x = c->in[0]->data + i * r.size;
        double t = c->in[1]->data[i];
        bool is_class = t >= 0 && t < (double)r.size;
        c->out[i] = is_class ? log_sum(x, r) - x[(int64_t)t] : 0;
    }
}

void ref_dropout(const ref_call *c) {
    /* random is a primitive: evaluate it in another module */
    sn_module *m = sn_module_new("draw");
    sn_dim two = 2, n = c->in[0]->n;
    sn_node *seed =
        sn_node_new(m, SN_OP_input, 0, NULL,
                    SN_ATTRS(SN_STR(name, "s"), SN_INT(dtype, SN_I64), SN_LIST(shape, 1, &two)));
    int64_t stream = sn_attr_int(c->n, SN_A_stream, 0);
    sn_node *u = SN_NODE(m, random, SN_ATTRS(SN_INT(stream, stream), SN_LIST(shape, 1, &n)), seed);
    sn_eval *ev = sn_eval_new(m, NULL);
    int64_t raw[2] = {(int64_t)c->in[1]->data[0], (int64_t)c->in[1]->data[1]};
    sn_eval_bind(ev, "s", raw, sizeof raw);
    const sn_value *draw = sn_eval_node(ev, u);
    double rate = sn_attr_flt(c->n, SN_A_rate, 0);
    for (int64_t i = 0; draw && i < n; i++)
        c->out[i] = draw->data[i] < rate ? 0 : c->in[0]->data[i] / (1 - rate);
    sn_eval_free(ev);
    sn_module_free(m);
}

/* ---- the fused rows ---- */

/* map_reduce with the body softmax(x + y) on the last axis */
void ref_map_reduce_softmax(const ref_call *c) {
    rows r = rows_of(c->in[0], c->in[0]->rank - 1);
    for (int64_t i = 0; i < r.count; i++) {
        double sum = 0, *y = c->out + i * r.size;
        for (int64_t k = 0; k < r.size; k++) {
            y[k] = exp(c->in[0]->data[i * r.size + k] + c->in[1]->data[i * r.size + k]);
            sum += y[k];
        }
        for (int64_t k = 0; k < r.size; k++) y[k] /= sum;
    }
}

/* exp(x w) row by row, or (result 1) its sum over the rows */
void ref_exp_rows(const ref_call *c) {
    const sn_value *x = c->in[0], *w = c->in[1];
    int64_t rows = x->shape[0], kk = w->shape[0], n = w->shape[1];
    for (int64_t j = 0; j < c->result->n; j++) c->out[j] = 0;
    for (int64_t i = 0; i < rows * n; i++) {
        double y = 0;
        for (int64_t k = 0; k < kk; k++) y += x->data[i / n * kk + k] * w->data[k * n + i % n];
        c->out[c->row->index ? i % n : i] += exp(y);
    }
}

/* max(0, (x gain) w + bias), w [K, N] plain or in panels of 32 columns */
void ref_gemm(const ref_call *c) {
    const sn_value *x = c->in[0], *w = c->in[1];
    int64_t kk = x->shape[1], n = c->result->shape[1];
    for (int64_t i = 0; i < c->result->n; i++) {
        double sum = c->in[3]->data[i % n];
        for (int64_t k = 0; k < kk; k++) {
            int64_t j = i % n, at = k * n + j, p = w->shape[w->rank - 1];
            if (w->rank == 3) at = (j / p * kk + k) * p + j % p; /* in panels */
            sum += x->data[i / n * kk + k] * c->in[2]->data[k] * w->data[at];
        }
        c->out[i] = sum > 0 ? sum : 0;
    }
}

/* max(0, x g) (x u): half of a panel holds columns of g, the other half the same of u */
void ref_gate(const ref_call *c) {
    const sn_value *x = c->in[0], *w = c->in[1];
    int64_t kk = x->shape[1], n = c->result->shape[1], half = w->shape[2] / 2;
    for (int64_t i = 0; i < c->result->n; i++) {
        int64_t j = i % n, panel = j / half * kk;
        double gate = 0, up = 0;
        for (int64_t k = 0; k < kk; k++) {
            double a = x->data[i / n * kk + k];
            const double *row = w->data + (panel + k) * 2 * half + j % half;
            gate += a * row[0], up += a * row[half];
        }
        c->out[i] = gate > 0 ? gate * up : 0;
    }
}
