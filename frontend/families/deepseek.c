/* deepseek.c: DeepSeek-V2 [DeepSeek-AI 2024] and V3 [DeepSeek-AI 2024]: latent attention, and experts
 * that are selected within the best groups, beside some that every token uses; V3.2 [DeepSeek-AI 2025]:
 * an indexer chooses the tokens that a query attends to. */
#include "frontend/families/families.h"

#include <math.h>

#define DEEPSEEK_KEYS                                                                              \
    SIZE_KEYS, CONTEXT_KEY, KV_HEADS_KEY, D_MLP_KEY, RMS_EPS_KEY, BASE_KEY, TIED_KEY(false),       \
        ACT_KEY("hidden_act", ACT_SILU), EXPERTS_KEY("n_routed_experts"), EXPERTS_PER_TOKEN_KEY,   \
        D_EXPERT_KEY, FIRST_EXPERTS_KEY,                                                           \
        INT_KEY_OR(causal_lm, experts.groups, "n_group", 0, 1, 1 << 12),                           \
        INT_KEY_OR(causal_lm, experts.groups_chosen, "topk_group", 0, 1, 1 << 12),                 \
        EXPERT_SCALE_KEY, LATENT_KEYS,                                                             \
        BOOL_KEY_OR(causal_lm, latent.bias, "attention_bias", false)

static const config_key keys2[] = {DEEPSEEK_KEYS, NORMED_KEY(false), END_KEYS};
#define DEEPSEEK3_KEYS                                                                             \
    DEEPSEEK_KEYS, NORMED_KEY(true), BOOL_KEY_OR(causal_lm, interleaved, "rope_interleave", true)
static const config_key keys3[] = {DEEPSEEK3_KEYS, END_KEYS};
static const config_key keys32[] = {
    DEEPSEEK3_KEYS, INT_KEY_OR(causal_lm, latent.indexer.heads, "index_n_heads", 64, 1, 1 << 12),
    INT_KEY_OR(causal_lm, latent.indexer.width, "index_head_dim", 128, 1, 1 << 12),
    INT_KEY_OR(causal_lm, latent.indexer.chosen, "index_topk", 2048, 1, 1 << 24), END_KEYS};

/* YaRN's factor of the scores, the square of 1 + 0.1 m ln(factor). */
static double score_factor(sn_config *c) {
    sn_config *rope = sn_config_section(c, sn_config_has(c, "rope_parameters") ? "rope_parameters"
                                                                               : "rope_scaling");
    double m = rope ? sn_config_float_or(rope, "mscale_all_dim", 0, 0, 1e6) : 0;
    double factor = m > 0 ? sn_config_float_or(rope, "factor", 1, 1, 1e6) : 1;
    sn_config_free(rope);
    return pow(1 + 0.1 * m * log(factor), 2);
}

static void finish(sn_config *c, const sn_model_options *o, causal_lm *g) {
    (void)o;
    latent_attention *a = &g->latent;
    if (g->kv_heads && g->kv_heads != g->heads)
        sn_config_problem(c, "\"num_key_value_heads\" must be \"num_attention_heads\"");
    g->d_head = a->plain + a->rotary, g->rotary = a->rotary, g->o_bias = a->bias;
    g->score_scale = score_factor(c) / sqrt((double)g->d_head);
    expert_read_shared(c, &g->experts, "n_shared_experts");
}

static void finish2(sn_config *c, const sn_model_options *o, causal_lm *g) {
    static const char *const methods[] = {"greedy", "group_limited_greedy", NULL},
                             *const scores[] = {"softmax", NULL};
    finish(c, o, g);
    sn_config_choice_or(c, "scoring_func", scores, 0);
    if (!sn_config_choice_or(c, "topk_method", methods, 0)) g->experts.groups = 0;
    if (g->experts.normed) g->experts.scale = 0;
}

static void finish3(sn_config *c, const sn_model_options *o, causal_lm *g) {
    static const char *const methods[] = {"noaux_tc", NULL}, *const scores[] = {"sigmoid", NULL};
    finish(c, o, g);
    sn_config_choice_or(c, "scoring_func", scores, 0);
    sn_config_choice_or(c, "topk_method", methods, 0);
}

static void finish32(sn_config *c, const sn_model_options *o, causal_lm *g) {
    finish3(c, o, g);
    if (!g->latent.q_rank) sn_config_problem(c, "an indexer needs \"q_lora_rank\"");
    if (g->latent.indexer.width < g->rotary)
        sn_config_problem(c, "\"index_head_dim\" is less than \"qk_rope_head_dim\"");
}

const causal_family deepseek_v2_family = {
    .names = {LLAMA_NAMES},
    .usual = {.norm = RMS_NORM,
              .interleaved = true,
              .latent = {LATENT_NAMES},
              .experts = {LLAMA_EXPERTS, .shared = "mlp.shared_experts"}},
    .keys = keys2,
    .finish = finish2};
#define DEEPSEEK3_EXPERTS                                                                          \
    .experts = {LLAMA_EXPERTS, .shared = "mlp.shared_experts", .sigmoid = true,                    \
                .bias = "e_score_correction_bias", .two_of_group = true}
const causal_family deepseek_v3_family = {
    .names = {LLAMA_NAMES},
    .usual = {.norm = RMS_NORM, .latent = {LATENT_NAMES}, DEEPSEEK3_EXPERTS},
    .keys = keys3,
    .finish = finish3};
const causal_family deepseek_v32_family = {
    .names = {LLAMA_NAMES},
    .usual = {.norm = RMS_NORM,
              .latent = {LATENT_NAMES, .indexer = {.scope = "self_attn.indexer"}},
              DEEPSEEK3_EXPERTS},
    .keys = keys32,
    .finish = finish32};
