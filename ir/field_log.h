/* field_log.h: discrete logarithms in the fields of field.h. */
#ifndef SN_FIELD_LOG_H
#define SN_FIELD_LOG_H

#include "ir/field.h"

/* p_0 < p_1 < ..., p_i+1 = 2 p_i + 1 */
extern const uint64_t sn_field_prime[SN_FIELD_RINGS];

/* x y, x^n and 1 / x modulo p */
__extension__ typedef unsigned __int128 sn_wide;
static inline uint64_t sn_residue_mul(uint64_t x, uint64_t y, uint64_t p) {
    return (uint64_t)((sn_wide)x * y % p);
}

static inline uint64_t sn_residue_power(uint64_t x, uint64_t n, uint64_t p) {
    uint64_t y = 1;
    for (; n; n >>= 1, x = sn_residue_mul(x, x, p))
        if (n & 1) y = sn_residue_mul(y, x, p);
    return y;
}

/* Euclid's; 0 for 0. */
static inline uint64_t sn_residue_inverse(uint64_t x, uint64_t p) {
    int64_t a = 0, b = 1;
    uint64_t rest = p, q = x;
    if (!x) return 0;
    while (q != 1) {
        const uint64_t k = rest / q, last = rest % q;
        const int64_t next = a - (int64_t)k * b;
        a = b, b = next;
        rest = q, q = last;
    }
    return b < 0 ? (uint64_t)(b + (int64_t)p) : (uint64_t)b;
}

/* l < p_i-1 with 2^l = x or -x modulo p_i; 0 < x < p_i, i > 0. Some 50 us: the index calculus (Adleman, 1979) with
 * fractions that are sieved. The first call makes tables, which takes 0.3 s. */
uint64_t sn_field_log2(uint64_t x, int i);

#endif
