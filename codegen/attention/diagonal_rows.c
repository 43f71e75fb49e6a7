/* diagonal_rows.c: the rows of diagonal.c filled, as far as tiles ask for them. */
#include "codegen/attention/impl.h"

/* Elements from .. to - 1, multiples of lanes, of all rows. */
static void lay_elements(em *e, const att_plan *p, const em_val of[2], em_val from, em_val to) {
    const att_diagonals *d = &p->diagonals;
    em_loop l = em_for(e, from, to, em_i64(e, p->lanes));
    for (int is_score = 0; is_score < 2; is_score++) {
        att_region r;
        if (!att_region_of_differences(&r, e, p, is_score, of, l.i)) continue;
        for (int i = 0; i < d->n; i++) {
            if (d->row[i].region != r.code.region) continue;
            em_val x = sn_region_node(&r.code, d->row[i].node);
            em_store(e, d->row[i].dtype, att_diagonal_element(e, p, &d->row[i], l.i),
                     em_splat(e, x, p->lanes / em_lanes_of(x)));
        }
    }
    em_end(e, &l);
}

em_val att_emit_diagonals(em *e, const att_plan *p) {
    if (!p->diagonals.n) return NULL;
    const em_type params[] = {e->ptr, e->ptr, e->ptr, e->i64, e->i64, e->i64, e->i64};
    em_val fn = att_function(e, p, "diagonals", params, 7);
    em saved = *e;
    e->buf = em_param(e, 0), e->dim = em_param(e, 1), e->scratch = em_param(e, 2);
    em_val of[] = {em_param(e, 3), em_param(e, 4)}, lo = em_param(e, 5), hi = em_param(e, 6);
    em_val from = em_load(e, SN_I64, att_diagonal_state(e, p, 1), 1),
           to = em_load(e, SN_I64, att_diagonal_state(e, p, 2), 1);
    em_val none = em_cmp(e, EM_EQ, from, to);
    from = em_select(e, none, lo, from), to = em_select(e, none, lo, to);
    em_val begin = em_imin(e, lo, from), end = em_imax(e, hi, to), side = em_i64(e, 2);
    em_loop l = em_for(e, em_i64(e, 0), side, em_i64(e, 1)); /* what is missing at either end */
    em_val above = em_cmp(e, EM_EQ, l.i, em_i64(e, 1));
    lay_elements(e, p, of, em_select(e, above, to, begin), em_select(e, above, end, from));
    em_end(e, &l);
    em_store(e, SN_I64, att_diagonal_state(e, p, 1), begin);
    em_store(e, SN_I64, att_diagonal_state(e, p, 2), end);
    em_ret(e, NULL);
    e->buf = saved.buf, e->dim = saved.dim, e->scratch = saved.scratch;
    return fn;
}

void att_diagonals_reach(em *e, em_val fn, const att_span *b, em_val k0, em_val n) {
    const att_plan *p = b->p;
    if (!fn) return;
    em_val lanes = em_i64(e, p->lanes), down = em_i64(e, -p->lanes);
    em_val key = em_sub(e, em_add(e, k0, n), em_i64(e, 1));
    em_val lo = em_and(e, em_sub(e, att_diagonal_of(e, p, b->q0), key), down);
    em_val end = em_add(e, b->q0, em_mul(e, b->nv, lanes)); /* the query after the last lane */
    em_val hi = em_add(e, em_sub(e, att_diagonal_of(e, p, end), k0), em_i64(e, p->lanes - 1));
    hi = em_and(e, hi, down);
    em_val below = em_cmp(e, EM_LT, lo, em_load(e, SN_I64, att_diagonal_state(e, p, 1), 1));
    em_val above = em_cmp(e, EM_GT, hi, em_load(e, SN_I64, att_diagonal_state(e, p, 2), 1));
    em_branch more = em_if(e, em_or(e, below, above));
    em_val args[] = {e->buf, e->dim, e->scratch, b->batch, b->head, lo, hi};
    em_call(e, fn, args, 7);
    em_endif(e, &more);
}
