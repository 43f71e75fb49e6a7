/* qwen_moe.c: Qwen 1.5 and 2 MoE [Qwen Team 2024]: Qwen 2 with experts and one more that every
 * token uses; Qwen 3 MoE [Yang et al. 2025]: Qwen 3 with experts. */
#include "frontend/families/families.h"

#define QWEN_MOE_KEYS                                                                              \
    SIZE_KEYS, CONTEXT_KEY, KV_HEADS_KEY, D_HEAD_KEY, D_MLP_KEY, RMS_EPS_KEY, BASE_KEY,            \
        TIED_KEY(false), ACT_KEY("hidden_act", ACT_SILU), EXPERTS_KEY("num_experts"),              \
        EXPERTS_PER_TOKEN_KEY, D_EXPERT_KEY, NORMED_KEY(false),                                    \
        INT_KEY_OR(causal_lm, experts.every, "decoder_sparse_step", 1, 1, 1 << 12),                \
        INT_KEY_OR(causal_lm, first_windowed, "max_window_layers", 28, 0, 1 << 12)

static const config_key keys2[] = {
    QWEN_MOE_KEYS,
    INT_KEY(causal_lm, experts.d_shared, "shared_expert_intermediate_size", 1, 1 << 22),
    BOOL_KEY_OR(causal_lm, qkv_bias, "qkv_bias", true), END_KEYS};
static const config_key keys3[] = {
    QWEN_MOE_KEYS, BOOL_KEY_OR(causal_lm, qkv_bias, "attention_bias", false), END_KEYS};

static void finish(sn_config *c, const sn_model_options *o, causal_lm *g) {
    (void)o;
    if (sn_config_bool_or(c, "use_sliding_window", false))
        g->window = sn_config_int_or(c, "sliding_window", 4096, 1, INT32_MAX);
    g->experts.n_dense =
        sn_config_int_list(c, "mlp_only_layers", g->experts.dense, MAX_DENSE_LAYERS, 0, 1 << 12);
}

static void finish3(sn_config *c, const sn_model_options *o, causal_lm *g) {
    finish(c, o, g);
    g->o_bias = g->qkv_bias;
}

const causal_family qwen2_moe_family = {
    .names = {LLAMA_NAMES},
    .usual = {.norm = RMS_NORM,
              .experts = {LLAMA_EXPERTS, .shared = "mlp.shared_expert",
                          .shared_gate = "mlp.shared_expert_gate"}},
    .keys = keys2,
    .finish = finish};
const causal_family qwen3_moe_family = {
    .names = {LLAMA_NAMES, .q_norm = "self_attn.q_norm", .k_norm = "self_attn.k_norm"},
    .usual = {.norm = RMS_NORM, .experts = {LLAMA_EXPERTS}},
    .keys = keys3,
    .finish = finish3};
