/* compare.h: compares measurements: fusion levels and back ends of one run, or two runs. */
#ifndef SN_BENCH_COMPARE_H
#define SN_BENCH_COMPARE_H

#include "bench/measure.h"

/* Reads a file of sn_bench_write_json. False: err, also if a time is not above 0 or a process has no number. Free out
 * with sn_bench_report_free in either case. */
bool sn_bench_read_json(const char *path, sn_bench_report *out, sn_error *err);

typedef enum sn_bench_verdict {
    SN_BENCH_SAME,
    SN_BENCH_FASTER,
    SN_BENCH_SLOWER,
    SN_BENCH_UNCLEAR, /* the interval reaches over a bound: too few rounds */
    SN_BENCH_REFUSED, /* the machine was not quiet enough for an answer */
    SN_BENCH_VERDICTS
} sn_bench_verdict;

/* How many times as fast x is as the baseline. */
typedef struct sn_bench_gain {
    double gain, low, high;   /* the median and its interval of 95 % */
    double bound;             /* of a difference that counts, percent */
    sn_bench_verdict verdict; /* by the interval: all of it beyond a bound, or between both */
    double rounds;            /* unclear: how many rounds, or processes, would about do */
    int processes;            /* that the interval covers; 0: unknown */
    char why[160];            /* refused: the reason */
} sn_bench_gain;

/* Rounds of one run are compared pairwise, those of two runs as two sets of numbers; see samples.h. Files without
 * times of rounds: the interval follows from least and greatest time. bound: of a difference that counts, percent.
 * floor: the smallest difference that the run could see, percent (NaN: unknown); no smaller one counts. Refuses if
 * too few samples count (sn_bench_numbers), and to call two works alike if floor is above 2 %. */
sn_bench_gain sn_bench_compare(const sn_bench_record *base, const sn_bench_record *x, bool one_run,
                               double bound, double floor);

/* Whether both did the same: kind, name and shape. */
bool sn_bench_same_work(const sn_bench_record *x, const sn_bench_record *y);

/* The record of r like x of `of`: the same work, level, back end and type. If a run measures a work several times, the
 * first of one run belongs to the first of the other, and so on; of NULL: the first. NULL: there is none. */
const sn_bench_record *sn_bench_counterpart(const sn_bench_report *r, const sn_bench_report *of,
                                            const sn_bench_record *x);

/* Whether they also took turns in the same rounds: a run may measure a work several times. */
bool sn_bench_same_rounds(const sn_bench_record *x, const sn_bench_record *y);

/* sn_bench_floor of the entrant that was timed twice in x's rounds. NaN: there is none. */
double sn_bench_floor_of(const sn_bench_report *r, const sn_bench_record *x);

/* Refuses whatever the numbers say if the machine was not idle while r was measured. */
void sn_bench_refuse_busy(const sn_bench_report *r, sn_bench_gain *g);

/* Refuses if the caches were cold in one of the runs only. */
void sn_bench_refuse_caches(const sn_bench_report *r, const sn_bench_report *old, sn_bench_gain *g);

/* What x is compared with: within a run the lowest level in the same rounds (NULL: x itself), or the
 * same measurement in the old report, or else the one that the old report alone has of the same work,
 * with other options (NULL: none). */
const sn_bench_record *sn_bench_baseline(const sn_bench_report *r, const sn_bench_report *old,
                                         const sn_bench_record *x);

typedef struct sn_bench_compared {
    int pairs,
        slower; /* slower: the whole interval lies beyond the threshold, whatever the verdict */
} sn_bench_compared;

/* Prints a row for each record that has a baseline, and why verdicts are refused; old may be
 * NULL. threshold: percent of a difference that counts; 0: 1 percent. color: escape sequences before each
 * verdict, and after it; NULL: none. */
sn_bench_compared sn_bench_print_comparison(const sn_bench_report *r, const sn_bench_report *old,
                                            double threshold,
                                            const char *const color[SN_BENCH_VERDICTS + 1],
                                            FILE *f);

#endif
