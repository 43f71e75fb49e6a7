/* text_gen.h: the command line of programs that continue texts (model/generation.h): `sinter generate` and
 * deployed programs. Uses the runtime only. */
#ifndef SN_TEXT_GEN_H
#define SN_TEXT_GEN_H

#include "model/generation.h"
#include "runtime/cli/args.h"

#include <math.h>

/* The command line options: rows for a member `text` of the options struct T. */
typedef struct text_options {
    const char *prompt, *prompt_file, *ids, *system;
    int64_t tokens, top_k, seed, batch, beams, best_of;
    double temperature, top_p, min_p, repetition_penalty, length_penalty;
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
        TEXT_ROW(T, "batch", 0, ARG_INT, batch, "N", "0", 0, 4096,                                 \
                 "each line of the prompt file is a prompt; N at once"),                           \
        TEXT_ROW(T, "best-of", 0, ARG_INT, best_of, "N", "0", 0, 4096,                             \
                 "of N sampled texts, print the one that is most likely per token"),               \
        TEXT_ROW(T, "beams", 0, ARG_INT, beams, "N", "0", 0, 4096,                                 \
                 "beam search with N beams instead of sampling"),                                  \
        TEXT_ROW(T, "length-penalty", 0, ARG_NUMBER, length_penalty, "A", "0", 0, 10,              \
                 "with --beams: rank texts by log P / tokens^A"),                                  \
        TEXT_ROW(T, "ignore-eos", 0, ARG_FLAG, ignore_eos, NULL, NULL, 0, 0,                       \
                 "continue after an end-of-text token"),                                           \
        TEXT_ROW(T, "print-ids", 0, ARG_FLAG, print_ids, NULL, NULL, 0, 0,                         \
                 "print token ids, not text"),                                                     \
        TEXT_ROW(T, "stats", 's', ARG_FLAG, stats, NULL, NULL, 0, 0,                               \
                 "print times and rates to standard error")

extern const arg_key sn_text_keys[]; /* of sn_text_generate with --json */

/* The number of sequences at once that the options need; 0: one, which a model opened for one can
 * run. */
int64_t sn_text_sequences(const text_options *o);

/* False: options that contradict each other. Before the model is opened. */
bool sn_text_check(const text_options *o, sn_error *err);

/* Prints the prompt (unless it is a chat's) and its continuation to stdout; notes are prefixed with
 * `name`. */
bool sn_text_generate(const char *name, sn_lm *m, const text_options *o, sn_error *err);
/* text_prompt.c, text_batch.c. The prompt is line[size] or, if line is NULL, the options'. */
sn_lm_request sn_text_request(const text_options *o); /* without a prompt */
bool sn_text_read_prompt(const sn_lm *m, const text_options *o, const char *line, size_t size,
                         sn_ids *out, sn_error *err);
sn_lm_sequence *sn_text_begin(sn_lm *m, const text_options *o, const char *line, size_t size,
                              sn_error *err);
bool sn_text_generate_batch(sn_lm *m, const text_options *o, sn_error *err);
bool sn_text_generate_best(sn_lm *m, const text_options *o, sn_error *err);
bool sn_text_generate_beams(sn_lm *m, const text_options *o, sn_error *err);

/* A line for text `index` of several: s NULL: the tokens ids[n]; the first `prompt` are the prompt's. */
void sn_text_print_json(const sn_lm_sequence *s, int64_t index, const char *text,
                        const int32_t *ids, int64_t n, int64_t prompt);

void sn_text_print_times(const sn_lm *m); /* to stderr */

#endif
