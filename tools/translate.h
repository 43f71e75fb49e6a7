/* translate.h: an encoder-decoder at work [PH22 A15]: the encoder runs once, then tokens are chosen
 * one by one, by search or by draw, with keys and values kept. */
#ifndef SN_TRANSLATE_H
#define SN_TRANSLATE_H

#include "runtime/sample.h"
#include "tools/lm.h"

typedef struct translate_options {
    int64_t max_tokens;              /* of the result; 0: as many as the context has room for */
    double length_penalty;           /* of the search: runtime/beam.h */
    const sn_sample_options *sample; /* draws (needs a model of one beam); NULL: beam search */
} translate_options;

/* Appends the result for source[n], without its begin and end tokens, to out; *log_p (may be NULL)
 * is its log-probability, end token included. m: opened with `translates`; the search has as many
 * beams as it was opened with. An empty source, one over the context, tokens outside the
 * vocabulary, and a vocabulary that lacks a begin or an end token are errors. */
bool translate(lm *m, const int32_t *source, int64_t n, const translate_options *o, sn_ids *out,
               double *log_p, sn_error *err);

/* The token that a result begins with, and the one that ends it: the config's
 * decoder_start_token_id (or bos_token_id) and eos_token_id, else the tokenizer's bos and eos; of a
 * model without a tokenizer the vocabulary's last but one and last ones [PH22 section 4]. */
bool translate_ends(const lm *m, int32_t *bos, int32_t *eos, sn_error *err);

#endif
