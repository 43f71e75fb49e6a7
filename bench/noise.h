/* noise.h: how idle the machine was during a bench. */
#ifndef SN_NOISE_H
#define SN_NOISE_H

#include "runtime/base.h"

typedef struct sn_bench_noise {
    bool known;
    double start, process, busy, stolen; /* seconds */
} sn_bench_noise;

sn_bench_noise sn_bench_noise_begin(void);

/* Share of all processors' time since sn_bench_noise_begin, in percent, that other programs used,
 * and that the host of a virtual machine took away; -1: unknown. Call it after the peers have
 * exited: their time counts as this program's. */
void sn_bench_noise_end(const sn_bench_noise *n, double *others, double *stolen);

/* What the threads of a process did so far: CPU seconds, seconds that they waited for a CPU, and how often one
 * lost its CPU to another. NaN: unknown. */
typedef struct sn_bench_usage {
    double cpu, waited, switches;
} sn_bench_usage;
sn_bench_usage sn_bench_usage_of(long pid); /* 0: of this process */

/* Whether these shares make a measurement unreliable: 5 % or more together. */
bool sn_bench_busy(double others, double stolen);
/* "the machine was not idle: …", or "" if it was. Returns text. */
enum { SN_BENCH_NOISE_TEXT = 160 };
const char *sn_bench_noise_text(double others, double stolen, char text[SN_BENCH_NOISE_TEXT]);

#endif
