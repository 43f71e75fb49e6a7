/* backward.c: the backward attention kernel: its plan and its loops.
 *
 * For a query block i of a head [Dao, FlashAttention-2, 2023, algorithm 2, with its loops
 * exchanged]; dk and dv are sums over all query blocks of the heads that share a K/V head:
 *
 *   load q_i, do_i;  D_i = rowsum(do_i * out_i) - dlse_i;  dq_i = 0 emit_enter
 *   for each KV tile j that the mask does not hide:                 emit_block
 *       s = mask(score(q_i k_j^T));  dp = do_i v_j^T                emit_qk_dp, softmax_grad.c
 *       p = e^(s - lse_i)                                           softmax_grad.c
 *       ds = p (dp - D_i), through the derivative of score          softmax_grad.c
 *       dv_j += p^T do_i;  dk_j += ds^T q_i                         emit_dkv
 *       dq_i += ds k_j                                              emit_dq
 *   store dq_i                                                      emit_store_dq
 *
 * dk and dv of all keys of a head are summed in scratch, dq in scratch of the block. Thus five
 * products per tile suffice where a thread has a K/V head for itself. Heads that remain are
 * computed twice, divided by queries for dq and by keys for dk and dv, with the same code in the
 * same order of summation, so that the bits are the same. */
#include "codegen/attention/backward.h"
#include "codegen/emit/vmath.h"

#include <math.h>

/* What a call of `block` computes. Gradients of captured tensors belong to dq. */
enum { COMPUTE_DQ = 1, COMPUTE_DKV = 2 };

/* ---- plan ------------------------------------------------------------------------------------ */

static bool check_spec(const sn_attention_grad *g, sn_error *err) {
    const sn_attention_operand *o[] = {&g->dout, &g->dq, &g->dk, &g->dv};
    for (int i = 0; i < 4; i++)
        if (!sn_dtype_is_float(o[i]->dtype))
            return sn_fail(err, SN_ERR_INTERNAL, "attention gradient: operand %d is %s", i,
                           sn_dtype_name(o[i]->dtype));
    if (g->a.lse_buf < 0 || (g->a.score != NULL) != (g->score != NULL))
        return sn_fail(err, SN_ERR_INTERNAL,
                       "attention gradient: log-sum-exp or the score's derivative is missing");
    return true;
}

static bool make_plan(att_backward *b, const sn_attention_grad *g, const char *name,
                      const sn_target *t, sn_dtype compute, sn_error *err) {
    if (!check_spec(g, err) || !att_plan_make(&b->p, &g->a, name, t, compute, err)) return false;
    att_plan *p = &b->p;
    int64_t column = p->qb * p->esize;
    b->g = g;
    b->d = att_padded(p, g->a.d);
    b->dv = att_padded(p, g->a.dv);
    p->scan_v = false;               /* weights of 0 are tested one by one */
    p->pack = p->pack || p->convert; /* few queries take no other way here */
    p->copies = 1u << ATT_K_ROWS | 1u << ATT_V_ROWS | 1u << att_copy_for_sums(p, false);
    p->derivative = g->score ? g->score->region : NULL;
    att_relative_find(p);
    att_find_relative_reads(b);
    b->dp_offset = att_place(&p->tail_offset, (ATT_TILE_KEYS + 16) * column);
    b->do_offset = att_place(&p->tail_offset, g->a.dv * column);
    b->ds_offset = b->dp_offset, b->do_floats_offset = b->do_offset;
    if (p->word > 1) {
        b->ds_offset = att_place(&p->tail_offset, (ATT_TILE_KEYS + 16) / p->word * column);
        b->do_floats_offset = att_place(&p->tail_offset, g->a.dv * column);
    }
    b->dq_offset = att_place(&p->tail_offset, g->a.d * column);
    b->q_rows_offset = att_place(&p->tail_offset, (int64_t)p->qb / p->word * b->d * p->esize);
    b->do_rows_offset = att_place(&p->tail_offset, (int64_t)p->qb / p->word * b->dv * p->esize);
    b->m_offset = att_place(&p->tail_offset, column);
    b->log2_l_offset = att_place(&p->tail_offset, column);
    b->delta_offset = att_place(&p->tail_offset, column);
    b->diagonal_offset = att_place(&p->tail_offset, b->n_relative * att_diagonal_bytes(p));
    if (!g->n_table) att_gather_find(p, b->d, b->d + b->dv);
    return true;
}

int64_t sn_attention_grad_scratch(const sn_attention_grad *g, const sn_target *t, sn_dtype compute,
                                  int64_t tq, int64_t tk) {
    att_backward b;
    if (!make_plan(&b, g, "", t, compute, NULL)) return 0;
    int64_t rows = b.n_relative * att_relative_max_elements(b.p.lanes, tq, tk) * b.p.esize;
    return att_scratch_bytes(&b.p, tq, tk, b.d + b.dv + att_gather_key_elements(&b.p)) + rows;
}

/* ---- a query block --------------------------------------------------------------------------- */

typedef struct functions {
    em_val qk[ATT_NV + 1], dp[ATT_NV + 1], dq[ATT_NV + 1]; /* by number of vectors */
    em_val dk, dv, copy_q, copy_do, load_q, load_do, load_out, store_q;
    em_val softmax_grad, softmax_grad_mask, pack_kv, relative_rows;
    em_val store_k, store_v, zero, zero_tables, flush_relative_sums;
} functions;

