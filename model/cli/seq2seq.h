/* seq2seq.h: runs an encoder-decoder [PH22 A15]: the encoder once, then the decoder token by token
 * with cached keys and values, by beam search or sampling. Independent of the implementation: the
 * JIT of `sinter translate`, or a deployed program. Uses the runtime only. */
#ifndef SN_SEQ2SEQ_H
#define SN_SEQ2SEQ_H

#include "model/sample.h"
#include "model/text/token_rules.h"
#include "model/tokenizer.h"
#include "runtime/cli/args.h"

#include <math.h>

typedef struct seq2seq_model {
    void *model;
    int64_t rows; /* rows of tokens: the number of beams */
    int64_t context, vocab, source_vocab;
    int32_t bos, eos;            /* tokens that begin and end a result */
    const sn_token_rules *rules; /* NULL: none */
    /* Starts a new sequence: runs the encoder on n tokens. */
    bool (*encode)(void *model, const int32_t *source, int32_t n, sn_error *err);
    /* logits[rows, vocab] of the tokens after tokens[rows], which are at position `past`; n as
     * above. */
    bool (*next)(void *model, const int32_t *tokens, int64_t past, int32_t n, float *logits,
                 sn_error *err);
    /* Row i continues row parents[i]. */
    bool (*follow)(void *model, const int32_t *parents, sn_error *err);
} seq2seq_model;

typedef struct seq2seq_options {
    int64_t max_tokens;    /* of the result; 0: as the rules say, or up to the context */
    double length_penalty; /* for beam search: model/text/beam.h; NaN: as the rules say, or 0 */
    const sn_sample_options *sample; /* sampling (needs a model with one row); NULL: beam search */
} seq2seq_options;

/* Appends the result for source[n], without its begin and end tokens, to out; *log_p (may be NULL)
 * is its log probability, end token included. Errors: an empty source, a source longer than the
 * context, tokens outside the vocabulary. */
bool sn_seq2seq_translate(const seq2seq_model *m, const int32_t *source, int64_t n,
                          const seq2seq_options *o, sn_ids *out, double *log_p, sn_error *err);

/* The command line options: rows for a member `pair` of the options struct T. */
typedef struct seq2seq_choice {
    const char *text, *file, *source_language, *target_language;
    int64_t tokens, top_k, seed;
    double penalty, temperature, top_p;
    bool print_ids, scores, stats;
} seq2seq_choice;
#define SEQ2SEQ_ROW(T, name, short_name, kind, field, value, initial, lo, hi, help)                \
    { name, short_name, kind, offsetof(T, pair.field), value, initial, lo, hi, help }
#define SEQ2SEQ_ARGS(T)                                                                            \
    SEQ2SEQ_ROW(T, "prompt", 'p', ARG_TEXT, text, "TEXT", NULL, 0, 0, "text to translate"),        \
        SEQ2SEQ_ROW(T, "file", 'f', ARG_TEXT, file, "FILE", NULL, 0, 0,                            \
                    "translate each line of a file; -: standard input"),                           \
        SEQ2SEQ_ROW(T, "source-language", 0, ARG_TEXT, source_language, "CODE", NULL, 0, 0,        \
                    "language of the text, as the vocabulary names it: fr, fr_XX, fra_Latn"),      \
        SEQ2SEQ_ROW(T, "target-language", 0, ARG_TEXT, target_language, "CODE", NULL, 0, 0,        \
                    "language of the result, likewise"),                                           \
        SEQ2SEQ_ROW(                                                                               \
            T, "tokens", 'n', ARG_INT, tokens, "N", "0", 0, 1 << 24,                               \
            "maximum number of tokens in a result; 0: of generation_config.json, or up to "        \
            "the context"),                                                                        \
        SEQ2SEQ_ROW(T, "length-penalty", 0, ARG_NUMBER, penalty, "A", "auto", 0, 10,               \
                    "rank results by log P / tokens^A; auto: of generation_config.json, or 0"),    \
        SEQ2SEQ_ROW(T, "temperature", 0, ARG_NUMBER, temperature, "T", "0", 0, INFINITY,           \
                    "above 0: sample tokens instead of beam search"),                              \
        SEQ2SEQ_ROW(T, "top-k", 0, ARG_INT, top_k, "K", "0", 0, INT32_MAX,                         \
                    "sample from the K most likely tokens, 0: from all"),                          \
        SEQ2SEQ_ROW(T, "top-p", 0, ARG_NUMBER, top_p, "P", "1", 1e-6, 1,                           \
                    "sample from the most likely tokens with total probability P"),                \
        SEQ2SEQ_ROW(T, "seed", 0, ARG_INT, seed, "S", "0", 0, INFINITY,                            \
                    "random seed; the same seed gives the same text"),                             \
        SEQ2SEQ_ROW(T, "print-ids", 0, ARG_FLAG, print_ids, NULL, NULL, 0, 0,                      \
                    "print token ids, not text"),                                                  \
        SEQ2SEQ_ROW(T, "scores", 0, ARG_FLAG, scores, NULL, NULL, 0, 0,                            \
                    "print the log probability and a tab before each result"),                     \
        SEQ2SEQ_ROW(T, "stats", 's', ARG_FLAG, stats, NULL, NULL, 0, 0,                            \
                    "print times and rates to standard error")

extern const arg_key sn_seq2seq_keys[]; /* of sn_seq2seq_run with --json */

/* Totals of a run; zero-initialise. */
typedef struct seq2seq_totals {
    int64_t lines, tokens;
    double seconds;
} seq2seq_totals;

/* Prints a result for every line of the selected text or file. Tokenizers NULL: text is token
 * ids. */
bool sn_seq2seq_run(const seq2seq_model *m, sn_tokenizer *source, const sn_tokenizer *target,
                    const seq2seq_choice *c, seq2seq_totals *totals, sn_error *err);
void sn_seq2seq_print_totals(const seq2seq_totals *t); /* to stderr */

#endif
