/* pack_kv.c: prepares the keys and values of a head: packs them into scratch where rows lie far
 * apart or have another type, and scans V for NaN and infinities. */
#include "codegen/attention/impl.h"

enum { SUMS = 4 }; /* of the scan; one sum would wait for the latency of each addition */

/* After the fixed part and the relative rows: a flag for each tile, K, V. */
em_val att_nonfinite_flag(em *e, const att_plan *p, em_val tile) {
    return em_gep_bytes(e, att_relative_end(e, p, att_scratch(e, p->tail_offset)), tile);
}

em_val att_packed_row(em *e, const att_plan *p, em_val tk, bool is_v, em_val k) {
    const sn_attention *a = p->a;
    em_val flags = em_and(e, em_add(e, em_ceil_div(e, tk, ATT_TILE_KEYS), 63), -64);
    em_val base = att_nonfinite_flag(e, p, flags);
    em_val index = em_mul(e, k, is_v ? a->dv : a->d);
    if (is_v) index = em_add(e, index, em_mul(e, tk, a->d));
    return em_gep(e, base, p->t, index);
}

void att_kv_reset(em *e, const att_plan *p) {
    em_store(e, SN_I64, att_scratch(e, p->key_offset), em_i64(e, -1));
}

void att_kv_begin_head(em *e, const att_plan *p, em_val kv_head) {
    em_val prepared = att_scratch(e, p->key_offset);
    em_branch other = em_if(e, em_cmp(e, EM_NE, em_load(e, SN_I64, prepared, 1), kv_head));
    em_store(e, SN_I64, prepared, kv_head);
    em_store(e, SN_I64, att_scratch(e, p->key_offset + 8), em_i64(e, 0));
    em_endif(e, &other);
}

/* Row k of K or V: copies it, and adds 0 x to the scan's sums for each element x of V. */
static void emit_row(em *e, const att_plan *p, const att_pack_kv_args *q, em_val tk, bool is_v,
                     bool packs, em_val k, em_val *sum) {
    const sn_attention_operand *o = is_v ? &p->a->v : &p->a->k;
    int d = is_v ? p->a->dv : p->a->d, whole = d / p->lanes * p->lanes;
    em_val src = em_gep(e, att_base(e, o, q->batch, q->kv_head), o->dtype,
                        em_mul(e, k, em_size_value(e, o->row)));
    em_val dst = att_packed_row(e, p, tk, is_v, k), scale = NULL;
    const sn_attention_operand *factor = is_v ? &p->a->v_scale : &p->a->k_scale;
    if (p->a->row_scales) {
        em_val at = em_mul(e, k, em_size_value(e, factor->row));
        em_val base = att_base(e, factor, q->batch, q->kv_head);
        scale = em_load_splat(e, factor->dtype, em_gep(e, base, factor->dtype, at), p->lanes);
    }
    for (int c = 0; c < d; c += p->lanes) {
        em_val i = em_i64(e, c), rest = em_i64(e, d - c), at = em_gep(e, src, o->dtype, i);
        em_val x = att_load_row(e, p, o->dtype, at, p->lanes, c < whole ? NULL : rest);
        if (scale) x = em_mul(e, x, scale);
        if (is_v && p->scan_v)
            tile_add(e, &sum[c / p->lanes % SUMS], 1, x, (em_val[]){em_vf(e, 0)});
        if (!packs) continue;
        at = em_gep(e, dst, p->t, i);
        if (c < whole)
            em_store(e, p->t, at, x);
        else
            em_store_tail(e, p->t, at, x, rest);
    }
}

em_val att_emit_pack_kv(em *e, const att_plan *p, bool packs) {

    att_pack_kv_args q = att_pack_kv_begin(e, p, packs ? "pack_kv" : "scan_v");
    att_use_context(e, q.buf, q.dim, q.scratch);
    em_val tk = em_size_value(e, p->a->tk), until = att_scratch(e, p->key_offset + 8);
    em_loop tile = em_for(e, em_load(e, SN_I64, until, 1), q.end, ATT_TILE_KEYS);
    em_val end = em_imin(e, em_add(e, tile.i, ATT_TILE_KEYS), tk);
    em_loop row = em_for(e, tile.i, end, 1);
    em_val sum[SUMS];
    for (int i = 0; i < SUMS; i++) sum[i] = em_vf(e, 0);
    em_carries(e, &row, sum, SUMS);
    if (packs) emit_row(e, p, &q, tk, false, packs, row.i, sum);
    emit_row(e, p, &q, tk, true, packs, row.i, sum);
    em_end(e, &row);
    if (p->scan_v) { /* 0 x is NaN where x is not finite, and a sum with NaN is NaN */
        for (int i = 1; i < SUMS; i++) sum[0] = em_add(e, sum[0], sum[i]);
        em_val total = em_reduce(e, EM_SUM, sum[0]);
        em_val flag = em_int_cast(e, em_cmp(e, EM_NE, total, em_f(e, 0)), e->i8);
        em_val index = LLVMBuildUDiv(e->b, tile.i, em_i64(e, ATT_TILE_KEYS), "");
        em_store(e, SN_U8, att_nonfinite_flag(e, p, index), flag);
    }
    em_end(e, &tile);
    em_store(e, SN_I64, until, em_imax(e, em_load(e, SN_I64, until, 1), q.end));
    return att_end(e);
}
