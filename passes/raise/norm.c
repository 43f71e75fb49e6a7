/* norm.c: mean, variance, layer_norm and rms_norm over the last axis, with gain and bias. */
#include "passes/graph_util.h"
#include "passes/match.h"
#include "passes/raise/raise.h"

#include <math.h>
#include <string.h>

static sn_node *scale(sn_node *x, double c) {
    return c == 1 ? x : sn_b_scalar(SN_OP_mul, x, c);
}

static sn_dim count_over(const sn_node *x, const sn_attr *axes) {
    sn_dim n = sn_dim_const(x->m, 1);
    for (int i = 0; i < axes->n; i++) n = sn_dim_mul(x->m, n, x->shape[axes->v[i]]);
    return n;
}

/* The dimension whose value n is, possibly broadcast or cast; false: none. */
static bool is_count(const sn_node *n, sn_dim want) {
    while (n->op == SN_OP_broadcast || n->op == SN_OP_cast || n->op == SN_OP_reshape) n = n->in[0];
    return n->op == SN_OP_dim_value && sn_attr_get(n, SN_A_dim)->i == want;
}

/* 1 / n spelled as the reciprocal of a dimension's value */
static bool is_recip_count(const sn_node *n, sn_dim want) {
    while (n->op == SN_OP_broadcast || n->op == SN_OP_reshape) n = n->in[0];
    return n->op == SN_OP_recip && is_count(n->in[0], want);
}

static sn_node *make_mean(sn_node *sum) {
    const sn_attr *axes = sn_attr_get(sum, SN_A_axes);
    return sn_node_new(sum->m, SN_OP_mean, 1, sum->in, SN_ATTRS(*axes));
}

/* sum / n or sum (1 / n) = mean; other constant factors stay: sum c = mean (c n) is not
 * rewritten */
static sn_node *raise_mean(sn_raiser *r, sn_node *n) {
    double c;
    int64_t size;
    (void)r;
    for (int i = 0; i < 2; i++) {
        sn_node *sum = n->in[i], *f = n->in[1 - i];
        if (sum->op != SN_OP_reduce_sum || !sn_match_float(n) || (i && n->op == SN_OP_div))
            continue;
        sn_dim count = count_over(sum->in[0], sn_attr_get(sum, SN_A_axes));
        bool fits = n->op == SN_OP_div ? is_count(f, count) : is_recip_count(f, count);
        if (n->op == SN_OP_mul && sn_dim_is_const(n->m, count, &size) && sn_match_const(f, &c))
            fits = size > 0 && sn_match_near(c * (double)size, 1);
        if (fits) return make_mean(sum);
    }
    return NULL;
}

static bool same_axes(const sn_node *a, const sn_node *b) {
    const sn_attr *x = sn_attr_get(a, SN_A_axes), *y = sn_attr_get(b, SN_A_axes);
    return x->n == y->n && (!x->n || !memcmp(x->v, y->v, sizeof *x->v * (size_t)x->n));
}

/* x if n = x - mean(x) over the axes of `like`; NULL: it is not */
static sn_node *away_from_mean(sn_node *n, const sn_node *like) {
    if (n->op != SN_OP_sub) return NULL;
    const sn_node *mean = sn_match_below(n->in[1]);
    return mean->op == SN_OP_mean && mean->in[0] == n->in[0] && same_axes(mean, like) ? n->in[0]
                                                                                      : NULL;
}

static sn_node *make_variance(sn_node *x, const sn_node *mean) {
    return SN_NODE(x->m, variance, SN_ATTRS(*sn_attr_get(mean, SN_A_axes)), x);
}

/* mean((x - mean x)^2) = variance x */
static sn_node *raise_variance(sn_raiser *r, sn_node *n) {
    (void)r;
    sn_node *square = n->in[0];
    if (!sn_match_float(n) || square->op != SN_OP_mul || square->in[0] != square->in[1])
        return NULL;
    sn_node *x = away_from_mean(square->in[0], n);
    return x ? make_variance(x, n) : NULL;
}

