/* split_kv.c: the schedule of decoding. Where there are too few K/V heads for all threads, the keys
 * of each head are split, and a second kernel merges the softmax states of the splits in order [Dao
 * et al., Flash-Decoding for long-context inference, 2023]. The number of splits depends on sizes
 * only, and so does every bit of the result. */
#include "codegen/attention/impl.h"

#include <math.h>

/* K/V heads of all batches, of each head the blocks of queries, of a block the rows (decode.c; the last
 * block may have fewer), KV tiles, and splits of the tiles. */
typedef struct split {
    em_val heads, blocks, rows, tiles, splits;
} split;

static split count_splits(em *e, const att_plan *p) {
    const sn_attention *a = p->a;
    em_val one = em_i64(e, 1), tq = em_size_value(e, a->tq), queries = tq;
    if (a->by_query) queries = em_imin(e, tq, ATT_DECODE_QUERIES);
    split s = {.heads = em_mul(e, em_size_value(e, a->batch), a->heads / a->gqa_ratio),
               .blocks = a->by_query ? em_ceil_div(e, tq, ATT_DECODE_QUERIES) : one,
               .rows = em_mul(e, queries, a->gqa_ratio),
               .tiles = em_ceil_div(e, em_size_value(e, a->tk), ATT_TILE_KEYS),
               .splits = one};
    if (p->max_splits == 1) return s;
    em_val even = em_and(e, em_div(e, ATT_MAX_SPLITS, em_imax(e, s.heads, 1)), -2);
    em_val max_splits = em_div(e, s.tiles, ATT_SPLIT_TILES);
    s.splits = em_imax(e, em_imin(e, even, max_splits), 1);
    return s;
}

/* The start of part i when `all` things are divided among n parts. */
static em_val share_of(em *e, em_val all, em_val i, em_val n) {
    return em_div(e, em_mul(e, all, i), n);
}

/* Softmax states of a split; index: K/V head * splits + split. */
static em_val split_states(em *e, const att_plan *p, em_val index) {
    em_val at = em_mul(e, index, att_split_size(p));
    return em_gep(e, em_buf(e, p->a->splits_buf), p->t, at);
}

/* The queries of block i. */
static void queries_of(em *e, const att_plan *p, em_val i, att_decode_args *args) {
    em_val tq = em_size_value(e, p->a->tq);
    args->q0 = em_mul(e, i, ATT_DECODE_QUERIES);
    args->queries = em_imin(e, em_sub(e, tq, args->q0), ATT_DECODE_QUERIES);
}

/* Threads share the splits of all heads. Without splits they share whole blocks of queries of K/V
 * heads, or, where these do not divide evenly among the threads, the rows of each block. The result of a
 * row does not depend on the other rows. */
void att_emit_decode_heads(em *e, const att_plan *p, em_val decode) {
    em_val lo, hi, n = e->nthreads;
    em_val tk = em_size_value(e, p->a->tk);
    split s = count_splits(e, p);
    em_val all = em_mul(e, s.heads, s.blocks);
    em_val even = em_cmp(e, EM_EQ, em_rem(e, all, n), 0);
    even = em_or(e, even, em_cmp(e, EM_GE, all, em_mul(e, n, 4)));
    em_val whole = em_cmp(e, EM_EQ, s.splits, 1);
    even = em_or(e, even, em_not(e, whole));
    em_val by_rows = em_imax(e, 1, em_select(e, even, 1, em_imin(e, n, s.rows)));
    em_val items = em_mul(e, s.splits, by_rows); /* of a block; one of the factors is 1 */
    em_share(e, em_mul(e, all, items), &lo, &hi);
    em_loop u = em_for(e, lo, hi, 1);
    em_val i = em_rem(e, u.i, items), next = em_add(e, i, 1);
    em_val split0 = em_select(e, whole, 0, i), split1 = em_select(e, whole, 1, next);
    em_val row0 = em_select(e, whole, i, 0), row1 = em_select(e, whole, next, 1);
    em_val states = att_scratch(e, p->decode_state_offset);
    if (p->max_splits > 1) states = em_select(e, whole, states, split_states(e, p, u.i));
    att_decode_args args = {ATT_PASS_CONTEXT(e), .states = states, .complete = whole};
    args.kv_head = em_div(e, u.i, items), args.q0 = em_i64(e, 0);
    args.queries = em_size_value(e, p->a->tq);
    em_val rows = s.rows;
    if (p->a->by_query) {
        queries_of(e, p, em_rem(e, args.kv_head, s.blocks), &args);
        args.kv_head = em_div(e, args.kv_head, s.blocks);
        rows = em_mul(e, args.queries, p->a->gqa_ratio);
    }
    args.row0 = share_of(e, rows, row0, by_rows);
    args.row1 = share_of(e, rows, row1, by_rows);
    args.k0 = em_mul(e, share_of(e, s.tiles, split0, s.splits), ATT_TILE_KEYS);
    args.k1 = em_imin(e, em_mul(e, share_of(e, s.tiles, split1, s.splits), ATT_TILE_KEYS), tk);
    att_decode_call(e, decode, args);
    em_end(e, &u);
}

