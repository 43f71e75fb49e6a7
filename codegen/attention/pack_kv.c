/* pack_kv.c: prepares the keys and values of a head: packs them into scratch where rows lie far
 * apart or have another type, and scans V for NaN and infinities. */
#include "codegen/attention/impl.h"

enum { SUMS = 4 }; /* of the scan; one sum would wait for the latency of each addition */

/* After the fixed part and the relative rows: a flag for each tile, K, V. */
em_val att_nonfinite_flag(em *e, const att_plan *p, em_val tile) {
    return em_gep_bytes(e, att_relative_end(e, p, att_scratch(e, p->tail_offset)), tile);
}

int att_packed_width(const att_plan *p, int c) {
    int d = att_copy_of_v(c) ? p->a->dv : p->a->d;
    return att_copy_in_pairs(c) ? d : att_words(p, d);
}

em_val att_behind_copies(em *e, const att_plan *p, em_val tk, att_copy until, em_val index) {
    em_val pairs = em_lshr(e, em_add(e, tk, 1), 1);
    for (int c = 0; c < (int)until; c++) {
        em_val rows = att_copy_in_pairs(c) ? pairs : tk;
        if (p->copies >> c & 1) index = em_add(e, index, em_mul(e, rows, att_packed_width(p, c)));
    }
    return index;
}

em_val att_packed_row(em *e, const att_plan *p, em_val tk, att_copy c, em_val k) {
    em_val flags = em_and(e, em_add(e, em_ceil_div(e, tk, ATT_TILE_KEYS), 63), -64);
    em_val row = att_copy_in_pairs(c) ? em_lshr(e, k, 1) : k;
    em_val index = att_behind_copies(e, p, tk, c, em_mul(e, row, att_packed_width(p, c)));
    return em_gep(e, att_nonfinite_flag(e, p, flags), p->t, index);
}

em_val att_packed_end(em *e, const att_plan *p, em_val tk) {
    em_val zero = em_like(e, tk, 0), index = zero;
    if (p->pack) index = em_and(e, att_behind_copies(e, p, tk, ATT_COPIES, em_i64(e, 63)), -64);
    return em_gep(e, att_packed_row(e, p, tk, ATT_K_ROWS, zero), p->t, index);
}

void att_kv_reset(em *e, const att_plan *p) {
    em_store(e, SN_I64, att_scratch(e, p->key_offset), em_i64(e, -1));
}

void att_kv_begin_head(em *e, const att_plan *p, em_val kv_head) {
    em_val prepared = att_scratch(e, p->key_offset);
    em_branch other = em_if(e, em_cmp(e, EM_NE, em_load(e, SN_I64, prepared, 1), kv_head));
    em_store(e, SN_I64, prepared, kv_head);
    em_store(e, SN_I64, att_scratch(e, p->key_offset + 8), 0);
    em_endif(e, &other);
}

/* Rows of K or V from k on, as many as a word has factors. `end`: behind the last one; rows beyond are
 * 0. */
typedef struct rows {
    const sn_attention_operand *o;
    em_val at[2], scale[2], exists[2]; /* NULL: has none; it does */
    int d;
} rows;

static rows rows_at(em *e, const att_plan *p, const att_pack_kv_args *q, bool is_v, em_val k,
                    em_val end) {
    const sn_attention *a = p->a;
    const sn_attention_operand *factor = is_v ? &a->v_scale : &a->k_scale;
    rows r = {.o = is_v ? &a->v : &a->k, .d = is_v ? a->dv : a->d};
    em_val base = att_base(e, r.o, q->batch, q->kv_head), last = em_sub(e, end, 1);
    for (int i = 0; i < p->word; i++) {
        em_val row = i ? em_imin(e, em_add(e, k, i), last) : k;
        r.at[i] = em_gep(e, base, r.o->dtype, em_mul(e, row, em_size_value(e, r.o->row)));
        if (i) r.exists[i] = em_cmp(e, EM_LT, em_add(e, k, i), end);
        if (!a->row_scales) continue;
        em_val at = em_mul(e, row, em_size_value(e, factor->row));
        em_val scales = att_base(e, factor, q->batch, q->kv_head);
        r.scale[i] =
            em_load_splat(e, factor->dtype, em_gep(e, scales, factor->dtype, at), p->lanes);
    }
    return r;
}

