/* mask.c: which KV tiles a query block computes, and which parts of a partially masked tile. The
 * mask is evaluated over ranges of queries and keys (mask_intervals.h). The visible part of a tile
 * is a staircase of (vector, key) rectangles. */
#include "codegen/attention/impl.h"

/* Field 0 .. 3 of segment i. */
static em_val segment_field(em *e, const att_plan *p, em_val i, int field) {
    em_val at = em_add(e, em_mul(e, i, 4), field);
    return em_gep(e, att_scratch(e, p->seg_offset), SN_I64, at);
}

/* Of the keys that vector v sees: field 0 the first one, 1 the one behind the last; 2: whether it is not sure to see
 * all of the tile. */
static em_val visible_key(em *e, const att_plan *p, em_val v, int field) {
    em_val at = em_add(e, em_mul(e, v, 3), field);
    return em_gep(e, att_scratch(e, p->visible_offset), SN_I64, at);
}

static void store_segment(em *e, const att_plan *p, em_val i, att_segment s) {
    em_val field[] = {s.k0, s.k1, s.v0, s.v1};
    for (int k = 0; k < 4; k++) em_store(e, SN_I64, segment_field(e, p, i, k), field[k]);
}

att_segment att_load_segment(em *e, const att_plan *p, em_val i) {
    em_val field[4];
    for (int k = 0; k < 4; k++) field[k] = em_load(e, SN_I64, segment_field(e, p, i, k), 1);
    return (att_segment){field[0], field[1], field[2], field[3]};
}

void att_load_visible_keys(em *e, const att_plan *p, em_val v, em_val *lo, em_val *hi) {
    *lo = em_load(e, SN_I64, visible_key(e, p, v, 0), 1);
    *hi = em_load(e, SN_I64, visible_key(e, p, v, 1), 1);
}

em_val att_vector_is_partial(em *e, const att_plan *p, em_val v) {
    em_val partial = em_load(e, SN_I64, visible_key(e, p, v, 2), 1);
    return em_cmp(e, EM_NE, partial, 0);
}

void att_set_partial(em *e, const att_plan *p, em_val v, em_val partial) {
    em_store(e, SN_I64, visible_key(e, p, v, 2), em_int_cast(e, partial, e->i64));
}

static void store_visible_keys(em *e, const att_plan *p, em_val v, em_val lo, em_val hi) {
    em_store(e, SN_I64, visible_key(e, p, v, 0), lo);
    em_store(e, SN_I64, visible_key(e, p, v, 1), hi);
}

void att_classifier_begin(att_classifier *c, em *e, const att_plan *p,
                          const sn_interval_code *coarse, em_val batch, sn_interval head,
                          sn_interval q) {
    const sn_region *r = p->a->mask;
    *c = (att_classifier){.captured = {.e = e, .a = p->a, .first = 4}};
    c->code = (sn_interval_code){.at = att_captured_range,
                                 .dim = att_dim_value,
                                 .ctx = &c->captured,
                                 .coarse = coarse,
                                 .fine = ATT_DEP_Q,
                                 .same = ATT_DEP_K};
    sn_interval_begin(&c->code, e, r);
    sn_interval_arg(&c->code, 0, (sn_interval){batch, batch}, ATT_DEP_HEAD);
    sn_interval_arg(&c->code, 1, head, ATT_DEP_HEAD);
    sn_interval_arg(&c->code, 2, q, ATT_DEP_Q);
    sn_interval_arg(&c->code, 3, (sn_interval){NULL, NULL}, ATT_DEP_K); /* set for each tile */
    for (int i = 4; i < r->n_arg; i++) {
        if (r->arg[i]->rank || sn_dtype_is_float((sn_dtype)r->arg[i]->dtype)) continue;
        em_val v = att_captured_scalar(e, p->a, i - 4);
        if (r->arg[i]->dtype != SN_BOOL) v = em_convert(e, v, (sn_dtype)r->arg[i]->dtype, SN_I64);
        sn_interval_arg(&c->code, i, (sn_interval){v, v}, ATT_DEP_HEAD);
    }
}

