/* mask_intervals.c: one rule per op, for scalars and vectors alike. */
#include "codegen/attention/mask_intervals.h"

#include <math.h>

typedef sn_interval rule_fn(em *e, const sn_node *n, const sn_interval *x);

static const sn_interval unknown = {NULL, NULL};

static bool known(sn_interval x) {
    return x.lo != NULL;
}

static sn_interval maybe(em *e) {
    return (sn_interval){em_i1(e, false), em_i1(e, true)};
}

/* The smaller or larger of two bounds; bools by logic. */
static em_val lower(em *e, em_val a, em_val b) {
    return LLVMTypeOf(a) == e->i1 || em_elem_type(a) == e->i1 ? em_and(e, a, b) : em_imin(e, a, b);
}

static em_val upper(em *e, em_val a, em_val b) {
    return LLVMTypeOf(a) == e->i1 || em_elem_type(a) == e->i1 ? em_or(e, a, b) : em_imax(e, a, b);
}

static em_val within(em *e, sn_interval x, int64_t lo, int64_t hi) {
    return em_and(e, em_cmp(e, EM_GE, x.lo, lo), em_cmp(e, EM_LE, x.hi, hi));
}

static sn_interval any_i64(em *e) {
    return (sn_interval){em_i64(e, INT64_MIN), em_i64(e, INT64_MAX)};
}

/* r, computed in i64 from operands x, in the node's type, in which integer arithmetic wraps. An interval of one value
 * wraps likewise; one that leaves the type becomes that of the whole type. */
static sn_interval within_type(em *e, const sn_node *n, const sn_interval *x, sn_interval r) {
    static const struct {
        int64_t lo, hi;
    } range[SN_DTYPE_COUNT] = {[SN_I32] = {INT32_MIN, INT32_MAX},
                               [SN_I8] = {INT8_MIN, INT8_MAX},
                               [SN_U8] = {0, UINT8_MAX},
                               [SN_I64] = {INT64_MIN, INT64_MAX}};
    const int64_t low = range[n->dtype].lo, high = range[n->dtype].hi;
    em_val one = em_cmp(e, EM_EQ, r.lo, r.hi), fits;
    if (n->dtype == SN_I64) { /* no op takes numbers below 2^31 beyond i64 */
        fits = em_i1(e, true);
        for (int j = 0; j < n->n_in; j++) {
            fits = em_and(e, fits, within(e, x[j], INT32_MIN, INT32_MAX));
            one = em_and(e, one, em_cmp(e, EM_EQ, x[j].lo, x[j].hi));
        }
        fits = em_or(e, fits, one);
    } else {
        em_val from = em_i64(e, low), span = em_i64(e, high - low); /* 2^bits - 1 */
        em_val wrapped = em_add(e, em_and(e, em_sub(e, r.lo, from), span), from);
        fits = em_or(e, one, within(e, r, low, high));
        r.lo = em_select(e, one, wrapped, r.lo);
        r.hi = em_select(e, one, wrapped, r.hi);
    }
    return (sn_interval){em_select(e, fits, r.lo, low), em_select(e, fits, r.hi, high)};
}

#define RULE(name) static sn_interval rule_##name(em *e, const sn_node *n, const sn_interval *x)

RULE(none) {
    (void)x;
    return n->dtype == SN_BOOL ? maybe(e) : unknown;
}

RULE(same) {
    (void)e, (void)n;
    return x[0];
}

RULE(neg) {
    return within_type(e, n, x, (sn_interval){em_neg(e, x[0].hi), em_neg(e, x[0].lo)});
}

RULE(add) {
    return within_type(e, n, x,
                       (sn_interval){em_add(e, x[0].lo, x[1].lo), em_add(e, x[0].hi, x[1].hi)});
}

RULE(sub) {
    return within_type(e, n, x,
                       (sn_interval){em_sub(e, x[0].lo, x[1].hi), em_sub(e, x[0].hi, x[1].lo)});
}

RULE(mul) {
    em_val a = em_mul(e, x[0].lo, x[1].lo), b = em_mul(e, x[0].lo, x[1].hi);
    em_val c = em_mul(e, x[0].hi, x[1].lo), d = em_mul(e, x[0].hi, x[1].hi);
    return within_type(e, n, x,
                       (sn_interval){em_imin(e, em_imin(e, a, b), em_imin(e, c, d)),
                                     em_imax(e, em_imax(e, a, b), em_imax(e, c, d))});
}

