/* forward.c: the loops of the forward attention kernel: threads, query blocks, KV tiles.
 *
 * For a query block i of a head [Dao, FlashAttention-2, 2023, algorithm 1]:
 *
 *   m_i = -inf;  l_i = 0;  acc = 0;  load q_i                      emit_enter
 *       (with a sink z: m_i = z, l_i = 1)
 *   for each KV tile j that the mask does not hide:                emit_tiles
 *       qk = q_i k_j^T                                             emit_qk
 *       s = mask(score(qk))                                        softmax.c: emit_scores
 *       m_new = max(m_i, rowmax(s));  alpha = e^(m_i - m_new)      softmax.c: emit_update
 *       l_i = alpha l_i;  acc = alpha acc;  m_i = m_new
 *       p = e^(s - m_i);  l_i += rowsum(p)                         softmax.c: emit_weights
 *       acc += p v_j                                               emit_pv
 *   out_i = acc / l_i;  lse_i = (m_i, log l_i)                     emit_store
 *
 * m_i, l_i and acc are the block's softmax state in scratch. Where K and V of a head do not fit
 * into the cache, a few query blocks take turns at each KV block, and their states stay in scratch
 * meanwhile. */
#include "codegen/attention/impl.h"
#include "codegen/emit/vmath.h"

#include <math.h>
#include <stdio.h>

enum {
    NEXT_HEAD_SHARE = 8
}; /* if K and V of a head take less than 1/8 of L2, the next head's may, too */

/* ---- the KV tiles of a query block ----------------------------------------------------------- */

/* Query block `index` of head batch * heads + head, over keys k0 .. k1 - 1; state: which softmax
 * state is the block's. The first keys initialise the state, the last ones store the result. */
/* clang-format off */
#define ATT_BLOCK_PARAMS(P) \
    ATT_CONTEXT(P) P(i64, head) P(i64, index) P(i64, state) P(i64, k0) P(i64, k1)
/* clang-format on */
ATT_SIGNATURE(att_block, ATT_BLOCK_PARAMS)

typedef struct block {
    const att_plan *p;
    const att_functions *f;
    em_val softmax, softmax_mask, pack_kv, scan_v, relative_rows, additive_bias; /* functions */
    att_query_block block;
    em_val kv_head, k_base, v_base;
    em_val packed; /* K and V are read from their packed copies */
    em_val k0, k1;
    em_val is_first, is_last, is_partial; /* the keys are the first ones, the last ones, not all */
    em_val out;                           /* the block's rows of the result */
    em_val next_q;                        /* queries of the next block */
    em_val next_batch, next_head, next_head_k, next_head_v;
    em_val prefetches_head; /* the last block of a short head prefetches all of the next head */
    bool gathered;          /* the queries are gathered: no rows to prefetch follow */
} block;

/* K and V of the tile at k0. */
typedef struct tile {
    em_val k0, n;
    em_val k, k_stride, v, v_stride;
    em_val nan_safe;                                 /* V has values that are not finite */
    em_val s, q, acc, qk_max;                        /* pointers into scratch */
    em_val next_k, next_v, next_k_step, next_v_step; /* rows to prefetch, bytes between them */
} tile;

static em_val row_bytes(em *e, const sn_attention_operand *o) {
    return em_mul(e, em_size_value(e, o->row), (int64_t)sn_dtype_size(o->dtype));
}

/* Chooses the rows that pv prefetches: those of the next tile, from the packed copy if they are
 * packed already, or the first ones of the next head. The last block of a short head prefetches the
 * next head's rows of this tile, so that all of them are in the cache when that head begins. */
static void choose_prefetch(em *e, const block *b, tile *t) {
    const att_plan *p = b->p;
    const sn_attention *a = p->a;
    em_val next = em_add(e, t->k0, ATT_TILE_KEYS);
    em_val more = em_and(e, em_cmp(e, EM_LT, next, b->k1), em_not(e, b->prefetches_head));
    em_val begin = em_select(e, b->is_partial, b->k0, 0);
    em_val same_head = em_or(e, more, b->is_partial);
    em_val row = em_select(e, more, next, em_select(e, b->prefetches_head, t->k0, begin));
    em_val k = em_select(e, same_head, b->k_base, b->next_head_k);
    em_val v = em_select(e, same_head, b->v_base, b->next_head_v);
    t->next_k = em_gep(e, k, a->k.dtype, em_mul(e, row, em_size_value(e, a->k.row)));
    t->next_v = em_gep(e, v, a->v.dtype, em_mul(e, row, em_size_value(e, a->v.row)));
    t->next_k_step = row_bytes(e, &a->k);
    t->next_v_step = row_bytes(e, &a->v);
    if (!p->pack) return;
    em_val n_packed = em_load(e, SN_I64, att_scratch(e, p->key_offset + 8), 1);
    em_val ready = em_and(e, em_and(e, b->packed, more), em_cmp(e, EM_GT, n_packed, next));
    att_copy of_v = att_copy_for_sums(p, true);
    t->next_k = em_select(e, ready, att_packed_row(e, p, b->block.tk, ATT_K_ROWS, next), t->next_k);
    t->next_v = em_select(e, ready, att_packed_row(e, p, b->block.tk, of_v, next), t->next_v);
    em_val k_row = em_i64(e, (int64_t)att_words(p, a->d) * p->esize),
           v_row = em_i64(e, (int64_t)a->dv * p->esize / p->word);
    t->next_k_step = em_select(e, ready, k_row, t->next_k_step);
    t->next_v_step = em_select(e, ready, v_row, t->next_v_step);
}

