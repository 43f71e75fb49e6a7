/* fold.c: folding when a node is created. A rule gets operands and attributes of a new node and
 * returns an existing or smaller node, or NULL. Laws: dtype and shape are preserved exactly; no
 * additional work; only exact identities (an f32 result may differ from the unfolded one in the
 * sign of a zero only). */
#include "ir/ir.h"

#include <math.h>
#include <string.h>

typedef struct fold_ctx {
    sn_module *m;
    sn_op op;
    int n_in;
    sn_node *const *in;
    int n_attr;
    const sn_attr *attr;
    const sn_type *type;
} ctx;

static const sn_attr *attr_of(const ctx *c, sn_attr_key key) {
    return sn_attr_find(c->n_attr, c->attr, key);
}

/* Whether n is a constant, possibly broadcast. */
static bool const_value(const sn_node *n, double *v) {
    while (n->op == SN_OP_broadcast || n->op == SN_OP_reshape) n = n->in[0];
    if (n->op != SN_OP_const) return false;
    *v = sn_attr_flt(n, SN_A_value, 0);
    return true;
}

static sn_node *filled(const ctx *c, double v) {
    sn_node *k = sn_b_const(c->m, c->type->dtype, sn_round_to(c->type->dtype, v));
    return sn_b_broadcast(k, c->type->rank, c->type->shape);
}

static bool same_type(const ctx *c, const sn_node *n) {
    return n->dtype == c->type->dtype && n->rank == c->type->rank &&
           (!n->rank || !memcmp(n->shape, c->type->shape, sizeof(sn_dim) * n->rank));
}

static sn_node *fold_constants(const ctx *c) {
    double v[3] = {0};
    for (int i = 0; i < c->n_in; i++)
        if (!const_value(c->in[i], &v[i])) return NULL;
    bool integer = !sn_dtype_is_float((sn_dtype)c->in[0]->dtype);
    double r = sn_elem_ref(c->op, integer, v[0], v[1], v[2]);
    /* too large for a constant to represent exactly */
    if (integer && fabs(r) > 0x1p53) return NULL;
    return filled(c, r);
}

/* x op k = x for a constant k on the right (or on either side of a commutative op) */
static sn_node *fold_neutral(const ctx *c) {
    static const struct {
        sn_op op;
        double neutral;
        bool both_sides;
    } table[] = {{SN_OP_add, 0, true},
                 {SN_OP_sub, 0, false},
                 {SN_OP_mul, 1, true},
                 {SN_OP_div, 1, false},
                 {SN_OP_pow, 1, false}};
    double v;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (table[i].op != c->op) continue;
        if (const_value(c->in[1], &v) && v == table[i].neutral) return c->in[0];
        if (table[i].both_sides && const_value(c->in[0], &v) && v == table[i].neutral)
            return c->in[1];
    }
    return NULL;
}

/* (x - y) + y = x, modulo the size of integers */
static sn_node *fold_inverse(const ctx *c) {
    if (c->op != SN_OP_add || sn_dtype_is_float(c->type->dtype)) return NULL;
    for (int i = 0; i < 2; i++)
        if (c->in[i]->op == SN_OP_sub && c->in[i]->in[1] == c->in[1 - i]) return c->in[i]->in[0];
    return NULL;
}

static sn_node *fold_logic(const ctx *c) {
    double v;
    if (c->type->dtype != SN_BOOL || (c->op != SN_OP_and && c->op != SN_OP_or)) return NULL;
    if (c->in[0] == c->in[1]) return c->in[0];
    for (int i = 0; i < 2; i++)
        if (const_value(c->in[i], &v)) /* and: true is neutral, false absorbs; or: the opposite */
            return (v != 0) == (c->op == SN_OP_and) ? c->in[1 - i] : c->in[i];
    return NULL;
}

static sn_node *fold_unary(const ctx *c) {
    sn_node *x = c->in[0];
    if ((c->op == SN_OP_neg || c->op == SN_OP_not) && x->op == c->op) return x->in[0];
    if (c->op == SN_OP_cast && x->dtype == c->type->dtype) return x;
    if (c->op == SN_OP_stop_gradient && x->op == SN_OP_stop_gradient) return x;
    return NULL;
}

