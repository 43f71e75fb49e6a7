/* mamba3.c: a state-space layer that integrates by the trapezoidal rule, so that a pair is added when it
 * comes and once more a token later, and whose queries and keys (C and B) are rotated by angles that depend
 * on the tokens so far. Lahoti et al. 2026, "Mamba-3".
 * formula: h ← α h + β k₋₁ᵀ v₋₁ + γ kᵀ v, y = q h + D v; α = e^(−Δ e^a), γ = λ Δ, β = (1 − λ) Δ α.
 * In the loop h is without the token's own pair: h' ← α h' + (β + α γ₋₁) k₋₁ᵀ v₋₁, y = q h' + γ (q · k) v.
 * That is one pair a step. */
#include "recurrent.h"

/* A projection of x for all heads: normalised, shifted by a bias of each head, and rotated. */
static sn_tensor projected(const sn_forward_ctx *s, sn_tensor x, const char *name,
                           sn_tensor angle) {
    x = sn_nn_linear(x, name, HEAD, 0);
    sn_scope_push(s->m, "%s", name);
    x = sn_add(sn_expand(sn_nn_rms_norm(x, "norm", 1e-5), 1),
               sn_param(s->m, "bias", SN_F32, HEADS, 1, HEAD));
    sn_scope_pop(s->m);
    return rotated(x, angle);
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor v = sn_split_heads(sn_nn_linear(x, "v", WIDTH, 0), HEADS);
    sn_tensor dt = by_head(sn_softplus(sn_nn_linear(x, "dt", HEADS, SN_BIAS)));
    sn_tensor trap = by_head(sn_sigmoid(sn_nn_linear(x, "trap", HEADS, 0)));
    sn_tensor rate = sn_expand(sn_exp(sn_param(s->m, "a_log", SN_F32, HEADS)), -1);
    sn_tensor decay = sn_exp(sn_neg(sn_mul(rate, dt))), gamma = sn_mul(trap, dt);
    sn_tensor beta = sn_mul(sn_sub(dt, gamma), decay);

    sn_tensor angle = angles(s, x, dt);
    sn_tensor q = projected(s, x, "c", angle), k = projected(s, x, "b", angle);
    sn_tensor past_gamma = by_head(before(s, by_head(gamma), "past_weight"));
    sn_tensor past_k = sn_split_heads(before(s, sn_merge_heads(k), "past_key"), HEADS);
    past_k = sn_mul(past_k, col(sn_add(beta, sn_mul(decay, past_gamma))));
    sn_tensor past_v = sn_split_heads(before(s, sn_merge_heads(v), "past_value"), HEADS);
    sn_tensor y = recur(s, carry_of(s, "state", HEADS, HEAD, HEAD), pair_step, NULL,
                        (sn_tensor[]){q, past_k, past_v, decay, NULL});
    sn_tensor own = sn_mul(col(gamma), sn_sum_keep(sn_mul(q, k), -1));
    y = sn_add(y, sn_mul(sn_add(own, sn_param(s->m, "skip", SN_F32, HEADS, 1, 1)), v));
    sn_tensor gate = sn_silu(sn_nn_linear(x, "gate", WIDTH, 0));
    return sn_nn_linear(sn_mul(sn_merge_heads(y), gate), "out", WIDTH, 0);
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend});
}
