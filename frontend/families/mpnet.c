/* mpnet.c: MPNet [Song et al. 2020]: RoBERTa's positions and heads, no token types, and biases of the
 * scores by distance, which all layers share. */
#include "frontend/causal_lm.h"
#include "frontend/families/families.h"

static const config_key keys[] = {
    ENCODER_SIZE_KEYS, ENCODER_EPS_KEY(1e-12), ENCODER_ACT_KEY("hidden_act", ACT_GELU),
    INT_KEY_OR(encoder_lm, buckets, "relative_attention_num_buckets", 32, 4, 128), END_KEYS};

static void finish(sn_config *c, const sn_model_options *o, encoder_lm *g) {
    (void)o;
    g->padding = 1; /* positions begin at 2, whatever token the padding is */
    if (g->buckets % 4)
        sn_config_problem(c, "\"relative_attention_num_buckets\" is not a multiple of 4");
}

const encoder_family mpnet_family = {
    .names = {.prefix = "mpnet.",
              BERT_EMBEDDINGS,
              .layers = "encoder.layer",
              .q = "attention.attn.q",
              .k = "attention.attn.k",
              .v = "attention.attn.v",
              .o = "attention.attn.o",
              .distances = "encoder.relative_attention_bias.weight",
              .attn_norm = "attention.LayerNorm",
              .up = "intermediate.dense",
              .down = "output.dense",
              .mlp_norm = "output.LayerNorm",
              .head_dense = "lm_head.dense",
              .head_norm = "lm_head.layer_norm",
              .head_bias = "lm_head.bias",
              .head_table = "lm_head.decoder",
              ENCODER_HEADS("classifier.dense", "classifier.out_proj"),
              .task = "MPNet"},
    .usual = {ENCODER_USUAL, .head_act = sn_gelu_at, .pool_act = sn_tanh_at},
    .keys = keys,
    .finish = finish};
