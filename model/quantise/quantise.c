/* quantise.c: the steps of `sinter quantize`, in order. */
#include "model/quantise/quantise.h"
#include "model/quantise/choose.h"
#include "model/quantise/compensate.h"
#include "model/quantise/smooth.h"

#include <string.h>

bool quantise(subject *s, const quantise_options *o, const subject_progress *p, quantised *out,
              double *loss, sn_error *err) {
    *out = (quantised){.weights = o->weights, .compute = o->compute};
    if (!subject_reference(s, err)) return false;
    bool int4 = !strcmp(o->weights, "int4");
    /* activations stay f32 there, and uneven columns share scales badly */
    if (o->smooth && !int4 && !smooth_outliers(s, p, err)) return false;
    if (int4 && !compensate(s, o->compensate, o->damping, p, err)) return false;
    const choose_options choice = {o->weights, o->compute, o->max_loss, o->quick};
    return choose_bits(s, &choice, p, out, loss, err);
}
