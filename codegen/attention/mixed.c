/* mixed.c: the forward kernel of attention whose heads mix. With matrices A of the scores and C of
 * the weights, for a query block i and all heads at once:
 *
 *   for each KV tile j that the mask does not hide from all heads:   emit_scores_tile
 *       qk_h = q_h k_h^T for all h
 *       s_g = mask(score(sum over h of A_gh qk_h))
 *       m_g, l_g as in forward.c;  P_gj = e^(s_g - m_g);  M_gj = m_g
 *   for each such tile:                                               emit_values_tile
 *       w_o = sum over g of C_og e^(M_gj - m_g) / l_g P_gj
 *       acc_o += w_o v_o
 *   out_o = acc_o;  lse_g = (m_g, log l_g)
 *
 * What follows the softmax needs the whole sum l_g of a row, because weights of other heads are
 * added. So the weights P of a block's rows are kept in scratch, for all heads and keys: memory grows
 * with the number of keys, not of pairs. They are written and read once each, which costs less than
 * to compute them again. */
#include "codegen/attention/mixed.h"
#include "codegen/emit/vmath.h"

#include <math.h>

/* ---- plan ------------------------------------------------------------------------------------ */

typedef struct plan {
    att_plan p;
    const sn_attention_mixed *x;
    int64_t q_offset, acc_offset, m_offset, l_offset; /* [head][element][query], [head][query] */
    int64_t tile_offset;                              /* a tile of all heads */
    int64_t factor_offset, spare_offset, one_offset;  /* [head][query] twice; a vector of ones */
    int64_t matrix_offset[2];
    /* Rows of the block, tile by tile: P, M [head][query], and the number of keys computed, i64 */
    int64_t rows_offset, row_m_offset, row_keys_offset, row_bytes;
} plan;

static bool make_plan(plan *f, const sn_attention_mixed *x, const char *name, const sn_target *t,
                      sn_dtype compute, sn_error *err) {
    if (!att_check_mixed(x, compute, err) || !att_plan_make(&f->p, &x->a, name, t, compute, err))
        return false;
    att_plan *p = &f->p;
    p->pack = p->scan_v = false;
    p->mixed_keys = ATT_TILE_KEYS;
    p->bias.n = p->relative.n = 0; /* each tile belongs to other heads than the one before */
    int64_t column = p->qb * p->esize, heads = x->a.heads, at = p->tail_offset;
    int64_t tile = heads * att_mixed_head(p) * p->esize;
    f->x = x;
    f->q_offset = att_place(&at, heads * x->a.d * column);
    f->acc_offset = att_place(&at, heads * x->a.dv * column);
    f->m_offset = att_place(&at, heads * column);
    f->l_offset = att_place(&at, heads * column);
    f->tile_offset = att_place(&at, tile);
    f->factor_offset = att_place(&at, heads * column);
    f->spare_offset = att_place(&at, heads * column);
    f->one_offset = att_place(&at, column);
    for (int i = 0; i < 2; i++) f->matrix_offset[i] = att_place(&at, heads * heads * p->esize);
    f->rows_offset = at;
    at = 0;
    att_place(&at, tile);
    f->row_m_offset = att_place(&at, heads * column);
    f->row_keys_offset = att_place(&at, 8);
    f->row_bytes = at;
    return true;
}

int64_t sn_attention_mixed_scratch(const sn_attention_mixed *x, const sn_target *t,
                                   sn_dtype compute, int64_t tq, int64_t tk) {
    plan f;
    (void)tq;
    if (!make_plan(&f, x, "", t, compute, NULL)) return 0;
    return f.rows_offset + (tk + ATT_TILE_KEYS - 1) / ATT_TILE_KEYS * f.row_bytes;
}

/* ---- the softmax of a tile ------------------------------------------------------------------- */

/* A vector of queries from q0 on and the first keys of the tile at k0: scores become weights. m, l:
 * running maximum and sum; m_tile receives the maximum that the weights are relative to. */
/* clang-format off */
#define ATT_MIXED_SOFTMAX_PARAMS(P) \
    ATT_CONTEXT(P) P(ptr, s) P(ptr, m) P(ptr, l) P(ptr, m_tile) P(i64, keys) P(i64, k0) P(i64, q0) \
    P(i64, batch) P(i64, head)
