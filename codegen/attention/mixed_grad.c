/* mixed_grad.c: the gradient of attention whose heads mix. With matrices A of the scores and C of the
 * weights, scores s = A qk, p = softmax(mask(s)), a = C p, y = a v, and the cotangent do of y:
 *
 *   da_o = do_o v_o^T;  dp = C^T da;  D_g = rowsum(p_g dp_g);  ds = p (dp - D);  dqk = A^T ds
 *   dq_h = dqk_h k_h;  dk_h = dqk_h^T q_h;  dv_o = a_o^T do_o
 *   dC_og = sum of da_o p_g;  dA_gh = sum of ds_g qk_h
 *
 * p comes from the log-sum-exp of the forward kernel. D needs the whole row, as the weights did there.
 * So the kernel goes over the keys of a block of queries twice: first it makes dv and the sums for dC,
 * and keeps qk, p and dp of the rows in scratch; then it knows D and makes dq, dk and the sums for dA.
 * A group of blocks visits each tile together, head by head, so that k, v, dk and dv are read once for
 * the group. dk, dv, dA and dC are sums over queries: a work item is a part of the queries, which adds its
 * blocks in order to sums of its own; those of the parts are left to add up. Each element is summed in an
 * order that depends on shapes only. */
#include "codegen/attention/mixed.h"

#include <math.h>

/* ---- plan ------------------------------------------------------------------------------------ */

enum {
    TILE_KEYS = ATT_TILE_KEYS / 2,
    GROUP = 4,   /* blocks of queries that visit a tile one after another */
    TILES = 2,   /* of all heads, of what is not kept */
    ROWS_QK = 0, /* tiles of a block's rows */
    ROWS_P,
    ROWS_DP,
    ROWS
};

typedef struct plan {
    att_plan p;
    const sn_attention_mixed_grad *g;
    int d, dv;                               /* widths of rows, whole vectors */
    int64_t one_offset, matrix_offset[2][2]; /* as it is, transposed */
    int64_t sums_offset[2];                  /* [head][head] vectors for dA and dC, of a part */
    int64_t blocks_offset, block_bytes;      /* GROUP blocks: what follows, then their rows */
    int64_t tile_offset[TILES];              /* tiles of all heads */
    int64_t q_offset, do_offset, dq_offset;  /* [head][element][query] */
    int64_t q_rows_offset, do_rows_offset;   /* [head][query][element]; q: scaled */
    int64_t m_offset, log2_l_offset, delta_offset; /* [head][query] */
    int64_t tile_bytes, row_bytes;                 /* ROWS tiles and the number of keys, i64 */
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
    p->mixed_keys = TILE_KEYS;
    int64_t column = p->qb * p->esize, heads = a->heads, at = p->tail_offset;
    f->g = g;
    f->d = att_padded(p, a->d), f->dv = att_padded(p, a->dv);
    f->tile_bytes = heads * att_mixed_head(p) * p->esize;
    f->one_offset = att_place(&at, column);
    for (int i = 0; i < 4; i++)
        f->matrix_offset[i / 2][i % 2] = att_place(&at, heads * heads * p->esize);
    for (int i = 0; i < 2; i++)
        f->sums_offset[i] =
            att_place(&at, g->sums_buf[i] < 0 ? 0 : heads * heads * p->lanes * p->esize);
    f->blocks_offset = at, at = 0;
    for (int i = 0; i < TILES; i++) f->tile_offset[i] = att_place(&at, f->tile_bytes);
    f->q_offset = att_place(&at, heads * a->d * column);
    f->do_offset = att_place(&at, heads * a->dv * column);
    f->dq_offset = att_place(&at, heads * a->d * column);
    f->q_rows_offset = att_place(&at, heads * p->qb * f->d * p->esize);
    f->do_rows_offset = att_place(&at, heads * p->qb * f->dv * p->esize);
    f->m_offset = att_place(&at, heads * column);
    f->log2_l_offset = att_place(&at, heads * column);
    f->delta_offset = att_place(&at, heads * column);
    f->block_bytes = at;
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
    int64_t tiles = (tk + TILE_KEYS - 1) / TILE_KEYS;
    return f.blocks_offset + GROUP * (f.block_bytes + tiles * f.row_bytes);
}

/* ---- functions ------------------------------------------------------------------------------- */

