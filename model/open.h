/* open.h: opens a language model in one call: from a model folder (or a file that import can read, or
 * a preset with random weights) to a compiled program, a session and a tokenizer. Used by generate,
 * eval, explain and the benches; other programs may use it, too. */
#ifndef SN_MODEL_OPEN_H
#define SN_MODEL_OPEN_H

#include "frontend/models.h"
#include "model/media/picture.h"
#include "model/quantised.h"
#include "runtime/model_dir.h"
#include "model/text/token_rules.h"
#include "model/tokenizer.h"
#include "model/model_source.h"

typedef struct lm_options {
    const char *command; /* "sinter eval", for hints in messages; or NULL */
    /* a model folder; a file of another format, which is imported; a model in C (model_source.h),
     * with random weights unless there is a checkpoint */
    const char *path;
    const char *checkpoint; /* weights of a model in C: a .safetensors file or its folder */
    const char *preset;     /* instead of path: a published size with random weights */
    const char *tokenizer;  /* file or folder; NULL: the model's own, if any */
    int entries;            /* SN_FORWARD, …, as in models.h */
    bool translates;        /* open an encoder-decoder, with SN_CACHED */
    int64_t beams;          /* beams of an encoder-decoder; 0: num_beams of its folder, or 1 */
    int64_t sequences;      /* entries of SN_CACHED for several sequences (models.h); 0: for one */
    int64_t slices;         /* of a batch, of training entries (train.h); 0: it is whole */
    int64_t ranks;          /* that divide what `zero` says, as in sn_training; 0: one */
    int zero;
    const sn_mesh_axis *mesh; /* as in sn_model_options; NULL: one rank */
    int named;                /* entries of `entries` that the model must have (model/entries.h) */
    int64_t context;          /* maximum sequence length; 0: the model's */
    uint64_t seed;            /* seed of random weights */
    const char *needs;        /* an entry that the model must have, or NULL */
    bool any_model;    /* accept whatever entries the model has, even if it is not a decoder */
    bool compile_only; /* do not read or create weights or a session */
    bool build_only;   /* nor a program: only config, module, mapped weights and tokenizer */
    sn_options compile;
    /* Called before the module is compiled; may change the options, such as taps. Or NULL. */
    bool (*prepare)(void *user, const sn_model *model, sn_options *compile, sn_error *err);
    void *user;
} lm_options;

enum { LM_ENDS = 16 };

/* An open model. It owns everything; the fields are read-only. */
typedef struct open_model {
    sn_model_dir *dir;      /* NULL: a preset or a model in C */
    sn_config *config;      /* NULL: a model in C without a checkpoint folder */
    model_source code;      /* of a model in C */
    sn_weights *checkpoint; /* NULL: none was given */
    char *graph;            /* of a trained model in C: the file of its graph; NULL: none */
    sn_model model;
    sn_program *program;     /* NULL: build_only */
    sn_session *session;     /* NULL: compile_only, build_only */
    sn_tokenizer *tokenizer; /* NULL: the model has no tokenizer */
    char *tokenizer_path;    /* the file or folder of the tokenizer */
    sn_tokenizer *source;    /* encoder-decoders: the other vocabulary; NULL: the same */
    char *source_path;       /* its file */
    /* tokens that end a text, from config.json, generation_config.json and the tokenizer; the first
     * one ends a translation */
    int32_t eos[LM_ENDS];
    int n_eos;
    int64_t beams;          /* rows of tokens (beams) that an encoder-decoder was opened for */
    sn_token_rules rules;   /* of an encoder-decoder's folder */
    int64_t sequences;      /* as in the options */
    quantised recorded;     /* by `sinter quantize`, in the config */
    sn_options compiled;    /* the options of the program; `source` as in lm_weights */
    double state_bytes;     /* keys and values of a whole context in all rows */
    char storage_note[160]; /* why --weights auto did not choose the first; or "" */
    bool imported;          /* from a file of another format: its folder is gone */
    float *logits;          /* [vocab] after lm_feed */
    int64_t past;           /* tokens in the caches */
    picture_rules pictures; /* of its preprocessor_config.json */
    bool has_pictures;
    sn_config *labels;     /* class names, "id2label"; NULL: none */
    sn_config *own_config; /* preset or checkpoint folder */
    void **random;         /* [n_random] random weights */
    int n_random;
} open_model;

