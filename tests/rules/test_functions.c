/* The rules that are functions (passes/simplify, passes/raise): each is applied to all graphs of a family, which covers
 * ranks, sizes 1 to 3 and spellings, and both sides are equal over finite fields (ir/field.h). Sizes beyond 3 add nothing:
 * the functions ask of a size whether it is 1 and whether it equals another one, and add offsets. */
#include "tests/rules/families.h"
#include "passes/raise/raise.h"
#include "passes/simplify/simplify.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

/* ---- right functions ---- */

static void check_families(const family *f, int n_family) {
    int total = 0;
    for (int i = 0; i < n_family; i++) {
        const char *wrong;
        const int n = try_family(&f[i], row_of(&f[i]), &wrong);
        if (wrong) fail_msg("%s: after %d graphs:\n%s", f[i].rule, n, wrong);
        if (!n) fail_msg("%s changes no graph of its family", f[i].rule);
        total += n;
    }
    print_message("%d functions are right for %d graphs\n", n_family, total);
}

static void plain_functions(void **state) {
    (void)state;
    check_families(plain_families, n_plain_families);
}

static void attention_functions(void **state) {
    (void)state;
    check_families(attention_families, n_attention_families);
}

static void all_are_covered(void **state) {
    (void)state;
    const sn_rules *const table[] = {&sn_simplify_rules, &sn_raise_rules};
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < table[t]->n; i++) {
            const sn_rule_row *r = &table[t]->rule[i];
            if (!r->row && !family_of(r->name, r->op)) fail_msg("no family for %s", r->name);
        }
}

/* ---- wrong functions ---- */

/* Each is found, and shown as the graphs before and after with values. */
static void wrong_functions_are_found(void **state) {
    (void)state;
    for (int i = 0; i < n_wrong_functions; i++) {
        const wrong_function *w = &wrong_functions[i];
        const char *text;
        try_family(family_of(w->rule, w->op), wrong_row(i), &text);
        if (!text) fail_msg("not found: wrong %s", w->rule);
        const char *before = strstr(text, "entry before {"), *after = strstr(text, "entry after {");
        const char *values = strstr(text, "\nelement [");
        if (!before || !after || !values || !strstr(values, " before, "))
            fail_msg("%s is not shown:\n%s", w->rule, text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_functions), cmocka_unit_test(attention_functions),
        cmocka_unit_test(all_are_covered), cmocka_unit_test(wrong_functions_are_found)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
