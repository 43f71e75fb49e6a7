/* mamba3_mimo.c: Mamba-3 with RANK pairs a token, so that decoding computes RANK times as much for each
 * element of the state that it reads. A loop over RANK times as many elements as tokens adds the pairs of the
 * token before; what a read does not see yet is added to it. Lahoti et al. 2026, "Mamba-3".
 * formula: h ← α h + Σ_r (β k_r,₋₁ᵀ v_r,₋₁ + γ k_rᵀ v_r), y = Σ_r o_r ∘ (q_r h) ∘ SiLU(g_r ∘ z), v_r = v ∘ m_r */
#include "recurrent.h"

enum { RANK = 4 };

/* RANK rows a token for all heads: normalised, shifted, and rotated: [B, HEADS, T, RANK, HEAD]. */
static sn_tensor projected(const sn_forward_ctx *s, sn_tensor x, const char *name,
                           sn_tensor angle) {
    x = sn_reshape(sn_nn_linear(x, name, RANK * HEAD, 0), s->B, s->T, RANK, HEAD);
    sn_scope_push(s->m, "%s", name);
    x = sn_expand(sn_nn_rms_norm(x, "norm", 1e-5), 1);
    x = sn_add(x, sn_param(s->m, "bias", SN_F32, HEADS, 1, RANK, HEAD));
    sn_scope_pop(s->m);
    return rotated(x, row(angle));
}

/* v [B, HEADS, T, HEAD] for each pair, scaled. */
static sn_tensor scaled(const sn_forward_ctx *s, sn_tensor v, const char *name) {
    return sn_mul(row(v), sn_param(s->m, name, SN_F32, HEADS, 1, RANK, HEAD));
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor v = sn_nn_linear(x, "v", WIDTH, 0), old_v = before(s, v, "past_value");
    sn_tensor dt = by_head(sn_softplus(sn_nn_linear(x, "dt", HEADS, SN_BIAS)));
    sn_tensor trap = by_head(sn_sigmoid(sn_nn_linear(x, "trap", HEADS, 0)));
    sn_tensor rate = sn_expand(sn_exp(sn_param(s->m, "a_log", SN_F32, HEADS)), -1);
    sn_tensor fade = sn_neg(sn_mul(rate, dt)), gamma = sn_mul(trap, dt), angle = angles(s, x, dt);
    sn_tensor old = by_head(before(s, by_head(gamma), "past_weight"));
    sn_tensor weight = sn_mul(sn_add(sn_sub(dt, gamma), old), sn_exp(fade));
    sn_tensor q = projected(s, x, "c", angle), k = projected(s, x, "b", angle);
    sn_tensor past = sn_reshape(sn_transpose(k, 0, 2, 1, 3, 4), s->B, s->T, RANK * WIDTH);
    past = sn_reshape(before(s, past, "past_key"), s->B, s->T, HEADS, RANK, HEAD);
    past = sn_mul(sn_transpose(past, 0, 2, 1, 3, 4), col(col(weight)));
    v = scaled(s, sn_split_heads(v, HEADS), "v_scale");
    old_v = scaled(s, sn_split_heads(old_v, HEADS), "v_scale");

    sn_dim n = sn_dim_mul(s->m, s->T, RANK);
    sn_tensor first = sn_cast(sn_eq(sn_iota(s->m, SN_I32, 0, RANK), 0), SN_F32);
    sn_tensor decay = sn_exp(sn_reshape(sn_mul(col(fade), first), s->B, HEADS, n)),
              in[3] = {q, past, old_v};
    for (int i = 0; i < 3; i++) in[i] = sn_reshape(in[i], s->B, HEADS, n, HEAD);
    sn_tensor y = recur(s, carry_of(s, "state", HEADS, HEAD, HEAD), pair_step, NULL,
                        (sn_tensor[]){in[0], in[1], in[2], decay, NULL});
    sn_tensor later =
        sn_strict_mask(s->m, RANK, RANK); /* of a read r: pairs up to r are in the state */
    sn_tensor unseen = sn_where(sn_swap(later, 0, 1), sn_matmul(q, sn_swap(past, 3, 4)), 0);
    sn_tensor own = sn_mul(sn_matmul(q, sn_swap(k, 3, 4)), col(col(gamma)));
    y = sn_add(sn_reshape(y, s->B, HEADS, s->T, RANK, HEAD), sn_matmul(unseen, old_v));
    y = sn_mul(sn_add(y, sn_matmul(own, v)),
               sn_param(s->m, "y_scale", SN_F32, HEADS, 1, RANK, HEAD));
    sn_tensor z = scaled(s, sn_split_heads(sn_nn_linear(x, "gate", WIDTH, 0), HEADS), "gate_scale");
    return sn_nn_linear(sn_merge_heads(sn_sum(sn_mul(y, sn_silu(z)), 3)), "out", WIDTH, 0);
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend});
}
