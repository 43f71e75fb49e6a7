/* philox.h: the random numbers of runtime/rng.h as instructions. */
#ifndef SN_PHILOX_H
#define SN_PHILOX_H

#include "codegen/emit/emit.h"

/* Philox4x32-10 of the counter c[0 .. 3], i32 vectors of any length, in place. key: i64 scalar. */
void sn_emit_philox(em *e, em_val c[4], em_val key);

#endif
