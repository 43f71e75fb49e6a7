/* softmax.c: the online softmax of a tile [Milakov and Gimelshein, Online normalizer calculation for
 * softmax, 2018]: score and mask regions, running maximum m_i and sum l_i, weights p. See forward.c
 * for the algorithm. */
#include "codegen/attention/impl.h"
#include "codegen/emit/vmath.h"

#include <math.h>

/* l_i and acc are rescaled only where the maximum grows by more than this. The weights stay below
 * e^5.5, which loses no precision in floating point, and most tiles after the first rescale
 * nothing. */
static const double max_growth = 5.5;

static em_val score_at(em *e, const att_plan *p, const att_softmax *c, em_val k) {
    return em_gep(e, c->s, p->t, em_mul(e, k, p->qb));
}

/* Handles four keys at a time: qk repeats the last key beyond the end, which changes no maximum. */
em_val att_softmax_scores(em *e, const att_plan *p, const att_softmax *c, att_regions *regions) {
    em_loop l = em_for(e, c->lo, c->hi, 4);
    em_val max = em_vf(e, -INFINITY), x[4];
    em_carries(e, &l, &max, 1);
    em_val last = em_sub(e, c->tk, 1);
    for (int u = 0; u < 4; u++) {
        em_val k = em_add(e, l.i, u), at = score_at(e, p, c, k);
        em_val k_abs = em_imin(e, em_add(e, c->k0, k), last);
        regions->bias_tiles.key = k;
        x[u] = att_regions_apply(regions, e, p, att_load(e, p, at), k_abs);
        att_store(e, p, x[u], at);
    }
    em_val of_four = em_max(e, em_max(e, x[0], x[1]), em_max(e, x[2], x[3]));
    max = em_max(e, of_four, max);
    em_end(e, &l);
    return max;
}

/* acc *= alpha, unless it is still 0 everywhere. */
static void rescale(em *e, const att_plan *p, const att_softmax *c, em_val m_i, em_val alpha) {
    em_branch begun = em_if(e, att_any_lane(e, em_cmp(e, EM_GT, m_i, em_vf(e, -INFINITY))));
    em_loop l = em_for(e, 0, p->a->dv, 1);
    em_val acc = em_gep(e, c->acc, p->t, em_mul(e, l.i, p->qb));
    att_store(e, p, em_mul(e, att_load(e, p, acc), alpha), acc);
    em_end(e, &l);
    em_endif(e, &begun);
}

/* -- update m_i and l_i --
 *   m_new = max(m_i, max of s);  alpha = e^(m_i - m_new);  l_i *= alpha;  acc *= alpha
 * in the lanes where the maximum grows by more than max_growth. Returns m_i, 0 where it is -inf. */
em_val att_softmax_update(em *e, const att_plan *p, const att_softmax *c, em_val s_max) {
    em_var m = em_let(e, att_load(e, p, c->m_i));
    em_val m_i = em_get(e, m);
    em_val grows = em_cmp(e, EM_GT, em_sub(e, s_max, m_i), em_vf(e, max_growth));
    em_branch br = em_if(e, att_any_lane(e, grows));
    em_val m_new = em_select(e, grows, s_max, m_i);
    em_val alpha = em_select(e, grows, att_exp(e, em_sub(e, m_i, m_new)), em_vf(e, 1));
    em_set(e, m, m_new);
    att_store(e, p, m_new, c->m_i);
    att_store(e, p, em_mul(e, att_load(e, p, c->l_i), alpha), c->l_i);
    if (c->acc) rescale(e, p, c, m_i, alpha);
    em_endif(e, &br);
    em_val v = em_get(e, m);
    return em_select(e, em_cmp(e, EM_EQ, v, em_vf(e, -INFINITY)), em_vf(e, 0), v);
}

/* w[0 .. n - 1] of the keys from k on in place of their scores, as factors. Words of two keys take the
 * place of scores that are read already. */
static void store_weights(em *e, const att_plan *p, const att_softmax *c, em_val k, int n,
                          const em_val *w) {
    em_val row = em_lshr(e, k, p->word - 1);
    for (int u = 0; u < n; u += p->word)
        att_store(e, p, att_join_factors(e, p, w + u),
                  score_at(e, p, c, em_add(e, row, u / p->word)));
}

void att_softmax_weights(em *e, const att_plan *p, const att_softmax *c, em_val m_i) {
    em_val count = em_sub(e, c->hi, c->lo), whole = em_and(e, count, -4);
    em_val middle = em_add(e, c->lo, whole), sum = em_vf(e, 0);
    em_val begin[] = {c->lo, middle}, end[] = {middle, c->hi};
    for (int part = 0; part < 2; part++) { /* four keys at a time, then the rest */
        int unroll = !part || p->a->by_query ? 4 : p->word;
        em_loop l = em_for(e, begin[part], end[part], unroll);
        em_val w[4] = {NULL}, kept[4], zero = em_vf(e, 0);
        em_carries(e, &l, &sum, 1);
        for (int u = 0; u < unroll; u++) {
            em_val k = em_add(e, l.i, u), at = score_at(e, p, c, k);
            w[u] = att_exp(e, em_sub(e, att_load(e, p, at), m_i));
            if (part && u) w[u] = em_select(e, em_cmp(e, EM_LT, k, c->hi), w[u], zero);
            kept[u] = c->keep ? em_select(e, att_keep_bit(e, c->keep, k), w[u], zero) : w[u];
        }
        store_weights(e, p, c, l.i, unroll, kept);
        em_val all = unroll == 1 ? w[0] : em_add(e, w[0], w[1]);
        if (unroll == 4) all = em_add(e, all, em_add(e, w[2], w[3]));
        sum = em_add(e, sum, all);
        em_end(e, &l);
    }
    att_store(e, p, em_add(e, att_load(e, p, c->l_i), sum), c->l_i);
}