typedef struct functions {
    em_val qk[ATT_NV + 1], dp[ATT_NV + 1], dq[ATT_NV + 1], mix[ATT_NV + 1];
    em_val load_q, load_do, store_q, copy_q, copy_do, dk, dv, zero;
    em_val weights, weights_mask, delta, scores, pairs[ATT_NV + 1];
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
        fn->pairs[nv] = att_emit_mixed_pairs(e, p, nv);
    }
    fn->load_q = att_emit_load_queries(e, p, "load_q", a->q.dtype, a->d, a->scale, 1);
    fn->load_do = att_emit_load_queries(e, p, "load_do", g->dout.dtype, a->dv, 1, 1);
    fn->store_q = att_emit_store_queries(e, p, "store_q", g->dq.dtype, a->d, a->scale);
    fn->copy_q = att_emit_copy_rows(e, p, "copy_q", a->q.dtype, a->d, a->scale);
    fn->copy_do = att_emit_copy_rows(e, p, "copy_do", g->dout.dtype, a->dv, 1);
    fn->dk = att_emit_dkv(e, p, "dk", a->d, a->heads * a->d, f->d);
    fn->dv = att_emit_dkv(e, p, "dv", a->dv, a->heads * a->dv, f->dv);
    fn->zero = att_emit_zero(e, p, "zero");
    fn->weights = att_emit_mixed_weights(e, p, false);
    fn->weights_mask = a->mask ? att_emit_mixed_weights(e, p, true) : NULL;
    fn->delta = att_emit_mixed_delta(e, p);
    fn->scores = att_emit_mixed_scores(e, p);
}

/* ---- a block of queries ---------------------------------------------------------------------- */

typedef struct block {
    const plan *f;
    const functions *fn;
    att_query_block block; /* its head: the one at hand */
    em_val zero, heads, part;
    em_val memory;      /* of the block, among those of a group */
    em_val k0, keys;    /* the tile, and how many of its keys the block sees */
    em_val second_half; /* 0 or 1: rows that the block prefetches for the next head */
} block;

static em_val memory_of(em *e, const block *b, int64_t offset) {
    return em_gep_bytes(e, b->memory, offset);
}

static em_val tile_of(em *e, const block *b, int i) {
    return memory_of(e, b, b->f->tile_offset[i]);
}

static em_val of_head(em *e, const block *b, int64_t offset, em_val head, int64_t elements) {
    return em_gep(e, memory_of(e, b, offset), b->f->p.t, em_mul(e, head, elements));
}

static em_val head_of(em *e, const block *b, em_val tile, em_val head) {
    return em_gep(e, tile, b->f->p.t, em_mul(e, head, att_mixed_head(&b->f->p)));
}

static em_val row_of(em *e, const block *b, const sn_attention_operand *o, em_val head, em_val r) {
    em_val base = att_base(e, o, b->block.batch, head);
    return em_gep(e, base, o->dtype, em_mul(e, r, em_size_value(e, o->row)));
}

static em_val first_query(em *e, const block *b, em_val v) {
    return em_add(e, b->block.q0, em_mul(e, v, b->f->p.lanes));
}

static em_val queries_left(em *e, const block *b, em_val q) {
    return em_imin(e, em_sub(e, b->block.tq, q), b->f->p.lanes);
}

/* Row k of dk or dv of a head, of the part's own. */
static em_val part_row(em *e, const block *b, bool of_v, em_val head, em_val k) {
    const sn_attention *a = b->f->p.a;
    em_val at = em_add(e, em_mul(e, b->part, em_size_value(e, a->batch)), b->block.batch);
    at = em_add(e, em_mul(e, at, b->block.tk), k);
    at = em_add(e, em_mul(e, at, b->heads), head);
    at = em_mul(e, at, of_v ? a->dv : a->d);
    return em_gep(e, em_buf(e, of_v ? b->f->g->dv_buf : b->f->g->dk_buf), b->f->p.t, at);
}

static void clear(em *e, const block *b, em_val at, em_val elements) {
    att_zero_args args = {.dst = at, .elements = elements};
    att_zero_call(e, b->fn->zero, args);
}

/* For all heads: q and do, as rows, too, m and log2 l. m is +inf for queries that do not exist or see no
 * key: their weights become 0. */
