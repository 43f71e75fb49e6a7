/* seq2seq_lm.h: encoder-decoders, described by what they differ in: names of parameters and config
 * keys are tables, the rest are the fields below. frontend/families/ has the descriptions;
 * seq2seq_lm.c builds them all [PH22 A8]. Not public. */
#ifndef SN_SEQ2SEQ_LM_H
#define SN_SEQ2SEQ_LM_H

#include "frontend/keys.h"
#include "frontend/models.h"

enum { ENCODER, DECODER, STACKS };
/* The two names of something that both stacks have, each in its scope. */
#define BOTH_STACKS(name)                                                                          \
    { "encoder." name, "decoder." name }

/* Names of parameters without ".weight" and ".bias". NULL: the family has no such thing. */
typedef struct seq2seq_names {
    const char *prefix;             /* scope of both stacks; files may lack it */
    const char *embed[STACKS];      /* tokens; equal names: one table */
    const char *conv[2];            /* convolutions of sound */
    const char *positions[STACKS];  /* learned ones */
    const char *embed_norm[STACKS]; /* norm of the sum of both */
    const char *layers[STACKS];     /* scope of layer l is LAYERS.l */
    const char *self, *cross;       /* scopes of a layer's attentions, which have */
    const char *q, *k, *v, *o;      /* these maps */
    const char *distances;          /* and a table of biases of the scores by distance */
    const char *self_norm[STACKS], *cross_norm, *mlp_norm[STACKS]; /* of a layer */
    const char *mlp[STACKS];      /* scope of a layer's feed-forward network, or NULL */
    const char *gate, *up, *down; /* within it */
    const char *norm[STACKS];     /* after the last layer */
    const char *head;             /* without the prefix */
    const char *head_bias;        /* whole name of a bias [1, V]; NULL: HEAD.bias [V] */
} seq2seq_names;

typedef enum seq2seq_positions {
    POSITIONS_LEARNED,
    POSITIONS_SINUSOID,   /* of [PH22 A7], sines and cosines in turn; base: the context */
    POSITIONS_SINES_LAST, /* all sines, then all cosines; the last has the wavelength 10000 2 pi */
    POSITIONS_SINES,      /* the same; the one after the last would have it */
    POSITIONS_NONE
} seq2seq_positions;

/* Zero is the usual value of everything. */
typedef struct seq2seq_lm {
    seq2seq_names names; /* the family's, which `finish` may change */
    const char *prefix;
    int64_t vocab, source_vocab; /* source_vocab 0: vocab */
    int64_t context, d, d_head;  /* d_head 0: d / heads */
    int64_t layers[STACKS], heads[STACKS], d_mlp[STACKS];
    double eps;
    int act;             /* index of causal_acts */
    bool pre_norm;       /* x += f(norm x), else x = norm(x + f x) */
    bool rms_norm;       /* else layer norm */
    bool no_biases;      /* of linear maps */
    bool no_k_bias;      /* of the map to keys */
    int64_t mel, length; /* the source is sound: bins of its spectrogram; encoded positions */

    int positions;             /* seq2seq_positions */
    int64_t position_start;    /* number of position 0 */
    int64_t buckets, farthest; /* rows of the table of distances; the largest distance it tells */
    bool distances_in_each_layer; /* else all layers use the first one's table */
    double score_scale;           /* 0: 1 / sqrt(d_head) */

    bool scale_embedding; /* embeddings are multiplied by sqrt(d) */
    bool tied;            /* logits are products with the decoder's token table */
    double head_scale;    /* the head's input is multiplied by it; 0: 1 */
    bool output_bias;     /* the head has a bias */

    sn_encoder_decoder frame;
} seq2seq_lm;

typedef struct seq2seq_family {
    seq2seq_names names;
    seq2seq_lm usual;       /* what the config does not say */
    const config_key *keys; /* of seq2seq_lm */
    /* What the keys imply together, or NULL. Mistakes are recorded in c. */
    void (*finish)(sn_config *c, const sn_model_options *o, seq2seq_lm *g);
} seq2seq_family;

void seq2seq_lm_build(const seq2seq_family *f, sn_config *c, const sn_model_options *o,
                      sn_model *out);

#endif
