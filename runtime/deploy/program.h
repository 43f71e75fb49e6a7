/* program.h: the inside of a deployed program. */
#ifndef SN_PROGRAM_MAIN_H
#define SN_PROGRAM_MAIN_H

#include "runtime/deployed.h"
#include "runtime/manifest.h"
#include "runtime/cli/pair.h"
#include "runtime/cli/text_gen.h"

typedef struct options {
    text_options text;
    pair_choice pair;
    const char *weights, *tokenizer, *target;
    int64_t threads;
    bool verify, info, all, copy;
} options;

typedef struct program {
    const options *o;
    const sn_deployed *a;
    sn_manifest manifest;
    sn_deployed_model model;
    sn_tokenizer *tokenizer;        /* NULL: none came with it */
    sn_tokenizer *source;           /* of what is translated; NULL: the same */
    void *state, *workspace, *copy; /* copy: of the weights file; NULL: mapped */
    int64_t copied;                 /* its bytes */
    int64_t room;                   /* bytes of the workspace */
    char folder[4096];              /* of the program's file */
} program;

/* Runs an entry: dims in the manifest's order, args: inputs, then outputs. */
bool program_call(program *p, const char *entry, const int64_t *dims, void *const *args,
                  sn_error *err);

/* Prints the vectors of a text: of all its tokens, or their mean. */
bool program_encode(program *p, sn_error *err);

/* Is it an encoder-decoder? Then translates lines of text. */
bool program_is_translator(const program *p);
bool program_translate(program *p, sn_error *err);

/* Prints the likeliest class of a text, or of each line of a file, and its probability. */
bool program_classify(program *p, sn_error *err);

#endif