static void emit_functions(em *e, const att_backward *b, functions *f) {
    const att_plan *p = &b->p;
    const sn_attention_grad *g = b->g;
    const sn_attention *a = &g->a;
    int scaled = p->s_scale != 1 ? ATT_QK_SCALE : 0;
    bool same = a->d == a->dv;
    for (int nv = 1; nv <= ATT_NV; nv++) {
        f->qk[nv] = att_emit_qk(e, p, "qk", nv, a->d, scaled);
        f->dp[nv] = same && !scaled ? f->qk[nv] : att_emit_qk(e, p, "dp", nv, a->dv, 0);
        f->dq[nv] = att_emit_pv(e, p, "dq", nv, a->d);
    }
    f->dk = att_emit_dkv(e, p, "dk", b->d, b->d, b->d);
    f->dv = same ? f->dk : att_emit_dkv(e, p, "dv", b->dv, b->dv, b->dv);
    f->copy_q = att_emit_copy_rows(e, p, "copy_q", a->q.dtype, a->d, 1);
    f->copy_do = att_emit_copy_rows(e, p, "copy_do", g->dout.dtype, a->dv, 1);
    f->load_q = att_emit_load_queries(e, p, "load_q", a->q.dtype, a->d, p->q_scale, p->word);
    f->load_do = att_emit_load_queries(e, p, "load_do", g->dout.dtype, a->dv, 1, 1);
    f->load_out = att_emit_load_queries(e, p, "load_out", a->out.dtype, a->dv, 1, 1);
    f->store_q = att_emit_store_queries(e, p, "store_q", g->dq.dtype, a->d, a->scale);
    f->softmax_grad = att_emit_softmax_grad(e, b, false);
    f->softmax_grad_mask = a->mask ? att_emit_softmax_grad(e, b, true) : NULL;
    f->relative_rows = att_emit_relative_rows(e, p);
    f->pack_kv = p->pack ? att_emit_pack_kv(e, p, true) : NULL;
    f->store_k = att_emit_store_rows(e, p, "store_k", g->dk.dtype, a->d, a->scale);
    f->store_v = att_emit_store_rows(e, p, "store_v", g->dv.dtype, a->dv, 1);
    f->zero = att_emit_zero(e, p, "zero");
    f->zero_tables = att_emit_zero_tables(e, b);
    f->flush_relative_sums = att_emit_flush_relative_sums(e, b);
}

/* Query block `index` of head batch * heads + head, over keys k0 .. k1 - 1; outputs: COMPUTE_DQ,
 * COMPUTE_DKV or both. */
/* clang-format off */
#define ATT_BACKWARD_BLOCK_PARAMS(P) \
    ATT_CONTEXT(P) P(i64, head) P(i64, index) P(i64, k0) P(i64, k1) P(i64, outputs)
/* clang-format on */
ATT_SIGNATURE(att_backward_block, ATT_BACKWARD_BLOCK_PARAMS)

typedef struct block {
    const att_backward *b;
    const functions *f;
    att_query_block block;
    em_val kv_head, k_base, v_base, computes_dq, computes_dkv;
} block;

/* Query r of operand o of the block's head. */
static em_val row_of(em *e, const block *w, const sn_attention_operand *o, em_val r) {
    em_val base = att_base(e, o, w->block.batch, w->block.head);
    return em_gep(e, base, o->dtype, em_mul(e, r, em_size_value(e, o->row)));
}

/* do as words: elements of one lane side by side. */
static void emit_round_do(em *e, const block *w, em_val v) {
    const att_backward *b = w->b;
    const att_plan *p = &b->p;
    if (b->do_floats_offset == b->do_offset) return;
    em_val from = att_column(e, p, att_scratch(e, b->do_floats_offset), v);
    em_val to = att_column(e, p, att_scratch(e, b->do_offset), v);
    em_loop l = em_for(e, 0, att_words(p, p->a->dv), 1);
    em_val second = em_add(e, em_mul(e, l.i, 2), 1), x[2];
    em_val exists = em_cmp(e, EM_LT, second, p->a->dv);
    x[0] = att_load(e, p, em_gep(e, from, p->t, em_mul(e, l.i, 2 * p->qb)));
    x[1] =
        att_load(e, p, em_gep(e, from, p->t, em_mul(e, em_imin(e, second, p->a->dv - 1), p->qb)));
    x[1] = em_select(e, exists, x[1], em_vf(e, 0));
    att_store(e, p, att_join_factors(e, p, x), em_gep(e, to, p->t, em_mul(e, l.i, p->qb)));
    em_end(e, &l);
}

/* D = rowsum(do * out), m and log2 l of vector v, queries q .. q + rows - 1, or of those `rows` that
 * are index[] behind q. m is +inf for queries
 * that do not exist or see no key: all their weights become 0. */
static void emit_delta_lse(em *e, const block *w, em_val v, em_val q, em_val rows, em_val index) {
    const att_plan *p = &w->b->p;
    em_val x = att_column(e, p, att_scratch(e, w->b->do_floats_offset), v);
    em_val y = att_column(e, p, att_scratch(e, p->acc_offset), v);
    em_loop l = em_for(e, 0, p->a->dv, 1);
    em_val delta = em_vf(e, 0), at = em_mul(e, l.i, p->qb), lse[3];
    em_carries(e, &l, &delta, 1);
    em_val a = att_load(e, p, em_gep(e, x, p->t, at)), b = att_load(e, p, em_gep(e, y, p->t, at));
    tile_add(e, &delta, 1, a, &b);
    em_end(e, &l);
    for (int i = 0; i < p->a->lse_parts; i++) {
        em_val at = att_lse_ptr(e, p, w->block.batch, w->block.head, q, i);
        lse[i] = index ? em_gather(e, p->t, at, index, em_tail_mask(e, rows, p->lanes))
                       : em_load_tail(e, p->t, at, p->lanes, rows);
    }
    if (p->a->lse_parts == 3) delta = em_sub(e, delta, lse[2]);
    att_store(e, p, delta, att_column(e, p, att_scratch(e, w->b->delta_offset), v));
    if (p->a->weights) { /* the factor of the row in place of m; D times the divisor's derivative */
        em_val exists = em_tail_mask(e, rows, p->lanes), to;
        em_val factor = em_select(e, exists, lse[0], em_vf(e, 0));
        em_val slope = em_select(e, exists, lse[1], em_vf(e, 0));
        to = att_column(e, p, att_scratch(e, w->b->delta_offset), v);
        att_store(e, p, em_mul(e, att_load(e, p, to), slope), to);
        att_store(e, p, factor, att_column(e, p, att_scratch(e, w->b->m_offset), v));
        return;
    }
    em_val sees = em_cmp(e, EM_NE, lse[1], em_vf(e, -INFINITY));
    em_val real = em_and(e, em_tail_mask(e, rows, p->lanes), sees);
    em_val m = em_select(e, real, lse[0], em_vf(e, INFINITY));
    em_val log2_l = em_select(e, real, em_mul(e, lse[1], em_vf(e, ATT_LOG2_E)), em_vf(e, 0));
    att_store(e, p, m, att_column(e, p, att_scratch(e, w->b->m_offset), v));
    att_store(e, p, log2_l, att_column(e, p, att_scratch(e, w->b->log2_l_offset), v));
}

