/* qwen.c: Qwen 2 and 2.5 [Yang et al. 2024]: Llama with biases of queries, keys and values; Qwen 3
 * [Yang et al. 2025]: without them, with a norm of each head of queries and keys. */
#include "frontend/families/families.h"

#define QWEN_KEYS                                                                                  \
    SIZE_KEYS, CONTEXT_KEY, KV_HEADS_KEY, D_HEAD_KEY, D_MLP_KEY, RMS_EPS_KEY, BASE_KEY,            \
        TIED_KEY(false), ACT_KEY("hidden_act", ACT_SILU),                                          \
        INT_KEY_OR(causal_lm, first_windowed, "max_window_layers", 28, 0, 1 << 12)

static const config_key keys2[] = {QWEN_KEYS, END_KEYS};
static const config_key keys3[] = {
    QWEN_KEYS, BOOL_KEY_OR(causal_lm, qkv_bias, "attention_bias", false), END_KEYS};

static void finish(sn_config *c, const sn_model_options *o, causal_lm *g) {
    (void)o;
    if (sn_config_bool_or(c, "use_sliding_window", false))
        g->window = sn_config_int_or(c, "sliding_window", 4096, 1, INT32_MAX);
}

static void finish3(sn_config *c, const sn_model_options *o, causal_lm *g) {
    finish(c, o, g);
    g->o_bias = g->qkv_bias;
    if (!g->d_head) g->d_head = 128;
}

const causal_family qwen2_family = {.names = {LLAMA_NAMES},
                                    .usual = {.norm = RMS_NORM, .qkv_bias = true},
                                    .keys = keys2,
                                    .finish = finish};
const causal_family qwen3_family = {
    .names = {LLAMA_NAMES, .q_norm = "self_attn.q_norm", .k_norm = "self_attn.k_norm"},
    .usual = {.norm = RMS_NORM},
    .keys = keys3,
    .finish = finish3};