/* Packs or scans the keys up to the end of the tile, unless that is done. */
static void prepare_keys(em *e, const block *b, const tile *t) {
    em_val end = em_add(e, t->k0, ATT_TILE_KEYS);
    em_val n_prepared = em_load(e, SN_I64, att_scratch(e, b->p->key_offset + 8), 1);
    em_branch br = em_if(e, em_cmp(e, EM_LT, n_prepared, end));
    att_pack_kv_args args = {ATT_PASS_CONTEXT(e), .batch = b->block.batch, .kv_head = b->kv_head,
                             .end = end};
    em_branch packed = em_if(e, b->packed);
    if (b->pack_kv) att_pack_kv_call(e, b->pack_kv, args);
    em_else(e, &packed);
    if (b->scan_v) att_pack_kv_call(e, b->scan_v, args);
    em_endif(e, &packed);
    em_endif(e, &br);
}

static void locate_tile(em *e, const block *b, tile *t) {
    const att_plan *p = b->p;
    if (b->pack_kv || b->scan_v) prepare_keys(e, b, t);
    t->k_stride = em_size_value(e, p->a->k.row);
    t->v_stride = em_size_value(e, p->a->v.row);
    t->k = em_gep(e, b->k_base, p->a->k.dtype, em_mul(e, t->k0, t->k_stride));
    t->v = em_gep(e, b->v_base, p->a->v.dtype, em_mul(e, t->k0, t->v_stride));
    if (p->pack) {
        att_copy of_v = att_copy_for_sums(p, true);
        t->k = em_select(e, b->packed, att_packed_row(e, p, b->block.tk, ATT_K_ROWS, t->k0), t->k);
        t->v = em_select(e, b->packed, att_packed_row(e, p, b->block.tk, of_v, t->k0), t->v);
        t->k_stride = em_select(e, b->packed, att_packed_width(p, ATT_K_ROWS), t->k_stride);
        t->v_stride = em_select(e, b->packed, att_packed_width(p, of_v), t->v_stride);
    }
    choose_prefetch(e, b, t);
    t->nan_safe = em_i1(e, false);
    if (p->scan_v) {
        em_val index = LLVMBuildUDiv(e->b, t->k0, em_i64(e, ATT_TILE_KEYS), "");
        em_val flag = em_load(e, SN_U8, att_nonfinite_flag(e, p, index), 1);
        t->nan_safe = em_cmp(e, EM_NE, flag, LLVMConstInt(e->i8, 0, false));
    }
}

/* While more tiles follow, qk prefetches the next tile's part of a dense bias, half of the rows
 * with each of its two pointers, instead of rows of q and the result. key: first of the segment. */
static void prefetch_bias_tile(em *e, const block *b, const tile *t, em_val key,
                               att_qk_args *args) {
    enum { ROWS = ATT_TILE_KEYS / 2 }; /* of each matrix that qk visits in a tile */
    em_val next = em_add(e, t->k0, ATT_TILE_KEYS);
    em_val of[] = {b->block.batch, b->block.head}, bias, step;
    if (!att_has_bias_tile(e, b->p) || b->gathered) return;
    att_bias_tile_next(e, b->p, of, b->block.q0, next, &bias, &step);
    em_val more = em_cmp(e, EM_LT, next, b->block.tk), half = em_mul(e, step, ROWS);
    args->prefetch_row = em_select(e, more, em_lshr(e, key, 1), args->prefetch_row);
    args->prefetch0 = em_select(e, more, bias, args->prefetch0);
    args->prefetch_step0 = em_select(e, more, step, args->prefetch_step0);
    args->prefetch1 = em_select(e, more, em_gep_bytes(e, bias, half), args->prefetch1);
    args->prefetch_step1 = em_select(e, more, step, args->prefetch_step1);
}

/* Calls fn for every vector that sees keys of the tile. partial not NULL: softmax_mask instead
 * where it is true, and the mask may hide keys from the vector. */
static void call_for_vectors(em *e, const block *b, const tile *t, em_val fn, em_val partial) {
    em_loop l = em_for(e, 0, b->block.nv, 1);
    em_val lo, hi;
    att_load_visible_keys(e, b->p, l.i, &lo, &hi);
    em_branch sees = em_if(e, em_cmp(e, EM_LT, lo, hi));
    att_vector_args args = {ATT_PASS_CONTEXT(e),
                            .v = l.i,
                            .lo = lo,
                            .hi = hi,
                            .k0 = t->k0,
                            .q0 = b->block.q0,
                            .batch = b->block.batch,
                            .head = b->block.head};
    em_branch masked = {0};
    if (partial) {
        masked = em_if(e, em_and(e, partial, att_vector_is_partial(e, b->p, l.i)));
        att_vector_call(e, b->softmax_mask, args);
        em_else(e, &masked);
    }
    att_vector_call(e, fn, args);
    if (partial) em_endif(e, &masked);
    em_endif(e, &sees);
    em_end(e, &l);
}

