/* grad_comps.c: gradients of composites with GRAD, where differentiating the decomposition would be
 * wasteful, less accurate, or not the usual convention. They reuse the nodes of the forward part,
 * which are computed once, and can be differentiated again. */
#include "ir/grad_impl.h"

#include <math.h>
#include <string.h>

#define X wide(c, c->n->in[0])
#define G wide(c, c->g)

/* The type in which the composite is computed: the widest float of its operands, at least f32. */
static sn_node *wide(const grad *c, sn_node *x) {
    sn_dtype t = SN_F32;
    for (int i = 0; i < c->n->n_in; i++)
        if (c->n->in[i]->dtype == SN_F64) t = SN_F64;
    return sn_b_cast(x, t);
}

/* ---- activations ---- */

/* slope 0 at 0, where max(x, 0) would give 1/2 */
bool grad_relu(grad *c) {
    sn_node *x = c->n->in[0];
    sn_gr_give(c, 0, sn_b_select(OP2(lt, sn_gr_fill(x, 0), x), c->g, sn_gr_fill(c->g, 0)));
    return true;
}

/* s + x s (1 - s) for s = sigmoid(x) */
bool grad_silu(grad *c) {
    sn_node *x = X, *s = OP1(sigmoid, x);
    sn_node *bend = OP2(mul, x, OP2(sub, sn_gr_fill(s, 1), s));
    sn_gr_give(c, 0, OP2(mul, G, OP2(mul, s, OPC(add, bend, 1))));
    return true;
}

bool grad_softplus(grad *c) {
    sn_gr_give(c, 0, OP2(mul, G, OP1(sigmoid, X)));
    return true;
}

/* ---- statistics and norms ---- */

/* 2 (x - mean) / n: the terms through the mean cancel */
bool grad_variance(grad *c) {
    const sn_attr *axes = sn_attr_get(c->n, SN_A_axes);
    sn_node *x = X;
    sn_dim count = 1;
    for (int i = 0; i < axes->n; i++) count = sn_dim_mul(x->m, count, x->shape[axes->v[i]]);
    sn_node *away = OP2(sub, x, sn_b_mean(x, axes->n, axes->v));
    sn_node *g = OP2(div, OPC(mul, G, 2), sn_b_dim(x->m, (sn_dtype)x->dtype, count));
    sn_gr_give(c, 0, OP2(mul, away, g));
    return true;
}

/* y of [.., d] summed to [d] */
static sn_node *sum_rows(sn_node *y) {
    int64_t axes[SN_MAX_RANK];
    for (int i = 0; i < y->rank; i++) axes[i] = i;
    if (y->rank > 1) y = sn_b_reduce(SN_OP_reduce_sum, y, y->rank - 1, axes);
    return sn_b_reshape(y, 1, &y->shape[y->rank - 1]);
}

/* Contributes to gain and bias of y = x_hat gain + bias. */
static void give_affine(grad *c, sn_node *unit) {
    sn_node *g = G;
    if (c->n->n_in > 1 && sn_gr_needs(c, 1)) sn_gr_give(c, 1, sum_rows(OP2(mul, g, unit)));
    if (c->n->n_in > 2 && sn_gr_needs(c, 2)) sn_gr_give(c, 2, sum_rows(g));
}

static sn_node *norm_scale(const grad *c, sn_node *x) {
    sn_node *square = sn_b_mean_last(OP2(mul, x, x));
    return OP1(rsqrt, OPC(add, square, sn_attr_flt(c->n, SN_A_eps, 1e-5)));
}

bool grad_layer_norm(grad *c) {
    sn_node *x = X, *away = OP2(sub, x, sn_b_mean_last(x));
    if (sn_gr_needs(c, 0)) {
        sn_node *in[3] = {x, G, c->n->n_in > 1 ? wide(c, c->n->in[1]) : NULL};
        sn_gr_give(
            c, 0,
            sn_node_new(x->m, SN_OP_layer_norm_grad, in[2] ? 3 : 2, in, c->n->n_attr, c->n->attr));
    }
    give_affine(c, OP2(mul, away, norm_scale(c, away)));
    return true;
}

