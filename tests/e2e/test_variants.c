/* The variants of examples/variants, each through everything that a row of the specification must
 * show; which kernels they are compiled to is asserted from the explain report. */
#include "tests/e2e/spec_rows.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include "tests/support/scratch.h"

static bool chosen; /* by name: then it shows everything */

static void variant(void **state) {
    const spec_row *row = *state;
    spec_result r;
    unsigned parts = chosen ? SPEC_ALL : spec_sample((size_t)(row - spec_variants), 6);
    if (!spec_check(row, parts, scratch_dir, &r)) fail_msg("%s", r.why);
}

int main(int argc, char **argv) {
    struct CMUnitTest tests[64] = {{0}};
    size_t n = 0;
    chosen = argc > 1;
    for (const spec_row *row = spec_variants; row->name; row++) {
        if (argc > 1 && strcmp(argv[1], row->name) != 0) continue;
        tests[n++] = (struct CMUnitTest){
            .name = row->name, .test_func = variant, .initial_state = (void *)(uintptr_t)row};
    }
    return _cmocka_run_group_tests("variants", tests, n, scratch_make, scratch_end);
}
