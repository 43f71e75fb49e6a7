/* sink.c: other spellings of softmax with a sink z, a score that takes part in the denominator and has
 * no value: a column that is dropped after the softmax, and a sigmoid of logsumexp - z. */
#include "passes/graph_util.h"
#include "passes/match.h"
#include "passes/raise/attention.h"
#include "passes/simplify/simplify.h"

#include <math.h>

/* The part of x's axis that n does not have, if n is x without its first or last elements on that
 * axis only; NULL: it is something else. */
static sn_node *dropped_part(const sn_node *n, int axis, sn_node *const *part, int n_part) {
    const sn_node *x = n->in[0];
    const sn_attr *start = sn_attr_get(n, SN_A_start), *step = sn_attr_get(n, SN_A_step);
    sn_dim at = 0;
    for (int a = 0; a < n->rank; a++) {
        if (step && step->v[a] != 1) return NULL;
        if (a != axis && n->shape[a] != x->shape[a]) return NULL;
    }
    if (n_part != 2 || !start) return NULL;
    for (int i = 0; i < 2; i++) { /* the slice is part i */
        if (start->v[axis] == at && n->shape[axis] == part[i]->shape[axis]) return part[1 - i];
        at = part[i]->shape[axis];
    }
    return NULL;
}

/* softmax(x padded with n columns of c) without these columns = softmax(x) with the sink c + ln n */
static sn_node *drop_padding(const sn_node *n, const sn_node *pad, int axis) {
    sn_node *x = pad->in[0];
    const sn_attr *low = sn_attr_get(pad, SN_A_low), *start = sn_attr_get(n, SN_A_start),
                  *step = sn_attr_get(n, SN_A_step);
    double c = sn_attr_flt(pad, SN_A_value, 0);
    sn_dim shape[SN_MAX_RANK];
    int64_t columns;
    for (int a = 0; a < n->rank; a++) {
        shape[a] = a == axis ? 1 : x->shape[a];
        if (step && step->v[a] != 1) return NULL;
        if (n->shape[a] != x->shape[a] || (a != axis && pad->shape[a] != x->shape[a])) return NULL;
    }
    sn_dim more = sn_dim_sub(n->m, pad->shape[axis], x->shape[axis]);
    if (!start || start->v[axis] != low->v[axis] || !isfinite(c) ||
        !sn_dim_is_const(n->m, more, &columns) || columns < 1)
        return NULL;
    sn_node *z = sn_b_const(n->m, (sn_dtype)x->dtype, c + log((double)columns));
    return sn_b_softmax(x, sn_b_broadcast(z, x->rank, shape), axis);
}

/* softmax(concat(x, z)) without z's columns = softmax(x) with the sink logsumexp z */
sn_node *sn_raise_drop_column(sn_node *n) {
    const sn_node *s = n->in[0], *all = s->in[0];
    if (s->op != SN_OP_softmax || s->n_in > 1) return NULL;
    int axis = (int)sn_attr_int(s, SN_A_axis, s->rank - 1);
    if (all->op == SN_OP_pad) return drop_padding(n, all, axis);
    if (all->op != SN_OP_concat || sn_attr_int(all, SN_A_axis, 0) != axis) return NULL;
    sn_node *z = dropped_part(n, axis, all->in, all->n_in);
    int64_t columns;
    if (!z || !sn_dim_is_const(n->m, z->shape[axis], &columns)) return NULL;
    sn_node *x = all->in[z == all->in[0]];
    if (columns != 1) z = sn_raise_on_axis(SN_OP_logsumexp, z, axis);
    return sn_b_softmax(x, z, axis);
}