static void load_queries(em *e, const block *b) {
    const plan *f = b->f;
    const att_plan *p = &f->p;
    const sn_attention *a = p->a;
    em_loop h = em_for(e, 0, b->heads, 1);
    att_copy_rows_args copy = {.n_rows = b->block.n_rows};
    copy.n_dst = em_mul(e, b->block.nv, p->lanes);
    copy.src = row_of(e, b, &a->q, h.i, b->block.q0), copy.stride = em_size_value(e, a->q.row);
    copy.dst = of_head(e, b, f->q_rows_offset, h.i, (int64_t)p->qb * f->d);
    att_copy_rows_call(e, b->fn->copy_q, copy);
    copy.src = row_of(e, b, &f->g->dout, h.i, b->block.q0);
    copy.stride = em_size_value(e, f->g->dout.row);
    copy.dst = of_head(e, b, f->do_rows_offset, h.i, (int64_t)p->qb * f->dv);
    att_copy_rows_call(e, b->fn->copy_do, copy);
    em_loop v = em_for(e, 0, b->block.nv, 1);
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
    em_end(e, &v);
    em_end(e, &h);
}

/* ---- a tile ---------------------------------------------------------------------------------- */

static bool mixes(const block *b, int i) {
    return b->f->g->x.mix[i].buf >= 0;
}

/* y = the matrix, or its transpose, times x. Where there is none: x. */
static em_val emit_mix(em *e, const block *b, int which, bool transposed, em_val x, em_val y) {
    if (!mixes(b, which)) return x;
    att_mix_args args = {.x = x, .y = y, .factor = y, .spare = y, .keys = b->keys};
    args.w = att_scratch(e, b->f->matrix_offset[which][transposed]);
    att_mix_call_by_count(e, b->fn->mix, b->block.nv, args);
    return y;
}

