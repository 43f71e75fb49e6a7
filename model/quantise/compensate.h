/* compensate.h: rounds the matrices of a subject to 4 bits. */
#ifndef SN_COMPENSATE_H
#define SN_COMPENSATE_H

#include "model/quantise/subject.h"

/* Rounds every table and matrix whose rows are whole groups, in the order in which the model computes:
 * each one for inputs that the rounded ones before it make. gptq false: each number by itself. */
bool compensate(subject *s, bool gptq, double damping, const subject_progress *p, sn_error *err);

#endif