RULE(abs) {
    em_val low = em_neg(e, x[0].lo);
    em_val lo = em_imax(e, 0, em_imax(e, x[0].lo, em_neg(e, x[0].hi)));
    return within_type(e, n, x, (sn_interval){lo, em_imax(e, low, x[0].hi)});
}

RULE(sign) {
    (void)n;
    sn_interval r;
    r.lo = em_imax(e, -1, em_imin(e, 1, x[0].lo));
    r.hi = em_imax(e, -1, em_imin(e, 1, x[0].hi));
    return r;
}

RULE(min) {
    (void)n;
    return (sn_interval){em_imin(e, x[0].lo, x[1].lo), em_imin(e, x[0].hi, x[1].hi)};
}

RULE(max) {
    (void)n;
    return (sn_interval){em_imax(e, x[0].lo, x[1].lo), em_imax(e, x[0].hi, x[1].hi)};
}

/* Floor of x / y for y > 0. */
static em_val floor_quotient(em *e, em_val x, em_val y) {
    em_val q = em_div(e, x, y), r = em_sub(e, x, em_mul(e, q, y));
    return em_add(e, q, em_int_cast(e, em_ashr(e, r, em_i64(e, 63)), e->i64));
}

/* The divisor where it is one positive number, else 1, and whether it is. */
static em_val one_divisor(em *e, sn_interval y, em_val *good) {
    *good = em_and(e, em_cmp(e, EM_EQ, y.lo, y.hi), em_cmp(e, EM_GT, y.lo, 0));
    return em_select(e, *good, y.lo, em_like(e, y.lo, 1));
}

/* r where it is known to hold, else any number. */
static sn_interval if_known(em *e, const sn_node *n, const sn_interval *x, em_val good,
                            sn_interval r) {
    sn_interval any = any_i64(e);
    return within_type(
        e, n, x, (sn_interval){em_select(e, good, r.lo, any.lo), em_select(e, good, r.hi, any.hi)});
}

RULE(div) {
    em_val good, y = one_divisor(e, x[1], &good);
    return if_known(e, n, x, good,
                    (sn_interval){floor_quotient(e, x[0].lo, y), floor_quotient(e, x[0].hi, y)});
}

RULE(mod) {
    em_val good, y = one_divisor(e, x[1], &good);
    em_val q0 = floor_quotient(e, x[0].lo, y), q1 = floor_quotient(e, x[0].hi, y);
    em_val same = em_cmp(e, EM_EQ, q0, q1), base = em_mul(e, q0, y), zero = em_like(e, q0, 0);
    em_val lo = em_select(e, same, em_sub(e, x[0].lo, base), zero);
    em_val hi = em_select(e, same, em_sub(e, x[0].hi, base), em_sub(e, y, 1));
    return if_known(e, n, x, good, (sn_interval){lo, hi});
}

RULE(lt) {
    if (n->in[0]->dtype == SN_BOOL)
        return (sn_interval){em_and(e, em_not(e, x[0].hi), x[1].lo),
                             em_and(e, em_not(e, x[0].lo), x[1].hi)};
    return (sn_interval){em_cmp(e, EM_LT, x[0].hi, x[1].lo), em_cmp(e, EM_LT, x[0].lo, x[1].hi)};
}

RULE(le) {
    if (n->in[0]->dtype == SN_BOOL)
        return (sn_interval){em_or(e, em_not(e, x[0].hi), x[1].lo),
                             em_or(e, em_not(e, x[0].lo), x[1].hi)};
    return (sn_interval){em_cmp(e, EM_LE, x[0].hi, x[1].lo), em_cmp(e, EM_LE, x[0].lo, x[1].hi)};
}

RULE(not ) {
    (void)n;
    return (sn_interval){em_not(e, x[0].hi), em_not(e, x[0].lo)};
}

/* The bits below and at the highest one in which lo and hi differ: those that vary. */
static em_val varying_bits(em *e, sn_interval x) {
    em_val v = em_xor(e, x.lo, x.hi);
    for (int by = 1; by < 64; by *= 2) v = em_or(e, v, em_lshr(e, v, em_like(e, v, by)));
    return v;
}