/* qk = q k^T, segment by segment; plus the additive bias. */
static void emit_qk(em *e, const block *b, const tile *t, em_val n_seg) {
    const att_plan *p = b->p;
    em_loop l = em_for(e, 0, n_seg, 1);
    att_segment g = att_load_segment(e, p, l.i);
    em_val row = em_gep(e, t->s, p->t, em_mul(e, g.k0, p->qb));
    att_qk_args args = {.prefetch_row = em_lshr(e, em_add(e, t->k0, g.k0), 1),
                        .prefetch0 = b->next_q,
                        .prefetch1 = b->out};
    args.prefetch_step0 = b->gathered ? em_like(e, l.i, 0) : row_bytes(e, &p->a->q);
    args.prefetch_step1 = b->gathered ? args.prefetch_step0 : row_bytes(e, &p->a->out);
    prefetch_bias_tile(e, b, t, g.k0, &args);
    args.k = em_gep(e, t->k, p->t, em_mul(e, g.k0, t->k_stride));
    args.k_stride = t->k_stride;
    args.keys = em_sub(e, g.k1, g.k0);
    args.k_rows = em_sub(e, t->n, g.k0);
    args.q = att_column(e, p, t->q, g.v0);
    args.s = att_column(e, p, row, g.v0);
    args.qk_max = att_column(e, p, t->qk_max, g.v0);
    att_qk_call_by_count(e, b->f->qk, em_sub(e, g.v1, g.v0), args);
    em_end(e, &l);
}

/* acc += p v, segment by segment. */
static void emit_pv(em *e, const block *b, const tile *t, em_val n_seg) {
    const att_plan *p = b->p;
    em_loop l = em_for(e, 0, n_seg, 1);
    att_segment g = att_load_segment(e, p, l.i);
    em_val first = att_count_words(e, p, g.k0);
    em_val row = em_gep(e, t->s, p->t, em_mul(e, first, p->qb));
    att_pv_args args = {.v = em_gep(e, t->v, p->t, em_mul(e, first, t->v_stride)),
                        .v_stride = t->v_stride,
                        .next_k_step = em_mul(e, t->next_k_step, p->word),
                        .next_v_step = em_mul(e, t->next_v_step, p->word)};
    args.p = att_column(e, p, row, g.v0);
    args.acc = att_column(e, p, t->acc, g.v0);
    args.keys = att_count_words(e, p, em_sub(e, g.k1, g.k0));
    args.next_k = em_gep_bytes(e, t->next_k, em_mul(e, g.k0, t->next_k_step));
    args.next_v = em_gep_bytes(e, t->next_v, em_mul(e, g.k0, t->next_v_step));
    att_pv_call_by_count(e, b->f->pv, em_sub(e, g.v1, g.v0), args);
    em_end(e, &l);
}

/* The same, vector by vector, without the rows of V whose weight is 0. */
static void emit_pv_nan_safe(em *e, const block *b, const tile *t) {
    const att_plan *p = b->p;
    em_val lo, hi;
    em_loop l = em_for(e, 0, b->block.nv, 1);
    att_load_visible_keys(e, p, l.i, &lo, &hi);
    em_val keys = att_count_words(e, p, em_sub(e, hi, lo));
    lo = att_count_words(e, p, lo);
    em_val row = em_gep(e, t->s, p->t, em_mul(e, lo, p->qb));
    att_pv_nan_safe_args args = {.v = em_gep(e, t->v, p->t, em_mul(e, lo, t->v_stride)),
                                 .v_stride = t->v_stride};
    args.p = att_column(e, p, row, l.i);
    args.acc = att_column(e, p, t->acc, l.i);
    args.keys = keys;
    att_pv_nan_safe_call(e, b->f->pv_nan_safe, args);
    em_end(e, &l);
}

/* A tile that the block sees, in n_seg segments; partial: some keys are masked. */
static void emit_tile(em *e, const block *b, tile *t, em_val n_seg, em_val partial) {
    const att_plan *p = b->p;
    t->s = att_scratch(e, p->s_offset);
    t->q = att_block_state(e, p, p->q_offset);
    t->acc = att_block_state(e, p, p->acc_offset);
    t->qk_max = att_scratch(e, p->qk_max_offset);
    if (att_qk_is_score(p))
        for (int v = 0; v < ATT_NV; v++)
            em_store_raw(e, em_vf(e, -INFINITY), em_gep(e, t->qk_max, p->t, v * p->lanes), 16);
    att_relative_extend(e, b->relative_rows, &b->block, t->k0, t->n);
    if (b->additive_bias) call_for_vectors(e, b, t, b->additive_bias, NULL);
    emit_qk(e, b, t, n_seg);
    call_for_vectors(e, b, t, b->softmax, b->softmax_mask ? partial : NULL);
    em_branch finite = em_if(e, em_not(e, t->nan_safe));
    emit_pv(e, b, t, n_seg);
    if (p->scan_v) {
        em_else(e, &finite);
        emit_pv_nan_safe(e, b, t);
    }
    em_endif(e, &finite);
}

