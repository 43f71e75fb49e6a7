/* eval_prims.c: defines the structural primitives, one function per row of ops.def. Naive loops
 * over row-major doubles; sums run in ascending order of the index. Every function computes its
 * result's shape from values and attributes, independently of infer.c. */
#include "ir/eval_impl.h"
#include "runtime/rng.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- walking strided tensors ---- */

static void strides_of(int rank, const int64_t *shape, int64_t *stride) {
    int64_t s = 1;
    for (int i = rank; i-- > 0; s *= shape[i]) stride[i] = s;
}

/* dst[i . dst_stride] = src[i . src_stride] for every index i of the shape. */
static void copy_strided(int rank, const int64_t *shape, double *dst, const int64_t *dst_stride,
                         const double *src, const int64_t *src_stride) {
    if (rank == 0) {
        *dst = *src;
        return;
    }
    for (int64_t i = 0; i < shape[0]; i++)
        copy_strided(rank - 1, shape + 1, dst + i * dst_stride[0], dst_stride + 1,
                     src + i * src_stride[0], src_stride + 1);
}

static int64_t product(int n, const int64_t *v) {
    int64_t p = 1;
    for (int i = 0; i < n; i++) p *= v[i];
    return p;
}

/* The values of a list attribute, with dimensions evaluated. Absent: `otherwise` for every axis. */
static void read_list(const eval_call *c, sn_attr_key key, int n, int64_t *out, int64_t otherwise) {
    const sn_attr *a = sn_attr_get(c->n, key);
    bool dims = sn_attr_table[key].kind == SN_AK_DIMS;
    for (int i = 0; i < n; i++)
        out[i] = !a || i >= a->n ? otherwise : dims ? sn_eval_dim(c, a->v[i]) : a->v[i];
}

/* The shape attribute; returns its rank. */
static int read_shape(const eval_call *c, int64_t *shape) {
    const sn_attr *a = sn_attr_get(c->n, SN_A_shape);
    int rank = a ? a->n : 0;
    read_list(c, SN_A_shape, rank, shape, 0);
    return rank;
}

static sn_dtype read_dtype(const eval_call *c) {
    return (sn_dtype)sn_attr_int(c->n, SN_A_dtype, SN_F32);
}

/* Whether v is an index below size. If not, records which index exceeds which bound. */
static bool check_index(eval_call *c, const char *what, double v, int64_t size) {
    if (v >= 0 && v < (double)size) return true;
    return sn_eval_fail(c, SN_ERR_RANGE, "%s %.0f is outside [0, %lld)", what, v, (long long)size);
}

/* Whether [start, start + size) with its step lies inside an axis of `bound` elements. */
static bool check_window(eval_call *c, int axis, int64_t start, int64_t size, int64_t step,
                         int64_t bound) {
    if (start >= 0 && size >= 0 && step > 0 && start <= bound &&
        (size == 0 || start + (size - 1) * step < bound))
        return true;
    return sn_eval_fail(c, SN_ERR_RANGE,
                        "axis %d: %lld elements from %lld, step %lld, are not within %lld", axis,
                        (long long)size, (long long)start, (long long)step, (long long)bound);
}

/* An axis attribute splits x into [outer, axis, inner]. */
typedef struct split {
    int axis;
    int64_t outer, size, inner;
} split;

static split split_at(const eval_call *c, const sn_value *x) {
    int axis = (int)sn_attr_int(c->n, SN_A_axis, 0);
    return (split){axis, product(axis, x->shape), x->shape[axis],
                   product(x->rank - axis - 1, x->shape + axis + 1)};
}

static double lowest(sn_dtype t) {
    switch (t) {
    case SN_I8:
        return INT8_MIN;
    case SN_I32:
        return INT32_MIN;
    case SN_I64:
        return (double)INT64_MIN;
    case SN_U8:
    case SN_BOOL:
        return 0;
    default:
        return -INFINITY;
    }
}

static double highest(sn_dtype t) {
    switch (t) {
    case SN_I8:
        return INT8_MAX;
    case SN_I32:
        return INT32_MAX;
    case SN_I64:
        return (double)INT64_MAX;
    case SN_U8:
        return UINT8_MAX;
    case SN_BOOL:
        return 1;
    default:
        return INFINITY;
    }
}

