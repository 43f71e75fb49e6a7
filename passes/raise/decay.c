/* decay.c: what is known about the numbers that a recurrence's carry is multiplied by; see recurrence.h. */
#include "passes/raise/recurrence.h"
#include "passes/fused_scan.h"
#include "passes/graph_util.h"
#include "passes/match.h"

#include <float.h>
#include <string.h>

enum { MAX_KNOWN = 4096 /* numbers that are looked at */, DEPTH = 12 };

/* Whether n has a known number of elements, few enough to be looked at. */
static bool is_small_array(const sn_node *n, int64_t *count) {
    return sn_static_shape(n) &&
           sn_dim_is_const(n->m, sn_dim_product(n->m, n->rank, n->shape), count) &&
           *count <= MAX_KNOWN;
}

const sn_value *sn_known_array(sn_node *n) {
    sn_module *m = n->m;
    int64_t count, other;
    if (!is_small_array(n, &count)) return NULL;
    sn_order order = sn_topo(m, 1, &n);
    for (int i = 0; i < order.n; i++) {
        const sn_node *x = order.node[i];
        bool leaf = x->op == SN_OP_const || x->op == SN_OP_iota;
        if (!leaf && (!x->n_in || (!sn_is_elementwise(x) && !sn_is_view(x)))) return NULL;
        if (!is_small_array(x, &other)) return NULL;
    }
    int64_t *symbol = sn_arena_alloc(m, sizeof *symbol * (size_t)(sn_symbol_count(m) + 1));
    sn_eval *ev = sn_eval_new(m, symbol);
    const sn_value *v = ev ? sn_eval_node(ev, n) : NULL;
    sn_value *copy = v ? sn_arena_alloc(m, sizeof *copy) : NULL;
    if (copy) {
        *copy = *v;
        copy->data = sn_arena_alloc(m, sizeof *v->data * (size_t)(count + 1));
        memcpy(copy->data, v->data, sizeof *v->data * (size_t)count);
    }
    sn_eval_free(ev);
    return copy;
}

/* Whether all of its numbers are known, and positive. */
static bool is_positive_array(sn_node *n) {
    const sn_value *v = sn_known_array(n);
    bool positive = v != NULL;
    for (int64_t i = 0; positive && i < v->n; i++) positive = v->data[i] > 0;
    return positive;
}

/* sigmoid -x, if n is 1 - sigmoid x, perhaps in other shapes; NULL: it is not. */
static sn_node *complement(sn_node *n) {
    enum { MAX_VIEWS = 6 };
    sn_node *view[MAX_VIEWS], *x = NULL;
    int n_view = 0;
    if (n->op == SN_OP_sub && sn_match_value(n->in[0], 1)) x = n->in[1];
    for (int i = 0; i < 2 && n->op == SN_OP_add && !x; i++) {
        double c = 0;
        sn_node *y =
            n->in[1 - i]->op == SN_OP_neg ? n->in[1 - i]->in[0] : sn_match_scaled(n->in[1 - i], &c);
        if (sn_match_value(n->in[i], 1) && (c == -1 || n->in[1 - i]->op == SN_OP_neg)) x = y;
    }
    for (; x && (x->op == SN_OP_broadcast || sn_is_view(x)); x = x->in[0]) {
        if (n_view == MAX_VIEWS) return NULL;
        view[n_view++] = x;
    }
    if (!x || x->op != SN_OP_sigmoid) return NULL;
    x = sn_b_unary(SN_OP_sigmoid, sn_b_unary(SN_OP_neg, x->in[0]));
    while (n_view) x = sn_node_with(view[--n_view], &x);
    return x;
}

/* ---- what holds of all numbers of a tensor, whatever the inputs are ---- */

enum { NOT_NEGATIVE = 1, POSITIVE = 2 /* and not negative */, UP_TO_1 = 4 };
enum { MANY = 64 }; /* most visits: what several operations share is looked at for each */

typedef struct prover {
    int visits;
} prover;

static unsigned facts(prover *p, sn_node *n, int depth);

static unsigned of_all(prover *p, sn_node *n, int depth) {
    unsigned all = ~0U;
    for (int i = 0; i < n->n_in && all; i++) all &= facts(p, n->in[i], depth);
    return all;
}

/* Whether numbers along the axis of x, which are not negative, add up to 1 or less. */
static bool adds_up(const sn_node *x, int axis) {
    while (x->op == SN_OP_transpose || x->op == SN_OP_slice) {
        if (x->op == SN_OP_transpose) axis = (int)sn_attr_get(x, SN_A_perm)->v[axis];
        x = x->in[0];
    }
    return x->op == SN_OP_softmax && sn_attr_int(x, SN_A_axis, x->rank - 1) == axis;
}

