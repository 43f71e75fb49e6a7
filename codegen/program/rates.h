/* rates.h: the speed of products in f32 and in bf16 on a target, and what follows from it. */
#ifndef SN_RATES_H
#define SN_RATES_H

#include "codegen/emit/target.h"
#include "ir/compile.h"

typedef struct sn_rates {
    double f32, bf16; /* GFLOP/s of a thread */
} sn_rates;

/* Whether `compute` "auto" is bf16; whether "bf16" brings anything. */
bool sn_rates_pay(sn_rates r);
bool sn_rates_gain(sn_rates r);

/* Whether "auto" is bf16 on a target whose rates nobody measures, and why (static storage). */
bool sn_rates_rule(const sn_target *t, const char **why);

/* Measures both on this machine, which must run code for t, or reads them from the cache, where they are
 * kept. Takes some milliseconds, and those of making two kernels. */
bool sn_rates_measure(const sn_target *t, const char *cache_dir, sn_rates *out, sn_error *err);

#endif
