/* bert.c: BERT [Devlin et al. 2019], and what keeps its layers: RoBERTa [Liu et al. 2019],
 * CamemBERT and XLM-R, whose positions begin after the padding token's, and ELECTRA [Clark et al. 2020], whose
 * embeddings may be narrower. Positions count tokens: a padding token within a text counts, too. */
#include "frontend/causal_lm.h"
#include "frontend/families/families.h"

static const config_key keys[] = {ENCODER_SIZE_KEYS, ENCODER_EPS_KEY(1e-12), ENCODER_TYPES_KEY(2),
                                  ENCODER_ACT_KEY("hidden_act", ACT_GELU), END_KEYS};

const encoder_family bert_family = {
    .names = {.prefix = "bert.",
              BERT_LAYERS,
              BERT_QKV,
              .head_dense = "cls.predictions.transform.dense",
              .head_norm = "cls.predictions.transform.LayerNorm",
              .head_bias = "cls.predictions.bias",
              .head_table = "cls.predictions.decoder",
              ENCODER_HEADS("pooler.dense", "classifier"),
              .task = "Bert"},
    .usual = {ENCODER_USUAL, .pool_act = sn_tanh_at, .pooler_in_prefix = true},
    .keys = keys};

static const config_key roberta_keys[] = {
    ENCODER_SIZE_KEYS,
    ENCODER_EPS_KEY(1e-12),
    ENCODER_TYPES_KEY(2),
    ENCODER_ACT_KEY("hidden_act", ACT_GELU),
    INT_KEY_OR(encoder_lm, padding, "pad_token_id", 1, 0, 1 << 24),
    END_KEYS};

#define ROBERTA(name)                                                                              \
    {                                                                                              \
        .names = {.prefix = "roberta.",                                                            \
                  BERT_LAYERS,                                                                     \
                  BERT_QKV,                                                                        \
                  .head_dense = "lm_head.dense",                                                   \
                  .head_norm = "lm_head.layer_norm",                                               \
                  .head_bias = "lm_head.bias",                                                     \
                  .head_table = "lm_head.decoder",                                                 \
                  ENCODER_HEADS("classifier.dense", "classifier.out_proj"),                        \
                  .task = name},                                                                   \
        .usual = {ENCODER_USUAL, .head_act = sn_gelu_at, .pool_act = sn_tanh_at},                  \
        .keys = roberta_keys                                                                       \
    }

const encoder_family roberta_family = ROBERTA("Roberta");
const encoder_family camembert_family = ROBERTA("Camembert");
const encoder_family xlm_roberta_family = ROBERTA("XLMRoberta");

static const config_key electra_keys[] = {
    ENCODER_SIZE_KEYS,
    ENCODER_EPS_KEY(1e-12),
    ENCODER_TYPES_KEY(2),
    ENCODER_ACT_KEY("hidden_act", ACT_GELU),
    INT_KEY_OR(encoder_lm, d_embed, "embedding_size", 128, 1, 1 << 20),
    END_KEYS};

const encoder_family electra_family = {
    .names = {.prefix = "electra.",
              BERT_LAYERS,
              BERT_QKV,
              .project = "embeddings_project",
              .head_dense = "generator_predictions.dense",
              .head_norm = "generator_predictions.LayerNorm",
              .head_bias = "generator_lm_head.bias",
              .head_table = "generator_lm_head",
              .head = {[TEXT_CLASSES] = {"classifier.dense", "classifier.out_proj"},
                       [TOKEN_CLASSES] = {NULL, "classifier"},
                       [SPANS] = {NULL, "qa_outputs"},
                       [REPLACED_TOKENS] = {"discriminator_predictions.dense",
                                            "discriminator_predictions.dense_prediction"}},
              .task = "Electra"},
    .usual = {ENCODER_USUAL, .head_act = sn_gelu_at, .pool_act = sn_gelu_at},
    .keys = electra_keys};