/* Whether n = (mean of x)^2, over the axes of `like`. simplify turns a mean that was written as a
 * quotient into (sum x)^2 / n^2. */
static bool is_square_of_mean(sn_node *n, const sn_node *x, const sn_node *like) {
    double c;
    int64_t size;
    const sn_node *square = sn_match_scaled(n, &c);
    if (square->op != SN_OP_mul || square->in[0] != square->in[1]) return false;
    const sn_node *m = square->in[0];
    if ((m->op != SN_OP_mean && m->op != SN_OP_reduce_sum) || m->in[0] != x || !same_axes(m, like))
        return false;
    if (m->op == SN_OP_mean) return c == 1;
    return sn_dim_is_const(n->m, count_over(x, sn_attr_get(m, SN_A_axes)), &size) &&
           sn_match_near(c * (double)size * (double)size, 1);
}

/* mean(x^2) - (mean x)^2 = variance x, without the cancellation */
static sn_node *raise_variance_difference(sn_raiser *r, sn_node *n) {
    (void)r;
    sn_node *m2 = n->in[0];
    if (!sn_match_float(n) || m2->op != SN_OP_mean || m2->in[0]->op != SN_OP_mul) return NULL;
    sn_node *x = m2->in[0]->in[0];
    return x == m2->in[0]->in[1] && is_square_of_mean(n->in[1], x, m2) ? make_variance(x, m2)
                                                                       : NULL;
}

/* n, broadcast along the last axis, is 1 / sqrt(s v + eps): v is the variance or the mean square of
 * some x over the last axis */
typedef struct norm {
    sn_node *x;
    sn_node *away;      /* what is divided: x, or x - mean x */
    double eps, factor; /* 1 / sqrt(s v + eps) = factor / sqrt(v + eps / s) */
} norm;

static bool last_axis_only(const sn_node *stat) {
    const sn_attr *axes = sn_attr_get(stat, SN_A_axes);
    return axes->n == 1 && axes->v[0] == stat->rank - 1;
}

static bool read_norm(sn_node *n, norm *k) {
    double s;
    sn_node *root = sn_match_below(n);
    if (root == n || root->op != SN_OP_rsqrt) return false;
    sn_node *v = root->in[0];
    k->eps = 0;
    if (v->op == SN_OP_add && sn_match_const(v->in[1], &k->eps)) v = v->in[0];
    v = sn_match_scaled(v, &s);
    if (!(s > 0) || !(k->eps >= 0) || isinf(k->eps)) return false;
    k->eps /= s;
    k->factor = 1 / sqrt(s);
    k->away = NULL;
    if (v->op == SN_OP_variance) {
        k->x = v->in[0];
    } else {
        if (v->op != SN_OP_mean || v->in[0]->op != SN_OP_mul) return false;
        k->x = k->away = v->in[0]->in[0];
        if (k->x != v->in[0]->in[1]) return false;
    }
    return last_axis_only(v) && v->rank == n->rank && sn_shapes_equal(k->x, n);
}

/* Finds the dividend of the norm among the factors of n; returns its index, or -1. */
static int find_divided(const norm *k, int n, sn_node *const *f, const sn_node *like) {
    for (int i = 0; i < n; i++) {
        if (k->away && f[i] == k->away) return i;
        const sn_node *mean = f[i]->op == SN_OP_sub ? sn_match_below(f[i]->in[1]) : NULL;
        if (!k->away && mean && mean->op == SN_OP_mean && last_axis_only(mean) &&
            mean->rank == like->rank && mean->in[0] == k->x && f[i]->in[0] == k->x)
            return i;
    }
    return -1;
}

static sn_node *make_norm(const norm *k, sn_node *gain) {
    sn_node *in[2] = {k->x, gain};
    sn_op op = k->away ? SN_OP_rms_norm : SN_OP_layer_norm;
    return sn_node_new(k->x->m, op, gain ? 2 : 1, in, SN_ATTRS(SN_FLT(eps, k->eps)));
}

/* (x - mean x) rsqrt(variance x + eps) g = layer_norm(x, g);  x rsqrt(mean x^2 + eps) g =
 * rms_norm(x, g); other factors stay outside */
