/* split.c: few queries over many keys (decoding): which thread does what. Where there are
 * too few heads of keys for all threads, the keys of each are done in parts, whose sums a second
 * kernel adds up in their order [Dao et al., Flash-Decoding for long-context inference, 2023]. How
 * many parts there are depends on sizes only, and so does every bit of the result. */
#include "codegen/attention/impl.h"

#include <math.h>

/* K/V heads of all, tiles of keys, parts of them. */
typedef struct split {
    em_val heads, rows, tiles, parts;
} split;

static split count_parts(em *e, const att_plan *p) {
    const sn_attention *a = p->a;
    em_val one = em_i64(e, 1), group = em_i64(e, a->group);
    split s = {.heads = em_mul(e, att_size(e, a->batch), em_i64(e, a->heads / a->group)),
               .rows = em_mul(e, att_size(e, a->tq), group),
               .tiles = em_ceil_div(e, att_size(e, a->tk), ATT_KEYS),
               .parts = one};
    if (p->most_parts == 1) return s;
    em_val even =
        em_and(e, em_div(e, em_i64(e, ATT_UNITS), em_imax(e, s.heads, one)), em_i64(e, -2));
    em_val most = em_div(e, s.tiles, em_i64(e, ATT_PART_TILES));
    s.parts = em_imax(e, em_imin(e, even, most), one);
    return s;
}

static em_val share_of(em *e, em_val all, em_val i, em_val n) {
    return em_div(e, em_mul(e, all, i), n);
}

static em_val parts_at(em *e, const att_plan *p, em_val unit) {
    em_val at = em_mul(e, unit, em_i64(e, att_part_size(p)));
    return em_gep(e, em_buf(e, p->a->parts_buf), p->t, at);
}

/* Every head's parts of keys; or whole K/V heads, unless these do not come out even among the
 * threads: then the rows of queries that share a head are dealt out. A row's result does not depend
 * on the others. */
void att_emit_few_heads(em *e, const att_plan *p, em_val few) {
    em_val lo, hi, n = e->nthreads, one = em_i64(e, 1), zero = em_i64(e, 0);
    em_val tk = att_size(e, p->a->tk);
    split s = count_parts(e, p);
    em_val even = em_cmp(e, EM_EQ, em_rem(e, s.heads, n), zero);
    even = em_or(e, even, em_cmp(e, EM_GE, s.heads, em_mul(e, n, em_i64(e, 4))));
    em_val whole = em_cmp(e, EM_EQ, s.parts, one);
    even = em_or(e, even, em_not(e, whole));
    em_val by_rows = em_imax(e, one, em_select(e, even, one, em_imin(e, n, s.rows)));
    em_val units = em_mul(e, s.parts, by_rows); /* one of them is 1 */
    em_share(e, em_mul(e, s.heads, units), &lo, &hi);
    em_loop u = em_for(e, lo, hi, one);
    em_val i = em_rem(e, u.i, units), next = em_add(e, i, one);
    em_val part = em_select(e, whole, zero, i), part_end = em_select(e, whole, one, next);
    em_val row = em_select(e, whole, i, zero), row_end = em_select(e, whole, next, one);
    em_val tile = em_i64(e, ATT_KEYS), state = att_scratch(e, p->few_at);
    if (p->most_parts > 1) state = em_select(e, whole, state, parts_at(e, p, u.i));
    em_val args[] = {e->buf,
                     e->dim,
                     e->scratch,
                     em_div(e, u.i, units),
                     share_of(e, s.rows, row, by_rows),
                     share_of(e, s.rows, row_end, by_rows),
                     em_mul(e, share_of(e, s.tiles, part, s.parts), tile),
                     em_imin(e, em_mul(e, share_of(e, s.tiles, part_end, s.parts), tile), tk),
                     state,
                     whole};
    em_call(e, few, args, 10);
    em_end(e, &u);
}

/* Adds up a row's parts in scratch, as the tiles of one part were. unit: the first of its head. */
static void add_parts(em *e, const att_plan *p, em_val unit, em_val parts, em_val r) {
    em_val zero = em_i64(e, 0), one = em_i64(e, 1), state = att_scratch(e, p->few_at);
    em_loop l = em_for(e, zero, parts, one);
    em_val top = em_carry(e, &l, em_f(e, -INFINITY));
    em_val at = att_record(e, p, parts_at(e, p, em_add(e, unit, l.i)), r, ATT_M);
    em_next(e, &l, top, em_max(e, em_load(e, p->t, at, 1), top));
    em_end(e, &l);
    em_val m = em_final(e, &l, top), none = em_cmp(e, EM_EQ, m, em_f(e, -INFINITY));
    em_store(e, p->t, att_record(e, p, state, zero, ATT_M), m);
    m = em_splat(e, em_select(e, none, em_f(e, 0), m), p->lanes);
    int n = att_padded(p, p->a->dv) + p->lanes; /* sums of rows and of weights alike */
    for (int i = 0; i < n; i += p->lanes)
        em_store(e, p->t, em_gep(e, state, p->t, em_i64(e, i)), em_vf(e, 0));
    l = em_for(e, zero, parts, one);
    em_val from = parts_at(e, p, em_add(e, unit, l.i));
    at = att_record(e, p, from, r, ATT_M);
    em_val factor = att_exp(e, em_sub(e, em_splat(e, em_load(e, p->t, at, 1), p->lanes), m));
    from = att_record(e, p, from, r, ATT_O);
    for (int i = 0; i < n; i += p->lanes) {
        em_val to = em_gep(e, state, p->t, em_i64(e, i));
        em_val x = em_load(e, p->t, em_gep(e, from, p->t, em_i64(e, i)), p->lanes);
        em_store(e, p->t, to, em_fma(e, x, factor, em_load(e, p->t, to, p->lanes)));
    }
    em_end(e, &l);
}

void att_emit_finish(em *e, const att_plan *p) {
    const sn_attention *a = p->a;
    char name[256];
    snprintf(name, sizeof name, "%s_finish", p->name);
    em_kernel(e, name);
    em_val lo, hi, one = em_i64(e, 1), zero = em_i64(e, 0), tq = att_size(e, a->tq);
    em_val kv_heads = em_i64(e, a->heads / a->group), group = em_i64(e, a->group);
    em_branch is_few = em_if(e, em_cmp(e, EM_LE, tq, em_i64(e, ATT_FEW)));
    split s = count_parts(e, p);
    em_branch some = em_if(e, em_cmp(e, EM_GT, s.parts, one));
    em_share(e, em_mul(e, s.heads, s.rows), &lo, &hi);
    em_loop l = em_for(e, lo, hi, one);
    em_val of_all = em_div(e, l.i, s.rows), r = em_rem(e, l.i, s.rows);
    em_val batch = em_div(e, of_all, kv_heads), kv_head = em_rem(e, of_all, kv_heads);
    em_val head = em_add(e, em_mul(e, kv_head, group), em_div(e, r, tq));
    add_parts(e, p, em_mul(e, of_all, s.parts), s.parts, r);
    att_emit_result(e, p, att_scratch(e, p->few_at), zero, batch, head, em_rem(e, r, tq));
    em_end(e, &l);
    em_endif(e, &some);
    em_endif(e, &is_few);
    em_end_kernel(e);
}
