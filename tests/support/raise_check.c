/* raise_check.c: different spellings of one computation give the same text after the passes. */
#include "tests/support/raise_check.h"
#include "tests/support/pass_check.h"
#include "tests/support/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

char *raise_text(const raise_spelling *s) {
    static const char passes[] = "simplify,raise";
    char why[600] = "";
    sn_module *m = sn_module_new("m");
    sn_entry_begin(m, "f");
    sn_output("y", s->build(m));
    if (sn_module_error(m)->code) fail_msg("%s: %s", s->name, sn_module_error(m)->message);
    char *before = module_text(m);
    if (!pass_check(before, passes, 1e-5, false, why, sizeof why)) fail_msg("%s: %s", s->name, why);
    if (!pass_run(m, passes, why, sizeof why)) fail_msg("%s: %s", s->name, why);
    char *after = module_text(m);
    sn_module_free(m);
    free(before);
    return after;
}

void raise_check(const raise_spelling *spelling, int n, const char *must_hold) {
    char *want = raise_text(&spelling[0]);
    if (!strstr(want, must_hold)) fail_msg("%s: no '%s' in\n%s", spelling->name, must_hold, want);
    for (int i = 1; i < n; i++) {
        char *got = raise_text(&spelling[i]);
        if (strcmp(got, want))
            fail_msg("%s became\n%s\ninstead of %s's\n%s", spelling[i].name, got, spelling->name,
                     want);
        free(got);
    }
    free(want);
}