sn_interval att_classifier_finish(att_classifier *c, sn_interval k) {
    if (c->finished)
        sn_fail(&c->captured.e->err, SN_ERR_INTERNAL, "attention: a mask is bounded twice");
    c->finished = true;
    sn_interval_arg(&c->code, 3, k, ATT_DEP_K);
    sn_interval_emit(&c->code, ~0u);
    return sn_interval_result(&c->code);
}

static em_val count_zeros(em *e, const char *which, em_val x) {
    em_type t = LLVMTypeOf(x);
    em_val args[] = {x, em_i1(e, false)};
    return em_intrinsic(e, which, &t, 1, args, 2);
}

/* Bit i: lane i of x, of the subtiles, or their only value. */
static em_val subtile_bits(em *e, em_val x, em_val real) {
    x = em_splat(e, x, em_lanes_of(x) > 1 ? 1 : em_lanes_of(real));
    em_val bits = em_int_cast(e, em_bitcast(e, em_and(e, x, real), e->i8), e->i32);
    return em_and(e, bits, em_i32(e, 255));
}

/* Finds the first and the last subtile of keys that vector v of a partial tile may see. Lanes are
 * subtiles. */
static void emit_visible_subtiles(em *e, const att_query_block *b, em_val k0, em_val n,
                                  const att_classifier *coarse, em_val v) {
    enum { SUBTILES = ATT_TILE_KEYS / ATT_SUBTILE_KEYS };
    const att_plan *p = b->p;
    em_val q = em_add(e, b->q0, em_mul(e, v, p->lanes));
    em_val q1 = em_imin(e, em_add(e, q, p->lanes - 1), em_sub(e, b->tq, 1));
    att_classifier c;
    att_classifier_begin(&c, e, p, &coarse->code, b->batch, (sn_interval){b->head, b->head},
                         (sn_interval){q, q1});
    em_val first = em_mul(e, em_iota(e, e->i64, SUBTILES), ATT_SUBTILE_KEYS);
    em_val k = em_add(e, em_splat(e, k0, SUBTILES), first);
    sn_interval sees =
        att_classifier_finish(&c, (sn_interval){k, em_add(e, k, ATT_SUBTILE_KEYS - 1)});
    em_val real = em_cmp(e, EM_LT, first, em_splat(e, n, SUBTILES));
    em_val bits = subtile_bits(e, sees.hi, real), sure = subtile_bits(e, sees.lo, real);
    em_val partial = em_cmp(e, EM_NE, sure, subtile_bits(e, em_i1(e, true), real));
    att_set_partial(e, p, v, partial);
    em_val some = em_cmp(e, EM_NE, bits, em_i32(e, 0));
    em_val low = em_int_cast(e, count_zeros(e, "llvm.cttz", bits), e->i64);
    em_val high = em_sub(e, 32, em_int_cast(e, count_zeros(e, "llvm.ctlz", bits), e->i64));
    low = em_select(e, some, em_mul(e, low, ATT_SUBTILE_KEYS), ATT_TILE_KEYS * 2);
    high = em_select(e, some, em_imin(e, em_mul(e, high, ATT_SUBTILE_KEYS), n), 0);
    store_visible_keys(e, p, v, low, high);
}

/* Makes both ends of the visible keys ascend from vector to vector, so that the vectors that see a
 * key are consecutive, and cuts the tile into segments at each end. Returns their number. */
