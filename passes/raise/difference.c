/* difference.c: differential attention: the product of values with a sum of softmaxes, each times a number of its row
 * or none, becomes this sum of products, which are attention. A softmax may be a part of one that was computed for
 * several: then queries and keys are cut, not the weights. */
#include "passes/graph_util.h"
#include "passes/match.h"
#include "passes/raise/attention.h"

enum { MAX_TERMS = 4, MAX_FACTORS = 6, MAX_DEPTH = 32 };

typedef struct term {
    sn_node *weights, *factor; /* factor: of weights' shape; NULL: 1 */
    double c;
} term;

typedef struct difference {
    sn_raiser *r;
    const sn_node *product;
    int side;
    term term[MAX_TERMS];
    int n;
} difference;

/* The softmax that n is a part of, in another order or not; NULL: it is none. */
static const sn_node *softmax_of(const sn_node *n, bool *is_cut) {
    while (sn_moves(n) || n->op == SN_OP_slice) {
        *is_cut |= n->op == SN_OP_slice;
        n = n->in[0];
    }
    return n->op == SN_OP_softmax ? n : NULL;
}

static bool read_terms(difference *d, sn_node *w, double sign) {
    if (w->op == SN_OP_add || w->op == SN_OP_sub)
        return read_terms(d, w->in[0], sign) &&
               read_terms(d, w->in[1], w->op == SN_OP_sub ? -sign : sign);
    if (w->op == SN_OP_neg) return read_terms(d, w->in[0], -sign);
    sn_node *f[MAX_FACTORS];
    term t = {.weights = NULL};
    int count = sn_match_factors(w, NULL, f, MAX_FACTORS, &t.c);
    bool unused = false;
    for (int i = 0; i < count; i++)
        if (!t.weights && sn_shapes_equal(f[i], w) && softmax_of(f[i], &unused))
            t.weights = f[i];
        else
            t.factor = t.factor ? sn_b_binary(SN_OP_mul, t.factor, f[i]) : f[i];
    t.c *= sign;
    if (!t.weights || d->n == MAX_TERMS) return false;
    d->term[d->n++] = t;
    return true;
}

/* ---- parts of a softmax ---- */

static sn_node *cut(sn_node *n, int axis, sn_dim start, sn_dim size, int depth) {
    sn_node *in[SN_MAX_RANK];
    int from[2];
    bool elementwise = sn_is_elementwise(n);
    if (depth && (elementwise || (n->op == SN_OP_softmax && n->n_in == 1))) {
        for (int i = 0; i < n->n_in; i++) in[i] = cut(n->in[i], axis, start, size, depth - 1);
        return sn_node_with(n, in);
    }
    if (depth && n->op == SN_OP_broadcast) {
        sn_node *x = n->in[0];
        sn_dim shape[SN_MAX_RANK];
        const int at = axis - (n->rank - x->rank);
        for (int i = 0; i < n->rank; i++) shape[i] = i == axis ? size : n->shape[i];
        if (at >= 0 && x->shape[at] != 1) x = cut(x, at, start, size, depth - 1);
        return sn_b_broadcast(x, n->rank, shape);
    }
    if (n->op != SN_OP_dot) return sn_b_slice(n, axis, start, size);
    ra_result_axis(n, axis, from);
    for (int i = 0; i < 2; i++)
        in[i] = from[i] < 0 ? n->in[i] : sn_b_slice(n->in[i], from[i], start, size);
    return sn_node_with(n, in);
}

/* Weights whose slices are those of queries and keys; NULL: keys are cut, or something else reads them. */
static sn_node *uncut(const difference *d, sn_node *n, uint32_t readers) {
    if (n->op == SN_OP_softmax) return sn_raise_uses(d->r, n) <= readers ? n : NULL;
    sn_node *x = sn_raise_uses(d->r, n) > 1 ? NULL : uncut(d, n->in[0], readers);
    if (!x || n->op != SN_OP_slice) return x ? sn_node_with(n, &x) : NULL;
    const sn_attr *start = sn_attr_get(n, SN_A_start), *step = sn_attr_get(n, SN_A_step);
    for (int a = 0; a < n->rank; a++) {
        if (n->shape[a] == x->shape[a]) continue;
        if (x->op != SN_OP_softmax || a == (int)sn_attr_int(x, SN_A_axis, x->rank - 1) ||
            (step && step->v[a] != 1))
            return NULL;
        x = cut(x, a, start->v[a], n->shape[a], MAX_DEPTH);
    }
    return x;
}

static sn_node *weights_of(const difference *d, int i) {
    bool is_cut = false, other = false;
    uint32_t readers = 0;
    const sn_node *softmax = softmax_of(d->term[i].weights, &is_cut);
    for (int k = 0; k < d->n; k++) readers += softmax_of(d->term[k].weights, &other) == softmax;
    return is_cut ? uncut(d, d->term[i].weights, readers) : d->term[i].weights;
}

/* ---- the rule ---- */

/* A term's factor for the product; NULL: it differs by key, or axes of the two have another order. */
static sn_node *row_factor(const difference *d, sn_node *factor) {
    const sn_node *n = d->product, *w = n->in[d->side];
    sn_node *x = sn_match_below(factor);
    sn_dim shape[SN_MAX_RANK];
    bool one = true;
    for (int i = 0; i < x->rank; i++) one &= x->shape[i] == 1;
    for (int i = 0; i < n->rank; i++) {
        const int at = i - (w->rank - x->rank);
        shape[i] = one || at < 0 ? 1 : x->shape[at];
    }
    if (!one && n->rank != w->rank) return NULL;
    x = sn_b_reshape(x, n->rank, shape);
    return ra_goes_with(x, n, d->side) ? sn_b_broadcast(x, n->rank, n->shape) : NULL;
}

static sn_node *sum_of_products(const difference *d) {
    sn_node *sum = NULL, *in[2] = {d->product->in[0], d->product->in[1]};
    for (int i = 0; i < d->n; i++) {
        const term *t = &d->term[i];
        sn_node *factor = t->factor ? row_factor(d, t->factor) : NULL;
        if ((t->factor && !factor) || !(in[d->side] = weights_of(d, i))) return NULL;
        sn_node *y = ra_raise_product(d->r, sn_node_with(d->product, in), d->side, NULL);
        if (!y) return NULL;
        if (factor) y = sn_b_binary(SN_OP_mul, y, factor);
        if (t->c != 1) y = sn_b_scalar(SN_OP_mul, y, t->c);
        sum = sum ? sn_b_binary(SN_OP_add, sum, y) : y;
    }
    return sum;
}

sn_node *sn_raise_difference(sn_raiser *r, sn_node *n) {
    if (!sn_raise_wants_attention(r)) return NULL;
    for (int side = 0; side < 2; side++) {
        difference d = {.r = r, .product = n, .side = side};
        bool is_cut = false;
        const sn_attr *over = ra_contract_of(n, side);
        const int n_remark = r->p->n_remark;
        sn_node *w = n->in[side];
        if (!over || over->n != 1 || sn_raise_uses(r, w) > 1 || !read_terms(&d, w, 1)) continue;
        if (d.n == 1 && (!softmax_of(w, &is_cut) || !is_cut)) continue;
        sn_node *y = sum_of_products(&d);
        if (y || sn_module_error(r->m)->code) return y;
        r->p->n_remark = n_remark;
    }
    return NULL;
}
