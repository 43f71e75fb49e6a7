/* claims.h: what a run says of two entrants: supported, not distinguishable, or refused with the reason. */
#ifndef SN_BENCH_CLAIMS_H
#define SN_BENCH_CLAIMS_H

#include "bench/compare.h"

/* "x is `gain` times as fast as base", of one work and one run. No difference below the run's noise floor counts. */
typedef struct sn_bench_claim {
    const sn_bench_record *x, *base;
    sn_bench_gain gain;
} sn_bench_claim;

/* The claims of a run: of the entrant that was timed twice against each other one of its rounds
 * (sn_bench_same_rounds), and of its level 0 against peers that compute without fusion. list: room for as many as a
 * call with NULL returns. Returns their number. */
int sn_bench_claims(const sn_bench_report *r, sn_bench_claim *list);

/* Prints a table of them; without claims nothing. */
void sn_bench_print_claims(const sn_bench_report *r, FILE *f);

/* Of the claims of `old` in another run, `now`. */
typedef struct sn_bench_repeated {
    int equal, different, refused; /* refused: in one of both, or not measured now */
} sn_bench_repeated;

/* Prints a row for each claim of `old`: both verdicts, and whether they are equal. The claims are those of records
 * that belong together (sn_bench_counterpart). Refuses all if the caches were cold in one run only. */
sn_bench_repeated sn_bench_print_repeated(const sn_bench_report *old, const sn_bench_report *now,
                                          FILE *f);

#endif
