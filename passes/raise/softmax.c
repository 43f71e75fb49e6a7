/* softmax.c: softmax, its logarithm and logsumexp, with or without mask and shift, with one more
 * term in the denominator (a sink), and cross-entropy. A shift that is constant along the axis does not change them. */
#include "passes/graph_util.h"
#include "passes/match.h"
#include "passes/raise/attention.h"

#include <math.h>

sn_node *sn_raise_on_axis(sn_op op, sn_node *x, int axis) {
    return sn_node_new(x->m, op, 1, &x, SN_ATTRS(SN_INT(axis, axis)));
}

static int axis_of(const sn_node *n) {
    return (int)sn_attr_int(n, SN_A_axis, n->in[0]->rank - 1);
}

/* The only axis of a reduction; -1: several */
static int single_axis(const sn_node *n) {
    const sn_attr *axes = sn_attr_get(n, SN_A_axes);
    return axes && axes->n == 1 ? (int)axes->v[0] : -1;
}

/* x, if n = x - m for some m that is constant along the axis; otherwise n */
static sn_node *strip_shift(sn_node *n, int axis) {
    return n->op == SN_OP_sub && sn_match_row(n->in[1], n, axis) ? n->in[0] : n;
}

/* z with e^z = n, even if the exponential is below views; NULL: none */
static sn_node *exponent(sn_node *n) {
    if (n->op == SN_OP_exp) return n->in[0];
    if (n->op != SN_OP_transpose && n->op != SN_OP_reshape) return NULL;
    sn_node *z = exponent(n->in[0]);
    return z ? sn_node_with(n, &z) : NULL;
}

/* z with e^z = n up to a factor that is constant along the axis; NULL: none */
static sn_node *log_weight(sn_node *n, int axis, int depth) {
    sn_node *mask = NULL, *w = NULL, *z = exponent(n);
    if (z) return strip_shift(z, axis);
    if (n->op == SN_OP_exp2) return sn_b_scalar(SN_OP_mul, strip_shift(n->in[0], axis), M_LN2);
    if (n->op == SN_OP_softmax) return axis_of(n) == axis && n->n_in == 1 ? n->in[0] : NULL;
    if (n->op == SN_OP_select && sn_match_value(n->in[2], 0)) {
        mask = n->in[0];
        w = n->in[1];
    }
    for (int i = 0; i < 2 && n->op == SN_OP_mul && !mask; i++) {
        sn_node *c = sn_match_below(n->in[i]);
        if (c->op != SN_OP_cast || c->in[0]->dtype != SN_BOOL) continue;
        mask = sn_b_broadcast_like(c->in[0], n);
        w = n->in[1 - i];
    }
    if (!mask || !depth || !(z = log_weight(w, axis, depth - 1))) return NULL;
    return sn_b_select(mask, z, sn_b_const(n->m, (sn_dtype)n->dtype, -INFINITY));
}

bool sn_raise_sum_of(sn_node *n, sn_raise_sum *s) {
    double c;
    const sn_node *sum = sn_match_scaled(n, &c);
    int axis = sum->op == SN_OP_reduce_sum ? single_axis(sum) : -1;
    if (axis >= 0) {
        *s = (sn_raise_sum){.weights = sum->in[0], .axis = axis, .factor = c};
        return true;
    }
    for (int i = 0; i < 2 && n->op == SN_OP_add; i++) {
        sn_node *other = n->in[1 - i];
        if (!sn_raise_sum_of(n->in[i], s)) continue;
        s->rest = s->rest ? sn_b_binary(SN_OP_add, s->rest, other) : other;
        return true;
    }
    return false;
}

/* What is subtracted in the exponent of weights w, constant along the axis; NULL: nothing */
static const sn_node *shift_of(sn_node *w, int axis) {
    while (w->op == SN_OP_select || w->op == SN_OP_mul) {
        bool first = w->op == SN_OP_mul && exponent(w->in[0]); /* times a mask */
        w = w->in[!first];
    }
    const sn_node *z = exponent(w);
    return z && z->op == SN_OP_sub ? sn_match_row(z->in[1], z, axis) : NULL;
}

/* y + m, where it does not need m; NULL: it does */
static sn_node *without_shift(sn_node *y, const sn_node *m) {
    sn_node *a = y->in[0], *b = y->n_in > 1 ? y->in[1] : NULL;
    const sn_node *to = m ? sn_match_below((sn_node *)(uintptr_t)m) : NULL;
    if (!m) return y;
    if (y->op == SN_OP_neg && sn_match_below(a) == to)
        return sn_b_broadcast_like(sn_b_const(y->m, (sn_dtype)y->dtype, 0), y);
    return y->op == SN_OP_sub && sn_match_below(b) == to ? a : NULL;
}

