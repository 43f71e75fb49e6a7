/* compare.h: compares measurements: fusion levels and back ends of one run, or two runs. */
#ifndef SN_BENCH_COMPARE_H
#define SN_BENCH_COMPARE_H

#include "bench/measure.h"

/* Reads a file of sn_bench_write_json. cpu: receives the machine's name. False: err. Free out with
 * sn_bench_report_free in either case. */
bool sn_bench_read_json(const char *path, sn_bench_report *out, char cpu[128], sn_error *err);

typedef enum sn_bench_verdict { SN_BENCH_SAME, SN_BENCH_FASTER, SN_BENCH_SLOWER } sn_bench_verdict;

/* How many times as fast x is as the baseline. */
typedef struct sn_bench_gain {
    double gain, low, high;   /* the median and its 95 % interval */
    sn_bench_verdict verdict; /* by the interval: at least 1 % on one side of 1 */
} sn_bench_gain;

/* Rounds of one run are compared pairwise, those of two runs by resampling (the same result for the
 * same records). Files without times of rounds: the interval follows from least and greatest time. */
sn_bench_gain sn_bench_compare(const sn_bench_record *base, const sn_bench_record *x, bool one_run);

/* What x is compared with: within a run the lowest level of the same work (NULL: x itself), or the
 * same measurement in the old report, or else the one that the old report alone has of the same work,
 * with other options (NULL: none). */
const sn_bench_record *sn_bench_baseline(const sn_bench_report *r, const sn_bench_report *old,
                                         const sn_bench_record *x);

/* Prints a row for each record that has a baseline; old may be NULL. Returns how many are slower by
 * more than `threshold` percent: their whole interval lies beyond. color: escape sequences before
 * "same", "faster" and "slower", and after them; NULL: none. */
int sn_bench_print_comparison(const sn_bench_report *r, const sn_bench_report *old,
                              double threshold, const char *const *color, FILE *f);

#endif
