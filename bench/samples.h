/* samples.h: the times of an entrant's rounds: which of them count, and what they say of their median. */
#ifndef SN_BENCH_SAMPLES_H
#define SN_BENCH_SAMPLES_H

#include <stdbool.h>

enum {
    SN_BENCH_ROUNDS = 101, /* maximum number of rounds of a process */
    SN_BENCH_PROCESSES = 9,
    SN_BENCH_SAMPLES = SN_BENCH_ROUNDS * SN_BENCH_PROCESSES,
    /* Rounds that must count in a process: the interval of a median of fewer covers less than 94 %. */
    SN_BENCH_ENOUGH = 5
};

/* The samples of an entrant, one a round, process after process. A round counts unless it is skipped, or the sample
 * was preempted: its threads waited for a CPU for at least 10 % of the time. */
typedef struct sn_bench_samples {
    int n, warm_up;                    /* warm_up: how many are the slow first ones of a process */
    int processes;                     /* of the run, also those that lack this entrant; 0: one */
    double ms[SN_BENCH_SAMPLES];       /* the first 0: not kept */
    double cpu_ms[SN_BENCH_SAMPLES];   /* of all threads; NaN: unknown */
    double switches[SN_BENCH_SAMPLES]; /* involuntary context switches; NaN: unknown */
    double waited[SN_BENCH_SAMPLES];   /* by all threads, percent of the time; NaN: unknown */
    double process[SN_BENCH_SAMPLES];  /* number of the process */
    bool skipped[SN_BENCH_SAMPLES]; /* by warm-up, or because the process ran on a busy machine */
} sn_bench_samples;

bool sn_bench_preempted(const sn_bench_samples *s, int round);
bool sn_bench_counts(const sn_bench_samples *s, int round);

/* Finds the rounds of warm-up, which do not count: the first of each process, at most a third, that are slower than
 * three standard deviations (by the median of the differences, at least 1 %) above the median of those after them. */
void sn_bench_find_warm_up(sn_bench_samples *s);

/* Numbers of the rounds that count, by process. Processes with fewer than SN_BENCH_ENOUGH are left out; without any
 * other all rounds are in. */
typedef struct sn_bench_numbers {
    int n, processes, all; /* all: of the run, with those left out */
    bool few;              /* of several processes less than two are left, or none */
    int begin[SN_BENCH_PROCESSES + 1], round[SN_BENCH_SAMPLES];
    double x[SN_BENCH_SAMPLES];
    double low[SN_BENCH_SAMPLES],
        high[SN_BENCH_SAMPLES]; /* x, had no thread waited for a CPU, is between */
} sn_bench_numbers;

/* The times that count. */
void sn_bench_times(const sn_bench_samples *s, sn_bench_numbers *to);

/* a's time over b's in each round in which both count, of the processes that both have. False: there are none, or the
 * rounds are not of one run. */
bool sn_bench_ratios(const sn_bench_samples *a, const sn_bench_samples *b, sn_bench_numbers *to);

/* Writes the numbers of x's rounds, of `all` of one a round, to `some`; returns their number. */
int sn_bench_pick(const double *all, const sn_bench_numbers *x, double some[SN_BENCH_SAMPLES]);

double sn_bench_median(const double *x, int n);

/* The median of x, over that of y unless it is NULL, and its interval of 95 %, which is wider by what waiting for a CPU
 * can explain: the medians of `low` and `high` over that of x. Of one process the interval is what lies
 * between the quantiles of 1000 resampled medians. Of several, the median is the geometric mean of the processes'
 * medians, and the interval is Student's t by the deviation of their logarithms, since processes differ by more than
 * their rounds do [Kalibera & Jones, Rigorous benchmarking in reasonable time, ISMM 2013, section 9.3], but no
 * narrower than by resampling the rounds of each. The same for the same numbers. */
typedef struct sn_bench_interval {
    double middle, low, high;
} sn_bench_interval;
sn_bench_interval sn_bench_estimate(const sn_bench_numbers *x, const sn_bench_numbers *y);

/* The smallest difference that a run can see, percent: how far the interval of the ratio of one entrant's samples
 * to its samples as another entrant of the same rounds is from 1. NaN: they have no common rounds. */
double sn_bench_floor(const sn_bench_samples *once, const sn_bench_samples *again);

int sn_bench_ascending(const void *a, const void *b); /* doubles, for qsort */

#endif
