/* embed.h: the command line of programs that embed texts: `sinter embed`, which takes pictures too, and
 * deployed programs. Independent of the implementation. Uses the runtime only. */
#ifndef SN_EMBED_LINE_H
#define SN_EMBED_LINE_H

#include "runtime/cli/args.h"
#include "model/text/sentence.h"

/* The command line options: rows for a member `embed` of the options struct T. */
typedef struct embed_options {
    const char *text, *file, *prompt;
    arg_texts images;
    bool similarity, truncate;
} embed_options;
#define EMBED_ROW(T, name, short_name, kind, field, value, help)                                   \
    { name, short_name, kind, offsetof(T, embed.field), value, NULL, 0, 0, help }
#define EMBED_ARGS(T)                                                                              \
    EMBED_ROW(T, "prompt", 'p', ARG_TEXT, text, "TEXT", "a sentence"),                             \
        EMBED_ROW(T, "file", 'f', ARG_TEXT, file, "FILE",                                          \
                  "one sentence per line; -: standard input; with --prompt: rank them by "         \
                  "similarity to it"),                                                             \
        EMBED_ROW(T, "similarity", 0, ARG_FLAG, similarity, NULL,                                  \
                  "print the cosine similarity of all pairs of lines as a table"),                 \
        EMBED_ROW(T, "prompt-name", 0, ARG_TEXT, prompt, "NAME",                                   \
                  "the model's prompt for all sentences (config_sentence_transformers.json)"),     \
        EMBED_ROW(T, "truncate", 0, ARG_FLAG, truncate, NULL,                                      \
                  "cut sentences that are too long for the model")

extern const arg_key sn_embed_keys[]; /* of sn_embed_run with --json */

typedef struct embed_model {
    void *model;
    sentence_settings *settings;
    /* The embeddings of n texts, *out [n, *width], which the caller frees; of the first *done texts,
     * fewer than n only if `advance` stopped. */
    bool (*texts)(void *model, const sn_ids *text, int64_t n, sentence_advance *advance, void *ctx,
                  float **out, int64_t *width, int64_t *done, sn_error *err);
    /* The embedding of a picture, *out [*width], which the caller frees; NULL: of texts only. */
    bool (*image)(void *model, const char *path, float **out, int64_t *width, sn_error *err);
} embed_model;

/* The inputs of a command line. */
typedef struct embed_input {
    const char *image; /* a file; or NULL: */
    const char *text;
    size_t size;
    float *embedding; /* [width]; owned if of an image */
    double score;
    int64_t line;
} embed_input;

typedef struct embed_job {
    const embed_options *o;
    char *file;
    embed_input *list; /* images, the prompt, lines */
    float *embeddings; /* of the texts */
    int64_t n, width, done;
    bool texts; /* there are any */
    screen_progress progress;
} embed_job;

/* Collects the inputs, before a model is opened. Freed by sn_embed_end in any case. */
bool sn_embed_begin(embed_job *j, const embed_options *o, sn_error *err);
/* Prints their embeddings, similarities or ranks. Ctrl-C ends it after what is done (false, SN_OK). */
bool sn_embed_run(embed_job *j, const embed_model *m, sn_error *err);
void sn_embed_end(embed_job *j);

#endif