typedef em_val bits_fn(em *e, em_val x, em_val y);

/* A bitwise op of integers: bits that do not vary over either range are known. Nothing is known if a
 * range has both signs. */
static sn_interval bitwise(em *e, const sn_node *n, const sn_interval *x, bits_fn *op) {
    em_val free0 = varying_bits(e, x[0]), free1 = varying_bits(e, x[1]);
    em_val known0 = em_and(e, x[0].lo, em_xor(e, free0, em_like(e, free0, -1)));
    em_val known1 = em_and(e, x[1].lo, em_xor(e, free1, em_like(e, free1, -1)));
    em_val free = em_or(e, free0, free1), none = em_like(e, free, -1);
    sn_interval r = {op(e, known0, known1), NULL};
    if (n->op == SN_OP_xor) { /* a bit varies where one of the operands' does */
        r.lo = em_and(e, r.lo, em_xor(e, free, none));
        r.hi = em_or(e, r.lo, free);
    } else {
        r.hi = op(e, em_or(e, known0, free0), em_or(e, known1, free1));
    }
    em_val one_sign = em_cmp(e, EM_GE, free, em_like(e, free, 0));
    return if_known(e, n, x, one_sign, r);
}

RULE(and) {
    if (n->dtype != SN_BOOL) return bitwise(e, n, x, em_and);
    return (sn_interval){em_and(e, x[0].lo, x[1].lo), em_and(e, x[0].hi, x[1].hi)};
}

RULE(or) {
    if (n->dtype != SN_BOOL) return bitwise(e, n, x, em_or);
    return (sn_interval){em_or(e, x[0].lo, x[1].lo), em_or(e, x[0].hi, x[1].hi)};
}

RULE(xor) {
    if (n->dtype != SN_BOOL) return bitwise(e, n, x, em_xor);
    em_val no0 = em_not(e, x[0].hi), no1 = em_not(e, x[1].hi);
    em_val differ = em_or(e, em_and(e, x[0].lo, no1), em_and(e, x[1].lo, no0));
    em_val agree = em_or(e, em_and(e, x[0].lo, x[1].lo), em_and(e, no0, no1));
    return (sn_interval){differ, em_not(e, agree)};
}

/* The count where it is one of 0 … 31, else 0, and whether it is. */
static em_val one_count(em *e, sn_interval y, em_val *good) {
    em_val small = em_and(e, em_cmp(e, EM_GE, y.lo, 0), em_cmp(e, EM_LT, y.lo, 32));
    *good = em_and(e, em_cmp(e, EM_EQ, y.lo, y.hi), small);
    return em_select(e, *good, y.lo, em_like(e, y.lo, 0));
}

RULE(shift_right) {
    em_val good, by = one_count(e, x[1], &good);
    return if_known(e, n, x, good, (sn_interval){em_ashr(e, x[0].lo, by), em_ashr(e, x[0].hi, by)});
}

RULE(shift_left) {
    em_val good, by = one_count(e, x[1], &good);
    return if_known(e, n, x, good, (sn_interval){em_shl(e, x[0].lo, by), em_shl(e, x[0].hi, by)});
}

RULE(ne) {
    if (n->in[0]->dtype == SN_BOOL) {
        sn_node as_bool = {.dtype = SN_BOOL};
        return rule_xor(e, &as_bool, x);
    }
    em_val disjoint =
        em_or(e, em_cmp(e, EM_LT, x[0].hi, x[1].lo), em_cmp(e, EM_LT, x[1].hi, x[0].lo));
    em_val single =
        em_and(e, em_cmp(e, EM_EQ, x[0].lo, x[0].hi), em_cmp(e, EM_EQ, x[1].lo, x[1].hi));
    em_val equal = em_and(e, single, em_cmp(e, EM_EQ, x[0].lo, x[1].lo));
    return (sn_interval){disjoint, em_not(e, equal)};
}

RULE(eq) {
    sn_interval r = rule_ne(e, n, x);
    return rule_not(e, n, &r);
}