/* clang-format on */
ATT_SIGNATURE(att_mixed_softmax, ATT_MIXED_SOFTMAX_PARAMS)

static em_val emit_softmax(em *e, const att_plan *p, bool masked) {
    att_mixed_softmax_args q = att_mixed_softmax_begin(e, p, masked ? "softmax_mask" : "softmax");
    att_use_context(e, q.buf, q.dim, q.scratch);
    em_val zero = em_i64(e, 0);
    att_softmax c = {.s = q.s, .m_i = q.m, .l_i = q.l, .lo = zero, .hi = q.keys, .k0 = q.k0};
    c.tk = em_size_value(e, p->a->tk);
    att_vector_args of = {.lo = zero, .hi = q.keys, .k0 = q.k0, .batch = q.batch, .head = q.head};
    att_regions regions = {.relative = NULL};
    if (masked || p->a->score) att_softmax_regions(e, p, &of, masked, q.q0, &regions);
    em_val s_max = att_softmax_scores(e, p, &c, &regions);
    em_val m = att_softmax_update(e, p, &c, s_max);
    att_store(e, p, att_load(e, p, q.m), q.m_tile);
    att_softmax_weights(e, p, &c, m);
    return att_end(e);
}

/* ---- a query block --------------------------------------------------------------------------- */

typedef struct block {
    const plan *f;
    att_query_block block;                                     /* its head: the one at hand */
    em_val qk[ATT_NV + 1], pv[ATT_NV + 1], mix[2][ATT_NV + 1]; /* functions */
    em_val load_q, store_out, softmax, softmax_mask;
    em_val zero, heads;
} block;

/* What belongs to a head at `offset`, `elements` for each. */
static em_val of_head(em *e, const block *b, int64_t offset, em_val head, int64_t elements) {
    return em_gep(e, att_scratch(e, offset), b->f->p.t, em_mul(e, head, elements));
}

static em_val row_of(em *e, const block *b, const sn_attention_operand *o, em_val head, em_val r) {
    em_val base = att_base(e, o, b->block.batch, head);
    return em_gep(e, base, o->dtype, em_mul(e, r, em_size_value(e, o->row)));
}

/* The rows of the tile at k0. */
static em_val tile_rows(em *e, const block *b, em_val k0) {
    em_val tile = LLVMBuildUDiv(e->b, k0, em_i64(e, ATT_TILE_KEYS), "");
    return em_gep_bytes(e, att_scratch(e, b->f->rows_offset), em_mul(e, tile, b->f->row_bytes));
}

static em_val first_query(em *e, const block *b, em_val v) {
    return em_add(e, b->block.q0, em_mul(e, v, b->f->p.lanes));
}

static em_val queries_left(em *e, const block *b, em_val q) {
    return em_imin(e, em_sub(e, b->block.tq, q), b->f->p.lanes);
}

/* For all heads: load q; m = -inf, l = 0, acc = 0. */
static void emit_enter(em *e, const block *b) {
    const plan *f = b->f;
    const att_plan *p = &f->p;
    const sn_attention *a = p->a;
    em_loop h = em_for(e, 0, b->heads, 1);
    em_loop v = em_for(e, 0, b->block.nv, 1);
    em_val q = first_query(e, b, v.i);
    att_load_queries_args load = {.stride = em_size_value(e, a->q.row)};
    load.n_rows = queries_left(e, b, q);
    load.src = row_of(e, b, &a->q, h.i, q);
    load.dst = att_column(e, p, of_head(e, b, f->q_offset, h.i, (int64_t)a->d * p->qb), v.i);
    att_load_queries_call(e, b->load_q, load);
    em_val m = att_column(e, p, of_head(e, b, f->m_offset, h.i, p->qb), v.i);
    em_val l = att_column(e, p, of_head(e, b, f->l_offset, h.i, p->qb), v.i);
    att_store(e, p, em_vf(e, -INFINITY), m);
    att_store(e, p, em_vf(e, 0), l);
    em_val acc = of_head(e, b, f->acc_offset, h.i, (int64_t)a->dv * p->qb);
    em_loop d = em_for(e, 0, a->dv, 1);
    em_val row = em_gep(e, acc, p->t, em_mul(e, d.i, p->qb));
    att_store(e, p, em_vf(e, 0), att_column(e, p, row, v.i));
    em_end(e, &d);
    em_end(e, &v);
    em_end(e, &h);
    att_store(e, p, em_vf(e, 1), att_scratch(e, f->one_offset));
}

