/* mixed_grad_tile.c: functions of a tile for the gradient of attention whose heads mix. */
#include "codegen/attention/mixed.h"

#include <math.h>

em_val att_emit_mixed_weights(em *e, const att_plan *p, bool masked) {
    att_mixed_weights_args q = att_mixed_weights_begin(e, p, masked ? "weights_mask" : "weights");
    att_use_context(e, q.buf, q.dim, q.scratch);
    em_val last = em_sub(e, em_size_value(e, p->a->tk), 1);
    em_val m = att_load(e, p, q.m), log2_l = att_load(e, p, q.log2_l);
    att_vector_args of = {
        .lo = em_i64(e, 0), .hi = q.keys, .k0 = q.k0, .batch = q.batch, .head = q.head};
    att_regions regions = {.relative = NULL};
    if (masked) att_softmax_regions(e, p, &of, masked, q.q0, &regions);
    em_loop l = em_for(e, 0, q.keys, 1);
    em_val at = em_gep(e, q.s, p->t, em_mul(e, l.i, p->qb));
    em_val k = em_imin(e, em_add(e, q.k0, l.i), last);
    em_val x = att_regions_apply(&regions, e, p, att_load(e, p, at), k);
    em_val w = att_exp2_minus(e, em_sub(e, x, m), log2_l, true);
    em_val hidden = em_cmp(e, EM_EQ, x, em_vf(e, -INFINITY));
    att_store(e, p, em_select(e, hidden, em_vf(e, 0), w), at);
    em_end(e, &l);
    return att_end(e);
}

em_val att_emit_mixed_delta(em *e, const att_plan *p) {
    att_mixed_delta_args q = att_mixed_delta_begin(e, p, "delta");
    em_val sum = att_load(e, p, q.delta);
    em_loop l = em_for(e, 0, q.keys, 1);
    em_carries(e, &l, &sum, 1);
    em_val at = em_mul(e, l.i, p->qb);
    em_val x = att_load(e, p, em_gep(e, q.p, p->t, at)),
           y = att_load(e, p, em_gep(e, q.dp, p->t, at));
    tile_add(e, &sum, 1, x, &y);
    em_end(e, &l);
    att_store(e, p, sum, q.delta);
    return att_end(e);
}

em_val att_emit_mixed_scores(em *e, const att_plan *p) {
    att_mixed_delta_args q = att_mixed_delta_begin(e, p, "scores");
    em_val delta = att_load(e, p, q.delta), zero = em_vf(e, 0);
    em_loop l = em_for(e, 0, q.keys, 1);
    em_val at = em_mul(e, l.i, p->qb), to = em_gep(e, q.dp, p->t, at);
    em_val w = att_load(e, p, em_gep(e, q.p, p->t, at));
    em_val x = em_mul(e, w, em_sub(e, att_load(e, p, to), delta));
    att_store(e, p, em_select(e, em_cmp(e, EM_EQ, w, zero), zero, x), to);
    em_end(e, &l);
    return att_end(e);
}

enum {
    PAIR_X = 4, /* heads at a time */
    PAIR_Y = 3,
    PAIR_KEYS = 16 /* keys of all heads that fit into L1 */
};

/* Pairs of nx heads of x from i on, and ny of y from j on, over keys k0 .. k1 - 1. */
typedef struct head_pairs {
    em_val i, j, k0, k1;
    int nx, ny, nv;
} head_pairs;

static em_val row_of_pair(em *e, const att_plan *p, em_val tile, em_val head, int n) {
    return em_gep(e, tile, p->t, em_mul(e, em_add(e, head, n), att_mixed_head(p)));
}

static void emit_pair_group(em *e, const att_plan *p, const att_mixed_pairs_args *q,
                            const head_pairs *g) {
    int n = g->nx * g->ny;
    em_val x_at[PAIR_X], y_at[PAIR_Y], acc[PAIR_X * PAIR_Y];
    for (int r = 0; r < g->nx; r++) x_at[r] = row_of_pair(e, p, q->x, g->i, r);
    for (int c = 0; c < g->ny; c++) y_at[c] = row_of_pair(e, p, q->y, g->j, c);
    em_loop k = em_for(e, g->k0, g->k1, 1);
    for (int m = 0; m < n; m++) acc[m] = em_vf(e, 0);
    em_carries(e, &k, acc, n);
    for (int v = 0; v < g->nv; v++) {
        em_val y[PAIR_Y], at = em_add(e, em_mul(e, k.i, p->qb), (int64_t)v * p->lanes);
        for (int c = 0; c < g->ny; c++) y[c] = att_load(e, p, em_gep(e, y_at[c], p->t, at));
        for (int r = 0; r < g->nx; r++) {
            em_val x = att_load(e, p, em_gep(e, x_at[r], p->t, at));
            tile_add(e, acc + r * g->ny, g->ny, x, y);
        }
    }
    em_end(e, &k);
    for (int m = 0; m < n; m++) {
        em_val row = em_mul(e, em_add(e, g->i, m / g->ny), p->a->heads);
        em_val pair = em_add(e, row, em_add(e, g->j, m % g->ny));
        em_val to = em_gep(e, q->sums, p->t, em_mul(e, pair, p->lanes));
        att_store(e, p, em_add(e, att_load(e, p, to), acc[m]), to);
    }
}

/* All heads of y with nx heads of x: groups of PAIR_Y, and one of what is left. */
static void emit_pair_rows(em *e, const att_plan *p, const att_mixed_pairs_args *q, head_pairs g) {
    int heads = p->a->heads, whole = heads / PAIR_Y * PAIR_Y;
    em_loop j = em_for(e, 0, whole, PAIR_Y);
    g.j = j.i, g.ny = PAIR_Y;
    emit_pair_group(e, p, q, &g);
    em_end(e, &j);
    g.j = em_i64(e, whole), g.ny = heads - whole;
    if (g.ny) emit_pair_group(e, p, q, &g);
}

em_val att_emit_mixed_pairs(em *e, const att_plan *p, int nv) {
    char suffix[32];
    snprintf(suffix, sizeof suffix, "pairs%d", nv);
    att_mixed_pairs_args q = att_mixed_pairs_begin(e, p, suffix);
    int heads = p->a->heads, whole = heads / PAIR_X * PAIR_X;
    em_loop k = em_for(e, 0, q.keys, PAIR_KEYS);
    head_pairs g = {.nv = nv, .k0 = k.i};
    g.k1 = em_imin(e, em_add(e, k.i, PAIR_KEYS), q.keys);
    em_loop i = em_for(e, 0, whole, PAIR_X);
    g.i = i.i, g.nx = PAIR_X;
    emit_pair_rows(e, p, &q, g);
    em_end(e, &i);
    g.i = em_i64(e, whole), g.nx = heads - whole;
    if (g.nx) emit_pair_rows(e, p, &q, g);
    em_end(e, &k);
    return att_end(e);
}
