/* order.h: the order in which the kernels of an entry run, and which results may overwrite the
 * state they are assigned to. */
#ifndef SN_PLAN_ORDER_H
#define SN_PLAN_ORDER_H

#include "passes/plan/plan.h"

/* Operands before users, each node once. If the entry assigns states, the kernel that computes a
 * state's new value comes after all others that read the old one (unless that is a cycle), and
 * assigned values are computed as early as possible, so that little memory stays in use. */
sn_order sn_plan_order(sn_module *m, const sn_entry *e);

/* The name of the state that result i of kernel n may overwrite directly; NULL: none. n must be at
 * position `at` of the order. Requires that nothing later in the order, and no output or other
 * assignment, reads the state's old value, and that the kernel reads it only at the index that it
 * writes. *axes: the order in which the state has the result's axes; NULL: their own. */
const char *sn_inplace_target(const sn_entry *e, sn_order order, int at, int i,
                              const int64_t **axes);

#endif
