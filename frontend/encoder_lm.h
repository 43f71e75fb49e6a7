/* encoder_lm.h: encoders of Hugging Face's families, described by what they differ in: names of
 * parameters and config keys are tables, the rest are the fields below. frontend/families/ has the
 * descriptions; encoder_lm.c builds them all [PH22 A9]. Not public. */
#ifndef SN_ENCODER_LM_H
#define SN_ENCODER_LM_H

#include "frontend/keys.h"
#include "frontend/models.h"
#include "frontend/rope_scaling.h"
#include "frontend/sentence.h"

/* What an encoder was trained to say; which one it is follows from the config's "architectures", or
 * from the names of the weights. */
typedef enum encoder_task {
    MASKED_TOKENS, /* logits of every token of the vocabulary, at every position */
    TEXT_CLASSES,
    TOKEN_CLASSES,
    SPANS,           /* question answering: two logits a token, of the answer's begin and end */
    REPLACED_TOKENS, /* ELECTRA's discriminator: one logit a token */
    ENCODER_TASKS
} encoder_task;

/* Names of a head's parameters without ".weight" and ".bias". `out` NULL: no such head; `dense`
 * NULL: none before `out`. The head of the masked language model has its own names. */
typedef struct encoder_head {
    const char *dense, *out;
} encoder_head;

/* Names of parameters without ".weight" and ".bias". NULL: the family has no such thing. */
typedef struct encoder_names {
    const char *prefix;              /* scope of embeddings and layers; files may lack it */
    const char *tokens, *embed_norm; /* token table and norm, in the scope "embeddings" */
    const char *outer_norm;          /* that norm, where it is outside that scope */
    const char *project;             /* map from embeddings of another width */
    const char *layers, *inner; /* scope of layer l is LAYERS.l; shared ones: LAYERS.g.INNER.i */
    const char *q, *k, *v, *qkv, *o; /* within a layer, as all that follow; qkv: in one matrix */
    const char *attn_norm, *mlp_norm;
    const char *up, *gate, *gate_up, *down; /* gate, of a gated MLP; gate_up: both in one matrix */
    const char *norm;                       /* after the last layer */
    const char *distances;                  /* table of biases of the scores by distance */
    /* DeBERTa's table of positions by distance, its norm, and the maps of its own for keys and
     * queries of a layer */
    const char *relative, *relative_norm, *relative_k, *relative_q;
    /* the head of a masked language model: dense, norm, product with the token table, bias */
    const char *head_dense, *head_norm, *head_bias; /* head_bias: the whole name */
    const char *head_table;                         /* used if the token table is not tied */
    encoder_head head[ENCODER_TASKS];
    const char *task; /* "Bert": `architectures` of the config has names that begin with it */
} encoder_names;

typedef sn_tensor encoder_act(sn_loc, sn_tensor);

enum { ENCODER_MAX_LAYERS = 256 }; /* of "layer_types" */

/* Zero is the usual value of everything except ENCODER_USUAL. */
typedef struct encoder_lm {
    const encoder_names *names;
    const char *prefix;
    int64_t vocab, context, layers, heads, d, d_mlp;
    int64_t types;   /* rows of the table of token types; 0: no such table */
    int64_t d_embed; /* width of the embeddings; 0: d */
    int64_t padding; /* the first token has the position padding + 1; -1: position 0 */
    int64_t groups;  /* layers that share parameters: number of groups; 0: none share */
    int64_t inner;   /* layers of a group */
    bool no_position_table;
    bool project_without_bias;
    double eps;
    int act;    /* index of causal_acts */
    bool gamma; /* parameters of norms are gamma and beta, as in the first published weights */

    bool attn_bias, mlp_bias, norm_bias;
    bool pre_norm; /* x += f(norm x), twice, else x = norm(x + f x); the first layer's first norm is
                      the one after the embeddings */

    int64_t buckets;                                   /* rows of the table of distances */
    bool relative, key_to_position, query_to_position; /* DeBERTa: scores of q with positions of
                                                          keys; of k with positions of queries */
    bool shares_maps; /* positions use the layer's maps of keys and queries */
    bool norms_relative;
    int64_t span, log_span; /* rows of `relative` on each side; distance of the farthest, beyond
                               span / 2 in ever wider ranges; 0: one row each */
    bool rotary;
    double base, local_base; /* local_base: of the layers with a window */
    rope_scaling rope;
    int64_t window;                     /* a token sees window / 2 tokens on each side; 0: all */
    int64_t full_every;                 /* layers 0, full_every, … have no window */
    int layer_type[ENCODER_MAX_LAYERS]; /* 1: with a window */
    size_t n_layer_types;               /* 0: by full_every */

    sentence_head sentence;
    encoder_task task;
    int64_t labels;             /* logits of a text or token; 0: masked language model */
    bool tied;                  /* logits are products with the token table */
    encoder_act *head_act;      /* of the masked language model's head; NULL: act */
    encoder_act *pool_act;      /* NULL: act */
    bool pooler_in_prefix;      /* the pooler is a parameter of the encoder, not of the head */
    bool shared_head;           /* every head begins as the masked language model's */
    bool head_bias, table_bias; /* of the masked language model's head: in dense; of the logits */
    bool pool_mean; /* a text's classes are of the mean over its tokens, else of the first one */
} encoder_lm;
#define ENCODER_USUAL                                                                              \
    .padding = -1, .attn_bias = true, .mlp_bias = true, .norm_bias = true, .head_bias = true,      \
    .table_bias = true

