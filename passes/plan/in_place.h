/* in_place.h: which result of a kernel may be written where one of its operands lies. */
#ifndef SN_IN_PLACE_H
#define SN_IN_PLACE_H

#include "ir/ir.h"

/* Does a kernel with this body (or epilogue) read argument `arg` only at the place that it is at,
 * and for the last time when it writes result `result` there? */
bool sn_reads_before(const sn_region *body, int arg, int result);

#endif
