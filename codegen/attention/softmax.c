/* softmax.c: from scores to weights: score and mask regions, running maximum and sum
 * [Milakov and Gimelshein, Online normalizer calculation for softmax, 2018]. */
#include "codegen/attention/impl.h"
#include "codegen/emit/vmath.h"

#include <math.h>

/* A maximum may lag behind by this much before sums are rescaled: weights stay below e^lag, which
 * loses nothing in floating point, and most tiles after the first rescale nothing. */
static const double lag = 5.5;

/* --- softmax of a column ---------------------------------------------------------------------- */

typedef struct column {
    em_val s, o, max_at, m_at, l_at; /* pointers to this vector's part */
    em_val lo, hi, k0, tk;
    em_val keep; /* what dropout keeps; NULL: everything */
} column;

static em_val score_at(em *e, const att_plan *p, const column *c, em_val k) {
    return em_gep(e, c->s, p->t, em_mul(e, k, em_i64(e, p->qb)));
}

/* Scores through the regions, in place; returns their maximum. Four keys at a time: beyond the last
 * key the scores repeat it (see `scores`), which changes no maximum. */
static em_val emit_regions(em *e, const att_plan *p, const column *c, att_regions *regions) {
    em_loop l = em_for(e, c->lo, c->hi, em_i64(e, 4));
    em_val top = em_carry(e, &l, em_vf(e, -INFINITY)), x[4];
    em_val last = em_sub(e, c->tk, em_i64(e, 1));
    for (int u = 0; u < 4; u++) {
        em_val k = em_add(e, l.i, em_i64(e, u)), at = score_at(e, p, c, k);
        em_val k_abs = em_imin(e, em_add(e, c->k0, k), last);
        regions->sheets.key = k;
        x[u] = att_regions_apply(regions, e, p, att_load(e, p, at), k_abs);
        att_store(e, p, x[u], at);
    }
    em_val m = em_max(e, em_max(e, x[0], x[1]), em_max(e, x[2], x[3]));
    em_next(e, &l, top, em_max(e, m, top));
    em_end(e, &l);
    return em_final(e, &l, top);
}

/* Brings m, l and O to the new maximum where it has grown by more than the lag. */
static em_val emit_new_maximum(em *e, const att_plan *p, const column *c, em_val top) {
    em_var m = em_let(e, att_load(e, p, c->m_at));
    em_val old = em_get(e, m), grown = em_cmp(e, EM_GT, em_sub(e, top, old), em_vf(e, lag));
    em_branch br = em_if(e, att_any_lane(e, grown));
    em_val now = em_select(e, grown, top, old);
    em_val factor = em_select(e, grown, att_exp(e, em_sub(e, old, now)), em_vf(e, 1));
    em_set(e, m, now);
    att_store(e, p, now, c->m_at);
    att_store(e, p, em_mul(e, att_load(e, p, c->l_at), factor), c->l_at);
    em_branch begun = em_if(e, att_any_lane(e, em_cmp(e, EM_GT, old, em_vf(e, -INFINITY))));
    em_loop l = em_for(e, em_i64(e, 0), em_i64(e, p->a->dv), em_i64(e, 1));
    em_val at = em_gep(e, c->o, p->t, em_mul(e, l.i, em_i64(e, p->qb)));
    att_store(e, p, em_mul(e, att_load(e, p, at), factor), at);
    em_end(e, &l);
    em_endif(e, &begun);
    em_endif(e, &br);
    em_val v = em_get(e, m);
    return em_select(e, em_cmp(e, EM_EQ, v, em_vf(e, -INFINITY)), em_vf(e, 0), v);
}

