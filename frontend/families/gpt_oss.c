/* gpt_oss.c: gpt-oss [OpenAI 2025]: every other layer attends to a window, each head has a sink, and
 * the MLPs are experts with biases and a clamped gate. Files hold the experts' matrices of a layer in
 * one tensor, [experts, in, out], with gate and up in alternating columns; or blocks of MXFP4 of
 * [experts, out, in], in alternating rows. GGUF files have a matrix for each expert. */
#include "frontend/families/families.h"

#define GATE_UP "mlp.experts.gate_up_proj"
#define DOWN "mlp.experts.down_proj"

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

/* Whether the experts are blocks of MXFP4. */
static bool is_quantised(sn_config *c) {
    static const char *const known[] = {"quant_method", "modules_to_not_convert", NULL},
                             *const methods[] = {"mxfp4", NULL};
    if (!sn_config_has(c, "quantization_config")) return false;
    sn_config *q = sn_config_section(c, "quantization_config");
    if (!q) return false;
    sn_error err = {0};
    sn_config_only(q, known);
    sn_config_choice(q, "quant_method", methods);
    if (!sn_config_check(q, &err)) sn_config_problem(c, "%s", err.message);
    sn_config_free(q);
    return true;
}

static void finish(sn_config *c, const sn_model_options *o, causal_lm *g) {
    (void)o;
    expert_mlp *e = &g->experts;
    if (is_quantised(c)) {
        e->gate_up = GATE_UP "_blocks", e->all_down = DOWN "_blocks";
        e->in_out = false;
    } else if (sn_config_bool_or(c, "separate_experts", false))
        e->gate_up = NULL; /* Sinter's, for GGUF files */
    g->o_bias = g->qkv_bias;
    int64_t k = e->per_token; /* which published files have twice */
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
                                                            .experts = "mlp.experts",
                                                            .gate = "gate_proj",
                                                            .up = "up_proj",
                                                            .down = "down_proj",
                                                            .gate_up = GATE_UP,
                                                            .all_down = DOWN,
                                                            .gate_up_bias = GATE_UP "_bias",
                                                            .down_bias = DOWN "_bias",
                                                            .in_out = true,
                                                            .paired = true,
                                                            .biases = true,
                                                            .router_bias = true,
                                                            .normed = true}},
                                      .keys = keys,
                                      .finish = finish};
