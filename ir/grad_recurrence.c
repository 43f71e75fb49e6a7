/* grad_recurrence.c: the gradient of a linear recurrence is one node, too, in memory linear in its length.
 * The cotangent R of the carry goes the other way,
 *     R' = e^g R + a^T (b R) + q^T dy
 * which gives those of v and u; those of k and b read R transposed, dk = v R^T, db = u R^T, those of q and
 * a the carry, dq = dy S^T, da = du S^T. That of a log decay is the sum over the paths through the carry
 * that pass its element: of R * e^g S along a row. No difference of sums is computed: the paths that pass
 * are few where decays are strong. */
#include "ir/grad_impl.h"

#include <string.h>

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

/* The sums along the rows of S. */
static sn_node *sum_rows(sn_node *S) {
    int64_t axis = S->rank - 1;
    return sn_b_reshape(sn_b_reduce(SN_OP_reduce_sum, S, 1, &axis), axis, S->shape);
}

/* z = x S^T */
static sn_node *times_transposed(sn_node *x, sn_node *S) {
    return sum_rows(OP2(mul, spread(x, S->rank - 2, S), S));
}

static sn_node *decayed(sn_node *S, sn_node *g) {
    return OP2(mul, S, spread(OP1(exp, g), S->rank - 1, S));
}

/* ---- as scans: bodies ---- */

/* Results of an element by its operands x, the carry first. Returns how many. */
typedef int (*element)(const sn_recurrence *r, sn_node *const *x, sn_node **out);

static sn_node *next_carry(sn_node *const *x, sn_node *u) {
    sn_node *S = plus_product(decayed(x[SN_REC_START], x[SN_REC_G]), x[SN_REC_K], x[SN_REC_V]);
    return u ? plus_product(S, x[SN_REC_B], u) : S;
}

static int forward(const sn_recurrence *r, sn_node *const *x, sn_node **out) {
    sn_node *S = x[SN_REC_START], *u = r->second ? x[SN_REC_A] : NULL;
    if (r->delta) u = out[2] = times_carry(u, S);
    out[0] = next_carry(x, u);
    out[1] = times_carry(x[SN_REC_Q], r->reads == SN_READS_AFTER ? out[0] : S);
    return 2 + r->delta;
}

static sn_node *u_of(const sn_recurrence *r, sn_node *const *x) {
    return r->delta && !r->same ? x[sn_recurrence_dy(r) + 1] : NULL;
}

/* For a gradient: the carries before each element. */
static int carries(const sn_recurrence *r, sn_node *const *x, sn_node **out) {
    out[0] = next_carry(x, u_of(r, x));
    out[1] = x[SN_REC_START];
    return 2;
}

/* Of R, in the place of the first carry, and of the carry before the element in that of the last one. */
static int backward(const sn_recurrence *r, sn_node *const *x, sn_node **out) {
    const bool after = r->reads == SN_READS_AFTER;
    sn_node *R = x[0], *S = x[sn_recurrence_n_in(r) - 1], *dy = x[sn_recurrence_dy(r)];
    sn_node *q = x[SN_REC_Q], *u = u_of(r, x), *next[SN_MAX_REC_IN];
    int n = SN_REC_DK + 1;
    if (after) R = plus_product(R, q, dy);
    memcpy((void *)next, x, sizeof *next * (size_t)(sn_recurrence_n_in(r) - 1));
    next[SN_REC_START] = S;
    out[0] = decayed(R, x[SN_REC_G]);
    out[1] = times_carry(x[SN_REC_K], R);
    out[SN_REC_DQ] = times_transposed(dy, after ? next_carry(next, u) : S);
    out[SN_REC_DK] = times_transposed(x[SN_REC_V], R);
    if (r->delta) {
        sn_node *du = times_carry(x[SN_REC_B], R);
        out[n++] = times_transposed(du, S);
        if (u) out[n++] = times_transposed(u, R);
        out[0] = plus_product(out[0], x[SN_REC_A], du);
    }
    if (!after) out[0] = plus_product(out[0], q, dy);
    sn_node *dg = sum_rows(OP2(mul, R, decayed(S, x[SN_REC_G])));
    int64_t last = dg->rank - 1;
    bool one = x[SN_REC_G]->shape[last] != dg->shape[last];
    out[n++] = one ? sn_b_reduce(SN_OP_reduce_sum, dg, 1, &last) : dg;
    return n;
}

/* ---- as scans ---- */

static sn_node *scan_of(const sn_recurrence *r, bool reverse, int n_in, sn_node *const *in,
                        element body) {
    sn_module *m = in[0]->m;
    sn_node *arg[SN_MAX_REC_IN], *out[SN_MAX_RESULTS];
    for (int i = 0; i < n_in; i++)
        arg[i] =
            sn_arg(m, i, (sn_dtype)in[i]->dtype, in[i]->rank - (i > 0), in[i]->shape + (i > 0));
    int n_out = body(r, arg, out);
    return sn_node_new(m, SN_OP_scan, n_in, in,
                       SN_ATTRS(SN_INT(carries, 1), SN_INT(sequences, n_in - 1),
                                SN_REG(body, sn_region_new(m, n_in, arg, n_out, out)),
                                SN_INT(reverse, reverse)));
}

