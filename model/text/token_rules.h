/* token_rules.h: which tokens an encoder-decoder may choose, and how it searches, as Hugging Face's
 * generation_config.json says; config.json has the keys in old folders. */
#ifndef SN_TOKEN_RULES_H
#define SN_TOKEN_RULES_H

#include "model/text/beam.h"
#include "model/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Lengths are numbers of tokens of a result, its end token included. */
typedef struct sn_token_rules {
    bool transformers;         /* the folder was written by transformers */
    int64_t beams, max_tokens; /* num_beams; of max_length or max_new_tokens; 0: not given */
    int64_t min_tokens;        /* a result of fewer does not end; 0: none */
    double length_penalty;     /* as in beam.h */
    sn_beam_stop stop;
    int32_t start, eos;        /* tokens before a result and at its end; -1: not given */
    int32_t first, last;       /* at its beginning, and at its greatest length; -1: any */
    int64_t no_repeat;         /* no sequence of this length occurs twice; 0: no such rule */
    double repetition_penalty; /* 1: none */
    sn_ids never, never_first; /* tokens that are not chosen, or not as the first one */
    sn_ids never_rows;         /* rows of tokens that do not occur: for each its length, then it */
} sn_token_rules;

#define SN_TOKEN_RULES_NONE                                                                        \
    { .start = -1, .eos = -1, .first = -1, .last = -1, .repetition_penalty = 1 }

/* Reads folder/generation_config.json or, without it, folder/config.json. False: a malformed value
 * or a rule that is not supported. Without either file, or NULL: no rules, length_penalty 0. */
bool sn_token_rules_read(sn_token_rules *r, const char *folder, sn_error *err);
void sn_token_rules_free(sn_token_rules *r);

/* Whether sn_token_rules_apply can change scores. */
bool sn_token_rules_apply_to(const sn_token_rules *r);

/* Makes logits logarithms of probabilities, to which the rules of a search with several beams
 * apply. */
void sn_token_rules_normalise(float *logits, int64_t vocab);

/* Changes the scores[vocab] of the token after tokens[n], which begin with the start token.
 * max_tokens: the greatest length of the result. Ids outside the vocabulary have no effect. */
void sn_token_rules_apply(const sn_token_rules *r, const int32_t *tokens, int64_t n,
                          int64_t max_tokens, int32_t eos, float *scores, int64_t vocab);

#ifdef __cplusplus
}
#endif
#endif
