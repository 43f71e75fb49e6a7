/* bench_attention.h: `sinter bench attention`: attention kernels as a share of the measured FMA
 * peak, every mask beside the unmasked form. A library function, like bench_gemm.h. */
#ifndef SN_BENCH_ATTENTION_H
#define SN_BENCH_ATTENTION_H

#include "runtime/base.h"

#include <stdio.h>

typedef struct sn_bench_attention_shape {
    int b, h, hk, tq, tk, d; /* hk: number of K/V heads */
    /* q, k, v are views of one [B,T,(H+2Hk)D] product; otherwise [B,H,T,D] */
    bool packed;
} sn_bench_attention_shape;

typedef struct sn_bench_attention_options {
    const char *target;                    /* NULL: this machine */
    const sn_bench_attention_shape *shape; /* NULL: the default shapes */
    int n_shape;
    const char *masks; /* comma-separated names of bench_attention.c; NULL: full,causal */
    int threads;       /* 0: OpenMP's default number */
    int rounds;        /* of the peak and every mask; 0: 9 */
    FILE *progress;    /* receives a line per shape; NULL: none */
} sn_bench_attention_options;

typedef struct sn_bench_attention_result {
    sn_bench_attention_shape shape;
    const char *mask;
    double ms, ms_min, ms_max; /* median, minimum and maximum over the rounds */
    double gflops;             /* 4 D operations per visible pair / median */
    double peak;               /* median of the adjacent probes, GFLOP/s */
    double percent;            /* median over rounds of the share of that round's peak */
    double best, peak_best;    /* GFLOP/s of the best round: what an idle machine reaches */
    double vs_first;           /* median over rounds of time / time of the first mask */
    double gbs;                /* Tq <= 8: bytes of K and V / median */
    double max_error;          /* maximum |difference| to sums in double, over sampled rows */
    double compile_ms;
} sn_bench_attention_result;

/* results: room for `room` records (shapes x masks). Returns the number filled; -1 with `err` on
 * failure. */
int sn_bench_attention(const sn_bench_attention_options *o, sn_bench_attention_result *results,
                       int room, sn_error *err);

#endif
