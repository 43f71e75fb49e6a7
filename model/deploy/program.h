/* program.h: shared by the files of a deployed program's main. */
#ifndef SN_PROGRAM_MAIN_H
#define SN_PROGRAM_MAIN_H

#include "runtime/deployed.h"
#include "runtime/file.h"
#include "runtime/manifest.h"
#include "model/cli/embed.h"
#include "model/cli/seq2seq.h"
#include "model/cli/text_gen.h"

typedef struct options {
    text_options text;
    seq2seq_choice pair;
    embed_options embed;
    const char *weights, *tokenizer, *target;
    int64_t threads;
    bool verify, info, all, copy;
} options;

typedef struct program {
    const options *o;
    const sn_deployed *a;
    sn_manifest manifest;
    sn_deployed_model model;
    sn_tokenizer *tokenizer;        /* NULL: none */
    sn_tokenizer *source;           /* the source's; NULL: the same */
    sn_token_rules rules;           /* of an encoder-decoder */
    void *state, *workspace, *copy; /* copy: the weights file in memory; NULL: mapped */
    int64_t copied;                 /* size of the copy */
    int64_t settled;     /* sn_program_settle has put so many bytes of the state into huge pages */
    int64_t room;        /* size of the workspace */
    int64_t sequences;   /* at once, of a language model */
    char folder[4096];   /* folder of the program's file */
    char settings[4200]; /* NAME.tokenizer there; "": none */
} program;

/* system.c, and system_windows.c. For the first token, on Linux only: the heap in huge pages; the weights that are in the
 * page cache, at once. */
void sn_program_use_huge_pages(void);
void sn_program_populate_weights(const program *p);
/* Zeroed memory, from 2 MB in huge pages. NULL: none; sn_program_release accepts that. A state has small pages instead: a
 * short prompt writes few of them, in places that lie far apart. With longer ones each call lets sn_program_settle put 2 MB
 * more of it into huge pages. */
void *sn_program_allocate(int64_t bytes);
void *sn_program_allocate_state(int64_t bytes);
void sn_program_settle(program *p);
void sn_program_release(void *p, int64_t bytes);
/* The path of the program's file, "": not known. The number of threads that was asked for, and these threads. */
void sn_program_path(char *path, size_t room);
bool sn_program_threads(program *p, sn_error *err);
/* call.c: an error code of the artefact as an error. */
bool sn_program_fail(const program *p, int32_t code, sn_error *err);
/* Runs an entry. dims: in the manifest's order; args: inputs, then outputs. */
bool sn_program_call(program *p, const char *entry, const int64_t *dims, void *const *args,
                     sn_error *err);

/* Prints the vectors of a text, or of each line of a file: one per token, or their mean. */
bool sn_program_encode(program *p, sn_error *err);
/* Does what `sinter embed` does with texts. */
bool sn_program_embed(program *p, sn_error *err);

/* Whether the artefact is an encoder-decoder. sn_program_translate translates lines of text. */
bool sn_program_is_translator(const program *p);
bool sn_program_translate(program *p, sn_error *err);

/* Prints the most likely class and its probability for a text, or for each line of a file. */
bool sn_program_classify(program *p, sn_error *err);

#endif
