/* distilbert.c: DistilBERT [Sanh et al. 2019]: BERT without token types and pooler. */
#include "frontend/causal_lm.h"
#include "frontend/families/families.h"

static const config_key keys[] = {
    INT_KEY(encoder_lm, vocab, "vocab_size", 1, 1 << 24),
    INT_KEY(encoder_lm, context, "max_position_embeddings", 1, 1 << 24),
    INT_KEY(encoder_lm, layers, "n_layers", 1, 1 << 12),
    INT_KEY(encoder_lm, heads, "n_heads", 1, 1 << 12),
    INT_KEY(encoder_lm, d, "dim", 1, 1 << 20),
    INT_KEY(encoder_lm, d_mlp, "hidden_dim", 1, 1 << 22),
    ENCODER_ACT_KEY("activation", ACT_GELU),
    ENCODER_TIED_KEY,
    END_KEYS};

const encoder_family distilbert_family = {
    .names = {.prefix = "distilbert.",
              BERT_EMBEDDINGS,
              .layers = "transformer.layer",
              .q = "attention.q_lin",
              .k = "attention.k_lin",
              .v = "attention.v_lin",
              .o = "attention.out_lin",
              .attn_norm = "sa_layer_norm",
              .up = "ffn.lin1",
              .down = "ffn.lin2",
              .mlp_norm = "output_layer_norm",
              .head_dense = "vocab_transform",
              .head_norm = "vocab_layer_norm",
              .head_bias = "vocab_projector.bias",
              .head_table = "vocab_projector",
              ENCODER_HEADS("pre_classifier", "classifier"),
              .task = "DistilBert"},
    .usual = {ENCODER_USUAL, .eps = 1e-12, .pool_act = sn_relu_at},
    .keys = keys};
