/* mixed_grad.c: the gradient of attention whose heads mix. With matrices A of the scores and C of the
 * weights, scores s = A qk, p = softmax(mask(s)), a = C p, y = a v, and the cotangent do of y:
 *
 *   da_o = do_o v_o^T;  dp = C^T da;  D_g = rowsum(p_g dp_g);  ds = p (dp - D);  dqk = A^T ds
 *   dq_h = dqk_h k_h;  dk_h = dqk_h^T q_h;  dv_o = a_o^T do_o
 *   dC_og = sum of da_o p_g;  dA_gh = sum of ds_g qk_h
 *
 * p comes from the log-sum-exp of the forward kernel. D needs the whole row, as the weights did there.
 * So the first half of the kernel goes over blocks of queries twice: it keeps qk, p and dp of the rows
 * in scratch, then knows D, and makes dq and the sums for dA and dC, one for each query, which are
 * left to add up. The second half goes over blocks of keys and computes qk, p and dp again, for dk
 * and dv. Each element is summed in an order that depends on shapes only. */
#include "codegen/attention/mixed.h"

#include <math.h>

/* ---- plan ------------------------------------------------------------------------------------ */

enum {
    BLOCK_KEYS = ATT_TILE_KEYS / 2, /* of the second half: dk and dv of all heads stay in L2 */
    ROWS_QK = 0,                    /* tiles of a block's rows */
    ROWS_P,
    ROWS_DP,
    ROWS
};

typedef struct plan {
    att_plan p;
    const sn_attention_mixed_grad *g;
    int d, dv;                                     /* widths of rows, whole vectors */
    int64_t q_offset, do_offset, dq_offset;        /* [head][element][query] */
    int64_t m_offset, log2_l_offset, delta_offset; /* [head][query] */
    int64_t one_offset, matrix_offset[2][2];       /* as it is, transposed */
    int64_t tile_offset[ROWS + 1];                 /* tiles of all heads */
    int64_t dk_offset, dv_offset;                  /* [head][key][element] */
    int64_t q_rows_offset, do_rows_offset;         /* [query][element] of a head */
    int64_t sums_offset[2];                        /* [head][head][query] for dA and dC */
    int64_t rows_offset, tile_bytes, row_bytes;    /* ROWS tiles and the number of keys, i64 */
} plan;

static bool make_plan(plan *f, const sn_attention_mixed_grad *g, const char *name,
                      const sn_target *t, sn_dtype compute, sn_error *err) {
    const sn_attention *a = &g->x.a;
    att_plan *p = &f->p;
    if (!att_check_mixed(&g->x, compute, err) || !att_plan_make(p, a, name, t, compute, err))
        return false;
    if (a->score)
        return sn_fail(err, SN_ERR_INTERNAL, "gradient of mixed attention: it has a score region");
    p->pack = p->scan_v = false;
    p->relative.n = 0;
    int64_t column = p->qb * p->esize, heads = a->heads, at = p->tail_offset;
    f->g = g;
    f->d = att_padded(p, a->d), f->dv = att_padded(p, a->dv);
    f->tile_bytes = heads * att_mixed_head(p) * p->esize;
    f->q_offset = att_place(&at, heads * a->d * column);
    f->do_offset = att_place(&at, heads * a->dv * column);
    f->dq_offset = att_place(&at, heads * a->d * column);
    f->m_offset = att_place(&at, heads * column);
    f->log2_l_offset = att_place(&at, heads * column);
    f->delta_offset = att_place(&at, heads * column);
    f->one_offset = att_place(&at, column);
    for (int i = 0; i < 4; i++)
        f->matrix_offset[i / 2][i % 2] = att_place(&at, heads * heads * p->esize);
    for (int i = 0; i <= ROWS; i++) f->tile_offset[i] = att_place(&at, f->tile_bytes);
    f->dk_offset = att_place(&at, heads * BLOCK_KEYS * f->d * p->esize);
    f->dv_offset = att_place(&at, heads * BLOCK_KEYS * f->dv * p->esize);
    f->q_rows_offset = att_place(&at, (int64_t)p->qb * f->d * p->esize);
    f->do_rows_offset = att_place(&at, (int64_t)p->qb * f->dv * p->esize);
    for (int i = 0; i < 2; i++)
        f->sums_offset[i] = att_place(&at, g->parts[i].buf < 0 ? 0 : heads * heads * column);
    f->rows_offset = at;
    at = 0;
    att_place(&at, ROWS * f->tile_bytes);
    att_place(&at, 8);
    f->row_bytes = at;
    return true;
}

