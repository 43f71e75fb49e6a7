/* variants.h: examples/variants as rows of the specification. */
#ifndef SN_TESTS_VARIANTS_H
#define SN_TESTS_VARIANTS_H

#include "tests/spec_check.h"

extern const spec_row spec_variants[]; /* ended by a row without name */

#endif
