/* memory.h: assigns temporaries to slots, and places barriers. */
#ifndef SN_MEMORY_H
#define SN_MEMORY_H

#include "passes/plan/plan.h"

/* Fills first, last and slot of every temporary, n_slot, and the steps' barrier flags. */
void sn_plan_memory(sn_plan *p);

/* Total size of all temporaries in bytes at these values of the symbolic dims, with memory shared
 * as sn_plan_memory would. */
int64_t sn_plan_arena(sn_plan *p, const int64_t *symbol);

#endif
