/* memory.h: which temporary shares memory with which, and where threads must wait. */
#ifndef SN_MEMORY_H
#define SN_MEMORY_H

#include "passes/plan.h"

/* Fills first, last and slot of every temporary, n_slot, and the steps' barrier flags. */
void sn_plan_memory(sn_plan *p);

#endif
