/* decomp_nn.c: activations, statistics, norms, embeddings, positions and losses, decomposed into
 * primitives. Numerically stable: no intermediate overflows where the result does not. */
#include "ir/decomp_impl.h"

#include <math.h>
#include <string.h>

/* ---- activations ---- */

bool decomp_relu(decomp *c) {
    return sn_dc_done(c, sn_b_scalar(SN_OP_max, sn_dc_operand(c, 0), 0));
}

bool decomp_silu(decomp *c) {
    if (!sn_dc_float(c, 0)) return false;
    sn_node *x = sn_dc_operand(c, 0);
    return sn_dc_done(c, sn_b_binary(SN_OP_mul, x, sn_b_unary(SN_OP_sigmoid, x)));
}

/* max(x, 0) + ln(1 + e^-|x|) */
bool decomp_softplus(decomp *c) {
    if (!sn_dc_float(c, 0)) return false;
    sn_node *x = sn_dc_operand(c, 0);
    sn_node *e = sn_b_unary(SN_OP_exp, sn_b_unary(SN_OP_neg, sn_b_unary(SN_OP_abs, x)));
    return sn_dc_done(
        c, sn_b_binary(SN_OP_add, sn_b_scalar(SN_OP_max, x, 0), sn_b_unary(SN_OP_log1p, e)));
}

/* ---- statistics ---- */

/* Mean of the squares of x. */
static sn_node *mean_square(sn_node *x, int n_axes, const int64_t *axes) {
    return sn_b_mean(sn_b_binary(SN_OP_mul, x, x), n_axes, axes);
}

static const sn_attr *read_axes(const decomp *c) {
    const sn_attr *a = sn_dc_attr(c, SN_A_axes);
    if (!a) sn_dc_fail(c, "attribute 'axes' is missing");
    for (int i = 0; a && i < a->n; i++)
        if (a->v[i] < 0 || a->v[i] >= c->in[0]->rank) {
            sn_dc_fail(c, "there is no axis %lld", (long long)a->v[i]);
            return NULL;
        }
    return a;
}

bool decomp_mean(decomp *c) {
    const sn_attr *axes = read_axes(c);
    return axes && sn_dc_float(c, 0) &&
           sn_dc_done(c, sn_b_mean(sn_dc_operand(c, 0), axes->n, axes->v));
}

/* mean(d^2) - (mean d)^2 for d = x - mean(x). The second term corrects the rounding error of the
 * mean, which matters where the mean is far larger than the deviation. */
bool decomp_variance(decomp *c) {
    const sn_attr *axes = read_axes(c);
    if (!axes || !sn_dc_float(c, 0)) return false;
    sn_node *x = sn_dc_operand(c, 0);
    sn_node *away = sn_b_binary(SN_OP_sub, x, sn_b_mean(x, axes->n, axes->v));
    sn_node *off = sn_b_mean(away, axes->n, axes->v), *zero = sn_b_const(c->m, c->type, 0);
    sn_node *v = sn_b_binary(SN_OP_sub, mean_square(away, axes->n, axes->v),
                             sn_b_binary(SN_OP_mul, off, off));
    return sn_dc_done(c, sn_b_binary(SN_OP_max, v, sn_b_broadcast_like(zero, v)));
}

/* ---- softmax and its logarithms ---- */

/* x minus its maximum on the axis, the exponential of that, and its sum, which is 1 for a row that
 * is entirely -inf; the sink (NULL: none) counts as one more element in maximum and sum. The gradient treats the maximum as constant, since the results do not depend on
 * it. */
typedef struct shifted {
    sn_node *max, *x, *exp, *sum;
} shifted;

