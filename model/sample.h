/* sample.h: samples the next token from logits (SPEC A14: y ~ p^(1/tau)).
 * A sampler owns its scratch memory and its position in the random stream; the same options and
 * logits give the same tokens. Not thread-safe: use one sampler per thread. */
#ifndef SN_SAMPLE_H
#define SN_SAMPLE_H

#include "runtime/base.h"
#include "runtime/rng.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sn_sample_options {
    /* tau >= 0; 0: greedy; INFINITY: uniform over the tokens that the filters keep */
    float temperature;
    int32_t top_k; /* keep the k most probable tokens; 0: all */
    /* then keep the smallest set of most probable tokens with total probability >= p, 0 < p <= 1;
     * Holtzman et al. 2020, "nucleus sampling" */
    float top_p;
    /* then keep the tokens that are at least min_p times as probable as the best one; 0: all */
    float min_p;
    /* positive logits of tokens that occurred are divided by it, negative ones multiplied (Keskar et
     * al. 2019); 0 or 1: unchanged. See sn_sampler_note. */
    float repetition_penalty;
    uint64_t seed;
} sn_sample_options;

/* Plain sampling from the model's distribution: tau 1, no filter, seed 0. */
#define SN_SAMPLE_DEFAULTS ((sn_sample_options){.temperature = 1, .top_p = 1})

typedef struct sn_sampler sn_sampler;

/* NULL if an option is out of range (the error names it) or vocab is 0. */
sn_sampler *sn_sampler_new(const sn_sample_options *options, size_t vocab, sn_error *err);
void sn_sampler_free(sn_sampler *s); /* NULL is allowed */

/* Samples a token from logits[vocab]. -1 if a logit is NaN or +infinity, or if all are -infinity
 * (tokens with logit -infinity are never chosen). Ties are broken by index, lowest first, so greedy
 * decoding and both filters give the same result on every machine. */
int32_t sn_sampler_next(sn_sampler *s, const float *logits, sn_error *err);

/* Notes ids that occurred, those of a prompt for example, for the repetition penalty; tokens that
 * sn_sampler_next returned are noted already. An id outside the vocabulary is an error. */
bool sn_sampler_note(sn_sampler *s, const int32_t *ids, size_t n, sn_error *err);

/* The sampler's position in its stream, to be stored for resuming. */
sn_rng *sn_sampler_rng(sn_sampler *s);

/* Index of the largest of x[n], the lowest index if several are equal; n > 0. NaN is chosen only if
 * all are NaN. */
size_t sn_sample_largest(const float *x, size_t n);

/* ln P(token) by logits x[n]; n > 0. */
double sn_sample_log_p(const float *x, int64_t n, int32_t token);

/* Logits x[n] to probabilities in place [PH22 A6]; sums in f64; n > 0. */
void sn_sample_softmax(float *x, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
