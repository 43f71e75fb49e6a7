/* deberta.c: DeBERTa v2 and v3 [He et al. 2021a, 2021b]: scores are also products of queries and
 * keys with a table of positions by distance, and there may be no other positions. The convolution
 * of v2-xlarge is not supported (frontend/unread.c). */
#include "frontend/causal_lm.h"
#include "frontend/families/families.h"

static const config_key keys[] = {ENCODER_SIZE_KEYS,
                                  ENCODER_EPS_KEY(1e-7),
                                  ENCODER_TYPES_KEY(0),
                                  ENCODER_ACT_KEY("hidden_act", ACT_GELU),
                                  INT_KEY_OR(encoder_lm, d_embed, "embedding_size", 0, 1, 1 << 20),
                                  BOOL_KEY_OR(encoder_lm, relative, "relative_attention", false),
                                  BOOL_KEY_OR(encoder_lm, shares_maps, "share_att_key", false),
                                  END_KEYS};

#define NAMES(dense, norm_, bias, table)                                                           \
    {                                                                                              \
        .prefix = "deberta.", BERT_LAYERS, .q = "attention.self.query_proj",                       \
        .k = "attention.self.key_proj", .v = "attention.self.value_proj",                          \
        .project = "embeddings.embed_proj", .relative = "encoder.rel_embeddings.weight",           \
        .relative_norm = "encoder.LayerNorm", .relative_k = "attention.self.pos_key_proj",         \
        .relative_q = "attention.self.pos_query_proj", .head_dense = dense, .head_norm = norm_,    \
        .head_bias = bias, .head_table = table, ENCODER_HEADS("pooler.dense", "classifier"),       \
        .task = "DebertaV2"                                                                        \
    }

/* Of the first published weights, and of configs with "legacy": false. */
static const encoder_names other_names =
    NAMES("lm_predictions.lm_head.dense", "lm_predictions.lm_head.LayerNorm",
          "lm_predictions.lm_head.bias", "lm_predictions.lm_head.decoder");

static void read_kinds(sn_config *c, encoder_lm *g) {
    static const char *const kinds[] = {"c2p", "p2c", "p2c|c2p", "c2p|p2c", NULL};
    int kind[4];
    size_t n = sn_config_choice_list(c, "pos_att_type", kinds, kind, 4);
    for (size_t i = 0; i < n; i++) {
        g->key_to_position |= kind[i] != 1;
        g->query_to_position |= kind[i] != 0;
    }
}

static void finish(sn_config *c, const sn_model_options *o, encoder_lm *g) {
    static const char *const norms[] = {"none", "layer_norm", NULL};
    static const char *const acts[] = {"gelu", "tanh", "relu", NULL};
    static encoder_act *const act_fns[] = {sn_gelu_at, sn_tanh_at, sn_relu_at};
    int64_t far = sn_config_int_or(c, "max_relative_positions", -1, -1, 1 << 24),
            buckets = sn_config_int_or(c, "position_buckets", -1, -1, 1 << 24),
            width = sn_config_int_or(c, "attention_head_size", g->d / g->heads, 1, 1 << 20);
    if (far < 1) far = g->context;
    if (width != g->d / g->heads)
        sn_config_problem(c, "heads of %lld elements do not divide \"hidden_size\"",
                          (long long)width);
    if (buckets > 0 && (buckets < 4 || far <= buckets / 2 + 1))
        sn_config_problem(c, "%lld \"position_buckets\" do not fit distances up to %lld",
                          (long long)buckets, (long long)far);
    read_kinds(c, g);
    g->span = buckets > 0 ? buckets : far;
    g->log_span = buckets > 0 ? far : 0;
    g->norms_relative = sn_config_choice_or(c, "norm_rel_ebd", norms, 0);
    g->no_position_table = !sn_config_bool_or(c, "position_biased_input", true);
    g->pool_act = act_fns[sn_config_choice_or(c, "pooler_hidden_act", acts, 0)];
    if (!sn_config_bool_or(c, "legacy", true) ||
        (o->weights && sn_weights_find(o->weights, other_names.head_bias)))
        g->names = &other_names;
}

const encoder_family deberta_v2_family = {
    .names = NAMES("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm",
                   "cls.predictions.bias", "cls.predictions.decoder"),
    .usual = {ENCODER_USUAL, .project_without_bias = true},
    .keys = keys,
    .finish = finish};