/* Elements c and following of row i. */
static em_val load_piece(em *e, const att_plan *p, const rows *r, int i, int c) {
    em_val at = em_gep(e, r->at[i], r->o->dtype, c), rest = em_i64(e, r->d - c);
    em_val x = att_load_row(e, p, r->o->dtype, at, p->lanes, c + p->lanes <= r->d ? NULL : rest);
    if (r->scale[i]) x = em_mul(e, x, r->scale[i]);
    return r->exists[i] ? em_select(e, r->exists[i], x, em_vf(e, 0)) : x;
}

static void store_piece(em *e, const att_plan *p, em_val row, int at, em_val x, int n) {
    em_val to = em_gep(e, row, p->t, at);
    if (n >= em_lanes_of(x))
        em_store(e, p->t, to, x);
    else
        em_store_tail(e, p->t, to, x, em_i64(e, n));
}

/* Copies rows k and following of K or V, and adds 0 x to the scan's sums for each element x of V. */
static void emit_rows(em *e, const att_plan *p, const att_pack_kv_args *q, em_val tk, em_val end,
                      bool is_v, bool packs, em_val k, em_val *sum) {
    rows r = rows_at(e, p, q, is_v, k, end);
    att_copy of_rows = is_v ? ATT_V_ROWS : ATT_K_ROWS, pairs = is_v ? ATT_V_PAIRS : ATT_K_PAIRS;
    em_val row[2], pair = NULL;
    for (int i = 0; i < p->word && packs && p->copies >> of_rows & 1; i++) {
        em_val to = r.exists[i] ? em_imin(e, em_add(e, k, i), em_sub(e, end, 1)) : k;
        row[i] = att_packed_row(e, p, tk, of_rows, to);
    }
    if (packs && p->copies >> pairs & 1) pair = att_packed_row(e, p, tk, pairs, k);
    for (int c = 0; c < r.d; c += p->lanes) {
        em_val x[2];
        for (int i = 0; i < p->word; i++) {
            x[i] = load_piece(e, p, &r, i, c);
            em_val scanned = x[i], zero = em_vf(e, 0);
            if (!is_v || !p->scan_v) continue;
            /* what the rounding makes infinite is not finite, either */
            if (p->word > 1) scanned = em_mul(e, scanned, em_vf(e, 1 + 0x1p-8));
            tile_add(e, &sum[(c / p->lanes + i) % SUMS], 1, scanned, &zero);
        }
        if (pair) store_piece(e, p, pair, c, att_join_factors(e, p, x), r.d - c);
        /* the second row, which may be the first one again, before that */
        for (int i = p->word; i-- > 0 && packs && p->copies >> of_rows & 1;) {
            em_val w = p->word > 1 ? tile_bf16_words(e, x[i]) : x[i];
            store_piece(e, p, row[i], c / p->word, w, att_words(p, r.d - c));
        }
    }
}

em_val att_emit_pack_kv(em *e, const att_plan *p, bool packs) {
    att_pack_kv_args q = att_pack_kv_begin(e, p, packs ? "pack_kv" : "scan_v");
    att_use_context(e, q.buf, q.dim, q.scratch);
    em_val tk = em_size_value(e, p->a->tk), until = att_scratch(e, p->key_offset + 8);
    em_loop tile = em_for(e, em_load(e, SN_I64, until, 1), q.end, ATT_TILE_KEYS);
    em_val end = em_imin(e, em_add(e, tile.i, ATT_TILE_KEYS), tk);
    em_loop row = em_for(e, tile.i, end, p->word);
    em_val sum[SUMS];
    for (int i = 0; i < SUMS; i++) sum[i] = em_vf(e, 0);
    em_carries(e, &row, sum, SUMS);
    if (packs) emit_rows(e, p, &q, tk, end, false, packs, row.i, sum);
    emit_rows(e, p, &q, tk, end, true, packs, row.i, sum);
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
