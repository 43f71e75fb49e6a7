/* Chat templates: those of common families against what Jinja makes of them (chat/, by make_chat.py),
 * and what a template may not contain. */
#include "runtime/text/jinja.h"
#include "tests/runtime/tok_check.h"

#define CHAT TOK_DATA "chat/"

static const sn_chat_message one[] = {{"user", "Hello there"}};
static const sn_chat_message four[] = {{"system", " Be brief. "},
                                       {"user", "What is 2+2?"},
                                       {"assistant", " 4 "},
                                       {"user", "caf\u00E9?\n"}};
static const sn_chat_message answered[] = {
    {"user", "a"}, {"assistant", "<think>hm</think>b"}, {"user", "c"}, {"assistant", "d"}};
static const sn_chat chats[] = {{one, 1, true, "<s>", "</s>"},
                                {four, 4, true, "<s>", "</s>"},
                                {answered, 4, false, "<s>", "</s>"}};

static void families(void **state) {
    (void)state;
    static const char *const names[] = {"chatml", "llama2", "llama3", "llama31", "gemma",
                                        "gemma3", "zephyr", "phi3",   "qwen3",   "odd"};
    static const char mark[] = "\n__chat__\n", error[] = "ERROR: ";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[256];
        size_t size;
        snprintf(path, sizeof path, CHAT "%s.jinja", names[i]);
        char *source = read_whole(path, &size);
        snprintf(path, sizeof path, CHAT "%s.txt", names[i]);
        char *want = read_whole(path, &size), *at = want;
        for (int c = 0; c < 3; c++) {
            char *end = strstr(at, mark);
            assert_non_null(end);
            *end = 0;
            sn_bytes out = {0};
            sn_error err = {0};
            bool ok = sn_chat_render(source, &chats[c], &out, &err);
            if (strncmp(at, error, strlen(error))) {
                if (!ok) fail_msg("%s: %s", names[i], err.message);
                assert_string_equal(out.data, at);
            } else {
                assert_false(ok);
                assert_non_null(strstr(err.message, at + strlen(error)));
            }
            sn_bytes_free(&out);
            at = end + strlen(mark);
        }
        free(source);
        free(want);
    }
}

static void refusals(void **state) {
    (void)state;
    static const struct {
        const char *text, *word;
    } bad[] = {
        {"a\n{% macro f() %}{% endmacro %}", "line 2: unsupported statement macro"},
        {"{{ 'a' | reject('b') }}", "unsupported filter or method, or its operand: reject"},
        {"{{ f(1) }}", "unsupported function f"},
        {"{{ 'a' is odd }}", "unsupported test odd"},
        {"{{ 1.5 }}", "fraction"},
        {"{{ 'a' - 1 }}", "unsupported operands of -"},
        {"{{ [1] < 2 }}", "unsupported operands of <"},
        {"{{ 'a' 1 }}", "unexpected 1"},
        {"{{ 'a }}", "without end"},
        {"{{ (1 }}", "too early"},
        {"{{ }}", "too early"},
        {"{% if true %}a", "without end"},
        {"{% for x in [1] %}a", "without end"},
        {"a{% endif %}", "unsupported statement endif"},
        {"{% for a, b in [1] %}{% endfor %}", "cannot unpack"},
        {"{% set x %}{% endset %}", "set without ="},
        {"{% set tools.x = 1 %}", "not a namespace"},
        {"{{ raise_exception('go away') }}", "go away"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        sn_bytes out = {0};
        sn_error err = {0};
        if (sn_chat_render(bad[i].text, &chats[0], &out, &err)) fail_msg("%s", bad[i].text);
        if (!strstr(err.message, bad[i].word)) fail_msg("%s: %s", bad[i].text, err.message);
        assert_int_equal(out.size, 0);
        sn_bytes_free(&out);
    }
    char deep[20000] = "{{ ";
    for (int i = 0; i < 9000; i++) strcat(deep, "(");
    sn_error err = {0};
    sn_bytes out = {0};
    assert_false(sn_chat_render(strcat(deep, " }}"), &chats[0], &out, &err));
    assert_non_null(strstr(err.message, "nested too deeply"));
    sn_bytes_free(&out);
}

/* Changed templates are rendered or refused. */
static void mutated(void **state) {
    (void)state;
    static const char *const names[] = {"llama31", "qwen3", "odd"};
    uint64_t seed = 5;
    for (int n = 0; n < 600; n++) {
        char path[256];
        size_t size;
        snprintf(path, sizeof path, CHAT "%s.jinja", names[n % 3]);
        char *source = read_whole(path, &size);
        for (int edits = 1 + n % 4; edits--;) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            size_t at = (seed >> 33) % size, from = (seed >> 13) % size;
            size_t room = size - (at > from ? at : from), len = 1 + (seed >> 50) % 12;
            memmove(source + at, source + from, len < room ? len : room);
        }
        sn_bytes out = {0};
        sn_error err = {0};
        bool ok = sn_chat_render(source, &chats[n % 2], &out, &err);
        assert_true(ok || (err.code && err.message[0]));
        sn_bytes_free(&out);
        free(source);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(families), cmocka_unit_test(refusals),
                                       cmocka_unit_test(mutated)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
