/* tile_map.c: for reports: a kernel that writes, for each head, block of queries and KV tile, whether
 * the attention kernel skips the tile, computes it with its mask, or without. */
#include "codegen/attention/impl.h"

void sn_attention_emit_tile_map(em *e, const char *name, const sn_attention *a, int buf) {
    att_plan p;
    if (!att_plan_make(&p, a, name, e->target, e->compute, &e->err)) return;
    em_kernel(e, name);
    att_query_block b = {.p = &p, .tq = em_size_value(e, a->tq), .tk = em_size_value(e, a->tk)};
    em_val blocks = em_ceil_div(e, em_ceil_div(e, b.tq, p.lanes), p.nv), v0, v1;
    em_val tiles = em_ceil_div(e, b.tk, ATT_TILE_KEYS);
    em_loop h = em_for(e, 0, em_mul(e, em_size_value(e, a->batch), a->heads), 1);
    em_loop i = em_for(e, 0, blocks, 1);
    b.batch = em_div(e, h.i, a->heads), b.head = em_rem(e, h.i, a->heads);
    att_block_vectors(e, &p, b.tq, i.i, &v0, &v1);
    att_block_queries(e, &b, v0, v1);
    att_classifier c;
    att_mask_begin(e, &b, &c);
    em_loop t = em_for(e, 0, tiles, 1);
    em_val k0 = em_mul(e, t.i, ATT_TILE_KEYS);
    em_val n = em_imin(e, em_sub(e, b.tk, k0), ATT_TILE_KEYS);
    sn_interval sees = att_mask_tile(e, &b, &c, k0, n);
    em_val some = em_int_cast(e, em_select(e, sees.lo, SN_TILE_FULL, SN_TILE_PARTIAL), e->i64);
    em_val kind = em_select(e, sees.hi, some, SN_TILE_SKIPPED);
    em_val at = em_add(e, em_mul(e, em_add(e, em_mul(e, h.i, blocks), i.i), tiles), t.i);
    em_store(e, SN_I64, em_gep(e, em_buf(e, buf), SN_I64, at), kind);
    em_end(e, &t);
    em_end(e, &i);
    em_end(e, &h);
    em_end_kernel(e);
}

void sn_attention_tile_size(const sn_attention *a, const sn_target *t, sn_dtype compute,
                            int *queries, int *keys) {
    att_plan p;
    sn_error err = {0};
    bool ok = att_plan_make(&p, a, "tiles", t, compute, &err);
    *queries = ok ? p.nv * p.lanes : 0;
    *keys = ATT_TILE_KEYS;
}
