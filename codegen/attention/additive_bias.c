/* additive_bias.c: scores of the form qk + bias (dense biases, learned numbers per distance, ALiBi).
 * The bias is stored where the scores will be, and the qk microkernel adds to it: the scores need
 * no pass besides softmax's own. */
#include "codegen/attention/impl.h"

em_val att_lane_queries(em *e, const att_plan *p, em_val first, em_val q0, em_val v) {
    em_val lane = em_iota(e, e->i32, p->lanes);
    if (p->gathered) lane = em_load(e, SN_I32, att_chosen_index(e, p, v), p->lanes), first = q0;
    em_val last = em_int_cast(e, em_sub(e, em_size_value(e, p->a->tq), 1), e->i32);
    return em_imin(e, em_add(e, em_int_cast(e, first, e->i32), lane), last);
}

/* Stores the bias for whole subtiles, as qk computes them, four keys at a time; keys beyond the
 * last one repeat it. s: the vector's column of scores. */
static void emit_terms(em *e, const att_plan *p, const att_vector_args *q, em_val s,
                       att_regions *g) {
    em_val last = em_sub(e, em_sub(e, em_size_value(e, p->a->tk), 1), q->k0);
    em_val end = em_and(e, em_add(e, q->hi, ATT_SUBTILE_KEYS - 1), -ATT_SUBTILE_KEYS);
    em_loop l = em_for(e, q->lo, end, 4);
    for (int u = 0; u < 4; u++) {
        em_val k = em_add(e, l.i, u);
        g->bias_tiles.key = em_imin(e, k, last);
        em_val x = att_regions_bias(g, e, p, em_add(e, q->k0, g->bias_tiles.key));
        att_store(e, p, x, em_gep(e, s, p->t, em_mul(e, k, p->qb)));
    }
    em_end(e, &l);
}

em_val att_emit_additive_bias(em *e, const att_plan *p) {
    if (!p->bias.n) return NULL;
    att_vector_args q =
        att_vector_begin(e, p, p->gathered ? "additive_bias_gathered" : "additive_bias");
    att_use_context(e, q.buf, q.dim, q.scratch);
    em_val at = em_mul(e, q.v, p->lanes);
    em_val q0 = em_add(e, q.q0, at), of[] = {q.batch, q.head}, range[] = {q.lo, q.hi};
    em_val s = em_gep(e, att_scratch(e, p->s_offset), p->t, at);
    bool single = p->bias.n == 1 && !p->bias.negated[0] && !p->gathered;
    if (!single || !att_bias_in_place(e, p, p->bias.term[0], of, q0, q.k0, range, s)) {
        att_regions g = {.relative = att_relative_index(e, p, q0)};
        att_regions_begin_bias(&g, e, p, q.batch, q.head, att_lane_queries(e, p, q0, q.q0, q.v));
        att_load_bias_tiles(&g, e, p, of, q0, q.k0, range);
        emit_terms(e, p, &q, s, &g);
    }
    return att_end(e);
}
