/* hybrid.c: decoders whose layers attend or recur: Qwen3-Next and Qwen3.5 [Qwen Team 2025, 2026],
 * three layers of Gated DeltaNet [Yang et al. 2024] before each that attends, with gates, and experts
 * in all of them; Kimi-Linear [Kimi Team 2025], three layers of Kimi Delta Attention before each with
 * latents; Bamba [2024] and Granite 4 H [2025] with Mamba-2 [Dao & Gu 2024]; Jamba [Lieber et al.
 * 2024] with Mamba [Gu & Dao 2023]; and those two alone. */
#include "frontend/families/families.h"

/* Sinter's, for GGUF files. */
#define RATES_KEY BOOL_KEY_OR(causal_lm, recurrent.rates, "linear_rates", false)
#define NORM_GROUPS_KEY BOOL_KEY_OR(causal_lm, recurrent.norm_groups, "norm_groups", false)

#define QWEN_KEYS                                                                                  \
    SIZE_KEYS, CONTEXT_KEY, KV_HEADS_KEY,                                                          \
        INT_KEY_OR(causal_lm, d_head, "head_dim", 256, 1, 1 << 16), RMS_EPS_KEY, BASE_KEY,         \
        FLOAT_KEY_OR(causal_lm, rotary_part, "partial_rotary_factor", 0.25, 0, 1),                 \
        TIED_KEY(false), ACT_KEY("hidden_act", ACT_SILU),                                          \
        BOOL_KEY_OR(causal_lm, qkv_bias, "attention_bias", false),                                 \
        BOOL_KEY_OR(causal_lm, gated, "attn_output_gate", true),                                   \
        INT_KEY_OR(causal_lm, full_every, "full_attention_interval", 4, 1, 1 << 12),               \
        INT_KEY_OR(causal_lm, recurrent.kernel, "linear_conv_kernel_dim", 4, 1, 64),               \
        INT_KEY_OR(causal_lm, recurrent.key, "linear_key_head_dim", 128, 1, 1 << 12),              \
        INT_KEY_OR(causal_lm, recurrent.value, "linear_value_head_dim", 128, 1, 1 << 12),          \
        INT_KEY_OR(causal_lm, recurrent.key_heads, "linear_num_key_heads", 16, 1, 1 << 12),        \
        INT_KEY_OR(causal_lm, recurrent.heads, "linear_num_value_heads", 32, 1, 1 << 12),          \
        RATES_KEY, BOOL_KEY_OR(causal_lm, recurrent.tiled, "linear_tiled", false),                 \
        BOOL_KEY_OR(causal_lm, recurrent.ba, "linear_ba", false)
#define QWEN_EXPERT_KEYS                                                                           \
    EXPERTS_KEY("num_experts"), EXPERTS_PER_TOKEN_KEY, D_EXPERT_KEY, NORMED_KEY(true),             \
        INT_KEY(causal_lm, experts.d_shared, "shared_expert_intermediate_size", 1, 1 << 22)

static const config_key qwen3_next_keys[] = {
    QWEN_KEYS, QWEN_EXPERT_KEYS, D_MLP_KEY,
    INT_KEY_OR(causal_lm, experts.every, "decoder_sparse_step", 1, 1, 1 << 12), END_KEYS};
static const config_key qwen3_5_keys[] = {QWEN_KEYS, D_MLP_KEY, END_KEYS};
static const config_key qwen3_5_moe_keys[] = {QWEN_KEYS, QWEN_EXPERT_KEYS, END_KEYS};

/* Layers are recurrent unless `attends` lists them. */
static void list_layers(sn_config *c, causal_lm *g, const int64_t *attends, size_t n) {
    if (g->layers > MAX_LAYER_TYPES)
        sn_config_problem(c, "there are %lld layers, at most %d are supported",
                          (long long)g->layers, MAX_LAYER_TYPES);
    for (int64_t l = 0; l < g->layers && l < MAX_LAYER_TYPES; l++)
        g->layer_type[g->n_layer_types++] = RECURRENT;
    for (size_t i = 0; i < n; i++)
        if (attends[i] < (int64_t)g->n_layer_types) g->layer_type[attends[i]] = FULL_ATTENTION;
}

