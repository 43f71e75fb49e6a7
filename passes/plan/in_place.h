/* in_place.h: which result of a kernel may overwrite one of its operands. */
#ifndef SN_IN_PLACE_H
#define SN_IN_PLACE_H

#include "ir/ir.h"

/* Whether a kernel with this body (or epilogue) reads argument `arg` only at its current index, and
 * for the last time before it writes result `result` there. */
bool sn_reads_before(const sn_region *body, int arg, int result);

#endif