static void emit_tiles(em *e, const block *b) {
    att_classifier c;
    att_mask_begin(e, &b->block, &c);
    em_loop l = em_for(e, b->k0, b->k1, ATT_TILE_KEYS);
    tile t = {.k0 = l.i, .n = em_imin(e, em_sub(e, b->block.tk, l.i), ATT_TILE_KEYS)};
    sn_interval sees = att_mask_tile(e, &b->block, &c, t.k0, t.n);
    em_branch visible = em_if(e, sees.hi);
    em_val partial = em_not(e, sees.lo);
    em_val n_seg = att_mask_segments(e, &b->block, &c, t.k0, t.n, partial);
    em_branch some = em_if(e, em_cmp(e, EM_GT, n_seg, 0));
    locate_tile(e, b, &t);
    emit_tile(e, b, &t, n_seg, partial);
    em_endif(e, &some);
    em_endif(e, &visible);
    em_end(e, &l);
}

/* ---- a query block --------------------------------------------------------------------------- */

static void locate_queries(em *e, block *b, em_val index) {
    const att_plan *p = b->p;
    em_val v0, v1, vectors = att_block_vectors(e, p, b->block.tq, index, &v0, &v1);
    em_val bytes = em_mul(e, b->block.tk, (int64_t)(p->a->d + p->a->dv) * p->esize);
    b->prefetches_head = em_and(e, em_cmp(e, EM_EQ, v1, vectors),
                                em_cmp(e, EM_LE, bytes, p->l2_bytes / NEXT_HEAD_SHARE));
    att_block_queries(e, &b->block, v0, v1);
}

/* The head that follows in the order of the schedule; the last one is followed by itself. */
static void locate_next_head(em *e, block *b, em_val head) {
    const sn_attention *a = b->p->a;
    em_val end = em_mul(e, em_size_value(e, a->batch), a->heads);
    em_val next = em_imin(e, em_add(e, head, 1), em_sub(e, end, 1));
    b->next_batch = em_div(e, next, a->heads), b->next_head = em_rem(e, next, a->heads);
    em_val kv_head = em_div(e, b->next_head, a->gqa_ratio);
    b->next_head_k = att_base(e, &a->k, b->next_batch, kv_head);
    b->next_head_v = att_base(e, &a->v, b->next_batch, kv_head);
}

/* Sets the block's fields from its parameters. */
static void begin_block(em *e, block *b, const att_block_args *q) {
    const att_plan *p = b->p;
    const sn_attention *a = p->a;
    b->block.tq = em_size_value(e, a->tq), b->block.tk = em_size_value(e, a->tk);
    b->k0 = q->k0, b->k1 = q->k1;
    b->is_first = em_cmp(e, EM_EQ, b->k0, 0);
    b->is_last = em_cmp(e, EM_EQ, b->k1, b->block.tk);
    b->is_partial = em_not(e, em_and(e, b->is_first, b->is_last));
    em_val distance = em_i64(e, p->states_offset - p->state_bytes); /* of state 1 from state 0 */
    em_val state = em_add(e, distance, em_mul(e, q->state, p->state_bytes));
    state = em_select(e, em_cmp(e, EM_EQ, q->state, 0), 0, state);
    em_store(e, SN_I64, att_scratch(e, p->current_state_offset), state);
    b->block.batch = em_div(e, q->head, a->heads), b->block.head = em_rem(e, q->head, a->heads);
    b->kv_head = em_div(e, b->block.head, a->gqa_ratio);
    b->k_base = att_base(e, &a->k, b->block.batch, b->kv_head);
    b->v_base = att_base(e, &a->v, b->block.batch, b->kv_head);
    locate_next_head(e, b, q->head);
    locate_queries(e, b, q->index);
    /* packing costs about as much as a few blocks lose on rows that lie far apart */
    em_val uses = em_mul(e, b->block.tq, a->gqa_ratio);
    b->packed = p->convert ? em_i1(e, true) : em_cmp(e, EM_GT, uses, p->pack_queries);
    if (!p->pack || (p->pack_queries < 0 && !p->convert)) b->packed = em_i1(e, false);
    if (b->pack_kv || b->scan_v) att_kv_begin_head(e, p, em_div(e, q->head, a->gqa_ratio));
    att_relative_begin_head(e, p, q->head);
}

/* First keys: m_i = -inf, l_i = 0 (or those of the sink), acc = 0, load q_i. */
static void emit_enter(em *e, const block *b, em_val q_base, em_val q_row, em_val acc) {
    const att_plan *p = b->p;
    const sn_attention *a = p->a;
    em_val q_dst = att_block_state(e, p, p->q_offset);
    em_branch first = em_if(e, b->is_first);
    em_loop l = em_for(e, 0, b->block.nv, 1);
    em_val q = em_add(e, b->block.q0, em_mul(e, l.i, p->lanes)),
           rows = em_imin(e, em_sub(e, b->block.tq, q), p->lanes);
    att_load_queries_args load = {.stride = q_row, .n_rows = rows};
    load.src = em_gep(e, q_base, a->q.dtype, em_mul(e, q, q_row));
    load.dst = att_column(e, p, q_dst, l.i);
    att_load_queries_call(e, b->f->load_q, load);
    em_val m_i = att_column(e, p, att_block_state(e, p, p->m_offset), l.i);
    att_first state = att_first_state(e, p, b->block.batch, b->block.head, q, p->lanes, rows, NULL);
    em_store(e, p->t, m_i, state.m);
    em_val l_i = att_column(e, p, att_block_state(e, p, p->l_offset), l.i);
    em_store(e, p->t, l_i, state.l);
    em_loop d = em_for(e, 0, a->dv, 1);
    em_val row = em_gep(e, acc, p->t, em_mul(e, d.i, p->qb));
    em_store(e, p->t, att_column(e, p, row, l.i), em_vf(e, 0));
    em_end(e, &d);
    em_end(e, &l);
    em_endif(e, &first);
}

