/* recurrence.h: why a scan is no linear recurrence. */
#ifndef SN_RAISE_RECURRENCE_H
#define SN_RAISE_RECURRENCE_H

#include "passes/passes.h"

/* Of a scan that the rules have left: the condition that does not hold, with the operation that is in
 * the way. Arena memory. NULL: nothing is to be said of a single element. */
const char *sn_why_no_recurrence(const sn_node *scan);

#endif