static shifted shift_exp(sn_node *x, sn_node *sink, int axis) {
    int64_t a = axis;
    shifted s;
    sn_node *max = sn_b_reduce(SN_OP_reduce_max, x, 1, &a);
    if (sink) max = sn_b_binary(SN_OP_max, max, sink);
    s.max = sn_b_unary(SN_OP_stop_gradient, max);
    sn_node *zero = sn_b_const(x->m, (sn_dtype)x->dtype, 0);
    sn_node *shift = sn_b_select(sn_b_scalar(SN_OP_eq, s.max, -INFINITY), zero, s.max);
    s.x = sn_b_binary(SN_OP_sub, x, shift);
    s.exp = sn_b_unary(SN_OP_exp, s.x);
    sn_node *sum = sn_b_reduce(SN_OP_reduce_sum, s.exp, 1, &a);
    if (sink)
        sum =
            sn_b_binary(SN_OP_add, sum, sn_b_unary(SN_OP_exp, sn_b_binary(SN_OP_sub, sink, shift)));
    sn_node *one = sn_b_const(x->m, (sn_dtype)x->dtype, 1);
    s.sum = sn_b_select(sn_b_scalar(SN_OP_eq, sum, 0), one, sum);
    return s;
}

bool decomp_softmax(decomp *c) {
    int axis;
    if (!sn_dc_float(c, 0) || !sn_dc_axis(c, &axis)) return false;
    sn_node *x = sn_dc_operand(c, 0), *sink = c->n_in > 1 ? sn_dc_operand(c, 1) : NULL;
    bool fits = !sink || (sn_dc_float(c, 1) && sink->rank == x->rank);
    for (int a = 0; fits && sink && a < x->rank; a++)
        fits = sink->shape[a] == (a == axis ? 1 : x->shape[a]);
    if (!fits) return sn_dc_fail(c, "the sink must have the shape of x, with size 1 on the axis");
    shifted s = shift_exp(x, sink, axis);
    return sn_dc_done(c, sn_b_binary(SN_OP_mul, s.exp, sn_b_unary(SN_OP_recip, s.sum)));
}

/* -inf where softmax is 0, also in a row that is entirely -inf */
bool decomp_log_softmax(decomp *c) {
    int axis;
    if (!sn_dc_float(c, 0) || !sn_dc_axis(c, &axis)) return false;
    shifted s = shift_exp(sn_dc_operand(c, 0), NULL, axis);
    return sn_dc_done(c, sn_b_binary(SN_OP_sub, s.x, sn_b_unary(SN_OP_log, s.sum)));
}

bool decomp_logsumexp(decomp *c) {
    int axis;
    if (!sn_dc_float(c, 0) || !sn_dc_axis(c, &axis)) return false;
    shifted s = shift_exp(sn_dc_operand(c, 0), NULL, axis);
    return sn_dc_done(c, sn_b_binary(SN_OP_add, s.max, sn_b_unary(SN_OP_log, s.sum)));
}

/* ---- norms over the last axis ---- */

bool decomp_layer_norm(decomp *c) {
    if (!sn_dc_float(c, 0) || !sn_dc_rank(c, 0, 1)) return false;
    sn_node *x = sn_dc_operand(c, 0);
    int64_t axis = x->rank - 1;
    if (!sn_dc_vector(c, 1, x->shape[axis]) || !sn_dc_vector(c, 2, x->shape[axis])) return false;
    sn_node *away = sn_b_binary(SN_OP_sub, x, sn_b_mean(x, 1, &axis));
    sn_node *v = sn_b_scalar(SN_OP_add, mean_square(away, 1, &axis), sn_dc_flt(c, SN_A_eps, 1e-5));
    sn_node *y = sn_b_binary(SN_OP_mul, away, sn_b_unary(SN_OP_rsqrt, v));
    if (c->n_in > 1) y = sn_b_binary(SN_OP_mul, y, sn_dc_operand(c, 1));
    if (c->n_in > 2) y = sn_b_binary(SN_OP_add, y, sn_dc_operand(c, 2));
    return sn_dc_done(c, y);
}

bool decomp_rms_norm(decomp *c) {
    if (!sn_dc_float(c, 0) || !sn_dc_rank(c, 0, 1)) return false;
    sn_node *x = sn_dc_operand(c, 0);
    int64_t axis = x->rank - 1;
    if (!sn_dc_vector(c, 1, x->shape[axis])) return false;
    sn_node *v = sn_b_scalar(SN_OP_add, mean_square(x, 1, &axis), sn_dc_flt(c, SN_A_eps, 1e-5));
    sn_node *y = sn_b_binary(SN_OP_mul, x, sn_b_unary(SN_OP_rsqrt, v));
    if (c->n_in > 1) y = sn_b_binary(SN_OP_mul, y, sn_dc_operand(c, 1));
    return sn_dc_done(c, y);
}

