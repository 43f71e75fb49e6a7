/* bench_attention.h: `sinter bench attention`: attention kernels as a share of the measured FMA
 * peak, with every mask next to the unmasked form. A library function, like bench_gemm.h. */
#ifndef SN_BENCH_ATTENTION_H
#define SN_BENCH_ATTENTION_H

#include "runtime/base.h"

#include <stdio.h>

typedef struct sn_bench_attention_shape {
    int b, h, hk, tq, tk, d; /* hk: heads of K and V */
    bool packed;             /* q, k, v are views of one [B,T,(H+2Hk)D] product, else [B,H,T,D] */
} sn_bench_attention_shape;

typedef struct sn_bench_attention_options {
    const char *target;                    /* NULL: this machine */
    const sn_bench_attention_shape *shape; /* NULL: the usual ones */
    int n_shape;
    const char *masks; /* names with commas between (sn_bench_attention_mask); NULL: full,causal */
    int threads;       /* 0: as many as OpenMP offers */
    int rounds;        /* of peak and every mask; 0: 9 */
    FILE *progress;    /* a line per shape while it runs; NULL: none */
} sn_bench_attention_options;

typedef struct sn_bench_attention_result {
    sn_bench_attention_shape shape;
    const char *mask;
    double ms, ms_min, ms_max; /* median over rounds, extremes */
    double gflops;             /* 4 D operations for each visible pair / median */
    double peak;               /* median of the probes around it, GFLOP/s */
    double percent;            /* median over rounds of the share of the peak of that round */
    double best, peak_best;    /* GFLOP/s of the best round: what a quiet machine gives */
    double vs_first;           /* median over rounds of its time / that of the first mask */
    double gbs;                /* Tq <= 8: K and V bytes / median */
    double max_error;          /* largest |difference| to sums in double, over sampled rows */
    double compile_ms;
} sn_bench_attention_result;

/* Names of masks and scores, for help texts: the i-th, or NULL after the last. */
const char *sn_bench_attention_mask(int i);

/* results: room for (shapes x masks) records, `room` of them; returns how many were filled, -1 and
 * `err` on failure. */
int sn_bench_attention(const sn_bench_attention_options *o, sn_bench_attention_result *results,
                       int room, sn_error *err);
void sn_bench_attention_print(const sn_bench_attention_result *r, int n, FILE *out);

#endif
