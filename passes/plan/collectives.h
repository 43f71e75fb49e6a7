/* collectives.h: calls that start an operation over ranks, and calls that wait for it. */
#ifndef SN_PLAN_COLLECTIVES_H
#define SN_PLAN_COLLECTIVES_H

#include "passes/plan/plan.h"

bool sn_step_is_collective(const sn_step *s);
/* After each collective, a call that waits for it (step.wait), as late as possible; results take
 * their operands' memory where nobody else needs it. */
void sn_plan_collectives(sn_plan *p);
/* gathers.c: starts and waits of all_gather of parameters and states; before the others. */
void sn_plan_gathers(sn_plan *p);
/* Of a complete plan: the most bytes of such tensors that are whole at a time. */
int64_t sn_plan_gathered(const sn_plan *p);
/* The call that waits for collective step i. */
int sn_plan_wait_of(const sn_plan *p, int i);

#endif