/* lse = (m_i, log l_i) of vector v, queries q .. q + rows - 1. */
static void emit_lse(em *e, const block *b, em_val v, em_val q, em_val rows) {
    const att_plan *p = b->p;
    em_val m_i =
        em_load(e, p->t, att_column(e, p, att_block_state(e, p, p->m_offset), v), p->lanes);
    em_val l_i =
        em_load(e, p->t, att_column(e, p, att_block_state(e, p, p->l_offset), v), p->lanes);
    em_val none = em_cmp(e, EM_EQ, l_i, em_vf(e, 0));
    em_val log_sum = em_select(e, none, em_vf(e, -INFINITY), sn_vmath_emit(e, SN_V_LOG, l_i));
    em_val at = att_lse_ptr(e, p, b->block.batch, b->block.head, q, 0);
    em_store_tail(e, p->t, at, m_i, rows);
    at = att_lse_ptr(e, p, b->block.batch, b->block.head, q, 1);
    em_store_tail(e, p->t, at, log_sum, rows);
}

/* Without softmax: stores what the backward pass needs, and makes l_i the divisor of the row. */
static void emit_divisor(em *e, const block *b, em_val v, em_val q, em_val rows) {
    const att_plan *p = b->p;
    em_val at = att_column(e, p, att_block_state(e, p, p->l_offset), v), slope;
    em_val n = att_row_divisor(e, p, att_load(e, p, at), &slope);
    att_store(e, p, n, at);
    if (p->a->lse_buf < 0) return;
    em_val to = att_lse_ptr(e, p, b->block.batch, b->block.head, q, 0);
    em_store_tail(e, p->t, to, att_reciprocal(e, n), rows);
    to = att_lse_ptr(e, p, b->block.batch, b->block.head, q, 1);
    em_store_tail(e, p->t, to, slope, rows);
}

/* Last keys: out_i = acc / l_i. */
static void emit_store(em *e, const block *b, em_val acc, em_val out, em_val out_row) {
    const att_plan *p = b->p;
    const sn_attention *a = p->a;
    em_branch last = em_if(e, b->is_last);
    em_loop l = em_for(e, 0, b->block.nv, 1);
    em_val q = em_add(e, b->block.q0, em_mul(e, l.i, p->lanes)),
           rows = em_imin(e, em_sub(e, b->block.tq, q), p->lanes);
    att_store_queries_args store = {.stride = out_row, .n_rows = rows};
    store.acc = att_column(e, p, acc, l.i);
    store.l = att_column(e, p, att_block_state(e, p, p->l_offset), l.i);
    store.dst = em_gep(e, out, a->out.dtype, em_mul(e, q, out_row));
    store.dummy = att_scratch(e, p->dummy_offset);
    if (a->weights) emit_divisor(e, b, l.i, q, rows);
    att_store_queries_call(e, b->f->store_out, store);
    if (a->lse_buf >= 0 && !a->weights) emit_lse(e, b, l.i, q, rows);
    em_end(e, &l);
    em_endif(e, &last);
}

static block emit_functions(em *e, const att_plan *p, att_functions *f) {
    att_emit_functions(e, p, f);
    block b = {.p = p, .f = f, .block.p = p};
    b.softmax = att_emit_softmax(e, p, false);
    b.softmax_mask = p->a->mask ? att_emit_softmax(e, p, true) : NULL;
    b.pack_kv = p->pack ? att_emit_pack_kv(e, p, true) : NULL;
    b.scan_v = p->scan_v && !p->convert ? att_emit_pack_kv(e, p, false) : NULL;
    b.relative_rows = att_emit_relative_rows(e, p);
    b.additive_bias = att_emit_additive_bias(e, p);
    return b;
}

static em_val emit_block(em *e, block b) {
    const att_plan *p = b.p;
    const sn_attention *a = p->a;
    att_block_args args = att_block_begin(e, p, "block");
    att_use_context(e, args.buf, args.dim, args.scratch);
    begin_block(e, &b, &args);
    em_val q_base = att_base(e, &a->q, b.block.batch, b.block.head),
           q_row = em_size_value(e, a->q.row);
    em_val acc = att_block_state(e, p, p->acc_offset);
    emit_enter(e, &b, q_base, q_row, acc);

    em_val out = att_base(e, &a->out, b.block.batch, b.block.head),
           out_row = em_size_value(e, a->out.row);
    em_val q_end = em_add(e, b.block.q0, b.block.n_rows),
           next_head_q = att_base(e, &a->q, b.next_batch, b.next_head);
    b.out = em_gep(e, out, a->out.dtype, em_mul(e, b.block.q0, out_row));
    b.next_q = em_select(e, em_cmp(e, EM_LT, q_end, b.block.tq),
                         em_gep(e, q_base, a->q.dtype, em_mul(e, q_end, q_row)), next_head_q);
    emit_tiles(e, &b);
    emit_store(e, &b, acc, out, out_row);
    return att_end(e);
}

