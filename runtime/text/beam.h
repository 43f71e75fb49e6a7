/* beam.h: beam search: of all continuations of the hypotheses so far, the most probable ones go on
 * (SPEC A15, line 6, with a search in place of the draw). Works on logits; runs no model. */
#ifndef SN_BEAM_H
#define SN_BEAM_H

#include "runtime/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sn_beam_options {
    int32_t beams;         /* hypotheses that go on, 1 or more; 1 is greedy choice */
    int32_t eos;           /* ends a hypothesis; -1: nothing does */
    int64_t max_tokens;    /* a hypothesis of so many tokens is finished; 1 or more */
    double length_penalty; /* alpha >= 0: hypotheses are ranked by log P / tokens^alpha, the end
                              token counted; 0: by log P */
} sn_beam_options;

typedef struct sn_beam sn_beam;

/* NULL with the error: an option out of its range, no memory. */
sn_beam *sn_beam_new(const sn_beam_options *o, size_t vocab, sn_error *err);
void sn_beam_free(sn_beam *b); /* NULL is fine */

/* One step: logits [beams, vocab], row i of the hypothesis in row i (before the first step all rows
 * are the same sequence, only row 0 is read). tokens[i] goes to row i next, after what row
 * parents[i] held; rows that nothing is left for repeat row 0. Equal probabilities rank by row,
 * then by token, lowest first. False: a logit is NaN or +infinity, or all of a row are
 * -infinity. */
bool sn_beam_step(sn_beam *b, const float *logits, int32_t *tokens, int32_t *parents,
                  sn_error *err);

/* No hypothesis that goes on can end up among the best `beams` any more, or none does go on. */
bool sn_beam_done(const sn_beam *b);

/* Finished hypotheses, best first; at most `beams`. Before the search is done, those so far. */
int32_t sn_beam_count(const sn_beam *b);
/* Writes the tokens of finished hypothesis i, without the end token, to out (room for max_tokens);
 * their number. *log_p (may be NULL): of the whole, end token included. */
size_t sn_beam_result(const sn_beam *b, int32_t i, int32_t *out, double *log_p);

#ifdef __cplusplus
}
#endif
#endif
