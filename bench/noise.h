/* noise.h: how idle the machine was during a bench. */
#ifndef SN_NOISE_H
#define SN_NOISE_H

#include "runtime/base.h"

typedef struct sn_bench_noise {
    bool known;
    double start, process, busy, stolen; /* seconds */
    double switches;
} sn_bench_noise;

sn_bench_noise sn_bench_noise_begin(void);

/* Share of all processors' time since sn_bench_noise_begin, in percent, that other programs used,
 * and that the host of a virtual machine took away; -1: unknown. Call it after the peers have
 * exited: their time counts as this program's. */
void sn_bench_noise_end(const sn_bench_noise *n, double *others, double *stolen);

/* Involuntary context switches of this process since sn_bench_noise_begin. */
double sn_bench_noise_switches(const sn_bench_noise *n);

/* CPU seconds of all threads of this process, and how often one of them was preempted. */
void sn_bench_usage(double *cpu, double *preempted);

/* Whether these shares make a measurement unreliable: 5 % or more together. */
bool sn_bench_busy(double others, double stolen);
/* "the machine was not idle: …", or "" if it was. Returns text. */
enum { SN_BENCH_NOISE_TEXT = 160 };
const char *sn_bench_noise_text(double others, double stolen, char text[SN_BENCH_NOISE_TEXT]);

#endif
