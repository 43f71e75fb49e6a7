/* mpnet.c: MPNet [Song et al. 2020]: RoBERTa's positions and heads, no token types, and biases of the
 * scores by distance, which all layers share. */
#include "frontend/causal_lm.h"
#include "frontend/families/families.h"

static const config_key keys[] = {
    ENCODER_SIZE_KEYS, ENCODER_ACT_KEY("hidden_act", ACT_GELU),
    INT_KEY_OR(encoder_lm, buckets, "relative_attention_num_buckets", 32, 4, 128), END_KEYS};

/* Positions begin at 2, whatever token the padding is. */
const encoder_family mpnet_family = {
    .names = {.prefix = "mpnet.",
              .layers = "encoder.layer",
              .q = "attn.q",
              .k = "attn.k",
              .v = "attn.v",
              .o = "attn.o",
              .distances = "encoder.relative_attention_bias.weight",
              .attn_norm = "attention.LayerNorm",
              .up = "intermediate.dense",
              .down = "output.dense",
              .mlp_norm = "output.LayerNorm",
              .head_dense = "lm_head.dense",
              .head_norm = "lm_head.layer_norm",
              .head_bias = "lm_head.bias",
              .head_table = "lm_head.decoder",
              .pooler = "classifier.dense",
              .classifier = "classifier.out_proj",
              .task = "MPNet"},
    .usual = {.padding = 1, .head_act = sn_gelu_at, .pool_act = sn_tanh_at},
    .keys = keys};