static em_val emit_staircase(em *e, const att_query_block *b) {
    const att_plan *p = b->p;
    em_val lo[ATT_NV], hi[ATT_NV];
    for (int v = 0; v < ATT_NV; v++) { /* vectors that do not exist see nothing */
        em_val here = em_cmp(e, EM_LT, v, b->nv), i = em_i64(e, v);
        att_load_visible_keys(e, p, i, &lo[v], &hi[v]);
        lo[v] = em_select(e, here, lo[v], ATT_TILE_KEYS * 2);
        hi[v] = em_select(e, here, hi[v], 0);
    }
    for (int v = 1; v < ATT_NV; v++) hi[v] = em_imax(e, hi[v], hi[v - 1]);
    for (int v = ATT_NV - 2; v >= 0; v--) lo[v] = em_imin(e, lo[v], lo[v + 1]);
    for (int v = 0; v < ATT_NV; v++) store_visible_keys(e, p, em_i64(e, v), lo[v], hi[v]);
    em_val far = em_i64(e, ATT_TILE_KEYS * 2), pos = lo[0], count = em_i64(e, 0);
    for (int s = 0; s < ATT_SEGMENTS - 1; s++) {
        em_val va = em_i64(e, 0), vb = va, next = far;
        for (int v = 0; v < ATT_NV; v++) {
            em_val over = em_cmp(e, EM_LE, hi[v], pos), begun = em_cmp(e, EM_LE, lo[v], pos);
            va = em_add(e, va, em_int_cast(e, over, e->i64));
            vb = em_add(e, vb, em_int_cast(e, begun, e->i64));
            next = em_imin(e, next, em_select(e, begun, far, lo[v]));
            next = em_imin(e, next, em_select(e, over, far, hi[v]));
        }
        em_val real = em_and(e, em_cmp(e, EM_LT, pos, far), em_cmp(e, EM_LT, va, vb));
        store_segment(e, p, count, (att_segment){pos, next, va, vb}); /* overwritten if empty */
        count = em_select(e, real, em_add(e, count, 1), count);
        pos = next;
    }
    return count;
}

em_val att_block_vectors(em *e, const att_plan *p, em_val tq, em_val index, em_val *v0,
                         em_val *v1) {
    em_val vectors = em_ceil_div(e, tq, p->lanes), blocks = em_ceil_div(e, vectors, p->nv);
    *v0 = em_div(e, em_mul(e, vectors, index), blocks);
    *v1 = em_div(e, em_mul(e, vectors, em_add(e, index, 1)), blocks);
    return vectors;
}

void att_block_queries(em *e, att_query_block *b, em_val v0, em_val v1) {
    b->q0 = em_mul(e, v0, b->p->lanes), b->nv = em_sub(e, v1, v0);
    b->n_rows = em_imin(e, em_mul(e, b->nv, b->p->lanes), em_sub(e, b->tq, b->q0));
}

void att_mask_begin(em *e, const att_query_block *b, att_classifier *c) {
    if (!b->p->a->mask) return;
    em_val q1 = em_sub(e, em_add(e, b->q0, b->n_rows), 1);
    att_classifier_begin(c, e, b->p, NULL, b->batch, (sn_interval){b->head, b->head},
                         (sn_interval){b->q0, q1});
    sn_interval_emit(&c->code, ATT_DEP_HEAD | ATT_DEP_Q);
}

sn_interval att_mask_tile(em *e, const att_query_block *b, att_classifier *c, em_val k0, em_val n) {
    if (!b->p->a->mask) return (sn_interval){em_i1(e, true), em_i1(e, true)};
    em_val k1 = em_sub(e, em_add(e, k0, n), 1);
    return att_classifier_finish(c, (sn_interval){k0, k1});
}

em_val att_mask_whole(em *e, const att_plan *p, em_val n, em_val nv) {
    em_val zero = em_i64(e, 0);
    store_segment(e, p, zero, (att_segment){zero, n, zero, nv});
    for (int v = 0; v < ATT_NV; v++) store_visible_keys(e, p, em_i64(e, v), zero, n);
    return em_i64(e, 1);
}

em_val att_mask_segments(em *e, const att_query_block *b, const att_classifier *c, em_val k0,
                         em_val n, em_val partial) {
    const att_plan *p = b->p;
    em_branch some = em_if(e, partial);
    em_val count = b->nv;
    if (p->a->mask) {
        em_loop v = em_for(e, 0, b->nv, 1);
        emit_visible_subtiles(e, b, k0, n, c, v.i);
        em_end(e, &v);
        count = emit_staircase(e, b);
    }
    em_else(e, &some);
    em_val one = att_mask_whole(e, p, n, b->nv);
    em_endif(e, &some);
    return em_join(e, &some, count, one);
}