/* qk of all heads to `to`. */
static void emit_qk(em *e, const block *b, em_val to, em_val k0, em_val keys) {
    const att_plan *p = &b->f->p;
    const sn_attention *a = p->a;
    em_val row = em_size_value(e, a->k.row), step = em_mul(e, row, p->esize);
    em_loop h = em_for(e, 0, b->heads, 1);
    em_val next = em_imin(e, em_add(e, h.i, 1), em_sub(e, b->heads, 1));
    att_qk_args args = {.k_stride = row, .keys = keys, .k_rows = keys, .prefetch_row = b->zero};
    args.k = row_of(e, b, &a->k, h.i, k0);
    args.q = of_head(e, b, b->f->q_offset, h.i, (int64_t)a->d * p->qb);
    args.s = em_gep(e, to, p->t, em_mul(e, h.i, att_mixed_head(p)));
    args.qk_max = args.s;
    args.prefetch0 = row_of(e, b, &a->k, next, k0), args.prefetch_step0 = step;
    args.prefetch1 = args.s, args.prefetch_step1 = b->zero;
    att_qk_call_by_count(e, b->qk, b->block.nv, args);
    em_end(e, &h);
}

/* The scores of head g become weights, unless the tile is hidden from it. */
static void emit_weights(em *e, const block *b, em_val rows, em_val g, em_val k0, em_val keys) {
    const plan *f = b->f;
    const att_plan *p = &f->p;
    em_val s = em_gep(e, rows, p->t, em_mul(e, g, att_mixed_head(p)));
    em_val m_tile = em_gep_bytes(e, rows, f->row_m_offset);
    m_tile = em_gep(e, m_tile, p->t, em_mul(e, g, p->qb));
    em_val kind = em_load(e, SN_I64, m_tile, 1);
    em_branch hidden = em_if(e, em_cmp(e, EM_EQ, kind, SN_TILE_SKIPPED));
    em_loop i = em_for(e, 0, em_mul(e, keys, p->qb), p->lanes);
    att_store(e, p, em_vf(e, 0), em_gep(e, s, p->t, i.i));
    em_end(e, &i);
    em_loop v = em_for(e, 0, b->block.nv, 1);
    att_store(e, p, em_vf(e, -INFINITY), att_column(e, p, m_tile, v.i));
    em_end(e, &v);
    em_else(e, &hidden);
    v = em_for(e, 0, b->block.nv, 1);
    att_mixed_softmax_args args = {ATT_PASS_CONTEXT(e), .keys = keys, .k0 = k0};
    args.batch = b->block.batch, args.head = g;
    args.q0 = first_query(e, b, v.i);
    args.s = att_column(e, p, s, v.i);
    args.m = att_column(e, p, of_head(e, b, f->m_offset, g, p->qb), v.i);
    args.l = att_column(e, p, of_head(e, b, f->l_offset, g, p->qb), v.i);
    args.m_tile = att_column(e, p, m_tile, v.i);
    em_branch full = em_if(e, em_cmp(e, EM_EQ, kind, SN_TILE_FULL));
    att_mixed_softmax_call(e, b->softmax, args);
    em_else(e, &full);
    att_mixed_softmax_call(e, b->softmax_mask ? b->softmax_mask : b->softmax, args);
    em_endif(e, &full);
    em_end(e, &v);
    em_endif(e, &hidden);
}