static sn_node *raise_norm(sn_raiser *r, sn_node *n) {
    (void)r;
    sn_node *f[8];
    double c;
    norm k;
    int count = sn_match_float(n) ? sn_match_factors(n, NULL, f, 8, &c) : -1, at_root = -1;
    for (int i = 0; i < count && at_root < 0; i++)
        if (read_norm(f[i], &k)) at_root = i;
    if (at_root < 0) return NULL;
    sn_node *root = f[at_root];
    count = sn_match_factors(n, k.away, f, 8, &c);
    int at = find_divided(&k, count, f, n);
    if (at < 0) return NULL;
    sn_node *gain = NULL, *rest = NULL;
    bool seen = false;
    for (int i = 0; i < count; i++) {
        if (i == at || (f[i] == root && !seen)) {
            seen |= i != at;
            continue;
        }
        sn_node *v = sn_match_vector(f[i]);
        if (v)
            gain = gain ? sn_b_binary(SN_OP_mul, gain, v) : v;
        else
            rest = rest ? sn_b_binary(SN_OP_mul, rest, f[i]) : f[i];
    }
    if (!seen) return NULL;
    sn_node *y = make_norm(&k, gain);
    if (rest) y = sn_b_binary(SN_OP_mul, y, rest);
    return scale(y, c * k.factor);
}

/* norm(x) g = norm(x, g) */
static sn_node *add_gain(sn_raiser *r, sn_node *n) {
    for (int i = 0; i < 2; i++) {
        sn_node *y = n->in[i], *gain = sn_match_vector(n->in[1 - i]);
        if ((y->op != SN_OP_layer_norm && y->op != SN_OP_rms_norm) || y->n_in > 1) continue;
        if (!gain || sn_raise_uses(r, y) > 1 || !sn_match_float(n)) continue;
        sn_node *in[2] = {y->in[0], gain};
        return sn_node_new(n->m, (sn_op)y->op, 2, in, y->n_attr, y->attr);
    }
    return NULL;
}

/* layer_norm(x, g) + b = layer_norm(x, g, b) */
static sn_node *add_bias(sn_raiser *r, sn_node *n) {
    for (int i = 0; i < 2; i++) {
        sn_node *y = n->in[i], *bias = sn_match_vector(n->in[1 - i]);
        if (y->op != SN_OP_layer_norm || y->n_in > 2 || !bias || sn_raise_uses(r, y) > 1) continue;
        if (!sn_match_float(n)) continue;
        sn_node *one = sn_b_const(n->m, (sn_dtype)n->dtype, 1);
        sn_node *in[3] = {y->in[0], y->n_in > 1 ? y->in[1] : sn_b_broadcast_like(one, bias), bias};
        return sn_node_new(n->m, SN_OP_layer_norm, 3, in, y->n_attr, y->attr);
    }
    return NULL;
}

/* rms_norm(x - mean x, g) = layer_norm(x, g) */
static sn_node *rms_of_away(sn_raiser *r, sn_node *n) {
    (void)r;
    sn_node *d = n->in[0];
    const sn_node *mean = d->op == SN_OP_sub ? sn_match_below(d->in[1]) : NULL;
    if (!mean || mean->op != SN_OP_mean || !last_axis_only(mean) || mean->rank != n->rank ||
        mean->in[0] != d->in[0])
        return NULL;
    sn_node *in[2] = {d->in[0], n->n_in > 1 ? n->in[1] : NULL};
    return sn_node_new(n->m, SN_OP_layer_norm, n->n_in, in, n->n_attr, n->attr);
}

const sn_raising sn_raise_norm[] = {
    {SN_OP_mul, raise_mean},      {SN_OP_div, raise_mean},
    {SN_OP_mean, raise_variance}, {SN_OP_sub, raise_variance_difference},
    {SN_OP_mul, raise_norm},      {SN_OP_mul, add_gain},
    {SN_OP_add, add_bias},        {SN_OP_rms_norm, rms_of_away},
    {SN_OP_COUNT, NULL},
};