/* Copies n_rows queries of o to scratch, with zeros up to n_dst. */
static void copy_rows(em *e, const block *w, em_val fn, const sn_attention_operand *o, em_val n_dst,
                      int64_t offset) {
    att_copy_rows_args args = {.n_rows = w->block.n_rows, .n_dst = n_dst};
    args.src = row_of(e, w, o, w->block.q0);
    args.stride = em_size_value(e, o->row);
    args.dst = att_scratch(e, offset);
    att_copy_rows_call(e, fn, args);
}

/* Loads what the tiles need of the block's queries: q, do, D, m, log2 l; dq = 0. */
static void emit_enter(em *e, const block *w) {
    const att_backward *b = w->b;
    const att_plan *p = &b->p;
    const sn_attention *a = p->a;
    const sn_attention_operand *from[] = {&a->q, &b->g->dout, &a->out};
    const em_val load[] = {w->f->load_q, w->f->load_do, w->f->load_out};
    const int64_t to[] = {p->q_offset, b->do_floats_offset, p->acc_offset};
    em_loop l = em_for(e, 0, w->block.nv, 1);
    em_val q = em_add(e, w->block.q0, em_mul(e, l.i, p->lanes));
    em_val rows = em_imin(e, em_sub(e, w->block.tq, q), p->lanes);
    for (int i = 0; i < 3; i++) {
        att_load_queries_args args = {.n_rows = rows};
        args.src = row_of(e, w, from[i], q);
        args.stride = em_size_value(e, from[i]->row);
        args.dst = att_column(e, p, att_scratch(e, to[i]), l.i);
        att_load_queries_call(e, load[i], args);
    }
    emit_delta_lse(e, w, l.i, q, rows, NULL);
    emit_round_do(e, w, l.i);
    em_end(e, &l);
    em_val all = em_mul(e, w->block.nv, p->lanes);
    em_branch dkv = em_if(e, w->computes_dkv);
    copy_rows(e, w, w->f->copy_q, &a->q, all, b->q_rows_offset);
    copy_rows(e, w, w->f->copy_do, &b->g->dout, all, b->do_rows_offset);
    em_endif(e, &dkv);
    em_branch dq = em_if(e, w->computes_dq);
    att_zero_args clear = {.elements = em_i64(e, (int64_t)a->d * p->qb)};
    clear.dst = att_scratch(e, b->dq_offset);
    att_zero_call(e, w->f->zero, clear);
    em_endif(e, &dq);
}

static void emit_store_dq(em *e, const block *w) {
    const att_plan *p = &w->b->p;
    const sn_attention_operand *dq = &w->b->g->dq;
    em_loop l = em_for(e, 0, w->block.nv, 1);
    em_val q = em_add(e, w->block.q0, em_mul(e, l.i, p->lanes));
    att_store(e, p, em_vf(e, 1), att_scratch(e, p->l_offset)); /* dq is not divided by l */
    att_store_queries_args args = {.l = att_scratch(e, p->l_offset)};
    args.acc = att_column(e, p, att_scratch(e, w->b->dq_offset), l.i);
    args.dst = row_of(e, w, dq, q);
    args.stride = em_size_value(e, dq->row);
    args.n_rows = em_imin(e, em_sub(e, w->block.tq, q), p->lanes);
    args.dummy = att_scratch(e, p->dummy_offset);
    att_store_queries_call(e, w->f->store_q, args);
    em_end(e, &l);
}

/* ---- a tile ---------------------------------------------------------------------------------- */

typedef struct tile {
    em_val k0, n, k, k_stride, v, v_stride;
    em_val sum_k, sum_k_stride; /* K for dq */
} tile;

static void locate_tile(em *e, const block *w, tile *t) {
    const att_plan *p = &w->b->p;
    const sn_attention *a = p->a;
    if (p->pack) {
        em_val end = em_add(e, t->k0, ATT_TILE_KEYS);
        em_val n_packed = em_load(e, SN_I64, att_scratch(e, p->key_offset + 8), 1);
        em_branch br = em_if(e, em_cmp(e, EM_LT, n_packed, end));
        att_pack_kv_call(e, w->f->pack_kv,
                         (att_pack_kv_args){ATT_PASS_CONTEXT(e), .batch = w->block.batch,
                                            .kv_head = w->kv_head, .end = end});
        em_endif(e, &br);
        att_copy for_sums = att_copy_for_sums(p, false);
        t->k = att_packed_row(e, p, w->block.tk, ATT_K_ROWS, t->k0);
        t->v = att_packed_row(e, p, w->block.tk, ATT_V_ROWS, t->k0);
        t->sum_k = att_packed_row(e, p, w->block.tk, for_sums, t->k0);
        t->k_stride = em_i64(e, att_packed_width(p, ATT_K_ROWS));
        t->v_stride = em_i64(e, att_packed_width(p, ATT_V_ROWS));
        t->sum_k_stride = em_i64(e, att_packed_width(p, for_sums));
        return;
    }
    t->k_stride = em_size_value(e, a->k.row), t->v_stride = em_size_value(e, a->v.row);
    t->k = em_gep(e, w->k_base, a->k.dtype, em_mul(e, t->k0, t->k_stride));
    t->v = em_gep(e, w->v_base, a->v.dtype, em_mul(e, t->k0, t->v_stride));
    t->sum_k = t->k, t->sum_k_stride = t->k_stride;
}

