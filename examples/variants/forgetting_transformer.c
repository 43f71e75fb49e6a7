/* forgetting_transformer.c: each token has a forget gate f for each head. The score of an earlier key is
 * lowered by the sum of -ln f of the tokens after it. The running sum of ln f is cached beside the keys:
 * the penalty is its difference between query and key. There are no positional embeddings. Lin et al.
 * 2025, "Forgetting Transformer". formula: softmax(q k / √d + Σ ln f(l) for j < l ≤ i) v, f =
 * sigmoid(x W) */
#include "small.h"

static sn_tensor faded(const sn_score_ctx *c) {
    sn_tensor here = sn_add(sn_query_key_distance(c), c->k); /* the query's position */
    sn_tensor until = sn_at(c->captured[0], c->b, c->h, here);
    return sn_add(c->score, sn_sub(until, sn_at(c->captured[0], c->b, c->h, c->k)));
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = remember(s, project(x));
    sn_tensor f = sn_log_sigmoid(sn_nn_linear(x, "forget", HEADS, SN_BIAS));
    f = sn_append_kv(s, sn_expand(sn_swap(f, 1, 2), 3), "forgotten"); /* [B, HEADS, Tk, 1] */
    sn_tensor sum = sn_squeeze(sn_cumsum(f, 2), 3);
    return join(sn_attention(p.q, p.k, p.v, .causal = true, .score = faded, .captured = {sum}));
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend});
}
