/* amx.c: the products of a KV tile on AMX's tiles (codegen/tile/amx.c): 16 rows, keys or elements of an output
 * row, by a query block; factors are words of bf16. */
#include "codegen/attention/impl.h"

enum { TILE = 16, LEFT = 4, RIGHT = 5 };

bool att_takes_amx(const em *e, const att_plan *p, int width) {
    return e->target->amx && p->word > 1 && width % TILE == 0;
}

static void begin(em *e) {
    tile_amx_configure(e, TILE, em_i32(e, TILE));
}

/* Tile v of a row of nv vectors of queries. */
static em_val tile_at(em *e, const att_plan *p, em_val row, int v) {
    return em_gep(e, row, p->t, v * p->lanes);
}

/* sums += the tile LEFT times 16 words of nv vectors of queries, from `right` on. */
static void add_right(em *e, const att_plan *p, int nv, em_val right) {
    for (int v = 0; v < nv; v++) {
        tile_amx_load(e, RIGHT + v, tile_at(e, p, right, v), em_i64(e, p->qb * 4));
        tile_amx_add(e, v, LEFT, RIGHT + v);
    }
}

em_val att_emit_amx_scores(em *e, const att_plan *p, const att_qk_args *a, int nv, int words) {
    em_val keys = em_round_down(e, em_imin(e, a->keys, a->k_rows), TILE);
    em_val stride = em_mul(e, a->k_stride, 4);
    begin(e);
    em_loop l = em_for(e, 0, keys, TILE);
    em_val key = em_gep(e, a->k, p->t, em_mul(e, l.i, a->k_stride));
    em_val out = em_gep(e, a->s, p->t, em_mul(e, l.i, p->qb));
    for (int v = 0; v < nv; v++) tile_amx_zero(e, v);
    for (int d = 0; d < words; d += TILE) {
        tile_amx_load(e, LEFT, em_gep(e, key, p->t, d), stride);
        add_right(e, p, nv, em_gep(e, a->q, p->t, d * p->qb));
    }
    for (int v = 0; v < nv; v++) tile_amx_store(e, v, tile_at(e, p, out, v), em_i64(e, p->qb * 4));
    em_end(e, &l);
    tile_amx_release(e);
    return keys;
}

em_val att_emit_amx_sums(em *e, const att_plan *p, const att_pv_args *a, int nv, int dv) {
    em_val keys = em_round_down(e, a->keys, TILE), left = em_stack(e, p->t, TILE * TILE);
    em_branch some = em_if(e, em_cmp(e, EM_GT, keys, 0));
    begin(e);
    em_loop row = em_for(e, 0, dv, TILE);
    em_val acc = em_gep(e, a->acc, p->t, em_mul(e, row.i, p->qb));
    for (int v = 0; v < nv; v++) tile_amx_load(e, v, tile_at(e, p, acc, v), em_i64(e, p->qb * 4));
    em_loop key = em_for(e, 0, keys, TILE);
    em_val x[TILE], from = em_gep(e, a->v, p->t, row.i);
    for (int i = 0; i < TILE; i++) {
        em_val at = em_mul(e, em_add(e, key.i, i), a->v_stride);
        x[i] = em_load(e, p->t, em_gep(e, from, p->t, at), TILE);
    }
    em_transpose(e, x, TILE);
    for (int i = 0; i < TILE; i++) em_store(e, p->t, em_gep(e, left, p->t, i * TILE), x[i]);
    tile_amx_load(e, LEFT, left, em_i64(e, TILE * 4));
    add_right(e, p, nv, em_gep(e, a->p, p->t, em_mul(e, key.i, p->qb)));
    em_end(e, &key);
    for (int v = 0; v < nv; v++) tile_amx_store(e, v, tile_at(e, p, acc, v), em_i64(e, p->qb * 4));
    em_end(e, &row);
    tile_amx_release(e);
    em_endif(e, &some);
    return keys;
}
