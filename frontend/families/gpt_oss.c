/* gpt_oss.c: gpt-oss [OpenAI 2025]: every other layer attends to a window, each head has a sink, and
 * the MLPs are experts with biases and a clamped gate. Files hold the experts' matrices of a layer in
 * one tensor, [experts, in, out], with gate and up in alternating columns. */
#include "frontend/families/families.h"

static const config_key keys[] = {
    SIZE_KEYS,
    CONTEXT_KEY,
    KV_HEADS_KEY,
    D_HEAD_KEY,
    INT_KEY(causal_lm, experts.d, "intermediate_size", 1, 1 << 22),
    EXPERTS_KEY("num_local_experts"),
    EXPERTS_PER_TOKEN_KEY,
    FLOAT_KEY_OR(causal_lm, experts.limit, "swiglu_limit", 7, 1e-3, 1e6),
    FLOAT_KEY_OR(causal_lm, experts.slope, "swiglu_alpha", 1.702, 1e-3, 1e6),
    FLOAT_KEY_OR(causal_lm, eps, "rms_norm_eps", 1e-5, 0, 1),
    FLOAT_KEY_OR(causal_lm, base, "rope_theta", 150000, 1, 1e12),
    TIED_KEY(false),
    ACT_KEY("hidden_act", ACT_SILU),
    BOOL_KEY_OR(causal_lm, qkv_bias, "attention_bias", true),
    INT_KEY_OR(causal_lm, window, "sliding_window", 128, 1, INT32_MAX),
    END_KEYS};

static void finish(sn_config *c, const sn_model_options *o, causal_lm *g) {
    (void)o;
    g->o_bias = g->qkv_bias;
    int64_t k = g->experts.per_token; /* which published files have twice */
    if (sn_config_int_or(c, "experts_per_token", k, 1, 256) != k)
        sn_config_problem(c, "\"experts_per_token\" is not \"num_experts_per_tok\"");
    if (g->act != ACT_SILU) sn_config_problem(c, "\"hidden_act\" must be \"silu\"");
}

const causal_family gpt_oss_family = {.names = {LLAMA_ATTENTION, .sinks = "self_attn.sinks",
                                                .before_mlp = "post_attention_layernorm",
                                                .norm = "norm"},
                                      .usual = {.norm = RMS_NORM,
                                                .full_every = 2,
                                                .experts = {.router = "mlp.router",
                                                            .gate_up = "mlp.experts.gate_up_proj",
                                                            .all_down = "mlp.experts.down_proj",
                                                            .in_out = true,
                                                            .paired = true,
                                                            .biases = true,
                                                            .router_bias = true,
                                                            .normed = true}},
                                      .keys = keys,
                                      .finish = finish};
