/* choose.h: which matrices need more bits than the others, by measured loss. */
#ifndef SN_CHOOSE_BITS_H
#define SN_CHOOSE_BITS_H

#include "model/quantise/subject.h"

typedef struct choose_options {
    const char *weights, *compute;
    double max_loss;
    bool quick; /* measure single products only if the loss of the whole is more than max_loss */
} choose_options;

/* Measures what each product costs when it alone is computed as `weights` and `compute` say, and then
 * how many of the most expensive must be kept in more bits so that the loss of the whole is at most
 * max_loss: int8 where the others are int4; bf16, with products in f32, where the others are int8. Adds them to
 * out->keep; of int4, their parameters become the originals again. *loss: what remains. */
bool choose_bits(subject *s, const choose_options *o, const subject_progress *p, quantised *out,
                 double *loss, sn_error *err);

#endif
