/* attention_case.h: what the tests of attention share: the tables that a score captures, gradients
 * as outputs, and comparisons that take the module and fail the test with a reason. */
#ifndef SN_TESTS_ATTENTION_CASE_H
#define SN_TESTS_ATTENTION_CASE_H

#include "frontend/sinter.h"
#include "ir/ir.h"

enum { AC_MAX_GRADIENTS = 3 + SN_MAX_CAPTURED };

/* Input "table<i>" of type t; sizes are ended by 0. */
sn_tensor ac_table(sn_module *m, int i, sn_dtype t, const int64_t *size);

/* Outputs "g0" ... of the entry: gradients of sum(w y) for these n; w: an input "weight" like y. */
void ac_gradients(sn_entry *e, sn_tensor y, int n, const sn_tensor *wrt);

/* Frees the module after comparing its entries with the evaluator, as closely as type t allows. */
void ac_matches(sn_module *m, const sn_options *o, sn_dtype t);

/* Frees the module after comparing the bits of its results for several numbers of threads. */
void ac_same_bits(sn_module *m, const sn_options *o);

#endif
