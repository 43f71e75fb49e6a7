/* olmo2.c: OLMo 2 [OLMo Team 2024]: Llama with norms of the updates instead of the inputs, and norms
 * of all queries and all keys. */
#include "frontend/families/families.h"

static const config_key keys[] = {SIZE_KEYS,
                                  CONTEXT_KEY,
                                  KV_HEADS_KEY,
                                  D_MLP_KEY,
                                  FLOAT_KEY_OR(causal_lm, eps, "rms_norm_eps", 1e-5, 0, 1),
                                  BASE_KEY,
                                  TIED_KEY(false),
                                  ACT_KEY("hidden_act", ACT_SILU),
                                  BOOL_KEY_OR(causal_lm, qkv_bias, "attention_bias", false),
                                  END_KEYS};

static void finish(sn_config *c, const sn_model_options *o, causal_lm *g) {
    (void)c, (void)o;
    g->o_bias = g->qkv_bias;
    g->names.before_attn = g->names.before_mlp = NULL;
}

const causal_family olmo2_family = {.names = {LLAMA_NAMES, .after_attn = "post_attention_layernorm",
                                              .after_mlp = "post_feedforward_layernorm",
                                              .q_norm = "self_attn.q_norm",
                                              .k_norm = "self_attn.k_norm"},
                                    .usual = {.norm = RMS_NORM, .norm_whole_qk = true},
                                    .keys = keys,
                                    .finish = finish};
