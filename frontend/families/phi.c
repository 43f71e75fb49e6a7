/* phi.c: Phi-1 to 2 [Li et al. 2023]: attention and MLP side by side after one norm, biases, part of
 * each head rotated. Phi-3 to 4 [Abdin et al. 2024]: Llama with matrices in one: queries, keys and
 * values; gate and up. */
#include "frontend/families/families.h"

static const config_key keys[] = {
    SIZE_KEYS,
    CONTEXT_KEY,
    KV_HEADS_KEY,
    INT_KEY_OR(causal_lm, d_mlp, "intermediate_size", 0, 1, 1 << 22),
    FLOAT_KEY_OR(causal_lm, eps, "layer_norm_eps", 1e-5, 0, 1),
    FLOAT_KEY_OR(causal_lm, rotary_part, "partial_rotary_factor", 0.5, 0, 1),
    BASE_KEY,
    TIED_KEY(false),
    ACT_KEY("hidden_act", ACT_GELU_TANH),
    END_KEYS};

static const config_key keys3[] = {
    SIZE_KEYS,
    CONTEXT_KEY,
    KV_HEADS_KEY,
    D_MLP_KEY,
    FLOAT_KEY_OR(causal_lm, eps, "rms_norm_eps", 1e-5, 0, 1),
    FLOAT_KEY_OR(causal_lm, rotary_part, "partial_rotary_factor", 1, 0, 1),
    BASE_KEY,
    TIED_KEY(false),
    ACT_KEY("hidden_act", ACT_SILU),
    INT_KEY_OR(causal_lm, window, "sliding_window", 0, 1, INT32_MAX),
    END_KEYS};

const causal_family phi_family = {.names = {.prefix = "model.",
                                            .embed = "embed_tokens",
                                            .layers = "layers",
                                            .q = "self_attn.q_proj",
                                            .k = "self_attn.k_proj",
                                            .v = "self_attn.v_proj",
                                            .o = "self_attn.dense",
                                            .before_attn = "input_layernorm",
                                            .up = "mlp.fc1",
                                            .down = "mlp.fc2",
                                            .norm = "final_layernorm",
                                            .head = "lm_head"},
                                  .usual = {.block = PARALLEL,
                                            .qkv_bias = true,
                                            .o_bias = true,
                                            .mlp_bias = true,
                                            .head_bias = true},
                                  .keys = keys};
const causal_family phi3_family = {.names = {.prefix = "model.",
                                             .embed = "embed_tokens",
                                             .layers = "layers",
                                             .qkv = "self_attn.qkv_proj",
                                             .o = "self_attn.o_proj",
                                             .before_attn = "input_layernorm",
                                             .before_mlp = "post_attention_layernorm",
                                             .gate_up = "mlp.gate_up_proj",
                                             .down = "mlp.down_proj",
                                             .norm = "norm",
                                             .head = "lm_head"},
                                   .usual = {.norm = RMS_NORM},
                                   .keys = keys3};