/* ---- a strip of queries: those that see a KV tile are gathered ------------------------------- */

/* Query blocks first .. end - 1 of head batch * heads + head. */
#define ATT_STRIP_PARAMS(P) ATT_CONTEXT(P) P(i64, head) P(i64, first) P(i64, end)
ATT_SIGNATURE(att_strip, ATT_STRIP_PARAMS)

typedef struct strip {
    block b; /* its queries are those of the strip, or some of them */
    em_val load_q, load_acc, store_acc, list;
    em_val n; /* vectors of the strip */
} strip;

/* m_i = -inf, l_i = 0 (or those of the sink), acc = 0 of all queries. */
static void begin_states(em *e, const strip *s) {
    const att_plan *p = s->b.p;
    const att_query_block *q = &s->b.block;
    em_loop v = em_for(e, 0, s->n, 1);
    em_val at = em_mul(e, v.i, p->lanes), q0 = em_add(e, q->q0, at);
    em_val rows = em_imin(e, em_sub(e, q->tq, q0), p->lanes);
    att_first state = att_first_state(e, p, q->batch, q->head, q0, p->lanes, rows, NULL);
    em_store(e, p->t, em_gep(e, att_scratch(e, p->strip_m_offset), p->t, at), state.m);
    em_store(e, p->t, em_gep(e, att_scratch(e, p->strip_l_offset), p->t, at), state.l);
    em_end(e, &v);
    em_val acc = att_scratch(e, p->strip_state_offset);
    em_loop i = em_for(e, 0, em_mul(e, s->n, p->lanes * att_padded(p, p->a->dv)), p->lanes);
    att_store(e, p, em_vf(e, 0), em_gep(e, acc, p->t, i.i));
    em_end(e, &i);
}

/* The states of the queries of vector v, from the strip to the block or back. */
static void move_states(em *e, const strip *s, em_val v, em_val index, bool back) {
    const att_plan *p = s->b.p;
    void (*move)(em *, const att_plan *, int64_t, em_val, em_val) =
        back ? att_store_numbers : att_load_numbers;
    move(e, p, p->strip_m_offset, index, att_column(e, p, att_scratch(e, p->m_offset), v));
    move(e, p, p->strip_l_offset, index, att_column(e, p, att_scratch(e, p->l_offset), v));
    att_chosen_args args = {.rows = att_scratch(e, p->strip_state_offset)};
    args.stride = em_i64(e, att_padded(p, p->a->dv));
    args.index = att_chosen_index(e, p, v);
    args.columns = att_column(e, p, att_scratch(e, p->acc_offset), v);
    att_chosen_call(e, back ? s->store_acc : s->load_acc, args);
}

/* The listed queries from `first` on. */
static void emit_gathered_tile(em *e, strip *s, tile *t, em_val first, em_val nv, em_val q_strip) {
    const att_plan *p = s->b.p;
    s->b.block.nv = nv;
    em_val one = att_mask_whole(e, p, t->n, nv);
    em_loop v = em_for(e, 0, nv, 1);
    em_val at = em_add(e, first, em_mul(e, v.i, p->lanes));
    em_val index = att_choose_queries(e, p, v.i, att_listed(e, p, at));
    att_chosen_args args = {.rows = q_strip, .stride = em_size_value(e, p->a->q.row)};
    args.index = att_chosen_index(e, p, v.i);
    args.columns = att_column(e, p, att_scratch(e, p->q_offset), v.i);
    att_chosen_call(e, s->load_q, args);
    move_states(e, s, v.i, index, false);
    em_end(e, &v);
    emit_tile(e, &s->b, t, one, em_i1(e, true));
    em_loop u = em_for(e, 0, nv, 1);
    index = em_load(e, SN_I32, att_chosen_index(e, p, u.i), p->lanes);
    move_states(e, s, u.i, index, true);
    em_end(e, &u);
}

/* The results of all queries, block by block. */
static void store_strip(em *e, strip *s, em_val out, em_val out_row) {
    const att_plan *p = s->b.p;
    em_val q0 = s->b.block.q0;
    em_loop i = em_for(e, 0, s->n, p->nv);
    em_val at = em_mul(e, i.i, p->lanes);
    s->b.block.q0 = em_add(e, q0, at);
    s->b.block.nv = em_imin(e, em_sub(e, s->n, i.i), p->nv);
    em_loop v = em_for(e, 0, s->b.block.nv, 1);
    em_val from = em_int_cast(e, em_add(e, at, em_mul(e, v.i, p->lanes)), e->i32);
    em_val index = em_add(e, from, em_iota(e, e->i32, p->lanes));
    em_val one = em_like(e, index, 1);
    move_states(e, s, v.i, att_choose_queries(e, p, v.i, em_shl(e, index, one)), false);
    em_end(e, &v);
    emit_store(e, &s->b, att_scratch(e, p->acc_offset), out, out_row);
    em_end(e, &i);
}