static unsigned of_sum(prover *p, sn_node *x, int n_axis, const int64_t *axis, int depth) {
    unsigned of_x = facts(p, x, depth) & (NOT_NEGATIVE | POSITIVE);
    return n_axis == 1 && of_x && adds_up(x, (int)*axis) ? of_x | UP_TO_1 : of_x;
}

static unsigned of_cumsum(prover *p, sn_node *n, int depth) {
    const int64_t axis = sn_attr_int(n, SN_A_axis, 0);
    return of_sum(p, n->in[0], 1, &axis, depth);
}

static unsigned of_reduction(prover *p, sn_node *n, int depth) {
    const sn_attr *axes = sn_attr_get(n, SN_A_axes);
    return of_sum(p, n->in[0], axes->n, axes->v, depth) &
           ~(unsigned)POSITIVE; /* perhaps of nothing */
}

/* Results of a running sum, from zero on if they must be at most 1. */
static unsigned of_result(prover *p, sn_node *n, int depth) {
    static const int64_t first = 0;
    sn_node *scan = n->in[0];
    if (scan->op != SN_OP_scan || !sn_scan_is_running_result(scan)) return 0;
    const sn_scan s = sn_scan_of(scan);
    if (s.body->out[0]->op != SN_OP_add) return 0;
    const bool from_zero = sn_match_value(scan->in[0], 0);
    const unsigned of_start =
        from_zero ? NOT_NEGATIVE | UP_TO_1 : facts(p, scan->in[0], depth) & NOT_NEGATIVE;
    return of_sum(p, scan->in[1], 1, &first, depth) & of_start;
}

/* Whether y is 1 - x, perhaps with the same views above both. */
static bool are_complements(sn_node *x, sn_node *y) {
    for (;;) {
        if (y->op == SN_OP_sub && sn_match_value(y->in[0], 1)) return y->in[1] == x;
        if (x->op != y->op || !x->n_in || !sn_is_view(x)) return false;
        sn_node *moved = sn_node_with(y, &x->in[0]);
        if (moved != x) return false;
        x = x->in[0], y = y->in[0];
    }
}

/* x + (1 - x) s, a bound from below: at least the smaller one of 1 and s if x is between 0 and 1. */
static unsigned of_bounded(prover *p, sn_node *n, int depth) {
    for (int i = 0; i < 2; i++) {
        sn_node *x = n->in[i], *product = n->in[1 - i];
        for (int k = 0; product->op == SN_OP_mul && k < 2; k++)
            if (are_complements(x, product->in[k]) &&
                !(~facts(p, x, depth) & (NOT_NEGATIVE | UP_TO_1)))
                return facts(p, product->in[1 - k], depth);
    }
    return 0;
}

static unsigned of_add(prover *p, sn_node *n, int depth) {
    const unsigned bounded = of_bounded(p, n, depth);
    if (bounded) return bounded;
    const unsigned x = facts(p, n->in[0], depth), y = x ? facts(p, n->in[1], depth) : 0;
    return x & y & NOT_NEGATIVE ? ((x | y) & POSITIVE) | NOT_NEGATIVE : 0;
}

/* Whether x is the first element of y's running sum, along its axis. */
static bool is_first(const sn_node *x, const sn_node *y) {
    while (x->op == SN_OP_broadcast || x->op == SN_OP_reshape) x = x->in[0];
    if (y->op != SN_OP_cumsum || x->op != SN_OP_slice || x->in[0] != y->in[0]) return false;
    const sn_attr *start = sn_attr_get(x, SN_A_start);
    bool first = x->shape[sn_attr_int(y, SN_A_axis, 0)] == 1;
    for (int a = 0; a < start->n; a++) first = first && !start->v[a];
    for (int a = 0; a < x->rank; a++)
        first = first && (x->shape[a] == y->shape[a] || a == sn_attr_int(y, SN_A_axis, 0));
    return first;
}

static unsigned of_sub(prover *p, sn_node *n, int depth) {
    const unsigned y = facts(p, n->in[1], depth);
    if (sn_match_value(n->in[0], 1))
        return (y & UP_TO_1 ? NOT_NEGATIVE : 0) | (y & NOT_NEGATIVE ? UP_TO_1 : 0);
    const unsigned x = y & NOT_NEGATIVE ? facts(p, n->in[0], depth) : 0;
    return (x & UP_TO_1) | (x && is_first(n->in[1], n->in[0]) ? NOT_NEGATIVE : 0);
}