static bool are_states(const sn_node *x) {
    if (x->op != SN_OP_result || x->in[0]->op != SN_OP_recurrence) return false;
    const sn_recurrence r = sn_recurrence_of(x->in[0]);
    return !r.gradient && sn_attr_int(x, SN_A_index, 0) == sn_recurrence_states(&r);
}

/* The first of the states before blocks. */
static sn_node *first_state(sn_node *states, const sn_node *like) {
    sn_module *m = states->m;
    const int last = like->rank - 1;
    sn_dim shape[SN_MAX_RANK];
    if (are_states(states)) return states->in[0]->in[SN_REC_START];
    memcpy(shape, like->shape, sizeof *shape * (size_t)last);
    shape[last - 1] = sn_dim_mul(m, SN_REC_BLOCK, states->shape[last]);
    sn_node *x = sn_b_slice(states, last - 1, 0, sn_dim_const(m, SN_REC_BLOCK));
    x = sn_b_slice(sn_b_reshape(x, last, shape), last - 1, 0,
                   sn_dim_mul(m, like->shape[last - 1], like->shape[last]));
    return sn_b_reshape(x, like->rank, like->shape);
}

sn_node *sn_recurrence_by_scan(const sn_recurrence *r, sn_node *const *x, int result) {
    const int n = sn_recurrence_n_in(r), of_scan = result < 2 ? 1 - result : result;
    sn_node *in[SN_MAX_REC_IN];
    if (!r->gradient) return sn_b_result(scan_of(r, r->reverse, n, x, forward), of_scan);
    memcpy((void *)in, x, sizeof *in * (size_t)n);
    in[0] = first_state(x[0], x[n - 1]);
    in[n - 1] = sn_b_result(scan_of(r, r->reverse, n - 1, in, carries), 1);
    in[0] = x[n - 1];
    return sn_b_result(scan_of(r, !r->reverse, n, in, backward), of_scan);
}

/* Differentiates the scan of stand-ins, so that nothing flows further than to the operands. */
static void through_scan(grad *c, const sn_recurrence *r) {
    sn_node *n = c->n, *in[2 * SN_MAX_REC_IN], *cut[2 * SN_MAX_REC_IN], *d[SN_MAX_REC_IN];
    sn_node *y[SN_MAX_RESULTS], *g[SN_MAX_RESULTS];
    int n_y = 0, n_cut = n->n_in;
    for (int i = 0; i < n->n_in; i++) {
        in[i] = n->in[i];
        cut[i] = sn_gr_stand_in(n->m, in[i]->rank, in[i]->shape, (sn_dtype)in[i]->dtype);
    }
    for (int i = 0; i < sn_recurrence_n_out(r) - !r->gradient; i++) { /* without the states */
        sn_node *x = sn_gr_cotangent(c, i);
        if (!x || n->m->error.code) continue;
        y[n_y] = sn_recurrence_by_scan(r, cut, i);
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

bool grad_recurrence(grad *c) {
    sn_node *n = c->n, *in[SN_MAX_REC_IN];
    sn_recurrence r = sn_recurrence_of(n);
    sn_node *dstates = r.gradient ? NULL : sn_gr_cotangent(c, sn_recurrence_states(&r));
    if (dstates) sn_gr_give(c, SN_REC_START, first_state(dstates, n->in[SN_REC_START]));
    if (r.gradient || r.second != r.delta || (r.delta && sn_gr_cotangent(c, 2))) {
        through_scan(c, &r);
        return true;
    }
    sn_node *dy = sn_gr_cotangent(c, 0), *dend = sn_gr_cotangent(c, 1), *u = NULL;
    int at = n->n_in;
    memcpy((void *)in, n->in, sizeof *in * n->n_in);
    in[0] = sn_b_result(n, sn_recurrence_states(&r));
    if (r.delta) u = sn_b_result(n, 2);
    if (r.same) in[SN_REC_V] = OP2(add, in[SN_REC_V], u);
    in[at++] = dy ? dy : sn_gr_fill(in[SN_REC_V], 0);
    if (u && !r.same) in[at++] = u;
    in[at++] = dend ? dend : sn_gr_fill(n->in[SN_REC_START], 0);
    r.gradient = true;
    sn_node *all =
        sn_node_new(n->m, SN_OP_recurrence, at, in,
                    SN_ATTRS(SN_INT(reads, r.reads), SN_INT(delta, sn_attr_int(n, SN_A_delta, 0)),
                             SN_INT(gradient, 1), SN_INT(reverse, r.reverse)));
    sn_gr_give(c, SN_REC_V, sn_b_result(all, SN_REC_DV));
    sn_gr_give(c, SN_REC_START, sn_b_result(all, SN_REC_DSTART));
    sn_gr_give(c, SN_REC_Q, sn_b_result(all, SN_REC_DQ));
    sn_gr_give(c, SN_REC_K, sn_b_result(all, SN_REC_DK));
    if (r.delta) sn_gr_give(c, SN_REC_A, sn_b_result(all, SN_REC_DA));
    if (u && !r.same) sn_gr_give(c, SN_REC_B, sn_b_result(all, SN_REC_DA + 1));
    sn_gr_give(c, SN_REC_G, sn_b_result(all, sn_recurrence_n_out(&r) - 1));
    return true;
}
