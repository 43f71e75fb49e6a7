/* hybrid.c: decoders whose layers attend or recur: Qwen3-Next [Qwen Team 2025], three layers of Gated
 * DeltaNet [Yang et al. 2024] before each that attends, with gates, and experts in all of them. */
#include "frontend/families/families.h"

static const config_key qwen3_next_keys[] = {
    SIZE_KEYS,
    CONTEXT_KEY,
    KV_HEADS_KEY,
    INT_KEY_OR(causal_lm, d_head, "head_dim", 256, 1, 1 << 16),
    D_MLP_KEY,
    RMS_EPS_KEY,
    BASE_KEY,
    FLOAT_KEY_OR(causal_lm, rotary_part, "partial_rotary_factor", 0.25, 0, 1),
    TIED_KEY(false),
    ACT_KEY("hidden_act", ACT_SILU),
    EXPERTS_KEY("num_experts"),
    EXPERTS_PER_TOKEN_KEY,
    D_EXPERT_KEY,
    NORMED_KEY(true),
    INT_KEY(causal_lm, experts.d_shared, "shared_expert_intermediate_size", 1, 1 << 22),
    INT_KEY_OR(causal_lm, experts.every, "decoder_sparse_step", 1, 1, 1 << 12),
    BOOL_KEY_OR(causal_lm, qkv_bias, "attention_bias", false),
    INT_KEY_OR(causal_lm, full_every, "full_attention_interval", 4, 1, 1 << 12),
    INT_KEY_OR(causal_lm, recurrent.kernel, "linear_conv_kernel_dim", 4, 1, 64),
    INT_KEY_OR(causal_lm, recurrent.key, "linear_key_head_dim", 128, 1, 1 << 12),
    INT_KEY_OR(causal_lm, recurrent.value, "linear_value_head_dim", 128, 1, 1 << 12),
    INT_KEY_OR(causal_lm, recurrent.key_heads, "linear_num_key_heads", 16, 1, 1 << 12),
    INT_KEY_OR(causal_lm, recurrent.heads, "linear_num_value_heads", 32, 1, 1 << 12),
    END_KEYS};

static void finish_qwen3_next(sn_config *c, const sn_model_options *o, causal_lm *g) {
    (void)o;
    g->o_bias = g->qkv_bias;
    g->recurrent.eps = g->eps;
    g->experts.n_dense =
        sn_config_int_list(c, "mlp_only_layers", g->experts.dense, MAX_DENSE_LAYERS, 0, 1 << 12);
    sn_config_divides(c, "linear_num_key_heads", g->recurrent.key_heads, "linear_num_value_heads",
                      g->recurrent.heads);
    if (sn_config_has(c, "layer_types")) return;
    if (g->layers > MAX_LAYER_TYPES)
        sn_config_problem(c, "there are %lld layers, at most %d are supported",
                          (long long)g->layers, MAX_LAYER_TYPES);
    for (int64_t l = 0; l < g->layers && l < MAX_LAYER_TYPES; l++)
        g->layer_type[g->n_layer_types++] = (l + 1) % g->full_every ? RECURRENT : FULL_ATTENTION;
}

const causal_family qwen3_next_family = {
    .names = {LLAMA_NAMES, .q_norm = "self_attn.q_norm", .k_norm = "self_attn.k_norm"},
    .usual = {.norm = RMS_NORM_PLUS_ONE,
              .gated = true,
              .recurrent = {.scope = "linear_attn", .mix = gated_delta_mix},
              .experts = {LLAMA_EXPERTS, .shared = "mlp.shared_expert",
                          .shared_gate = "mlp.shared_expert_gate"}},
    .keys = qwen3_next_keys,
    .finish = finish_qwen3_next};
