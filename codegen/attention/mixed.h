/* mixed.h: generator of attention kernels whose heads mix, before the softmax or after it [Shazeer et
 * al. 2020, "Talking-heads attention"]. */
#ifndef SN_ATTENTION_MIXED_H
#define SN_ATTENTION_MIXED_H

#include "codegen/attention/impl.h"

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
} sn_attention_mixed;

void sn_attention_emit_mixed(em *e, const char *name, const sn_attention_mixed *x);
int64_t sn_attention_mixed_scratch(const sn_attention_mixed *x, const sn_target *t,
                                   sn_dtype compute, int64_t tq, int64_t tk);

/* ---- mix.c: heads of a tile -------------------------------------------------------------------
 *
 * A tile of all heads is [head][key][query] in scratch, ATT_MIXED_KEYS keys apart, so that the heads
 * of a key do not share cache sets. */

enum { ATT_MIXED_KEYS = ATT_TILE_KEYS + 4 };
static inline int64_t att_mixed_head(const att_plan *p) { /* elements between heads of a tile */
    return (int64_t)ATT_MIXED_KEYS * p->qb;
}

/* The matrix in scratch: element [h][o] is what head o gets of head h; transposed: of o, h. */
void att_load_matrix(em *e, const att_plan *p, const sn_head_matrix *w, bool transposed, em_val to);
/* y[o][k] = sum over h of w[h][o] x[h][k], for k < keys and nv vectors of queries.
 * scaled: x[h][k] factor[h]; matrix false: y = x factor. */
#define ATT_MIX_PARAMS(P) P(ptr, w) P(ptr, x) P(ptr, y) P(ptr, factor) P(i64, keys)
ATT_SIGNATURE(att_mix, ATT_MIX_PARAMS)
typedef struct att_mix_kind {
    const char *name;
    bool matrix, scaled;
} att_mix_kind;
em_val att_emit_mix(em *e, const att_plan *p, const att_mix_kind *k, int nv);

#endif
