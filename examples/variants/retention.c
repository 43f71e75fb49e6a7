/* retention.c: retention instead of softmax attention. The weight of a key is its score times the decay
 * of the head for their distance. A query's weights are divided by the magnitude of their sum, at least 1.
 * Each head is normalised by itself, then gated. Sun et al. 2023, "Retentive Network".
 * formula: Σ γ^(i − j) (q k / √d) v / max(|Σ γ^(i − j) q k / √d|, 1), each head normalised, gated */
#include "small.h"

/* gamma^(distance), gamma = 1 - 2^(-5 - h) */
static sn_tensor decayed(const sn_score_ctx *c) {
    sn_tensor gamma = sn_sub(1.0, sn_exp2(sn_sub(-5.0, sn_cast(c->h, SN_F32))));
    sn_tensor distance = sn_cast(sn_query_key_distance(c), SN_F32);
    return sn_mul(c->score, sn_exp(sn_mul(distance, sn_log(gamma))));
}

static sn_tensor normalised(sn_tensor y) {
    sn_tensor centred = sn_sub(y, sn_mean_keep(y, -1));
    return sn_div(centred, sn_sqrt(sn_add(sn_mean_keep(sn_square(centred), -1), 1e-5)));
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = project(x);
    p.q = sn_rope(p.q, s->pos);
    p.k = sn_rope(p.k, s->pos);
    p = remember(s, p);
    sn_tensor y = sn_attention(p.q, p.k, p.v, .causal = true, .weight = decayed,
                               .divide = SN_DIVIDE_BY_ABS_SUM);
    sn_tensor gate = sn_silu(sn_nn_linear(x, "gate", WIDTH, 0));
    sn_tensor heads = sn_merge_heads(normalised(y));
    return sn_nn_linear(sn_mul(gate, heads), "out", WIDTH, SN_BIAS);
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend});
}