RULE(select) {
    (void)n;
    em_val yes = x[0].lo, no = em_not(e, x[0].hi);
    em_val lo = em_select(e, no, x[2].lo, lower(e, x[1].lo, x[2].lo));
    em_val hi = em_select(e, no, x[2].hi, upper(e, x[1].hi, x[2].hi));
    return (sn_interval){em_select(e, yes, x[1].lo, lo), em_select(e, yes, x[1].hi, hi)};
}

RULE(cast) {
    sn_dtype from = (sn_dtype)n->in[0]->dtype, to = (sn_dtype)n->dtype;
    if (sn_dtype_is_float(from) || sn_dtype_is_float(to)) return rule_none(e, n, x);
    if (from == to) return x[0];
    if (from == SN_BOOL)
        return (sn_interval){em_select(e, x[0].lo, 1, 0), em_select(e, x[0].hi, 1, 0)};
    if (to == SN_BOOL) {
        sn_node compare = {.in = n->in};
        em_val zero = em_i64(e, 0);
        sn_interval both[] = {x[0], {zero, zero}};
        return rule_ne(e, &compare, both);
    }
    return to == SN_I64 ? x[0] : within_type(e, n, x, x[0]);
}

/* Ops without a rule have no interval. Operands without one are handled by emit_node. */
static rule_fn *const rules[SN_OP_COUNT] = {
    [SN_OP_stop_gradient] = rule_same,
    [SN_OP_neg] = rule_neg,
    [SN_OP_abs] = rule_abs,
    [SN_OP_sign] = rule_sign,
    [SN_OP_add] = rule_add,
    [SN_OP_sub] = rule_sub,
    [SN_OP_mul] = rule_mul,
    [SN_OP_div] = rule_div,
    [SN_OP_mod] = rule_mod,
    [SN_OP_min] = rule_min,
    [SN_OP_max] = rule_max,
    [SN_OP_lt] = rule_lt,
    [SN_OP_le] = rule_le,
    [SN_OP_eq] = rule_eq,
    [SN_OP_ne] = rule_ne,
    [SN_OP_not] = rule_not,
    [SN_OP_and] = rule_and,
    [SN_OP_or] = rule_or,
    [SN_OP_xor] = rule_xor,
    [SN_OP_shift_left] = rule_shift_left,
    [SN_OP_shift_right] = rule_shift_right,
    [SN_OP_select] = rule_select,
    [SN_OP_cast] = rule_cast,
};

/* --- floats ---------------------------------------------------------------------------------- */

static bool is_int(sn_dtype t) {
    return !sn_dtype_is_float(t);
}

/* An elementwise op with floats among its operands or result: the rules above are for integers. */
static bool has_floats(const sn_node *n) {
    bool any = !is_int((sn_dtype)n->dtype);
    for (int j = 0; j < n->n_in; j++) any |= !is_int((sn_dtype)n->in[j]->dtype);
    return any && sn_is_elementwise(n);
}

/* Ops that are monotone in each operand, rounding included, so that bounds of floats follow from
 * bounds. A NaN makes comparisons false, of the bounds as of what they bound. */
static bool is_monotone(const sn_node *n) {
    return n->op == SN_OP_add || n->op == SN_OP_sub || n->op == SN_OP_neg || n->op == SN_OP_lt ||
           n->op == SN_OP_le || (n->op == SN_OP_cast && n->dtype != SN_BOOL);
}

/* The op of one bound of each operand, computed as the region computes it. Intervals of integers are
 * i64. */
static em_val bound(em *e, const sn_node *n, const sn_interval *x, bool upper) {
    em_val v[3];
    for (int j = 0; j < n->n_in; j++) {
        sn_dtype t = (sn_dtype)n->in[j]->dtype;
        bool falls = n->op == SN_OP_neg || (n->op == SN_OP_sub && j == 1) ||
                     ((n->op == SN_OP_lt || n->op == SN_OP_le) && j == 0);
        v[j] = upper != falls ? x[j].hi : x[j].lo;
        if (is_int(t) && t != SN_BOOL) v[j] = em_convert(e, v[j], SN_I64, t);
    }
    em_val r = sn_emit_elem(e, n, v);
    sn_dtype t = (sn_dtype)n->dtype;
    return is_int(t) && t != SN_BOOL ? em_convert(e, r, t, SN_I64) : r;
}

