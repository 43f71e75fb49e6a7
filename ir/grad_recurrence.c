/* grad_recurrence.c: the gradient of a linear recurrence, in memory linear in its length: two recurrences
 * again. The cotangent R of the carry goes the other way,
 *     R' = e^g R + a^T (b R) + q^T dy
 * which gives those of v and u; those of k and b read R transposed, dk = v R^T, db = u R^T, in the same
 * pass. Then S is computed once more, whose cotangents of values are known, for dq = dy S^T, da = du S^T.
 *
 * That of a log decay is the sum over all paths through the carry that pass its element: of what was
 * written before it minus what was read before it [Yang et al. 2024, "Gated linear attention", section
 * C]. The second pass adds it up as it goes. */
#include "ir/grad_impl.h"

#include <string.h>

/* Where b is k, w = v + u is the only value, and dk and db are one. */
typedef struct back {
    grad *c;
    sn_recurrence r;
    sn_node *q, *k, *v, *g, *a, *b, *u; /* the last three NULL: no second pair */
    sn_node *w, *start, *dy, *dend;
    sn_node *dq, *dk, *dv, *dg, *da, *db, *dstart, *du;
} back;

static sn_node *recur(const sn_recurrence *r, int n_in, sn_node *const *in) {
    return sn_node_new(in[0]->m, SN_OP_recurrence, n_in, in,
                       SN_ATTRS(SN_INT(reads, r->reads), SN_INT(delta, r->delta),
                                SN_INT(transposed, r->turned), SN_INT(silent, r->silent),
                                SN_INT(decay_grad, r->decay_grad), SN_INT(reverse, r->reverse)));
}

static sn_node *turned(const sn_recurrence *r, sn_node *n, int i) {
    return sn_b_result(n, sn_recurrence_turned_result(r, i));
}

/* The pass with R: y = k R, u = b R. */
static void carry_back(back *x) {
    sn_recurrence r = {.reads = x->r.reads == SN_READS_AFTER ? SN_READS_LATE : SN_READS_BEFORE,
                       .second = x->r.second,
                       .delta = x->r.delta,
                       .silent = x->r.same,
                       .reverse = !x->r.reverse,
                       .turned = 1 + (x->r.delta && !x->r.same)};
    sn_node *in[SN_REC_MOST] = {x->dend, x->k, x->q, x->dy, x->g, x->a, x->b};
    in[sn_recurrence_turned(&r, 0)] = x->w;
    if (r.turned > 1) in[sn_recurrence_turned(&r, 1)] = x->u;
    sn_node *n = recur(&r, sn_recurrence_turned(&r, r.turned), in);
    x->dstart = sn_b_result(n, 1);
    x->dk = turned(&r, n, 0);
    if (r.turned > 1) x->db = turned(&r, n, 1);
    if (r.delta) x->du = sn_b_result(n, 2);
    x->dv = r.silent ? x->du : sn_b_result(n, 0);
}

/* The pass with S. */
static void carry_again(back *x) {
    sn_recurrence r = {.reads = x->r.reads,
                       .second = x->r.second && !x->r.same,
                       .silent = true,
                       .reverse = x->r.reverse,
                       .turned = 1 + x->r.delta,
                       .decay_grad = sn_gr_needs(x->c, SN_REC_G)};
    sn_node *in[SN_REC_MOST] = {x->start, x->q, x->k, x->w, x->g, x->b, x->u};
    sn_node *const factor[SN_REC_FACTORS] = {x->dk, x->a, x->db};
    in[sn_recurrence_turned(&r, 0)] = x->dy;
    if (x->r.delta) in[sn_recurrence_turned(&r, 1)] = x->du;
    for (int i = 0; i < SN_REC_FACTORS; i++) {
        int at = sn_recurrence_factor(&r, (sn_rec_factor)i);
        if (at >= 0) in[at] = factor[i];
    }
    sn_node *n = recur(&r, sn_recurrence_n_in(&r), in);
    x->dq = turned(&r, n, 0);
    if (x->r.delta) x->da = turned(&r, n, 1);
    if (r.decay_grad) x->dg = sn_b_result(n, sn_recurrence_n_out(&r) - 1);
}

