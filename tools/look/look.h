/* look.h: looking into a model while it reads a text: `sinter inspect` beyond the folder's
 * contents. look.c runs the model with chosen named tensors (taps) as outputs; each question that
 * can be asked is a file look_NAME.c over it. */
#ifndef SN_LOOK_H
#define SN_LOOK_H

#include "tools/model/open.h"

/* What to ask, from the command line; NULL or 0 where not given. */
typedef struct look_options {
    cmd_model model;
    cmd_compile compile;
    const char *text;      /* what the model reads */
    const char *result;    /* what an encoder-decoder has made of it so far */
    const char *tap;       /* name of a tensor */
    const char *attention; /* "all", or LAYER[:HEAD]: a number from 0, or the tap's scope */
    const char *near;      /* a token's text */
    const char *analogy;   /* "A B C": A is to B as C is to what? */
    const char *output;    /* file of a picture or an array */
    int64_t top, position; /* rows of a list; position -1: the last token */
    bool taps, lens;
} look_options;

/* The value of a tapped tensor, row-major. */
typedef struct look_tensor {
    const char *name; /* the module's */
    int rank;
    int64_t shape[8], count;
    float *data;
} look_tensor;

/* A run of one entry. `n` tensors in the order of the program. */
typedef struct look {
    lm *m;
    const char *entry;
    sn_ids tokens, source; /* source: of encoder-decoders, whose tokens are the begin and result */
    look_tensor *list;
    int n;
} look;

/* Runs the model on o->text: entry "lens" for SN_LENS, else forward, or encode if the model has no
 * other. The taps whose names `wants` accepts become values; `output` too if it is not NULL (an
 * output's name). False with the reason, also where the model wants inputs that no text gives.
 * Free with look_close in either case. */
typedef bool look_wants(const look_options *o, const char *name);
bool look_run(look *l, const look_options *o, int entries, look_wants *wants, const char *output,
              sn_error *err);
void look_close(look *l);

/* Text of a token as it may stand in a line: control characters as escapes, "#ID" without a text.
 * t may be NULL. */
const char *look_token(const sn_tokenizer *t, int32_t id, char buffer[64]);

/* The questions. Each prints to stdout or writes o->output. */
bool look_taps(const look_options *o, sn_error *err);
bool look_tap(const look_options *o, sn_error *err);
bool look_attention(const look_options *o, sn_error *err);
bool look_lens(const look_options *o, sn_error *err);
bool look_near(const look_options *o, sn_error *err);
bool look_analogy(const look_options *o, sn_error *err);

#endif