/* Merges row r of all splits into state 0 in scratch; first: index of the head's first split.
 *   m = max m_s;  l = sum of e^(m_s - m) l_s;  acc = sum of e^(m_s - m) acc_s     over splits s */
static void merge_splits(em *e, const att_plan *p, em_val first, em_val splits, em_val r) {
    em_val state = att_scratch(e, p->decode_state_offset);
    em_loop l = em_for(e, 0, splits, 1);
    em_val m = em_f(e, -INFINITY);
    em_carries(e, &l, &m, 1);
    em_val at = att_row_state(e, p, split_states(e, p, em_add(e, first, l.i)), r, ATT_M);
    m = em_max(e, em_load(e, p->t, at, 1), m);
    em_end(e, &l);
    em_val none = em_cmp(e, EM_EQ, m, em_f(e, -INFINITY));
    em_store(e, p->t, att_row_state(e, p, state, 0, ATT_M), m);
    m = em_splat(e, em_select(e, none, em_f(e, 0), m), p->lanes);
    int n = att_padded(p, p->a->dv) + p->lanes; /* acc and l */
    for (int i = 0; i < n; i += p->lanes) em_store(e, p->t, em_gep(e, state, p->t, i), em_vf(e, 0));
    l = em_for(e, 0, splits, 1);
    em_val src = split_states(e, p, em_add(e, first, l.i));
    at = att_row_state(e, p, src, r, ATT_M);
    em_val factor = att_exp(e, em_sub(e, em_splat(e, em_load(e, p->t, at, 1), p->lanes), m));
    src = att_row_state(e, p, src, r, ATT_ACC);
    for (int i = 0; i < n; i += p->lanes) {
        em_val dst = em_gep(e, state, p->t, i);
        em_val x = em_load(e, p->t, em_gep(e, src, p->t, i), p->lanes),
               sum = em_load(e, p->t, dst, p->lanes);
        tile_add(e, &sum, 1, x, &factor);
        em_store(e, p->t, dst, sum);
    }
    em_end(e, &l);
}

void att_emit_merge_splits(em *e, const att_plan *p) {
    const sn_attention *a = p->a;
    char name[256];
    snprintf(name, sizeof name, "%s_finish", p->name);
    em_kernel(e, name);
    em_val lo, hi, tq = em_size_value(e, a->tq);
    em_val kv_heads = em_i64(e, a->heads / a->gqa_ratio);
    em_branch decodes = em_if(e, em_cmp(e, EM_LE, tq, ATT_DECODE_QUERIES));
    split s = count_splits(e, p);
    em_branch some = em_if(e, em_cmp(e, EM_GT, s.splits, 1));
    em_share(e, em_mul(e, s.heads, s.rows), &lo, &hi);
    em_loop l = em_for(e, lo, hi, 1);
    em_val of_all = em_div(e, l.i, s.rows), r = em_rem(e, l.i, s.rows);
    em_val batch = em_div(e, of_all, kv_heads), kv_head = em_rem(e, of_all, kv_heads);
    em_val head = em_add(e, em_mul(e, kv_head, a->gqa_ratio), em_div(e, r, tq));
    merge_splits(e, p, em_mul(e, of_all, s.splits), s.splits, r);
    att_emit_decode_result(e, p, att_scratch(e, p->decode_state_offset), 0, batch, head,
                           em_rem(e, r, tq));
    em_end(e, &l);
    em_endif(e, &some);
    em_endif(e, &decodes);
    em_end_kernel(e);
}