/* Key k, vector v of an array [key][query] in scratch. */
static em_val tile_row(em *e, const att_plan *p, int64_t offset, em_val k, em_val v) {
    em_val row = em_gep(e, att_scratch(e, offset), p->t, em_mul(e, k, p->qb));
    return att_column(e, p, row, v);
}

/* qk = q k^T and dp = do v^T of a segment. */
static void emit_qk_dp(em *e, const block *w, const tile *t, att_segment g) {
    const att_plan *p = &w->b->p;
    em_val zero = em_i64(e, 0), qk_max = att_scratch(e, p->qk_max_offset);
    for (int of_v = 0; of_v < 2; of_v++) {
        em_val base = of_v ? t->v : t->k, stride = of_v ? t->v_stride : t->k_stride;
        em_val row = em_gep(e, base, p->t, em_mul(e, g.k0, stride));
        att_qk_args args = {.k = row,
                            .k_stride = stride,
                            .qk_max = qk_max,
                            .prefetch_row = zero,
                            .prefetch0 = row,
                            .prefetch_step0 = zero,
                            .prefetch1 = row,
                            .prefetch_step1 = zero};
        args.keys = em_sub(e, g.k1, g.k0);
        args.k_rows = em_sub(e, t->n, g.k0);
        args.q = att_column(e, p, att_scratch(e, of_v ? w->b->do_offset : p->q_offset), g.v0);
        args.s = tile_row(e, p, of_v ? w->b->dp_offset : p->s_offset, g.k0, g.v0);
        att_qk_call_by_count(e, of_v ? w->f->dp : w->f->qk, em_sub(e, g.v1, g.v0), args);
    }
}

/* dv += p^T do, dk += ds^T q of a segment. */
static void emit_dkv(em *e, const block *w, const tile *t, att_segment g) {
    const att_backward *b = w->b;
    const att_plan *p = &b->p;
    const int vector = p->lanes / p->word; /* words of a vector of queries */
    em_val keys = em_sub(e, g.k1, g.k0), key = em_add(e, t->k0, g.k0);
    em_val first = em_mul(e, g.v0, vector), queries = em_mul(e, em_sub(e, g.v1, g.v0), vector);
    em_branch br = em_if(e, w->computes_dkv);
    for (int of_v = 1; of_v >= 0; of_v--) {
        em_val rows = att_scratch(e, of_v ? b->do_rows_offset : b->q_rows_offset);
        att_dkv_args args = {.keys = keys, .queries = queries};
        args.c = att_dkv_row(e, b, w->block.tk, of_v, key);
        args.next = em_gep(e, args.c, p->t, (int64_t)ATT_TILE_KEYS * (of_v ? b->dv : b->d));
        args.a = att_scratch(e, of_v ? p->s_offset : b->dp_offset);
        args.a = em_gep(e, args.a, p->t, em_add(e, em_mul(e, g.k0, p->qb), first));
        args.b = em_gep(e, rows, p->t, em_mul(e, first, of_v ? b->dv : b->d));
        att_dkv_call(e, of_v ? w->f->dv : w->f->dk, args);
    }
    em_endif(e, &br);
}

/* dq += ds k of a segment. */
static void emit_dq(em *e, const block *w, const tile *t, att_segment g) {
    const att_backward *b = w->b;
    const att_plan *p = &b->p;
    em_branch br = em_if(e, w->computes_dq);
    em_val word = att_count_words(e, p, g.k0);
    att_pv_args args = {.v_stride = t->sum_k_stride};
    args.v = em_gep(e, t->sum_k, p->t, em_mul(e, word, t->sum_k_stride));
    args.p = tile_row(e, p, b->ds_offset, word, g.v0);
    args.acc = att_column(e, p, att_scratch(e, b->dq_offset), g.v0);
    args.keys = att_count_words(e, p, em_sub(e, g.k1, g.k0));
    args.next_k = em_gep(e, t->k, p->t, em_mul(e, ATT_TILE_KEYS, t->k_stride));
    args.next_k_step = em_mul(e, t->k_stride, p->esize * p->word);
    args.next_v = em_gep(e, t->v, p->t, em_mul(e, ATT_TILE_KEYS, t->v_stride));
    args.next_v_step = em_mul(e, t->v_stride, p->esize * p->word);
    att_pv_call_by_count(e, w->f->dq, em_sub(e, g.v1, g.v0), args);
    em_endif(e, &br);
}

/* s and dp become p and ds, for each vector that sees keys of the tile. */
static void emit_softmax_grad(em *e, const block *w, const tile *t, em_val partial) {
    em_loop l = em_for(e, 0, w->block.nv, 1);
    em_val lo, hi;
    att_load_visible_keys(e, &w->b->p, l.i, &lo, &hi);
    em_branch sees = em_if(e, em_cmp(e, EM_LT, lo, hi));
    att_softmax_grad_args args = {ATT_PASS_CONTEXT(e),
                                  .v = l.i,
                                  .lo = lo,
                                  .hi = hi,
                                  .k0 = t->k0,
                                  .q0 = w->block.q0,
                                  .batch = w->block.batch,
                                  .head = w->block.head,
                                  .tables = w->computes_dq};
    em_val mask = w->f->softmax_grad_mask;
    em_branch masked = em_if(e, em_and(e, partial, att_vector_is_partial(e, &w->b->p, l.i)));
    att_softmax_grad_call(e, mask ? mask : w->f->softmax_grad, args);
    em_else(e, &masked);
    att_softmax_grad_call(e, w->f->softmax_grad, args);
    em_endif(e, &masked);
    em_endif(e, &sees);
    em_end(e, &l);
}

