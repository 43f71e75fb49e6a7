/* bart.c: BART [Lewis et al. 2020], and what keeps its names: mBART [Liu et al. 2020] with norms
 * before the sublayers and after the stacks; M2M-100 [Fan et al. 2021] and NLLB, Marian
 * [Junczys-Dowmunt et al. 2018] and Pegasus [Zhang et al. 2020] with sinusoidal positions. */
#include "frontend/causal_lm.h"
#include "frontend/families/families.h"

#define BART_KEYS                                                                                  \
    INT_KEY(seq2seq_lm, vocab, "vocab_size", 1, 1 << 24),                                          \
        INT_KEY(seq2seq_lm, context, "max_position_embeddings", 1, 1 << 24),                       \
        INT_KEY(seq2seq_lm, layers[ENCODER], "encoder_layers", 1, 1 << 12),                        \
        INT_KEY(seq2seq_lm, layers[DECODER], "decoder_layers", 1, 1 << 12),                        \
        INT_KEY(seq2seq_lm, heads[ENCODER], "encoder_attention_heads", 1, 1 << 12),                \
        INT_KEY(seq2seq_lm, heads[DECODER], "decoder_attention_heads", 1, 1 << 12),                \
        INT_KEY(seq2seq_lm, d, "d_model", 1, 1 << 20),                                             \
        INT_KEY(seq2seq_lm, d_mlp[ENCODER], "encoder_ffn_dim", 1, 1 << 22),                        \
        INT_KEY(seq2seq_lm, d_mlp[DECODER], "decoder_ffn_dim", 1, 1 << 22),                        \
        BOOL_KEY_OR(seq2seq_lm, tied, "tie_word_embeddings", true)

#define KEYS_WITH(act_name, scaled, ...)                                                           \
    {                                                                                              \
        BART_KEYS, CHOICE_KEY_OR(seq2seq_lm, act, "activation_function", causal_acts, act_name),   \
            BOOL_KEY_OR(seq2seq_lm, scale_embedding, "scale_embedding", scaled), __VA_ARGS__       \
    }

static const config_key bart_keys[] = KEYS_WITH(ACT_GELU, false, END_KEYS);
static const config_key m2m_100_keys[] = KEYS_WITH(ACT_RELU, true, END_KEYS);
static const config_key marian_keys[] =
    KEYS_WITH(ACT_GELU, false,
              INT_KEY_OR(seq2seq_lm, source_vocab, "decoder_vocab_size", 0, 1, 1 << 24), END_KEYS);

/* Old configs say what the family has. */
static void check(sn_config *c, const char *key, bool value) {
    if (sn_config_bool_or(c, key, value) != value)
        sn_config_problem(c, "\"%s\" must be %s", key, value ? "true" : "false");
}

static void finish(sn_config *c, const sn_model_options *o, seq2seq_lm *g) {
    const seq2seq_names *n = &g->names;
    check(c, "normalize_before", g->pre_norm);
    check(c, "add_final_layer_norm", n->norm[ENCODER] != NULL);
    check(c, "normalize_embedding", n->embed_norm[ENCODER] != NULL);
    check(c, "static_position_embeddings", g->positions != POSITIONS_LEARNED);
    /* a file without this bias means 0 */
    g->output_bias = n->head_bias && (!o->weights || sn_weights_find(o->weights, n->head_bias));
}

/* "vocab_size" is the source's. */
static void finish_marian(sn_config *c, const sn_model_options *o, seq2seq_lm *g) {
    static const char *const stacks[] = BOTH_STACKS("embed_tokens");
    int64_t source = g->vocab, target = g->source_vocab ? g->source_vocab : source;
    bool shared = sn_config_bool_or(c, "share_encoder_decoder_embeddings", true);
    finish(c, o, g);
    g->vocab = target, g->source_vocab = source;
    for (int s = 0; s < STACKS && !shared; s++) g->names.embed[s] = stacks[s];
    if (shared && target != source)
        sn_config_problem(c, "\"decoder_vocab_size\" must be \"vocab_size\" of shared embeddings");
}

#define BART_NAMES                                                                                 \
    .prefix = "model.", .embed = {"shared", "shared"},                                             \
    .positions = BOTH_STACKS("embed_positions"), .layers = BOTH_STACKS("layers"),                  \
    .self = "self_attn", .cross = "encoder_attn", .q = "q_proj", .k = "k_proj", .v = "v_proj",     \
    .o = "out_proj", .self_norm = {"self_attn_layer_norm", "self_attn_layer_norm"},                \
    .cross_norm = "encoder_attn_layer_norm", .mlp_norm = {"final_layer_norm", "final_layer_norm"}, \
    .up = "fc1", .down = "fc2", .head = "lm_head"

const seq2seq_family bart_family = {.names = {BART_NAMES,
                                              .embed_norm = BOTH_STACKS("layernorm_embedding"),
                                              .head_bias = "final_logits_bias"},
                                    .usual = {.eps = 1e-5, .position_start = 2},
                                    .keys = bart_keys,
                                    .finish = finish};

const seq2seq_family mbart_family = {
    .names = {BART_NAMES, .embed_norm = BOTH_STACKS("layernorm_embedding"),
              .norm = BOTH_STACKS("layer_norm"), .head_bias = "final_logits_bias"},
    .usual = {.eps = 1e-5, .position_start = 2, .pre_norm = true},
    .keys = bart_keys,
    .finish = finish};

const seq2seq_family m2m_100_family = {.names = {BART_NAMES, .norm = BOTH_STACKS("layer_norm")},
                                       .usual = {.eps = 1e-5,
                                                 .positions = POSITIONS_SINES_LAST,
                                                 .position_start = 2,
                                                 .pre_norm = true},
                                       .keys = m2m_100_keys,
                                       .finish = finish};

const seq2seq_family marian_family = {.names = {BART_NAMES, .head_bias = "final_logits_bias"},
                                      .usual = {.eps = 1e-5, .positions = POSITIONS_SINES},
                                      .keys = marian_keys,
                                      .finish = finish_marian};

const seq2seq_family pegasus_family = {
    .names = {BART_NAMES, .norm = BOTH_STACKS("layer_norm"), .head_bias = "final_logits_bias"},
    .usual = {.eps = 1e-5, .positions = POSITIONS_SINES, .pre_norm = true},
    .keys = bart_keys,
    .finish = finish};
