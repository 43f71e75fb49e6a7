/* albert.c: ALBERT [Lan et al. 2020]: narrow embeddings and layers that share their parameters. */
#include "frontend/causal_lm.h"
#include "frontend/families/families.h"

static const config_key keys[] = {
    ENCODER_SIZE_KEYS,
    ENCODER_EPS_KEY(1e-12),
    ENCODER_TYPES_KEY(2),
    ENCODER_ACT_KEY("hidden_act", ACT_GELU_NEW),
    INT_KEY_OR(encoder_lm, d_embed, "embedding_size", 128, 1, 1 << 20),
    INT_KEY_OR(encoder_lm, groups, "num_hidden_groups", 1, 1, 1 << 12),
    INT_KEY_OR(encoder_lm, inner, "inner_group_num", 1, 1, 1 << 12),
    END_KEYS};

const encoder_family albert_family = {
    .names = {.prefix = "albert.",
              .project = "encoder.embedding_hidden_mapping_in",
              BERT_EMBEDDINGS,
              .layers = "encoder.albert_layer_groups",
              .inner = "albert_layers",
              .q = "attention.query",
              .k = "attention.key",
              .v = "attention.value",
              .o = "attention.dense",
              .attn_norm = "attention.LayerNorm",
              .up = "ffn",
              .down = "ffn_output",
              .mlp_norm = "full_layer_layer_norm",
              .head_dense = "predictions.dense",
              .head_norm = "predictions.LayerNorm",
              .head_bias = "predictions.bias",
              .head_table = "predictions.decoder",
              ENCODER_HEADS("pooler", "classifier"),
              .task = "Albert"},
    .usual = {ENCODER_USUAL, .pool_act = sn_tanh_at, .pooler_in_prefix = true},
    .keys = keys};