static void emit_tile(em *e, const block *w, tile *t, em_val n_seg, em_val partial) {
    const att_plan *p = &w->b->p;
    em_loop l = em_for(e, 0, n_seg, 1);
    emit_qk_dp(e, w, t, att_load_segment(e, p, l.i));
    em_end(e, &l);
    att_relative_extend(e, w->f->relative_rows, &w->block, t->k0, t->n);
    emit_softmax_grad(e, w, t, partial);
    l = em_for(e, 0, n_seg, 1);
    att_segment g = att_load_segment(e, p, l.i);
    emit_dkv(e, w, t, g);
    emit_dq(e, w, t, g);
    em_end(e, &l);
}

/* Sets the block's fields from its parameters. */
static void begin_block(em *e, block *w, const att_backward_block_args *q) {
    const att_plan *p = &w->b->p;
    const sn_attention *a = p->a;
    w->computes_dq = em_cmp(e, EM_NE, em_and(e, q->outputs, COMPUTE_DQ), 0);
    w->computes_dkv = em_cmp(e, EM_NE, em_and(e, q->outputs, COMPUTE_DKV), 0);
    w->block.tq = em_size_value(e, a->tq), w->block.tk = em_size_value(e, a->tk);
    w->block.batch = em_div(e, q->head, a->heads), w->block.head = em_rem(e, q->head, a->heads);
    w->kv_head = em_div(e, w->block.head, a->gqa_ratio);
    w->k_base = att_base(e, &a->k, w->block.batch, w->kv_head);
    w->v_base = att_base(e, &a->v, w->block.batch, w->kv_head);
    em_val vectors = em_ceil_div(e, w->block.tq, p->lanes),
           blocks = em_ceil_div(e, vectors, ATT_NV);
    em_val v0 = em_div(e, em_mul(e, vectors, q->index), blocks);
    em_val v1 = em_div(e, em_mul(e, vectors, em_add(e, q->index, 1)), blocks);
    w->block.q0 = em_mul(e, v0, p->lanes), w->block.nv = em_sub(e, v1, v0);
    w->block.n_rows =
        em_imin(e, em_mul(e, w->block.nv, p->lanes), em_sub(e, w->block.tq, w->block.q0));
    if (p->pack) att_kv_begin_head(e, p, em_div(e, q->head, a->gqa_ratio));
    att_relative_begin_head(e, p, q->head);
}

static em_val emit_block(em *e, const att_backward *b, const functions *f) {
    const att_plan *p = &b->p;
    att_backward_block_args q = att_backward_block_begin(e, p, "block");
    att_use_context(e, q.buf, q.dim, q.scratch);
    block w = {.b = b, .f = f, .block = {.p = p}};
    begin_block(e, &w, &q);
    att_classifier all, c;
    att_mask_begin(e, &w.block, &all);
    em_val any = att_mask_tile(e, &w.block, &all, q.k0, em_sub(e, q.k1, q.k0)).hi;
    em_branch needed = em_if(e, em_or(e, w.computes_dq, any));
    att_mask_begin(e, &w.block, &c);
    emit_enter(e, &w);
    em_loop l = em_for(e, q.k0, q.k1, ATT_TILE_KEYS);
    tile t = {.k0 = l.i, .n = em_imin(e, em_sub(e, w.block.tk, l.i), ATT_TILE_KEYS)};
    sn_interval sees = att_mask_tile(e, &w.block, &c, t.k0, t.n);
    em_branch visible = em_if(e, sees.hi);
    em_val partial = em_not(e, sees.lo);
    em_val n_seg = att_mask_segments(e, &w.block, &c, t.k0, t.n, partial);
    em_branch some = em_if(e, em_cmp(e, EM_GT, n_seg, 0));
    locate_tile(e, &w, &t);
    emit_tile(e, &w, &t, n_seg, partial);
    em_endif(e, &some);
    em_endif(e, &visible);
    em_end(e, &l);
    em_branch dq = em_if(e, w.computes_dq);
    emit_store_dq(e, &w);
    em_endif(e, &dq);
    em_endif(e, &needed);
    return att_end(e);
}

/* ---- a strip of queries: those that see a KV tile are gathered ------------------------------- */

/* Query blocks first .. end - 1; the rest as for a block. */
/* clang-format off */
#define ATT_BACKWARD_STRIP_PARAMS(P) \
    ATT_CONTEXT(P) P(i64, head) P(i64, first) P(i64, end) P(i64, k0) P(i64, k1) P(i64, outputs)
/* clang-format on */
ATT_SIGNATURE(att_backward_strip, ATT_BACKWARD_STRIP_PARAMS)

typedef struct strip {
    block w; /* its queries are those of the strip, or some of them */
    em_val load_q, load_do, load_out, load_dq, store_dq, copy_q, copy_do, list;
    em_val n; /* queries, whole vectors */
} strip;

/* Rows of o to columns or rows in scratch, those of vector v. */
static void gather_rows(em *e, const strip *s, em_val fn, const sn_attention_operand *o, em_val v,
                        em_val columns) {
    att_chosen_args args = {.rows = row_of(e, &s->w, o, s->w.block.q0), .columns = columns};
    args.stride = em_size_value(e, o->row);
    args.index = att_chosen_index(e, &s->w.b->p, v);
    att_chosen_call(e, fn, args);
}

/* dq of vector v, from the strip to the block or back. */
static void move_dq(em *e, const strip *s, em_val fn, em_val v) {
    const att_backward *b = s->w.b;
    att_chosen_args args = {.rows = att_scratch(e, b->p.strip_state_offset)};
    args.stride = em_i64(e, b->d);
    args.index = att_chosen_index(e, &b->p, v);
    args.columns = att_column(e, &b->p, att_scratch(e, b->dq_offset), v);
    att_chosen_call(e, fn, args);
}