/* With x_hat = x scale of mean square 1 (up to eps) and h = g gain: scale (h - x_hat mean(h
 * x_hat)) */
bool grad_rms_norm(grad *c) {
    sn_node *x = X, *scale = norm_scale(c, x), *unit = OP2(mul, x, scale), *h = G;
    if (c->n->n_in > 1) h = OP2(mul, h, wide(c, c->n->in[1]));
    if (sn_gr_needs(c, 0)) {
        sn_node *d = OP2(sub, h, OP2(mul, unit, sn_b_mean_last(OP2(mul, h, unit))));
        sn_gr_give(c, 0, OP2(mul, d, scale));
    }
    give_affine(c, unit);
    return true;
}

/* ---- softmax and its logarithms ---- */

static int axis_of(const grad *c) {
    return (int)sn_attr_int(c->n, SN_A_axis, c->n->in[0]->rank - 1);
}

static sn_node *softmax(sn_node *x, int axis) {
    return SN_NODE(x->m, softmax, SN_ATTRS(SN_INT(axis, axis)), x);
}

static sn_node *sum_over(sn_node *x, int64_t axis) {
    return sn_b_reduce(SN_OP_reduce_sum, x, 1, &axis);
}

static sn_node *take_sorted(sn_node *x, sn_node *index, int axis) {
    return SN_NODE(x->m, take_sorted, SN_ATTRS(SN_INT(axis, axis)), x, index);
}

/* Of a permutation each element of x gets the cotangent at its rank: a look-up at the inverse permutation, which
 * sorts the permutation. Of the first so many indices, those of sn_top_k, few elements get one. */
bool grad_take_sorted(grad *c) {
    sn_node *x = X, *index = c->n->in[1], *in[SN_MAX_RANK + 1] = {G};
    const int axis = axis_of(c);
    if (index->op != SN_OP_argsort) return false;
    if (index->shape[axis] == x->shape[axis]) {
        sn_node *rank = SN_NODE(x->m, argsort, SN_ATTRS(SN_INT(axis, axis)), index);
        sn_gr_give(c, 0, take_sorted(G, rank, axis));
        return true;
    }
    for (int i = 0; i < x->rank; i++)
        in[i + 1] = i == axis ? index : sn_b_iota(x->m, SN_I32, index->rank, index->shape, i);
    sn_gr_give(c, 0,
               sn_node_new(x->m, SN_OP_scatter_nd_add, x->rank + 1, in,
                           SN_ATTRS(SN_LIST(shape, x->rank, x->shape))));
    return true;
}

bool grad_softmax(grad *c) {
    int axis = axis_of(c);
    sn_node *x = X;
    sn_node *z = c->n->n_in > 1 ? sn_b_cast(c->n->in[1], (sn_dtype)x->dtype) : NULL;
    sn_node *p = z ? SN_NODE(x->m, softmax, SN_ATTRS(SN_INT(axis, axis)), x, z) : softmax(x, axis);
    sn_gr_give(c, 0, SN_NODE(x->m, softmax_grad, SN_ATTRS(SN_INT(axis, axis)), p, G));
    if (!z || !sn_gr_needs(c, 1)) return true;
    /* the sink's own weight, times 0 - sum(p g) */
    sn_node *lse = SN_NODE(x->m, logsumexp, SN_ATTRS(SN_INT(axis, axis)), x);
    sn_node *weight = sn_b_unary(SN_OP_sigmoid, OP2(sub, z, lse));
    sn_node *flow = sn_b_unary(SN_OP_neg, OP2(mul, weight, sum_over(OP2(mul, p, G), axis)));
    sn_node *none = sn_b_scalar(SN_OP_eq, z, -INFINITY);
    sn_gr_give(c, 1, sn_b_select(none, sn_b_const(x->m, (sn_dtype)x->dtype, 0), flow));
    return true;
}

