/* noise.h: deterministic pseudo-random numbers for filling tensors. */
#ifndef SN_TESTS_NOISE_H
#define SN_TESTS_NOISE_H

#include <stdint.h>

/* Uniform in [-1, 1), with 24 bits: the next sample of a linear congruential generator. */
static inline float noise_next(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) * 0x1p-23f - 1;
}

static inline void fill_floats(float *x, int64_t n, uint32_t seed) {
    for (int64_t i = 0; i < n; i++) x[i] = noise_next(&seed);
}

#endif
