/* lm.h: a language model ready to run: from a model folder (or a file that import knows, or a
 * published size with random weights) to a compiled program, a session and a tokenizer, in one
 * call. What generate, eval, explain and the benches stand on; other programs may use it too. */
#ifndef SN_LM_H
#define SN_LM_H

#include "frontend/models.h"
#include "runtime/model_dir.h"
#include "runtime/tokenizer.h"
#include "tools/model/model_source.h"

typedef struct lm_options {
    const char *command;    /* "sinter eval", for advice in messages; or NULL */
    const char *path;       /* model folder; a file of another format: imported in passing; a model
                               in C (model_source.h): random weights unless there is a checkpoint */
    const char *checkpoint; /* weights of a model in C: .safetensors file or folder of one */
    const char *preset;     /* instead of path: a published size, random weights */
    const char *tokenizer;  /* file or folder; NULL: the model's own, if it has one */
    int entries;            /* SN_FORWARD, …, as in models.h */
    bool translates;        /* an encoder-decoder is wanted, with SN_CACHED */
    int64_t beams;          /* of an encoder-decoder; 0: 1 */
    int64_t context;        /* longest sequence; 0: the model's */
    uint64_t seed;          /* of random weights */
    const char *needs;      /* an entry that the model must have, or NULL */
    bool any_model;         /* take what entries the model has, decoder or not */
    bool compile_only;      /* no weights are read or made, no session */
    bool build_only;        /* nor a program: config, module, mapped weights and tokenizer */
    sn_options compile;
    /* Sees the module before it is compiled and may change the options, for taps; or NULL. */
    bool (*prepare)(void *user, const sn_model *model, sn_options *compile, sn_error *err);
    void *user;
} lm_options;

enum { LM_ENDS = 16 };

/* An open model. All of it belongs to the lm; fields are for reading. */
typedef struct lm {
    sn_model_dir *dir;      /* NULL: a preset or a model in C */
    sn_config *config;      /* NULL: a model in C without a checkpoint folder */
    model_source code;      /* of a model in C */
    sn_weights *checkpoint; /* NULL: none was given */
    sn_model model;
    sn_program *program;     /* NULL: build_only */
    sn_session *session;     /* NULL: compile_only, build_only */
    sn_tokenizer *tokenizer; /* NULL: the model came without one */
    char *tokenizer_path;    /* file or folder that the tokenizer was read from */
    sn_tokenizer *source;    /* of an encoder-decoder's other vocabulary; NULL: the same */
    int32_t eos[LM_ENDS];    /* tokens that end a text: config.json's, generation_config.json's and
                                the tokenizer's; the first ends a translation */
    int n_eos;
    int64_t beams;         /* rows of tokens that an encoder-decoder was opened for */
    float *logits;         /* [vocab] after lm_feed */
    int64_t past;          /* tokens in the caches */
    sn_config *labels;     /* names of a classifier's classes, "id2label"; NULL: none */
    sn_config *own_config; /* of a preset, or a checkpoint folder */
    void **random;         /* [n_random] weights of a preset */
    int n_random;
} lm;

/* NULL on error. The model's context is the limit of all that follows. */
lm *lm_open(const lm_options *o, sn_error *err);
bool lm_open_ends(lm *m, const char *folder, sn_error *err); /* part of lm_open: fills eos */
int32_t lm_bos(const lm *m);               /* the token that begins a text; -1: none */
const sn_weights *lm_weights(const lm *m); /* as opened; NULL: random */
void lm_close(lm *m);                      /* NULL is allowed */

/* Runs n more tokens through prefill (decode for one): m->logits are those after the last of them.
 * A sequence over the context, and a token outside the vocabulary, are errors that change nothing.
 * Needs SN_CACHED. */
bool lm_feed(lm *m, const int32_t *ids, int64_t n, sn_error *err);
void lm_reset(lm *m); /* forgets the sequence */

/* -ln P(targets[i] | tokens[0 .. i]) into loss[n]. Needs SN_LOSS. */
bool lm_loss(lm *m, const int32_t *tokens, const int32_t *targets, int64_t n, float *loss,
             sn_error *err);

/* Text to ids with the model's tokenizer, BOS first if the vocabulary has one and bos is set. A
 * model without a tokenizer takes numbers ("0 2 1", commas are fine). */
bool lm_encode(const lm *m, const char *text, size_t size, bool bos, sn_ids *out, sn_error *err);

/* Whether the model was trained on texts that begin with BOS: "add_bos_token" of its config, true
 * if that says nothing. */
bool lm_begins_with_bos(const lm *m);

/* The same for the source of an encoder-decoder, without BOS. */
bool lm_encode_source(const lm *m, const char *text, size_t size, sn_ids *out, sn_error *err);

/* Name of class i of a classifier; NULL: its config tells none. */
const char *lm_label(const lm *m, int64_t i);

/* The dimensions of a module as sn_options has them, "B=4,T=64": B is `batch`, others are `length`,
 * or less where their bounds say so. */
void lm_sizes(sn_module *m, int64_t batch, int64_t length, char *text, size_t size);

/* Number of parameter elements of the program's model. */
int64_t lm_parameters(const lm *m);

#endif