/* What emit_enter loads, of the `rows` queries of vector v. */
static void enter_gathered(em *e, const strip *s, em_val v, em_val index, em_val rows) {
    const att_backward *b = s->w.b;
    const att_plan *p = &b->p;
    const sn_attention_operand *from[] = {&p->a->q, &b->g->dout, &p->a->out};
    const em_val load[] = {s->load_q, s->load_do, s->load_out};
    const int64_t to[] = {p->q_offset, b->do_floats_offset, p->acc_offset};
    for (int i = 0; i < 3; i++)
        gather_rows(e, s, load[i], from[i], v, att_column(e, p, att_scratch(e, to[i]), v));
    emit_delta_lse(e, &s->w, v, s->w.block.q0, rows, index);
    emit_round_do(e, &s->w, v);
    em_branch dkv = em_if(e, s->w.computes_dkv);
    em_val row = em_mul(e, v, p->lanes / p->word);
    gather_rows(e, s, s->copy_q, from[0], v,
                em_gep(e, att_scratch(e, b->q_rows_offset), p->t, em_mul(e, row, b->d)));
    gather_rows(e, s, s->copy_do, from[1], v,
                em_gep(e, att_scratch(e, b->do_rows_offset), p->t, em_mul(e, row, b->dv)));
    em_endif(e, &dkv);
    em_branch dq = em_if(e, s->w.computes_dq);
    move_dq(e, s, s->load_dq, v);
    em_endif(e, &dq);
}

/* The listed queries from `first` on. Lanes behind the last one have no weights, and their dq is not that
 * of a query. */
static void emit_gathered_tile(em *e, strip *s, tile *t, em_val first, em_val listed) {
    const att_plan *p = &s->w.b->p;
    em_val left = em_sub(e, listed, first), step = em_i64(e, p->lanes);
    em_val nv = s->w.block.nv = em_imin(e, em_ceil_div(e, left, p->lanes), ATT_NV);
    em_val one = att_mask_whole(e, p, t->n, nv);
    em_loop v = em_for(e, 0, nv, 1);
    em_val at = em_mul(e, v.i, step), rows = em_imin(e, em_sub(e, left, at), step);
    em_val index = att_choose_queries(e, p, v.i, att_listed(e, p, em_add(e, first, at)));
    enter_gathered(e, s, v.i, index, rows);
    em_end(e, &v);
    emit_tile(e, &s->w, t, one, em_i1(e, true));
    em_branch dq = em_if(e, s->w.computes_dq);
    em_loop u = em_for(e, 0, nv, 1);
    em_val of = att_chosen_index(e, p, u.i), exists;
    exists = em_tail_mask(e, em_sub(e, left, em_mul(e, u.i, step)), p->lanes);
    index = em_load(e, SN_I32, of, p->lanes);
    em_store(e, SN_I32, of, em_select(e, exists, index, em_like(e, index, p->strip_rows)));
    move_dq(e, s, s->store_dq, u.i);
    em_end(e, &u);
    em_endif(e, &dq);
}

/* dq of all queries, block by block. */
static void store_strip(em *e, strip *s) {
    const att_backward *b = s->w.b;
    const att_plan *p = &b->p;
    em_val q0 = s->w.block.q0, step = em_i64(e, p->lanes);
    em_loop i = em_for(e, 0, s->n, ATT_NV * p->lanes);
    s->w.block.q0 = em_add(e, q0, i.i);
    s->w.block.nv = em_imin(e, em_ceil_div(e, em_sub(e, s->n, i.i), p->lanes), ATT_NV);
    em_loop v = em_for(e, 0, s->w.block.nv, 1);
    em_val from = em_int_cast(e, em_add(e, i.i, em_mul(e, v.i, step)), e->i32);
    em_val index = em_add(e, from, em_iota(e, e->i32, p->lanes));
    em_store(e, SN_I32, att_chosen_index(e, p, v.i), index);
    move_dq(e, s, s->load_dq, v.i);
    em_end(e, &v);
    emit_store_dq(e, &s->w);
    em_end(e, &i);
}

static em_val emit_strip(em *e, const att_backward *b, const functions *f) {
    const att_plan *p = &b->p;
    const sn_attention *a = p->a;
    if (!p->strip_blocks) return NULL;
    att_backward gathered = *b;
    gathered.p.gathered = true, gathered.p.relative.n = 0;
    gathered.p.keep = att_emit_keep(e, &gathered.p);
    functions of = *f;
    of.softmax_grad_mask = att_emit_softmax_grad(e, &gathered, true);
    if (a->score || att_drops(p)) of.softmax_grad = att_emit_softmax_grad(e, &gathered, false);
    of.relative_rows = NULL;
    strip s = {.w = {.b = b, .f = &of, .block = {.p = p}}, .list = att_emit_list(e, p)};
    sn_dtype t_do = b->g->dout.dtype;
    s.load_q = att_emit_load_chosen(e, p, "load_chosen_q", a->q.dtype, a->d, p->q_scale, p->word);
    s.load_do = att_emit_load_chosen(e, p, "load_chosen_do", t_do, a->dv, 1, 1);
    s.load_out = att_emit_load_chosen(e, p, "load_chosen_out", a->out.dtype, a->dv, 1, 1);
    s.load_dq = att_emit_load_chosen(e, p, "load_chosen_dq", p->t, a->d, 1, 1);
    s.store_dq = att_emit_store_chosen(e, p, "store_chosen_dq", a->d);
    s.copy_q = att_emit_copy_chosen(e, p, "copy_chosen_q", a->q.dtype, a->d);
    s.copy_do = att_emit_copy_chosen(e, p, "copy_chosen_do", t_do, a->dv);
    att_backward_strip_args q = att_backward_strip_begin(e, p, "strip");
    att_use_context(e, q.buf, q.dim, q.scratch);
    att_backward_block_args first = {.head = q.head, .index = q.first, .k0 = q.k0, .k1 = q.k1};
    first.outputs = q.outputs;
    begin_block(e, &s.w, &first);
    em_val v0, v1, before;
    att_block_vectors(e, p, s.w.block.tq, q.first, &v0, &before);
    att_block_vectors(e, p, s.w.block.tq, em_sub(e, q.end, 1), &before, &v1);
    s.n = em_mul(e, em_sub(e, v1, v0), p->lanes);
    att_zero_args clear = {.dst = att_scratch(e, p->strip_state_offset)};
    clear.elements = em_mul(e, s.n, b->d);
    em_branch dq = em_if(e, s.w.computes_dq);
    att_zero_call(e, f->zero, clear);
    em_endif(e, &dq);
    em_loop l = em_for(e, q.k0, q.k1, ATT_TILE_KEYS);
    att_list_args list = {ATT_PASS_CONTEXT(e), .tile = em_div(e, l.i, ATT_TILE_KEYS), .n = s.n};
    em_val listed = att_list_call(e, s.list, list);
    em_branch some = em_if(e, em_cmp(e, EM_GT, listed, 0));
    tile t = {.k0 = l.i, .n = em_imin(e, em_sub(e, s.w.block.tk, l.i), ATT_TILE_KEYS)};
    locate_tile(e, &s.w, &t);
    em_loop g = em_for(e, 0, listed, ATT_NV * p->lanes);
    emit_gathered_tile(e, &s, &t, g.i, listed);
    em_end(e, &g);
    em_endif(e, &some);
    em_end(e, &l);
    em_branch stored = em_if(e, s.w.computes_dq);
    store_strip(e, &s);
    em_endif(e, &stored);
    return att_end(e);
}