/* ---- leaves ---- */

bool eval_input(eval_call *c) {
    return sn_eval_leaf(c);
}

bool eval_param(eval_call *c) {
    return sn_eval_leaf(c);
}

bool eval_state(eval_call *c) {
    return sn_eval_leaf(c);
}

bool eval_const(eval_call *c) {
    double *out = sn_eval_alloc(c, read_dtype(c), 0, NULL);
    if (out) *out = sn_eval_number(c, c->out->dtype, sn_attr_flt(c->n, SN_A_value, 0), false);
    return out;
}

bool eval_arg(eval_call *c) {
    return sn_eval_fail(c, SN_ERR_USAGE, "an argument of a region has no value outside of it");
}

bool eval_dim_value(eval_call *c) {
    double *out = sn_eval_alloc(c, read_dtype(c), 0, NULL);
    if (!out) return false;
    *out = (double)sn_eval_dim(c, sn_attr_int(c->n, SN_A_dim, 0));
    *out = sn_eval_number(c, c->out->dtype, *out, true);
    return true;
}

bool eval_iota(eval_call *c) {
    int64_t shape[SN_MAX_RANK];
    int rank = read_shape(c, shape);
    double *out = sn_eval_alloc(c, read_dtype(c), rank, shape);
    if (!out) return false;
    split s = split_at(c, c->out);
    for (int64_t i = 0; i < c->out->n; i++)
        out[i] = sn_eval_number(c, c->out->dtype, (double)(i / s.inner % s.size), true);
    return true;
}

bool eval_random(eval_call *c) {
    int64_t shape[SN_MAX_RANK];
    int rank = read_shape(c, shape);
    double *out = sn_eval_alloc(c, read_dtype(c), rank, shape);
    if (!out) return false;
    if (c->in[0]->n != 2)
        return sn_eval_fail(c, SN_ERR_SHAPE, "the operand must be [seed, step], not %lld numbers",
                            (long long)c->in[0]->n);
    sn_rng r = {.seed = (uint64_t)(int64_t)c->in[0]->data[0],
                .stream = (uint32_t)sn_attr_int(c->n, SN_A_stream, 0),
                .step = (uint32_t)(int64_t)c->in[0]->data[1]};
    for (int64_t e = 0; e < c->out->n; e++)
        out[e] =
            sn_eval_number(c, c->out->dtype, sn_bits_uniform(sn_rng_at(&r, (uint64_t)e)), true);
    return true;
}

/* ---- movement ---- */

bool eval_broadcast(eval_call *c) {
    const sn_value *x = c->in[0];
    int64_t shape[SN_MAX_RANK], x_stride[SN_MAX_RANK], from[SN_MAX_RANK], to[SN_MAX_RANK];
    int rank = read_shape(c, shape), lead = rank - x->rank;
    double *out = sn_eval_alloc(c, x->dtype, rank, shape);
    if (!out) return false;
    strides_of(x->rank, x->shape, x_stride);
    strides_of(rank, shape, to);
    for (int i = 0; i < rank; i++) {
        bool repeated = i < lead || (x->shape[i - lead] == 1 && shape[i] != 1);
        if (!repeated && x->shape[i - lead] != shape[i])
            return sn_eval_fail(c, SN_ERR_SHAPE,
                                "axis %d: %lld elements cannot be broadcast to %lld", i - lead,
                                (long long)x->shape[i - lead], (long long)shape[i]);
        from[i] = repeated ? 0 : x_stride[i - lead];
    }
    copy_strided(rank, shape, out, to, x->data, from);
    return true;
}

bool eval_reshape(eval_call *c) {
    int64_t shape[SN_MAX_RANK];
    int rank = read_shape(c, shape);
    return sn_eval_alias(c, rank, shape);
}

