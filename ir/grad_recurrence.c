/* grad_recurrence.c: the gradient of a linear recurrence, in memory linear in its length: recurrences
 * again. The cotangent R of the carry goes the other way,
 *     R' = e^g R + a^T (b R) + q^T dy
 * which gives those of v and u. Those of the vectors of K elements read S or R transposed, whose
 * products are known by then: dq = dy S^T, da = du S^T, dk = v R^T, db = u R^T.
 *
 * That of a log decay is the sum over all paths through the carry that pass its element: with the
 * products of an element with itself left out, of what was written before it minus what was read
 * before it [Yang et al. 2024, "Gated linear attention", section C]. */
#include "ir/grad_impl.h"

#include <string.h>

typedef struct back {
    grad *c;
    sn_recurrence r;
    sn_node *q, *k, *v, *g, *a, *b, *u; /* the last three NULL: no second pair */
    sn_node *start, *dy, *dend;
    sn_node *dv, *dstart, *du;
} back;

/* x^T of the last two axes */
static sn_node *turned(sn_node *x) {
    int64_t perm[SN_MAX_RANK];
    for (int i = 0; i < x->rank; i++) perm[i] = i;
    perm[x->rank - 1] = x->rank - 2;
    perm[x->rank - 2] = x->rank - 1;
    return sn_b_transpose(x, x->rank, perm);
}

static sn_node *recur(const sn_recurrence *r, sn_node *const *in) {
    return sn_node_new(in[0]->m, SN_OP_recurrence, r->second ? SN_REC_END : SN_REC_B, in,
                       SN_ATTRS(SN_INT(reads, r->reads), SN_INT(delta, r->delta),
                                SN_INT(columns, r->columns), SN_INT(strict, r->strict),
                                SN_INT(reverse, r->reverse)));
}

static void carry_back(back *x) {
    sn_recurrence r = x->r;
    sn_node *const in[] = {x->k, x->q, x->dy, x->g, x->dend, x->a, x->b};
    if (r.reads == SN_READS_AFTER) r.reads = SN_READS_LATE;
    r.reverse = !r.reverse;
    sn_node *n = recur(&r, in);
    x->dv = sn_b_result(n, 0);
    x->dstart = sn_b_result(n, 1);
    if (r.delta) x->du = sn_b_result(n, 2);
}

static sn_recurrence transposed(const back *x, sn_reads reads) {
    bool vector = x->g->shape[x->g->rank - 1] != 1;
    return (sn_recurrence){.reads = reads,
                           .second = x->r.second,
                           .columns = vector,
                           .reverse = x->r.reverse,
                           .strict = reads != SN_READS_BEFORE};
}

/* query S^T */
static sn_node *read_carry(const back *x, sn_node *query, sn_reads reads) {
    sn_recurrence r = transposed(x, reads);
    sn_node *const in[] = {query, x->v, x->k, x->g, turned(x->start), x->u, x->b};
    return sn_b_result(recur(&r, in), 0);
}

/* query R^T */
static sn_node *read_cotangent(const back *x, sn_node *query) {
    sn_recurrence r =
        transposed(x, x->r.reads == SN_READS_AFTER ? SN_READS_LATE : SN_READS_BEFORE);
    sn_node *const in[] = {query, x->dy, x->q, x->g, turned(x->dend), x->du, x->a};
    r.reverse = !r.reverse;
    return sn_b_result(recur(&r, in), 0);
}

/* d + (x . y) z, which strict reading has left out */
static sn_node *with_own(const back *b, sn_node *d, sn_node *x, sn_node *y, sn_node *z) {
    int64_t last = x->rank - 1;
    if (b->r.reads == SN_READS_BEFORE) return d;
    sn_node *dot = sn_b_reduce(SN_OP_reduce_sum, OP2(mul, x, y), 1, &last);
    return OP2(add, d, OP2(mul, sn_b_broadcast_like(dot, z), z));
}

