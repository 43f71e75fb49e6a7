/* gpt_neox.c: GPT-NeoX and Pythia [Black et al. 2022]: attention and MLP side by side, each with a
 * norm, or in turn; queries, keys and values of each head in one matrix; part of each head rotated. */
#include "frontend/families/families.h"

static const config_key keys[] = {SIZE_KEYS,
                                  CONTEXT_KEY,
                                  D_MLP_KEY,
                                  FLOAT_KEY_OR(causal_lm, eps, "layer_norm_eps", 1e-5, 0, 1),
                                  FLOAT_KEY_OR(causal_lm, rotary_part, "rotary_pct", 0.25, 0, 1),
                                  FLOAT_KEY_OR(causal_lm, base, "rotary_emb_base", 10000, 1, 1e12),
                                  TIED_KEY(false),
                                  ACT_KEY("hidden_act", ACT_GELU),
                                  BOOL_KEY_OR(causal_lm, qkv_bias, "attention_bias", true),
                                  LAYOUT_KEY(QKV_BY_GROUP),
                                  END_KEYS};

static void finish(sn_config *c, const sn_model_options *o, causal_lm *g) {
    (void)o;
    g->o_bias = g->qkv_bias;
    g->block = sn_config_bool_or(c, "use_parallel_residual", true) ? PARALLEL : PRE_NORM;
}

const causal_family gpt_neox_family = {.names = {.prefix = "gpt_neox.",
                                                 .embed = "embed_in",
                                                 .layers = "layers",
                                                 .qkv = "attention.query_key_value",
                                                 .o = "attention.dense",
                                                 .before_attn = "input_layernorm",
                                                 .before_mlp = "post_attention_layernorm",
                                                 .up = "mlp.dense_h_to_4h",
                                                 .down = "mlp.dense_4h_to_h",
                                                 .norm = "final_layer_norm",
                                                 .head = "embed_out"},
                                       .usual = {.mlp_bias = true},
                                       .keys = keys,
                                       .finish = finish};
