/* separable.c: integers of the form f(q) + g(k), such as an index of Swin's relative positions, which is
 * made of rows and columns of query and key. f is computed once for the queries of a tile, g once for a
 * key, and what is left for each pair is an addition. Integers wrap, so any order of terms is exact. */
#include "codegen/attention/impl.h"

#include <math.h>

static bool is_index(const sn_node *n) {
    return n->dtype == SN_I32 || n->dtype == SN_I64;
}

/* Adds factor * n to the terms of s; false: n has another form. */
static bool add_terms(att_separable *s, const sn_region_code *c, sn_node *n, double factor) {
    uint32_t deps = sn_region_node_deps(c, n);
    if (n->dtype != s->node->dtype || deps & (ATT_DEP_SCORE | ATT_DEP_GRAD)) return false;
    if (!(deps & ATT_DEP_Q) || !(deps & ATT_DEP_K)) {
        if (s->n == ATT_SEPARABLE_TERMS || fabs(factor) > INT32_MAX) return false;
        s->term[s->n++] = (att_separable_term){n, factor, (deps & ATT_DEP_K) != 0};
        return true;
    }
    s->joins += n->op != SN_OP_neg;
    if (n->op == SN_OP_neg) return add_terms(s, c, n->in[0], -factor);
    if (n->op == SN_OP_add || n->op == SN_OP_sub)
        return add_terms(s, c, n->in[0], factor) &&
               add_terms(s, c, n->in[1], n->op == SN_OP_sub ? -factor : factor);
    for (int i = 0; n->op == SN_OP_mul && i < 2; i++)
        if (n->in[i]->op == SN_OP_const)
            return add_terms(s, c, n->in[1 - i], factor * sn_attr_flt(n->in[i], SN_A_value, 0));
    return false;
}

static bool is_read_index(const sn_region_code *c, const sn_node *n) {
    for (int i = 0; i < c->order.n; i++) {
        const sn_node *user = c->order.node[i];
        for (int j = 1; user->op == SN_OP_gather_nd && j < user->n_in; j++)
            if (user->in[j] == n) return true;
    }
    return false;
}

static bool has_both(const sn_region_code *c, const sn_node *n) {
    const uint32_t both = ATT_DEP_Q | ATT_DEP_K;
    return (sn_region_node_deps(c, n) & both) == both;
}

/* Whether n joins terms of a node that was found already. */
static bool is_inside(const sn_region_code *c, const sn_node *n, const sn_node *found) {
    if (n == found) return true;
    for (int i = 0; has_both(c, found) && i < found->n_in; i++)
        if (is_inside(c, n, found->in[i])) return true;
    return false;
}

void att_separable_find(att_separables *s, const sn_region_code *c) {
    s->n = 0;
    for (int i = c->order.n - 1; i >= 0 && s->n < ATT_SEPARABLES; i--) { /* users come first */
        sn_node *n = c->order.node[i];
        if (!has_both(c, n) || !is_index(n) || !sn_region_needs(c, n)) continue;
        bool part = false;
        for (int j = 0; j < s->n; j++) part = part || is_inside(c, n, s->of[j].node);
        if (part) continue;
        att_separable *found = &s->of[s->n];
        *found = (att_separable){.node = n};
        if (add_terms(found, c, n, 1) && (found->joins > 1 || is_read_index(c, n))) s->n++;
    }
}

int att_separable_terms(const att_separables *s, sn_node **term) {
    int n = 0;
    for (int i = 0; i < s->n; i++)
        for (int j = 0; j < s->of[i].n; j++) term[n++] = s->of[i].term[j].node;
    return n;
}

/* The sum of the terms that depend on the key, or of the others; NULL: there are none. */
static em_val sum_terms(em *e, const sn_region_code *c, const att_separable *s, bool of_key) {
    em_val sum = NULL;
    for (int i = 0; i < s->n; i++) {
        if (s->term[i].of_key != of_key) continue;
        em_val x = sn_region_node(c, s->term[i].node);
        if (s->term[i].factor != 1) x = em_mul(e, x, em_like(e, x, s->term[i].factor));
        int have = sum ? em_lanes_of(sum) : 1, lanes = em_lanes_of(x);
        if (sum && have < lanes) sum = em_splat(e, sum, lanes);
        if (lanes < have) x = em_splat(e, x, have);
        sum = sum ? em_add(e, sum, x) : x;
    }
    return sum;
}

void att_separable_begin(att_separables *s, em *e, const sn_region_code *c) {
    for (int i = 0; i < s->n; i++) s->of[i].of_query = sum_terms(e, c, &s->of[i], false);
}

void att_separable_give(att_separables *s, em *e, sn_region_code *c) {
    for (int i = 0; i < s->n; i++) {
        att_separable *x = &s->of[i];
        x->of_key = sum_terms(e, c, x, true);
        em_val a = x->of_query, b = x->of_key;
        if (em_lanes_of(a) < em_lanes_of(b)) a = em_splat(e, a, em_lanes_of(b));
        if (em_lanes_of(b) < em_lanes_of(a)) b = em_splat(e, b, em_lanes_of(a));
        sn_region_give(c, x->node, sn_emit_rounded(e, (sn_dtype)x->node->dtype, em_add(e, a, b)));
    }
}

const att_separable *att_separable_of(const att_separables *s, const sn_node *n) {
    for (int i = 0; s && i < s->n; i++)
        if (s->of[i].node == n) return &s->of[i];
    return NULL;
}
