/* edit.h: what inserts calls into a plan whose loops are unfolded asks and does. */
#ifndef SN_PLAN_EDIT_H
#define SN_PLAN_EDIT_H

#include "passes/plan/plan.h"

/* Whether step i reads or writes the buffer, of a scan's steps: any of them. */
bool sn_plan_uses(const sn_plan *p, int i, int buffer);
bool sn_plan_writes(const sn_plan *p, int i, int buffer);
/* The step before which something for step i can be inserted: i, or the first of the loop around it. */
int sn_plan_outside(const sn_plan *p, int i);
/* In steps [first, last) and the scans that begin there, buffer `to` takes the place of `from`. */
void sn_plan_rename(sn_plan *p, int from, int to, int first, int last);
/* Steps have moved: moved[i] is the new number of step i. Loops and scans move with their first step. */
void sn_plan_move_loops(sn_plan *p, const int *moved);

#endif
