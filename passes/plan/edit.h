/* edit.h: what the stages ask that insert calls into a plan. */
#ifndef SN_PLAN_EDIT_H
#define SN_PLAN_EDIT_H

#include "passes/plan/plan.h"

/* Whether step i reads or writes the buffer. */
bool sn_plan_uses(const sn_plan *p, int i, int buffer);
bool sn_plan_writes(const sn_plan *p, int i, int buffer);
/* Elements of a buffer of constant size; else 0. */
int64_t sn_plan_elements(const sn_plan *p, int buffer);
/* In steps [first, last) buffer `to` takes the place of `from`. */
void sn_plan_rename(sn_plan *p, int from, int to, int first, int last);

#endif