/* The sum over what comes before each element, and that element. */
static sn_node *sum_so_far(const back *x, sn_node *d) {
    if (x->r.reverse) d = sn_gr_reverse(d, 0);
    d = SN_NODE(d->m, cumsum, SN_ATTRS(SN_INT(axis, 0)), d);
    return x->r.reverse ? sn_gr_reverse(d, 0) : d;
}

/* The sum over the last axis if there is one decay for all. */
static sn_node *of_decays(const back *x, sn_node *d) {
    int64_t last = d->rank - 1;
    return x->g->shape[last] == d->shape[last] ? d : sn_b_reduce(SN_OP_reduce_sum, d, 1, &last);
}

static void give_decay(const back *x, sn_node *dq, sn_node *dk, sn_node *da, sn_node *db) {
    sn_node *read = OP2(mul, x->q, dq), *written = OP2(mul, x->k, dk), *all, *here;
    if (db) written = OP2(add, written, OP2(mul, x->b, db));
    int64_t last = x->start->rank - 1;
    sn_node *first =
        sn_b_reduce(SN_OP_reduce_sum, OP2(mul, x->start, x->dstart), 1, &last); /* [.., K, 1] */
    sn_dim shape[SN_MAX_RANK];
    memcpy(shape, x->q->shape, sizeof *shape * (size_t)x->q->rank);
    shape[0] = 1;
    first = of_decays(x, sn_b_reshape(first, x->q->rank, shape));
    all = OP2(sub, read, written);
    here = x->r.reads == SN_READS_AFTER ? all : sn_b_unary(SN_OP_neg, written);
    if (da) all = OP2(add, all, OP2(mul, x->a, da));
    all = sum_so_far(x, of_decays(x, all));
    here = OP2(sub, of_decays(x, here), all);
    sn_gr_give(x->c, SN_REC_G, OP2(add, here, sn_b_broadcast_like(first, here)));
}

/* False: it is part of a gradient itself, and has none. */
static bool read_node(back *x, grad *c) {
    sn_node *n = c->n;
    x->c = c;
    x->r = sn_recurrence_of(n);
    if (x->r.columns || x->r.strict || x->r.reads == SN_READS_LATE ||
        x->r.second != x->r.delta || (x->r.delta && sn_gr_cotangent(c, 2)))
        return false;
    x->q = n->in[SN_REC_Q];
    x->k = n->in[SN_REC_K];
    x->v = n->in[SN_REC_V];
    x->g = n->in[SN_REC_G];
    x->start = n->in[SN_REC_START];
    if (x->r.delta) x->b = n->in[SN_REC_B], x->a = n->in[SN_REC_A], x->u = sn_b_result(n, 2);
    x->dy = sn_gr_cotangent(c, 0);
    x->dend = sn_gr_cotangent(c, 1);
    if (!x->dy) x->dy = sn_gr_fill(x->v, 0);
    if (!x->dend) x->dend = sn_gr_fill(x->start, 0);
    return true;
}

bool grad_recurrence(grad *c) {
    back x = {.c = NULL};
    sn_node *dq, *dk, *da = NULL, *db = NULL;
    if (!read_node(&x, c)) return false;
    carry_back(&x);
    dq = read_carry(&x, x.dy, x.r.reads);
    dk = read_cotangent(&x, x.v);
    if (x.r.delta) {
        da = read_carry(&x, x.du, SN_READS_BEFORE);
        db = read_cotangent(&x, x.u);
    }
    if (sn_gr_needs(c, SN_REC_G)) give_decay(&x, dq, dk, da, db);
    dq = with_own(&x, dq, x.dy, x.v, x.k);
    if (x.r.delta) dq = with_own(&x, dq, x.dy, x.u, x.b);
    sn_gr_give(c, SN_REC_Q, dq);
    sn_gr_give(c, SN_REC_K, with_own(&x, dk, x.v, x.dy, x.q));
    sn_gr_give(c, SN_REC_V, x.dv);
    sn_gr_give(c, SN_REC_START, x.dstart);
    if (x.r.delta) {
        sn_gr_give(c, SN_REC_A, da);
        sn_gr_give(c, SN_REC_B, with_own(&x, db, x.u, x.dy, x.q));
    }
    return true;
}