/* Without softmax: qk becomes the weights, in place; l_i += their sum; then dropout. regions NULL:
 * qk are the weights. Four keys at a time; those beyond the last one are not added. */
static void emit_plain_weights(em *e, const att_plan *p, const att_softmax *c,
                               att_regions *regions) {
    if (!regions && !c->keep && p->a->weights == SN_WEIGHTS_PLAIN && p->word == 1) return;
    em_loop l = em_for(e, c->lo, c->hi, 4);
    em_val sum = em_vf(e, 0), w[4], kept[4];
    em_carries(e, &l, &sum, 1);
    em_val last = em_sub(e, c->tk, 1);
    for (int u = 0; u < 4; u++) {
        em_val k = em_add(e, l.i, u), at = score_at(e, p, c, k), x = att_load(e, p, at);
        em_val k_abs = em_imin(e, em_add(e, c->k0, k), last);
        if (regions) {
            regions->bias_tiles.key = k;
            x = att_plain_weight(e, att_regions_apply(regions, e, p, x, k_abs));
        }
        w[u] = em_select(e, em_cmp(e, EM_LT, k, c->hi), x, em_vf(e, 0));
        kept[u] = c->keep ? em_select(e, att_keep_bit(e, c->keep, k), w[u], em_vf(e, 0)) : w[u];
    }
    store_weights(e, p, c, l.i, 4, kept);
    em_val all = em_add(e, em_add(e, w[0], w[1]), em_add(e, w[2], w[3]));
    sum = em_add(e, sum, all);
    em_end(e, &l);
    if (p->a->weights == SN_WEIGHTS_PLAIN) return;
    att_store(e, p, em_add(e, att_load(e, p, c->l_i), sum), c->l_i);
}

void att_softmax_regions(em *e, const att_plan *p, const att_vector_args *q, bool masked,
                         em_val first, att_regions *g) {
    em_val i = att_lane_queries(e, p, first, q->q0, q->v);
    *g = (att_regions){.relative = att_relative_index(e, p, first)};
    if (att_qk_is_score(p))
        att_regions_begin_mask(g, e, p, q->batch, q->head, i);
    else
        att_regions_begin(g, e, p, masked, q->batch, q->head, i);
    att_load_bias_tiles(g, e, p, (em_val[]){q->batch, q->head}, first, q->k0,
                        (em_val[]){q->lo, q->hi});
}

em_val att_emit_softmax(em *e, const att_plan *p, bool masked) {
    static const char *const name[2][2] = {{"softmax", "softmax_mask"},
                                           {"softmax_gathered", "softmax_gathered_mask"}};
    att_vector_args q = att_vector_begin(e, p, name[p->gathered][masked]);
    att_use_context(e, q.buf, q.dim, q.scratch);
    em_val at = em_mul(e, q.v, p->lanes);
    att_softmax c = {.s = em_gep(e, att_scratch(e, p->s_offset), p->t, at),
                     .acc = em_gep(e, att_block_state(e, p, p->acc_offset), p->t, at),
                     .qk_max = em_gep(e, att_scratch(e, p->qk_max_offset), p->t, at),
                     .m_i = em_gep(e, att_block_state(e, p, p->m_offset), p->t, at),
                     .l_i = em_gep(e, att_block_state(e, p, p->l_offset), p->t, at),
                     .lo = q.lo,
                     .hi = q.hi,
                     .k0 = q.k0,
                     .tk = em_size_value(e, p->a->tk)};
    if (att_drops(p)) {
        att_keep_call(e, p->keep,
                      (att_keep_args){ATT_PASS_CONTEXT(e), .v = q.v, .k0 = q.k0, .q0 = q.q0,
                                      .batch = q.batch, .head = q.head});
        c.keep = att_keep_vector(e, p, q.v);
    }
    bool has_regions = masked || !att_qk_is_score(p);
    att_regions regions = {.relative = NULL};
    if (has_regions) att_softmax_regions(e, p, &q, masked, em_add(e, q.q0, at), &regions);
    if (p->a->weights) {
        emit_plain_weights(e, p, &c, has_regions ? &regions : NULL);
    } else {
        em_val s_max =
            has_regions ? att_softmax_scores(e, p, &c, &regions) : att_load(e, p, c.qk_max);
        att_softmax_weights(e, p, &c, att_softmax_update(e, p, &c, s_max));
    }
    return att_end(e);
}
