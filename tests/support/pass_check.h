/* pass_check.h: translation validation: a graph as text, evaluated before and after passes on the
 * same random inputs. */
#ifndef SN_TESTS_PASS_CHECK_H
#define SN_TESTS_PASS_CHECK_H

#include "ir/ir.h"

/* Runs the passes ("simplify,raise") on a module with folding, as on the highest level, verifying
 * after each. False: `why` says what failed. */
bool pass_run(sn_module *m, const char *passes, char *why, size_t size);
/* Parses the text twice, runs the passes on one and compares every output, assignment and tap of
 * every entry: equal within tolerance * (1 + |x|), where the first one is finite or infinite;
 * anything where it is NaN. Leaves get values in [-2, 2], integers in [0, 4), by name. */
bool pass_check(const char *text, const char *passes, double tolerance, char *why, size_t size);

#endif
