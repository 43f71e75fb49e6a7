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
    sn_recurrence r = transposed(x, x->r.reads == SN_READS_AFTER ? SN_READS_LATE : SN_READS_BEFORE);
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

/* ---- of recurrences that are part of a gradient: as a scan ---- */

/* x with an axis of size 1 at `axis`, broadcast to S's shape */
static sn_node *spread(sn_node *x, int axis, const sn_node *S) {
    sn_dim shape[SN_MAX_RANK];
    for (int a = 0, i = 0; a < S->rank; a++) shape[a] = a == axis ? 1 : x->shape[i++];
    return sn_b_broadcast(sn_b_reshape(x, S->rank, shape), S->rank, S->shape);
}

/* x S */
static sn_node *times_carry(sn_node *x, sn_node *S) {
    int64_t axis = S->rank - 2;
    sn_dim shape[SN_MAX_RANK];
    memcpy(shape, S->shape, sizeof *shape * (size_t)axis);
    shape[axis] = S->shape[axis + 1];
    sn_node *y = OP2(mul, spread(x, S->rank - 1, S), S);
    return sn_b_reshape(sn_b_reduce(SN_OP_reduce_sum, y, 1, &axis), S->rank - 1, shape);
}

static sn_node *plus_product(sn_node *S, sn_node *x, sn_node *y) {
    return OP2(add, S, OP2(mul, spread(x, S->rank - 1, S), spread(y, S->rank - 2, S)));
}

/* y - (q . x) v */
static sn_node *without_own(sn_node *y, sn_node *q, sn_node *x, sn_node *v) {
    int64_t last = q->rank - 1;
    sn_node *dot = sn_b_reduce(SN_OP_reduce_sum, OP2(mul, q, x), 1, &last);
    return OP2(sub, y, OP2(mul, sn_b_broadcast_like(dot, v), v));
}

/* The body: x by the numbers of operands; out: the carry, y, u. */
static int one_element(const sn_recurrence *r, sn_node *const *x, sn_node **out) {
    sn_node *S = x[SN_REC_START], *u = r->second ? x[SN_REC_A] : NULL, *q = x[SN_REC_Q];
    sn_node *k = x[SN_REC_K], *v = x[SN_REC_V], *y = NULL;
    if (r->reads == SN_READS_LATE) S = plus_product(S, k, v);
    if (r->reads != SN_READS_AFTER) y = times_carry(q, S);
    if (r->delta) u = times_carry(u, S);
    sn_node *d = sn_b_unary(SN_OP_exp, x[SN_REC_G]);
    S = OP2(mul, S, spread(d, r->columns ? S->rank - 2 : S->rank - 1, S));
    if (r->reads != SN_READS_LATE) S = plus_product(S, k, v);
    if (u) S = plus_product(S, x[SN_REC_B], u);
    if (!y) y = times_carry(q, S);
    if (r->strict && r->reads != SN_READS_BEFORE) y = without_own(y, q, k, v);
    if (r->strict && r->reads == SN_READS_AFTER && u) y = without_own(y, q, x[SN_REC_B], u);
    out[0] = S;
    out[1] = y;
    out[2] = u;
    return r->delta ? 3 : 2;
}

/* The scan of these operands, whose results are in the order of one_element. */
static sn_node *as_scan(const sn_recurrence *r, int n_in, sn_node *const *x) {
    sn_module *m = x[0]->m;
    sn_node *in[SN_REC_END], *arg[SN_REC_END], *by_operand[SN_REC_END] = {NULL}, *out[3];
    for (int i = 0, at = 1; i < n_in; i++) {
        int k = i == SN_REC_START ? 0 : at++, skip = k > 0;
        in[k] = x[i];
        by_operand[i] = arg[k] =
            sn_arg(m, k, (sn_dtype)x[i]->dtype, x[i]->rank - skip, x[i]->shape + skip);
    }
    int n_out = one_element(r, by_operand, out);
    sn_region *body = sn_region_new(m, n_in, arg, n_out, out);
    return sn_node_new(m, SN_OP_scan, n_in, in,
                       SN_ATTRS(SN_INT(carries, 1), SN_INT(sequences, n_in - 1), SN_REG(body, body),
                                SN_INT(reverse, r->reverse)));
}

/* Differentiates the scan of stand-ins, so that nothing flows further than to the operands. */
static void through_scan(grad *c, const sn_recurrence *r) {
    static const int result[] = {1, 0, 2}; /* of the scan, by that of the recurrence */
    sn_node *n = c->n, *in[2 * SN_REC_END], *cut[2 * SN_REC_END], *y[3], *g[3], *d[SN_REC_END];
    int n_y = 0, n_cut = n->n_in;
    for (int i = 0; i < n->n_in; i++) {
        in[i] = n->in[i];
        cut[i] = sn_gr_stand_in(n->m, in[i]->rank, in[i]->shape, (sn_dtype)in[i]->dtype);
    }
    if (n->m->error.code) return;
    sn_node *scan = as_scan(r, n->n_in, cut);
    for (int i = 0; i < n->n_result; i++) {
        sn_node *x = sn_gr_cotangent(c, i);
        if (!x || n->m->error.code) continue;
        y[n_y] = sn_b_result(scan, result[i]);
        in[n_cut] = x;
        g[n_y++] = cut[n_cut++] = sn_gr_stand_in(n->m, x->rank, x->shape, (sn_dtype)x->dtype);
    }
    if (n->m->error.code) return;
    sn_pullback_all(n_y, y, g, n->n_in, cut, d);
    for (int i = 0; i < n->n_in && !n->m->error.code; i++) {
        sn_node *given;
        if (!d[i] || !sn_gr_needs(c, i)) continue;
        sn_region_inline(sn_region_extract(n->m, n_cut, cut, 1, &d[i]), in, &given);
        sn_gr_give(c, i, given);
    }
}

/* ---- the rule ---- */

/* False: it is part of a gradient itself. */
static bool read_node(back *x, grad *c) {
    sn_node *n = c->n;
    x->c = c;
    x->r = sn_recurrence_of(n);
    if (x->r.columns || x->r.strict || x->r.reads == SN_READS_LATE || x->r.second != x->r.delta ||
        (x->r.delta && sn_gr_cotangent(c, 2)))
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
    if (!read_node(&x, c)) {
        through_scan(c, &x.r);
        return true;
    }
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
