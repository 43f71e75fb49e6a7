/* compare.h: compares measurements: fusion levels and back ends of one run, or two runs. */
#ifndef SN_BENCH_COMPARE_H
#define SN_BENCH_COMPARE_H

#include "bench/measure.h"

/* Reads a file of sn_bench_write_json. False: err. Free out with sn_bench_report_free in either
 * case. */
bool sn_bench_read_json(const char *path, sn_bench_report *out, sn_error *err);

typedef enum sn_bench_verdict {
    SN_BENCH_SAME,
    SN_BENCH_FASTER,
    SN_BENCH_SLOWER,
    SN_BENCH_UNCLEAR,    /* the interval reaches over a bound: too few rounds */
    SN_BENCH_UNRELIABLE, /* other programs used the machine, or it had another speed in each run */
    SN_BENCH_VERDICTS
} sn_bench_verdict;

/* How many times as fast x is as the baseline. */
typedef struct sn_bench_gain {
    double gain, low, high; /* the median and its interval */
    double level;           /* the probability that the interval covers the true median, percent */
    sn_bench_verdict verdict; /* by the interval: all of it beyond a bound, or between both */
    double rounds;            /* unclear: how many rounds would about do */
} sn_bench_gain;

/* Rounds of one run are compared pairwise, those of two runs by resampling (the same result for the
 * same records). Files without times of rounds: the interval follows from least and greatest time.
 * bound: of a difference that counts, percent. */
sn_bench_gain sn_bench_compare(const sn_bench_record *base, const sn_bench_record *x, bool one_run,
                               double bound);

/* The interval of the median of x's rounds in ms, of 95 % or what its rounds allow; without times of rounds
 * the least and the greatest time. */
void sn_bench_interval(const sn_bench_record *x, double *low, double *high);

/* What x is compared with: within a run the lowest level of the same work (NULL: x itself), or the
 * same measurement in the old report, or else the one that the old report alone has of the same work,
 * with other options (NULL: none). */
const sn_bench_record *sn_bench_baseline(const sn_bench_report *r, const sn_bench_report *old,
                                         const sn_bench_record *x);

typedef struct sn_bench_compared {
    int pairs,
        slower; /* slower: the whole interval lies beyond the threshold, whatever the verdict */
} sn_bench_compared;

/* Prints a row for each record that has a baseline, and what makes the verdicts unreliable; old may be
 * NULL. threshold: percent of a difference that counts; 0: 1 percent. color: escape sequences before each
 * verdict, and after it; NULL: none. */
sn_bench_compared sn_bench_print_comparison(const sn_bench_report *r, const sn_bench_report *old,
                                            double threshold,
                                            const char *const color[SN_BENCH_VERDICTS + 1],
                                            FILE *f);

#endif
