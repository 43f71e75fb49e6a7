/* noise.h: deterministic pseudo-random numbers for filling tensors. */
#ifndef SN_TESTS_NOISE_H
#define SN_TESTS_NOISE_H

#include <stdint.h>

/* Uniform in [-1, 1), with 24 bits: the next sample of a linear congruential generator. */
static inline float noise_next(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) * 0x1p-23f - 1;
}

/* Uniform in [-1, 1): number i of a fixed sequence, in any order. */
static inline float noise_at(uint32_t i) {
    i = i * 2654435761u + 12345u;
    i ^= i >> 15;
    i *= 2246822519u;
    return (float)(i >> 8) * 0x1p-23f - 1;
}

static inline void fill_floats(float *x, int64_t n, uint32_t seed) {
    for (int64_t i = 0; i < n; i++) x[i] = noise_next(&seed);
}

#endif