static void emit_scores_tile(em *e, const block *b, em_val k0) {
    const plan *f = b->f;
    em_val n = em_imin(e, em_sub(e, b->block.tk, k0), ATT_TILE_KEYS);
    em_val rows = tile_rows(e, b, k0), tile = att_scratch(e, f->tile_offset);
    em_val kinds = em_gep_bytes(e, rows, f->row_m_offset);
    em_val keys = att_mixed_visible_keys(e, &b->block, k0, n, kinds);
    em_store(e, SN_I64, em_gep_bytes(e, rows, f->row_keys_offset), keys);
    em_branch some = em_if(e, em_cmp(e, EM_GT, keys, 0));
    bool mixes = f->x->mix[0].buf >= 0;
    emit_qk(e, b, mixes ? tile : rows, k0, keys);
    att_mix_args args = {.x = tile, .y = rows, .w = att_scratch(e, f->matrix_offset[0])};
    args.factor = args.spare = att_scratch(e, f->factor_offset);
    args.keys = em_and(e, em_add(e, keys, 3), -4); /* as many as softmax reads */
    if (mixes) att_mix_call_by_count(e, b->mix[0], b->block.nv, args);
    em_loop g = em_for(e, 0, b->heads, 1);
    emit_weights(e, b, rows, g.i, k0, keys);
    em_end(e, &g);
    em_endif(e, &some);
}

/* factor = e^(M - m) / l: by it the tile's weights become those of the whole row. */
static void emit_factors(em *e, const block *b, em_val rows) {
    const plan *f = b->f;
    const att_plan *p = &f->p;
    em_loop i = em_for(e, 0, em_mul(e, b->heads, p->qb), p->lanes);
    em_val m_tile = em_gep_bytes(e, rows, f->row_m_offset);
    m_tile = att_load(e, p, em_gep(e, m_tile, p->t, i.i));
    em_val m = att_load(e, p, em_gep(e, att_scratch(e, f->m_offset), p->t, i.i));
    em_val l = att_load(e, p, em_gep(e, att_scratch(e, f->l_offset), p->t, i.i));
    em_val none = em_cmp(e, EM_EQ, m_tile, em_vf(e, -INFINITY));
    em_val x = em_div(e, att_exp(e, em_sub(e, m_tile, m)), l);
    x = em_select(e, none, em_vf(e, 0), x);
    att_store(e, p, x, em_gep(e, att_scratch(e, f->factor_offset), p->t, i.i));
    em_end(e, &i);
}

static void emit_values_tile(em *e, const block *b, em_val k0) {
    const plan *f = b->f;
    const att_plan *p = &f->p;
    const sn_attention *a = p->a;
    em_val rows = tile_rows(e, b, k0), tile = att_scratch(e, f->tile_offset);
    em_val keys = em_load(e, SN_I64, em_gep_bytes(e, rows, f->row_keys_offset), 1);
    em_branch some = em_if(e, em_cmp(e, EM_GT, keys, 0));
    emit_factors(e, b, rows);
    att_mix_args mix = {.x = rows, .y = tile, .w = att_scratch(e, f->matrix_offset[1])};
    mix.factor = att_scratch(e, f->factor_offset);
    mix.spare = att_scratch(e, f->spare_offset);
    mix.keys = keys;
    att_mix_call_by_count(e, b->mix[1], b->block.nv, mix);
    em_val row = em_size_value(e, a->v.row), step = em_mul(e, row, p->esize);
    em_loop h = em_for(e, 0, b->heads, 1);
    em_val next = em_imin(e, em_add(e, h.i, 1), em_sub(e, b->heads, 1));
    att_pv_args args = {.v_stride = row, .keys = keys};
    args.v = row_of(e, b, &a->v, h.i, k0);
    args.p = em_gep(e, tile, p->t, em_mul(e, h.i, att_mixed_head(p)));
    args.acc = of_head(e, b, f->acc_offset, h.i, (int64_t)a->dv * p->qb);
    args.next_k = args.next_v = row_of(e, b, &a->v, next, k0);
    args.next_k_step = args.next_v_step = step;
    att_pv_call_by_count(e, b->pv, b->block.nv, args);
    em_end(e, &h);
    em_endif(e, &some);
}

