/* keys.c: keys and values of a head made ready: copied to scratch where rows lie apart or are of
 * another type, and looked through for what is not finite. */
#include "codegen/attention/impl.h"

/* After the fixed part and the rows of differences: a flag for each tile, K, V. */
em_val att_flags_at(em *e, const att_plan *p, em_val tile) {
    return em_gep_bytes(e, att_diagonals_end(e, p, att_scratch(e, p->tail_at)), tile);
}

em_val att_tail_rows(em *e, const att_plan *p, em_val tk, bool is_v, em_val k) {
    const sn_attention *a = p->a;
    em_val flags =
        em_and(e, em_add(e, em_ceil_div(e, tk, ATT_KEYS), em_i64(e, 63)), em_i64(e, -64));
    em_val base = att_flags_at(e, p, flags);
    em_val index = em_mul(e, k, em_i64(e, is_v ? a->dv : a->d));
    if (is_v) index = em_add(e, index, em_mul(e, tk, em_i64(e, a->d)));
    return em_gep(e, base, p->t, index);
}

void att_keys_reset(em *e, const att_plan *p) {
    em_store(e, SN_I64, att_scratch(e, p->key_at), em_i64(e, -1));
}

void att_keys_enter(em *e, const att_plan *p, em_val kv_head) {
    em_val key = att_scratch(e, p->key_at);
    em_branch other = em_if(e, em_cmp(e, EM_NE, em_load(e, SN_I64, key, 1), kv_head));
    em_store(e, SN_I64, key, kv_head);
    em_store(e, SN_I64, att_scratch(e, p->key_at + 8), em_i64(e, 0));
    em_endif(e, &other);
}

/* Prepares what is not yet prepared of this head, up to `upto` keys: copies K and V (unless it only
 * looks) and notes where V is not finite. void copy or look(buf, dim, scratch, batch, kv_head,
 * upto) */
em_val att_emit_prepare(em *e, const att_plan *p, bool copy) {
    enum { LOOKS = 4 };
    const sn_attention *a = p->a;
    const em_type params[] = {e->ptr, e->ptr, e->ptr, e->i64, e->i64, e->i64};
    em_val fn = att_function(e, p, copy ? "copy" : "look", params, 6);
    em saved = *e;
    e->buf = em_param(e, 0), e->dim = em_param(e, 1), e->scratch = em_param(e, 2);
    em_val batch = em_param(e, 3), head = em_param(e, 4), tk = att_size(e, a->tk);
    em_val until = att_scratch(e, p->key_at + 8);
    em_loop tile = em_for(e, em_load(e, SN_I64, until, 1), em_param(e, 5), em_i64(e, ATT_KEYS));
    em_val end = em_imin(e, em_add(e, tile.i, em_i64(e, ATT_KEYS)), tk);
    em_loop row = em_for(e, tile.i, end, em_i64(e, 1));
    em_val bad[LOOKS], now[LOOKS]; /* sums apart, or each would wait for the one before */
    for (int i = 0; i < LOOKS; i++) now[i] = bad[i] = em_carry(e, &row, em_vf(e, 0));
    for (int is_v = 0; is_v < 2; is_v++) {
        const sn_attention_operand *o = is_v ? &a->v : &a->k;
        if (!copy && !is_v) continue;
        int d = is_v ? a->dv : a->d, whole = d / p->lanes * p->lanes;
        em_val from =
            em_gep(e, att_base(e, o, batch, head), o->dtype, em_mul(e, row.i, att_size(e, o->row)));
        em_val to = att_tail_rows(e, p, tk, is_v, row.i);
        for (int c = 0; c < d; c += p->lanes) {
            em_val i = em_i64(e, c), rest = em_i64(e, d - c), at = em_gep(e, from, o->dtype, i);
            em_val x = c < whole ? em_load(e, o->dtype, at, p->lanes)
                                 : em_load_tail(e, o->dtype, at, p->lanes, rest);
            em_val *sum = &now[c / p->lanes % LOOKS];
            if (is_v && p->check_v) *sum = em_fma(e, x, em_vf(e, 0), *sum);
            if (!copy) continue;
            at = em_gep(e, to, p->t, i);
            if (c < whole)
                em_store(e, p->t, at, x);
            else
                em_store_tail(e, p->t, at, x, rest);
        }
    }
    for (int i = 0; i < LOOKS; i++) em_next(e, &row, bad[i], now[i]);
    em_end(e, &row);
    if (p->check_v) { /* 0 x is NaN where x is not finite, and NaN stays */
        em_val all = em_final(e, &row, bad[0]);
        for (int i = 1; i < LOOKS; i++) all = em_add(e, all, em_final(e, &row, bad[i]));
        em_val sum = em_reduce(e, EM_SUM, all);
        em_val flag = em_int_cast(e, em_cmp(e, EM_NE, sum, em_f(e, 0)), e->i8);
        em_val at = att_flags_at(e, p, LLVMBuildUDiv(e->b, tile.i, em_i64(e, ATT_KEYS), ""));
        em_store(e, SN_U8, at, flag);
    }
    em_end(e, &tile);
    em_store(e, SN_I64, until, em_imax(e, em_load(e, SN_I64, until, 1), em_param(e, 5)));
    em_ret(e, NULL);
    e->buf = saved.buf, e->dim = saved.dim, e->scratch = saved.scratch;
    return fn;
}