static void emit_weights(em *e, const att_plan *p, const column *c, em_val m) {
    em_val count = em_sub(e, c->hi, c->lo), whole = em_and(e, count, em_i64(e, -4));
    em_val middle = em_add(e, c->lo, whole), sum = em_vf(e, 0);
    em_val begin[] = {c->lo, middle}, end[] = {middle, c->hi};
    for (int part = 0; part < 2; part++) {
        int unroll = part ? 1 : 4;
        em_loop l = em_for(e, begin[part], end[part], em_i64(e, unroll));
        em_val acc = em_carry(e, &l, sum), w[4];
        for (int u = 0; u < unroll; u++) {
            em_val at = score_at(e, p, c, em_add(e, l.i, em_i64(e, u)));
            w[u] = att_exp(e, em_sub(e, att_load(e, p, at), m));
            em_val left = w[u];
            if (c->keep) {
                em_val bit = att_keep_bit(e, c->keep, em_add(e, l.i, em_i64(e, u)));
                left = em_select(e, bit, left, em_vf(e, 0));
            }
            att_store(e, p, left, at);
        }
        em_val four = part ? w[0] : em_add(e, em_add(e, w[0], w[1]), em_add(e, w[2], w[3]));
        em_next(e, &l, acc, em_add(e, acc, four));
        em_end(e, &l);
        sum = em_final(e, &l, acc);
    }
    att_store(e, p, em_add(e, att_load(e, p, c->l_at), sum), c->l_at);
}

em_val att_emit_softmax(em *e, const att_plan *p, bool masked) {
    const em_type params[] = {e->ptr, e->ptr, e->ptr, e->i64, e->i64,
                              e->i64, e->i64, e->i64, e->i64, e->i64};
    em_val fn = att_function(e, p, masked ? "softmax_mask" : "softmax", params, 10);
    em saved = *e;
    e->buf = em_param(e, 0), e->dim = em_param(e, 1), e->scratch = em_param(e, 2);
    em_val v = em_param(e, 3), q0 = em_param(e, 7), batch = em_param(e, 8), head = em_param(e, 9);
    em_val at = em_mul(e, v, em_i64(e, p->lanes));
    column c = {.s = em_gep(e, att_scratch(e, p->s_at), p->t, at),
                .o = em_gep(e, att_state(e, p, p->o_at), p->t, at),
                .max_at = em_gep(e, att_scratch(e, p->max_at), p->t, at),
                .m_at = em_gep(e, att_state(e, p, p->m_at), p->t, at),
                .l_at = em_gep(e, att_state(e, p, p->l_at), p->t, at),
                .lo = em_param(e, 4),
                .hi = em_param(e, 5),
                .k0 = em_param(e, 6),
                .tk = att_size(e, p->a->tk)};
    if (att_drops(p)) {
        em_val args[] = {e->buf, e->dim, e->scratch, v, c.k0, q0, batch, head};
        em_call(e, p->keep, args, 8);
        c.keep = att_keep_vector(e, p, v);
    }
    em_val top;
    if (masked || !att_product_scores(p)) {
        em_val q =
            em_add(e, em_int_cast(e, em_add(e, q0, at), e->i32), em_iota(e, e->i32, p->lanes));
        em_val last = em_int_cast(e, em_sub(e, att_size(e, p->a->tq), em_i64(e, 1)), e->i32);
        q = em_imin(e, q, last); /* lanes beyond the last query repeat it: tables stay in range */
        att_regions regions = {.diagonal = att_diagonal_of(e, p, em_add(e, q0, at))};
        if (att_product_scores(p))
            att_regions_begin_mask(&regions, e, p, batch, head, q);
        else
            att_regions_begin(&regions, e, p, masked, batch, head, q);
        att_regions_sheets(&regions, e, p, (em_val[]){batch, head}, em_add(e, q0, at), c.k0,
                           (em_val[]){c.lo, c.hi});
        top = emit_regions(e, p, &c, &regions);
    } else {
        top = att_load(e, p, c.max_at);
    }
    emit_weights(e, p, &c, emit_new_maximum(e, p, &c, top));
    em_ret(e, NULL);
    e->buf = saved.buf, e->dim = saved.dim, e->scratch = saved.scratch;
    return fn;
}