/* ---- embeddings and positions ---- */

bool decomp_embedding(decomp *c) {
    if (c->in[0]->rank != 2) return sn_dc_fail(c, "the table must have the shape [n, d]");
    if (!sn_dc_integer(c, 1)) return false;
    /* not through sn_dc_operand: a table of a narrow type is read without conversion */
    c->out[0] = SN_NODE(c->m, gather, SN_ATTRS(SN_INT(axis, 0)), c->in[0], c->in[1]);
    return !c->m->error.code;
}

/* Factors are of groups along the last axis or, without groups, of a whole row. */
bool decomp_dequantise(decomp *c) {
    sn_node *q = c->in[0], *x;
    const sn_attr *group = sn_dc_attr(c, SN_A_group);
    const int64_t bits = sn_dc_int(c, SN_A_bits, 8);
    const int last = q->rank - 1;
    int64_t k = 0;
    sn_dim shape[SN_MAX_RANK + 1];
    if (q->dtype != SN_I8) return sn_dc_fail(c, "operand 0 must be i8");
    const int64_t nibble = sn_dc_int(c, SN_A_nibble, 0);
    if (nibble < 0 || nibble >= SN_NIBBLES || (bits != 4 && (bits != 8 || nibble)))
        return sn_dc_fail(c, "attribute 'bits' must be 4, or 8 without 'nibble', which is 0 to %d",
                          SN_NIBBLES - 1);
    if (!sn_dc_rank(c, 0, 1) ||
        (group && !sn_dc_number(c, "the last axis in groups", q->shape[last], &k)))
        return false;
    if (group && (group->i < 1 || k % group->i || q->rank == SN_MAX_RANK))
        return sn_dc_fail(c, "attribute 'group' must divide the last axis, one of at most %d",
                          SN_MAX_RANK - 1);
    memcpy(shape, q->shape, sizeof *shape * q->rank);
    shape[last] = group ? k / group->i : 1;
    shape[q->rank] = group ? group->i : 1;
    x = sn_b_cast(group ? sn_b_reshape(q, q->rank + 1, shape) : q, c->type);
    for (int i = 1; i < c->n_in; i++) {
        sn_node *f = c->in[i];
        if (!sn_is_float(f) || f->rank != q->rank ||
            memcmp(f->shape, shape, sizeof *shape * q->rank))
            return sn_dc_fail(c, "operand %d must be a float for each group: [.., %lld]", i,
                              (long long)shape[last]);
        f = sn_b_cast(group ? sn_b_column(f) : f, c->type);
        x = sn_b_binary(i == 1 ? SN_OP_mul : SN_OP_add, x, f);
    }
    return sn_dc_done(c, sn_b_reshape(x, q->rank, q->shape));
}

bool decomp_quantise_rows(decomp *c) {
    const int64_t last = c->in[0]->rank - 1, index = sn_dc_int(c, SN_A_index, 0);
    if (!sn_dc_rank(c, 0, 1) || !sn_dc_float(c, 0)) return false;
    if (index != 0 && index != 1) return sn_dc_fail(c, "there is no result %lld", (long long)index);
    sn_node *x = sn_b_cast(c->in[0], SN_F32);
    sn_node *max = sn_b_reduce(SN_OP_reduce_max, sn_b_unary(SN_OP_abs, x), 1, &last);
    max = sn_b_scalar(SN_OP_max, max, 1e-30);
    sn_node *steps = sn_b_binary(SN_OP_div, sn_b_const(c->m, SN_F32, 127), max);
    sn_node *q = sn_b_unary(SN_OP_round, sn_b_binary(SN_OP_mul, x, steps));
    c->out[0] = index ? sn_b_scalar(SN_OP_mul, max, 1 / 127.0) : sn_b_cast(q, SN_I8);
    return !c->m->error.code;
}

