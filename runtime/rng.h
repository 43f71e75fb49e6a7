/* rng.h: random numbers as a pure function of (seed, stream, step, index), without hidden state.
 * Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC
 * 2011), section 3.4. Compiled code computes the same function.
 *
 * Element i of the stream `stream` in step `step` under the key `seed` is
 *     block = (i >> 6 << 4) | (i & 15)      word = i >> 4 & 3
 *     philox4x32(counter = {block low, block high, stream, step}, key = {seed low, seed
 *     high})[word]
 * 64 consecutive elements come from 16 consecutive blocks, first word 0 of all blocks, then word 1,
 * and so on: a vector of 16, 8 or 4 lanes computes whole blocks and stores the four results without
 * a shuffle. */
#ifndef SN_RNG_H
#define SN_RNG_H

#include "runtime/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Stream ids in use. Different streams are independent. A `random` node of a graph uses
 * SN_STREAM_GRAPH + its own id. */
typedef enum sn_stream {
    SN_STREAM_SAMPLE = 0, /* sampling of tokens */
    SN_STREAM_INIT = 1,   /* initial weights */
    SN_STREAM_DATA = 2,   /* order of training examples */
    SN_STREAM_MASK = 3,   /* choice of masked tokens */
    SN_STREAM_GRAPH = 16
} sn_stream;

/* One Philox4x32-10 block: out is a bijection of ctr for a given key. */
void sn_philox4x32(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4]);

/* A position in one stream, and the whole state: copy it to fork, store its fields to resume. */
typedef struct sn_rng {
    uint64_t seed;   /* key */
    uint64_t index;  /* index of the next element */
    uint32_t stream; /* sn_stream */
    uint32_t step;   /* training step, or 0 */
} sn_rng;

/* 32 random bits: element `index` of the stream (ignores r->index). */
uint32_t sn_rng_at(const sn_rng *r, uint64_t index);

/* Uniform in [0, 1): the top 24 bits times 2^-24, every value exact in f32. */
static inline float sn_bits_uniform(uint32_t bits) {
    return (float)(bits >> 8) * 0x1p-24f;
}

/* Element `index` as a standard normal sample by Box and Muller (1958): words 2k and 2k+1 of a
 * block give the pair r cos t, r sin t with r = sqrt(-2 ln((bits[2k] >> 8) + 1) 2^-24)) and t = 2
 * pi (bits[2k+1] >> 8) 2^-24, computed in f64 and rounded to f32. */
float sn_rng_normal_at(const sn_rng *r, uint64_t index);

/* The next element as bits, as a uniform sample in [0, 1) with 24 or 53 bits (the latter uses two
 * elements), or as a normal sample; each advances r->index. */
uint32_t sn_rng_bits(sn_rng *r);
float sn_rng_uniform(sn_rng *r);
double sn_rng_uniform53(sn_rng *r);
float sn_rng_normal(sn_rng *r);

/* Uniform integer in [0, n), unbiased (Lemire, "Fast random integer generation in an interval",
 * 2019, algorithm 5, on 32 bits); n > 0. The number of elements used varies because of
 * rejection. */
uint32_t sn_rng_below(sn_rng *r, uint32_t n);

/* Fills out[n] from r->index on, uniform in [lo, hi) or normal with mean and standard deviation;
 * advances r->index by n. Equal to n single calls. */
void sn_rng_fill_uniform(sn_rng *r, float lo, float hi, float *out, size_t n);
void sn_rng_fill_normal(sn_rng *r, float mean, float sigma, float *out, size_t n);

#ifdef __cplusplus
}
#endif
#endif
