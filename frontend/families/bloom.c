/* bloom.c: BLOOM [Scao et al. 2022]: ALiBi, a norm after the embedding, queries, keys and values of
 * each head in one matrix. */
#include "frontend/families/families.h"

static const config_key keys[] = {
    INT_KEY(causal_lm, vocab, "vocab_size", 1, 1 << 24),
    INT_KEY_ALSO(causal_lm, d, "hidden_size", "n_embed", 1, 1 << 20),
    INT_KEY_ALSO(causal_lm, layers, "n_layer", "num_hidden_layers", 1, 1 << 12),
    INT_KEY_ALSO(causal_lm, heads, "n_head", "num_attention_heads", 1, 1 << 12),
    INT_KEY_OR(causal_lm, context, "seq_length", 2048, 1, 1 << 24),
    INT_KEY_OR(causal_lm, d_mlp, "n_inner", 0, 1, 1 << 22),
    FLOAT_KEY_OR(causal_lm, eps, "layer_norm_epsilon", 1e-5, 0, 1),
    TIED_KEY(true),
    LAYOUT_KEY(QKV_BY_GROUP),
    END_KEYS};

const causal_family bloom_family = {.names = {.prefix = "transformer.",
                                              .embed = "word_embeddings",
                                              .embed_norm = "word_embeddings_layernorm",
                                              .layers = "h",
                                              .qkv = "self_attention.query_key_value",
                                              .o = "self_attention.dense",
                                              .before_attn = "input_layernorm",
                                              .before_mlp = "post_attention_layernorm",
                                              .up = "mlp.dense_h_to_4h",
                                              .down = "mlp.dense_4h_to_h",
                                              .norm = "ln_f",
                                              .head = "lm_head"},
                                    .usual = {.qkv_bias = true,
                                              .o_bias = true,
                                              .mlp_bias = true,
                                              .positions = ALIBI,
                                              .act = ACT_GELU_TANH},
                                    .keys = keys};
