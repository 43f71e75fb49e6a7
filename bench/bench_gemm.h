/* bench_gemm.h: `sinter bench gemm`: Sinter's GEMM as a share of the measured FMA peak and beside
 * oneDNN. A library function, shared by the command line, tests and other benches. */
#ifndef SN_BENCH_GEMM_H
#define SN_BENCH_GEMM_H

#include "runtime/base.h"

#include <stdio.h>

typedef struct sn_bench_gemm_shape {
    int64_t m, n, k;
} sn_bench_gemm_shape;

typedef struct sn_bench_gemm_options {
    const char *target;               /* NULL: this machine */
    const sn_bench_gemm_shape *shape; /* NULL: the default shapes */
    int n_shape;
    int threads;    /* 0: OpenMP's default number */
    int rounds;     /* of the peak, Sinter, oneDNN; 0: 15 */
    bool bias_gelu; /* fuse bias and gelu (cost of an epilogue) */
    bool row_norm;  /* fuse a row scaling (cost of a prologue) */
    FILE *progress; /* receives a line per shape; NULL: none */
} sn_bench_gemm_options;

typedef struct sn_bench_gemm_result {
    sn_bench_gemm_shape shape;
    double ms, ms_min, ms_max;  /* Sinter: median, minimum and maximum over the rounds */
    double gflops, dnnl_gflops; /* 2 M N K / median; dnnl is 0 if oneDNN is absent */
    double peak;                /* median of the probes between the rounds, GFLOP/s */
    double ratio;               /* median over rounds of oneDNN's time / Sinter's */
    /* M = 1: read bandwidth between the rounds; bandwidth at which Sinter reads the weights */
    double read_gbs, gbs;
    double best, dnnl_best, peak_best; /* GFLOP/s of the best round: what an idle machine reaches */
    /* against sums in double, over sampled elements, relative to the sum of absolute products */
    double max_error;
    double compile_ms;
} sn_bench_gemm_result;

/* results: [n_shape] (with shape NULL: [sn_bench_gemm_count()]). False and `err` on failure. */
bool sn_bench_gemm(const sn_bench_gemm_options *o, sn_bench_gemm_result *results, sn_error *err);
int sn_bench_gemm_count(void);

#endif
