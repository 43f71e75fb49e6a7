/* field_log.h: discrete logarithms in the fields of field.h. */
#ifndef SN_FIELD_LOG_H
#define SN_FIELD_LOG_H

#include "ir/field.h"

/* p_0 < p_1 < ..., p_i+1 = 2 p_i + 1 */
extern const uint64_t sn_field_prime[SN_FIELD_RINGS];

/* l < p_i-1 with 2^l = x or -x modulo p_i; 0 < x < p_i, i > 0. Some 50 us: the index calculus (Adleman, 1979) with
 * fractions that are sieved. The first call makes tables, which takes 0.3 s. */
uint64_t sn_field_log2(uint64_t x, int i);

#endif