/* ---- the kernel ------------------------------------------------------------------------------ */

/* Below, head is batch * heads + head, and kv_head likewise. */
typedef struct kernel {
    const att_backward *b;
    const functions *f;
    em_val block, blocks, tk;
    em_val strip, choices; /* NULL: queries are not gathered */
} kernel;

static void call_block(em *e, const kernel *k, em_val head, em_val index, em_val k0, em_val k1,
                       int outputs) {
    att_backward_block_call(e, k->block,
                            (att_backward_block_args){ATT_PASS_CONTEXT(e), .head = head,
                                                      .index = index, .k0 = k0, .k1 = k1,
                                                      .outputs = em_i64(e, outputs)});
}

/* Query blocks first .. first + step - 1 of a head, those that exist. */
static void call_blocks(em *e, const kernel *k, em_val head, em_val first, em_val step, em_val k0,
                        em_val k1, int outputs) {
    const att_plan *p = &k->b->p;
    if (!k->strip) {
        call_block(e, k, head, first, k0, k1, outputs);
        return;
    }
    em_val end = em_imin(e, em_add(e, first, step), k->blocks);
    att_choices_args choices = {ATT_PASS_CONTEXT(e), .k0 = k0, .k1 = k1};
    att_strip_range(e, p, head, first, end, &choices);
    att_choices_call(e, k->choices, choices);
    em_val gathers = em_cmp(e, EM_NE, em_load(e, SN_I64, att_scratch(e, p->gathers_offset), 1), 0);
    /* dk and dv add pairs of queries, which must not depend on how many keys are at hand */
    if (p->word > 1 && outputs & COMPUTE_DKV) gathers = em_i1(e, true);
    em_branch br = em_if(e, gathers);
    att_backward_strip_args args = {ATT_PASS_CONTEXT(e), .head = head, .first = first, .end = end};
    args.k0 = k0, args.k1 = k1, args.outputs = em_i64(e, outputs);
    att_backward_strip_call(e, k->strip, args);
    em_else(e, &br);
    em_loop i = em_for(e, first, end, 1);
    call_block(e, k, head, i.i, k0, k1, outputs);
    em_end(e, &i);
    em_endif(e, &br);
}

/* After all blocks of a head. */
static void flush_relative_sums(em *e, const kernel *k, em_val head) {
    if (!k->f->flush_relative_sums) return;
    att_head_args args = {ATT_PASS_CONTEXT(e)};
    args.batch = em_div(e, head, k->b->p.a->heads), args.head = em_rem(e, head, k->b->p.a->heads);
    att_head_call(e, k->f->flush_relative_sums, args);
}

/* All blocks of the query heads of a K/V head, over keys k0 .. k1 - 1. */
static void emit_query_heads(em *e, const kernel *k, em_val kv_head, em_val k0, em_val k1,
                             int outputs) {
    em_loop h = em_for(e, 0, k->b->p.a->gqa_ratio, 1);
    em_val head = em_add(e, em_mul(e, kv_head, k->b->p.a->gqa_ratio), h.i);
    em_val step = em_i64(e, k->strip ? k->b->p.strip_blocks : 1);
    em_loop i = em_for(e, 0, k->blocks, step);
    call_blocks(e, k, head, i.i, step, k0, k1, outputs);
    em_end(e, &i);
    if (outputs & COMPUTE_DQ) flush_relative_sums(e, k, head);
    em_end(e, &h);
}

/* dk and dv of keys k0 .. k1 - 1 = 0. */
static void zero_dkv(em *e, const kernel *k, em_val k0, em_val k1) {
    const att_backward *b = k->b;
    em_val n = em_sub(e, k1, k0);
    for (int of_v = 0; of_v < 2; of_v++) {
        att_zero_args args = {.dst = att_dkv_row(e, b, k->tk, of_v, k0)};
        args.elements = em_mul(e, n, of_v ? b->dv : b->d);
        att_zero_call(e, k->f->zero, args);
    }
}

/* Stores dk and dv of keys k0 .. k1 - 1. */
static void store_dkv(em *e, const kernel *k, em_val kv_head, em_val k0, em_val k1) {
    const att_backward *b = k->b;
    const att_plan *p = &b->p;
    em_val n = em_sub(e, k1, k0), heads = em_i64(e, p->a->heads / p->a->gqa_ratio);
    for (int of_v = 0; of_v < 2; of_v++) {
        att_store_rows_args args = {.src = att_dkv_row(e, b, k->tk, of_v, k0), .n_rows = n};
        const sn_attention_operand *o = of_v ? &b->g->dv : &b->g->dk;
        em_val base = att_base(e, o, em_div(e, kv_head, heads), em_rem(e, kv_head, heads));
        args.stride = em_size_value(e, o->row);
        args.dst = em_gep(e, base, o->dtype, em_mul(e, k0, args.stride));
        att_store_rows_call(e, of_v ? k->f->store_v : k->f->store_k, args);
    }
}