static void finish_qwen3_next(sn_config *c, const sn_model_options *o, causal_lm *g) {
    (void)o;
    g->o_bias = g->qkv_bias;
    g->recurrent.eps = g->eps;
    g->recurrent.separate |= g->recurrent.ba;
    if (!sn_config_bool_or(c, "norm_plus_one", true)) g->norm = RMS_NORM; /* of GGUF files */
    if (sn_config_bool_or(c, "separate_experts", false)) g->experts.gate_up = NULL;
    int64_t values = sn_config_int_or(c, "linear_value_size", 0, 0, 1 << 22);
    if (values % g->recurrent.heads)
        sn_config_problem(c, "%lld heads do not divide values of %lld elements",
                          (long long)g->recurrent.heads, (long long)values);
    if (values) g->recurrent.value = values / g->recurrent.heads;
    g->experts.n_dense =
        sn_config_int_list(c, "mlp_only_layers", g->experts.dense, MAX_DENSE_LAYERS, 0, 1 << 12);
    sn_config_divides(c, "linear_num_key_heads", g->recurrent.key_heads, "linear_num_value_heads",
                      g->recurrent.heads);
    if (sn_config_has(c, "layer_types")) return;
    list_layers(c, g, NULL, 0);
    for (int64_t l = g->full_every - 1; l < (int64_t)g->n_layer_types; l += g->full_every)
        g->layer_type[l] = FULL_ATTENTION;
}

#define QWEN_NAMES                                                                                 \
    { LLAMA_NAMES, .q_norm = "self_attn.q_norm", .k_norm = "self_attn.k_norm" }
#define QWEN_SHARED .shared = "mlp.shared_expert", .shared_gate = "mlp.shared_expert_gate"
const causal_family qwen3_next_family = {
    .names = QWEN_NAMES,
    .usual = {.norm = RMS_NORM_PLUS_ONE,
              .recurrent = {.scope = "linear_attn", .mix = gated_delta_mix},
              .experts = {LLAMA_EXPERTS, QWEN_SHARED}},
    .keys = qwen3_next_keys,
    .finish = finish_qwen3_next};
const causal_family qwen3_5_text_family = {
    .names = QWEN_NAMES,
    .usual = {.norm = RMS_NORM_PLUS_ONE,
              .recurrent = {.scope = "linear_attn", .mix = gated_delta_mix, .separate = true}},
    .keys = qwen3_5_keys,
    .finish = finish_qwen3_next};
const causal_family qwen3_5_moe_text_family = {
    .names = QWEN_NAMES,
    .usual = {.norm = RMS_NORM_PLUS_ONE,
              .recurrent = {.scope = "linear_attn", .mix = gated_delta_mix, .separate = true},
              .experts = {LLAMA_EXPERTS, QWEN_SHARED, .gate_up = "mlp.experts.gate_up_proj",
                          .all_down = "mlp.experts.down_proj"}},
    .keys = qwen3_5_moe_keys,
    .finish = finish_qwen3_next};

/* ---- Kimi-Linear: layers count from 1 ---- */

static const config_key kimi_linear_keys[] = {
    SIZE_KEYS,
    INT_KEY_OR(causal_lm, context, "model_max_length", 1 << 20, 1, 1 << 24),
    KV_HEADS_KEY,
    D_HEAD_KEY, /* not used */
    D_MLP_KEY,
    RMS_EPS_KEY,
    BASE_KEY, /* not used */
    TIED_KEY(false),
    ACT_KEY("hidden_act", ACT_SILU),
    LATENT_KEYS,
    EXPERTS_KEY("num_experts"),
    INT_KEY(causal_lm, experts.per_token, "num_experts_per_token", 1, 256),
    D_EXPERT_KEY,
    BOOL_KEY_OR(causal_lm, experts.normed, "moe_renormalize", true),
    FIRST_EXPERTS_KEY,
    EXPERT_SCALE_KEY,
    INT_KEY_OR(causal_lm, experts.groups, "num_expert_group", 1, 1, 1 << 12),
    INT_KEY_OR(causal_lm, experts.groups_chosen, "topk_group", 1, 1, 1 << 12),
    RATES_KEY,
    END_KEYS};