/* z with e^z = rest of the sum over the weights e^(x - m), *x being without m; NULL: none */
static sn_node *sink_of(const sn_raise_sum *s) {
    const sn_node *m = shift_of(s->weights, s->axis);
    sn_node *rest = sn_match_below(s->rest), *z = exponent(rest), *w = s->weights;
    sn_dim shape[SN_MAX_RANK];
    double c;
    if (z) z = without_shift(sn_match_below(z), m);
    if (!m && sn_match_const(rest, &c) && c > 0) z = sn_b_const(w->m, (sn_dtype)w->dtype, log(c));
    if (!z) return NULL;
    for (int a = 0; a < w->rank; a++) shape[a] = a == s->axis ? 1 : w->shape[a];
    return sn_b_broadcast(z, w->rank, shape);
}

/* A factor 1 / (sum of weights e^x over an axis [+ rest]): the sum, *x, and the sink that stands for
 * the rest (NULL: none). */
static bool divides(sn_node *factor, sn_raise_sum *s, sn_node **x, sn_node **sink) {
    const sn_node *inverse = sn_match_below(factor);
    if (inverse->op != SN_OP_recip || !sn_raise_sum_of(inverse->in[0], s) || s->factor != 1 ||
        inverse->rank != s->weights->rank || !(*x = log_weight(s->weights, s->axis, 3)))
        return false;
    *sink = s->rest ? sink_of(s) : NULL;
    return !s->rest || *sink;
}

/* w / sum(w) with w = e^z, masked or not, = softmax z; other factors stay outside */
static sn_node *raise_softmax(sn_node *n) {
    sn_node *f[6], *z = NULL, *sink;
    sn_raise_sum s;
    double c;
    int k = sn_match_float(n) ? sn_match_factors(n, NULL, f, 6, &c) : -1, at = -1;
    for (int i = 0; i < k && at < 0; i++)
        if (divides(f[i], &s, &z, &sink) && sn_shapes_equal(s.weights, n)) at = i;
    if (at < 0) return NULL;
    sn_node *inverse = f[at];
    k = sn_match_factors(n, s.weights, f, 6, &c);
    int at_w = -1, at_inverse = -1;
    for (int i = 0; i < k; i++) {
        if (f[i] == s.weights) at_w = i;
        if (f[i] == inverse) at_inverse = i;
    }
    if (at_w < 0 || at_inverse < 0) return NULL;
    f[at_w] = f[at_inverse] = NULL;
    return sn_raise_times(sn_b_softmax(z, sink, s.axis), k, f, c);
}

/* dot(w, v) / sum(w) with w = e^z, where both sum over the same axis, = dot(softmax z, v); other
 * factors stay outside */
static sn_node *divide_first(sn_node *n) {
    sn_node *f[6], *z, *sink;
    sn_raise_sum s;
    double c;
    int k = sn_match_float(n) ? sn_match_factors(n, NULL, f, 6, &c) : -1;
    for (int i = 0; i < k; i++) {
        if (!divides(f[i], &s, &z, &sink) || s.weights->rank != n->rank) continue;
        for (int j = 0; j < k; j++)
            for (int side = 0; side < 2 && f[j]->op == SN_OP_dot; side++) {
                const sn_attr *over = ra_contract_of(f[j], side);
                if (f[j]->in[side] != s.weights || !over || over->n != 1 || over->v[0] != s.axis ||
                    !sn_shapes_equal(f[j], n) || !ra_goes_with(sn_match_below(f[i]), f[j], side))
                    continue;
                sn_node *in[] = {f[j]->in[0], f[j]->in[1]};
                in[side] = sn_b_softmax(z, sink, s.axis);
                sn_node *product = sn_node_with(f[j], in);
                f[i] = f[j] = NULL;
                return sn_raise_times(product, k, f, c);
            }
    }
    return NULL;
}

/* x / y as x (1 / y) */
static sn_node *as_product(sn_node *n) {
    if (n->op != SN_OP_div || !sn_is_float(n)) return n;
    sn_node *inverse = sn_b_unary(SN_OP_recip, sn_match_below(n->in[1]));
    return sn_b_binary(SN_OP_mul, as_product(n->in[0]), sn_b_broadcast_like(inverse, n));
}

