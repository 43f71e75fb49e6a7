/* rng.c: Philox4x32-10 and the distributions based on it. Integer arithmetic up to the last step,
 * so that generated vector code can reproduce it bit for bit. */
#include "runtime/rng.h"

#include <math.h>

void sn_philox4x32(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t c0 = ctr[0], c1 = ctr[1], c2 = ctr[2], c3 = ctr[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u; /* golden ratio */
        k1 += 0xBB67AE85u; /* sqrt(3) - 1 */
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* The block that contains element `index`; returns the word in it. */
static unsigned block_of(const sn_rng *r, uint64_t index, uint32_t out[4]) {
    uint64_t block = (index >> 6 << 4) | (index & 15);
    uint32_t ctr[4] = {(uint32_t)block, (uint32_t)(block >> 32), r->stream, r->step};
    uint32_t key[2] = {(uint32_t)r->seed, (uint32_t)(r->seed >> 32)};
    sn_philox4x32(ctr, key, out);
    return index >> 4 & 3;
}

uint32_t sn_rng_at(const sn_rng *r, uint64_t index) {
    uint32_t b[4];
    unsigned word = block_of(r, index, b);
    return b[word];
}

/* Words u and v of a block as a pair of normal samples; `odd` selects the second. */
static float box_muller(uint32_t u, uint32_t v, unsigned odd) {
    double radius = sqrt(-2.0 * log(((u >> 8) + 1) * 0x1p-24));
    double angle = 6.283185307179586 * ((v >> 8) * 0x1p-24);
    return (float)(radius * (odd ? sin(angle) : cos(angle)));
}

float sn_rng_normal_at(const sn_rng *r, uint64_t index) {
    uint32_t b[4];
    unsigned word = block_of(r, index, b);
    return box_muller(b[word & 2], b[word | 1], word & 1);
}

uint32_t sn_rng_bits(sn_rng *r) {
    return sn_rng_at(r, r->index++);
}

float sn_rng_uniform(sn_rng *r) {
    return sn_bits_uniform(sn_rng_bits(r));
}

double sn_rng_uniform53(sn_rng *r) {
    uint64_t hi = sn_rng_bits(r), lo = sn_rng_bits(r);
    return (double)((hi << 32 | lo) >> 11) * 0x1p-53;
}

float sn_rng_normal(sn_rng *r) {
    return sn_rng_normal_at(r, r->index++);
}

uint32_t sn_rng_below(sn_rng *r, uint32_t n) {
    uint64_t m = (uint64_t)sn_rng_bits(r) * n;
    if ((uint32_t)m < n) /* only then can the sample be biased */
        for (uint32_t rest = -n % n; (uint32_t)m < rest;) m = (uint64_t)sn_rng_bits(r) * n;
    return (uint32_t)(m >> 32);
}

void sn_rng_fill_uniform(sn_rng *r, float lo, float hi, float *out, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = lo + (hi - lo) * sn_rng_uniform(r);
}

void sn_rng_fill_normal(sn_rng *r, float mean, float sigma, float *out, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = mean + sigma * sn_rng_normal(r);
}
