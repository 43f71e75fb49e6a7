/* remat.h: less memory for more work: kernels run a second time so that what they made need not be
 * kept until then (Chen, Xu, Zhang & Guestrin 2016, as a search over the plan). */
#ifndef SN_REMAT_H
#define SN_REMAT_H

#include "passes/plan/plan.h"

/* Repeats steps of a plan whose memory is not assigned yet until its temporaries fit. The same
 * kernels on the same values: results keep their bits. False: they cannot be made to fit (the
 * budget's error says how much they need). */
bool sn_plan_remat(sn_plan *p, const sn_budget *budget);

#endif
