/* mask.c: comparisons of indices and of bools get one form. */
#include "passes/match.h"
#include "passes/simplify/simplify.h"

/* An index expression in i32, whatever its type was. */
static sn_node *as_i32(sn_node *n);

static sn_node *cast_as_i32(const sn_node *n) {
    return as_i32(n->in[0]);
}

static sn_node *iota_as_i32(const sn_node *n) {
    return sn_b_iota(n->m, SN_I32, n->rank, n->shape, (int)sn_attr_int(n, SN_A_axis, 0));
}

static sn_node *dim_value_as_i32(const sn_node *n) {
    return sn_b_dim(n->m, SN_I32, sn_attr_get(n, SN_A_dim)->i);
}

static sn_node *const_as_i32(const sn_node *n) {
    return sn_b_const(n->m, SN_I32, sn_attr_flt(n, SN_A_value, 0));
}

/* Ops with a type attribute; all others have the type of their operands. */
static sn_node *(*const typed[SN_OP_COUNT])(const sn_node *n) = {
#define AS_I32(op) [SN_OP_##op] = op##_as_i32
    AS_I32(cast),
    AS_I32(iota),
    AS_I32(dim_value),
    AS_I32(const),
};

static sn_node *as_i32(sn_node *n) {
    sn_node *in[2];
    if (n->dtype == SN_I32) return n;
    if (typed[n->op]) return typed[n->op](n);
    for (int i = 0; i < n->n_in; i++) in[i] = as_i32(n->in[i]);
    return sn_node_with(n, in);
}

/* Indices are compared as i32: their values are the same in any type (match.h). */
sn_node *sn_simplify_compare_indices(sn_node *n) {
    sn_node *x = n->in[0], *y = n->in[1];
    double c;
    if (x->dtype == SN_I32 || x->dtype == SN_BOOL) return NULL;
    if (!sn_match_index(x) || !sn_match_index(y)) return NULL;
    if (sn_match_const(x, &c) && sn_match_const(y, &c)) return NULL;
    return sn_b_binary((sn_op)n->op, as_i32(x), as_i32(y));
}

/* A bool compared with a constant, even through a cast to numbers, is itself or its negation. */
sn_node *sn_simplify_compare_bool(sn_node *n) {
    double c;
    for (int i = 0; i < 2; i++) {
        sn_node *x = n->in[i], *k = n->in[1 - i];
        if (x->op == SN_OP_cast && x->in[0]->dtype == SN_BOOL) x = x->in[0];
        if (x->dtype != SN_BOOL || !sn_match_const(k, &c)) continue;
        double at[2]; /* the result for false and for true */
        for (int b = 0; b < 2; b++)
            at[b] = sn_elem_ref((sn_op)n->op, false, i ? c : b, i ? b : c, 0);
        if (at[0] == at[1]) return sn_b_broadcast_like(sn_b_const(n->m, SN_BOOL, at[0] != 0), n);
        return at[1] != 0 ? x : sn_b_unary(SN_OP_not, x);
    }
    return NULL;
}
