/* edt.c: the encoder-decoder transformer of [PH22 A8], as Vaswani et al. published it in 2017:
 * norms after the residuals, ReLU, learned or sinusoidal positions; by config also with the norms
 * first and one after each stack, two vocabularies, scaled embeddings and a bias at the end, as
 * OpenNMT trains it. Parameter names are our own; config keys are those of the Marian models where
 * there are some. */
#include "frontend/causal_lm.h"
#include "frontend/families/families.h"

static const char *const positions[] = {"learned", "sinusoid", "sinusoid_concatenated", NULL};
static const char *const orders[] = {"post", "pre", NULL};

static const config_key keys[] = {
    INT_KEY(seq2seq_lm, vocab, "vocab_size", 1, 1 << 24),
    INT_KEY_OR(seq2seq_lm, source_vocab, "source_vocab_size", 0, 1, 1 << 24),
    INT_KEY(seq2seq_lm, context, "max_position_embeddings", 1, 1 << 24),
    INT_KEY(seq2seq_lm, layers[ENCODER], "encoder_layers", 1, 1 << 12),
    INT_KEY(seq2seq_lm, layers[DECODER], "decoder_layers", 1, 1 << 12),
    INT_KEY(seq2seq_lm, heads[ENCODER], "attention_heads", 1, 1 << 12),
    INT_KEY(seq2seq_lm, d, "d_model", 1, 1 << 20),
    INT_KEY(seq2seq_lm, d_mlp[ENCODER], "ffn_dim", 1, 1 << 22),
    INT_KEY_OR(seq2seq_lm, position_start, "position_start", 0, 0, 1),
    FLOAT_KEY_OR(seq2seq_lm, eps, "layer_norm_eps", 1e-5, 0, 1),
    CHOICE_KEY_OR(seq2seq_lm, positions, "positions", positions, POSITIONS_LEARNED),
    BOOL_KEY_OR(seq2seq_lm, tied, "tie_word_embeddings", true),
    BOOL_KEY_OR(seq2seq_lm, scale_embedding, "scale_embedding", false),
    BOOL_KEY_OR(seq2seq_lm, output_bias, "output_bias", false),
    END_KEYS};

static void finish(sn_config *c, const sn_model_options *o, seq2seq_lm *g) {
    (void)o;
    seq2seq_names *n = &g->names;
    g->heads[DECODER] = g->heads[ENCODER], g->d_mlp[DECODER] = g->d_mlp[ENCODER];
    g->pre_norm = sn_config_choice_or(c, "norm_order", orders, 0);
    if (!sn_config_bool_or(c, "final_layer_norm", g->pre_norm))
        n->norm[ENCODER] = n->norm[DECODER] = NULL;
    if (!g->source_vocab) n->embed[ENCODER] = n->embed[DECODER] = "embed_tokens";
}

const seq2seq_family edt_family = {.names = {.prefix = "",
                                             .embed = BOTH_STACKS("embed_tokens"),
                                             .positions = {"embed_positions", "embed_positions"},
                                             .layers = {"encoder", "decoder"},
                                             .self = "attn",
                                             .cross = "cross",
                                             .q = "q",
                                             .k = "k",
                                             .v = "v",
                                             .o = "out",
                                             .self_norm = {"norm1", "norm3"},
                                             .cross_norm = "norm4",
                                             .mlp_norm = {"norm2", "norm5"},
                                             .up = "mlp1",
                                             .down = "mlp2",
                                             .norm = BOTH_STACKS("norm"),
                                             .head = "lm_head"},
                                   .usual = {.act = ACT_RELU},
                                   .keys = keys,
                                   .finish = finish};
