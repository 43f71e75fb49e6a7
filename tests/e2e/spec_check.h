/* spec_check.h: what every row of the specification must show, whatever it is made of: values at
 * all levels, gradients, training on a toy task, decoding with caches, kernels. A row is a model in
 * the form of SN_MODEL or a config.json; the table program and the tests go through it. */
#ifndef SN_TESTS_SPEC_CHECK_H
#define SN_TESTS_SPEC_CHECK_H

#include "tests/support/exact_check.h"
#include "frontend/models.h"

typedef struct spec_row {
    const char *name, *file;
    sn_model_fn *define; /* entries `forward` and `loss`, perhaps `prefill` and `decode` */
    const char *config;  /* instead of it: of sn_model_build */
    const char *kernels; /* of forward at level 4, "9 gemm, 2 flash": no more, no others, but as
                            many flash */
    const char *holds;   /* what explain says of one of them, "score: sub, tanh"; or NULL */
    double goal;         /* loss after `steps` steps, less than this */
    int steps;
    int tokens; /* tokens are below this; 0: below the vocabulary */
} spec_row;

enum {                   /* what is checked of a row */
       SPEC_FORWARD = 1, /* at level 4, with its kernels */
       SPEC_DECODE = 2,  /* with SPEC_FORWARD */
       SPEC_GRADIENT = 4,
       SPEC_TRAINING = 8,
       SPEC_LEVELS = 16, /* forward below level 4 */
       SPEC_ALL = 31,
       SPEC_EXACT =
           64, /* entries, and gradients of the loss, before and after passes (passes/exact.h) */
       SPEC_KERNELS = 32 /* of forward, without compiling them; SPEC_FORWARD checks them, too */
};

typedef struct spec_result {
    int64_t parameters;
    double error;         /* worst of forward at levels 0 to 4, over 1 + |value| */
    double gradient;      /* worst of sn_check_grad: compiled gradients against differences */
    double cached;        /* worst difference of decoding from forward; -1: it does not decode */
    double before, after; /* loss of the toy task */
    exact_counts exact;
    char kernels[160]; /* as counted */
    bool forward_ok, gradient_ok, cached_ok, trained_ok, kernels_ok, exact_ok;
    char why[1200]; /* the first failure */
} spec_result;

/* The parts of row i that the default run checks: one row in `step` is compiled, and shows one thing
 * besides its forward pass; the others are only planned. Full runs: SPEC_ALL. */
unsigned spec_sample(size_t i, size_t step);

/* Checks these parts; true if all of them hold. What is not checked counts as ok. cache_dir: of
 * compiled kernels, for all rows the same. */
bool spec_check(const spec_row *row, unsigned parts, const char *cache_dir, spec_result *r);

#endif
