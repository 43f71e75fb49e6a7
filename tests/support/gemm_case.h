/* gemm_case.h: one GEMM kernel of the generator, compiled, run with several sizes and numbers of threads, and compared
 * with sums in double. */
#ifndef SN_TEST_GEMM_CASE_H
#define SN_TEST_GEMM_CASE_H

#include "codegen/gemm/gemm.h"
#include "codegen/jit/jit.h"

/* WIDE: rows further apart; RUNTIME: the same, and the stride is a run-time value */
typedef enum gemm_layout { PLAIN, WIDE, TRANSPOSED, RUNTIME } gemm_layout;

typedef struct gemm_shape {
    const char *name;
    int64_t n, k;
    bool n_runtime, k_runtime, m_constant;
    gemm_layout a, b, c;
    bool packed;
    bool epilogue, prologue, no_store;
    int64_t pair;           /* pair distance; N = 2 pair: one result of both columns */
    int64_t batch0, batch1; /* 0: none; batch1 repeats B (GQA) */
    int64_t blocks; /* > 0: each row of C names one of so many blocks of B: N / blocks columns
                               of packed B, else a matrix of N columns */
    bool ragged;    /* ... instead each k names one of so many items of C; A is TRANSPOSED */
    int per_row;    /* rows of C made of a row of A; ragged: k that share a row of B */
    bool symmetric; /* B is A transposed, and only_m is N */
    int64_t only_m; /* 0: many M */
    const int64_t *some_m; /* instead: these, up to a 0; NULL: none */
    bool narrow;           /* panels of the type `panels`; B holds values that this type holds */
    sn_dtype panels;
    int scale_group; /* > 0: integers in groups; B holds integers */
    int bits;        /* of them: 4 (or 0), 8 */
    sn_nibble nibble;
    bool minima;
    int outer_group; /* > 0: factors are integers, too */
    bool a_i8;       /* A holds integers i8, too */
    bool bf16;      /* the product is of bf16: every bit is compared, unless there is an epilogue */
    bool a_bf16;    /* ... and A holds bf16 */
    int tile;       /* block sizes: variant of sn_gemm_tiles */
    bool dynamic;   /* threads take its last rows, or panels of one row, from a counter */
    bool only_bits; /* too large for sums in double: the bits for several numbers of threads */
} gemm_shape;

/* The spec that the kernel of this shape is made from, for M rows. Its callbacks may not be called. */
sn_gemm gemm_case_spec(const gemm_shape *s, sn_dtype t, int64_t m);

/* Compiles the kernel and runs it for each M: C is right, nothing outside C and scratch is written,
 * nothing beyond an operand is read, and results are bit-identical for any number of threads.
 * `number` distinguishes the kernels of a JIT. */
void gemm_case_run(sn_jit *jit, const sn_target *target, const gemm_shape *s, sn_dtype t,
                   int number);

#endif