bool eval_transpose(eval_call *c) {
    const sn_value *x = c->in[0];
    int64_t perm[SN_MAX_RANK], shape[SN_MAX_RANK], x_stride[SN_MAX_RANK];
    int64_t from[SN_MAX_RANK], to[SN_MAX_RANK];
    read_list(c, SN_A_perm, x->rank, perm, 0);
    strides_of(x->rank, x->shape, x_stride);
    for (int i = 0; i < x->rank; i++) {
        shape[i] = x->shape[perm[i]];
        from[i] = x_stride[perm[i]];
    }
    double *out = sn_eval_alloc(c, x->dtype, x->rank, shape);
    if (!out) return false;
    strides_of(x->rank, shape, to);
    copy_strided(x->rank, shape, out, to, x->data, from);
    return true;
}

bool eval_slice(eval_call *c) {
    const sn_value *x = c->in[0];
    int64_t start[SN_MAX_RANK], size[SN_MAX_RANK], step[SN_MAX_RANK];
    int64_t from[SN_MAX_RANK], to[SN_MAX_RANK], at = 0;
    read_list(c, SN_A_start, x->rank, start, 0);
    read_list(c, SN_A_size, x->rank, size, 0);
    read_list(c, SN_A_step, x->rank, step, 1);
    strides_of(x->rank, x->shape, from);
    for (int i = 0; i < x->rank; i++) {
        if (!check_window(c, i, start[i], size[i], step[i], x->shape[i])) return false;
        at += start[i] * from[i];
        from[i] *= step[i];
    }
    double *out = sn_eval_alloc(c, x->dtype, x->rank, size);
    if (!out) return false;
    strides_of(x->rank, size, to);
    if (c->out->n) copy_strided(x->rank, size, out, to, x->data + at, from);
    return true;
}

/* Writes y into dst, whose elements have shape `whole`, from index `start` on. */
static bool write_window(eval_call *c, double *dst, int rank, const int64_t *whole,
                         const sn_value *y, const int64_t *start) {
    int64_t from[SN_MAX_RANK], to[SN_MAX_RANK], at = 0;
    strides_of(rank, whole, to);
    strides_of(rank, y->shape, from);
    for (int i = 0; i < rank; i++) {
        if (!check_window(c, i, start[i], y->shape[i], 1, whole[i])) return false;
        at += start[i] * to[i];
    }
    if (y->n) copy_strided(rank, y->shape, dst + at, to, y->data, from);
    return true;
}

bool eval_concat(eval_call *c) {
    const sn_value *x = c->in[0];
    int axis = (int)sn_attr_int(c->n, SN_A_axis, 0);
    int64_t shape[SN_MAX_RANK], start[SN_MAX_RANK] = {0};
    memcpy(shape, x->shape, sizeof shape);
    for (int i = 1; i < c->n->n_in; i++) shape[axis] += c->in[i]->shape[axis];
    double *out = sn_eval_alloc(c, x->dtype, x->rank, shape);
    if (!out) return false;
    for (int i = 0; i < c->n->n_in; i++) {
        if (!write_window(c, out, x->rank, shape, c->in[i], start)) return false;
        start[axis] += c->in[i]->shape[axis];
    }
    return true;
}

bool eval_pad(eval_call *c) {
    const sn_value *x = c->in[0];
    int64_t low[SN_MAX_RANK], high[SN_MAX_RANK], shape[SN_MAX_RANK];
    read_list(c, SN_A_low, x->rank, low, 0);
    read_list(c, SN_A_high, x->rank, high, 0);
    for (int i = 0; i < x->rank; i++) shape[i] = low[i] + x->shape[i] + high[i];
    double *out = sn_eval_alloc(c, x->dtype, x->rank, shape);
    if (!out) return false;
    double value = sn_eval_number(c, x->dtype, sn_attr_flt(c->n, SN_A_value, 0), false);
    for (int64_t i = 0; i < c->out->n; i++) out[i] = value;
    return write_window(c, out, x->rank, shape, x, low);
}

bool eval_update_slice(eval_call *c) {
    const sn_value *x = c->in[0];
    int64_t start[SN_MAX_RANK];
    read_list(c, SN_A_start, x->rank, start, 0);
    double *out = sn_eval_alloc(c, x->dtype, x->rank, x->shape);
    if (!out) return false;
    memcpy(out, x->data, sizeof *out * (size_t)x->n);
    return write_window(c, out, x->rank, x->shape, c->in[1], start);
}

