/* mask.c: rules of comparisons and masks: `not` is pushed down, comparisons of indices get one
 * form, additive and multiplicative masks become select and `and`. */
#include "passes/match.h"
#include "passes/simplify/simplify.h"

#include <math.h>

static bool is_integer(const sn_node *n) {
    return !sn_dtype_is_float((sn_dtype)n->dtype) && n->dtype != SN_BOOL;
}

static bool is_hidden(const sn_node *n) {
    return sn_match_value(n, -INFINITY);
}

static sn_node *negate(sn_node *c) {
    return sn_b_unary(SN_OP_not, c);
}

/* ---- not ---- */

/* not (a op b) = a' to b': SAME operands, SWAPPED (only of integers, since a NaN is neither < nor
 * >=), or NEGATED (De Morgan). */
typedef struct negation {
    sn_op to;
    enum { SAME = 1, SWAPPED, NEGATED } operands;
} negation;

static const negation negations[SN_OP_COUNT] = {
#define NOT(op, to, operands) [SN_OP_##op] = {SN_OP_##to, operands}
    NOT(lt, le, SWAPPED), NOT(le, lt, SWAPPED),  NOT(eq, ne, SAME),
    NOT(ne, eq, SAME),    NOT(and, or, NEGATED), NOT(or, and, NEGATED),
};

static sn_node *push_not(sn_node *n) {
    sn_node *c = n->in[0], *a = c->n_in > 0 ? c->in[0] : NULL, *b = c->n_in > 1 ? c->in[1] : NULL;
    const negation *r = &negations[c->op];
    if (c->op == SN_OP_broadcast) return sn_b_broadcast_like(negate(a), n);
    if (r->operands == SAME) return sn_b_binary(r->to, a, b);
    if (r->operands == NEGATED) return sn_b_binary(r->to, negate(a), negate(b));
    return r->operands == SWAPPED && is_integer(a) ? sn_b_binary(r->to, b, a) : NULL;
}

/* ---- comparisons ---- */

/* (x as t) < (y as t) = x < y for integers, if t holds all their values */
static sn_node *compare_casts(sn_node *n) {
    static const uint8_t bits[SN_DTYPE_COUNT] = {
        [SN_I8] = 7, [SN_U8] = 8, [SN_I32] = 31, [SN_I64] = 63, [SN_F32] = 24, [SN_F64] = 53};
    sn_node *x = n->in[0], *y = n->in[1];
    double c;
    sn_node *a = x->op == SN_OP_cast ? x->in[0] : NULL, *b = y->op == SN_OP_cast ? y->in[0] : NULL;
    if (!a && !b) return NULL;
    sn_node *known = a ? a : b;
    sn_dtype t = (sn_dtype)known->dtype;
    if (!is_integer(known) || bits[t] > bits[x->dtype] || t == (sn_dtype)x->dtype) return NULL;
    if (a && b) return a->dtype == b->dtype ? sn_b_binary((sn_op)n->op, a, b) : NULL;
    bool fits = sn_match_const(a ? y : x, &c) && floor(c) == c && fabs(c) < ldexp(1, bits[t]) &&
                (t != SN_U8 || c >= 0);
    if (!fits) return NULL;
    sn_node *k = sn_b_const(n->m, t, c);
    return a ? sn_b_binary((sn_op)n->op, a, k) : sn_b_binary((sn_op)n->op, k, b);
}

/* integers: x <= c = x < c + 1;  c <= x = c - 1 < x */
static sn_node *compare_constant(sn_node *n) {
    double c;
    if (!is_integer(n->in[0]) || n->in[0]->dtype == SN_U8 || n->in[0]->dtype == SN_I8) return NULL;
    if (sn_match_const(n->in[1], &c) && fabs(c) < 0x1p30)
        return sn_b_binary(SN_OP_lt, n->in[0], sn_b_const(n->m, (sn_dtype)n->in[0]->dtype, c + 1));
    if (sn_match_const(n->in[0], &c) && fabs(c) < 0x1p30)
        return sn_b_binary(SN_OP_lt, sn_b_const(n->m, (sn_dtype)n->in[0]->dtype, c - 1), n->in[1]);
    return NULL;
}

/* indices: a - b < c = a < b + c;  c < a - b = b + c < a */
static sn_node *compare_difference(sn_node *n) {
    for (int i = 0; i < 2; i++) {
        sn_node *d = n->in[i], *k = n->in[1 - i];
        double c;
        if (!is_integer(d) || d->op != SN_OP_sub || !sn_match_const(k, &c) || !sn_match_index(d))
            continue;
        sn_node *moved = sn_b_scalar(SN_OP_add, d->in[1], c);
        return i ? sn_b_binary(SN_OP_lt, moved, d->in[0]) : sn_b_binary(SN_OP_lt, d->in[0], moved);
    }
    return NULL;
}