static sn_node *fold_select(const ctx *c) {
    double v;
    if (c->op != SN_OP_select) return NULL;
    if (c->in[1] == c->in[2]) return c->in[1];
    if (const_value(c->in[0], &v)) return v != 0 ? c->in[1] : c->in[2];
    return NULL;
}

static sn_node *fold_broadcast(const ctx *c) {
    sn_node *x = c->in[0];
    if (c->op != SN_OP_broadcast) return NULL;
    if (same_type(c, x)) return x;
    if (x->op == SN_OP_broadcast) return sn_b_broadcast(x->in[0], c->type->rank, c->type->shape);
    return NULL;
}

static sn_node *fold_reshape(const ctx *c) {
    sn_node *x = c->in[0];
    double v;
    if (c->op != SN_OP_reshape) return NULL;
    if (same_type(c, x)) return x;
    if (x->op == SN_OP_reshape) return sn_b_reshape(x->in[0], c->type->rank, c->type->shape);
    if (const_value(x, &v)) return filled(c, v);
    return NULL;
}

static sn_node *fold_transpose(const ctx *c) {
    sn_node *x = c->in[0];
    double v;
    if (c->op != SN_OP_transpose) return NULL;
    const sn_attr *perm = attr_of(c, SN_A_perm);
    bool identity = true;
    for (int i = 0; i < perm->n; i++) identity &= perm->v[i] == i;
    if (identity) return x;
    if (const_value(x, &v)) return filled(c, v);
    if (x->op == SN_OP_transpose) {
        const sn_attr *inner = sn_attr_get(x, SN_A_perm);
        int64_t both[SN_MAX_RANK];
        for (int i = 0; i < perm->n; i++) both[i] = inner->v[perm->v[i]];
        return sn_b_transpose(x->in[0], perm->n, both);
    }
    return NULL;
}

static sn_node *fold_slice(const ctx *c) {
    sn_node *x = c->in[0];
    double v;
    if (c->op != SN_OP_slice) return NULL;
    if (const_value(x, &v)) return filled(c, v);
    if (!same_type(c, x)) return NULL;
    const sn_attr *start = attr_of(c, SN_A_start), *step = attr_of(c, SN_A_step);
    for (int i = 0; i < start->n; i++)
        if (start->v[i] != 0 || (step && step->v[i] != 1)) return NULL;
    return x;
}

static sn_node *fold_movement(const ctx *c) {
    if (c->op == SN_OP_concat && c->n_in == 1) return c->in[0];
    if (c->op == SN_OP_pad && same_type(c, c->in[0])) {
        const sn_attr *low = attr_of(c, SN_A_low), *high = attr_of(c, SN_A_high);
        for (int i = 0; i < low->n; i++)
            if (low->v[i] || high->v[i]) return NULL;
        return c->in[0];
    }
    if (sn_ops[c->op].rule && !strcmp(sn_ops[c->op].rule, "reduce")) {
        const sn_attr *axes = attr_of(c, SN_A_axes); /* over axes of size 1: no-op */
        for (int i = 0; i < axes->n; i++)
            if (c->in[0]->shape[axes->v[i]] != 1) return NULL;
        return c->in[0];
    }
    return NULL;
}

sn_node *sn_fold(sn_module *m, sn_op op, int n_in, sn_node *const *in, int n_attr,
                 const sn_attr *attr, const sn_type *type) {
    ctx c = {m, op, n_in, in, n_attr, attr, type};
    static sn_node *(*const elem_rules[])(const ctx *) = {
        fold_constants, fold_neutral, fold_inverse, fold_logic, fold_unary, fold_select};
    static sn_node *(*const prim_rules[])(const ctx *) = {
        fold_broadcast, fold_reshape, fold_transpose, fold_slice, fold_movement};
    sn_node *r = NULL;
    if (!n_in) return NULL; /* leaves are not folded */
    if (sn_ops[op].kind == SN_ELEM)
        for (size_t i = 0; i < sizeof elem_rules / sizeof *elem_rules && !r; i++)
            r = elem_rules[i](&c);
    else
        for (size_t i = 0; i < sizeof prim_rules / sizeof *prim_rules && !r; i++)
            r = prim_rules[i](&c);
    return r;
}
