/* llama.c: Llama 1 to 3.x, and what has its architecture (SmolLM, TinyLlama, Yi): RMS norms, rotary
 * positions, grouped key heads, a gated MLP [Touvron et al. 2023]. "rope_interleaved" is Sinter's
 * own key. */
#include "frontend/families/families.h"

static const config_key keys[] = {SIZE_KEYS,
                                  CONTEXT_KEY,
                                  KV_HEADS_KEY,
                                  D_HEAD_KEY,
                                  D_MLP_KEY,
                                  RMS_EPS_KEY,
                                  BASE_KEY,
                                  TIED_KEY(false),
                                  ACT_KEY("hidden_act", ACT_SILU),
                                  BOOL_KEY_OR(causal_lm, interleaved, "rope_interleaved", false),
                                  BOOL_KEY_OR(causal_lm, qkv_bias, "attention_bias", false),
                                  BOOL_KEY_OR(causal_lm, mlp_bias, "mlp_bias", false),
                                  END_KEYS};

static void finish(sn_config *c, const sn_model_options *o, causal_lm *g) {
    (void)c, (void)o;
    g->o_bias = g->qkv_bias;
}

const causal_family llama_family = {
    .names = {LLAMA_NAMES}, .usual = {.norm = RMS_NORM}, .keys = keys, .finish = finish};
