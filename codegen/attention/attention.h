/* attention.h: generator of attention kernels, forward: out = softmax(mask(score(scale q k^T))) v.
 * Online softmax over tiles [Milakov and Gimelshein 2018; Dao et al. 2022]; the score and the mask
 * are regions of scalar IR that become part of the loops. */
#ifndef SN_ATTENTION_H
#define SN_ATTENTION_H

#include "codegen/gemm/gemm.h" /* sn_gemm_size */
#include "ir/ir.h"

/* out[b,h,q,:] = sum over k of p[k] v[b,h/group,k,:], p = softmax over k of the scores; for q < tq,
 * k < tk, h < heads. Elements of one row are next to each other; other axes have any stride, so
 * that q, k, v may be views of one packed product and out a view of [B,T,H*dv].
 *
 * score(s, b, h, q, k, captured ...) -> s of the compute type, from s = scale * q.k;
 * mask(b, h, q, k, captured ...) -> bool, true where q sees k. Both are regions; b, h, q, k are
 * rank-0 arguments of any integer type, captured tensors are read by `at` (rank 0: used directly).
 *
 * A key that is masked, or whose score is -inf, contributes nothing, even where its k or v is not
 * finite. A row without any such key is 0, both parts of its log-sum-exp -inf. NaN and +inf in a
 * visible score make the row NaN, as the unfused form does. Weights are normalised last: values of
 * v, times 256 times the number of keys, must not overflow. Each element is summed in an order that
 * depends on shapes only: results do not depend on the number of threads. */
typedef struct sn_attention_operand {
    int buf;             /* base pointer: buf[buf] of the call */
    sn_dtype dtype;      /* any float type */
    sn_gemm_size offset; /* elements, like the strides below */
    sn_gemm_size batch, head, row;
} sn_attention_operand;

typedef struct sn_attention_captured {
    int buf;
    sn_dtype dtype;
    sn_gemm_size offset;
    int rank;
    sn_gemm_size shape[SN_MAX_RANK], stride[SN_MAX_RANK];
} sn_attention_captured;

typedef struct sn_attention {
    int d, dv;        /* elements of a row of q and k; of v and out */
    int heads, group; /* query heads; query heads that share a head of k and v */
    sn_gemm_size batch, tq, tk;
    double scale;
    sn_attention_operand q, k, v, out; /* head strides of k and v are per K/V head */
    int lse_buf;   /* [B, heads, 2, tq] of the compute type, < 0: not wanted. Of each query a number
                    * m,   its largest score or slightly less, and log of the sum of e^(score - m).
                    * Their   sum is the log-sum-exp, which one number could hold to half an ulp of m
                    * only. */
    int parts_buf; /* memory of all threads, sn_attention_parts bytes; 0: none, keys of few queries
                      are not split */
    const sn_region *score, *mask; /* NULL: none */
    int n_captured;
    const sn_attention_captured *captured;
    /* Dropout of the weights, if rate > 0: weight (b, h, q, k) is element ((b heads + h) tq + q) tk
     * + k of the stream (runtime/rng.h), dropped if it is below rate, else divided by 1 - rate. */
    double rate;
    uint32_t stream;
    int seed_buf; /* two i64: seed, step */
    sn_gemm_size seed_stride;
    em_val (*dim)(void *ctx, em *e, sn_dim d); /* i64 value of a dimension that a region uses; may
                                                  be NULL where dimensions are numbers */
    void *ctx;
    int tile; /* forward: how queries are cut in blocks, 0 or another of sn_attention_tiles; the
                 same bits */
} sn_attention;

/* How many ways of cutting there are, and what way i is. */
int sn_attention_tiles(const sn_attention *a, sn_dtype compute);
const char *sn_attention_tile_name(int i);

/* Emits a kernel called `name` into e's module, whose compute type it uses. Mistakes of the spec
 * stick to e->err. With parts_buf there is a second one, `name`_finish, which all threads run, with
 * the same arguments, when all are done with the first. */
void sn_attention_emit(em *e, const char *name, const sn_attention *a);

/* Bytes of the memory in which parts of the keys leave their sums; 0: these sizes need no parts.
 * Few queries (decoding) of few heads over many keys are done in parts, for all threads to have
 * work; how many depends on sizes only. */
int64_t sn_attention_parts(const sn_attention *a, const sn_target *t, sn_dtype compute);

/* Bytes of scratch that each thread needs: a constant plus terms linear in tq and tk. */
int64_t sn_attention_scratch(const sn_attention *a, const sn_target *t, sn_dtype compute,
                             int64_t tq, int64_t tk);

/* What flows back through attention, given what flows into its result. Scores and weights are
 * computed again from the log-sum-exp, tile by tile, and d scores are taken through the derivative
 * of the score region; tiles that the mask hides are skipped as in the forward kernel.
 *
 * With D = rowsum(d out * out), p the weights: dv = p^T d out, dp = d out v^T, ds = p (dp - D),
 * dq = scale ds k, dk = scale ds^T q [Dao et al. 2022, algorithm 4]. Each element is summed in an
 * order that depends on shapes only. */
typedef struct sn_attention_table {
    int captured;                /* which tensor's gradient */
    int axis[2];                 /* of it, sn_score_axes */
    sn_attention_captured parts; /* [batches or 1, heads or 1, its shape] of the compute type */
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

/* How many values of the score (or, if not NULL, of its derivative) and the mask follow from the
 * difference of query and key, and are dear enough to be computed once for each difference. */
int sn_attention_diagonals(const sn_attention *a, const sn_region *derivative);

/* Whether tiles of keys can be skipped or run without mask: what the interval analysis can say
 * about the mask. `why` (may be NULL) receives a sentence for reports. */
typedef enum sn_mask_kind {
    SN_MASK_NONE,       /* no mask: every tile is full */
    SN_MASK_DECIDABLE,  /* empty and full tiles are found */
    SN_MASK_UNDECIDABLE /* every tile is computed with its mask */
} sn_mask_kind;
sn_mask_kind sn_attention_explain(const sn_attention *a, char *why, size_t size);

#endif