/* NULL on error. The model's context limits all calls below. */
open_model *lm_open(const lm_options *o, sn_error *err);
bool lm_open_ends(open_model *m, const char *folder,
                  sn_error *err);                  /* part of lm_open: fills eos */
int32_t lm_bos(const open_model *m);               /* the token that starts a text; -1: none */
const sn_weights *lm_weights(const open_model *m); /* as opened; NULL: random weights */
void lm_close(open_model *m);                      /* NULL is allowed */

/* Runs n more tokens through prefill (decode if n is 1); m->logits are those after the last token.
 * A sequence longer than the context and a token outside the vocabulary are errors without effect.
 * Needs SN_CACHED. */
bool lm_feed(open_model *m, const int32_t *ids, int64_t n, sn_error *err);
/* Keys and values take memory as they are written. Whether there is enough for those of the tokens
 * from `past` to `end` in this many rows of the caches. */
bool lm_check_room(const open_model *m, int64_t rows, int64_t past, int64_t end, sn_error *err);
/* The same as lm_feed after `past` tokens, with the logits [vocab] elsewhere. */
bool lm_append(open_model *m, int64_t past, const int32_t *ids, int64_t n, float *logits,
               sn_error *err);
void lm_reset(open_model *m); /* starts a new sequence */

/* Writes -ln P(targets[i] | tokens[0 .. i]) to loss[n]; NaN is an error. Needs SN_LOSS. */
bool lm_loss(open_model *m, const int32_t *tokens, const int32_t *targets, int64_t n, float *loss,
             sn_error *err);

/* Whether x[n], an output of a run, is without NaN; err names it. */
bool lm_check_output(const char *output, const float *x, int64_t n, sn_error *err);

/* The first parameter whose values in the model's file contain NaN. NULL: none, or an error. */
const char *lm_nan_parameter(const open_model *m, sn_error *err);

/* Encodes text with the model's tokenizer; with `bos`, BOS first if the vocabulary has one. For a
 * model without a tokenizer, the text is a list of numbers ("0 2 1", or with commas). */
bool lm_encode(const open_model *m, const char *text, size_t size, bool bos, sn_ids *out,
               sn_error *err);

/* Whether the model was trained on texts that begin with BOS: "add_bos_token" of its config, else
 * what the tokenizer's files say; true if they do not. */
bool lm_begins_with_bos(const open_model *m);

/* The same for the source of an encoder-decoder, without BOS. */
bool lm_encode_source(const open_model *m, const char *text, size_t size, sn_ids *out,
                      sn_error *err);

/* The tokens that begin and end a result: the config's decoder_start_token_id (or bos_token_id) and
 * eos_token_id, otherwise the tokenizer's bos and eos; for a model without a tokenizer, the last
 * two ids of the vocabulary, bos before eos [PH22 section 4]. */
bool translate_ends(const open_model *m, int32_t *bos, int32_t *eos, sn_error *err);

/* Whether an entry of the module has the input. */
bool lm_has_input(sn_module *m, const char *name);

/* Name of class i of a classifier; NULL: not in the config. */
const char *lm_label(const open_model *m, int64_t i);

/* The dimensions of a module in the form of sn_options, "B=4,T=64": B is `batch`, the others are
 * `length`, or less if their bounds require it. */
void lm_sizes(sn_module *m, int64_t batch, int64_t length, char *text, size_t size);

/* Number of parameters of the program's model. */
int64_t lm_parameters(const open_model *m);

#endif
