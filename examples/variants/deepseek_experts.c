/* deepseek_experts.c: experts whose router has a bias that only chooses: it balances the experts without
 * changing the weights of those that are chosen. The experts of the first layer follow from the token
 * itself, by a table. Activations are clamped, and one expert takes all tokens. DeepSeek-AI 2026,
 * "DeepSeek-V4". formula: Σ_e w_e D (SiLU(min(G x, L)) ∘ clip(U x, ±L)) + shared(x), w = a / Σ a for the
 * largest a + b, a = √softplus(x W) */
#include "small.h"

enum { EXPERTS = 8, BEST = 2, EXPERT_HIDDEN = WIDTH, TABLES = 1 /* layers */ };
static const double LIMIT = 7;

static sn_tensor clamped(sn_tensor gate, sn_tensor up) {
    return sn_mul(sn_silu(sn_min(gate, LIMIT)), sn_max(sn_min(up, LIMIT), -LIMIT));
}

/* The table as a function: two different experts for each token, [B, T, BEST]. */
static sn_tensor table(const sn_forward_ctx *s) {
    sn_tensor first = sn_mod(s->tokens, EXPERTS),
              more = sn_mod(sn_div(s->tokens, EXPERTS), EXPERTS - 1);
    sn_tensor second = sn_mod(sn_add(sn_add(first, more), 1), EXPERTS);
    return sn_concat(2, sn_expand(first, 2), sn_expand(second, 2));
}

static sn_tensor experts(const sn_forward_ctx *s, sn_tensor x, bool from_table) {
    sn_tensor a = sn_sqrt(sn_softplus(sn_nn_linear(x, "router", EXPERTS, 0))), chosen;
    if (from_table) {
        chosen = table(s);
    } else {
        sn_tensor bias = sn_stop_gradient(sn_param(s->m, "bias", SN_F32, EXPERTS));
        sn_top_k(sn_add(sn_stop_gradient(a), bias), BEST, &chosen);
    }
    sn_tensor w = sn_take_along(a, 2, chosen);
    w = sn_div(w, sn_sum_keep(w, -1));
    sn_tensor gate =
        sn_expert_linear(x, sn_param(s->m, "gate", SN_F32, EXPERTS, EXPERT_HIDDEN, WIDTH), chosen);
    sn_tensor up =
        sn_expert_linear(x, sn_param(s->m, "up", SN_F32, EXPERTS, EXPERT_HIDDEN, WIDTH), chosen);
    sn_tensor y = sn_expert_linear(
        clamped(gate, up), sn_param(s->m, "down", SN_F32, EXPERTS, WIDTH, EXPERT_HIDDEN), chosen);
    sn_tensor part[2];
    sn_split(sn_nn_linear(x, "shared_up", 2 * EXPERT_HIDDEN, 0), 2, 2, part);
    sn_tensor shared = sn_nn_linear(clamped(part[0], part[1]), "shared_down", WIDTH, 0);
    return sn_add(sn_sum(sn_mul(y, sn_expand(w, 3)), 2), shared);
}

static sn_tensor layers(const void *config, const sn_forward_ctx *s) {
    (void)config;
    sn_tensor x = embed(s, true);
    for (int l = 0; l < LAYERS; l++) {
        sn_scope_push(s->m, "layer%d", l);
        x = add_part(s, x, causal_attention(s, sn_nn_rms_norm(x, "norm1", 1e-5)));
        x = add_part(s, x, experts(s, sn_nn_rms_norm(x, "norm2", 1e-5), l < TABLES));
        sn_scope_pop(s->m);
    }
    return x;
}

SN_MODEL(m, o) {
    sn_decoder d = {NULL, layers, small_logits, CONTEXT, LAYERS};
    sn_decoder_entries(m, &d, o);
}
