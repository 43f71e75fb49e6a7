/* attention.h: generator of attention kernels. Forward: out = softmax(mask(score(scale q k^T))) v by
 * flash attention, that is online softmax over tiles [Milakov and Gimelshein 2018; Dao et al. 2022,
 * 2023]. The score and the mask are regions of scalar IR that become part of the loops. */
#ifndef SN_ATTENTION_H
#define SN_ATTENTION_H

#include "codegen/emit/emit.h"
#include "ir/ir.h"

/* out[b,h,q,:] = sum over k of p[k] v[b,h/gqa_ratio,k,:], where p is the softmax of the scores over
 * k; q < tq, k < tk, h < heads. The elements of a row are contiguous. The other axes have any
 * stride, so q, k, v may be views of one merged projection and out a view of [B,T,H*dv].
 *
 * score(s, b, h, q, k, captured ...) -> score of the compute type, from s = scale * q.k;
 * mask(b, h, q, k, captured ...) -> bool, true where q sees k. Both are regions. b, h, q, k are
 * rank-0 arguments of any integer type; captured tensors are read by gather_nd (rank 0: used directly).
 *
 * A key that is masked or has the score -inf contributes nothing, even if its k or v is not finite.
 * A row without visible keys is 0, and both parts of its log-sum-exp are -inf. NaN or +inf in a
 * visible score makes the row NaN, as in the unfused form. Weights are normalised last: values of v
 * times 256 times the number of keys must not overflow. The order of summation depends on shapes
 * only, so results do not depend on the number of threads. */
typedef struct sn_attention_operand {
    int buf;        /* base pointer: buf[buf] of the call */
    sn_dtype dtype; /* any float type; of k and v with scales int8 */
    em_size offset; /* elements, like the strides below */
    em_size batch, head, row;
} sn_attention_operand;

typedef struct sn_attention_captured {
    int buf;
    sn_dtype dtype;
    em_size offset;
    int rank;
    em_size shape[SN_MAX_RANK], stride[SN_MAX_RANK];
} sn_attention_captured;

typedef struct sn_attention {
    int d, dv;            /* elements of a row of q and k; of v and out */
    int heads, gqa_ratio; /* query heads; query heads per K/V head */
    em_size batch, tq, tk;
    double scale;
    sn_attention_operand q, k, v, out; /* head strides of k and v are per K/V head */
    /* Rows of k and v are int8, and these are their factors, f32, one for each row. */
    bool row_scales;
    sn_attention_operand k_scale, v_scale;
    /* Both factors of each product are rounded to bf16, where the compute type is f32; sums are f32,
     * two products at a time (codegen/tile/bf16.c). */
    bool bf16;
    /* Each row's sum has one more term: a score or, with `weights`, a weight. */
    bool sinks;
    sn_attention_operand sink;
    /* Buffer [B, heads, 2, tq] of the compute type, or < 0: m, the largest score of each query or
     * slightly less, and log of the sum of e^(score - m). The log-sum-exp is their sum, which a
     * single number could hold to half an ulp of m only. */
    int lse_buf;
    int lse_parts; /* of lse_buf: 2, or for a gradient 3: the third is the log-sum-exp's cotangent */
    int splits_buf; /* memory of all threads, sn_attention_split_bytes; 0: keys are not split */
    bool unsplit;   /* keys are never split, so that no sum depends on the number of heads */
    /* Each query is computed as in decoding, so that no sum depends on the number of queries; where heads
     * mix, keys are summed in fours up to the last. Implies `unsplit`. */
    bool by_query;
    /* Not softmax: the scores are the weights, 0 where a key is masked, and a row of `out` is divided
     * by 1, the sum or max(|sum|, 1), or 0 where that is 0. lse_buf then holds 1 / that divisor and
     * its derivative by the sum. */
    sn_weights_kind weights;
    const sn_region *score, *mask; /* NULL: none */
    int n_captured;
    const sn_attention_captured *captured;
    /* Dropout of the weights, if rate > 0: weight (b, h, q, k) takes element ((b heads + h) tq + q)
     * tk + k of the random stream (runtime/rng.h). It becomes 0 if that is below rate, else it is
     * divided by 1 - rate. */
    double rate;
    uint32_t stream;
    int seed_buf; /* two i64: seed, step */
    em_size seed_stride;
    em_val (*dim)(void *ctx, em *e, sn_dim d); /* i64 value of a dimension that a region uses; may
                                                  be NULL where dimensions are numbers */
    void *ctx;
    int tile; /* forward: tiling, 0 .. sn_attention_tiles - 1; all give the same bits */
} sn_attention;