/* indices, which do not overflow: x + c < y = x < y - c, <= likewise;  x < y + c = x <= y + (c-1);
 * x <= y - 1 = x < y */
static sn_node *compare_step(sn_node *n) {
    sn_node *x = n->in[0], *y = n->in[1];
    double c;
    if (!is_integer(x) || !sn_match_index(x) || !sn_match_index(y)) return NULL;
    if (sn_match_const(x, &c) || sn_match_const(y, &c)) return NULL;
    if (x->op == SN_OP_add && sn_match_const(x->in[1], &c))
        return sn_b_binary((sn_op)n->op, x->in[0], sn_b_scalar(SN_OP_add, y, -c));
    if (y->op != SN_OP_add || !sn_match_const(y->in[1], &c)) return NULL;
    if (n->op == SN_OP_lt) return sn_b_binary(SN_OP_le, x, sn_b_scalar(SN_OP_add, y->in[0], c - 1));
    return c == -1 ? sn_b_binary(SN_OP_lt, x, y->in[0]) : NULL;
}

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
static sn_node *compare_indices(sn_node *n) {
    sn_node *x = n->in[0], *y = n->in[1];
    double c;
    if (x->dtype == SN_I32 || x->dtype == SN_BOOL) return NULL;
    if (!sn_match_index(x) || !sn_match_index(y)) return NULL;
    if (sn_match_const(x, &c) && sn_match_const(y, &c)) return NULL;
    return sn_b_binary((sn_op)n->op, as_i32(x), as_i32(y));
}

/* A bool compared with a constant, even through a cast to numbers, is itself or its negation. */
static sn_node *compare_bool(sn_node *n) {
    double c;
    for (int i = 0; i < 2; i++) {
        sn_node *x = n->in[i], *k = n->in[1 - i];
        if (x->op == SN_OP_cast && x->in[0]->dtype == SN_BOOL) x = x->in[0];
        if (x->dtype != SN_BOOL || !sn_match_const(k, &c)) continue;
        double at[2]; /* the result for false and for true */
        for (int b = 0; b < 2; b++)
            at[b] = sn_elem_ref((sn_op)n->op, false, i ? c : b, i ? b : c, 0);
        if (at[0] == at[1]) return sn_b_broadcast_like(sn_b_const(n->m, SN_BOOL, at[0] != 0), n);
        return at[1] != 0 ? x : negate(x);
    }
    return NULL;
}

/* ---- select ---- */

/* not c ? a : b = c ? b : a, unless b is the -inf of a mask, which stays third */
static sn_node *select_not(sn_node *n) {
    if (n->in[0]->op != SN_OP_not || is_hidden(n->in[2])) return NULL;
    return sn_b_select(n->in[0]->in[0], n->in[2], n->in[1]);
}

/* c ? -inf : x = not c ? x : -inf */
static sn_node *select_hidden(sn_node *n) {
    if (!is_hidden(n->in[1]) || is_hidden(n->in[2])) return NULL;
    return sn_b_select(negate(n->in[0]), n->in[2], n->in[1]);
}

/* c ? (d ? x : y) : y = (c and d) ? x : y */
static sn_node *select_nested(sn_node *n) {
    sn_node *inner = n->in[1];
    if (inner->op != SN_OP_select || inner->in[2] != n->in[2]) return NULL;
    return sn_b_select(sn_b_binary(SN_OP_and, n->in[0], inner->in[0]), inner->in[1], n->in[2]);
}

/* c ? 1 : 0 = c as a number */
static sn_node *select_number(sn_node *n) {
    double a, b;
    if (n->dtype == SN_BOOL || !sn_match_const(n->in[1], &a) || !sn_match_const(n->in[2], &b))
        return NULL;
    if (a == 1 && b == 0) return sn_b_cast(n->in[0], (sn_dtype)n->dtype);
    if (a == 0 && b == 1) return sn_b_cast(negate(n->in[0]), (sn_dtype)n->dtype);
    return NULL;
}

/* x > 0 ? x : 0 = max(x, 0) (NaN gives NaN instead of 0) */
static sn_node *select_max(sn_node *n) {
    sn_node *c = n->in[0], *x = n->in[1];
    if ((c->op != SN_OP_lt && c->op != SN_OP_le) || c->in[1] != x || c->in[0] != n->in[2])
        return NULL;
    return sn_match_value(n->in[2], 0) ? sn_b_binary(SN_OP_max, x, n->in[2]) : NULL;
}

/* ---- masks as numbers ---- */

