/* decay.c: what is known about the numbers that a recurrence's carry is multiplied by; see recurrence.h. */
#include "passes/raise/recurrence.h"
#include "passes/graph_util.h"
#include "passes/match.h"

#include <string.h>

enum { MOST_KNOWN = 4096 /* numbers that are looked at */, DEPTH = 12 };

/* Whether n has a known number of elements, few enough to be looked at. */
static bool is_small_array(const sn_node *n, int64_t *count) {
    return sn_static_shape(n) &&
           sn_dim_is_const(n->m, sn_dim_product(n->m, n->rank, n->shape), count) &&
           *count <= MOST_KNOWN;
}

const sn_value *sn_known_array(sn_node *n) {
    sn_module *m = n->m;
    int64_t count, other;
    if (!is_small_array(n, &count)) return NULL;
    sn_order order = sn_topo(m, 1, &n);
    for (int i = 0; i < order.n; i++) {
        const sn_node *x = order.node[i];
        bool leaf = x->op == SN_OP_const || x->op == SN_OP_iota;
        if (!leaf && (!x->n_in || (sn_ops[x->op].kind != SN_ELEM && !sn_is_view(x)))) return NULL;
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

static bool is_positive(sn_node *n, int depth) {
    double v;
    static const uint8_t same[SN_OP_COUNT] = {
        [SN_OP_broadcast] = 1, [SN_OP_reshape] = 1, [SN_OP_transpose] = 1, [SN_OP_mul] = 1,
        [SN_OP_slice] = 1,     [SN_OP_add] = 1,     [SN_OP_sqrt] = 1,      [SN_OP_pad] = 0};
    if (sn_match_const(n, &v)) return v > 0;
    if (n->op == SN_OP_exp || n->op == SN_OP_exp2 || n->op == SN_OP_sigmoid) return true;
    if (is_positive_array(n) || complement(n)) return true;
    if (!depth) return false;
    if (n->op == SN_OP_max)
        return is_positive(n->in[0], depth - 1) || is_positive(n->in[1], depth - 1);
    if (!same[n->op]) return false;
    for (int i = 0; i < n->n_in; i++)
        if (!is_positive(n->in[i], depth - 1)) return false;
    return true;
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
    return sn_b_unary(SN_OP_log, n);
}

bool sn_is_positive(sn_node *n) {
    return is_positive(n, DEPTH);
}

sn_node *sn_log_of(sn_node *n) {
    return log_of(n, DEPTH);
}