int64_t sn_attention_mixed_grad_scratch(const sn_attention_mixed_grad *g, const sn_target *t,
                                        sn_dtype compute, int64_t tq, int64_t tk) {
    plan f;
    (void)tq;
    if (!make_plan(&f, g, "", t, compute, NULL)) return 0;
    return f.rows_offset + (tk + ATT_TILE_KEYS - 1) / ATT_TILE_KEYS * f.row_bytes;
}

/* ---- functions of a tile --------------------------------------------------------------------- */

/* A vector of queries from q0 on of one head: scores s at the first keys of the tile at k0 become
 * weights e^(s - m - log l), hidden ones 0. */
/* clang-format off */
#define ATT_MIXED_WEIGHTS_PARAMS(P) \
    ATT_CONTEXT(P) P(ptr, s) P(ptr, m) P(ptr, log2_l) P(i64, keys) P(i64, k0) P(i64, q0) \
    P(i64, batch) P(i64, head)
/* clang-format on */
ATT_SIGNATURE(att_mixed_weights, ATT_MIXED_WEIGHTS_PARAMS)

static em_val emit_weights(em *e, const att_plan *p, bool masked) {
    att_mixed_weights_args q = att_mixed_weights_begin(e, p, masked ? "weights_mask" : "weights");
    att_use_context(e, q.buf, q.dim, q.scratch);
    em_val zero = em_i64(e, 0), last = em_subi(e, em_size_value(e, p->a->tk), 1);
    em_val m = att_load(e, p, q.m), log2_l = att_load(e, p, q.log2_l);
    att_vector_args of = {.lo = zero, .hi = q.keys, .k0 = q.k0, .batch = q.batch, .head = q.head};
    att_regions regions = {.relative = NULL};
    if (masked) att_softmax_regions(e, p, &of, masked, q.q0, &regions);
    em_loop l = em_for(e, zero, q.keys, em_i64(e, 1));
    em_val at = em_gep(e, q.s, p->t, em_muli(e, l.i, p->qb));
    em_val k = em_imin(e, em_add(e, q.k0, l.i), last);
    em_val x = att_regions_apply(&regions, e, p, att_load(e, p, at), k);
    em_val w = att_exp2_minus(e, em_sub(e, x, m), log2_l, true);
    em_val hidden = em_cmp(e, EM_EQ, x, em_vf(e, -INFINITY));
    att_store(e, p, em_select(e, hidden, em_vf(e, 0), w), at);
    em_end(e, &l);
    return att_end(e);
}

/* D += sum over `keys` of p dp, a vector of queries. */
#define ATT_MIXED_DELTA_PARAMS(P) P(ptr, p) P(ptr, dp) P(ptr, delta) P(i64, keys)
ATT_SIGNATURE(att_mixed_delta, ATT_MIXED_DELTA_PARAMS)

static em_val emit_delta(em *e, const att_plan *p) {
    att_mixed_delta_args q = att_mixed_delta_begin(e, p, "delta");
    em_val before = att_load(e, p, q.delta);
    em_loop l = em_for(e, em_i64(e, 0), q.keys, em_i64(e, 1));
    em_val sum = em_carry(e, &l, before), at = em_muli(e, l.i, p->qb);
    em_val x = att_load(e, p, em_gep(e, q.p, p->t, at));
    em_next(e, &l, sum, em_fma(e, x, att_load(e, p, em_gep(e, q.dp, p->t, at)), sum));
    em_end(e, &l);
    att_store(e, p, em_final(e, &l, sum), q.delta);
    return att_end(e);
}

/* dp = p (dp - D) in place, 0 where p is 0. */
static em_val emit_scores(em *e, const att_plan *p) {
    att_mixed_delta_args q = att_mixed_delta_begin(e, p, "scores");
    em_val delta = att_load(e, p, q.delta), zero = em_vf(e, 0);
    em_loop l = em_for(e, em_i64(e, 0), q.keys, em_i64(e, 1));
    em_val at = em_muli(e, l.i, p->qb), to = em_gep(e, q.dp, p->t, at);
    em_val w = att_load(e, p, em_gep(e, q.p, p->t, at));
    em_val x = em_mul(e, w, em_sub(e, att_load(e, p, to), delta));
    att_store(e, p, em_select(e, em_cmp(e, EM_EQ, w, zero), zero, x), to);
    em_end(e, &l);
    return att_end(e);
}