/* x + (c ? 0 : -inf) = c ? x : -inf. A finite -1e9 is arithmetic and stays. */
static sn_node *add_mask(sn_node *n) {
    for (int i = 0; i < 2; i++) {
        sn_node *s = sn_match_below(n->in[i]);
        if (s->op != SN_OP_select || !sn_match_value(s->in[1], 0) || !is_hidden(s->in[2])) continue;
        sn_node *c = sn_b_broadcast_like(s->in[0], n);
        return sn_b_select(c, n->in[1 - i], sn_b_const(n->m, (sn_dtype)n->dtype, -INFINITY));
    }
    return NULL;
}

/* x - (c ? 0 : inf) = c ? x : -inf */
static sn_node *subtract_mask(sn_node *n) {
    const sn_node *s = sn_match_below(n->in[1]);
    if (s->op != SN_OP_select) return NULL;
    bool shown = sn_match_value(s->in[1], 0) && sn_match_value(s->in[2], INFINITY);
    bool hidden = sn_match_value(s->in[2], 0) && sn_match_value(s->in[1], INFINITY);
    if (!shown && !hidden) return NULL;
    sn_node *c = sn_b_broadcast_like(s->in[0], n);
    return sn_b_select(shown ? c : negate(c), n->in[0],
                       sn_b_const(n->m, (sn_dtype)n->dtype, -INFINITY));
}

/* min(x, c ? inf : -inf) = c ? x : -inf (a NaN that is hidden is no longer seen) */
static sn_node *bound_mask(sn_node *n) {
    for (int i = 0; i < 2; i++) {
        const sn_node *s = sn_match_below(n->in[i]);
        if (s->op != SN_OP_select || !sn_match_value(s->in[1], INFINITY) || !is_hidden(s->in[2]))
            continue;
        sn_node *c = sn_b_broadcast_like(s->in[0], n);
        return sn_b_select(c, n->in[1 - i], sn_b_const(n->m, (sn_dtype)n->dtype, -INFINITY));
    }
    return NULL;
}

/* ln(c as a number) = c ? 0 : -inf */
static sn_node *log_mask(sn_node *n) {
    sn_node *x = n->in[0];
    if (x->op != SN_OP_cast || x->in[0]->dtype != SN_BOOL) return NULL;
    return sn_b_select(x->in[0], sn_b_const(n->m, (sn_dtype)n->dtype, 0),
                       sn_b_const(n->m, (sn_dtype)n->dtype, -INFINITY));
}

static sn_node *as_bool(sn_node *n) {
    return n->op == SN_OP_cast && n->in[0]->dtype == SN_BOOL ? n->in[0] : NULL;
}

/* Products, minima and maxima of bools as numbers are `and` and `or`. */
static sn_node *combine_masks(sn_node *n) {
    sn_node *a = as_bool(n->in[0]), *b = as_bool(n->in[1]);
    if (!a || !b) return NULL;
    return sn_b_cast(sn_b_binary(n->op == SN_OP_max ? SN_OP_or : SN_OP_and, a, b),
                     (sn_dtype)n->dtype);
}

/* 1 - (c as a number) = (not c) as a number */
static sn_node *complement_mask(sn_node *n) {
    bool sub = n->op == SN_OP_sub;
    sn_node *one = sub ? n->in[0] : n->in[1], *x = sub ? n->in[1] : n->in[0];
    if (!sub) { /* -c + 1 */
        if (x->op != SN_OP_neg) return NULL;
        x = x->in[0];
    }
    sn_node *c = as_bool(x);
    return c && sn_match_value(one, 1) ? sn_b_cast(negate(c), (sn_dtype)n->dtype) : NULL;
}

const sn_simplification sn_simplify_mask[] = {
    {SN_OP_not, push_not},         {SN_OP_lt, compare_indices},   {SN_OP_le, compare_indices},
    {SN_OP_eq, compare_indices},   {SN_OP_ne, compare_indices},   {SN_OP_lt, compare_casts},
    {SN_OP_le, compare_casts},     {SN_OP_eq, compare_casts},     {SN_OP_ne, compare_casts},
    {SN_OP_lt, compare_bool},      {SN_OP_le, compare_bool},      {SN_OP_eq, compare_bool},
    {SN_OP_ne, compare_bool},      {SN_OP_le, compare_constant},  {SN_OP_lt, compare_difference},
    {SN_OP_lt, compare_step},      {SN_OP_le, compare_step},      {SN_OP_select, select_not},
    {SN_OP_select, select_hidden}, {SN_OP_select, select_nested}, {SN_OP_select, select_number},
    {SN_OP_select, select_max},    {SN_OP_add, add_mask},         {SN_OP_log, log_mask},
    {SN_OP_mul, combine_masks},    {SN_OP_min, combine_masks},    {SN_OP_max, combine_masks},
    {SN_OP_sub, complement_mask},  {SN_OP_add, complement_mask},  {SN_OP_sub, subtract_mask},
    {SN_OP_min, bound_mask},       {SN_OP_COUNT, NULL},
};
