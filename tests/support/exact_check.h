/* exact_check.h: an entry before and after all passes, over finite fields (passes/exact.h). */
#ifndef SN_TEST_EXACT_CHECK_H
#define SN_TEST_EXACT_CHECK_H

#include "passes/exact.h"
#include "tests/support/jit_run.h"

typedef struct exact_counts {
    int compared, undecided; /* results */
} exact_counts;

/* At each level in the set `levels`; the entry stays as it is. `data` gives integers and bools their values, floats are
 * random. Adds to *counts, if it is there. False: `why` has the first result that is another function. */
bool exact_check(sn_module *m, const char *entry, const int64_t *symbol, unsigned levels,
                 jit_data_fn *data, void *ctx, exact_counts *counts, char *why, size_t size);

/* Whether at most one result in 20 is undecided. */
bool exact_decides(const exact_counts *c);
/* The counts as ", N results, N undecided"; "" if there are none. Static. */
const char *exact_told(const exact_counts *c);

#endif
