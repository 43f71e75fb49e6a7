/* whisper.c: Whisper [Radford et al. 2022]: an encoder of sound and a decoder as BART's, with norms
 * before the sublayers. The encoder's sinusoidal positions are a table of the file. */
#include "frontend/causal_lm.h"
#include "frontend/families/families.h"

static const config_key keys[] = {
    INT_KEY(seq2seq_lm, vocab, "vocab_size", 1, 1 << 24),
    INT_KEY_OR(seq2seq_lm, context, "max_target_positions", 448, 1, 1 << 24),
    INT_KEY_OR(seq2seq_lm, length, "max_source_positions", 1500, 1, 1 << 20),
    INT_KEY_OR(seq2seq_lm, mel, "num_mel_bins", 80, 1, 1 << 10),
    INT_KEY(seq2seq_lm, layers[ENCODER], "encoder_layers", 1, 1 << 12),
    INT_KEY(seq2seq_lm, layers[DECODER], "decoder_layers", 1, 1 << 12),
    INT_KEY(seq2seq_lm, heads[ENCODER], "encoder_attention_heads", 1, 1 << 12),
    INT_KEY(seq2seq_lm, heads[DECODER], "decoder_attention_heads", 1, 1 << 12),
    INT_KEY(seq2seq_lm, d, "d_model", 1, 1 << 20),
    INT_KEY(seq2seq_lm, d_mlp[ENCODER], "encoder_ffn_dim", 1, 1 << 22),
    INT_KEY(seq2seq_lm, d_mlp[DECODER], "decoder_ffn_dim", 1, 1 << 22),
    BOOL_KEY_OR(seq2seq_lm, tied, "tie_word_embeddings", true),
    BOOL_KEY_OR(seq2seq_lm, scale_embedding, "scale_embedding", false),
    CHOICE_KEY_OR(seq2seq_lm, act, "activation_function", causal_acts, ACT_GELU),
    END_KEYS};

const seq2seq_family whisper_family = {
    .names = {.prefix = "model.",
              .embed = {"decoder.embed_tokens", "decoder.embed_tokens"},
              .conv = {"encoder.conv1", "encoder.conv2"},
              .positions = BOTH_STACKS("embed_positions"),
              .layers = BOTH_STACKS("layers"),
              .self = "self_attn",
              .cross = "encoder_attn",
              .q = "q_proj",
              .k = "k_proj",
              .v = "v_proj",
              .o = "out_proj",
              .self_norm = {"self_attn_layer_norm", "self_attn_layer_norm"},
              .cross_norm = "encoder_attn_layer_norm",
              .mlp_norm = {"final_layer_norm", "final_layer_norm"},
              .up = "fc1",
              .down = "fc2",
              .norm = BOTH_STACKS("layer_norm"),
              .head = "proj_out"},
    .usual = {.eps = 1e-5, .pre_norm = true, .no_k_bias = true},
    .keys = keys};
