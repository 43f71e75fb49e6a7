/* encoder_lm.h: encoders of Hugging Face's families, described by what they differ in: names of
 * parameters and config keys are tables, the rest are the fields below. frontend/families/ has the
 * descriptions; encoder_lm.c builds them all [PH22 A9]. Not public. */
#ifndef SN_ENCODER_LM_H
#define SN_ENCODER_LM_H

#include "frontend/keys.h"
#include "frontend/models.h"

/* Names of parameters without ".weight" and ".bias". */
typedef struct encoder_names {
    const char *prefix;         /* scope of embeddings and layers; files may lack it */
    const char *project;        /* map from embeddings of another width, or NULL */
    const char *layers, *inner; /* scope of layer l is LAYERS.l; shared ones: LAYERS.g.INNER.i */
    const char *q, *k, *v, *o;  /* within a layer's scope "attention" */
    const char *distances;      /* table of biases of the scores by distance, or NULL */
    const char *attn_norm, *mlp_norm, *up, *down; /* within a layer */
    /* the head of a masked language model: dense, norm, product with the token table, bias */
    const char *head_dense, *head_norm, *head_bias; /* head_bias: the whole name */
    const char *head_table;                         /* used if the token table is not tied */
    const char *pooler, *classifier;                /* of a classifier of texts */
    const char *task; /* "Bert": `architectures` of the config has names that begin with it */
} encoder_names;

typedef sn_tensor encoder_act(sn_loc, sn_tensor);

typedef struct encoder_lm {
    const encoder_names *names;
    int64_t vocab, context, layers, heads, d, d_mlp;
    int64_t types;   /* rows of the table of token types; 0: no such table */
    int64_t d_embed; /* width of the embeddings; 0: d */
    int64_t padding; /* the first token has the position padding + 1; -1: position 0 */
    int64_t groups;  /* layers that share parameters: number of groups; 0: none share */
    int64_t inner;   /* layers of a group */
    int64_t buckets; /* rows of the table of distances */
    int64_t labels;  /* of a classifier; 0: masked language model */
    bool per_token;  /* a classifier of each token, else of the text */
    bool tied;       /* logits are products with the token table */
    double eps;
    int act; /* index of causal_acts */

    encoder_act *head_act; /* of the masked language model's head; NULL: act */
    encoder_act *pool_act;
    bool pooler_in_prefix; /* the pooler is a parameter of the encoder, not of the head */

    const char *prefix;
    bool gamma; /* parameters of norms are gamma and beta, as in the first published weights */
} encoder_lm;

typedef struct encoder_family {
    encoder_names names;
    encoder_lm usual;       /* what the config does not say */
    const config_key *keys; /* of encoder_lm */
} encoder_family;

void encoder_lm_build(const encoder_family *f, sn_config *c, const sn_model_options *o,
                      sn_model *out);

/* Keys that most families share. */
#define ENCODER_SIZE_KEYS                                                                          \
    INT_KEY(encoder_lm, vocab, "vocab_size", 1, 1 << 24),                                          \
        INT_KEY(encoder_lm, context, "max_position_embeddings", 1, 1 << 24),                       \
        INT_KEY(encoder_lm, layers, "num_hidden_layers", 1, 1 << 12),                              \
        INT_KEY(encoder_lm, heads, "num_attention_heads", 1, 1 << 12),                             \
        INT_KEY(encoder_lm, d, "hidden_size", 1, 1 << 20),                                         \
        INT_KEY(encoder_lm, d_mlp, "intermediate_size", 1, 1 << 22),                               \
        FLOAT_KEY_OR(encoder_lm, eps, "layer_norm_eps", 1e-12, 0, 1), ENCODER_TIED_KEY
#define ENCODER_TIED_KEY BOOL_KEY_OR(encoder_lm, tied, "tie_word_embeddings", true)
#define ENCODER_TYPES_KEY INT_KEY_OR(encoder_lm, types, "type_vocab_size", 2, 1, 1 << 16)
#define ENCODER_ACT_KEY(key, usual) CHOICE_KEY_OR(encoder_lm, act, key, causal_acts, usual)

#endif
