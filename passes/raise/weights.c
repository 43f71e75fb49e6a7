/* weights.c: attention whose weights are not a softmax, in plain operations: what their rows are
 * divided by, and which products of products are such attention. */
#include "passes/graph_util.h"
#include "passes/match.h"
#include "passes/raise/attention.h"

/* The sum s if n = max(|s|, 1); NULL: n is something else. */
static sn_node *size_of_sum(const sn_node *n) {
    for (int i = 0; i < 2 && n->op == SN_OP_max; i++)
        if (sn_match_value(n->in[i], 1) && n->in[1 - i]->op == SN_OP_abs)
            return sn_match_below(n->in[1 - i]->in[0]);
    return NULL;
}

bool ra_row_divisor(sn_node *inverse, ra_rows *r) {
    inverse = sn_match_below(inverse);
    if (inverse->op != SN_OP_recip) return false;
    sn_node *n = sn_match_below(inverse->in[0]), *inner = size_of_sum(n);
    r->kind = inner ? SN_WEIGHTS_ABS_SUM : SN_WEIGHTS_SUM;
    return sn_raise_sum_of(inner ? inner : n, &r->sum) && r->sum.weights->rank == inverse->rank;
}

void ra_divide_by(ra_match *k, const ra_rows *r, double c) {
    k->kind = r->kind;
    k->top = r->sum.weights;
    k->sink = r->sum.rest;
    k->more_uses = 1;
    k->factor = r->kind == SN_WEIGHTS_SUM && !k->sink ? 1 : r->sum.factor;
    k->outside = c / r->sum.factor;
}

void ra_plain_weights(ra_match *k, sn_node *w) {
    enum { MAX_FACTORS = 8 };
    sn_node *f[MAX_FACTORS], *g[MAX_FACTORS];
    double c;
    ra_rows rows;
    k->kind = SN_WEIGHTS_PLAIN;
    k->top = k->softmax = w;
    k->factor = k->outside = 1;
    int n = sn_match_float(w) ? sn_match_factors(w, NULL, f, MAX_FACTORS, &c) : -1;
    for (int i = 0; i < n; i++) {
        if (!ra_row_divisor(f[i], &rows) || !sn_shapes_equal(rows.sum.weights, w)) continue;
        bool whole = sn_match_factors(w, rows.sum.weights, g, MAX_FACTORS, &c) == 2;
        whole = whole && (g[0] == rows.sum.weights || g[1] == rows.sum.weights);
        if (!whole || (g[0] != f[i] && g[1] != f[i])) continue;
        ra_divide_by(k, &rows, c);
        return;
    }
}

static bool is_weight(const sn_node *n) {
    return sn_below_views(n)->op == SN_OP_param;
}

bool ra_may_be_plain(const ra_match *k) {
    return !is_weight(k->scores->in[0]) && !is_weight(k->scores->in[1]) &&
           !is_weight(k->product->in[1 - k->side]);
}

enum { ARG_Q = 3, ARG_K = 4, ARG_CAPTURED = 5, OPERAND_CAPTURED = 3 }; /* of a score region */

static int arg_of(const sn_node *n) {
    return n->op == SN_OP_arg ? (int)sn_attr_int(n, SN_A_index, -1) : -1;
}

static bool varies_with(sn_node *index, int arg) {
    sn_order order = sn_topo(index->m, 1, &index);
    for (int i = 0; i < order.n; i++)
        if (arg_of(order.node[i]) == arg) return true;
    return false;
}

/* Whether a look-up has an axis of queries and one of keys. */
static bool is_of_pairs(const sn_node *read) {
    bool q = false, k = false;
    for (int i = 1; i < read->n_in; i++) {
        bool with_q = varies_with(read->in[i], ARG_Q), with_k = varies_with(read->in[i], ARG_K);
        q |= with_q && !with_k;
        k |= with_k && !with_q;
    }
    return q && k;
}

bool ra_is_worth(const sn_node *y) {
    const sn_region *score = sn_attr_region(y, SN_A_score), *mask = sn_attr_region(y, SN_A_mask);
    sn_order order = score ? sn_region_topo(y->m, score) : (sn_order){0};
    for (int i = 0; i < order.n; i++) {
        const sn_node *read = order.node[i];
        int captured = read->op == SN_OP_gather_nd ? arg_of(read->in[0]) - ARG_CAPTURED : -1;
        if (captured < 0 || !is_of_pairs(read)) continue;
        if (!sn_is_leaf(sn_below_views(y->in[OPERAND_CAPTURED + captured]))) return false;
    }
    for (int i = 0; i < 3; i++)
        if (sn_from_params_only(y->in[i])) return false;
    bool batched = y->in[1]->shape[0] != 1 || y->in[1]->shape[1] != 1;
    bool divided = sn_attr_int(y, SN_A_weights, 0) != SN_WEIGHTS_PLAIN;
    return divided || mask || (score && batched);
}