/* sums[i][j] += sum over `keys` of x[i][k] y[j][k], for all pairs of heads and nv vectors. */
#define ATT_MIXED_PAIRS_PARAMS(P) P(ptr, x) P(ptr, y) P(ptr, sums) P(i64, keys) P(i64, nv)
ATT_SIGNATURE(att_mixed_pairs, ATT_MIXED_PAIRS_PARAMS)

static em_val emit_pairs(em *e, const att_plan *p) {
    enum { SIDE = 3 };
    att_mixed_pairs_args q = att_mixed_pairs_begin(e, p, "pairs");
    em_val zero = em_i64(e, 0), one = em_i64(e, 1), side = em_i64(e, SIDE);
    em_val heads = em_i64(e, p->a->heads), last = em_subi(e, heads, 1);
    em_loop v = em_for(e, zero, q.nv, one);
    em_loop i = em_for(e, zero, heads, side);
    em_loop j = em_for(e, zero, heads, side);
    em_val from[2][SIDE], to[SIDE * SIDE], first[SIDE * SIDE], real[SIDE * SIDE];
    for (int s = 0; s < 2; s++)
        for (int n = 0; n < SIDE; n++) { /* heads beyond the last one repeat it */
            em_val head = em_imin(e, em_addi(e, s ? j.i : i.i, n), last);
            em_val base = em_gep(e, s ? q.y : q.x, p->t, em_muli(e, head, att_mixed_head(p)));
            from[s][n] = att_column(e, p, base, v.i);
        }
    for (int n = 0; n < SIDE * SIDE; n++) {
        em_val row = em_addi(e, i.i, n / SIDE), column = em_addi(e, j.i, n % SIDE);
        real[n] = em_and(e, em_cmp(e, EM_LE, row, last), em_cmp(e, EM_LE, column, last));
        em_val at = em_add(e, em_mul(e, em_imin(e, row, last), heads), em_imin(e, column, last));
        to[n] = att_column(e, p, em_gep(e, q.sums, p->t, em_muli(e, at, p->qb)), v.i);
    }
    em_loop k = em_for(e, zero, q.keys, one);
    for (int n = 0; n < SIDE * SIDE; n++) first[n] = em_carry(e, &k, em_vf(e, 0));
    em_val x[SIDE], y[SIDE], at = em_muli(e, k.i, p->qb);
    for (int n = 0; n < SIDE; n++) {
        x[n] = att_load(e, p, em_gep(e, from[0][n], p->t, at));
        y[n] = att_load(e, p, em_gep(e, from[1][n], p->t, at));
    }
    for (int n = 0; n < SIDE * SIDE; n++)
        em_next(e, &k, first[n], em_fma(e, x[n / SIDE], y[n % SIDE], first[n]));
    em_end(e, &k);
    for (int n = 0; n < SIDE * SIDE; n++) {
        em_branch br = em_if(e, real[n]);
        att_store(e, p, em_add(e, att_load(e, p, to[n]), em_final(e, &k, first[n])), to[n]);
        em_endif(e, &br);
    }
    em_end(e, &j);
    em_end(e, &i);
    em_end(e, &v);
    return att_end(e);
}

typedef struct functions {
    em_val qk[ATT_NV + 1], dp[ATT_NV + 1], dq[ATT_NV + 1], mix[ATT_NV + 1];
    em_val load_q, load_do, store_q, copy_q, copy_do, store_k, store_v, dk, dv, zero;
    em_val weights, weights_mask, delta, scores, pairs;
} functions;

static void emit_functions(em *e, const plan *f, functions *fn) {
    const att_plan *p = &f->p;
    const sn_attention_mixed_grad *g = f->g;
    const sn_attention *a = p->a;
    static const att_mix_kind mix = {"mix", true, false};
    for (int nv = 1; nv <= ATT_NV; nv++) {
        fn->qk[nv] = att_emit_qk(e, p, "qk", nv, a->d, 0);
        fn->dp[nv] = att_emit_qk(e, p, "dp", nv, a->dv, 0);
        fn->dq[nv] = att_emit_pv(e, p, "dq", nv, a->d);
        fn->mix[nv] = att_emit_mix(e, p, &mix, nv);
    }
    fn->load_q = att_emit_load_queries(e, p, "load_q", a->q.dtype, a->d, a->scale);
    fn->load_do = att_emit_load_queries(e, p, "load_do", g->dout.dtype, a->dv, 1);
    fn->store_q = att_emit_store_queries(e, p, "store_q", g->dq.dtype, a->d, a->scale);
    fn->copy_q = att_emit_copy_rows(e, p, "copy_q", a->q.dtype, a->d);
    fn->copy_do = att_emit_copy_rows(e, p, "copy_do", g->dout.dtype, a->dv);
    fn->store_k = att_emit_store_rows(e, p, "store_k", g->dk.dtype, a->d, a->scale);
    fn->store_v = att_emit_store_rows(e, p, "store_v", g->dv.dtype, a->dv, 1);
    fn->dk = att_emit_dkv(e, p, "dk", f->d);
    fn->dv = att_emit_dkv(e, p, "dv", f->dv);
    fn->zero = att_emit_zero(e, p, "zero");
    fn->weights = emit_weights(e, p, false);
    fn->weights_mask = a->mask ? emit_weights(e, p, true) : NULL;
    fn->delta = emit_delta(e, p);
    fn->scores = emit_scores(e, p);
    fn->pairs = emit_pairs(e, p);
}

