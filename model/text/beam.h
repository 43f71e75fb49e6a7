/* beam.h: beam search: keeps the most probable continuations of the hypotheses (SPEC A15, line 6,
 * with search instead of sampling). Works on logits; does not run the model. */
#ifndef SN_BEAM_H
#define SN_BEAM_H

#include "runtime/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* When a search is complete although it could go on, if `beams` hypotheses have finished. */
typedef enum sn_beam_stop {
    SN_BEAM_STOP_SURE,   /* none of the live ones can become better */
    SN_BEAM_STOP_LIKELY, /* at its present length the best continuation is worse than the worst */
    SN_BEAM_STOP_FULL    /* at once */
} sn_beam_stop;

typedef struct sn_beam_options {
    int32_t beams;      /* number of live hypotheses, 1 or more; 1 is greedy decoding */
    const int32_t *eos; /* [n_eos] tokens that end a hypothesis; borrowed */
    int n_eos;
    int64_t max_tokens; /* maximum length of a hypothesis; 1 or more */
    /* alpha >= 0: ranks hypotheses by log P / tokens^alpha, where the end token counts; 0: by log
     * P */
    double length_penalty;
    /* With another value than SN_BEAM_STOP_SURE, as in Hugging Face's search, only the best `beams`
     * continuations of a step may end. One beam stops at its first end. */
    sn_beam_stop stop;
    bool log_probabilities; /* the logits are logarithms of probabilities, perhaps not of sum 1 */
} sn_beam_options;

typedef struct sn_beam sn_beam;

/* NULL with the error: an option out of range, or out of memory. */
sn_beam *sn_beam_new(const sn_beam_options *o, size_t vocab, sn_error *err);
void sn_beam_free(sn_beam *b); /* NULL is allowed */

/* One step. logits [beams, vocab]: row i belongs to hypothesis i (before the first step all rows
 * are the same sequence, and only row 0 is read). The hypothesis of row i next continues row
 * parents[i] with tokens[i]; unused rows repeat row 0. Ties are broken by row, then by token,
 * lowest first. False: a logit is NaN or +infinity, or a whole row is -infinity. */
bool sn_beam_step(sn_beam *b, const float *logits, int32_t *tokens, int32_t *parents,
                  sn_error *err);

/* Whether the search is complete: no live hypothesis is left, or it stops by `stop`. */
bool sn_beam_done(const sn_beam *b);

/* Number of finished hypotheses, at most `beams`, sorted best first. May be called before the
 * search is done. */
int32_t sn_beam_count(const sn_beam *b);
/* Writes the tokens of finished hypothesis i, without the end token, to out (room for max_tokens)
 * and returns their number. *log_p (may be NULL): its log probability, end token included. */
size_t sn_beam_result(const sn_beam *b, int32_t i, int32_t *out, double *log_p);

#ifdef __cplusplus
}
#endif
#endif
