/* spec_rows.h: the rows of the specification, in groups, each ended by a row without name. */
#ifndef SN_TESTS_SPEC_ROWS_H
#define SN_TESTS_SPEC_ROWS_H

#include "tests/e2e/spec_check.h"

extern const spec_row spec_components[]; /* A1 to A7, rotary positions, packed attention */
extern const spec_row spec_models[];     /* A8 to A15 and the variants of section 6 */
extern const spec_row spec_variants[];   /* examples/variants */

#endif