/* The {size} attribute as a fixed number of columns. */
static bool read_size(const decomp *c, int64_t *size) {
    const sn_attr *a = sn_dc_attr(c, SN_A_size);
    if (!a || a->n != 1) return sn_dc_fail(c, "attribute 'size' needs one number of columns");
    return sn_dc_number(c, "size", a->v[0], size);
}

bool decomp_take_sorted(decomp *c) {
    int axis;
    sn_node *index = c->in[1], *in[SN_MAX_RANK + 1] = {c->in[0]};
    if (!sn_dc_axis(c, &axis) || !sn_dc_integer(c, 1)) return false;
    if (index->rank != in[0]->rank) return sn_dc_fail(c, "x and the indices differ in rank");
    for (int i = 0; i < index->rank; i++) {
        if (i != axis && index->shape[i] != in[0]->shape[i])
            return sn_dc_fail(c, "axis %d differs", i);
        in[i + 1] = i == axis
                        ? index
                        : sn_b_iota(c->m, (sn_dtype)index->dtype, index->rank, index->shape, i);
    }
    c->out[0] = sn_node_new(c->m, SN_OP_gather_nd, index->rank + 1, in, SN_NO_ATTRS);
    return !c->m->error.code;
}

bool decomp_one_hot(decomp *c) {
    const sn_attr *a = sn_dc_attr(c, SN_A_size);
    if (!a || a->n != 1) return sn_dc_fail(c, "attribute 'size' needs one number of columns");
    if (!sn_dc_integer(c, 0)) return false;
    sn_node *x = c->in[0];
    sn_node *column = sn_b_iota(c->m, (sn_dtype)x->dtype, 1, a->v, 0);
    c->out[0] = sn_b_cast(sn_b_binary(SN_OP_eq, sn_b_column(x), column),
                          (sn_dtype)sn_dc_int(c, SN_A_dtype, SN_F32));
    return !c->m->error.code;
}

/* base^(-2 (i + first) / width) for i in 0 .. width/2 - 1 */
static sn_node *frequencies(const decomp *c, sn_dtype t, int64_t width, double base, double first) {
    sn_dim half = width / 2;
    sn_node *i = sn_b_iota(c->m, t, 1, &half, 0);
    sn_node *power = sn_b_scalar(SN_OP_add, i, first);
    return sn_b_unary(SN_OP_exp, sn_b_scalar(SN_OP_mul, power, -2 * log(base) / (double)width));
}

bool decomp_sinusoid(decomp *c) {
    int64_t width;
    if (!read_size(c, &width)) return false;
    if (width % 2) return sn_dc_fail(c, "size must be even, not %lld", (long long)width);
    sn_dtype t = (sn_dtype)sn_dc_int(c, SN_A_dtype, SN_F32);
    /* PH22 counts t and i from 1; here they start at 0 */
    double first = sn_dc_int(c, SN_A_vaswani, 0) ? 0 : 1;
    sn_node *f = frequencies(c, t, width, sn_dc_flt(c, SN_A_base, 10000), first);
    sn_node *pos = sn_b_scalar(SN_OP_add, sn_b_cast(c->in[0], t), first);
    sn_node *angle = sn_b_binary(SN_OP_mul, sn_b_column(pos), f);
    sn_node *pair[2] = {sn_b_column(sn_b_unary(SN_OP_sin, angle)),
                        sn_b_column(sn_b_unary(SN_OP_cos, angle))};
    sn_node *both = sn_b_concat(c->m, 2, pair, angle->rank);
    sn_dim shape[SN_MAX_RANK];
    if (c->m->error.code) return false;
    memcpy(shape, angle->shape, sizeof *shape * angle->rank);
    shape[angle->rank - 1] = width;
    c->out[0] = sn_b_reshape(both, angle->rank, shape);
    return !c->m->error.code;
}

/* Positions [T] or [B, T] reshaped to [T, 1 ..] or [B, 1, .., T, 1 ..], which broadcasts to x with
 * T on `axis`. */
