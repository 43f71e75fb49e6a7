/* norm.c: layer_norm and rms_norm over the last axis, with gain and bias. */
#include "passes/graph_util.h"
#include "passes/match.h"
#include "passes/raise/raise.h"

#include <math.h>

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
sn_node *sn_raise_norm(sn_node *n) {
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
    return sn_raise_times(make_norm(&k, gain), 1, &rest, c * k.factor);
}

/* norm(x) g = norm(x, g) */
sn_node *sn_raise_gain(sn_raiser *r, sn_node *n) {
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
sn_node *sn_raise_bias(sn_raiser *r, sn_node *n) {
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
