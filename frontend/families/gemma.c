/* gemma.c: Gemma 1 to 3 (text) [Gemma Team 2024, 2025]: scaled embeddings, gains 1 + weight, gated
 * GELU; from 2 on norms of the updates, windows in all but some layers, and queries scaled by a
 * config key; 2 caps scores and logits; 3 norms queries and keys and has another base where there is
 * a window. */
#include "frontend/families/families.h"

#include <math.h>

#define GEMMA_KEYS                                                                                 \
    SIZE_KEYS, CONTEXT_KEY, KV_HEADS_KEY, D_HEAD_KEY, D_MLP_KEY, RMS_EPS_KEY, TIED_KEY(true),      \
        ACT_KEY("hidden_activation", ACT_GELU_TANH),                                               \
        BOOL_KEY_OR(causal_lm, qkv_bias, "attention_bias", false)
#define WINDOW_KEYS                                                                                \
    INT_KEY_OR(causal_lm, window, "sliding_window", 4096, 1, INT32_MAX),                           \
        FLOAT_KEY_OR(causal_lm, score_cap, "attn_logit_softcapping", 0, 1e-3, 1e6),                \
        FLOAT_KEY_OR(causal_lm, logit_cap, "final_logit_softcapping", 0, 1e-3, 1e6)

static const config_key keys1[] = {GEMMA_KEYS, BASE_KEY, END_KEYS};
static const config_key keys2[] = {GEMMA_KEYS, BASE_KEY, WINDOW_KEYS, END_KEYS};
static const config_key keys3[] = {
    GEMMA_KEYS,
    WINDOW_KEYS,
    FLOAT_KEY_OR(causal_lm, base, "rope_theta", 1e6, 1, 1e12),
    FLOAT_KEY_OR(causal_lm, local_base, "rope_local_base_freq", 10000, 1, 1e12),
    INT_KEY_OR(causal_lm, full_every, "sliding_window_pattern", 6, 1, 1 << 12),
    END_KEYS};

/* Published configs of Gemma 1 say "gelu" in "hidden_act", which the model was not trained with:
 * "hidden_activation" counts. */
static void finish1(sn_config *c, const sn_model_options *o, causal_lm *g) {
    (void)o;
    if (!sn_config_bool_or(c, "norm_plus_one", true)) g->norm = RMS_NORM; /* of GGUF files */
    sn_config_choice_or(c, "hidden_act", causal_acts, 0);
    g->embed_scale = sqrt((double)g->d);
    g->o_bias = g->qkv_bias;
    if (!g->d_head) g->d_head = 256;
}

static void finish2(sn_config *c, const sn_model_options *o, causal_lm *g) {
    finish1(c, o, g);
    g->score_scale = 1 / sqrt(sn_config_float_or(c, "query_pre_attn_scalar", 256, 1e-3, 1e6));
}

#define UPDATE_NORMS                                                                               \
    .after_attn = "post_attention_layernorm", .before_mlp = "pre_feedforward_layernorm",           \
    .after_mlp = "post_feedforward_layernorm"
#define GEMMA_NAMES                                                                                \
    .prefix = "model.", .embed = "embed_tokens", .layers = "layers", .q = "self_attn.q_proj",      \
    .k = "self_attn.k_proj", .v = "self_attn.v_proj", .o = "self_attn.o_proj",                     \
    .before_attn = "input_layernorm", .gate = "mlp.gate_proj", .up = "mlp.up_proj",                \
    .down = "mlp.down_proj", .norm = "norm", .head = "lm_head"

const causal_family gemma_family = {
    .names = {LLAMA_NAMES}, .usual = {.norm = RMS_NORM_PLUS_ONE}, .keys = keys1, .finish = finish1};
const causal_family gemma2_family = {.names = {GEMMA_NAMES, UPDATE_NORMS},
                                     .usual = {.norm = RMS_NORM_PLUS_ONE, .full_every = 2},
                                     .keys = keys2,
                                     .finish = finish2};
const causal_family gemma3_family = {.names = {GEMMA_NAMES, UPDATE_NORMS,
                                               .q_norm = "self_attn.q_norm",
                                               .k_norm = "self_attn.k_norm"},
                                     .usual = {.norm = RMS_NORM_PLUS_ONE},
                                     .keys = keys3,
                                     .finish = finish2};
