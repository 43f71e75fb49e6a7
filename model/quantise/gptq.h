/* gptq.h: rounding of a matrix to groups of 4 bits that compensates its own errors (GPTQ). */
#ifndef SN_GPTQ_H
#define SN_GPTQ_H

#include "runtime/base.h"

enum { GPTQ_GROUP = 32 }; /* numbers of a row that share a scale, as in passes/quantise.c */

/* Turns the Gram matrix h [k, k] of a linear map's inputs, sum x x^T, into what gptq_round needs: the
 * upper triangular U with (h + damping)^-1 = U^T U. h is symmetric and overwritten; columns that no
 * input uses get the mean of the diagonal. damping: part of that mean that is added to the diagonal.
 * False: out of memory, or h has values that are not finite (err). */
bool gptq_factor(double *h, int64_t k, double damping, sn_error *err);

/* Rounds w [n, k] (k a multiple of GPTQ_GROUP) to s q with integers q from -8 to 7, one of them -8 in
 * every group that is not all zeros, and scales s of bf16: the weights "int4" of passes/quantise.c
 * find exactly these s and q again. Column after column, what rounding a column changes in x W^T is
 * made up by those after it, as far as u [k, k] (gptq_factor) allows; u NULL: each number by itself.
 * Scales are those of the least error among some. Same bits for any number of threads. False: out of
 * memory. (Frantar et al., GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
 * Transformers, 2022: algorithm 1 with groups.) */
bool gptq_round(float *w, int64_t n, int64_t k, const double *u, sn_error *err);

/* Rounds w [n, k] as the weights "int4" of passes/quantise.c do. */
void gptq_plain(float *w, int64_t n, int64_t k);

/* The relative error that `off` [n, k] instead of 0 makes in a linear map w of inputs with the Gram
 * matrix h [k, k]: sqrt(tr(off h off^T) / tr(w h w^T)). */
double gptq_error(const float *w, const float *off, int64_t n, int64_t k, const double *h);

#endif
