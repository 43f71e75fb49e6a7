/* recurrence.h: why a scan is not a linear recurrence, and what is known about decays. */
#ifndef SN_RAISE_RECURRENCE_H
#define SN_RAISE_RECURRENCE_H

#include "passes/passes.h"

/* Of a scan that the rules have left: the condition that does not hold, with the operation that is in
 * the way. Arena memory. NULL: nothing is to be said of a single element. */
const char *sn_why_no_recurrence(const sn_node *scan);

/* --- split_scan.c ------------------------------------------------------------------------- */

/* The carry with more axes than any other; -1: there is none. */
int sn_largest_carry(const sn_scan *s);
/* A scan with the carry of most axes alone, for which loops of the others were made: result[i] is set for all
 * results of the scan but *carry and *output (-1: none), which are those of the new one. NULL: that is
 * not possible. */
sn_node *sn_split_scan(sn_node *scan, int *carry, int *output, sn_node **result);

/* --- decay.c ------------------------------------------------------------------------------ */

/* The numbers of n, which depends on indices and constants alone, in arena memory; NULL: it does not, or has
 * too many. */
const sn_value *sn_known_array(sn_node *n);
/* Whether all of n's numbers are positive, whatever the inputs are: exponentials, sigmoids and what is made of
 * them, 1 - sigmoid, known numbers, x + (1 - x) s with a lower bound x made of a softmax, such as its running sum. */
bool sn_is_positive(sn_node *n);
/* ln n; where n is made of exponentials, nothing is computed twice. Numbers that underflow count as
 * FLT_MIN. */
sn_node *sn_log_of(sn_node *n);

#endif
