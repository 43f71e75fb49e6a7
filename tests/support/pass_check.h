/* pass_check.h: translation validation: a graph as text, evaluated before and after passes on the
 * same random inputs. */
#ifndef SN_TESTS_PASS_CHECK_H
#define SN_TESTS_PASS_CHECK_H

#include "ir/ir.h"

/* Runs the passes ("simplify,raise") on a module with folding, as at the highest level, and
 * verifies after each. False: `why` has the reason. */
bool pass_run(sn_module *m, const char *passes, char *why, size_t size);
/* Parses the text twice, runs the passes on one copy and compares every output, assignment and tap
 * of every entry: equal within tolerance * (1 + |x|) where the original is finite; infinities must
 * match; NaN matches anything, and a result that is NaN everywhere fails unless allow_nan. Leaves get values in [-2, 2], integers in [0, 4), depending on the
 * name. */
bool pass_check(const char *text, const char *passes, double tolerance, bool allow_nan, char *why,
                size_t size);

#endif
