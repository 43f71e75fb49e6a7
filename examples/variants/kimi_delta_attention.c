/* kimi_delta_attention.c: a gated delta rule in which each channel of the key decays by a gate of its
 * own. Kimi Team 2025, "Kimi Linear". formula: S ← diag(α) S, S ← S + β kᵀ (v − k S), y = q S,
 * α = e^(−e^a softplus(f(x) + d)) by channel, |k| = |q| = 1 */
#include "recurrent.h"

static void step(sn_scan_step *s) { /* x: q, k, v, α, β */
    sn_tensor S = sn_mul(col(s->x[3]), s->carry[0]);
    sn_tensor miss = sn_sub(s->x[2], times_state(s->x[1], S));
    s->next[0] = sn_add(S, sn_mul(col(s->x[1]), row(sn_mul(col(s->x[4]), miss))));
    s->y[0] = times_state(s->x[0], s->next[0]);
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = convolved(s, x);
    sn_tensor q = sn_mul(unit(p.q), 1 / sqrt(HEAD));
    sn_tensor beta = by_head(sn_sigmoid(sn_nn_linear(x, "beta", HEADS, 0)));
    sn_tensor f = sn_nn_linear(sn_nn_linear(x, "f_low", HEAD, 0), "f_high", WIDTH, SN_BIAS);
    sn_tensor rate = sn_exp(sn_param(s->m, "a_log", SN_F32, HEADS, 1, 1));
    sn_tensor gate = sn_neg(sn_mul(rate, sn_softplus(sn_split_heads(f, HEADS))));
    sn_tensor y = recur(s, carry_of(s, "state", HEADS, HEAD, HEAD), step, NULL,
                        (sn_tensor[]){q, unit(p.k), p.v, sn_exp(gate), beta, NULL});
    y = sn_merge_heads(sn_nn_rms_norm(y, "head_norm", 1e-5));
    sn_tensor open =
        sn_sigmoid(sn_nn_linear(sn_nn_linear(x, "gate_low", HEAD, 0), "gate_high", WIDTH, SN_BIAS));
    return sn_nn_linear(sn_mul(y, open), "out", WIDTH, 0);
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend});
}