bool eval_update_rows(eval_call *c) {
    const sn_value *x = c->in[0], *y = c->in[1];
    int axis = (int)sn_attr_int(c->n, SN_A_axis, 0);
    int64_t start[SN_MAX_RANK] = {0};
    double *out = sn_eval_alloc(c, x->dtype, x->rank, x->shape);
    if (!out) return false;
    memcpy(out, x->data, sizeof *out * (size_t)x->n);
    sn_value row = *y;
    row.shape[0] = 1;
    row.n = product(y->rank, row.shape);
    for (int64_t b = 0; b < y->shape[0]; b++, row.data += row.n) {
        if (!check_index(c, "position", c->in[2]->data[b], x->shape[axis] - y->shape[axis] + 1))
            return false;
        start[0] = b;
        start[axis] = (int64_t)c->in[2]->data[b];
        if (!write_window(c, out, x->rank, x->shape, &row, start)) return false;
    }
    return true;
}

bool eval_result(eval_call *c) {
    int64_t i = sn_attr_int(c->n, SN_A_index, 0);
    *c->out = c->in[0][i];
    return true;
}

/* ---- sums and maxima ---- */

static bool reduce(eval_call *c, double first, sn_op op) {
    const sn_value *x = c->in[0];
    const sn_attr *axes = sn_attr_get(c->n, SN_A_axes);
    int64_t shape[SN_MAX_RANK], stride[SN_MAX_RANK], x_stride[SN_MAX_RANK];
    memcpy(shape, x->shape, sizeof shape);
    for (int i = 0; axes && i < axes->n; i++) shape[axes->v[i]] = 1;
    double *out = sn_eval_alloc(c, x->dtype, x->rank, shape);
    if (!out) return false;
    first = sn_eval_number(c, x->dtype, first, true);
    for (int64_t i = 0; i < c->out->n; i++) out[i] = first;
    strides_of(x->rank, x->shape, x_stride);
    strides_of(x->rank, shape, stride);
    for (int i = 0; axes && i < axes->n; i++) stride[axes->v[i]] = 0;
    for (int64_t i = 0; i < x->n; i++) {
        int64_t to = 0;
        for (int k = 0; k < x->rank; k++) to += i / x_stride[k] % x->shape[k] * stride[k];
        out[to] = sn_eval_elem(c, op, x->dtype, out[to], x->data[i]);
    }
    return true;
}

bool eval_reduce_sum(eval_call *c) {
    return reduce(c, 0, SN_OP_add);
}

bool eval_reduce_max(eval_call *c) {
    return reduce(c, lowest(c->in[0]->dtype), SN_OP_max);
}

bool eval_reduce_min(eval_call *c) {
    return reduce(c, highest(c->in[0]->dtype), SN_OP_min);
}

/* Whether x is above y; NaN is above all numbers. */
static bool is_above(const eval_call *c, sn_dtype t, double x, double y) {
    if (sn_eval_elem(c, SN_OP_ne, t, x, x) != 0) return sn_eval_elem(c, SN_OP_eq, t, y, y) != 0;
    return sn_eval_elem(c, SN_OP_lt, t, y, x) != 0;
}

bool eval_argmax(eval_call *c) {
    const sn_value *x = c->in[0];
    split s = split_at(c, x);
    int64_t shape[SN_MAX_RANK];
    memcpy(shape, x->shape, sizeof shape);
    shape[s.axis] = 1;
    double *out = sn_eval_alloc(c, SN_I32, x->rank, shape);
    if (!out) return false;
    /* an empty axis gives index 0; NaN counts as the maximum */
    for (int64_t o = 0; o < c->out->n; o++) {
        const double *row = x->data + o / s.inner * s.size * s.inner + o % s.inner;
        int64_t best = 0;
        for (int64_t i = 1; i < s.size; i++)
            if (is_above(c, x->dtype, row[i * s.inner], row[best * s.inner])) best = i;
        out[o] = (double)best;
    }
    return true;
}