static em_val emit_strip(em *e, const block *of_block) {
    const att_plan *p = of_block->p;
    const sn_attention *a = p->a;
    att_plan gathered = *p;
    gathered.gathered = true, gathered.relative.n = 0;
    gathered.keep = att_emit_keep(e, &gathered);
    strip s = {.b = *of_block};
    s.b.gathered = true, s.b.relative_rows = NULL;
    s.b.additive_bias = att_emit_additive_bias(e, &gathered);
    s.b.softmax_mask = att_emit_softmax(e, &gathered, true);
    if (a->score || att_drops(p)) s.b.softmax = att_emit_softmax(e, &gathered, false);
    s.load_q = att_emit_load_chosen(e, p, "load_chosen_q", a->q.dtype, a->d, p->q_scale, p->word);
    s.load_acc = att_emit_load_chosen(e, p, "load_acc", p->t, a->dv, 1, 1);
    s.store_acc = att_emit_store_chosen(e, p, "store_acc", a->dv);
    s.list = att_emit_list(e, p);
    att_strip_args args = att_strip_begin(e, p, "strip");
    att_use_context(e, args.buf, args.dim, args.scratch);
    em_val zero = em_like(e, args.head, 0), tk = em_size_value(e, a->tk), v0, v1, before;
    begin_block(e, &s.b,
                &(att_block_args){
                    .head = args.head, .index = args.first, .state = zero, .k0 = zero, .k1 = tk});
    att_query_block *q = &s.b.block;
    att_block_vectors(e, p, q->tq, args.first, &v0, &before);
    att_block_vectors(e, p, q->tq, em_sub(e, args.end, 1), &before, &v1);
    s.n = em_sub(e, v1, v0);
    begin_states(e, &s);
    em_val q_row = em_size_value(e, a->q.row), out_row = em_size_value(e, a->out.row);
    em_val q_strip =
        em_gep(e, att_base(e, &a->q, q->batch, q->head), a->q.dtype, em_mul(e, q->q0, q_row));
    em_val out = att_base(e, &a->out, q->batch, q->head);
    s.b.next_q = s.b.out = att_scratch(e, p->q_offset);
    em_loop l = em_for(e, 0, tk, ATT_TILE_KEYS);
    att_list_args list = {ATT_PASS_CONTEXT(e), .tile = em_div(e, l.i, ATT_TILE_KEYS)};
    list.n = em_mul(e, s.n, p->lanes);
    em_val listed = att_list_call(e, s.list, list);
    em_branch some = em_if(e, em_cmp(e, EM_GT, listed, 0));
    tile t = {.k0 = l.i, .n = em_imin(e, em_sub(e, tk, l.i), ATT_TILE_KEYS)};
    locate_tile(e, &s.b, &t);
    em_loop g = em_for(e, 0, listed, p->nv * p->lanes);
    em_val nv = em_imin(e, em_ceil_div(e, em_sub(e, listed, g.i), p->lanes), p->nv);
    emit_gathered_tile(e, &s, &t, g.i, nv, q_strip);
    em_end(e, &g);
    em_endif(e, &some);
    em_end(e, &l);
    store_strip(e, &s, out, out_row);
    return att_end(e);
}

/* ---- the kernel ------------------------------------------------------------------------------ */

typedef struct kernel {
    const att_plan *p;
    em_val block, decode;
    em_val strip, choices; /* NULL: queries are not gathered */
} kernel;

/* The blocks of a head that belong to thread `tid` of n; items are dealt to the threads, and
 * `first` is the head's first item. Where K and V of a head are
 * large, some blocks at a time go over one KV block after the other, which stays in the cache. */
static void emit_blocks(em *e, const kernel *kernel, em_val head, em_val begin, em_val blocks,
                        em_val first, em_val n, em_val tid) {
    const att_plan *p = kernel->p;
    em_val tk = em_size_value(e, p->a->tk);
    em_val kv_block = em_i64(e, att_kv_block_keys(p));
    em_val once = em_cmp(e, EM_LE, tk, 2 * att_kv_block_keys(p));
    kv_block = em_select(e, once, em_imax(e, tk, 1), kv_block);
    em_val some = em_select(e, once, em_imax(e, blocks, 1), em_mul(e, n, ATT_STATES));
    em_loop g = em_for(e, begin, blocks, some);
    em_loop k = em_for(e, 0, em_imax(e, tk, 1), kv_block);
    em_loop i = em_for(e, g.i, em_imin(e, em_add(e, g.i, some), blocks), 1);
    em_val state = em_i64(e, 0);
    em_carries(e, &i, &state, 1);
    em_val mine = tile_is_mine(e, em_add(e, first, i.i), n, tid);
    em_branch here = em_if(e, mine);
    em_val k1 = em_imin(e, em_add(e, k.i, kv_block), tk);
    att_block_call(e, kernel->block,
                   (att_block_args){ATT_PASS_CONTEXT(e), .head = head, .index = i.i,
                                    .state = em_select(e, once, 0, state), .k0 = k.i, .k1 = k1});
    em_endif(e, &here);
    state = em_add(e, state, em_int_cast(e, mine, e->i64));
    em_end(e, &i);
    em_end(e, &k);
    em_end(e, &g);
}

