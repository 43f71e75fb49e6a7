/* olmoe.c: OLMoE [Muennighoff et al. 2024]: Llama with experts, and with norms of all queries and
 * all keys. */
#include "frontend/families/families.h"

static const config_key keys[] = {SIZE_KEYS,
                                  CONTEXT_KEY,
                                  KV_HEADS_KEY,
                                  INT_KEY(causal_lm, experts.d, "intermediate_size", 1, 1 << 22),
                                  EXPERTS_KEY("num_experts"),
                                  EXPERTS_PER_TOKEN_KEY,
                                  NORMED_KEY(false),
                                  FLOAT_KEY_OR(causal_lm, eps, "rms_norm_eps", 1e-5, 0, 1),
                                  BASE_KEY,
                                  TIED_KEY(false),
                                  ACT_KEY("hidden_act", ACT_SILU),
                                  BOOL_KEY_OR(causal_lm, qkv_bias, "attention_bias", false),
                                  END_KEYS};

static void finish(sn_config *c, const sn_model_options *o, causal_lm *g) {
    (void)c, (void)o;
    g->o_bias = g->qkv_bias;
}

const causal_family olmoe_family = {
    .names = {LLAMA_NAMES, .q_norm = "self_attn.q_norm", .k_norm = "self_attn.k_norm"},
    .usual = {.norm = RMS_NORM, .norm_whole_qk = true, .experts = {LLAMA_EXPERTS}},
    .keys = keys,
    .finish = finish};