/* Whether element i of a row comes before element j; equal ones keep their order. */
static bool sorts_before(const eval_call *c, const double *row, int64_t inner, int64_t i, int64_t j,
                         bool descending) {
    double x = row[i * inner], y = row[j * inner];
    sn_dtype t = c->in[0]->dtype;
    bool above = is_above(c, t, x, y), below = is_above(c, t, y, x);
    return (descending ? above : below) || (!above && !below && i < j);
}

/* Merges the sorted runs [lo, mid) and [mid, hi) of order into out. */
static void merge_runs(const eval_call *c, const double *row, int64_t inner, bool descending,
                       const double *order, double *out, int64_t lo, int64_t mid, int64_t hi) {
    for (int64_t at = lo, i = lo, j = mid; at < hi; at++) {
        bool left = i < mid && (j == hi || sorts_before(c, row, inner, (int64_t)order[i],
                                                        (int64_t)order[j], descending));
        out[at] = left ? order[i++] : order[j++];
    }
}

bool eval_argsort(eval_call *c) {
    const sn_value *x = c->in[0];
    split s = split_at(c, x);
    const sn_attr *size = sn_attr_get(c->n, SN_A_size);
    int64_t shape[SN_MAX_RANK], k = size ? sn_eval_dim(c, size->v[0]) : s.size;
    bool descending = sn_attr_int(c->n, SN_A_descending, 0) != 0;
    if (k < 0 || k > s.size)
        return sn_eval_fail(c, SN_ERR_RANGE, "%lld indices of %lld elements", (long long)k,
                            (long long)s.size);
    memcpy(shape, x->shape, sizeof shape);
    shape[s.axis] = k;
    double *out = sn_eval_alloc(c, SN_I32, x->rank, shape);
    sn_value orders;
    eval_call scratch = {c->ev, c->n, c->in, &orders};
    double *order = out ? sn_eval_alloc(&scratch, SN_I64, 1, &(int64_t){2 * s.size}) : NULL;
    if (!order) return false;
    for (int64_t r = 0; r < s.outer * s.inner; r++) {
        int64_t from = r / s.inner * s.inner * s.size + r % s.inner;
        int64_t to = r / s.inner * s.inner * k + r % s.inner, n = s.size;
        double *a = order, *b = order + n;
        for (int64_t i = 0; i < n; i++) a[i] = (double)i;
        for (int64_t run = 1; run < n; run *= 2) {
            for (int64_t lo = 0; lo < n; lo += 2 * run) {
                int64_t mid = lo + run < n ? lo + run : n, hi = mid + run < n ? mid + run : n;
                merge_runs(c, x->data + from, s.inner, descending, a, b, lo, mid, hi);
            }
            double *swap = a;
            a = b, b = swap;
        }
        for (int64_t i = 0; i < k; i++) out[to + i * s.inner] = a[i];
    }
    return true;
}

bool eval_cumsum(eval_call *c) {
    const sn_value *x = c->in[0];
    split s = split_at(c, x);
    double *out = sn_eval_alloc(c, x->dtype, x->rank, x->shape);
    if (!out) return false;
    for (int64_t i = 0; i < x->n; i++) {
        bool first = i / s.inner % s.size == 0;
        out[i] =
            first ? x->data[i] : sn_eval_elem(c, SN_OP_add, x->dtype, x->data[i], out[i - s.inner]);
    }
    return true;
}

/* ---- products ---- */

/* One factor of a dot as [batch, free, contract]: the order of its axes and the three sizes. */
typedef struct factor {
    int64_t order[SN_MAX_RANK];
    int n_batch, n_free, n_contract;
    int64_t batch, free, contract;
} factor;

static factor read_factor(const eval_call *c, const sn_value *x, sn_attr_key batch,
                          sn_attr_key contract) {
    const sn_attr *b = sn_attr_get(c->n, batch), *k = sn_attr_get(c->n, contract);
    factor f = {.batch = 1, .free = 1, .contract = 1};
    bool taken[SN_MAX_RANK] = {false};
    int n = 0;
    for (int i = 0; b && i < b->n; i++, f.n_batch++) taken[f.order[n++] = b->v[i]] = true;
    for (int i = 0; k && i < k->n; i++) taken[k->v[i]] = true;
    for (int i = 0; i < x->rank; i++)
        if (!taken[i]) f.order[n++] = i, f.n_free++;
    for (int i = 0; k && i < k->n; i++, f.n_contract++) f.order[n++] = k->v[i];
    for (int i = 0; i < f.n_batch; i++) f.batch *= x->shape[f.order[i]];
    for (int i = 0; i < f.n_free; i++) f.free *= x->shape[f.order[f.n_batch + i]];
    for (int i = n - f.n_contract; i < n; i++) f.contract *= x->shape[f.order[i]];
    return f;
}

