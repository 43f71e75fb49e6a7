/* modernbert.c: ModernBERT [Warner et al. 2024]: rotary positions, layers with windows between layers
 * without, gated MLPs, norms before the sublayers, no biases. */
#include "frontend/causal_lm.h"
#include "frontend/families/families.h"

static const char *const pooling[] = {"cls", "mean", NULL};
static const config_key keys[] = {
    ENCODER_SIZE_KEYS,
    FLOAT_KEY_OR(encoder_lm, eps, "norm_eps", 1e-5, 0, 1),
    ENCODER_ACT_KEY("hidden_activation", ACT_GELU),
    BOOL_KEY_OR(encoder_lm, attn_bias, "attention_bias", false),
    BOOL_KEY_OR(encoder_lm, mlp_bias, "mlp_bias", false),
    BOOL_KEY_OR(encoder_lm, norm_bias, "norm_bias", false),
    BOOL_KEY_OR(encoder_lm, head_bias, "classifier_bias", false),
    BOOL_KEY_OR(encoder_lm, table_bias, "decoder_bias", true),
    FLOAT_KEY_OR(encoder_lm, base, "global_rope_theta", 160000, 1, 1e12),
    FLOAT_KEY_OR(encoder_lm, local_base, "local_rope_theta", 10000, 1, 1e12),
    INT_KEY_OR(encoder_lm, window, "local_attention", 128, 1, 1 << 24),
    INT_KEY_OR(encoder_lm, full_every, "global_attn_every_n_layers", 3, 1, 1 << 12),
    END_KEYS};

static void finish(sn_config *c, const sn_model_options *o, encoder_lm *g) {
    static const char *const types[] = {"full_attention", "sliding_attention", NULL};
    static const char *const acts[] = {"gelu", "relu", "silu", "tanh", NULL};
    static encoder_act *const act_fns[] = {sn_gelu_at, sn_relu_at, sn_silu_at, sn_tanh_at};
    rope_shape shape = {g->d / g->heads, g->context, o->context};
    int64_t context = g->context;
    rope_scaling_read(c, &shape, &g->base, &context, &g->rope);
    if (g->rope.local_base > 0) g->local_base = g->rope.local_base;
    if (shape.width % 2)
        sn_config_problem(c, "heads of %lld elements cannot be rotated", (long long)shape.width);
    sn_config_string_or(c, "position_embedding_type", NULL); /* has no effect on these models */
    g->head_act = act_fns[sn_config_choice_or(c, "classifier_activation", acts, 0)];
    g->pool_mean = sn_config_choice_or(c, "classifier_pooling", pooling, 0);
    g->n_layer_types =
        sn_config_choice_list(c, "layer_types", types, g->layer_type, ENCODER_MAX_LAYERS);
    if (g->n_layer_types && (int64_t)g->n_layer_types != g->layers)
        sn_config_problem(c, "\"layer_types\" has %zu entries for %lld layers", g->n_layer_types,
                          (long long)g->layers);
}

const encoder_family modernbert_family = {.names = {.prefix = "model.",
                                                    .tokens = "tok_embeddings",
                                                    .embed_norm = "norm",
                                                    .layers = "layers",
                                                    .qkv = "attn.Wqkv",
                                                    .o = "attn.Wo",
                                                    .attn_norm = "attn_norm",
                                                    .mlp_norm = "mlp_norm",
                                                    .gate_up = "mlp.Wi",
                                                    .down = "mlp.Wo",
                                                    .norm = "final_norm",
                                                    .head_dense = "head.dense",
                                                    .head_norm = "head.norm",
                                                    .head_bias = "decoder.bias",
                                                    .head_table = "decoder",
                                                    .head = {[TEXT_CLASSES] = {NULL, "classifier"},
                                                             [TOKEN_CLASSES] = {NULL, "classifier"},
                                                             [SPANS] = {NULL, "classifier"}},
                                                    .task = "ModernBert"},
                                          .usual = {.padding = -1,
                                                    .no_position_table = true,
                                                    .pre_norm = true,
                                                    .rotary = true,
                                                    .shared_head = true},
                                          .keys = keys,
                                          .finish = finish};