/* ---- a block of queries ---------------------------------------------------------------------- */

typedef struct block {
    const plan *f;
    const functions *fn;
    att_query_block block; /* its head: the one at hand */
    em_val zero, one, heads;
} block;

static em_val tile_of(em *e, const block *b, int i) {
    return att_scratch(e, b->f->tile_offset[i]);
}

static em_val of_head(em *e, const block *b, int64_t offset, em_val head, int64_t elements) {
    return em_gep(e, att_scratch(e, offset), b->f->p.t, em_muli(e, head, elements));
}

static em_val head_of(em *e, const block *b, em_val tile, em_val head) {
    return em_gep(e, tile, b->f->p.t, em_muli(e, head, att_mixed_head(&b->f->p)));
}

static em_val row_of(em *e, const block *b, const sn_attention_operand *o, em_val head, em_val r) {
    em_val base = att_base(e, o, b->block.batch, head);
    return em_gep(e, base, o->dtype, em_mul(e, r, em_size_value(e, o->row)));
}

static em_val first_query(em *e, const block *b, em_val v) {
    return em_add(e, b->block.q0, em_muli(e, v, b->f->p.lanes));
}

static em_val queries_left(em *e, const block *b, em_val q) {
    return em_imin(e, em_sub(e, b->block.tq, q), em_i64(e, b->f->p.lanes));
}

/* Sets the block's queries from its index among those of a batch. */
static void locate_block(em *e, block *b, em_val index) {
    em_val v0, v1;
    att_block_vectors(e, &b->f->p, b->block.tq, index, &v0, &v1);
    att_block_queries(e, &b->block, v0, v1);
}

static void clear(em *e, const block *b, em_val at, em_val elements) {
    att_zero_args args = {.dst = at, .elements = elements};
    att_zero_call(e, b->fn->zero, args);
}

/* For all heads: q, do, m, log2 l, and D if it is known. m is +inf for queries that do not exist or see
 * no key: their weights become 0. */
static void load_queries(em *e, const block *b, bool delta) {
    const plan *f = b->f;
    const att_plan *p = &f->p;
    const sn_attention *a = p->a;
    em_loop h = em_for(e, b->zero, b->heads, b->one);
    em_loop v = em_for(e, b->zero, b->block.nv, b->one);
    em_val q = first_query(e, b, v.i), rows = queries_left(e, b, q);
    att_load_queries_args args = {.stride = em_size_value(e, a->q.row), .n_rows = rows};
    args.src = row_of(e, b, &a->q, h.i, q);
    args.dst = att_column(e, p, of_head(e, b, f->q_offset, h.i, (int64_t)a->d * p->qb), v.i);
    att_load_queries_call(e, b->fn->load_q, args);
    args.src = row_of(e, b, &f->g->dout, h.i, q), args.stride = em_size_value(e, f->g->dout.row);
    args.dst = att_column(e, p, of_head(e, b, f->do_offset, h.i, (int64_t)a->dv * p->qb), v.i);
    att_load_queries_call(e, b->fn->load_do, args);
    em_val lse[2];
    for (int i = 0; i < 2; i++)
        lse[i] =
            em_load_tail(e, p->t, att_lse_ptr(e, p, b->block.batch, h.i, q, i), p->lanes, rows);
    em_val sees = em_cmp(e, EM_NE, lse[1], em_vf(e, -INFINITY));
    sees = em_and(e, em_tail_mask(e, rows, p->lanes), sees);
    em_val m = em_select(e, sees, lse[0], em_vf(e, INFINITY));
    em_val l = em_select(e, sees, em_mul(e, lse[1], em_vf(e, ATT_LOG2_E)), em_vf(e, 0));
    att_store(e, p, m, att_column(e, p, of_head(e, b, f->m_offset, h.i, p->qb), v.i));
    att_store(e, p, l, att_column(e, p, of_head(e, b, f->log2_l_offset, h.i, p->qb), v.i));
    if (delta) {
        em_val at = row_of(e, b, &f->g->delta, h.i, q);
        att_store(e, p, em_load_tail(e, p->t, at, p->lanes, rows),
                  att_column(e, p, of_head(e, b, f->delta_offset, h.i, p->qb), v.i));
    }
    em_end(e, &v);
    em_end(e, &h);
}