/* UP_TO_1 of a product only if neither is negative. */
static unsigned of_mul(prover *p, sn_node *n, int depth) {
    const unsigned all = of_all(p, n, depth), square = n->in[0] == n->in[1] ? NOT_NEGATIVE : 0;
    return all & NOT_NEGATIVE ? all : square;
}

static unsigned of_max(prover *p, sn_node *n, int depth) {
    const unsigned x = facts(p, n->in[0], depth), y = facts(p, n->in[1], depth);
    return (x & y & UP_TO_1) | ((x | y) & (NOT_NEGATIVE | POSITIVE));
}

static unsigned of_min(prover *p, sn_node *n, int depth) {
    const unsigned x = facts(p, n->in[0], depth), y = facts(p, n->in[1], depth);
    return (x & y & (NOT_NEGATIVE | POSITIVE)) | ((x | y) & UP_TO_1);
}

/* Facts that hold of every result of an operation, or that follow from those of its operands. */
static const struct {
    unsigned always;
    unsigned (*from)(prover *p, sn_node *n, int depth);
} rules[SN_OP_COUNT] = {
    [SN_OP_exp] = {NOT_NEGATIVE | POSITIVE, NULL},
    [SN_OP_exp2] = {NOT_NEGATIVE | POSITIVE, NULL},
    [SN_OP_sigmoid] = {NOT_NEGATIVE | POSITIVE | UP_TO_1, NULL},
    [SN_OP_softmax] = {NOT_NEGATIVE | UP_TO_1, NULL}, /* a hidden key has 0 */
    [SN_OP_softplus] = {NOT_NEGATIVE | POSITIVE, NULL},
    [SN_OP_relu] = {NOT_NEGATIVE, NULL},
    [SN_OP_abs] = {NOT_NEGATIVE, NULL},
    [SN_OP_broadcast] = {0, of_all},
    [SN_OP_reshape] = {0, of_all},
    [SN_OP_transpose] = {0, of_all},
    [SN_OP_slice] = {0, of_all},
    [SN_OP_concat] = {0, of_all},
    [SN_OP_sqrt] = {0, of_all},
    [SN_OP_add] = {0, of_add},
    [SN_OP_sub] = {0, of_sub},
    [SN_OP_mul] = {0, of_mul},
    [SN_OP_max] = {0, of_max},
    [SN_OP_min] = {0, of_min},
    [SN_OP_cumsum] = {0, of_cumsum},
    [SN_OP_reduce_sum] = {0, of_reduction},
    [SN_OP_result] = {0, of_result},
};

static unsigned of_number(double v) {
    return (v >= 0 ? NOT_NEGATIVE : 0) | (v > 0 ? POSITIVE : 0) | (v <= 1 ? UP_TO_1 : 0);
}

static unsigned facts(prover *p, sn_node *n, int depth) {
    double v;
    if (sn_match_const(n, &v)) return of_number(v);
    if (rules[n->op].always) return rules[n->op].always;
    if (is_positive_array(n) || complement(n)) return NOT_NEGATIVE | POSITIVE;
    if (!depth || !rules[n->op].from || p->visits++ == MANY) return 0;
    return rules[n->op].from(p, n, depth - 1);
}

static sn_node *log_of(sn_node *n, int depth) {
    double v;
    if (sn_match_const(n, &v) && v == 1)
        return sn_b_broadcast_like(sn_b_const(n->m, (sn_dtype)n->dtype, 0), n);
    if (n->op == SN_OP_exp) return n->in[0];
    if (complement(n)) n = complement(n);
    if (depth && n->op == SN_OP_mul)
        return sn_b_binary(SN_OP_add, log_of(n->in[0], depth - 1), log_of(n->in[1], depth - 1));
    if (depth && (n->op == SN_OP_broadcast || n->op == SN_OP_reshape || n->op == SN_OP_transpose ||
                  (n->op == SN_OP_slice && n->in[0]->op == SN_OP_broadcast))) {
        sn_node *x = log_of(n->in[0], depth - 1);
        return sn_node_with(n, &x);
    }
    /* What underflows to 0 is as good as FLT_MIN, and its gradient stays finite. */
    if (!sn_known_array(n))
        n = sn_b_binary(SN_OP_max, n, sn_b_const(n->m, (sn_dtype)n->dtype, (double)FLT_MIN));
    return sn_b_unary(SN_OP_log, n);
}

bool sn_is_positive(sn_node *n) {
    return facts(&(prover){0}, n, DEPTH) & POSITIVE;
}

sn_node *sn_log_of(sn_node *n) {
    return log_of(n, DEPTH);
}