/* Room for n numbers; memory of the evaluator. */
static double *make_room(eval_call *c, int64_t n) {
    sn_value room;
    eval_call scratch = {c->ev, c->n, c->in, &room};
    return sn_eval_alloc(&scratch, c->in[0]->dtype, 1, &n);
}

/* The factor's elements in that order. */
static double *pack_factor(eval_call *c, const sn_value *x, const factor *f) {
    int64_t shape[SN_MAX_RANK], x_stride[SN_MAX_RANK], from[SN_MAX_RANK], to[SN_MAX_RANK];
    strides_of(x->rank, x->shape, x_stride);
    for (int i = 0; i < x->rank; i++) {
        shape[i] = x->shape[f->order[i]];
        from[i] = x_stride[f->order[i]];
    }
    double *out = make_room(c, x->n);
    if (!out) return NULL;
    strides_of(x->rank, shape, to);
    copy_strided(x->rank, shape, out, to, x->data, from);
    return out;
}

/* f32 in which what is subnormal is 0. */
static float normal(float x) {
    return fabsf(x) < FLT_MIN ? 0 : x;
}

double sn_eval_bf16(double x) {
    return (double)sn_bf16_to_f32(sn_f32_to_bf16(normal((float)x)));
}

static void round_to_bf16(double *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] = sn_eval_bf16(x[i]);
}

/* The sum of n products of bf16 by pairs, the odd one first. */
static double sum_bf16(const double *x, const double *y, int64_t n) {
    float sum = 0;
    for (int64_t i = 0; i < n; i += 2)
        for (int64_t k = i + 1; k >= i; k--)
            if (k < n) sum = normal(fmaf((float)x[k], (float)y[k], sum));
    return (double)sum;
}

/* out[i, j] = the sum over k < n of the products of row i of p and row j of q, which bf16 rounds. */
static void multiply_rows(eval_call *c, double *p, int64_t rows, double *q, int64_t columns,
                          int64_t n, double *out) {
    const bool bf16 = sn_eval_takes_bf16(c);
    if (bf16) round_to_bf16(p, rows * n);
    if (bf16) round_to_bf16(q, columns * n);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            out[i * columns + j] =
                bf16 ? sum_bf16(p + i * n, q + j * n, n) : sn_eval_sum(c, p + i * n, q + j * n, n);
}

bool eval_dot(eval_call *c) {
    const sn_value *x = c->in[0], *y = c->in[1];
    factor a = read_factor(c, x, SN_A_batch_a, SN_A_contract_a);
    factor b = read_factor(c, y, SN_A_batch_b, SN_A_contract_b);
    int64_t shape[2 * SN_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < a.n_batch + a.n_free; i++) shape[rank++] = x->shape[a.order[i]];
    for (int i = 0; i < b.n_free; i++) shape[rank++] = y->shape[b.order[b.n_batch + i]];
    double *p = pack_factor(c, x, &a), *q = pack_factor(c, y, &b);
    double *out = p && q ? sn_eval_alloc(c, x->dtype, rank, shape) : NULL;
    if (!out) return false;
    for (int64_t g = 0; g < a.batch; g++)
        multiply_rows(c, p + g * a.free * a.contract, a.free, q + g * b.free * a.contract, b.free,
                      a.contract, out + g * a.free * b.free);
    return true;
}

