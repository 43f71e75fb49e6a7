/* alibi.c: attention with linear biases: there are no positional embeddings; instead each head
 * subtracts its slope times the key's distance from the score. Press et al. 2021, "Train short,
 * test long". formula: softmax(q k / √d − 2^(−8 (h+1)/H) (i − j)) v */
#include "small.h"

/* The slope of head h = 0 … is 2^(-8 (h + 1) / HEADS). */
static sn_tensor penalty(const sn_score_ctx *c) {
    sn_tensor slope = sn_exp2(sn_mul(sn_cast(sn_add(c->h, 1), SN_F32), -8.0 / HEADS));
    return sn_sub(c->score, sn_mul(slope, sn_cast(sn_query_key_distance(c), SN_F32)));
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = remember(s, project(x));
    return join(sn_attention(p.q, p.k, p.v, .causal = true, .score = penalty));
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend});
}
