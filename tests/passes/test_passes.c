/* Passes on graphs in text form and on random graphs: values before and after are equal, every
 * graph verifies, and the fixpoint ends. Rows of rules are well-formed. */
#include "passes/raise/raise.h"
#include "passes/simplify/simplify.h"
#include "tests/support/fuzz/fuzz.h"
#include "tests/support/pass_check.h"
#include "tests/support/text.h"
#include "runtime/str.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* The files of tests/passes/text: their first line names the passes; FileCheck reads the rest. */
static void files(void **state) {
    (void)state;
    static const char folder[] = SN_SOURCE_DIR "/tests/passes/text", mark[] = "; test passes=";
    DIR *d = opendir(folder);
    assert_non_null(d);
    int n = 0;
    for (struct dirent *e; (e = readdir(d));) {
        if (!sn_ends_with(e->d_name, ".sn")) continue;
        char path[sizeof folder + sizeof e->d_name + 1], why[600], passes[64] = "";
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        char *text = file_text(path);
        if (strncmp(text, mark, strlen(mark))) fail_msg("%s: no first line", e->d_name);
        sscanf(text + strlen(mark), "%63s", passes);
        if (!pass_check(text, passes, 1e-5, false, why, sizeof why))
            fail_msg("%s: %s", e->d_name, why);
        free(text);
        n++;
    }
    closedir(d);
    assert_true(n >= 5);
}

/* More parts in zeros than one rule joins. */
static void many_parts(void **state) {
    (void)state;
    enum { PARTS = 40 };
    char why[600];
    sn_module *m = sn_module_new("parts");
    sn_tensor sum = NULL;
    sn_entry_begin(m, "sum");
    for (int i = 0; i < PARTS; i++) {
        char name[8];
        snprintf(name, sizeof name, "x%d", i);
        sn_tensor x = sn_pad(sn_param(m, name, SN_F32, 2), 0, 2 * i, 2 * (PARTS - 1 - i), 0);
        sum = sum ? sn_add(sum, x) : x;
    }
    sn_output("all", sum);
    char *text = module_text(m);
    if (!pass_check(text, "simplify", 0, false, why, sizeof why)) fail_msg("%s", why);
    free(text);
    sn_module_free(m);
}

/* More linear maps of one tensor than are merged into one. */
static void many_maps(void **state) {
    (void)state;
    enum { MAPS = 70 };
    char why[600];
    sn_node *y[MAPS];
    sn_module *m = sn_module_new("maps");
    sn_tensor x = sn_input(m, "x", SN_F32, 2, 3);
    sn_entry_begin(m, "maps");
    for (int i = 0; i < MAPS; i++) {
        char name[8];
        snprintf(name, sizeof name, "w%d", i);
        y[i] = sn_linear(x, sn_param(m, name, SN_F32, 1 + i % 3, 3), NULL);
    }
    sn_output("all", sn_b_concat(m, MAPS, y, 1));
    char *text = module_text(m);
    if (!pass_check(text, "merge", 1e-5, false, why, sizeof why)) fail_msg("%s", why);
    free(text);
    sn_module_free(m);
}

static void check_random(uint64_t seed, const char *passes) {
    char why[600] = "";
    sn_module *m = fuzz_graph(seed, FUZZ_ANY);
    assert_non_null(m);
    char *text = module_text(m);
    sn_module_free(m);
    double tolerance = strstr(text, "f16") ? 0.03 : 1e-4; /* bf16, f16: rounded after every node */
    if (!pass_check(text, passes, tolerance, true, why, sizeof why))
        fail_msg("seed %llu: %s\n%s", (unsigned long long)seed, why, text);
    free(text);
}

/* The name of a row with a mistake, or of one that two rows have; NULL: none. */
static const char *mistake(const sn_rules *rules) {
    for (int i = 0; i < rules->n && !rules->wrong; i++)
        for (int j = 0; j < i && rules->rule[i].row; j++)
            if (!strcmp(rules->rule[i].name, rules->rule[j].name)) return rules->rule[i].name;
    return rules->wrong;
}

static void rows(void **state) {
    (void)state;
#define WRONG(text, conditions)                                                                    \
    { .name = text, .row = text, .when = conditions }
    static const sn_rule_row wrong[] = {
        WRONG("x + y", ""),       WRONG("x + = y", ""),     WRONG("x + y = z", ""),
        WRONG("x + #c = #d", ""), WRONG("-(-x = x", ""),    WRONG("foo(x) = x", ""),
        WRONG("x = -x", ""),      WRONG("-x = x y", ""),    WRONG("-x = neg[y](x)", ""),
        WRONG("-x = x", "big"),   WRONG("-x = x", "one(y)")};
    enum { N = sizeof wrong / sizeof *wrong };
    static sn_rules table[N];
    check_random(1, "simplify,raise"); /* reads the tables */
    assert_null(mistake(&sn_simplify_rules));
    assert_null(mistake(&sn_raise_rules));
    for (int i = 0; i < N; i++) {
        table[i] = (sn_rules){.rule = &wrong[i], .n = 1};
        sn_rules_read(&table[i]);
        assert_string_equal(mistake(&table[i]), wrong[i].name);
    }
}

static void random_graphs(void **state) {
    (void)state;
    const char *seed = getenv("SN_FUZZ_SEED"), *count = getenv("SN_FUZZ_COUNT");
    uint64_t first = seed ? strtoull(seed, NULL, 0) : 1;
    int n = count ? atoi(count) : 400;
    for (int i = 0; i < n; i++) check_random(first + (uint64_t)i, "simplify,raise,merge");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files), cmocka_unit_test(many_parts),    cmocka_unit_test(many_maps),
        cmocka_unit_test(rows),  cmocka_unit_test(random_graphs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
