/* inspect.h: inspects a model while it reads a text, for `sinter inspect`. inspect.c runs the model with
 * selected named tensors (taps) as outputs; each kind of query is a file inspect_NAME.c. */
#ifndef SN_INSPECT_H
#define SN_INSPECT_H

#include "model/open.h"
#include "tools/model/open.h"

/* The query, from the command line; NULL or 0 if not given. */
typedef struct inspect_options {
    cmd_model model;
    cmd_compile compile;
    const char *text;      /* text that the model reads */
    const char *result;    /* encoder-decoders: the result so far */
    const char *tap;       /* name of a tensor */
    const char *attention; /* "all", or LAYER[:HEAD]: a number from 0, or the tap's scope */
    const char *near;      /* a token's text */
    const char *analogy;   /* "A B C": A is to B as C is to what? */
    const char *output;    /* output file of a picture or an array */
    int64_t top, position; /* length of a list; position -1: the last token */
    bool taps, lens;
} inspect_options;

/* The value of a tapped tensor, row-major. */
typedef struct inspect_tensor {
    const char *name; /* owned by the module */
    int rank;
    int64_t shape[8], count;
    float *data;
} inspect_tensor;

/* A run of one entry. `n` tensors in the order of the program. */
typedef struct look {
    open_model *m;
    const char *entry;
    /* source: for encoder-decoders, whose tokens are the begin token and the result */
    sn_ids tokens, source;
    inspect_tensor *list;
    int n;
} look;

/* Runs the model on o->text: entry "lens" for SN_LENS, otherwise forward, or encode if the model
 * has nothing else. The taps whose names `wants` accepts become values, and so does the output
 * named `output` unless it is NULL. False with the reason, for example if the model has inputs that
 * cannot be derived from a text. Free with inspect_close in either case. */
typedef bool inspect_wants(const inspect_options *o, const char *name);
bool inspect_run(look *l, const inspect_options *o, int entries, inspect_wants *wants,
                 const char *output, sn_error *err);
void inspect_close(look *l);

/* Printable text of a token: control characters are escaped; "#ID" if it has no text. t may be
 * NULL. */
const char *inspect_token(const sn_tokenizer *t, int32_t id, char buffer[64]);

/* The queries. Each prints to stdout or writes o->output. */
bool inspect_taps(const inspect_options *o, sn_error *err);
bool inspect_tap(const inspect_options *o, sn_error *err);
bool inspect_attention(const inspect_options *o, sn_error *err);
bool inspect_lens(const inspect_options *o, sn_error *err);
bool inspect_near(const inspect_options *o, sn_error *err);
bool inspect_analogy(const inspect_options *o, sn_error *err);

#endif