/* The same, strip by strip. */
static void emit_strips(em *e, const kernel *k, em_val head, em_val blocks, em_val first, em_val n,
                        em_val tid) {
    const att_plan *p = k->p;
    em_val zero = em_like(e, head, 0), one = em_like(e, head, 1);
    em_val step = att_strip_share(e, p, blocks, n);
    em_loop i = em_for(e, 0, blocks, step);
    em_val item = em_add(e, first, LLVMBuildUDiv(e->b, i.i, step, ""));
    em_branch mine = em_if(e, tile_is_mine(e, item, n, tid));
    em_val end = em_imin(e, em_add(e, i.i, step), blocks);
    att_choices_args choices = {ATT_PASS_CONTEXT(e), .k0 = zero, .k1 = em_size_value(e, p->a->tk)};
    att_strip_range(e, p, head, i.i, end, &choices);
    att_choices_call(e, k->choices, choices);
    em_val gathers = em_load(e, SN_I64, att_scratch(e, p->gathers_offset), 1);
    em_branch br = em_if(e, em_cmp(e, EM_NE, gathers, 0));
    att_strip_call(e, k->strip,
                   (att_strip_args){ATT_PASS_CONTEXT(e), .head = head, .first = i.i, .end = end});
    em_else(e, &br);
    emit_blocks(e, k, head, i.i, end, zero, one, zero);
    em_endif(e, &br);
    em_endif(e, &mine);
    em_end(e, &i);
}

static void emit_head(em *e, const kernel *k, em_val head, em_val blocks, em_val first, em_val n,
                      em_val tid) {
    if (k->strip)
        emit_strips(e, k, head, blocks, first, n, tid);
    else
        emit_blocks(e, k, head, em_like(e, head, 0), blocks, first, n, tid);
}

/* Each thread gets the same number of whole heads, so that K and V stay in its cache. The blocks of
 * the remaining heads are dealt out, which balances causal masks. */
static void emit_all_blocks(em *e, const kernel *k) {
    const att_plan *p = k->p;
    const sn_attention *a = p->a;
    em_val zero = em_i64(e, 0), one = em_i64(e, 1), n = e->nthreads, tid = e->tid;
    em_val heads = em_mul(e, em_size_value(e, a->batch), a->heads);
    em_val blocks = em_ceil_div(e, em_ceil_div(e, em_size_value(e, a->tq), p->lanes), p->nv);
    em_val whole = em_div(e, heads, n), first = em_mul(e, whole, tid);
    att_kv_reset(e, p);
    att_relative_reset(e, p);
    em_loop h = em_for(e, first, em_add(e, first, whole), 1);
    emit_head(e, k, h.i, blocks, zero, one, zero);
    em_end(e, &h);
    em_val left = em_mul(e, whole, n);
    h = em_for(e, left, heads, 1);
    emit_head(e, k, h.i, blocks, em_mul(e, em_sub(e, h.i, left), blocks), n, tid);
    em_end(e, &h);
}

void sn_attention_emit(em *e, const char *name, const sn_attention *a) {
    att_plan p;
    if (!att_plan_make(&p, a, name, e->target, e->compute, &e->err)) return;
    bool decodes_only = att_decodes_only(a), blocks_only = a->tq.slot < 0 && !decodes_only;
    att_plan_states(&p);
    p.keep_word = att_emit_keep_word(e, &p);
    p.keep = decodes_only ? NULL : att_emit_keep(e, &p);
    kernel k = {.p = &p};
    if (!decodes_only) {
        att_functions f;
        block b = emit_functions(e, &p, &f);
        k.block = emit_block(e, b);
        if (p.strip_blocks) k.strip = emit_strip(e, &b), k.choices = att_emit_choices(e, &p);
    }
    if (!blocks_only) k.decode = att_emit_decode(e, &p);
    em_kernel(e, name);
    em_outer(e);
    if (decodes_only) {
        att_emit_decode_heads(e, &p, k.decode);
    } else if (blocks_only) {
        emit_all_blocks(e, &k);
    } else {
        em_val is_short = em_cmp(e, EM_LE, em_size_value(e, a->tq), ATT_DECODE_QUERIES);
        em_branch decodes = em_if(e, is_short);
        att_emit_decode_heads(e, &p, k.decode);
        em_else(e, &decodes);
        emit_all_blocks(e, &k);
        em_endif(e, &decodes);
    }
    em_end_kernel(e);
    if (p.max_splits > 1) att_emit_merge_splits(e, &p);
}

sn_mask_kind sn_attention_explain(const sn_attention *a, char *why, size_t size) {
    static const char *const effect[] = {
        [0] = "no tile is skipped",
        [SN_SHOWS_EMPTY] = "tiles are skipped only where the rest of the mask hides them",
        [SN_SHOWS_FULL] =
            "no tile is skipped; tiles that the rest of the mask shows run without it",
        [SN_SHOWS_EMPTY | SN_SHOWS_FULL] = "tiles are skipped, or run without mask, only where the "
                                           "rest of the mask decides them",
    };
    const sn_node *culprit = NULL;
    int shows = a->mask ? sn_interval_shows(a->mask, &culprit) : 0;
    sn_mask_kind kind = !a->mask ? SN_MASK_NONE : shows ? SN_MASK_DECIDABLE : SN_MASK_UNDECIDABLE;
    if (!why) return kind;
    if (kind == SN_MASK_NONE)
        snprintf(why, size, "no mask");
    else if (culprit)
        snprintf(why, size, "%s: `%s` of %s cannot be bounded over a tile", effect[shows],
                 sn_ops[culprit->op].name, sn_dtype_name((sn_dtype)culprit->dtype));
    else
        snprintf(why, size, "empty tiles are skipped, full tiles run without mask");
    return kind;
}