static const config_key kimi_delta_keys[] = {
    INT_KEY(recurrent_layer, heads, "num_heads", 1, 1 << 12),
    INT_KEY(recurrent_layer, key, "head_dim", 1, 1 << 12),
    INT_KEY_OR(recurrent_layer, kernel, "short_conv_kernel_size", 4, 1, 64), END_KEYS};

/* Gives the listed layers their type; the number of them, or 0 if one was taken before. */
static size_t take_layers(sn_config *c, const char *key, causal_layer type, causal_lm *g,
                          bool *taken) {
    int64_t layer[MAX_LAYER_TYPES];
    size_t n = sn_config_int_list(c, key, layer, MAX_LAYER_TYPES, 1, (int64_t)g->n_layer_types);
    for (size_t i = 0; i < n; i++) {
        if (taken[layer[i] - 1]) return 0;
        taken[layer[i] - 1] = true;
        g->layer_type[layer[i] - 1] = type;
    }
    return n;
}

static void read_kimi_delta(sn_config *c, causal_lm *g) {
    static const char *const known[] = {
        "full_attn_layers", "head_dim", "kda_layers", "num_heads", "short_conv_kernel_size", NULL};
    sn_config *a = sn_config_section(c, "linear_attn_config");
    if (!a) return;
    bool taken[MAX_LAYER_TYPES] = {false};
    sn_error err = {0};
    sn_config_only(a, known);
    config_read(a, kimi_delta_keys, &g->recurrent);
    list_layers(c, g, NULL, 0);
    size_t n = take_layers(a, "kda_layers", RECURRENT, g, taken);
    n += take_layers(a, "full_attn_layers", FULL_ATTENTION, g, taken);
    if (n != g->n_layer_types)
        sn_config_problem(a, "a layer must be in one of \"kda_layers\" and \"full_attn_layers\"");
    if (!sn_config_check(a, &err)) sn_config_problem(c, "%s", err.message);
    sn_config_free(a);
}

static void finish_kimi_linear(sn_config *c, const sn_model_options *o, causal_lm *g) {
    static const char *const scores[] = {"softmax", "sigmoid", NULL};
    expert_mlp *e = &g->experts;
    (void)o;
    g->d_head = g->latent.plain + g->latent.rotary;
    g->recurrent.eps = g->eps;
    e->sigmoid = sn_config_choice_or(c, "moe_router_activation_func", scores, 1) != 0;
    e->normed &= e->per_token > 1;
    if (!sn_config_bool_or(c, "use_grouped_topk", true) || e->groups == e->groups_chosen)
        e->groups = 0;
    if (g->kv_heads && g->kv_heads != g->heads)
        sn_config_problem(c, "\"num_key_value_heads\" must be \"num_attention_heads\"");
    expert_read_shared(c, e, "num_shared_experts");
    if (!sn_config_bool_or(c, "mla_use_nope", false))
        sn_config_problem(c, "\"mla_use_nope\" must be true");
    read_kimi_delta(c, g);
}

const causal_family kimi_linear_family = {
    .names = {LLAMA_NAMES},
    .usual = {.norm = RMS_NORM,
              .positions = NO_POSITIONS,
              .latent = {LATENT_NAMES},
              .recurrent = {.scope = "self_attn", .mix = kimi_delta_mix},
              .experts = {.router = "block_sparse_moe.gate",
                          .experts = "block_sparse_moe.experts",
                          .gate = "w1",
                          .up = "w3",
                          .down = "w2",
                          .shared = "block_sparse_moe.shared_experts",
                          .shared_gate_up_down = {"gate_proj", "up_proj", "down_proj"},
                          .bias = "e_score_correction_bias",
                          .two_of_group = true}},
    .keys = kimi_linear_keys,
    .finish = finish_kimi_linear};

/* ---- Mamba-2 with attention ---- */

#define MAMBA2_KEYS                                                                                \
    SIZE_KEYS, CONTEXT_KEY, KV_HEADS_KEY, BASE_KEY, ACT_KEY("hidden_act", ACT_SILU),               \
        BOOL_KEY_OR(causal_lm, qkv_bias, "attention_bias", false),                                 \
        INT_KEY_OR(causal_lm, recurrent.heads, "mamba_n_heads", 128, 1, 1 << 12),                  \
        INT_KEY_OR(causal_lm, recurrent.key_heads, "mamba_n_groups", 1, 1, 1 << 12),               \
        INT_KEY_OR(causal_lm, recurrent.key, "mamba_d_state", 256, 1, 1 << 12),                    \
        INT_KEY_OR(causal_lm, recurrent.kernel, "mamba_d_conv", 4, 1, 64),                         \
        BOOL_KEY_OR(causal_lm, recurrent.conv_bias, "mamba_conv_bias", true),                      \
        BOOL_KEY_OR(causal_lm, recurrent.bias, "mamba_proj_bias", false), RATES_KEY,               \
        NORM_GROUPS_KEY

