/* sample.h: choosing the next token from logits (SPEC A14: y ~ p^(1/tau)).
 * A sampler owns its scratch memory and its place in the random stream; the same options and the
 * same logits give the same tokens. One sampler a thread. */
#ifndef SN_SAMPLE_H
#define SN_SAMPLE_H

#include "runtime/base.h"
#include "runtime/rng.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sn_sample_options {
    float temperature; /* tau >= 0; 0 is greedy, INFINITY is uniform over what the filters leave */
    int32_t top_k;     /* keep the k most probable; 0 keeps all */
    float top_p;       /* then keep the smallest most probable set of mass >= p, 0 < p <= 1;
                          Holtzman et al. 2020, "nucleus sampling" */
    uint64_t seed;
} sn_sample_options;

/* Plain sampling from the model's distribution: tau 1, no filter, seed 0. */
#define SN_SAMPLE_DEFAULTS ((sn_sample_options){.temperature = 1, .top_p = 1})

typedef struct sn_sampler sn_sampler;

/* NULL if an option is out of its range (the error names it) or vocab is 0. */
sn_sampler *sn_sampler_new(const sn_sample_options *options, size_t vocab, sn_error *err);
void sn_sampler_free(sn_sampler *s); /* NULL is fine */

/* Draws a token from logits[vocab]; -1 if a logit is NaN or +infinity, or if all are -infinity
 * (single ones may be: such a token is never drawn). Equal logits rank by index, lowest first, so
 * greedy choice and both filters are the same on every machine. */
int32_t sn_sampler_next(sn_sampler *s, const float *logits, sn_error *err);

/* The sampler's place in its stream, to store and to resume from. */
sn_rng *sn_sampler_rng(sn_sampler *s);

/* Index of the largest of x[n], the lowest one of equals; n > 0. NaN is never chosen unless all
 * are. */
size_t sn_sample_largest(const float *x, size_t n);

/* Logits x[n] to probabilities in place [PH22 A6]; sums in f64; n > 0. */
void sn_sample_softmax(float *x, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