/* The sum over the last axis if there is one decay for all. */
static sn_node *of_decays(sn_node *g, sn_node *d) {
    int64_t last = d->rank - 1;
    return g->shape[last] == d->shape[last] ? d : sn_b_reduce(SN_OP_reduce_sum, d, 1, &last);
}

static bool is_zero(const sn_node *x) {
    while (x->op == SN_OP_broadcast || x->op == SN_OP_reshape) x = x->in[0];
    return x->op == SN_OP_const && sn_attr_flt(x, SN_A_value, 0) == 0;
}

/* Every element's decay is on the paths from S at the beginning, unless that is zero. */
static void give_decay(const back *x) {
    if (is_zero(x->start)) {
        sn_gr_give(x->c, SN_REC_G, x->dg);
        return;
    }
    int64_t last = x->start->rank - 1;
    sn_dim shape[SN_MAX_RANK];
    sn_node *first =
        sn_b_reduce(SN_OP_reduce_sum, OP2(mul, x->start, x->dstart), 1, &last); /* [.., K, 1] */
    memcpy(shape, x->q->shape, sizeof *shape * (size_t)x->q->rank);
    shape[0] = 1;
    first = of_decays(x->g, sn_b_reshape(first, x->q->rank, shape));
    sn_gr_give(x->c, SN_REC_G, OP2(add, x->dg, sn_b_broadcast_like(first, x->dg)));
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

/* z = x S^T */
static sn_node *times_turned(sn_node *x, sn_node *S) {
    int64_t axis = S->rank - 1;
    sn_node *y = sn_b_reduce(SN_OP_reduce_sum, OP2(mul, spread(x, axis - 1, S), S), 1, &axis);
    return sn_b_reshape(y, axis, S->shape);
}

/* Of a scan's results, the carry is the first. */
static int of_scan(int result) {
    return result < 2 ? 1 - result : result;
}

/* z of the i-th x. */
static void read_turned(const sn_recurrence *r, int i, sn_node *const *x, sn_node *S,
                        sn_node **out) {
    out[of_scan(sn_recurrence_turned_result(r, i))] =
        times_turned(x[sn_recurrence_turned(r, i)], S);
}

/* The body: x by the numbers of operands; out: its results. Returns how many. */
static int one_element(const sn_recurrence *r, sn_node *const *x, sn_node **out) {
    sn_node *S = x[SN_REC_START], *u = r->second ? x[SN_REC_A] : NULL, *q = x[SN_REC_Q];
    sn_node *k = x[SN_REC_K], *v = x[SN_REC_V], *y = NULL;
    const bool after = r->reads == SN_READS_AFTER;
    if (r->reads == SN_READS_LATE) S = plus_product(S, k, v);
    if (!after) y = times_carry(q, S);
    for (int i = after; i < r->turned; i++) read_turned(r, i, x, S, out);
    if (r->delta) u = out[2] = times_carry(u, S);
    sn_node *d = sn_b_unary(SN_OP_exp, x[SN_REC_G]);
    S = OP2(mul, S, spread(d, S->rank - 1, S));
    if (r->reads != SN_READS_LATE) S = plus_product(S, k, v);
    if (u) S = plus_product(S, x[SN_REC_B], u);
    out[of_scan(1)] = S;
    if (after && r->turned) read_turned(r, 0, x, S, out);
    if (!r->silent) out[of_scan(0)] = y ? y : times_carry(q, S);
    return sn_recurrence_n_out(r) - r->decay_grad;
}

/* The scan of these operands, without factors, whose results are in the order of one_element. */
static sn_node *as_scan(const sn_recurrence *r, int n_in, sn_node *const *x) {
    sn_module *m = x[0]->m;
    sn_node *in[SN_REC_MOST], *arg[SN_REC_MOST], *by_operand[SN_REC_MOST] = {NULL},
                                                 *out[SN_MAX_RESULTS];
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

/* The sum over what comes before each element. */
static sn_node *sum_before(const sn_recurrence *r, sn_node *d) {
    sn_node *sum = r->reverse ? sn_gr_reverse(d, 0) : d;
    sum = SN_NODE(d->m, cumsum, SN_ATTRS(SN_INT(axis, 0)), sum);
    return OP2(sub, r->reverse ? sn_gr_reverse(sum, 0) : sum, d);
}

/* The gradient of decays of these operands and the scan's results. */
static sn_node *decay_grad(const sn_recurrence *r, sn_node *const *x, sn_node *scan) {
    const int at_a = sn_recurrence_factor(r, SN_REC_FACTOR_A),
              at_db = sn_recurrence_factor(r, SN_REC_FACTOR_DB);
    sn_node *z[SN_REC_TURNED], *g = x[SN_REC_G], *here = NULL;
    for (int i = 0; i < r->turned; i++)
        z[i] = sn_b_result(scan, of_scan(sn_recurrence_turned_result(r, i)));
    sn_node *read = OP2(mul, x[SN_REC_Q], z[0]),
            *all =
                OP2(sub, read, OP2(mul, x[SN_REC_K], x[sn_recurrence_factor(r, SN_REC_FACTOR_DK)]));
    if (at_db >= 0) all = OP2(sub, all, OP2(mul, x[SN_REC_B], x[at_db]));
    if (at_a >= 0) {
        here = OP2(mul, x[at_a], z[1]);
        all = OP2(add, all, here);
    }
    if (r->reads == SN_READS_BEFORE) here = here ? OP2(add, here, read) : read;
    sn_node *sum = sum_before(r, of_decays(g, all));
    return sn_b_unary(SN_OP_neg, here ? OP2(add, sum, of_decays(g, here)) : sum);
}

/* Differentiates the scan of stand-ins, so that nothing flows further than to the operands. */
static void through_scan(grad *c, const sn_recurrence *r) {
    sn_node *n = c->n, *in[2 * SN_REC_MOST], *cut[2 * SN_REC_MOST], *d[SN_REC_MOST];
    sn_node *y[SN_MAX_RESULTS], *g[SN_MAX_RESULTS];
    int n_y = 0, n_cut = n->n_in;
    for (int i = 0; i < n->n_in; i++) {
        in[i] = n->in[i];
        cut[i] = sn_gr_stand_in(n->m, in[i]->rank, in[i]->shape, (sn_dtype)in[i]->dtype);
    }
    if (n->m->error.code) return;
    sn_node *scan = as_scan(r, sn_recurrence_turned(r, r->turned), cut);
    for (int i = 0; i < n->n_result; i++) {
        sn_node *x = sn_gr_cotangent(c, i);
        if (!x || n->m->error.code) continue;
        y[n_y] = r->decay_grad && i == n->n_result - 1 ? decay_grad(r, cut, scan)
                                                       : sn_b_result(scan, of_scan(i));
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
    if (x->r.turned || x->r.reads == SN_READS_LATE || x->r.second != x->r.delta ||
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
    x->w = x->r.same ? OP2(add, x->v, x->u) : x->v;
    if (!x->dy) x->dy = sn_gr_fill(x->v, 0);
    if (!x->dend) x->dend = sn_gr_fill(x->start, 0);
    return true;
}

bool grad_recurrence(grad *c) {
    back x = {.c = NULL};
    if (!read_node(&x, c)) {
        through_scan(c, &x.r);
        return true;
    }
    carry_back(&x);
    carry_again(&x);
    if (sn_gr_needs(c, SN_REC_G)) give_decay(&x);
    sn_gr_give(c, SN_REC_Q, x.dq);
    sn_gr_give(c, SN_REC_K, x.dk);
    sn_gr_give(c, SN_REC_V, x.dv);
    sn_gr_give(c, SN_REC_START, x.dstart);
    if (x.da) sn_gr_give(c, SN_REC_A, x.da);
    if (x.db) sn_gr_give(c, SN_REC_B, x.db);
    return true;
}
