/* nomic_bert.c: Nomic BERT and Nomic Embed 1 and 1.5 [Nussbaum et al. 2024]: BERT with rotary
 * positions and gated MLPs, and config keys of GPT-2. Of the layers that the published code can
 * make, those with norms after the sublayers; unread.c reports the rest. */
#include "frontend/causal_lm.h"
#include "frontend/families/families.h"

static const config_key keys[] = {INT_KEY(encoder_lm, vocab, "vocab_size", 1, 1 << 24),
                                  INT_KEY(encoder_lm, context, "n_positions", 1, 1 << 24),
                                  INT_KEY(encoder_lm, layers, "n_layer", 1, 1 << 12),
                                  INT_KEY(encoder_lm, heads, "n_head", 1, 1 << 12),
                                  INT_KEY(encoder_lm, d, "n_embd", 1, 1 << 20),
                                  INT_KEY(encoder_lm, d_mlp, "n_inner", 1, 1 << 22),
                                  FLOAT_KEY_OR(encoder_lm, eps, "layer_norm_epsilon", 1e-5, 0, 1),
                                  ENCODER_TYPES_KEY(2),
                                  BOOL_KEY_OR(encoder_lm, attn_bias, "qkv_proj_bias", true),
                                  BOOL_KEY_OR(encoder_lm, mlp_bias, "mlp_fc1_bias", true),
                                  FLOAT_KEY_OR(encoder_lm, base, "rotary_emb_base", 10000, 1, 1e12),
                                  ENCODER_TIED_KEY,
                                  END_KEYS};

static void finish(sn_config *c, const sn_model_options *o, encoder_lm *g) {
    (void)o;
    static const char *const gates[] = {"swiglu", "geglu", NULL};
    static const int act_of[] = {ACT_SILU, ACT_GELU};
    g->act = act_of[sn_config_choice(c, "activation_function", gates)];
    int64_t multiple = sn_config_int_or(c, "pad_vocab_size_multiple", 1, 1, 1 << 20);
    g->vocab = (g->vocab + multiple - 1) / multiple * multiple;
    g->head_bias = g->table_bias = g->mlp_bias;
    if (sn_config_bool_or(c, "mlp_fc2_bias", true) != g->mlp_bias)
        sn_config_problem(c, "\"mlp_fc1_bias\" and \"mlp_fc2_bias\" must be equal");
    double part = sn_config_float_or(c, "rotary_emb_fraction", 0, 0, 1);
    if (part != 0 && part != 1)
        sn_config_problem(c, "\"rotary_emb_fraction\" is %g; only 0 and 1 are supported", part);
    g->rotary = g->no_position_table = part > 0;
    if (g->rotary && g->d / g->heads % 2)
        sn_config_problem(c, "heads of %lld elements cannot be rotated",
                          (long long)(g->d / g->heads));
    /* Beyond the context of the training the base would depend on the length of the text. */
    int64_t trained = sn_config_int_or(c, "max_trained_positions", 2048, 1, 1 << 24);
    bool grows = g->rotary && sn_config_float_or(c, "rotary_scaling_factor", 0, 0, 1e6) > 0;
    if (grows && g->context > trained) g->context = trained;
}

const encoder_family nomic_bert_family = {
    .names = {.prefix = "bert.",
              .tokens = "word_embeddings",
              .outer_norm = "emb_ln",
              .layers = "encoder.layers",
              .qkv = "attn.Wqkv",
              .o = "attn.out_proj",
              .attn_norm = "norm1",
              .up = "mlp.fc11",
              .gate = "mlp.fc12",
              .down = "mlp.fc2",
              .mlp_norm = "norm2",
              .head_dense = "cls.predictions.transform.dense",
              .head_norm = "cls.predictions.transform.layer_norm",
              .head_bias = "cls.predictions.decoder.bias",
              .head_table = "cls.predictions.decoder",
              ENCODER_HEADS("pooler.dense", "classifier"),
              .task = "NomicBert"},
    .usual = {.padding = -1,
              .norm_bias = true,
              .rope = {.scale = 1},
              .pool_act = sn_tanh_at,
              .pooler_in_prefix = true},
    .keys = keys,
    .finish = finish};
