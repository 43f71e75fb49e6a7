/* quantise.h: `sinter quantize`: makes a model ready for few bits, and measures what they cost. */
#ifndef SN_QUANTISE_H
#define SN_QUANTISE_H

#include "model/quantise/subject.h"

typedef struct quantise_options {
    subject_options subject;
    const char *weights, *compute; /* what the folder is for: "int4", "f32"; … */
    double max_loss;               /* as a part: 0.005 */
    bool quick;                    /* choose_options */
    bool smooth, compensate;       /* moving outliers; GPTQ */
    double damping;                /* gptq_factor */
} quantise_options;

/* Quantises the open subject: changes its parameters and fills `out` (keep: names belong to the
 * subject's module; freed by quantised_free). *loss: on the texts for measuring, at the end.
 * Reports each step. */
bool quantise(subject *s, const quantise_options *o, const subject_progress *p, quantised *out,
              double *loss, sn_error *err);

#endif
