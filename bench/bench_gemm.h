/* bench_gemm.h: `sinter bench gemm`: our GEMM as a share of the measured FMA peak and next to
 * oneDNN. A library function, so that the command line, tests and other benches share it. */
#ifndef SN_BENCH_GEMM_H
#define SN_BENCH_GEMM_H

#include "runtime/base.h"

#include <stdio.h>

typedef struct sn_bench_gemm_shape {
    int64_t m, n, k;
} sn_bench_gemm_shape;

typedef struct sn_bench_gemm_options {
    const char *target;               /* NULL: this machine */
    const sn_bench_gemm_shape *shape; /* NULL: the usual ones */
    int n_shape;
    int threads;    /* 0: as many as OpenMP offers */
    int rounds;     /* of peak, ours, oneDNN; 0: 15 */
    bool bias_gelu; /* fuse bias and gelu into ours (cost of an epilogue) */
    bool row_norm;  /* fuse a row scaling into ours (cost of a prologue) */
    FILE *progress; /* a line per shape while it runs; NULL: none */
} sn_bench_gemm_options;

typedef struct sn_bench_gemm_result {
    sn_bench_gemm_shape shape;
    double ms, ms_min, ms_max;  /* ours: median over rounds, extremes */
    double gflops, dnnl_gflops; /* 2 M N K / median; dnnl 0 where there is none */
    double peak;                /* median of the probes between the rounds, GFLOP/s */
    double ratio;               /* median over rounds of oneDNN's time / ours */
    double read_gbs, gbs;       /* M = 1: read bandwidth between rounds, ours over the weights */
    double best, dnnl_best, peak_best; /* GFLOP/s of the best round: what a quiet machine gives */
    double max_error; /* against sums in double, over sampled elements, relative to the
                         sum of absolute products */
    double compile_ms;
} sn_bench_gemm_result;

/* results: [n_shape] (with shape NULL: [sn_bench_gemm_count()]). False and `err` on failure. */
bool sn_bench_gemm(const sn_bench_gemm_options *o, sn_bench_gemm_result *results, sn_error *err);
int sn_bench_gemm_count(void);
void sn_bench_gemm_print(const sn_bench_gemm_result *r, int n, FILE *out);

#endif
