/* addend.c: scores that only add something to the product (a dense bias, learned numbers of
 * distances, ALiBi): it is laid where the scores will be before the product is added there, so that
 * no pass over the scores is needed but the softmax's own. */
#include "codegen/attention/impl.h"

typedef struct lines {
    em_val s, k0, lo, hi; /* the vector's part of the scores; keys of the tile */
} lines;

/* Four keys at a time, whole groups of those that the product computes; beyond the last key they
 * repeat it. */
static void emit_terms(em *e, const att_plan *p, const lines *c, att_regions *g) {
    em_val last = em_sub(e, em_sub(e, att_size(e, p->a->tk), em_i64(e, 1)), c->k0);
    em_val end = em_and(e, em_add(e, c->hi, em_i64(e, ATT_GROUP - 1)), em_i64(e, -ATT_GROUP));
    em_loop l = em_for(e, c->lo, end, em_i64(e, 4));
    for (int u = 0; u < 4; u++) {
        em_val k = em_add(e, l.i, em_i64(e, u));
        g->sheets.key = em_imin(e, k, last);
        em_val x = att_regions_addend(g, e, p, em_add(e, c->k0, g->sheets.key));
        att_store(e, p, x, em_gep(e, c->s, p->t, em_mul(e, k, em_i64(e, p->qb))));
    }
    em_end(e, &l);
}

em_val att_emit_addend(em *e, const att_plan *p) {
    if (!p->addend.n) return NULL;
    const em_type params[] = {e->ptr, e->ptr, e->ptr, e->i64, e->i64,
                              e->i64, e->i64, e->i64, e->i64, e->i64};
    em_val fn = att_function(e, p, "addend", params, 10);
    em saved = *e;
    e->buf = em_param(e, 0), e->dim = em_param(e, 1), e->scratch = em_param(e, 2);
    em_val at = em_mul(e, em_param(e, 3), em_i64(e, p->lanes));
    em_val q0 = em_add(e, em_param(e, 7), at), of[] = {em_param(e, 8), em_param(e, 9)};
    lines c = {.s = em_gep(e, att_scratch(e, p->s_at), p->t, at),
               .lo = em_param(e, 4),
               .hi = em_param(e, 5),
               .k0 = em_param(e, 6)};
    em_val range[] = {c.lo, c.hi};
    bool alone = p->addend.n == 1 && !p->addend.minus[0];
    if (!alone || !att_sheet_in_place(e, p, p->addend.term[0], of, q0, c.k0, range, c.s)) {
        em_val q = em_add(e, em_int_cast(e, q0, e->i32), em_iota(e, e->i32, p->lanes));
        em_val last = em_int_cast(e, em_sub(e, att_size(e, p->a->tq), em_i64(e, 1)), e->i32);
        att_regions g = {.diagonal = att_diagonal_of(e, p, q0)};
        att_regions_begin_addend(&g, e, p, of[0], of[1], em_imin(e, q, last));
        att_regions_sheets(&g, e, p, of, q0, c.k0, range);
        emit_terms(e, p, &c, &g);
    }
    em_ret(e, NULL);
    e->buf = saved.buf, e->dim = saved.dim, e->scratch = saved.scratch;
    return fn;
}
