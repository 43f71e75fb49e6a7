/* moments.h: what the calibration texts put into the linear maps of a model, from the compiled model. */
#ifndef SN_MOMENTS_H
#define SN_MOMENTS_H

#include "model/quantise/subject.h"

/* The Gram matrix sum x x^T of the inputs x [k] of a product over all calibration texts, with the
 * parameters as they are now: k * k numbers, which the caller frees. NULL on error. */
double *moments_gram(subject *s, int product, sn_error *err);

/* The inputs x [k] of every product over all calibration texts: the largest magnitude of each channel,
 * and the mean of its squares; most[i], square[i] have the k numbers of product i. Freed by
 * moments_free, in any case. */
typedef struct moments {
    float **most, **square;
    float *data;
} moments;
bool moments_make(subject *s, moments *out, sn_error *err);
void moments_free(moments *x);

#endif
