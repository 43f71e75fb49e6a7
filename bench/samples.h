/* samples.h: the times of an entrant's rounds: which of them count, and what they say of their median. */
#ifndef SN_BENCH_SAMPLES_H
#define SN_BENCH_SAMPLES_H

#include <stdbool.h>

enum { SN_BENCH_ROUNDS = 101 /* maximum number of rounds */ };

/* The samples of an entrant, one a round. A round counts unless it is one of the first `warm_up`, or the
 * sample was preempted: threads lost their CPU and waited for it for at least 1 % of the time. */
typedef struct sn_bench_samples {
    int n, warm_up;
    double ms[SN_BENCH_ROUNDS];       /* the first 0: not kept */
    double cpu_ms[SN_BENCH_ROUNDS];   /* of all threads; NaN: unknown */
    double switches[SN_BENCH_ROUNDS]; /* involuntary context switches; NaN: unknown */
    double
        waited[SN_BENCH_ROUNDS]; /* share of the time that a thread waited, percent; NaN: unknown */
} sn_bench_samples;

bool sn_bench_preempted(const sn_bench_samples *s, int round);
bool sn_bench_counts(const sn_bench_samples *s, int round);

/* The indices of the rounds that count; if they are fewer than half, of all rounds, and *few is set (NULL is
 * allowed). Returns their number. */
int sn_bench_find_counted(const sn_bench_samples *s, int round[SN_BENCH_ROUNDS], bool *few);

/* Writes the numbers of n rounds of `all`, one a round, to `some`; n is returned. */
int sn_bench_pick(const double *all, const int *round, int n, double some[SN_BENCH_ROUNDS]);

/* The times that count; if they are fewer than half, all times are, and *few is set (NULL is allowed).
 * Returns their number. */
int sn_bench_counted(const sn_bench_samples *s, double ms[SN_BENCH_ROUNDS], bool *few);

/* Finds warm_up: the first rounds, at most a third, that are slower than three standard deviations (by the median
 * of the differences, at least 1 %) above the median of those after them. */
void sn_bench_find_warm_up(sn_bench_samples *s);

/* For each round in which both samples count, a's time over b's; if these are fewer than half, for all
 * rounds, and *few is set. Returns their number; 0: the rounds are not of one run. */
int sn_bench_ratios(const sn_bench_samples *a, const sn_bench_samples *b,
                    double ratio[SN_BENCH_ROUNDS], bool *few);

double sn_bench_median(const double *x, int n);

/* The interval of 95 % of the median of n numbers, or of the ratio of two medians (y NULL: of x alone): what lies
 * between the quantiles of 1000 resampled medians. The same for the same numbers. */
void sn_bench_bootstrap(const double *x, int n, const double *y, int m, double *low, double *high);

/* The smallest difference that a run can see, percent: how far the interval of the ratio of one entrant's samples
 * to its samples as another entrant of the same rounds is from 1. NaN: they have no common rounds. */
double sn_bench_floor(const sn_bench_samples *once, const sn_bench_samples *again);

int sn_bench_ascending(const void *a, const void *b); /* doubles, for qsort */

#endif