/* Row i of X is y's minus the products with the rows before it, or of the transposed matrix after it. */
bool eval_solve_triangular(eval_call *c) {
    const sn_value *x = c->in[0], *y = c->in[1];
    const bool transposed = sn_attr_int(c->n, SN_A_transposed, 0) != 0;
    const int64_t T = y->shape[y->rank - 2], n = y->shape[y->rank - 1];
    double *out = sn_eval_alloc(c, y->dtype, y->rank, y->shape);
    if (!out) return false;
    if (y->n) memcpy(out, y->data, sizeof *out * (size_t)y->n);
    for (int64_t at = 0; at < y->n; at += T * n)
        for (int64_t i = 0; i < T; i++)
            for (int64_t j = 0; j < i; j++) {
                const int64_t to = transposed ? T - 1 - i : i, from = transposed ? T - 1 - j : j;
                const double l = x->data[at / n * T + (transposed ? from * T + to : to * T + from)];
                for (int64_t k = 0; k < n; k++) {
                    double *y = &out[at + to * n + k];
                    double part = sn_eval_elem(c, SN_OP_mul, x->dtype, l, out[at + from * n + k]);
                    *y = sn_eval_elem(c, SN_OP_sub, x->dtype, *y, part);
                }
            }
    return true;
}

/* ---- indexed reading and writing ---- */

bool eval_gather(eval_call *c) {
    const sn_value *x = c->in[0], *y = c->in[1];
    split s = split_at(c, x);
    int64_t shape[2 * SN_MAX_RANK];
    int rank = x->rank - 1 + y->rank;
    memcpy(shape, x->shape, sizeof *shape * (size_t)s.axis);
    memcpy(shape + s.axis, y->shape, sizeof *shape * (size_t)y->rank);
    memcpy(shape + s.axis + y->rank, x->shape + s.axis + 1,
           sizeof *shape * (size_t)(x->rank - s.axis - 1));
    double *out = sn_eval_alloc(c, x->dtype, rank, shape);
    if (!out) return false;
    for (int64_t j = 0; j < y->n; j++) {
        if (!check_index(c, "index", y->data[j], s.size)) return false;
        for (int64_t o = 0; o < s.outer; o++)
            memcpy(out + (o * y->n + j) * s.inner,
                   x->data + (o * s.size + (int64_t)y->data[j]) * s.inner,
                   sizeof *out * (size_t)s.inner);
    }
    return true;
}

bool eval_take_blocks(eval_call *c) {
    const sn_value *x = c->in[0], *y = c->in[1];
    int64_t blocks = sn_attr_int(c->n, SN_A_blocks, 1), shape[SN_MAX_RANK + 1];
    int64_t columns = x->shape[x->rank - 1], k = y->shape[y->rank - 1], size = columns / blocks;
    memcpy(shape, y->shape, sizeof *shape * (size_t)y->rank);
    shape[y->rank] = size;
    double *out = sn_eval_alloc(c, x->dtype, y->rank + 1, shape);
    if (!out) return false;
    for (int64_t j = 0; j < y->n; j++) {
        if (!check_index(c, "index", y->data[j], blocks)) return false;
        const double *from = x->data + j / k * columns + (int64_t)y->data[j] * size;
        memcpy(out + j * size, from, sizeof *out * (size_t)size);
    }
    return true;
}

static double *copy_of(eval_call *c, const sn_value *x) {
    double *p = make_room(c, x->n);
    if (p) memcpy(p, x->data, sizeof *p * (size_t)x->n);
    return p;
}

bool eval_grouped_dot(eval_call *c) {
    const sn_value *x = c->in[0], *w = c->in[1], *z = c->in[2];
    int64_t k = x->shape[1], n = w->shape[1], shape[2] = {z->n, n};
    double *out = sn_eval_alloc(c, (sn_dtype)c->n->dtype, 2, shape);
    double *rows = copy_of(c, x), *maps = copy_of(c, w);
    if (!out || !rows || !maps) return false;
    for (int64_t r = 0; r < z->n; r++) {
        if (!check_index(c, "index", z->data[r], w->shape[0])) return false;
        multiply_rows(c, rows + r / z->shape[1] * k, 1, maps + (int64_t)z->data[r] * n * k, n, k,
                      out + r * n);
    }
    return true;
}

