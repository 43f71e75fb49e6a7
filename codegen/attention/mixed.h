/* mixed.h: generator of attention kernels whose heads mix, before the softmax or after it [Shazeer et
 * al. 2020, "Talking-heads attention"]. */
#ifndef SN_ATTENTION_MIXED_H
#define SN_ATTENTION_MIXED_H

#include "codegen/attention/backward.h"

/* A matrix [heads, heads]: what head `row` gets of head `column`. */
typedef struct sn_head_matrix {
    int buf; /* < 0: heads stay as they are */
    sn_dtype dtype;
    em_size row, column; /* strides */
} sn_head_matrix;

/* The spec of attention, whose regions see mixed scores; as many K/V heads as heads, of the compute
 * type, with no sink, no dropout, and softmax. */
typedef struct sn_attention_mixed {
    sn_attention a;
    sn_head_matrix mix[2]; /* of the scores, of the weights */
    int counter_buf;       /* a work counter, or NULL */
} sn_attention_mixed;

/* Its gradient, without a score region. a.lse_buf is read. */
typedef struct sn_attention_mixed_grad {
    sn_attention_mixed x;
    sn_attention_operand dout, dq;
    int n_part;         /* of the queries, whose sums are to be added up: */
    int dk_buf, dv_buf; /* [n_part, B, tk, heads, d or dv] */
    int sums_buf[2];    /* [n_part, B, heads, heads] for the matrices; < 0: not wanted */
} sn_attention_mixed_grad;

void sn_attention_emit_mixed_grad(em *e, const char *name, const sn_attention_mixed_grad *g);
int64_t sn_attention_mixed_grad_scratch(const sn_attention_mixed_grad *g, const sn_target *t,
                                        sn_dtype compute, int64_t tq, int64_t tk);
void sn_attention_emit_mixed(em *e, const char *name, const sn_attention_mixed *x);
int64_t sn_attention_mixed_scratch(const sn_attention_mixed *x, const sn_target *t,
                                   sn_dtype compute, int64_t tq, int64_t tk);

/* ---- mix.c: heads of a tile -------------------------------------------------------------------
 *
 * A tile of all heads is [head][key][query] in scratch, four keys more apart than it has, so that the
 * heads of a key do not share cache sets. */

static inline int64_t att_mixed_head(const att_plan *p) { /* elements between heads of a tile */
    return (int64_t)(p->mixed_keys + 4) * p->qb;
}

/* The matrix in scratch: element [h][o] is what head o gets of head h; transposed: of o, h. */
void att_load_matrix(em *e, const att_plan *p, const sn_head_matrix *w, bool transposed, em_val to);
/* y[o][k] = sum over h of w[h][o] x[h][k], for k < keys and nv vectors of queries.
 * scaled: x[h][k] factor[h]; spare: memory for one key of x. matrix false: y = x factor. */
#define ATT_MIX_PARAMS(P) P(ptr, w) P(ptr, x) P(ptr, y) P(ptr, factor) P(ptr, spare) P(i64, keys)
ATT_SIGNATURE(att_mix, ATT_MIX_PARAMS)
typedef struct att_mix_kind {
    const char *name;
    bool matrix, scaled;
} att_mix_kind;
em_val att_emit_mix(em *e, const att_plan *p, const att_mix_kind *k, int nv);

bool att_check_mixed(const sn_attention_mixed *x, sn_dtype compute, sn_error *err);
/* How many of the n keys from k0 on some head of the block sees: those behind are hidden from all.
 * kinds: receives what each head sees, SN_TILE_SKIPPED .. SN_TILE_FULL as an i64, p->qb elements
 * apart; NULL: not wanted. */
em_val att_mixed_visible_keys(em *e, const att_query_block *b, em_val k0, em_val n, em_val kinds);
/* An item of work of a batch, for all heads. Threads take items from a counter, the last ones first,
 * which are the longest where the mask is causal; counter NULL when it runs: `items` of each batch are
 * dealt. */
#define ATT_MIXED_ITEM_PARAMS(P) ATT_CONTEXT(P) P(i64, batch) P(i64, index)
ATT_SIGNATURE(att_mixed_item, ATT_MIXED_ITEM_PARAMS)
void att_mixed_deal(em *e, const att_plan *p, em_val fn, em_val items, em_val counter);

/* ---- mixed_grad_tile.c: the gradient ---------------------------------------------------------- */

/* A vector of queries from q0 on of one head: scores s at the first keys of the tile at k0 become
 * weights e^(s - m - log l), hidden ones 0. */
/* clang-format off */
#define ATT_MIXED_WEIGHTS_PARAMS(P) \
    ATT_CONTEXT(P) P(ptr, s) P(ptr, m) P(ptr, log2_l) P(i64, keys) P(i64, k0) P(i64, q0) \
    P(i64, batch) P(i64, head)
/* clang-format on */
ATT_SIGNATURE(att_mixed_weights, ATT_MIXED_WEIGHTS_PARAMS)
em_val att_emit_mixed_weights(em *e, const att_plan *p, bool masked);
/* D += sum over `keys` of p dp, a vector of queries. */
#define ATT_MIXED_DELTA_PARAMS(P) P(ptr, p) P(ptr, dp) P(ptr, delta) P(i64, keys)
ATT_SIGNATURE(att_mixed_delta, ATT_MIXED_DELTA_PARAMS)
em_val att_emit_mixed_delta(em *e, const att_plan *p);
/* dp = p (dp - D) in place, 0 where p is 0. */
em_val att_emit_mixed_scores(em *e, const att_plan *p);
/* sums[i][j] += sum over `keys` and nv vectors of queries of x[i] y[j], for all pairs of heads; a vector
 * each. */
#define ATT_MIXED_PAIRS_PARAMS(P) P(ptr, x) P(ptr, y) P(ptr, sums) P(i64, keys)
ATT_SIGNATURE(att_mixed_pairs, ATT_MIXED_PAIRS_PARAMS)
em_val att_emit_mixed_pairs(em *e, const att_plan *p, int nv);

#endif