/* Number of tilings, and their names for reports. */
int sn_attention_tiles(const sn_attention *a, sn_dtype compute);
const char *sn_attention_tile_name(int i);

/* Emits a kernel called `name` into e's module, with e's compute type. Errors of the spec go to
 * e->err. With splits_buf there is a second kernel, `name`_finish, which all threads run with the
 * same arguments after all have finished the first. */
void sn_attention_emit(em *e, const char *name, const sn_attention *a);

/* Bytes for the softmax states of splits; 0: these sizes are not split. The keys of few queries
 * (decoding) of few heads are split, so that all threads have work; the number of splits depends on
 * sizes only. */
int64_t sn_attention_split_bytes(const sn_attention *a, const sn_target *t, sn_dtype compute);

/* Bytes of scratch per thread: a constant plus terms linear in tq and tk. */
int64_t sn_attention_scratch(const sn_attention *a, const sn_target *t, sn_dtype compute,
                             int64_t tq, int64_t tk);

/* Backward: the gradients of q, k, v and of captured tensors, given the cotangent of the result.
 * Scores and weights are recomputed from the log-sum-exp, tile by tile, and the cotangents of the
 * scores are taken through the derivative of the score region. Tiles that the mask hides are
 * skipped as in the forward kernel.
 *
 * With D = rowsum(dout * out) and weights p: dv = p^T dout, dp = dout v^T, ds = p (dp - D),
 * dq = scale ds k, dk = scale ds^T q [Dao et al. 2022, algorithm 4]. The order of summation depends
 * on shapes only. */
typedef struct sn_attention_table {
    int captured;                /* the tensor whose gradient this is */
    int axis[2];                 /* its batch and head axes, sn_score_axes */
    sn_attention_captured parts; /* [B or 1, heads or 1, its shape] of the compute type */
} sn_attention_table;

typedef struct sn_attention_grad {
    sn_attention a; /* out and lse are read */
    sn_attention_operand dout, dq, dk, dv;
    const sn_score_grad *score; /* NULL: no score region */
    int n_table;
    const sn_attention_table *table;
} sn_attention_grad;

void sn_attention_emit_grad(em *e, const char *name, const sn_attention_grad *g);
int64_t sn_attention_grad_scratch(const sn_attention_grad *g, const sn_target *t, sn_dtype compute,
                                  int64_t tq, int64_t tk);

/* For reports: a kernel that writes to buf[buf], i64 [batch, heads, blocks of queries, KV tiles], which
 * of this each tile is, by the analysis that the attention kernel uses. */
typedef enum sn_tile_kind {
    SN_TILE_SKIPPED,
    SN_TILE_PARTIAL,
    SN_TILE_FULL,
    SN_TILE_KINDS
} sn_tile_kind;
void sn_attention_emit_tile_map(em *e, const char *name, const sn_attention *a, int buf);
/* Queries and keys of a tile. */
void sn_attention_tile_size(const sn_attention *a, const sn_target *t, sn_dtype compute,
                            int *queries, int *keys);

/* Number of values of the score (or, if not NULL, of its derivative) and of the mask that depend on
 * query - key only and are computed once per distance, because they are expensive. */
int sn_attention_relative_terms(const sn_attention *a, const sn_region *derivative);
/* Number of integers, such as indices, that are sums of parts of the query and parts of the key; each
 * part is computed once. */
int sn_attention_separable_terms(const sn_attention *a, const sn_region *derivative);

/* Whether queries choose blocks of keys by a table, so that those that see a tile are gathered. */
bool sn_attention_gathers(const sn_attention *a);

/* Whether tiles can be skipped or run without mask, by interval analysis of the mask. `why` (may be
 * NULL) receives a sentence for reports. */
typedef enum sn_mask_kind {
    SN_MASK_NONE,       /* no mask: every tile is full */
    SN_MASK_DECIDABLE,  /* empty and full tiles are found */
    SN_MASK_UNDECIDABLE /* every tile is computed with its mask */
} sn_mask_kind;
sn_mask_kind sn_attention_explain(const sn_attention *a, char *why, size_t size);

#endif
