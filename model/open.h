/* open.h: opens a language model in one call: driver/open.h with its tokenizer, pictures and class
 * names, also from a file that import can read. Used by generate, eval, explain and the benches;
 * other programs may use it, too. */
#ifndef SN_MODEL_OPEN_H
#define SN_MODEL_OPEN_H

#include "driver/open.h"
#include "model/media/picture.h"
#include "model/quantised.h"
#include "model/text/token_rules.h"
#include "model/tokenizer.h"

enum { LM_ENDS = 16 };

/* What an open model has beside its graph. */
typedef struct model_io {
    sn_tokenizer *tokenizer; /* NULL: the model has no tokenizer */
    char *tokenizer_path;    /* the file or folder of the tokenizer */
    sn_tokenizer *source;    /* encoder-decoders: the other vocabulary; NULL: the same */
    char *source_path;       /* its file */
    /* tokens that end a text, from config.json, generation_config.json and the tokenizer; the first
     * one ends a translation */
    int32_t eos[LM_ENDS];
    int n_eos;
    sn_token_rules rules;   /* of an encoder-decoder's folder */
    int64_t sequences;      /* as in the options */
    quantised recorded;     /* by `sinter quantize`, in the config */
    double state_bytes;     /* keys and values of a whole context in all rows */
    bool imported;          /* from a file of another format: its folder is gone */
    float *logits;          /* [vocab] after lm_feed */
    int64_t past;           /* tokens in the caches */
    picture_rules pictures; /* of its preprocessor_config.json */
    bool has_pictures;
    sn_config *labels; /* class names, "id2label"; NULL: none */
} model_io;

/* model_open with them. The model's context limits all calls below. */
extern const open_hooks lm_hooks;
open_model *lm_open(const open_options *o, sn_error *err);
bool lm_open_ends(open_model *m, const char *folder,
                  sn_error *err);    /* part of lm_open: fills eos */
int32_t lm_bos(const open_model *m); /* the token that starts a text; -1: none */

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

#endif
