/* The tables of passes/kernels: the manual says what they say. */
#include "passes/kernels/table.h"
#include "tests/support/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* The manual's table of levels is levels.def. */
static void manual_levels(void **state) {
    (void)state;
    char *manual = file_text(SN_SOURCE_DIR "/docs/manual.md"), row[300];
    for (int i = 0; i <= SN_LEVEL_COUNT; i++) {
        bool exists = i < SN_LEVEL_COUNT;
        snprintf(row, sizeof row, "\n| %d | %s", i, exists ? sn_level_text[i] : "");
        if (exists) strcat(row, " |\n");
        if (exists != !!strstr(manual, row)) fail_msg("docs/manual.md, level %d:%s", i, row);
    }
    free(manual);
}

static void levels(void **state) {
    (void)state;
    assert_true(sn_level_exists(-1) && sn_level_exists(0) && sn_level_exists(SN_LEVEL_HIGHEST));
    assert_false(sn_level_exists(-2) || sn_level_exists(SN_LEVEL_COUNT));
    assert_int_equal(sn_level_or_highest(-1), SN_LEVEL_HIGHEST);
    assert_int_equal(sn_level_or_highest(2), 2);
    assert_false(sn_level_fuses(0));
    assert_true(sn_level_fuses(1));
    for (int i = 0; i < SN_LEVEL_COUNT; i++)
        for (int from = 0; from < SN_LEVEL_COUNT; from++)
            assert_int_equal(sn_level_reaches(i, (sn_level)from), i >= from);
}

/* What a kernel holds at a level it holds at every higher one; level 0 holds nothing. */
static void holds(void **state) {
    (void)state;
    for (int k = 0; k < SN_KERNEL_COUNT; k++)
        for (int what = 0; what < SN_HOLDS_COUNT; what++) {
            bool before = false;
            for (int level = 0; level < SN_LEVEL_COUNT; level++) {
                bool now = sn_kernel_holds(&sn_kernels[k], (sn_holds)what, level);
                assert_true(now >= before && (level || !now));
                before = now;
            }
            assert_int_equal(before, sn_kernel_can_hold(&sn_kernels[k], (sn_holds)what));
        }
}

/* A row names its region, or says that it has none; each counts its operations. */
static void rows(void **state) {
    (void)state;
    for (int k = 1; k < SN_KERNEL_COUNT; k++) {
        const sn_kernel_traits *t = &sn_kernels[k];
        bool region = t->region != SN_NO_REGION;
        if (!t->flops || (region && sn_attr_table[t->region].kind != SN_AK_REGION) ||
            (t->rounds && !region))
            fail_msg("kernels.def: row '%s' is not complete", t->name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(manual_levels),
        cmocka_unit_test(levels),
        cmocka_unit_test(holds),
        cmocka_unit_test(rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