/* z, if n is logsumexp(x) - z along the axis, for the x of softmax(x); NULL: it is not */
static sn_node *sink_below(sn_node *n, const sn_node *softmax) {
    int axis = (int)sn_attr_int(softmax, SN_A_axis, softmax->rank - 1);
    for (int i = 0; i < 2; i++) {
        bool alone = n->op == SN_OP_logsumexp;
        if (!alone && n->op != SN_OP_add && (n->op != SN_OP_sub || i)) continue;
        const sn_node *l = alone ? n : sn_match_below(n->in[i]);
        if (l->op != SN_OP_logsumexp || l->in[0] != softmax->in[0] ||
            sn_attr_int(l, SN_A_axis, l->rank - 1) != axis || !sn_shapes_equal(l, n))
            continue;
        if (alone) return sn_b_broadcast_like(sn_b_const(n->m, (sn_dtype)n->dtype, 0), n);
        return n->op == SN_OP_add ? sn_b_unary(SN_OP_neg, n->in[1 - i]) : n->in[1];
    }
    return NULL;
}

/* softmax(x) with the sink that sigmoid `gate` stands for; NULL: it stands for none */
static sn_node *gated(const sn_node *softmax, const sn_node *gate) {
    if (softmax->op != SN_OP_softmax || softmax->n_in > 1) return NULL;
    sn_node *z = sink_below(sn_match_below(gate->in[0]), softmax);
    int axis = (int)sn_attr_int(softmax, SN_A_axis, softmax->rank - 1);
    return z ? sn_b_softmax(softmax->in[0], z, axis) : NULL;
}

/* Factor y of n with the sink that `gate` stands for: softmax(x), or dot(softmax(x), v). */
static sn_node *gated_factor(sn_node *y, const sn_node *gate) {
    if (gate->rank != y->rank) return NULL;
    if (y->op != SN_OP_dot) return gated(y, gate);
    for (int side = 0; side < 2; side++) {
        sn_node *in[2] = {y->in[0], y->in[1]};
        const sn_node *softmax = in[side];
        const sn_attr *over = ra_contract_of(y, side);
        if (softmax->op != SN_OP_softmax || !over || over->n != 1 ||
            over->v[0] != sn_attr_int(softmax, SN_A_axis, softmax->rank - 1) ||
            !ra_goes_with(gate, y, side) || !(in[side] = gated(softmax, gate)))
            continue;
        return sn_node_with(y, in);
    }
    return NULL;
}

/* Axes of size 1 added to the operands instead of to the result of elementwise operations. */
static sn_node *reshape_operands(sn_node *n, int depth) {
    const sn_node *x = n->in[0];
    sn_node *in[3];
    if (n->op != SN_OP_reshape || !sn_is_elementwise(x) || x->n_in > 3 || !depth) return n;
    for (int i = 0; i < x->n_in; i++)
        in[i] = reshape_operands(sn_b_reshape(x->in[i], n->rank, n->shape), depth - 1);
    return sn_simplify_node(sn_node_with(x, in), SN_LEVEL_HIGHEST);
}

/* softmax(x) sigmoid(logsumexp(x) - z) = softmax(x) with the sink z; also after the product with
 * values */
sn_node *sn_raise_gate_by_logsumexp(sn_node *n) {
    sn_node *f[6], *y = NULL;
    double c;
    int k = sn_match_float(n) ? sn_match_factors(n, NULL, f, 6, &c) : -1;
    for (int i = 0; i < k; i++) {
        enum { DEPTH = 3 }; /* sigmoid, difference, broadcast sink */
        const sn_node *gate = sn_match_below(f[i]);
        if (gate->op == SN_OP_reshape && gate->in[0]->op == SN_OP_sigmoid)
            gate = reshape_operands((sn_node *)(uintptr_t)gate, DEPTH);
        if (gate->op != SN_OP_sigmoid) continue;
        for (int j = 0; j < k; j++) {
            if (j == i || !sn_shapes_equal(f[j], n) || !(y = gated_factor(f[j], gate))) continue;
            f[i] = f[j] = NULL;
            return sn_raise_times(y, k, f, c);
        }
    }
    return NULL;
}
