/* qk_norm.c: queries and keys are normalised per head, with learned gains, before their product,
 * which bounds the scores. Henry et al. 2020, "Query-key normalization"; Dehghani et al. 2023
 * (ViT-22B). formula: softmax(norm(q) norm(k) / √d) v */
#include "small.h"

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = project(x);
    p.q = sn_nn_rms_norm(p.q, "q_norm", 1e-6);
    p.k = sn_nn_rms_norm(p.k, "k_norm", 1e-6);
    p = remember(s, p);
    return join(sn_attention(p.q, p.k, p.v, .causal = true));
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend, .positions = true});
}