bool grad_log_softmax(grad *c) {
    int axis = axis_of(c);
    sn_node *g = G;
    sn_gr_give(c, 0, OP2(sub, g, OP2(mul, softmax(X, axis), sum_over(g, axis))));
    return true;
}

bool grad_logsumexp(grad *c) {
    sn_gr_give(c, 0, OP2(mul, softmax(X, axis_of(c)), G));
    return true;
}

/* ---- convolution ---- */

bool grad_conv2d(grad *c) {
    const sn_node *n = c->n;
    sn_attr *attr = sn_arena_alloc(n->m, sizeof *attr * (size_t)(n->n_attr + 1));
    for (int i = 0; i < n->n_attr; i++) attr[i] = n->attr[i];
    for (int i = 0; i < 2; i++) {
        attr[n->n_attr] = SN_INT(index, i);
        if (sn_gr_needs(c, i))
            sn_gr_give(c, i,
                       sn_node_new(n->m, SN_OP_conv2d_grad, 3,
                                   (sn_node *[]){n->in[0], n->in[1], c->g}, n->n_attr + 1, attr));
    }
    if (n->n_in > 2 && sn_gr_needs(c, 2)) {
        const int64_t places[] = {0, 2, 3};
        sn_node *sum = sn_b_reduce(SN_OP_reduce_sum, G, 3, places);
        sn_gr_give(c, 2, sn_b_reshape(sum, 1, &n->shape[1]));
    }
    return true;
}

/* ---- losses, positions, noise ---- */

/* (softmax(x) - one_hot(target)) g; 0 for a target that is not a class */
bool grad_cross_entropy(grad *c) {
    sn_node *x = X, *target = c->n->in[1], *g = G;
    int last = x->rank - 1;
    sn_node *column = sn_b_iota(x->m, (sn_dtype)target->dtype, 1, &x->shape[last], 0);
    sn_node *hit = OP2(eq, sn_b_column(target), column);
    sn_node *id = sn_b_cast(target, SN_I64), *classes = sn_b_dim(x->m, SN_I64, x->shape[last]);
    sn_node *valid = OP2(and, OP2(le, sn_gr_fill(id, 0), id), OP2(lt, id, classes));
    sn_node *weight = sn_b_column(sn_b_select(valid, g, sn_gr_fill(g, 0)));
    sn_node *away = OP2(sub, softmax(x, last), sn_b_cast(hit, (sn_dtype)x->dtype));
    sn_gr_give(c, 0, OP2(mul, away, weight));
    return true;
}

/* Rotates back by the same angles. Gradients of positions and frequencies are left to the
 * decomposition. */
bool grad_rope(grad *c) {
    const sn_node *n = c->n;
    if (sn_gr_needs(c, 1) || (n->n_in > 2 && sn_gr_needs(c, 2))) return false;
    sn_node *in[3] = {c->g, OP1(neg, n->in[1]), n->n_in > 2 ? n->in[2] : NULL};
    sn_gr_give(c, 0, sn_node_new(n->m, SN_OP_rope, n->n_in, in, n->n_attr, n->attr));
    return true;
}

/* The same elements of g, using the same random numbers. */
bool grad_dropout(grad *c) {
    sn_gr_give(c, 0,
               sn_node_new(c->n->m, SN_OP_dropout, 2, (sn_node *[]){c->g, c->n->in[1]},
                           c->n->n_attr, c->n->attr));
    return true;
}

/* ---- attention ---- */

static bool listed(int n, const int64_t *list, int64_t v) {
    for (int i = 0; i < n; i++)
        if (list[i] == v) return true;
    return false;
}

