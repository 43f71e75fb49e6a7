/* overwrite.h: results in the memory of operands that nobody needs any more. */
#ifndef SN_PLAN_OVERWRITE_H
#define SN_PLAN_OVERWRITE_H

#include "passes/plan/plan.h"

/* Elementwise kernels write over an operand that dies, so that all partial sums are where the last one
 * goes. */
void sn_plan_overwrite(sn_plan *p);

#endif
