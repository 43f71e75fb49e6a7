/* pair.h: an encoder-decoder at work [PH22 A15]: the encoder runs once, then tokens are chosen one
 * by one, by search or by draw, with keys and values kept. For whatever runs the model: the JIT of
 * `sinter translate`, or the code of a deployed program. Knows the runtime only. */
#ifndef SN_PAIR_H
#define SN_PAIR_H

#include "runtime/sample.h"
#include "runtime/tokenizer.h"
#include "runtime/cli/args.h"

#include <math.h>

typedef struct pair_model {
    void *model;
    int64_t rows; /* of tokens: the beams of the search */
    int64_t context, vocab, source_vocab;
    int32_t bos, eos; /* what a result begins and ends with */
    /* A new sequence: the encoder's pass over n tokens. */
    bool (*encode)(void *model, const int32_t *source, int32_t n, sn_error *err);
    /* logits[rows, vocab] of what follows tokens[rows], which are the (past + 1)-th; n as above. */
    bool (*next)(void *model, const int32_t *tokens, int64_t past, int32_t n, float *logits,
                 sn_error *err);
    /* Row i goes on where row parents[i] was. */
    bool (*follow)(void *model, const int32_t *parents, sn_error *err);
} pair_model;

typedef struct pair_options {
    int64_t max_tokens;              /* of the result; 0: as many as the context has room for */
    double length_penalty;           /* of the search: runtime/text/beam.h */
    const sn_sample_options *sample; /* draws (needs a model of one row); NULL: beam search */
} pair_options;

/* Appends the result for source[n], without its begin and end tokens, to out; *log_p (may be NULL)
 * is its log-probability, end token included. An empty source, one over the context and tokens
 * outside the vocabulary are errors. */
bool pair_translate(const pair_model *m, const int32_t *source, int64_t n, const pair_options *o,
                    sn_ids *out, double *log_p, sn_error *err);

/* What a user chooses: a member `pair` of the options struct T, and rows. */
typedef struct pair_choice {
    const char *text, *file;
    int64_t tokens, top_k, seed;
    double penalty, temperature, top_p;
    bool print_ids, scores, stats;
} pair_choice;
#define PAIR_ROW(T, name, letter, kind, field, value, initial, lo, hi, help)                       \
    { name, letter, kind, offsetof(T, pair.field), value, initial, lo, hi, help }
#define PAIR_ARGS(T)                                                                               \
    PAIR_ROW(T, "prompt", 'p', ARG_TEXT, text, "TEXT", NULL, 0, 0, "what to translate"),           \
        PAIR_ROW(T, "file", 'f', ARG_TEXT, file, "FILE", NULL, 0, 0,                               \
                 "each line of a file, -: standard input"),                                        \
        PAIR_ROW(T, "tokens", 'n', ARG_INT, tokens, "N", "0", 0, 1 << 24,                          \
                 "of a result at most; 0: all that the context has room for"),                     \
        PAIR_ROW(T, "length-penalty", 0, ARG_NUMBER, penalty, "A", "0", 0, 10,                     \
                 "rank results by log P / tokens^A"),                                              \
        PAIR_ROW(T, "temperature", 0, ARG_NUMBER, temperature, "T", "0", 0, INFINITY,              \
                 "above 0: draw tokens instead of searching"),                                     \
        PAIR_ROW(T, "top-k", 0, ARG_INT, top_k, "K", "0", 0, INT32_MAX,                            \
                 "draw of the K most likely, 0: of all"),                                          \
        PAIR_ROW(T, "top-p", 0, ARG_NUMBER, top_p, "P", "1", 1e-6, 1,                              \
                 "draw of the likeliest with mass P together"),                                    \
        PAIR_ROW(T, "seed", 0, ARG_INT, seed, "S", "0", 0, INFINITY,                               \
                 "the same seed gives the same text"),                                             \
        PAIR_ROW(T, "print-ids", 0, ARG_FLAG, print_ids, NULL, NULL, 0, 0,                         \
                 "print token ids, not text"),                                                     \
        PAIR_ROW(T, "scores", 0, ARG_FLAG, scores, NULL, NULL, 0, 0,                               \
                 "the result's log-probability and a tab before it"),                              \
        PAIR_ROW(T, "stats", 's', ARG_FLAG, stats, NULL, NULL, 0, 0,                               \
                 "times and rates on standard error")

/* Totals of a run; zero-initialised. */
typedef struct pair_totals {
    int64_t lines, tokens;
    double seconds;
} pair_totals;

/* Prints a line for every line of the text or file that was chosen. Tokenizers NULL: text is
 * token ids. */
bool pair_run(const pair_model *m, const sn_tokenizer *source, const sn_tokenizer *target,
              const pair_choice *c, pair_totals *totals, sn_error *err);
void pair_print_totals(const pair_totals *t); /* to stderr */

#endif
