/* test_deployed_json.c: the JSON reader of compiled programs, which they link instead of libcjson. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <cjson/cJSON.h>

#include "tests/support/scratch.h"

static cJSON *parse(const char *text) {
    const char *end;
    return cJSON_ParseWithLengthOpts(text, strlen(text), &end, false);
}

static void numbers(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double value;
    } rows[] = {{"0.5", 0.5}, {"-1.25e-3", -1.25e-3}, {"7", 7}, {"1e2", 100}};
    for (int comma = 0; comma < 2; comma++) {
        if (comma) set_comma_locale();
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            cJSON *j = parse(rows[i].text);
            assert_non_null(j);
            assert_true(cJSON_IsNumber(j) && j->valuedouble == rows[i].value);
            cJSON_Delete(j);
        }
        cJSON *j = parse("0,5"); /* reads the 0 */
        assert_true(j && j->valuedouble == 0);
        cJSON_Delete(j);
    }
    setlocale(LC_ALL, "C");
}

/* Deep texts are refused before the stack ends. */
static void depth(void **state) {
    (void)state;
    enum { DEEP = 1 << 20 };
    char *text = malloc(DEEP + 1);
    assert_non_null(text);
    for (int kind = 0; kind < 2; kind++) {
        for (int i = 0; i < DEEP; i++) text[i] = kind ? "{\"a\":"[i % 5] : '[';
        text[DEEP] = 0;
        assert_null(parse(text));
    }
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(numbers), cmocka_unit_test(depth)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