/* ---- a tile ---------------------------------------------------------------------------------- */

/* x q^T (x: k or v) of all heads, with the queries at `offset`, to `to`. */
static void emit_product(em *e, const block *b, bool of_v, em_val to, em_val k0, em_val keys) {
    const plan *f = b->f;
    const att_plan *p = &f->p;
    const sn_attention_operand *o = of_v ? &p->a->v : &p->a->k;
    int d = of_v ? p->a->dv : p->a->d;
    em_loop h = em_for(e, b->zero, b->heads, b->one);
    att_qk_args args = {.keys = keys, .k_rows = keys, .prefetch_row = b->zero};
    args.k = row_of(e, b, o, h.i, k0), args.k_stride = em_size_value(e, o->row);
    args.q = of_head(e, b, of_v ? f->do_offset : f->q_offset, h.i, (int64_t)d * p->qb);
    args.s = args.qk_max = head_of(e, b, to, h.i);
    args.prefetch0 = args.prefetch1 = args.s;
    args.prefetch_step0 = args.prefetch_step1 = b->zero;
    att_qk_call_by_count(e, of_v ? b->fn->dp : b->fn->qk, b->block.nv, args);
    em_end(e, &h);
}

static bool mixes(const block *b, int i) {
    return b->f->g->x.mix[i].buf >= 0;
}

/* y = the matrix, or its transpose, times x. Where there is none: x. */
static em_val emit_mix(em *e, const block *b, int which, bool transposed, em_val x, em_val y,
                       em_val keys) {
    if (!mixes(b, which)) return x;
    att_mix_args args = {.x = x, .y = y, .factor = y, .spare = y, .keys = keys};
    args.w = att_scratch(e, b->f->matrix_offset[which][transposed]);
    att_mix_call_by_count(e, b->fn->mix, b->block.nv, args);
    return y;
}

/* For each head and vector: p of the scores in `tile`. */
static void emit_p(em *e, const block *b, em_val tile, em_val k0, em_val keys) {
    const plan *f = b->f;
    const att_plan *p = &f->p;
    em_loop g = em_for(e, b->zero, b->heads, b->one);
    em_loop v = em_for(e, b->zero, b->block.nv, b->one);
    att_mixed_weights_args args = {ATT_PASS_CONTEXT(e), .keys = keys, .k0 = k0, .head = g.i};
    args.batch = b->block.batch;
    args.q0 = first_query(e, b, v.i);
    args.s = att_column(e, p, head_of(e, b, tile, g.i), v.i);
    args.m = att_column(e, p, of_head(e, b, f->m_offset, g.i, p->qb), v.i);
    args.log2_l = att_column(e, p, of_head(e, b, f->log2_l_offset, g.i, p->qb), v.i);
    att_mixed_weights_call(e, b->fn->weights_mask ? b->fn->weights_mask : b->fn->weights, args);
    em_end(e, &v);
    em_end(e, &g);
}

/* fn (`delta` or `scores`) for each head and vector. */
static void for_delta(em *e, const block *b, em_val fn, em_val tile_p, em_val tile_dp,
                      em_val keys) {
    const att_plan *p = &b->f->p;
    em_loop g = em_for(e, b->zero, b->heads, b->one);
    em_loop v = em_for(e, b->zero, b->block.nv, b->one);
    att_mixed_delta_args args = {.keys = keys};
    args.p = att_column(e, p, head_of(e, b, tile_p, g.i), v.i);
    args.dp = att_column(e, p, head_of(e, b, tile_dp, g.i), v.i);
    args.delta = att_column(e, p, of_head(e, b, b->f->delta_offset, g.i, p->qb), v.i);
    att_mixed_delta_call(e, fn, args);
    em_end(e, &v);
    em_end(e, &g);
}

static void add_pairs(em *e, const block *b, int which, em_val x, em_val y, em_val keys) {
    if (b->f->g->parts[which].buf < 0) return;
    att_mixed_pairs_args args = {.x = x, .y = y, .keys = keys, .nv = b->block.nv};
    args.sums = att_scratch(e, b->f->sums_offset[which]);
    att_mixed_pairs_call(e, b->fn->pairs, args);
}

