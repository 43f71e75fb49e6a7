/* log_linear_attention.c: each key's score is multiplied by a factor that its query has for each level.
 * The level is the highest bit in which the positions of query and key differ. A recurrence needs one
 * state for each level, log2 of the context. Guo et al. 2025, "Log-Linear Attention".
 * formula: Σ λ(i, level(i xor j)) (q k / √d) v */
#include "small.h"

enum { LEVELS = 9 }; /* of positions below 256 */

static sn_tensor by_level(const sn_score_ctx *c) {
    sn_tensor i = sn_add(sn_query_key_distance(c), c->k), apart = sn_xor(i, c->k);
    sn_tensor level = sn_scalar(c->m, SN_I32, 0);
    for (int bit = 1; bit < LEVELS; bit++)
        level = sn_add(level, sn_cast(sn_ge(apart, 1 << (bit - 1)), SN_I32));
    return sn_mul(c->score, sn_at(c->captured[0], c->b, c->h, c->q, level));
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = remember(s, project(x));
    sn_tensor factor = sn_softplus(sn_nn_linear(x, "levels", HEADS * LEVELS, SN_BIAS));
    factor = sn_split_heads(factor, HEADS); /* [B, HEADS, T, LEVELS] */
    return join(
        sn_attention(p.q, p.k, p.v, .causal = true, .weight = by_level, .captured = {factor}));
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend, .positions = true});
}
