/* gated_linear_attention.c: a matrix carried along the sequence instead of a KV cache. Each token
 * decays its rows by gates of its own, adds k^T v, and reads it with q. Yang et al. 2024, "Gated
 * Linear Attention Transformers". formula: S ← α ∘ S + kᵀ v, y = q S, α = sigmoid(x W)^(1/16) */
#include "recurrent.h"

static void step(sn_scan_step *s) { /* x: q, k, v, decays */
    s->next[0] = sn_add(sn_mul(col(s->x[3]), s->carry[0]), sn_mul(col(s->x[1]), row(s->x[2])));
    s->y[0] = times_state(s->x[0], s->next[0]);
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = project(x);
    sn_tensor forget =
        sn_nn_linear(sn_nn_linear(x, "gate_low", 16, 0), "gate_high", WIDTH, SN_BIAS);
    sn_tensor decay = sn_exp(sn_mul(sn_softplus(sn_neg(forget)), -1.0 / 16));
    sn_tensor y = recur(s, carry_of(s, "state", HEADS, HEAD, HEAD), step, NULL,
                        (sn_tensor[]){p.q, p.k, p.v, sn_split_heads(decay, HEADS), NULL});
    return gated_output(y, x);
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend});
}
