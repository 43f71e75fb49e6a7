/* mask.c: which blocks of keys a mask hides from which blocks of queries, by interval arithmetic. */
#include "passes/shard/shard.h"

#include <math.h>

typedef struct interval { /* of a bool: 0 and 1 */
    double lo, hi;
} interval;

enum { QUERY = 2, KEY = 3 }; /* arguments of a mask: b, h, q, k, captured tensors */

static interval range_of(double a, double b, double c, double d) {
    return (interval){fmin(fmin(a, b), fmin(c, d)), fmax(fmax(a, b), fmax(c, d))};
}

/* Of a bool that is certainly true, or certainly false. */
static interval outcome(bool certain, bool impossible) {
    return (interval){certain, !impossible};
}

static double times(double a, double b) {
    return a == 0 || b == 0 ? 0 : a * b;
}

typedef interval rule(const interval *x);

static interval of_add(const interval *x) {
    return (interval){x[0].lo + x[1].lo, x[0].hi + x[1].hi};
}
static interval of_sub(const interval *x) {
    return (interval){x[0].lo - x[1].hi, x[0].hi - x[1].lo};
}
static interval of_neg(const interval *x) {
    return (interval){-x[0].hi, -x[0].lo};
}
static interval of_mul(const interval *x) {
    return range_of(times(x[0].lo, x[1].lo), times(x[0].lo, x[1].hi), times(x[0].hi, x[1].lo),
                    times(x[0].hi, x[1].hi));
}
static interval of_min(const interval *x) { /* also: both of two bools */
    return (interval){fmin(x[0].lo, x[1].lo), fmin(x[0].hi, x[1].hi)};
}
static interval of_max(const interval *x) { /* also: one of two bools */
    return (interval){fmax(x[0].lo, x[1].lo), fmax(x[0].hi, x[1].hi)};
}
static interval of_select(const interval *x) {
    return range_of(x[1].lo, x[1].hi, x[2].lo, x[2].hi);
}
static interval of_not(const interval *x) {
    return (interval){1 - x[0].hi, 1 - x[0].lo};
}
static interval of_lt(const interval *x) {
    return outcome(x[0].hi < x[1].lo, x[0].lo >= x[1].hi);
}
static interval of_le(const interval *x) {
    return outcome(x[0].hi <= x[1].lo, x[0].lo > x[1].hi);
}

/* Operations on numbers; on bools. Others may have any value. */
static rule *const numbers[SN_OP_COUNT] = {
    [SN_OP_add] = of_add, [SN_OP_sub] = of_sub, [SN_OP_neg] = of_neg,      [SN_OP_mul] = of_mul,
    [SN_OP_min] = of_min, [SN_OP_max] = of_max, [SN_OP_select] = of_select};
static rule *const bools[SN_OP_COUNT] = {
    [SN_OP_lt] = of_lt,   [SN_OP_le] = of_le,  [SN_OP_not] = of_not,
    [SN_OP_and] = of_min, [SN_OP_or] = of_max, [SN_OP_select] = of_select};

/* x, computed in double, in the node's type: integers wrap, so that an interval that leaves the type becomes that of any
 * number; rounding keeps the order. */
static interval in_type(const sn_node *n, interval x) {
    const sn_dtype t = (sn_dtype)n->dtype;
    const interval r = {sn_round_to(t, x.lo), sn_round_to(t, x.hi)};
    const bool exact = r.lo == x.lo && r.hi == x.hi && fabs(x.lo) < 0x1p53 && fabs(x.hi) < 0x1p53;
    if (sn_dtype_is_float(t) || exact) return r;
    return (interval){-INFINITY, INFINITY};
}

static interval value_of(const sn_region *r, const sn_order *order, const interval *known, int at,
                         interval q, interval k) {
    enum { OPERANDS = 3 };
    const sn_node *n = order->node[at];
    interval x[OPERANDS] = {{0}};
    if (n == r->arg[QUERY]) return q;
    if (n == r->arg[KEY]) return k;
    if (n->op == SN_OP_const) {
        double value = sn_attr_flt(n, SN_A_value, 0);
        return (interval){value, value};
    }
    rule *f = (n->dtype == SN_BOOL ? bools : numbers)[n->op];
    for (int i = 0; f && i < n->n_in && i < OPERANDS; i++)
        for (int j = 0; j < at; j++)
            if (order->node[j] == n->in[i]) x[i] = known[j];
    if (f) return n->dtype == SN_BOOL ? f(x) : in_type(n, f(x));
    return n->dtype == SN_BOOL ? outcome(false, false) : (interval){-INFINITY, INFINITY};
}

bool sh_hides(sn_module *m, const sn_region *mask, const int64_t q[2], const int64_t k[2]) {
    sn_order order = sn_region_topo(m, mask);
    interval *x = sn_arena_alloc(m, sizeof *x * (size_t)(order.n + 1));
    interval of_q = {(double)q[0], (double)q[1]}, of_k = {(double)k[0], (double)k[1]};
    for (int i = 0; i < order.n; i++) x[i] = value_of(mask, &order, x, i, of_q, of_k);
    return order.n && x[order.n - 1].hi == 0;
}

/* Whether no block sees one that is more than `behind` before it; `behind` -1: one after it. */
static bool hides_far(const sharder *s, const sn_region *mask, int64_t rows, int64_t blocks,
                      int64_t behind) {
    bool all = true;
    for (int64_t b = 0; b < blocks && all; b++) {
        int64_t q[2] = {b * rows, (b + 1) * rows - 1}, k[2] = {0, (b - behind) * rows - 1};
        if (behind < 0) k[0] = (b + 1) * rows, k[1] = blocks * rows - 1;
        all = k[1] < k[0] || sh_hides(s->m, mask, q, k);
    }
    return all;
}

bool sh_find_behind(const sharder *s, const sn_region *mask, int64_t n, int64_t halves,
                    int64_t *behind) {
    int64_t blocks = halves * s->ranks, rows = n / blocks, low = 0, high = blocks - 1;
    if (!mask || !hides_far(s, mask, rows, blocks, -1)) return false;
    while (low < high) { /* the least number that hides all that is further */
        int64_t middle = (low + high) / 2;
        if (hides_far(s, mask, rows, blocks, middle))
            high = middle;
        else
            low = middle + 1;
    }
    *behind = low;
    return true;
}