static sn_node *rope_positions(const decomp *c, const sn_node *x, int axis) {
    sn_node *pos = sn_b_cast(c->in[1], c->type);
    bool items = pos->rank == 2 && axis > 0 && pos->shape[0] == x->shape[0];
    if ((pos->rank == 1 || items) && pos->shape[pos->rank - 1] == x->shape[axis]) {
        sn_dim shape[SN_MAX_RANK];
        int first = items ? 0 : axis;
        for (int i = first; i < x->rank; i++) shape[i] = 1;
        if (items) shape[0] = pos->shape[0];
        shape[axis] = x->shape[axis];
        return sn_b_reshape(pos, x->rank - first, shape + first);
    }
    sn_dc_fail(c, "positions must be [T] or [B, T] for x [B, .., T, d]");
    return NULL;
}

/* The operand that holds them; NULL after recording a mistake. */
static sn_node *rope_frequencies(decomp *c, int64_t half) {
    const sn_node *f = c->in[2];
    if (f->rank == 1 && f->shape[0] == half && sn_dtype_is_float((sn_dtype)f->dtype))
        return sn_b_cast(c->in[2], c->type);
    sn_dc_fail(c, "frequencies must be floats [%lld], half the width of x", (long long)half);
    return NULL;
}

/* The columns that rotate, [first, last); false after recording a mistake. */
static bool rope_columns(decomp *c, const sn_node *x, int64_t *width, int64_t *first,
                         int64_t *last) {
    const sn_attr *columns = sn_dc_attr(c, SN_A_columns);
    if (!sn_dc_number(c, "the width of x", x->shape[x->rank - 1], width)) return false;
    if (columns && columns->n != 2)
        return sn_dc_fail(c, "attribute 'columns' needs the first column and the first after it");
    *first = columns ? columns->v[0] : 0;
    *last = columns ? columns->v[1] : *width;
    if (*first < 0 || *last > *width || *last <= *first)
        return sn_dc_fail(c, "x of width %lld has no columns %lld to %lld", (long long)*width,
                          (long long)*first, (long long)*last - 1);
    if ((*last - *first) % 2)
        return sn_dc_fail(c, "the width of what is rotated must be even, not %lld",
                          (long long)(*last - *first));
    return true;
}

/* Of each column of x the pair that it is in, and the other column of the pair. inside: columns that
 * rotate; NULL: all. The others are in pair 0, and their own partners. */
typedef struct pairing {
    sn_node *inside, *pair, *other, *is_first;
} pairing;

static pairing pair_columns(const decomp *c, int64_t width, int64_t first, int64_t last) {
    const sn_dim row[1] = {width};
    const double half = (double)(last - first) / 2;
    pairing p = {NULL};
    sn_node *column = sn_b_iota(c->m, SN_I32, 1, row, 0), *i = column;
    if (first > 0 || last < width) {
        sn_node *before = sn_b_scalar(SN_OP_lt, column, (double)first);
        sn_node *to_last = sn_b_scalar(SN_OP_lt, column, (double)last);
        p.inside = sn_b_binary(SN_OP_and, to_last, sn_b_unary(SN_OP_not, before));
        i = sn_b_select(p.inside, sn_b_scalar(SN_OP_sub, column, (double)first),
                        sn_b_scalar(SN_OP_mul, column, 0));
    }
    if (sn_dc_int(c, SN_A_interleaved, 0)) {
        p.pair = sn_b_scalar(SN_OP_div, i, 2);
        p.other = sn_b_scalar(SN_OP_xor, i, 1);
    } else {
        p.pair = sn_b_scalar(SN_OP_mod, i, half);
        p.other = sn_b_scalar(SN_OP_mod, sn_b_scalar(SN_OP_add, i, half), 2 * half);
    }
    p.is_first = sn_b_binary(SN_OP_lt, i, p.other);
    if (p.inside)
        p.other = sn_b_select(p.inside, sn_b_scalar(SN_OP_add, p.other, (double)first), column);
    return p;
}

