/* indexer.h: the lightning indexer of DeepSeek Sparse Attention: for each query the tokens that it attends to
 * [DeepSeek-AI 2025, "DeepSeek-V3.2", section 2.1]. Field of causal_lm. Not public. */
#ifndef SN_INDEXER_H
#define SN_INDEXER_H

#include "frontend/models.h"

typedef struct token_indexer {
    const char *scope;            /* NULL: queries attend to all tokens */
    int64_t heads, width, chosen; /* of scores: heads, elements of a head; tokens per query */
} token_indexer;

/* Places x [B, H, T, width] by the positions. */
typedef sn_tensor indexer_rotate(const void *user, const sn_forward_ctx *s, sn_tensor x);

/* Whether there is one query, after the cached tokens of a single sequence: it reads the rows of the chosen tokens only, always
 * `chosen` of them. Several sequences, whose rows do not lie side by side, mask the others. */
bool indexer_gathers(const sn_forward_ctx *s);

/* For x and the queries' latents [B, T, ..]: whether a query attends to a token, bool [B, T, Tk], of the `chosen` tokens
 * up to its own with the largest Σ_h w_h ReLU(q_h · k). indexer_gathers: the numbers of these tokens, i32 [1, chosen]; where
 * there are fewer, the rest are above the query's. NULL: the cache has no more than `chosen`, or an error. */
sn_tensor indexer_choose(const token_indexer *a, const sn_forward_ctx *s, sn_tensor x,
                         sn_tensor latent, indexer_rotate *rotate, const void *user);

#endif
