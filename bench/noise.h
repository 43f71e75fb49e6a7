/* noise.h: how quiet the machine was while a bench ran. */
#ifndef SN_NOISE_H
#define SN_NOISE_H

#include "runtime/base.h"

typedef struct sn_bench_noise {
    bool known;
    double start, own, busy, stolen; /* seconds */
} sn_bench_noise;

sn_bench_noise sn_bench_noise_begin(void);

/* Share of all processors' time since then, in percent, that went to other programs, and that the
 * host of a virtual machine took away; -1: not known. Call it after peers have ended, whose time is
 * this program's own. */
void sn_bench_noise_end(const sn_bench_noise *n, double *others, double *stolen);

#endif