static void emit_store(em *e, const block *b) {
    const plan *f = b->f;
    const att_plan *p = &f->p;
    const sn_attention *a = p->a;
    em_loop h = em_for(e, 0, b->heads, 1);
    em_loop v = em_for(e, 0, b->block.nv, 1);
    em_val q = first_query(e, b, v.i), rows = queries_left(e, b, q);
    att_store_queries_args store = {.stride = em_size_value(e, a->out.row), .n_rows = rows};
    store.acc = att_column(e, p, of_head(e, b, f->acc_offset, h.i, (int64_t)a->dv * p->qb), v.i);
    store.l = att_scratch(e, f->one_offset);
    store.dst = row_of(e, b, &a->out, h.i, q);
    store.dummy = att_scratch(e, p->dummy_offset);
    att_store_queries_call(e, b->store_out, store);
    em_val m = att_load(e, p, att_column(e, p, of_head(e, b, f->m_offset, h.i, p->qb), v.i));
    em_val l = att_load(e, p, att_column(e, p, of_head(e, b, f->l_offset, h.i, p->qb), v.i));
    em_val none = em_cmp(e, EM_EQ, l, em_vf(e, 0));
    l = em_select(e, none, em_vf(e, -INFINITY), sn_vmath_emit(e, SN_V_LOG, l));
    em_store_tail(e, p->t, att_lse_ptr(e, p, b->block.batch, h.i, q, 0), m, rows);
    em_store_tail(e, p->t, att_lse_ptr(e, p, b->block.batch, h.i, q, 1), l, rows);
    em_end(e, &v);
    em_end(e, &h);
}

static void emit_functions(em *e, const plan *f, block *b) {
    const att_plan *p = &f->p;
    const sn_attention *a = p->a;
    static const att_mix_kind mix_scores = {"mix_scores", true, false};
    static const att_mix_kind mix_weights = {"mix_weights", true, true};
    static const att_mix_kind scale_weights = {"scale_weights", false, true};
    bool mixes = f->x->mix[1].buf >= 0;
    for (int nv = 1; nv <= ATT_NV; nv++) {
        b->qk[nv] = att_emit_qk(e, p, "qk", nv, a->d, 0);
        b->pv[nv] = att_emit_pv(e, p, "pv", nv, a->dv);
        if (f->x->mix[0].buf >= 0) b->mix[0][nv] = att_emit_mix(e, p, &mix_scores, nv);
        b->mix[1][nv] = att_emit_mix(e, p, mixes ? &mix_weights : &scale_weights, nv);
    }
    b->load_q = att_emit_load_queries(e, p, "load_q", a->q.dtype, a->d, a->scale, 1);
    b->store_out = att_emit_store_queries(e, p, "store_out", a->out.dtype, a->dv, 1);
    b->softmax = emit_softmax(e, p, false);
    b->softmax_mask = a->mask ? emit_softmax(e, p, true) : NULL;
}

static em_val emit_block(em *e, const plan *f) {
    const att_plan *p = &f->p;
    block b = {.f = f, .block.p = p};
    emit_functions(e, f, &b);
    att_mixed_item_args args = att_mixed_item_begin(e, p, "block");
    att_use_context(e, args.buf, args.dim, args.scratch);
    b.zero = em_i64(e, 0), b.heads = em_i64(e, p->a->heads);
    b.block.batch = args.batch, b.block.head = b.zero;
    b.block.tq = em_size_value(e, p->a->tq), b.block.tk = em_size_value(e, p->a->tk);
    em_val v0, v1;
    att_block_vectors(e, p, b.block.tq, args.index, &v0, &v1);
    att_block_queries(e, &b.block, v0, v1);
    emit_enter(e, &b);
    em_loop k = em_for(e, 0, b.block.tk, ATT_TILE_KEYS);
    emit_scores_tile(e, &b, k.i);
    em_end(e, &k);
    k = em_for(e, 0, b.block.tk, ATT_TILE_KEYS);
    emit_values_tile(e, &b, k.i);
    em_end(e, &k);
    emit_store(e, &b);
    return att_end(e);
}

/* ---- the kernel ------------------------------------------------------------------------------ */

void sn_attention_emit_mixed(em *e, const char *name, const sn_attention_mixed *x) {
    plan f;
    if (!make_plan(&f, x, name, e->target, e->compute, &e->err)) return;
    const att_plan *p = &f.p;
    em_val fn = emit_block(e, &f);
    em_kernel(e, name);
    for (int i = 0; i < 2; i++)
        if (x->mix[i].buf >= 0)
            att_load_matrix(e, p, &x->mix[i], false, att_scratch(e, f.matrix_offset[i]));
    em_val vectors = em_ceil_div(e, em_size_value(e, x->a.tq), p->lanes);
    att_mixed_deal(e, p, fn, em_ceil_div(e, vectors, p->nv), em_buf(e, x->counter_buf));
    em_end_kernel(e);
}
