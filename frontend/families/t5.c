/* t5.c: T5 [Raffel et al. 2020], T5 1.1, Flan-T5 and mT5: biases of the scores by distance instead
 * of positions, scores that are not scaled, RMS norms, no other biases; umT5, where each layer has
 * such a table of its own. */
#include "frontend/causal_lm.h"
#include "frontend/families/families.h"

#include <math.h>

static const char *const mlps[] = {"relu",           "gelu",       "gelu_new",
                                   "silu",           "gated-relu", "gated-gelu",
                                   "gated-gelu_new", "gated-silu", NULL};
static const struct {
    int act;
    bool gated;
} mlp_kinds[] = {{ACT_RELU, false}, {ACT_GELU, false},    {ACT_GELU_NEW, false}, {ACT_SILU, false},
                 {ACT_RELU, true},  {ACT_GELU_NEW, true}, {ACT_GELU_NEW, true},  {ACT_SILU, true}};

static const config_key keys[] = {
    INT_KEY(seq2seq_lm, vocab, "vocab_size", 1, 1 << 24),
    INT_KEY_OR(seq2seq_lm, context, "n_positions", 512, 1, 1 << 24),
    INT_KEY(seq2seq_lm, layers[ENCODER], "num_layers", 1, 1 << 12),
    INT_KEY_OR(seq2seq_lm, layers[DECODER], "num_decoder_layers", 0, 1, 1 << 12),
    INT_KEY(seq2seq_lm, heads[ENCODER], "num_heads", 1, 1 << 12),
    INT_KEY(seq2seq_lm, d, "d_model", 1, 1 << 20),
    INT_KEY(seq2seq_lm, d_head, "d_kv", 1, 1 << 16),
    INT_KEY(seq2seq_lm, d_mlp[ENCODER], "d_ff", 1, 1 << 22),
    INT_KEY_OR(seq2seq_lm, buckets, "relative_attention_num_buckets", 32, 4, 1 << 16),
    INT_KEY_OR(seq2seq_lm, farthest, "relative_attention_max_distance", 128, 2, 1 << 24),
    FLOAT_KEY_OR(seq2seq_lm, eps, "layer_norm_epsilon", 1e-6, 0, 1),
    BOOL_KEY_OR(seq2seq_lm, tied, "tie_word_embeddings", true),
    END_KEYS};

static void finish(sn_config *c, const sn_model_options *o, seq2seq_lm *g) {
    int kind = sn_config_choice_or(c, "feed_forward_proj", mlps, 0);
    g->act = mlp_kinds[kind].act;
    if (mlp_kinds[kind].gated)
        g->names.gate = "DenseReluDense.wi_0", g->names.up = "DenseReluDense.wi_1";
    g->heads[DECODER] = g->heads[ENCODER], g->d_mlp[DECODER] = g->d_mlp[ENCODER];
    if (!g->layers[DECODER]) g->layers[DECODER] = g->layers[ENCODER];
    if (o->context > g->context) g->context = o->context; /* distances have no limit */
    g->score_scale = 1;
    if (g->tied) g->head_scale = 1 / sqrt((double)g->d);
}

#define T5_NAMES                                                                                   \
    .prefix = "", .embed = {"shared", "shared"}, .layers = BOTH_STACKS("block"),                   \
    .self = "layer.0.SelfAttention", .cross = "layer.1.EncDecAttention", .q = "q", .k = "k",       \
    .v = "v", .o = "o", .distances = "relative_attention_bias",                                    \
    .self_norm = {"layer.0.layer_norm", "layer.0.layer_norm"}, .cross_norm = "layer.1.layer_norm", \
    .mlp_norm = {"layer.1.layer_norm", "layer.2.layer_norm"}, .mlp = {"layer.1", "layer.2"},       \
    .up = "DenseReluDense.wi", .down = "DenseReluDense.wo",                                        \
    .norm = BOTH_STACKS("final_layer_norm"), .head = "lm_head"
#define T5_USUAL .pre_norm = true, .rms_norm = true, .no_biases = true, .positions = POSITIONS_NONE

const seq2seq_family t5_family = {
    .names = {T5_NAMES}, .usual = {T5_USUAL}, .keys = keys, .finish = finish};

const seq2seq_family umt5_family = {.names = {T5_NAMES},
                                    .usual = {T5_USUAL, .distances_in_each_layer = true},
                                    .keys = keys,
                                    .finish = finish};