bool eval_ragged_dot(eval_call *c) {
    const sn_value *x = c->in[0], *y = c->in[1], *z = c->in[2];
    int64_t n = x->shape[1], k = y->shape[1];
    int64_t shape[3] = {sn_attr_int(c->n, SN_A_blocks, 0), n, k};
    double *out = sn_eval_alloc(c, (sn_dtype)c->n->dtype, 3, shape);
    double *p = make_room(c, n * z->n), *q = make_room(c, k * z->n);
    if (!out || !p || !q) return false;
    for (int64_t r = 0; r < z->n; r++)
        if (!check_index(c, "index", z->data[r], shape[0])) return false;
    for (int64_t e = 0; e < shape[0]; e++) {
        int64_t count = 0, at = 0;
        for (int64_t r = 0; r < z->n; r++) count += (int64_t)z->data[r] == e;
        for (int64_t r = 0; r < z->n; r++) {
            if ((int64_t)z->data[r] != e) continue;
            for (int64_t i = 0; i < n; i++) p[i * count + at] = x->data[r * n + i];
            for (int64_t l = 0; l < k; l++) q[l * count + at] = y->data[r / z->shape[1] * k + l];
            at++;
        }
        multiply_rows(c, p, n, q, k, count, out + e * n * k);
    }
    return true;
}

bool eval_scatter_add(eval_call *c) {
    const sn_value *x = c->in[0], *y = c->in[1];
    int64_t shape[SN_MAX_RANK];
    int rank = read_shape(c, shape);
    double *out = sn_eval_alloc(c, x->dtype, rank, shape);
    if (!out) return false;
    int64_t combine = sn_attr_int(c->n, SN_A_combine, 0);
    const sn_op op = combine == 1 ? SN_OP_max : combine ? SN_OP_mul : SN_OP_add;
    const double first = sn_eval_number(c, x->dtype, combine == 1 ? lowest(x->dtype) : 1, true);
    for (int64_t i = 0; combine && i < c->out->n; i++) out[i] = first;
    split s = split_at(c, c->out);
    for (int64_t j = 0; j < y->n; j++) {
        if (!check_index(c, "index", y->data[j], s.size)) return false;
        for (int64_t o = 0; o < s.outer; o++)
            for (int64_t i = 0; i < s.inner; i++) {
                double *to = &out[(o * s.size + (int64_t)y->data[j]) * s.inner + i];
                double v = x->data[(o * y->n + j) * s.inner + i];
                bool wraps = combine && !sn_dtype_is_float(x->dtype);
                *to = sn_round_to(wraps ? x->dtype : SN_F64, sn_eval_elem(c, op, x->dtype, *to, v));
            }
    }
    return true;
}

/* Offset of the element of this shape that element e of the index operands (operand 1 and up)
 * selects; -1: a module error. */
static int64_t offset_at(eval_call *c, int rank, const int64_t *shape, int64_t e) {
    int64_t at = 0;
    for (int i = 0; i < rank; i++) {
        double v = c->in[1 + i]->data[e];
        char what[32];
        snprintf(what, sizeof what, "axis %d: index", i);
        if (!check_index(c, what, v, shape[i])) return -1;
        at = at * shape[i] + (int64_t)v;
    }
    return at;
}

bool eval_gather_nd(eval_call *c) {
    const sn_value *x = c->in[0], *like = c->n->n_in > 1 ? c->in[1] : x;
    double *out = sn_eval_alloc(c, x->dtype, like->rank, like->shape);
    if (!out) return false;
    for (int64_t e = 0; e < like->n; e++) {
        int64_t at = offset_at(c, x->rank, x->shape, e);
        if (at < 0) return false;
        out[e] = x->data[at];
    }
    return true;
}

bool eval_scatter_nd_add(eval_call *c) {
    const sn_value *x = c->in[0];
    int64_t shape[SN_MAX_RANK];
    int rank = read_shape(c, shape);
    double *out = sn_eval_alloc(c, x->dtype, rank, shape);
    if (!out) return false;
    for (int64_t e = 0; e < x->n; e++) {
        int64_t at = offset_at(c, rank, shape, e);
        if (at < 0) return false;
        out[at] = sn_eval_elem(c, SN_OP_add, x->dtype, out[at], x->data[e]);
    }
    return true;
}