/* Rows stay whole, so that the result is a single loop over x. */
bool decomp_rope(decomp *c) {
    int64_t width, first_column = 0, last_column = 0;
    if (!sn_dc_float(c, 0) || !sn_dc_rank(c, 0, 2)) return false;
    sn_node *x = sn_dc_operand(c, 0);
    int last = x->rank - 1, axis = (int)sn_dc_int(c, SN_A_axis, last - 1);
    if (axis < 0 || axis >= last) return sn_dc_fail(c, "there is no axis %d before the last", axis);
    if (!rope_columns(c, x, &width, &first_column, &last_column)) return false;
    sn_node *pos = rope_positions(c, x, axis);
    if (!pos) return false;
    const int64_t rotated = last_column - first_column;
    sn_node *f = c->n_in > 2 ? rope_frequencies(c, rotated / 2)
                             : frequencies(c, c->type, rotated, sn_dc_flt(c, SN_A_base, 10000), 0);
    if (!f) return false;
    const pairing p = pair_columns(c, width, first_column, last_column);
    sn_node *angle =
        sn_b_binary(SN_OP_mul, pos, SN_NODE(c->m, gather, SN_ATTRS(SN_INT(axis, 0)), f, p.pair));
    const double scale = sn_dc_flt(c, SN_A_scale, 1);
    sn_node *sin = sn_b_scalar(SN_OP_mul, sn_b_unary(SN_OP_sin, angle), scale);
    sn_node *cos = sn_b_scalar(SN_OP_mul, sn_b_unary(SN_OP_cos, angle), scale);
    sn_node *signed_sin = sn_b_select(p.is_first, sn_b_unary(SN_OP_neg, sin), sin);
    sn_node *swapped = SN_NODE(c->m, gather, SN_ATTRS(SN_INT(axis, last)), x, p.other);
    sn_node *y = sn_b_binary(SN_OP_add, sn_b_binary(SN_OP_mul, x, cos),
                             sn_b_binary(SN_OP_mul, swapped, signed_sin));
    return sn_dc_done(c, p.inside ? sn_b_select(p.inside, y, x) : y);
}

/* ---- losses and noise ---- */

/* -sum of log_softmax(x) where the class equals the target; a target that is not a class gives 0 */
bool decomp_cross_entropy(decomp *c) {
    if (!sn_dc_float(c, 0) || !sn_dc_rank(c, 0, 1) || !sn_dc_integer(c, 1)) return false;
    sn_node *x = sn_dc_operand(c, 0), *target = c->in[1];
    int64_t last = x->rank - 1;
    if (target->rank != last ||
        (last && memcmp(target->shape, x->shape, sizeof(sn_dim) * (size_t)last)))
        return sn_dc_fail(c, "targets must have x's shape without its last axis");
    sn_node *logp = SN_NODE(c->m, log_softmax, SN_ATTRS(SN_INT(axis, last)), x);
    sn_node *column = sn_b_iota(c->m, (sn_dtype)target->dtype, 1, &x->shape[last], 0);
    sn_node *hit = sn_b_binary(SN_OP_eq, sn_b_column(target), column);
    sn_node *picked = sn_b_select(hit, logp, sn_b_const(c->m, c->type, 0));
    sn_node *sum = sn_b_reduce(SN_OP_reduce_sum, picked, 1, &last);
    if (c->m->error.code) return false;
    return sn_dc_done(c, sn_b_unary(SN_OP_neg, sn_b_reshape(sum, (int)last, x->shape)));
}

bool decomp_dropout(decomp *c) {
    double rate = sn_dc_flt(c, SN_A_rate, 0);
    if (!sn_dc_float(c, 0)) return false;
    if (!(rate >= 0 && rate <= 1)) return sn_dc_fail(c, "rate %g is not in [0, 1]", rate);
    sn_node *x = sn_dc_operand(c, 0);
    sn_node *u = SN_NODE(
        c->m, random,
        SN_ATTRS(SN_INT(stream, sn_dc_int(c, SN_A_stream, 0)), SN_LIST(shape, x->rank, x->shape)),
        c->in[1]);
    /* the bound as f32, because the samples are f32 and compiled code compares in f32 */
    sn_node *dropped = sn_b_scalar(SN_OP_lt, u, (double)(float)rate);
    sn_node *zero = sn_b_const(c->m, c->type, 0);
    double keep = rate < 1 ? 1 / (1 - rate) : 0;
    return sn_dc_done(c, sn_b_select(dropped, zero, sn_b_scalar(SN_OP_mul, x, keep)));
}
