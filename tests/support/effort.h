/* effort.h: how much a test program does. The default run takes a part of the cases that differ
 * little from each other, always the same part. `./test.sh long` sets SN_TEST_LONG and takes all of
 * them. */
#ifndef SN_TEST_EFFORT_H
#define SN_TEST_EFFORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

static inline bool effort_is_long(void) {
    return getenv("SN_TEST_LONG") != NULL;
}

/* Is case i among the ones to run, if one case in n is enough? */
static inline bool effort_takes(size_t i, size_t n) {
    return i % n == 0 || effort_is_long();
}

#endif