/* The gradient of attention, which follows, takes this cotangent, too: one kernel for both. */
bool grad_attention_lse(grad *c) {
    sn_node *n = c->n, *of = n->in[0];
    bool same = of->op == SN_OP_attention && of->n_in == n->n_in - 1 && sn_gr_needs(c, 0);
    for (int i = 1; same && i < n->n_in; i++) same = n->in[i] == of->in[i - 1];
    if (!same) return false;
    c->lse[of->id] = n;
    sn_gr_give(c, 0, sn_gr_fill(of, 0));
    return true;
}

/* Masks have no gradient, so captured tensors have none without a score region. */
bool grad_mixed_attention(grad *c) {
    enum { MORE = 2 };
    const sn_node *n = c->n;
    int64_t mix = sn_attr_int(n, SN_A_mix, 0);
    int n_grad = 3 + (int)(mix & 1) + (int)(mix >> 1 & 1);
    if (sn_attr_get(n, SN_A_score)) return false;
    sn_node **in = sn_arena_alloc(n->m, sizeof *in * (size_t)(n->n_in + MORE));
    sn_attr *attr = sn_arena_alloc(n->m, sizeof *attr * (size_t)(n->n_attr + 1));
    for (int i = 0; i < n->n_in; i++) in[i < 3 ? i : i + MORE] = n->in[i];
    in[3] = c->n;
    in[4] = c->g;
    for (int i = 0; i < n->n_attr; i++) attr[i] = n->attr[i];
    for (int i = 0; i < n_grad; i++) {
        if (!sn_gr_needs(c, i)) continue;
        attr[n->n_attr] = SN_INT(index, i);
        sn_gr_give(
            c, i,
            sn_node_new(n->m, SN_OP_mixed_attention_grad, n->n_in + MORE, in, n->n_attr + 1, attr));
    }
    return true;
}

/* One node per operand; a kernel with several results computes them together. */
bool grad_attention(grad *c) {
    enum { MAX_CAPTURED_GRADS = 5 };
    const sn_node *n = c->n;
    sn_node *lse = c->lse[n->id];
    int more = lse ? 4 : 2;
    int n_captured = sn_attention_n_captured(n), sink = sn_attention_sink(n), n_wrt = 0, n_attr = 0;
    int64_t wrt[SN_MAX_RESULTS];
    const sn_region *score = sn_attr_region(n, SN_A_score);
    sn_node **in = sn_arena_alloc(n->m, sizeof *in * (size_t)(n->n_in + more));
    sn_attr *attr = sn_arena_alloc(n->m, sizeof *attr * (size_t)(n->n_attr + 3));
    for (int i = 0; i < n_captured; i++) {
        bool is_float = sn_dtype_is_float((sn_dtype)n->in[3 + i]->dtype);
        if (!is_float || !sn_gr_needs(c, 3 + i) || !sn_score_reads(score, i)) continue;
        if (n_wrt == MAX_CAPTURED_GRADS || n->in[3 + i]->rank + 2 > SN_MAX_RANK) return false;
        wrt[n_wrt++] = i;
    }
    for (int i = 0; i < n->n_in; i++) in[i < 3 ? i : i + more] = n->in[i];
    in[3] = c->n;
    in[4] = c->g;
    if (lse) in[5] = lse, in[6] = c->sum[lse->id];
    for (int i = 0; i < n->n_attr; i++) attr[n_attr++] = n->attr[i];
    if (n_wrt) attr[n_attr++] = SN_LIST(wrt, n_wrt, wrt);
    if (lse) attr[n_attr++] = SN_INT(lse, 1);
    for (int i = 0; i < n->n_in; i++) {
        if (!sn_gr_needs(c, i) || (i >= 3 && i != sink && !listed(n_wrt, wrt, i - 3))) continue;
        attr[n_attr] = SN_INT(index, i);
        sn_gr_give(c, i,
                   sn_node_new(n->m, SN_OP_attention_grad, n->n_in + more, in, n_attr + 1, attr));
    }
    return true;
}
