/* web.h: what a browser or Node needs beside a WebAssembly module: NAME.js, NAME.d.ts, a page. */
#ifndef SN_WEB_H
#define SN_WEB_H

#include "ir/compile.h"
#include "runtime/cli/json_out.h"

struct open_model;

typedef struct web_request {
    const sn_emit_options *emitted; /* as for sn_emit; its name, folder and constants */
    /* prints the rules of a model for tokens, a value with the key "rules"; NULL: has none */
    void (*rules)(const struct open_model *m, json_out *j);
    const struct open_model *model; /* for it; NULL: a training step */
    const char *tokenizer;          /* its folder beside the module is NAME and this; NULL: none */
    bool source;    /* NAME.source.tokenizer is that of an encoder-decoder's source */
    bool page;      /* also NAME.html */
    int64_t memory; /* bytes of the memory that workers share, at first; 0: no workers */
} web_request;

/* From NAME.wasm.o and NAME.weights, which sn_emit has written: NAME.js (an ES module), NAME.d.ts and, if
 * wanted, NAME.html. */
bool web_write(const web_request *r, sn_error *err);

#endif