static const config_key bamba_keys[] = {
    MAMBA2_KEYS,
    RMS_EPS_KEY,
    TIED_KEY(false),
    D_MLP_KEY,
    INT_KEY_OR(causal_lm, rotary, "attn_rotary_emb", 0, 2, 1 << 16),
    END_KEYS};

static const config_key granite_hybrid_keys[] = {
    MAMBA2_KEYS,
    RMS_EPS_KEY,
    TIED_KEY(false),
    INT_KEY_OR(causal_lm, d_mlp, "shared_intermediate_size", 1024, 1, 1 << 22),
    INT_KEY_OR(causal_lm, experts.count, "num_local_experts", 8, 0, 1 << 12),
    INT_KEY_OR(causal_lm, experts.per_token, "num_experts_per_tok", 2, 0, 256),
    INT_KEY_OR(causal_lm, experts.d, "intermediate_size", 0, 0, 1 << 22),
    FLOAT_KEY_OR(causal_lm, embed_scale, "embedding_multiplier", 1, 1e-6, 1e6),
    FLOAT_KEY_OR(causal_lm, residual_scale, "residual_multiplier", 1, 1e-6, 1e6),
    FLOAT_KEY_OR(causal_lm, score_scale, "attention_multiplier", 1, 1e-6, 1e6),
    FLOAT_KEY_OR(causal_lm, logit_scale, "logits_scaling", 1, 1e-6, 1e6),
    END_KEYS};

/* Mamba-2's width is a multiple of the model's, and its heads divide it. */
static void size_mamba2(sn_config *c, causal_lm *g, const char *expand, const char *heads,
                        const char *width) {
    recurrent_layer *r = &g->recurrent;
    int64_t inner = sn_config_int_or(c, expand, 2, 1, 64) * g->d;
    r->eps = g->eps;
    r->value = inner / r->heads;
    if (r->value * r->heads != inner ||
        (sn_config_has(c, width) && !sn_config_equals(c, width, "\"auto\"") &&
         sn_config_int(c, width, 1, 1 << 20) != r->value))
        sn_config_problem(c, "\"%s\" and \"%s\" do not make up a width of %lld", heads, width,
                          (long long)inner);
    if (r->heads % r->key_heads)
        sn_config_problem(c, "%lld groups do not divide %lld heads", (long long)r->key_heads,
                          (long long)r->heads);
}

static void finish_bamba(sn_config *c, const sn_model_options *o, causal_lm *g) {
    (void)o;
    int64_t attends[MAX_LAYER_TYPES];
    size_t n = sn_config_int_list(c, "attn_layer_indices", attends, MAX_LAYER_TYPES, 0, 1 << 12);
    g->o_bias = g->qkv_bias;
    if (!g->rotary) g->rotary_part = 0.5;
    list_layers(c, g, attends, n);
    size_mamba2(c, g, "mamba_expand", "mamba_n_heads", "mamba_d_head");
}

static void finish_granite_hybrid(sn_config *c, const sn_model_options *o, causal_lm *g) {
    static const char *const positions[] = {"nope", "rope", NULL};
    (void)o;
    g->o_bias = g->qkv_bias;
    g->logit_scale = 1 / g->logit_scale;
    if (!sn_config_choice_or(c, "position_embedding_type", positions, 0))
        g->positions = NO_POSITIONS;
    if (sn_config_bool_or(c, "separate_experts", false)) /* Sinter's, for GGUF files */
        g->experts.gate_up = g->names.gate_up = NULL;
    if (g->experts.count && (!g->experts.d || !g->experts.per_token))
        sn_config_problem(c, "experts need \"intermediate_size\" and \"num_experts_per_tok\"");
    if (!sn_config_has(c, "layer_types")) list_layers(c, g, NULL, 0);
    size_mamba2(c, g, "mamba_expand", "mamba_n_heads", "mamba_d_head");
}

