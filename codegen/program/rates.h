/* rates.h: the speed of products in f32 and in bf16 on a target, by its vectors and by AMX, and what follows from it. */
#ifndef SN_RATES_H
#define SN_RATES_H

#include "codegen/emit/target.h"
#include "ir/compile.h"

typedef struct sn_rates {
    double f32, bf16, amx; /* GFLOP/s of a thread; amx 0: there is none that it may use */
} sn_rates;

/* Whether `compute` "auto" is bf16; whether "bf16" brings anything; whether "bf16-unordered" is AMX. */
bool sn_rates_pay(sn_rates r);
bool sn_rates_gain(sn_rates r);
bool sn_rates_take_amx(sn_rates r);

/* Whether "auto" is bf16 on a target whose rates nobody measures, and why (static storage). */
bool sn_rates_rule(const sn_target *t, const char **why);

/* Measures them on this machine, which must run code for t, or reads them from the cache, where they are
 * kept. Takes some milliseconds, and those of making two or three kernels. Asks Linux for AMX, for the whole process. */
bool sn_rates_measure(const sn_target *t, const char *cache_dir, sn_rates *out, sn_error *err);

#endif