/* Of single values (constants, sizes, what depends on the batch and the head only) any op is one. */
static sn_interval of_floats(em *e, const sn_node *n, const sn_interval *x) {
    bool single = true, all = true;
    for (int j = 0; j < n->n_in; j++) {
        all &= known(x[j]);
        single &= x[j].lo == x[j].hi;
    }
    if (all && single) {
        em_val v = bound(e, n, x, false);
        return (sn_interval){v, v};
    }
    if (!all || !is_monotone(n)) return rule_none(e, n, x);
    return (sn_interval){bound(e, n, x, false), bound(e, n, x, true)};
}

/* --- emission --------------------------------------------------------------------------------- */

static int position(const sn_interval_code *c, const sn_node *n) {
    int i = 0; /* regions are small: a search serves */
    while (i + 1 < c->order.n && c->order.node[i] != n) i++;
    return i;
}

bool sn_interval_begin(sn_interval_code *c, em *e, const sn_region *r) {
    sn_module *m = r->out[0]->m;
    c->e = e;
    c->region = r;
    c->order = sn_region_topo(m, r);
    size_t n = (size_t)c->order.n;
    c->value = sn_arena_alloc(m, n * sizeof *c->value);
    c->done = sn_arena_alloc(m, n * sizeof *c->done);
    c->deps = sn_arena_alloc(m, n * sizeof *c->deps);
    return e->err.code == SN_OK;
}

void sn_interval_arg(sn_interval_code *c, int i, sn_interval v, uint32_t deps) {
    for (int p = 0; p < c->order.n; p++) {
        const sn_node *n = c->order.node[p];
        if (n->op == SN_OP_arg && sn_attr_int(n, SN_A_index, -1) == i) {
            c->value[p] = v;
            c->deps[p] = deps;
            c->done[p] = true;
        }
        for (int j = 0; j < n->n_in; j++) c->deps[p] |= c->deps[position(c, n->in[j])];
    }
}

static sn_interval emit_constant(em *e, const sn_node *n) {
    double v = sn_attr_flt(n, SN_A_value, 0);
    em_val c = !is_int((sn_dtype)n->dtype) ? sn_emit_const(e, (sn_dtype)n->dtype, v)
               : n->dtype == SN_BOOL       ? em_i1(e, v != 0)
                                           : em_i64(e, (int64_t)sn_round_to((sn_dtype)n->dtype, v));
    return (sn_interval){c, c};
}

/* Whether a table read gains from the intervals of the smaller tile; x: of its operands, changed to those that it is
 * read at. */
static bool narrow_indices(const sn_interval_code *c, const sn_node *n, sn_interval *x) {
    bool narrows = false;
    for (int j = 1; j < n->n_in; j++) {
        int at = position(c, n->in[j]);
        bool same = c->deps[at] & c->same;
        narrows |= !same && c->deps[at] & c->fine;
        if (same) x[j] = c->coarse->value[at];
    }
    return narrows;
}

static sn_interval emit_node(sn_interval_code *c, const sn_node *n, int at, sn_interval *x) {
    em *e = c->e;
    if (n->op == SN_OP_const) return emit_constant(e, n);
    if (n->op == SN_OP_dim_value && c->dim && is_int((sn_dtype)n->dtype)) {
        em_val v = c->dim(c->ctx, n);
        return (sn_interval){v, v};
    }
    if (has_floats(n)) return of_floats(e, n, x);
    bool table = n->op == SN_OP_gather_nd && is_int((sn_dtype)n->dtype);
    if (table && c->coarse && !narrow_indices(c, n, x)) return c->coarse->value[at];
    rule_fn *rule = rules[n->op];
    for (int j = table; j < n->n_in; j++)
        if (!known(x[j])) rule = NULL;
    if (table && c->at) {
        for (int j = 1; j < n->n_in; j++)
            if (!known(x[j])) return rule_none(e, n, x);
        sn_interval r = c->at(c->ctx, n, x + 1);
        return known(r) ? r : rule_none(e, n, x);
    }
    return rule ? rule(e, n, x) : rule_none(e, n, x);
}

