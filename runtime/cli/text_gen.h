/* text_gen.h: continues a text: prompt, sampling, streaming output. Independent of the
 * implementation of the model: the JIT of `sinter generate`, or a deployed program. Uses the
 * runtime only. */
#ifndef SN_TEXT_GEN_H
#define SN_TEXT_GEN_H

#include "runtime/tokenizer.h"
#include "runtime/cli/args.h"

#include <math.h>

/* The command line options: rows for a member `text` of the options struct T. */
typedef struct text_options {
    const char *prompt, *prompt_file, *ids, *system;
    int64_t tokens, top_k, seed;
    double temperature, top_p, min_p, repetition_penalty;
    arg_texts stop;
    bool chat, print_ids, ignore_eos, stats;
} text_options;
#define TEXT_ROW(T, name, short_name, kind, field, value, initial, lo, hi, help)                   \
    { name, short_name, kind, offsetof(T, text.field), value, initial, lo, hi, help }
#define TEXT_ARGS(T)                                                                               \
    TEXT_ROW(T, "prompt", 'p', ARG_TEXT, prompt, "TEXT", NULL, 0, 0, "text to continue"),          \
        TEXT_ROW(T, "prompt-file", 'f', ARG_TEXT, prompt_file, "FILE", NULL, 0, 0,                 \
                 "read the prompt from a file; -: standard input"),                                \
        TEXT_ROW(T, "prompt-ids", 0, ARG_TEXT, ids, "IDS", NULL, 0, 0,                             \
                 "the prompt as token ids: \"1 403 407\""),                                        \
        TEXT_ROW(T, "chat", 0, ARG_FLAG, chat, NULL, NULL, 0, 0,                                   \
                 "the prompt is a message: use the model's chat template, print the answer"),      \
        TEXT_ROW(T, "system", 0, ARG_TEXT, system, "TEXT", NULL, 0, 0,                             \
                 "with --chat: a message of the system before it"),                                \
        TEXT_ROW(T, "tokens", 'n', ARG_INT, tokens, "N", "auto", 0, 1 << 30,                       \
                 "maximum number of tokens to generate; auto: of generation_config.json, or 256"), \
        TEXT_ROW(T, "temperature", 0, ARG_NUMBER, temperature, "T", "auto", 0, INFINITY,           \
                 "0: always the most likely token, inf: uniform; auto: of "                        \
                 "generation_config.json, or 1"),                                                  \
        TEXT_ROW(T, "top-k", 0, ARG_INT, top_k, "K", "auto", 0, INT32_MAX,                         \
                 "sample from the K most likely tokens, 0: from all; auto as above"),              \
        TEXT_ROW(T, "top-p", 0, ARG_NUMBER, top_p, "P", "auto", 1e-6, 1,                           \
                 "sample from the most likely tokens with total probability P; auto as above"),    \
        TEXT_ROW(T, "min-p", 0, ARG_NUMBER, min_p, "P", "auto", 0, 1,                              \
                 "sample from tokens at least P times as likely as the best one; auto as above"),  \
        TEXT_ROW(T, "repetition-penalty", 0, ARG_NUMBER, repetition_penalty, "R", "auto", 0.01,    \
                 100, "makes tokens that occurred less likely, 1: does not; auto as above"),       \
        TEXT_ROW(T, "stop", 0, ARG_TEXTS, stop, "TEXT", NULL, 0, 0,                                \
                 "end before this text; may be given several times"),                              \
        TEXT_ROW(T, "seed", 0, ARG_INT, seed, "S", "0", 0, INFINITY,                               \
                 "random seed; the same seed gives the same text"),                                \
        TEXT_ROW(T, "ignore-eos", 0, ARG_FLAG, ignore_eos, NULL, NULL, 0, 0,                       \
                 "continue after an end-of-text token"),                                           \
        TEXT_ROW(T, "print-ids", 0, ARG_FLAG, print_ids, NULL, NULL, 0, 0,                         \
                 "print token ids, not text"),                                                     \
        TEXT_ROW(T, "stats", 's', ARG_FLAG, stats, NULL, NULL, 0, 0,                               \
                 "print times and rates to standard error")

/* The model: `feed` runs n more tokens and returns the logits after the last one, NULL on error. */
typedef struct text_model {
    void *model;
    const float *(*feed)(void *model, const int32_t *ids, int64_t n, sn_error *err);
    int64_t vocab, context;
    const sn_tokenizer *tokenizer; /* NULL: text is ids */
    const int32_t *eos;            /* [n_eos] tokens that end a text, besides the tokenizer's */
    int n_eos;
    bool no_bos; /* texts do not start with BOS, unless they are empty */
    /* generation_config.json and the chat template are looked for here; NULL: nowhere */
    const char *folder;
} text_model;

typedef struct text_times {
    int64_t prompt, steps;  /* number of tokens */
    double prefill, decode; /* seconds */
} text_times;

/* Replaces the options that are "auto": by folder/generation_config.json if it exists (folder may be
 * NULL), else by 256 tokens and plain sampling. */
bool text_resolve(text_options *o, const char *folder, sn_error *err);

/* Appends the ids of a chat with one message of the user, up to where the answer begins. The
 * template is m->folder/chat_template.jinja, or "chat_template" of tokenizer_config.json there. */
bool text_encode_chat(const text_model *m, const char *system, const char *user, sn_ids *out,
                      sn_error *err);

/* Prints the prompt (unless it is a chat's) and its continuation to stdout; notes are prefixed with `name`. */
bool text_generate(const char *name, const text_model *m, const text_options *o, text_times *times,
                   sn_error *err);          /* o: resolved */
void text_print_times(const text_times *t); /* to stderr */

/* Encodes text; with `bos`, BOS first if the vocabulary has one. Without a tokenizer the text is a
 * list of numbers ("0 2 1", or with commas). */
bool text_encode(const sn_tokenizer *t, const char *text, size_t size, bool bos, sn_ids *out,
                 sn_error *err);

/* Reads a file ("-": stdin) into malloc'ed memory, NUL-terminated. NULL on error. */
char *text_read(const char *path, size_t *size, sn_error *err);

#endif
