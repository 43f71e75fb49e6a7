/* gptj.c: GPT-J [Wang & Komatsuzaki 2021]: attention without biases and MLP side by side after one
 * norm, a part of each head rotated in pairs of neighbours, a head with a bias. */
#include "frontend/families/families.h"

static const config_key keys[] = {INT_KEY(causal_lm, vocab, "vocab_size", 1, 1 << 24),
                                  INT_KEY(causal_lm, context, "n_positions", 1, 1 << 24),
                                  INT_KEY(causal_lm, layers, "n_layer", 1, 1 << 12),
                                  INT_KEY(causal_lm, heads, "n_head", 1, 1 << 12),
                                  INT_KEY(causal_lm, d, "n_embd", 1, 1 << 20),
                                  INT_KEY_OR(causal_lm, d_mlp, "n_inner", 0, 1, 1 << 22),
                                  INT_KEY(causal_lm, rotary, "rotary_dim", 2, 1 << 16),
                                  FLOAT_KEY_OR(causal_lm, eps, "layer_norm_epsilon", 1e-5, 0, 1),
                                  FLOAT_KEY_OR(causal_lm, base, "rope_theta", 10000, 1, 1e12),
                                  ACT_KEY("activation_function", ACT_GELU_TANH),
                                  TIED_KEY(false),
                                  END_KEYS};

const causal_family gptj_family = {
    .names = {.prefix = "transformer.",
              .embed = "wte",
              .layers = "h",
              .q = "attn.q_proj",
              .k = "attn.k_proj",
              .v = "attn.v_proj",
              .o = "attn.out_proj",
              .before_attn = "ln_1",
              .up = "mlp.fc_in",
              .down = "mlp.fc_out",
              .norm = "ln_f",
              .head = "lm_head"},
    .usual = {.block = PARALLEL, .mlp_bias = true, .head_bias = true, .interleaved = true},
    .keys = keys};
