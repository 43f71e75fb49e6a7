/* llama_like.c: families that differ from Llama in a few lines: Granite [Granite Team 2024] has
 * factors at embedding, updates, scores and logits; StableLM [Bellagente et al. 2024] layer norms and
 * a part of each head rotated; StarCoder 2 [Lozhkov et al. 2024] layer norms, biases and a plain MLP;
 * Cohere's Command R [2024] attention and MLP side by side after one norm, neighbours rotated, and
 * scaled logits. */
#include "frontend/families/families.h"

#define COMMON_KEYS SIZE_KEYS, CONTEXT_KEY, KV_HEADS_KEY, D_MLP_KEY, BASE_KEY

static const config_key granite_keys[] = {
    COMMON_KEYS,
    RMS_EPS_KEY,
    TIED_KEY(false),
    ACT_KEY("hidden_act", ACT_SILU),
    BOOL_KEY_OR(causal_lm, qkv_bias, "attention_bias", false),
    BOOL_KEY_OR(causal_lm, mlp_bias, "mlp_bias", false),
    FLOAT_KEY_OR(causal_lm, embed_scale, "embedding_multiplier", 1, 1e-6, 1e6),
    FLOAT_KEY_OR(causal_lm, residual_scale, "residual_multiplier", 1, 1e-6, 1e6),
    FLOAT_KEY_OR(causal_lm, score_scale, "attention_multiplier", 1, 1e-6, 1e6),
    FLOAT_KEY_OR(causal_lm, logit_scale, "logits_scaling", 1, 1e-6, 1e6),
    BOOL_KEY_OR(causal_lm, interleaved, "rope_interleaved", false), /* of GGUF files */
    END_KEYS};

static void finish_granite(sn_config *c, const sn_model_options *o, causal_lm *g) {
    (void)c, (void)o;
    g->o_bias = g->qkv_bias;
    g->logit_scale = 1 / g->logit_scale;
}

static const config_key stablelm_keys[] = {
    COMMON_KEYS,
    FLOAT_KEY_OR(causal_lm, eps, "layer_norm_eps", 1e-5, 0, 1),
    FLOAT_KEY_OR(causal_lm, rotary_part, "partial_rotary_factor", 0.25, 0, 1),
    TIED_KEY(false),
    ACT_KEY("hidden_act", ACT_SILU),
    BOOL_KEY_OR(causal_lm, qkv_bias, "use_qkv_bias", false),
    END_KEYS};

static void finish_stablelm(sn_config *c, const sn_model_options *o, causal_lm *g) {
    (void)o;
    if (!sn_config_bool_or(c, "use_parallel_residual", false)) return;
    g->block = PARALLEL;
    g->names.before_mlp = NULL;
}

static const config_key starcoder2_keys[] = {
    COMMON_KEYS,
    FLOAT_KEY_OR(causal_lm, eps, "norm_epsilon", 1e-5, 0, 1),
    TIED_KEY(true),
    ACT_KEY("hidden_act", ACT_GELU_TANH),
    BOOL_KEY_OR(causal_lm, qkv_bias, "use_bias", true),
    INT_KEY_OR(causal_lm, window, "sliding_window", 0, 1, INT32_MAX),
    END_KEYS};

static void finish_starcoder2(sn_config *c, const sn_model_options *o, causal_lm *g) {
    (void)c, (void)o;
    g->o_bias = g->mlp_bias = g->qkv_bias;
    g->names.gate = NULL;
    g->names.up = "mlp.c_fc", g->names.down = "mlp.c_proj";
}

static const config_key cohere_keys[] = {
    COMMON_KEYS,
    FLOAT_KEY_OR(causal_lm, eps, "layer_norm_eps", 1e-5, 0, 1),
    TIED_KEY(true),
    ACT_KEY("hidden_act", ACT_SILU),
    BOOL_KEY_OR(causal_lm, qkv_bias, "attention_bias", false),
    FLOAT_KEY_OR(causal_lm, logit_scale, "logit_scale", 0.0625, 1e-6, 1e6),
    END_KEYS};

static void finish_cohere(sn_config *c, const sn_model_options *o, causal_lm *g) {
    (void)c, (void)o;
    g->o_bias = g->qkv_bias;
    g->names.before_mlp = NULL;
}

const causal_family granite_family = {.names = {LLAMA_NAMES},
                                      .usual = {.norm = RMS_NORM},
                                      .keys = granite_keys,
                                      .finish = finish_granite};
const causal_family stablelm_family = {
    .names = {LLAMA_NAMES}, .keys = stablelm_keys, .finish = finish_stablelm};
const causal_family starcoder2_family = {
    .names = {LLAMA_NAMES}, .keys = starcoder2_keys, .finish = finish_starcoder2};
const causal_family cohere_family = {
    .names = {LLAMA_NAMES},
    .usual = {.norm_without_bias = true, .block = PARALLEL, .interleaved = true},
    .keys = cohere_keys,
    .finish = finish_cohere};
