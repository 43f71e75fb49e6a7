/* effort.h: how much a test program runs. The default run takes a fixed sample of cases that differ
 * little from each other. `./test.sh long` sets SN_TEST_LONG and runs all of them.
 *
 * A sample of combinations (op, level, target, type, shape) covers each value of each axis, and takes
 * the axes in turns by offsets and strides that have no common divisor with the lengths of the axes. */
#ifndef SN_TEST_EFFORT_H
#define SN_TEST_EFFORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#ifdef __SANITIZE_ADDRESS__
enum { EFFORT_SANITIZED = 1 }; /* memory is ten times as slow */
#else
enum { EFFORT_SANITIZED = 0 };
#endif

static inline bool effort_is_long(void) {
    return getenv("SN_TEST_LONG") != NULL;
}

/* Whether to run case i, if one case in n is enough. */
static inline bool effort_takes(size_t i, size_t n) {
    return i % n == 0 || effort_is_long();
}

#endif
