/* bert.c: BERT [Devlin et al. 2019], and what keeps its layers: RoBERTa [Liu et al. 2019] and
 * XLM-R, whose positions begin after the padding token's, and ELECTRA [Clark et al. 2020], whose
 * embeddings may be narrower. Positions count tokens: a padding token within a text counts, too. */
#include "frontend/causal_lm.h"
#include "frontend/families/families.h"

/* Names within a layer. */
#define BERT_LAYERS                                                                                \
    .layers = "encoder.layer", .q = "self.query", .k = "self.key", .v = "self.value",              \
    .o = "output.dense", .attn_norm = "attention.output.LayerNorm", .up = "intermediate.dense",    \
    .down = "output.dense", .mlp_norm = "output.LayerNorm"

static const config_key keys[] = {ENCODER_SIZE_KEYS, ENCODER_TYPES_KEY,
                                  ENCODER_ACT_KEY("hidden_act", ACT_GELU), END_KEYS};

const encoder_family bert_family = {
    .names = {.prefix = "bert.",
              BERT_LAYERS,
              .head_dense = "cls.predictions.transform.dense",
              .head_norm = "cls.predictions.transform.LayerNorm",
              .head_bias = "cls.predictions.bias",
              .head_table = "cls.predictions.decoder",
              .pooler = "pooler.dense",
              .classifier = "classifier",
              .task = "Bert"},
    .usual = {.padding = -1, .pool_act = sn_tanh_at, .pooler_in_prefix = true},
    .keys = keys};

static const config_key roberta_keys[] = {
    ENCODER_SIZE_KEYS, ENCODER_TYPES_KEY, ENCODER_ACT_KEY("hidden_act", ACT_GELU),
    INT_KEY_OR(encoder_lm, padding, "pad_token_id", 1, 0, 1 << 24), END_KEYS};

#define ROBERTA(name)                                                                              \
    {                                                                                              \
        .names = {.prefix = "roberta.",                                                            \
                  BERT_LAYERS,                                                                     \
                  .head_dense = "lm_head.dense",                                                   \
                  .head_norm = "lm_head.layer_norm",                                               \
                  .head_bias = "lm_head.bias",                                                     \
                  .head_table = "lm_head.decoder",                                                 \
                  .pooler = "classifier.dense",                                                    \
                  .classifier = "classifier.out_proj",                                             \
                  .task = name},                                                                   \
        .usual = {.head_act = sn_gelu_at, .pool_act = sn_tanh_at}, .keys = roberta_keys            \
    }

const encoder_family roberta_family = ROBERTA("Roberta");
const encoder_family xlm_roberta_family = ROBERTA("XLMRoberta");

static const config_key electra_keys[] = {
    ENCODER_SIZE_KEYS, ENCODER_TYPES_KEY, ENCODER_ACT_KEY("hidden_act", ACT_GELU),
    INT_KEY_OR(encoder_lm, d_embed, "embedding_size", 128, 1, 1 << 20), END_KEYS};

const encoder_family electra_family = {
    .names = {.prefix = "electra.",
              BERT_LAYERS,
              .project = "embeddings_project",
              .head_dense = "generator_predictions.dense",
              .head_norm = "generator_predictions.LayerNorm",
              .head_bias = "generator_lm_head.bias",
              .head_table = "generator_lm_head",
              .pooler = "classifier.dense",
              .classifier = "classifier.out_proj",
              .task = "Electra"},
    .usual = {.padding = -1, .head_act = sn_gelu_at, .pool_act = sn_gelu_at},
    .keys = electra_keys};