/* ---- the first half: dq, D, sums for dA and dC ----------------------------------------------- */

static em_val tile_rows(em *e, const block *b, em_val k0, int i) {
    em_val tile = LLVMBuildUDiv(e->b, k0, em_i64(e, ATT_TILE_KEYS), "");
    em_val at = em_addi(e, em_muli(e, tile, b->f->row_bytes), i * b->f->tile_bytes);
    return em_gep_bytes(e, att_scratch(e, b->f->rows_offset), at);
}

static void emit_first_pass(em *e, const block *b, em_val k0) {
    em_val n = em_imin(e, em_sub(e, b->block.tk, k0), em_i64(e, ATT_TILE_KEYS));
    em_val keys = att_mixed_visible_keys(e, &b->block, k0, n, NULL);
    em_store(e, SN_I64, tile_rows(e, b, k0, ROWS), keys);
    em_branch some = em_if(e, em_cmp(e, EM_GT, keys, b->zero));
    em_val qk = tile_rows(e, b, k0, ROWS_QK), p = tile_rows(e, b, k0, ROWS_P);
    em_val dp = tile_rows(e, b, k0, ROWS_DP), da = tile_of(e, b, 0);
    emit_product(e, b, false, mixes(b, 0) ? qk : p, k0, keys);
    emit_mix(e, b, 0, false, qk, p, keys);
    emit_p(e, b, p, k0, keys);
    emit_product(e, b, true, mixes(b, 1) ? da : dp, k0, keys);
    emit_mix(e, b, 1, true, da, dp, keys);
    add_pairs(e, b, 1, da, p, keys);
    for_delta(e, b, b->fn->delta, p, dp, keys);
    em_endif(e, &some);
}

static void emit_second_pass(em *e, const block *b, em_val k0) {
    const plan *f = b->f;
    const att_plan *p = &f->p;
    const sn_attention *a = p->a;
    em_val keys = em_load(e, SN_I64, tile_rows(e, b, k0, ROWS), 1);
    em_branch some = em_if(e, em_cmp(e, EM_GT, keys, b->zero));
    em_val ds = tile_rows(e, b, k0, ROWS_DP);
    for_delta(e, b, b->fn->scores, tile_rows(e, b, k0, ROWS_P), ds, keys);
    add_pairs(e, b, 0, ds, tile_rows(e, b, k0, ROWS_QK), keys);
    em_val dqk = emit_mix(e, b, 0, true, ds, tile_of(e, b, 0), keys);
    em_val row = em_size_value(e, a->k.row);
    em_loop h = em_for(e, b->zero, b->heads, b->one);
    att_pv_args args = {.v_stride = row, .keys = keys};
    args.v = row_of(e, b, &a->k, h.i, k0);
    args.p = head_of(e, b, dqk, h.i);
    args.acc = of_head(e, b, f->dq_offset, h.i, (int64_t)a->d * p->qb);
    args.next_k = args.next_v = args.v;
    args.next_k_step = args.next_v_step = b->zero;
    att_pv_call_by_count(e, b->fn->dq, b->block.nv, args);
    em_end(e, &h);
    em_endif(e, &some);
}

static void store_sums(em *e, const block *b, int which, em_val v, em_val q, em_val rows) {
    const att_plan *p = &b->f->p;
    const sn_mixed_parts *to = &b->f->g->parts[which];
    if (to->buf < 0) return;
    em_val all = em_mul(e, b->heads, b->heads);
    em_loop i = em_for(e, b->zero, all, b->one);
    em_val x = of_head(e, b, b->f->sums_offset[which], i.i, p->qb);
    em_val at = em_add(e, em_mul(e, b->block.batch, all), i.i);
    at = em_add(e, em_mul(e, at, b->block.tq), q);
    em_store_tail(e, p->t, em_gep(e, em_buf(e, to->buf), p->t, at),
                  att_load(e, p, att_column(e, p, x, v)), rows);
    em_end(e, &i);
}

