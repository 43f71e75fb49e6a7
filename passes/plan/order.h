/* order.h: in which order the kernels of an entry run, and which results may overwrite the
 * state that they are assigned to. */
#ifndef SN_PLAN_ORDER_H
#define SN_PLAN_ORDER_H

#include "passes/plan/plan.h"

/* Operands before users, each node once. Where the entry assigns states, the kernel that makes a
 * state's new value comes after all others that read the old one (if that is no circle), and what
 * is assigned is computed as soon as it can be, so that little waits in memory. */
sn_order sn_plan_order(sn_module *m, const sn_entry *e);

/* The name of the state whose memory result i of kernel n may be written to at once; NULL: none. n
 * has to stand at place `at` of the order. Requires that nothing later in the order, and no output
 * or other assignment, reads the state's old value, and that the kernel reads it at the place only
 * that it writes. */
const char *sn_plan_home(const sn_entry *e, sn_order order, int at, int i);

#endif