#define MAMBA_SCOPE "mamba"
#define JAMBA_NAMES                                                                                \
    LLAMA_ATTENTION, .before_mlp = "pre_ff_layernorm", .gate = "feed_forward.gate_proj",           \
                     .up = "feed_forward.up_proj", .down = "feed_forward.down_proj",               \
                     .norm = "final_layernorm"
const causal_family bamba_family = {
    .names = {JAMBA_NAMES},
    .usual = {.norm = RMS_NORM, .recurrent = {.scope = MAMBA_SCOPE, .mix = mamba2_mix}},
    .keys = bamba_keys,
    .finish = finish_bamba};
const causal_family granitemoehybrid_family = {
    .names = {LLAMA_ATTENTION, .before_mlp = "post_attention_layernorm",
              .gate_up = "shared_mlp.input_linear", .gate = "shared_mlp.gate",
              .up = "shared_mlp.up", .down = "shared_mlp.output_linear", .norm = "norm"},
    .usual = {.norm = RMS_NORM,
              .recurrent = {.scope = MAMBA_SCOPE, .mix = mamba2_mix},
              .experts = {.router = "block_sparse_moe.router.layer",
                          .gate_up = "block_sparse_moe.input_linear.weight",
                          .all_down = "block_sparse_moe.output_linear.weight",
                          .experts = "block_sparse_moe.experts",
                          .gate = "w1",
                          .up = "w3",
                          .down = "w2",
                          .normed = true,
                          .plain_too = true}},
    .keys = granite_hybrid_keys,
    .finish = finish_granite_hybrid};

/* ---- Jamba ---- */

static const config_key jamba_keys[] = {
    SIZE_KEYS,
    CONTEXT_KEY,
    KV_HEADS_KEY,
    D_MLP_KEY,
    INT_KEY(causal_lm, experts.d, "intermediate_size", 1, 1 << 22),
    RMS_EPS_KEY,
    TIED_KEY(false),
    ACT_KEY("hidden_act", ACT_SILU),
    INT_KEY_OR(causal_lm, experts.count, "num_experts", 16, 1, 1 << 12),
    INT_KEY_OR(causal_lm, experts.per_token, "num_experts_per_tok", 2, 1, 256),
    INT_KEY_OR(causal_lm, recurrent.key, "mamba_d_state", 16, 1, 1 << 12),
    INT_KEY_OR(causal_lm, recurrent.kernel, "mamba_d_conv", 4, 1, 64),
    BOOL_KEY_OR(causal_lm, recurrent.conv_bias, "mamba_conv_bias", true),
    BOOL_KEY_OR(causal_lm, recurrent.bias, "mamba_proj_bias", false),
    INT_KEY_OR(causal_lm, recurrent.rank, "mamba_dt_rank", 0, 1, 1 << 20),
    RATES_KEY,
    END_KEYS};

/* Whether the layers l = offset, offset + period, ... have what the two keys place, for each l. */
typedef struct placed {
    int64_t period, offset;
} placed;
static placed read_placed(sn_config *c, const char *period, int64_t usual, const char *offset,
                          int64_t first) {
    return (placed){sn_config_int_or(c, period, usual, 1, 1 << 12),
                    sn_config_int_or(c, offset, first, 0, 1 << 12)};
}

static void finish_jamba(sn_config *c, const sn_model_options *o, causal_lm *g) {
    (void)o;
    placed attends = read_placed(c, "attn_layer_period", 8, "attn_layer_offset", 4),
           experts = read_placed(c, "expert_layer_period", 2, "expert_layer_offset", 1);
    list_layers(c, g, NULL, 0);
    for (int64_t l = 0; l < (int64_t)g->n_layer_types; l++) {
        if (l % attends.period == attends.offset) g->layer_type[l] = FULL_ATTENTION;
        if (l % experts.period != experts.offset) g->experts.dense[g->experts.n_dense++] = l;
    }
    if (g->experts.count == 1) g->experts.count = 0; /* a plain MLP */
    g->recurrent.value = sn_config_int_or(c, "mamba_expand", 2, 1, 64) * g->d;
    g->recurrent.eps = g->eps;
    if (!g->recurrent.rank) g->recurrent.rank = (g->d + 15) / 16;
}