static void store_block(em *e, const block *b) {
    const plan *f = b->f;
    const att_plan *p = &f->p;
    const sn_attention *a = p->a;
    em_loop v = em_for(e, b->zero, b->block.nv, b->one);
    em_val q = first_query(e, b, v.i), rows = queries_left(e, b, q);
    em_loop h = em_for(e, b->zero, b->heads, b->one);
    att_store_queries_args store = {.stride = em_size_value(e, f->g->dq.row), .n_rows = rows};
    store.acc = att_column(e, p, of_head(e, b, f->dq_offset, h.i, (int64_t)a->d * p->qb), v.i);
    store.l = att_scratch(e, f->one_offset);
    store.dst = row_of(e, b, &f->g->dq, h.i, q);
    store.dummy = att_scratch(e, p->dummy_offset);
    att_store_queries_call(e, b->fn->store_q, store);
    em_val delta = att_column(e, p, of_head(e, b, f->delta_offset, h.i, p->qb), v.i);
    em_store_tail(e, p->t, row_of(e, b, &f->g->delta, h.i, q), att_load(e, p, delta), rows);
    em_end(e, &h);
    for (int i = 0; i < 2; i++) store_sums(e, b, i, v.i, q, rows);
    em_end(e, &v);
}

static void begin_block(em *e, block *b, const att_mixed_item_args *args) {
    const sn_attention *a = b->f->p.a;
    att_use_context(e, args->buf, args->dim, args->scratch);
    b->zero = em_i64(e, 0), b->one = em_i64(e, 1), b->heads = em_i64(e, a->heads);
    b->block.batch = args->batch, b->block.head = b->zero;
    b->block.tq = em_size_value(e, a->tq), b->block.tk = em_size_value(e, a->tk);
}

static em_val emit_queries(em *e, const plan *f, const functions *fn) {
    const att_plan *p = &f->p;
    block b = {.f = f, .fn = fn, .block.p = p};
    att_mixed_item_args args = att_mixed_item_begin(e, p, "queries");
    begin_block(e, &b, &args);
    locate_block(e, &b, args.index);
    load_queries(e, &b, false);
    int64_t heads = p->a->heads;
    clear(e, &b, att_scratch(e, f->dq_offset), em_i64(e, heads * p->a->d * p->qb));
    clear(e, &b, att_scratch(e, f->delta_offset), em_i64(e, heads * p->qb));
    for (int i = 0; i < 2; i++)
        if (f->g->parts[i].buf >= 0)
            clear(e, &b, att_scratch(e, f->sums_offset[i]), em_i64(e, heads * heads * p->qb));
    att_store(e, p, em_vf(e, 1), att_scratch(e, f->one_offset));
    em_loop k = em_for(e, b.zero, b.block.tk, em_i64(e, ATT_TILE_KEYS));
    emit_first_pass(e, &b, k.i);
    em_end(e, &k);
    k = em_for(e, b.zero, b.block.tk, em_i64(e, ATT_TILE_KEYS));
    emit_second_pass(e, &b, k.i);
    em_end(e, &k);
    store_block(e, &b);
    return att_end(e);
}

/* ---- the second half: dk and dv -------------------------------------------------------------- */

/* c_h += x_h^T y_h: a tile's weights with rows of do, or its dqk with rows of q. */
static void add_products(em *e, const block *b, bool of_v, em_val x, em_val keys) {
    const plan *f = b->f;
    const att_plan *p = &f->p;
    const sn_attention_operand *o = of_v ? &f->g->dout : &p->a->q;
    em_val rows = att_scratch(e, of_v ? f->do_rows_offset : f->q_rows_offset);
    em_val all = em_muli(e, b->block.nv, p->lanes);
    em_loop h = em_for(e, b->zero, b->heads, b->one);
    att_copy_rows_args copy = {.n_rows = b->block.n_rows, .n_dst = all, .dst = rows};
    copy.src = row_of(e, b, o, h.i, b->block.q0), copy.stride = em_size_value(e, o->row);
    att_copy_rows_call(e, of_v ? b->fn->copy_do : b->fn->copy_q, copy);
    att_dkv_args args = {.keys = keys, .queries = all, .b = rows, .a = head_of(e, b, x, h.i)};
    args.c = of_head(e, b, of_v ? f->dv_offset : f->dk_offset, h.i,
                     (int64_t)BLOCK_KEYS * (of_v ? f->dv : f->d));
    att_dkv_call(e, of_v ? b->fn->dv : b->fn->dk, args);
    em_end(e, &h);
}