static void zero_tables(em *e, const kernel *k, em_val head) {
    if (!k->f->zero_tables) return;
    att_zero_tables_args args = {.buf = e->buf, .dim = e->dim};
    args.batch = em_div(e, head, k->b->p.a->heads), args.head = em_rem(e, head, k->b->p.a->heads);
    att_zero_tables_call(e, k->f->zero_tables, args);
}

/* A K/V head that a thread has for itself. */
static void emit_kv_head(em *e, const kernel *k, em_val kv_head) {
    em_val zero = em_i64(e, 0);
    if (k->f->zero_tables) {
        em_loop h = em_for(e, 0, k->b->p.a->gqa_ratio, 1);
        zero_tables(e, k, em_add(e, em_mul(e, kv_head, k->b->p.a->gqa_ratio), h.i));
        em_end(e, &h);
    }
    zero_dkv(e, k, zero, k->tk);
    emit_query_heads(e, k, kv_head, zero, k->tk, COMPUTE_DQ | COMPUTE_DKV);
    store_dkv(e, k, kv_head, zero, k->tk);
}

/* dq of K/V heads first .. end - 1, whose query blocks threads share. The gradients of captured
 * tensors of a head are summed by one thread. */
static void emit_shared_dq(em *e, const kernel *k, em_val first, em_val end) {
    em_val zero = em_i64(e, 0), one = em_i64(e, 1);
    bool tables = k->f->zero_tables != NULL;
    em_val step = k->strip ? att_strip_share(e, &k->b->p, k->blocks, e->nthreads) : one;
    em_val items = LLVMBuildUDiv(e->b, em_sub(e, em_add(e, k->blocks, step), 1), step, "");
    if (tables) items = one; /* of a head */
    em_val count = em_mul(e, em_mul(e, em_sub(e, end, first), k->b->p.a->gqa_ratio), items);
    em_loop i = em_for(e, 0, count, 1);
    em_branch mine = em_if(e, tile_is_mine(e, i.i, e->nthreads, e->tid));
    em_val head = em_add(e, em_mul(e, first, k->b->p.a->gqa_ratio), em_div(e, i.i, items));
    if (tables) {
        zero_tables(e, k, head);
        em_loop l = em_for(e, 0, k->blocks, 1);
        call_block(e, k, head, l.i, zero, k->tk, COMPUTE_DQ);
        em_end(e, &l);
        flush_relative_sums(e, k, head);
    } else {
        em_val at = em_mul(e, em_rem(e, i.i, items), step);
        call_blocks(e, k, head, at, step, zero, k->tk, COMPUTE_DQ);
    }
    em_endif(e, &mine);
    em_end(e, &i);
}

/* dk and dv of K/V heads first .. end - 1, whose tiles threads share. */
static void emit_shared_dkv(em *e, const kernel *k, em_val first, em_val end) {
    em_val tiles = em_ceil_div(e, k->tk, ATT_TILE_KEYS);
    em_loop i = em_for(e, 0, em_mul(e, em_sub(e, end, first), tiles), 1);
    em_branch mine = em_if(e, tile_is_mine(e, i.i, e->nthreads, e->tid));
    em_val kv_head = em_add(e, first, em_div(e, i.i, tiles));
    em_val k0 = em_mul(e, em_rem(e, i.i, tiles), ATT_TILE_KEYS);
    em_val k1 = em_imin(e, em_add(e, k0, ATT_TILE_KEYS), k->tk);
    zero_dkv(e, k, k0, k1);
    emit_query_heads(e, k, kv_head, k0, k1, COMPUTE_DKV);
    store_dkv(e, k, kv_head, k0, k1);
    em_endif(e, &mine);
    em_end(e, &i);
}

void sn_attention_emit_grad(em *e, const char *name, const sn_attention_grad *g) {
    att_backward b;
    functions f;
    if (!make_plan(&b, g, name, e->target, e->compute, &e->err)) return;
    b.p.keep_word = att_emit_keep_word(e, &b.p);
    b.p.keep = att_emit_keep(e, &b.p);
    emit_functions(e, &b, &f);
    kernel k = {.b = &b, .f = &f, .block = emit_block(e, &b, &f)};
    em_val strip = emit_strip(e, &b, &f), choices = strip ? att_emit_choices(e, &b.p) : NULL;
    em_kernel(e, name);
    em_outer(e);
    const sn_attention *a = &g->a;
    em_val kv_heads = em_mul(e, em_size_value(e, a->batch), a->heads / a->gqa_ratio);
    em_val whole = em_div(e, kv_heads, e->nthreads), first = em_mul(e, whole, e->tid);
    k.tk = em_size_value(e, a->tk);
    k.strip = strip, k.choices = choices;
    k.blocks = em_ceil_div(e, em_ceil_div(e, em_size_value(e, a->tq), b.p.lanes), ATT_NV);
    att_kv_reset(e, &b.p);
    att_relative_reset(e, &b.p);
    if (b.n_relative) {
        em_val n = em_mul(e, att_relative_elements(e, &b.p), b.n_relative);
        att_zero_call(e, f.zero, (att_zero_args){.dst = att_relative_sums(e, &b), .elements = n});
    }
    em_loop h = em_for(e, first, em_add(e, first, whole), 1);
    emit_kv_head(e, &k, h.i);
    em_end(e, &h);
    em_val shared = em_mul(e, whole, e->nthreads);
    emit_shared_dq(e, &k, shared, kv_heads);
    emit_shared_dkv(e, &k, shared, kv_heads);
    em_end_kernel(e);
}