const causal_family jamba_family = {
    .names = {JAMBA_NAMES},
    .usual = {.norm = RMS_NORM,
              .positions = NO_POSITIONS,
              .recurrent = {.scope = MAMBA_SCOPE, .mix = mamba_mix, .norms = true},
              .experts = {.router = "feed_forward.router",
                          .experts = "feed_forward.experts",
                          .gate = "gate_proj",
                          .up = "up_proj",
                          .down = "down_proj"}},
    .keys = jamba_keys,
    .finish = finish_jamba};

/* ---- Mamba and Mamba-2 alone: layers without an MLP ---- */

enum { MAMBA_CONTEXT = 1 << 20 }; /* configs name none */

#define PURE_KEYS                                                                                  \
    INT_KEY(causal_lm, vocab, "vocab_size", 1, 1 << 24),                                           \
        INT_KEY(causal_lm, layers, "num_hidden_layers", 1, 1 << 12),                               \
        INT_KEY(causal_lm, d, "hidden_size", 1, 1 << 20),                                          \
        INT_KEY_OR(causal_lm, context, "max_position_embeddings", MAMBA_CONTEXT, 1, 1 << 24),      \
        FLOAT_KEY_OR(causal_lm, eps, "layer_norm_epsilon", 1e-5, 0, 1),                            \
        INT_KEY_OR(causal_lm, recurrent.kernel, "conv_kernel", 4, 1, 64),                          \
        BOOL_KEY_OR(causal_lm, recurrent.conv_bias, "use_conv_bias", true),                        \
        BOOL_KEY_OR(causal_lm, recurrent.bias, "use_bias", false), RATES_KEY,                      \
        ACT_KEY("hidden_act", ACT_SILU)

static const config_key mamba_keys[] = {
    PURE_KEYS, TIED_KEY(true), INT_KEY_OR(causal_lm, recurrent.key, "state_size", 16, 1, 1 << 12),
    END_KEYS};
static const config_key mamba2_keys[] = {
    PURE_KEYS,
    TIED_KEY(false),
    INT_KEY_OR(causal_lm, recurrent.key, "state_size", 128, 1, 1 << 12),
    INT_KEY_OR(causal_lm, recurrent.heads, "num_heads", 128, 1, 1 << 12),
    INT_KEY_OR(causal_lm, recurrent.key_heads, "n_groups", 8, 1, 1 << 12),
    NORM_GROUPS_KEY,
    END_KEYS};

static void finish_mamba(sn_config *c, const sn_model_options *o, causal_lm *g) {
    (void)o;
    list_layers(c, g, NULL, 0);
    if (!sn_config_has(c, "time_step_rank") || sn_config_equals(c, "time_step_rank", "\"auto\""))
        g->recurrent.rank = (g->d + 15) / 16;
    else
        g->recurrent.rank = sn_config_int(c, "time_step_rank", 1, 1 << 20);
    g->recurrent.value = sn_config_int_or(
        c, "intermediate_size", sn_config_int_or(c, "expand", 2, 1, 64) * g->d, 1, 1 << 22);
}

static void finish_mamba2(sn_config *c, const sn_model_options *o, causal_lm *g) {
    (void)o;
    list_layers(c, g, NULL, 0);
    size_mamba2(c, g, "expand", "num_heads", "head_dim");
}

#define PURE_NAMES                                                                                 \
    .prefix = "backbone.", .embed = "embeddings", .layers = "layers", .before_attn = "norm",       \
    .norm = "norm_f", .head = "lm_head"
#define PURE_USUAL .norm = RMS_NORM, .positions = NO_POSITIONS, .heads = 1, .kv_heads = 1
const causal_family mamba_family = {
    .names = {PURE_NAMES},
    .usual = {PURE_USUAL, .recurrent = {.scope = "mixer", .mix = mamba_mix}},
    .keys = mamba_keys,
    .finish = finish_mamba};
const causal_family mamba2_family = {
    .names = {PURE_NAMES},
    .usual = {PURE_USUAL, .recurrent = {.scope = "mixer", .mix = mamba2_mix}},
    .keys = mamba2_keys,
    .finish = finish_mamba2};