/* Level 0 keeps quotients as they are written. */
sn_node *sn_raise_quotient(sn_node *n) {
    sn_node *x = as_product(n), *y = raise_softmax(x);
    return y ? y : divide_first(x);
}

/* ln sum e^x = logsumexp x */
sn_node *sn_raise_logsumexp(sn_node *n) {
    const sn_node *sum = n->in[0];
    int axis = sum->op == SN_OP_reduce_sum ? single_axis(sum) : -1;
    sn_node *z = axis >= 0 && sn_match_float(n) ? exponent(sum->in[0]) : NULL;
    return z ? sn_raise_on_axis(SN_OP_logsumexp, z, axis) : NULL;
}

/* ---- cross-entropy ---- */

/* The operand x' if x is log_softmax(x') over its last axis. */
static sn_node *log_softmax_operand(const sn_node *x) {
    return x->op == SN_OP_log_softmax && axis_of(x) == x->rank - 1 ? x->in[0] : NULL;
}

static bool is_integer(const sn_node *n) {
    return !sn_dtype_is_float((sn_dtype)n->dtype) && n->dtype != SN_BOOL;
}

/* The targets if n is true where the last axis' index equals a target [..]; otherwise NULL */
static sn_node *hit_target(sn_node *n) {
    if (n->op == SN_OP_broadcast && n->in[0]->rank == n->rank && sn_shapes_equal(n, n->in[0]))
        n = n->in[0];
    if (n->op != SN_OP_eq) return NULL;
    for (int i = 0; i < 2; i++) {
        const sn_node *index = sn_match_below(n->in[i]);
        sn_node *t = sn_match_below(n->in[1 - i]);
        int last = n->rank - 1;
        if (index->op != SN_OP_iota || !is_integer(index) ||
            sn_attr_int(index, SN_A_axis, -1) != index->rank - 1 || t->rank != n->rank ||
            t->shape[last] != 1 || index->shape[index->rank - 1] != n->shape[last])
            continue;
        bool full = true;
        for (int a = 0; a < last; a++) full &= t->shape[a] == n->shape[a];
        if (full) return sn_b_reshape(t, last, n->shape);
    }
    return NULL;
}

/* The targets whose one-hot form is n, as bool or number; NULL: none. */
static sn_node *one_hot_target(sn_node *n) {
    if (n->op == SN_OP_one_hot) return n->in[0];
    if (n->op == SN_OP_cast && n->in[0]->dtype == SN_BOOL) return hit_target(n->in[0]);
    return n->dtype == SN_BOOL ? hit_target(n) : NULL;
}

static sn_node *make_pick(sn_node *x, sn_node *target, const sn_node *like) {
    bool fits = target && x && is_integer(target) && target->rank == x->rank - 1;
    for (int a = 0; fits && a < target->rank; a++) fits = target->shape[a] == x->shape[a];
    if (!fits) return NULL;
    sn_node *loss = SN_NODE(x->m, cross_entropy, SN_NO_ATTRS, x, target);
    return sn_b_unary(SN_OP_neg, sn_b_reshape(loss, like->rank, like->shape));
}

/* sum over the last axis of log_softmax(x) one_hot(target) = -cross_entropy(x, target) */
sn_node *sn_raise_pick(sn_node *n) {
    sn_node *s = n->in[0], *x = NULL, *target = NULL;
    if (single_axis(n) != n->rank - 1 || !sn_match_float(n)) return NULL;
    for (int i = 0; i < 2 && s->op == SN_OP_mul && !(x && target); i++) {
        x = log_softmax_operand(s->in[i]);
        target = one_hot_target(s->in[1 - i]);
    }
    if (s->op == SN_OP_select && sn_match_value(s->in[2], 0)) {
        x = log_softmax_operand(s->in[1]);
        target = one_hot_target(s->in[0]);
    }
    return make_pick(x, target, n);
}

/* log_softmax(x)[i, j, .., target] = -cross_entropy(x, target) */
sn_node *sn_raise_pick_at(sn_node *n) {
    sn_node *x = log_softmax_operand(n->in[0]);
    int rank = n->in[0]->rank;
    if (!x || n->rank != rank - 1 || !sn_match_float(n)) return NULL;
    for (int i = 0; i < rank - 1; i++) {
        const sn_node *index = sn_match_below(n->in[1 + i]);
        int64_t axis = sn_attr_int(index, SN_A_axis, -1);
        if (index->op != SN_OP_iota || axis + (n->rank - index->rank) != i) return NULL;
    }
    return make_pick(x, n->in[rank], n);
}