typedef struct encoder_family {
    encoder_names names;
    encoder_lm usual;       /* what the config does not say */
    const config_key *keys; /* of encoder_lm */
    /* What the keys imply together, or NULL. Mistakes are recorded in c. */
    void (*finish)(sn_config *c, const sn_model_options *o, encoder_lm *g);
} encoder_family;

void encoder_lm_build(const encoder_family *f, sn_config *c, const sn_model_options *o,
                      sn_model *out);

/* The heads of encoder_lm.c's model, of x [B, T, d] after the last layer (encoder_heads.c): reads
 * what the config and the weights say of them; their logits. */
void encoder_read_head(sn_config *c, const sn_weights *w, encoder_lm *g);
bool encoder_has_masked_head(const encoder_lm *g, const sn_weights *w);
sn_tensor encoder_logits(const encoder_lm *g, const sn_forward_ctx *s, sn_tensor x);

/* What layers and heads are made of (encoder_parts.c). A norm is over the last axis. */
sn_tensor encoder_linear(sn_tensor x, const char *name, int64_t n_out, bool bias);
/* To heads or the columns of an MLP, in n parts; and back: what a mesh axis "tensor" divides. */
sn_tensor encoder_columns(sn_tensor x, const char *name, int n, const int64_t *parts, bool bias);
sn_tensor encoder_rows(sn_tensor x, const char *name, int64_t n_out, bool bias);
sn_tensor encoder_norm(const encoder_lm *g, sn_tensor x, const char *name);
sn_tensor encoder_activate(const encoder_lm *g, encoder_act *act, sn_tensor x);

/* What all layers' scores share: lengths [B]; MPNet's table of distances; DeBERTa's table of
 * positions [2 span, d]; NULL where the family has none. */
typedef struct encoder_shared {
    sn_tensor lengths, distances, relative;
} encoder_shared;
encoder_shared encoder_share(const encoder_lm *g, const sn_forward_ctx *s);
/* Sets mask, score and scale of a layer's attention, whose q, k, v are [B, H, T, d_head]. Parameters
 * are those of the scope, which is the layer's. */
void encoder_score(const encoder_lm *g, const sn_forward_ctx *s, const encoder_shared *shared,
                   bool windowed, sn_attention_args *args);

/* Keys that most families share. */
#define ENCODER_SIZE_KEYS                                                                          \
    INT_KEY(encoder_lm, vocab, "vocab_size", 1, 1 << 24),                                          \
        INT_KEY(encoder_lm, context, "max_position_embeddings", 1, 1 << 24),                       \
        INT_KEY(encoder_lm, layers, "num_hidden_layers", 1, 1 << 12),                              \
        INT_KEY(encoder_lm, heads, "num_attention_heads", 1, 1 << 12),                             \
        INT_KEY(encoder_lm, d, "hidden_size", 1, 1 << 20),                                         \
        INT_KEY(encoder_lm, d_mlp, "intermediate_size", 1, 1 << 22), ENCODER_TIED_KEY
#define ENCODER_EPS_KEY(usual) FLOAT_KEY_OR(encoder_lm, eps, "layer_norm_eps", usual, 0, 1)
#define ENCODER_TIED_KEY BOOL_KEY_OR(encoder_lm, tied, "tie_word_embeddings", true)
#define ENCODER_TYPES_KEY(usual) INT_KEY_OR(encoder_lm, types, "type_vocab_size", usual, 0, 1 << 16)
#define ENCODER_ACT_KEY(key, usual) CHOICE_KEY_OR(encoder_lm, act, key, causal_acts, usual)

/* The names of BERT's embeddings, which many families keep, and of its layers. */
#define BERT_EMBEDDINGS .tokens = "word_embeddings", .embed_norm = "LayerNorm"
#define BERT_LAYERS                                                                                \
    BERT_EMBEDDINGS, .layers = "encoder.layer", .o = "attention.output.dense",                     \
                     .attn_norm = "attention.output.LayerNorm", .up = "intermediate.dense",        \
                     .down = "output.dense", .mlp_norm = "output.LayerNorm"
#define BERT_QKV .q = "attention.self.query", .k = "attention.self.key", .v = "attention.self.value"
/* Heads: of texts with these names, and the usual ones of tokens and spans. */
#define ENCODER_HEADS(dense_, out_)                                                                \
    .head = {[TEXT_CLASSES] = {dense_, out_},                                                      \
             [TOKEN_CLASSES] = {NULL, "classifier"},                                               \
             [SPANS] = {NULL, "qa_outputs"}}

#endif