void sn_interval_emit(sn_interval_code *c, uint32_t allowed) {
    for (int i = 0; i < c->order.n; i++) {
        const sn_node *n = c->order.node[i];
        if (c->done[i] || (c->deps[i] & ~allowed)) continue;
        sn_interval x[SN_MAX_RANK + 1];
        int n_in = n->n_in <= SN_MAX_RANK + 1 ? n->n_in : 0;
        for (int j = 0; j < n_in; j++) x[j] = c->value[position(c, n->in[j])];
        c->value[i] = n->op == SN_OP_arg ? rule_none(c->e, n, x) : emit_node(c, n, i, x);
        c->done[i] = true;
    }
}

sn_interval sn_interval_result(const sn_interval_code *c) {
    return c->value[position(c, c->region->out[0])];
}

/* --- what can be decided, without emitting ---------------------------------------------------- */

/* What tiles can show of a node. Integers: KNOWN or nothing. Truth values: whether some tile can be
 * surely false, surely true. */
enum { KNOWN = 1, FALSE = 1, TRUE = 2, BOTH = 3 };

static int swap_sides(int x) {
    return (x & FALSE ? TRUE : 0) | (x & TRUE ? FALSE : 0);
}

/* x: of the operands. all: every one is known. */
static int show_bool(const sn_node *n, const int *x, bool all) {
    bool logical = n->n_in == 2 && n->in[0]->dtype == SN_BOOL;
    if (n->op == SN_OP_not) return swap_sides(x[0]);
    if (n->op == SN_OP_and && logical) return ((x[0] | x[1]) & FALSE) | (x[0] & x[1] & TRUE);
    if (n->op == SN_OP_or && logical) return (x[0] & x[1] & FALSE) | ((x[0] | x[1]) & TRUE);
    if (n->op == SN_OP_select)
        return (x[0] & TRUE ? x[1] : 0) | (x[0] & FALSE ? x[2] : 0) | (x[1] & x[2]);
    return all ? BOTH : 0;
}

/* Batch and head of a mask (batch, head, query, key, captured scalars), and integer scalars. */
static bool is_single_arg(const sn_region *r, const sn_node *n) {
    int64_t i = sn_attr_int(n, SN_A_index, -1);
    return r->n_arg >= 4 && !n->rank && is_int((sn_dtype)n->dtype) && i != 2 && i != 3;
}

int sn_interval_shows(const sn_region *r, const sn_node **culprit) {
    sn_order order = sn_region_topo(r->out[0]->m, r);
    int *shows = sn_arena_alloc(r->out[0]->m, (size_t)order.n * sizeof *shows);
    bool *single = sn_arena_alloc(r->out[0]->m, (size_t)order.n * sizeof *single);
    if (culprit) *culprit = NULL;
    for (int i = 0; i < order.n; i++) {
        const sn_node *n = order.node[i];
        int x[SN_MAX_RANK + 1] = {0};
        bool leaf = n->op == SN_OP_const || n->op == SN_OP_dim_value || n->op == SN_OP_arg;
        bool floats = has_floats(n), elem = sn_is_elementwise(n);
        bool all = (leaf || floats || n->op == SN_OP_gather_nd || rules[n->op]) &&
                   n->n_in <= SN_MAX_RANK + 1;
        single[i] = n->op == SN_OP_arg ? is_single_arg(r, n) : leaf || elem;
        for (int j = 0; all && j < n->n_in; j++) {
            for (int k = 0; k < i; k++)
                if (order.node[k] == n->in[j]) x[j] = shows[k], single[i] &= single[k];
        }
        all &= !floats || single[i] || is_monotone(n);
        for (int j = 0; j < n->n_in && all; j++)
            all = x[j] == (n->in[j]->dtype == SN_BOOL ? BOTH : KNOWN);
        if (n->dtype == SN_BOOL)
            shows[i] = show_bool(n, x, all);
        else
            shows[i] =
                all && (elem || n->op == SN_OP_const || is_int((sn_dtype)n->dtype)) ? KNOWN : 0;
        if (n->op == SN_OP_arg && n->rank > 0) /* gather_nd reads it */
            shows[i] = n->dtype == SN_BOOL ? BOTH : KNOWN;
        if (!shows[i] && culprit && !*culprit) *culprit = n;
    }
    int result = shows[order.n - 1];
    return (result & FALSE ? SN_SHOWS_EMPTY : 0) | (result & TRUE ? SN_SHOWS_FULL : 0);
}