/* For each head and vector: p of the scores in `tile`. */
static void emit_p(em *e, const block *b, em_val tile) {
    const plan *f = b->f;
    const att_plan *p = &f->p;
    em_loop g = em_for(e, 0, b->heads, 1);
    em_loop v = em_for(e, 0, b->block.nv, 1);
    att_mixed_weights_args args = {ATT_PASS_CONTEXT(e), .keys = b->keys, .k0 = b->k0, .head = g.i};
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
static void for_delta(em *e, const block *b, em_val fn, em_val tile_p, em_val tile_dp) {
    const att_plan *p = &b->f->p;
    em_loop g = em_for(e, 0, b->heads, 1);
    em_loop v = em_for(e, 0, b->block.nv, 1);
    att_mixed_delta_args args = {.keys = b->keys};
    args.p = att_column(e, p, head_of(e, b, tile_p, g.i), v.i);
    args.dp = att_column(e, p, head_of(e, b, tile_dp, g.i), v.i);
    args.delta = att_column(e, p, of_head(e, b, b->f->delta_offset, g.i, p->qb), v.i);
    att_mixed_delta_call(e, fn, args);
    em_end(e, &v);
    em_end(e, &g);
}

static void add_pairs(em *e, const block *b, int which, em_val x, em_val y) {
    if (b->f->g->sums_buf[which] < 0) return;
    att_mixed_pairs_args args = {.x = x, .y = y, .keys = b->keys};
    args.sums = att_scratch(e, b->f->sums_offset[which]);
    att_mixed_pairs_call_by_count(e, b->fn->pairs, b->block.nv, args);
}

/* ---- the steps of a tile --------------------------------------------------------------------- */

static em_val tile_rows(em *e, const block *b, int i) {
    em_val tile = LLVMBuildUDiv(e->b, b->k0, em_i64(e, TILE_KEYS), "");
    em_val at = em_add(e, em_mul(e, tile, b->f->row_bytes), i * b->f->tile_bytes);
    return em_gep_bytes(e, memory_of(e, b, b->f->block_bytes), at);
}

static void find_keys(em *e, const block *b) {
    em_val n = em_imin(e, em_sub(e, b->block.tk, b->k0), TILE_KEYS);
    em_val keys = att_mixed_visible_keys(e, &b->block, b->k0, n, NULL);
    em_store(e, SN_I64, tile_rows(e, b, ROWS), keys);
}

/* The rows of k, v or, at rows of a part, dk and dv that are needed after those of a head. */
static em_val next_rows(em *e, const block *b, const sn_attention_operand *o, bool of_v, em_val h) {
    em_val next = em_add(e, h, 1), more = em_cmp(e, EM_LT, next, b->heads);
    em_val k0 = em_select(e, more, b->k0, em_add(e, b->k0, TILE_KEYS));
    next = em_select(e, more, next, 0);
    return o ? row_of(e, b, o, next, k0) : part_row(e, b, of_v, next, k0);
}

/* x q^T of a head (x: k or v) to `to`. Half of the blocks prefetch half of the next head's rows. */
static void multiply(em *e, const block *b, bool of_v, em_val to, em_val h) {
    const plan *f = b->f;
    const att_plan *p = &f->p;
    const sn_attention_operand *o = of_v ? &p->a->v : &p->a->k;
    int d = of_v ? p->a->dv : p->a->d;
    att_qk_args args = {.keys = b->keys, .k_rows = b->keys};
    args.k = row_of(e, b, o, h, b->k0), args.k_stride = em_size_value(e, o->row);
    args.q = of_head(e, b, of_v ? f->do_offset : f->q_offset, h, (int64_t)d * p->qb);
    args.s = args.qk_max = head_of(e, b, to, h);
    args.prefetch_row = em_mul(e, b->second_half, TILE_KEYS / 2);
    args.prefetch0 = next_rows(e, b, o, of_v, h);
    args.prefetch_step0 = em_mul(e, args.k_stride, (int64_t)sn_dtype_size(o->dtype));
    args.prefetch1 = args.s, args.prefetch_step1 = b->zero;
    att_qk_call_by_count(e, of_v ? b->fn->dp : b->fn->qk, b->block.nv, args);
}

/* qk and da of a head. */
static void multiply_head(em *e, const block *b, em_val h) {
    multiply(e, b, false, tile_rows(e, b, mixes(b, 0) ? ROWS_QK : ROWS_P), h);
    multiply(e, b, true, mixes(b, 1) ? tile_of(e, b, 0) : tile_rows(e, b, ROWS_DP), h);
}

/* p, dp, what they add to D and dC, and a. */
static void make_weights(em *e, const block *b) {
    em_val p = tile_rows(e, b, ROWS_P), dp = tile_rows(e, b, ROWS_DP), da = tile_of(e, b, 0);
    emit_mix(e, b, 0, false, tile_rows(e, b, ROWS_QK), p);
    emit_p(e, b, p);
    emit_mix(e, b, 1, true, da, dp);
    add_pairs(e, b, 1, da, p);
    for_delta(e, b, b->fn->delta, p, dp);
    emit_mix(e, b, 1, false, p, tile_of(e, b, 1));
}

/* ds, what it adds to dA, and dqk. */
static void make_scores(em *e, const block *b) {
    em_val ds = tile_rows(e, b, ROWS_DP);
    for_delta(e, b, b->fn->scores, tile_rows(e, b, ROWS_P), ds);
    add_pairs(e, b, 0, ds, tile_rows(e, b, ROWS_QK));
    emit_mix(e, b, 0, true, ds, tile_of(e, b, 0));
}

/* dk or dv of a head += x^T y: dqk with rows of q, or weights with rows of do. */
static void add_product(em *e, const block *b, bool of_v, em_val x, em_val h) {
    const plan *f = b->f;
    att_dkv_args args = {.keys = b->keys, .a = head_of(e, b, x, h)};
    args.queries = em_mul(e, b->block.nv, f->p.lanes);
    args.b = of_head(e, b, of_v ? f->do_rows_offset : f->q_rows_offset, h,
                     (int64_t)f->p.qb * (of_v ? f->dv : f->d));
    args.c = part_row(e, b, of_v, h, b->k0), args.next = next_rows(e, b, NULL, of_v, h);
    att_dkv_call(e, of_v ? b->fn->dv : b->fn->dk, args);
}

static void add_values(em *e, const block *b, em_val h) {
    add_product(e, b, true, mixes(b, 1) ? tile_of(e, b, 1) : tile_rows(e, b, ROWS_P), h);
}

/* dq and dk of a head. */
static void add_queries_keys(em *e, const block *b, em_val h) {
    const plan *f = b->f;
    const att_plan *p = &f->p;
    const sn_attention *a = p->a;
    em_val dqk = mixes(b, 0) ? tile_of(e, b, 0) : tile_rows(e, b, ROWS_DP);
    em_val row = em_size_value(e, a->k.row);
    att_pv_args args = {.v_stride = row, .keys = b->keys};
    args.v = row_of(e, b, &a->k, h, b->k0);
    args.p = head_of(e, b, dqk, h);
    args.acc = of_head(e, b, f->dq_offset, h, (int64_t)a->d * p->qb);
    args.next_k = next_rows(e, b, &a->k, false, h);
    args.next_k_step = em_mul(e, row, (int64_t)sn_dtype_size(a->k.dtype));
    args.next_v = args.next_k, args.next_v_step = args.next_k_step;
    att_pv_call_by_count(e, b->fn->dq, b->block.nv, args);
    add_product(e, b, false, dqk, h);
}

/* ---- a group of blocks ----------------------------------------------------------------------- */

static void store_block(em *e, const block *b) {
    const plan *f = b->f;
    const att_plan *p = &f->p;
    const sn_attention *a = p->a;
    em_loop v = em_for(e, 0, b->block.nv, 1);
    em_val q = first_query(e, b, v.i), rows = queries_left(e, b, q);
    em_loop h = em_for(e, 0, b->heads, 1);
    att_store_queries_args store = {.stride = em_size_value(e, f->g->dq.row), .n_rows = rows};
    store.acc = att_column(e, p, of_head(e, b, f->dq_offset, h.i, (int64_t)a->d * p->qb), v.i);
    store.l = att_scratch(e, f->one_offset);
    store.dst = row_of(e, b, &f->g->dq, h.i, q);
    store.dummy = att_scratch(e, p->dummy_offset);
    att_store_queries_call(e, b->fn->store_q, store);
    em_end(e, &h);
    em_end(e, &v);
}

/* The part's sums become 0. */
static void clear_part(em *e, const block *b) {
    const att_plan *p = &b->f->p;
    for (int i = 0; i < 2; i++) {
        em_val all = em_mul(e, b->heads, (int64_t)p->a->heads * p->lanes);
        if (b->f->g->sums_buf[i] >= 0) clear(e, b, att_scratch(e, b->f->sums_offset[i]), all);
        int64_t row = (int64_t)p->a->heads * (i ? p->a->dv : p->a->d);
        em_val n = em_mul(e, b->block.tk, row), at = part_row(e, b, i, b->zero, b->zero);
        em_val whole = em_and(e, n, -p->lanes), left = em_sub(e, n, whole);
        em_loop l = em_for(e, 0, whole, p->lanes);
        em_store(e, p->t, em_gep(e, at, p->t, l.i), em_vf(e, 0));
        em_end(e, &l);
        em_store_tail(e, p->t, em_gep(e, at, p->t, whole), em_vf(e, 0), left);
    }
}

static void store_sums(em *e, const block *b) {
    const att_plan *p = &b->f->p;
    for (int which = 0; which < 2; which++) {
        if (b->f->g->sums_buf[which] < 0) continue;
        em_val all = em_mul(e, b->heads, b->heads);
        em_val first = em_add(e, em_mul(e, b->part, em_size_value(e, p->a->batch)), b->block.batch);
        em_val to = em_gep(e, em_buf(e, b->f->g->sums_buf[which]), p->t, em_mul(e, first, all));
        em_val sums = att_scratch(e, b->f->sums_offset[which]);
        em_loop i = em_for(e, 0, all, 1);
        em_val x = att_load(e, p, em_gep(e, sums, p->t, em_mul(e, i.i, p->lanes)));
        em_store(e, p->t, em_gep(e, to, p->t, i.i), em_reduce(e, EM_SUM, x));
        em_end(e, &i);
    }
}

static void begin_query_block(em *e, const block *b) {
    const plan *f = b->f;
    int64_t heads = f->p.a->heads;
    load_queries(e, b);
    clear(e, b, memory_of(e, b, f->dq_offset), em_i64(e, heads * f->p.a->d * f->p.qb));
    clear(e, b, memory_of(e, b, f->delta_offset), em_i64(e, heads * f->p.qb));
}

/* Blocks of a part's queries: `rows` queries from q0 on. */
typedef struct block_group {
    em_val q0, rows, first, end;
} block_group;

/* Makes b block i of the group's part. */
static void locate_block(em *e, block *b, const block_group *g, em_val i) {
    const plan *f = b->f;
    em_val first = LLVMBuildUDiv(e->b, g->q0, em_i64(e, f->p.lanes), ""), v0, v1;
    em_val tiles = em_ceil_div(e, b->block.tk, TILE_KEYS), number = em_sub(e, i, g->first);
    em_val bytes = em_add(e, em_mul(e, tiles, f->row_bytes), f->block_bytes);
    att_block_vectors(e, &f->p, g->rows, i, &v0, &v1);
    att_block_queries(e, &b->block, em_add(e, first, v0), em_add(e, first, v1));
    b->memory = em_gep_bytes(e, att_scratch(e, f->blocks_offset), em_mul(e, number, bytes));
    b->second_half = em_and(e, number, 1);
}

/* `step` for all blocks of the group. */
static void for_blocks(em *e, block *b, const block_group *g, void (*step)(em *e, const block *b)) {
    em_loop i = em_for(e, g->first, g->end, 1);
    locate_block(e, b, g, i.i);
    step(e, b);
    em_end(e, &i);
}

/* The same for those that see keys of the tile. */
static void for_visible(em *e, block *b, const block_group *g,
                        void (*step)(em *e, const block *b)) {
    em_loop i = em_for(e, g->first, g->end, 1);
    locate_block(e, b, g, i.i);
    b->keys = em_load(e, SN_I64, tile_rows(e, b, ROWS), 1);
    em_branch some = em_if(e, em_cmp(e, EM_GT, b->keys, 0));
    step(e, b);
    em_endif(e, &some);
    em_end(e, &i);
}

/* The same for one head after the other. */
static void for_heads(em *e, block *b, const block_group *g,
                      void (*step)(em *e, const block *b, em_val h)) {
    em_loop h = em_for(e, 0, b->heads, 1);
    em_loop i = em_for(e, g->first, g->end, 1);
    locate_block(e, b, g, i.i);
    b->keys = em_load(e, SN_I64, tile_rows(e, b, ROWS), 1);
    em_branch some = em_if(e, em_cmp(e, EM_GT, b->keys, 0));
    step(e, b, h.i);
    em_endif(e, &some);
    em_end(e, &i);
    em_end(e, &h);
}

static void emit_group(em *e, block *b, const block_group *g) {
    for_blocks(e, b, g, begin_query_block);
    em_loop k = em_for(e, 0, b->block.tk, TILE_KEYS);
    b->k0 = k.i;
    for_blocks(e, b, g, find_keys);
    for_heads(e, b, g, multiply_head);
    for_visible(e, b, g, make_weights);
    for_heads(e, b, g, add_values);
    em_end(e, &k);
    k = em_for(e, 0, b->block.tk, TILE_KEYS);
    b->k0 = k.i;
    for_visible(e, b, g, make_scores);
    for_heads(e, b, g, add_queries_keys);
    em_end(e, &k);
    for_blocks(e, b, g, store_block);
}

/* A work item: rows of queries of one part. */
static em_val emit_part(em *e, const plan *f, const functions *fn) {
    const att_plan *p = &f->p;
    const sn_attention *a = p->a;
    block b = {.f = f, .fn = fn, .block.p = p};
    att_mixed_item_args args = att_mixed_item_begin(e, p, "part");
    att_use_context(e, args.buf, args.dim, args.scratch);
    b.zero = em_i64(e, 0), b.heads = em_i64(e, a->heads);
    b.block.batch = args.batch, b.block.head = b.zero, b.part = args.index;
    b.block.tq = em_size_value(e, a->tq), b.block.tk = em_size_value(e, a->tk);
    clear_part(e, &b);
    att_store(e, p, em_vf(e, 1), att_scratch(e, f->one_offset));
    em_val rows = em_ceil_div(e, b.block.tq, (int64_t)f->g->n_part * SN_MIXED_PART_ROWS);
    rows = em_mul(e, rows, SN_MIXED_PART_ROWS);
    em_val q0 = em_mul(e, b.part, rows), left = em_sub(e, b.block.tq, q0);
    rows = em_imin(e, em_imax(e, left, 0), rows);
    em_val blocks = em_ceil_div(e, em_ceil_div(e, rows, p->lanes), p->nv);
    em_loop i = em_for(e, 0, blocks, GROUP);
    block_group g = {.q0 = q0, .rows = rows, .first = i.i};
    g.end = em_imin(e, em_add(e, i.i, GROUP), blocks);
    emit_group(e, &b, &g);
    em_end(e, &i);
    store_sums(e, &b);
    return att_end(e);
}

/* ---- the kernel ------------------------------------------------------------------------------ */

void sn_attention_emit_mixed_grad(em *e, const char *name, const sn_attention_mixed_grad *g) {
    plan f;
    functions fn;
    if (!make_plan(&f, g, name, e->target, e->compute, &e->err)) return;
    emit_functions(e, &f, &fn);
    em_val part = emit_part(e, &f, &fn);
    em_kernel(e, name);
    for (int i = 0; i < 4; i++) {
        const sn_head_matrix *w = &g->x.mix[i / 2];
        if (w->buf >= 0)
            att_load_matrix(e, &f.p, w, i % 2, att_scratch(e, f.matrix_offset[i / 2][i % 2]));
    }
    att_mixed_deal(e, &f.p, part, em_i64(e, g->n_part), em_buf(e, g->x.counter_buf));
    em_end_kernel(e);
}