/* What a block of queries adds to dk and dv of n keys from k0 on. */
static void add_block(em *e, const block *b, em_val k0, em_val n) {
    em_val keys = att_mixed_visible_keys(e, &b->block, k0, n, NULL);
    em_branch some = em_if(e, em_cmp(e, EM_GT, keys, b->zero));
    load_queries(e, b, true);
    em_val qk = tile_of(e, b, 0), p = tile_of(e, b, 1), da = tile_of(e, b, 2);
    em_val spare = tile_of(e, b, 3);
    emit_product(e, b, false, mixes(b, 0) ? qk : p, k0, keys);
    emit_mix(e, b, 0, false, qk, p, keys);
    emit_p(e, b, p, k0, keys);
    add_products(e, b, true, emit_mix(e, b, 1, false, p, qk, keys), keys);
    emit_product(e, b, true, da, k0, keys);
    em_val dp = emit_mix(e, b, 1, true, da, spare, keys);
    for_delta(e, b, b->fn->scores, p, dp, keys);
    add_products(e, b, false, emit_mix(e, b, 0, true, dp, qk, keys), keys);
    em_endif(e, &some);
}

static void store_keys(em *e, const block *b, em_val k0, em_val n) {
    const plan *f = b->f;
    for (int of_v = 0; of_v < 2; of_v++) {
        const sn_attention_operand *o = of_v ? &f->g->dv : &f->g->dk;
        em_loop h = em_for(e, b->zero, b->heads, b->one);
        att_store_rows_args args = {.n_rows = n, .stride = em_size_value(e, o->row)};
        args.src = of_head(e, b, of_v ? f->dv_offset : f->dk_offset, h.i,
                           (int64_t)BLOCK_KEYS * (of_v ? f->dv : f->d));
        args.dst = row_of(e, b, o, h.i, k0);
        att_store_rows_call(e, of_v ? b->fn->store_v : b->fn->store_k, args);
        em_end(e, &h);
    }
}

static em_val count_blocks(em *e, const att_plan *p) {
    return em_ceil_div(e, em_ceil_div(e, em_size_value(e, p->a->tq), p->lanes), p->nv);
}

static em_val emit_keys(em *e, const plan *f, const functions *fn) {
    const att_plan *p = &f->p;
    block b = {.f = f, .fn = fn, .block.p = p};
    att_mixed_item_args args = att_mixed_item_begin(e, p, "keys");
    begin_block(e, &b, &args);
    em_val k0 = em_muli(e, args.index, BLOCK_KEYS);
    em_val n = em_imin(e, em_sub(e, b.block.tk, k0), em_i64(e, BLOCK_KEYS));
    int64_t elements = (int64_t)p->a->heads * BLOCK_KEYS;
    clear(e, &b, att_scratch(e, f->dk_offset), em_i64(e, elements * f->d));
    clear(e, &b, att_scratch(e, f->dv_offset), em_i64(e, elements * f->dv));
    em_loop i = em_for(e, b.zero, count_blocks(e, p), b.one);
    locate_block(e, &b, i.i);
    add_block(e, &b, k0, n);
    em_end(e, &i);
    store_keys(e, &b, k0, n);
    return att_end(e);
}

/* ---- the kernel ------------------------------------------------------------------------------ */

static void load_matrices(em *e, const plan *f) {
    for (int i = 0; i < 4; i++) {
        const sn_head_matrix *w = &f->g->x.mix[i / 2];
        if (w->buf >= 0)
            att_load_matrix(e, &f->p, w, i % 2, att_scratch(e, f->matrix_offset[i / 2][i % 2]));
    }
}

static em_val second_counter(em *e, const sn_attention_mixed *x) {
    em_val at = em_buf(e, x->counter_buf), next = em_gep(e, at, SN_I64, em_i64(e, 1));
    return em_select(e, LLVMBuildIsNotNull(e->b, at, ""), next, at);
}

/* Two kernels, `name` and `name`_finish. */
void sn_attention_emit_mixed_grad(em *e, const char *name, const sn_attention_mixed_grad *g) {
    plan f;
    functions fn;
    char finish[160];
    if (!make_plan(&f, g, name, e->target, e->compute, &e->err)) return;
    emit_functions(e, &f, &fn);
    em_val queries = emit_queries(e, &f, &fn), keys = emit_keys(e, &f, &fn);
    em_kernel(e, name);
    load_matrices(e, &f);
    att_mixed_deal(e, &f.p, queries, count_blocks(e, &f.p), em_buf(e, g->x.counter_buf));
    em_end_kernel(e);
    snprintf(finish, sizeof finish, "%s_finish", name);
    em_kernel(e, finish);
    load_matrices(e, &f);
    att_mixed_deal(e, &f.p, keys, em_ceil_div(e, em_size_value(e, g->x.a.tk), BLOCK_KEYS),
                   second_counter(e, &g->x));
    em_end_kernel(e);
}
