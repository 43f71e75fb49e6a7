/* remat.h: rematerialisation: kernels run again, so that their results need not be stored until the
 * last use (Chen, Xu, Zhang & Guestrin 2016, as a search over the plan). */
#ifndef SN_REMAT_H
#define SN_REMAT_H

#include "passes/plan/plan.h"

/* Repeats steps of a plan, before memory is assigned, until its temporaries fit the budget. The
 * same kernels run on the same values, so results are bit-identical. False: they do not fit (the
 * budget's error says how much they need). */
bool sn_plan_remat(sn_plan *p, const sn_budget *budget);

#endif
