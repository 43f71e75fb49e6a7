/* smooth.h: moves outliers of activations into the weights before them (SmoothQuant). */
#ifndef SN_SMOOTH_H
#define SN_SMOOTH_H

#include "model/quantise/subject.h"

/* For every product whose inputs another map or norm makes channel by channel: a channel that is much
 * larger than the others is divided by a power of two there, and the column that reads it multiplied by
 * it. Results in f32 stay the same to the last bit, because powers of two only move exponents; the
 * subject is restored if its loss shows otherwise. The strength (SmoothQuant's alpha, 1/4, 1/2, 3/4, or none)
 * decides which channels are divided and by how much: the one with the least expected error of products in
 * int8. The changed parameters are the new originals. (Xiao et al., SmoothQuant: Accurate and Efficient Post-Training
 * Quantization for Large Language Models, 2022: equations 3 and 4.) */
bool smooth_outliers(subject *s, const subject_progress *p, sn_error *err);

#endif
