/* Chat templates: those of common families against what Jinja makes of them (chat/, by make_chat.py),
 * and what a template may not contain. */
#include "model/text/generation_impl.h"
#include "model/text/jinja.h"
#include "tests/model/tok_check.h"
#include "tests/support/scratch.h"

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
        {"{% set n. = 1 %}", "unsupported statement set"},
        {"{% set = 1 %}", "unsupported statement set"},
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
    sn_bytes none = {0};
    sn_error given = {0};
    assert_false(sn_chat_render(NULL, &chats[0], &none, &given));
    assert_false(sn_chat_render("a", NULL, &none, &given));
    assert_false(sn_chat_render("a", &chats[0], NULL, &given));
    char deep[20000] = "{{ ";
    for (int i = 0; i < 9000; i++) strcat(deep, "(");
    sn_error err = {0};
    sn_bytes out = {0};
    assert_false(sn_chat_render(strcat(deep, " }}"), &chats[0], &out, &err));
    assert_non_null(strstr(err.message, "nested too deeply"));
    sn_bytes_free(&out);
}

struct row {
    const char *text, *want;
};

static void check_rows(const struct row *rows, size_t n) {
    for (size_t i = 0; i < n; i++) {
        sn_bytes out = {0};
        sn_error err = {0};
        if (!sn_chat_render(rows[i].text, &chats[0], &out, &err))
            fail_msg("%s: %s", rows[i].text, err.message);
        if (strcmp(out.data, rows[i].want) != 0)
            fail_msg("%s: %s, not %s", rows[i].text, out.data, rows[i].want);
        sn_bytes_free(&out);
    }
}

/* Templates of one purpose each. The texts are those of Jinja 3.1 as transformers configures it. */
static void language(void **state) {
    (void)state;
    static const struct row rows[] = {
        {"{% set l = [1,2,3] %}{{ l[1::9223372036854775807] }}{{ l[1::6917529027641081855] }}",
         "[2][2]"},
        {"{% set l = [1,2,3] %}{{ l[::-9223372036854775807 - 1] }}{{ l[1::-2] }}", "[3][2]"},
        {"{% set l = [1,2,3,4] %}{{ l[-3:] }}{{ l[-2:-1] }}{{ l[-9:2] }}{{ l[3:-9:-2] }}",
         "[2, 3, 4][3][1, 2][4, 2]"},
        {"{% set l = [1,2,3] %}{{ l[::-1] }}{{ l[:0:-1] }}{{ l[::-2] }}", "[3, 2, 1][3, 2][3, 1]"},
        {"{{ 'abcd'[-2:] }}{{ 'abcd'[:-3] }}{{ messages[-1:][0].content }}", "cdaHello there"},
        {"{{ 9223372036854775807 % 9223372036854775807 }} "
         "{{ 9223372036854775806 % 9223372036854775807 }} "
         "{{ -7 % 3 }} {{ (-9223372036854775807 - 1) % 9223372036854775807 }}",
         "0 9223372036854775806 2 9223372036854775806"},
        {"{{ range(9223372036854775807, -9223372036854775807)|length }}", "0"},
        {"{{ range(9223372036854775800, 9223372036854775807)|length }}", "7"},
        {"a\n", "a"},
        {"{% if true %}\na{% endif +%}\nb", "a\nb"},
        {"a\n\n", "a\n"},
        {"{{ 'a' }}\n", "a"},
        {"{% set x = 1 %}{% for i in [1, 2] %}{% set x = 7 %}{{ x }}{% endfor %}{{ x }}", "771"},
        {"{% for i in [1] %}{% set y = 7 %}{% endfor %}{{ y is defined }}{{ i is defined }}"
         "{{ loop is defined }}",
         "FalseFalseFalse"},
        {"{% for i in [1, 2] %}{{ y is defined }}{% set y = 1 %}{% endfor %}", "FalseFalse"},
        {"{% set n = namespace(a=1) %}{% for i in [1, 2] %}{% set n.a = n.a + i %}{% endfor %}"
         "{{ n.a }}",
         "4"},
        {"{{ 'xaybx'.strip('xy') }}{{ 'xaybx'.rstrip('xb') }}", "aybxay"},
        {"{{ 1 in [2, 1] }}{{ 1 not in [2, 1] }}{{ 1 == 1 }}{{ 1 != 1 }}{{ 2 <= 1 }}{{ 2 >= 1 }}"
         "{{ 1 < 2 }}{{ 1 > 2 }}",
         "TrueFalseTrueFalseFalseTrueTrueFalse"},
        {"{{ 'a' if true else raise_exception('b') }}{{ raise_exception('a') if false else 'b' }}"
         "{{ true or raise_exception('c') }}{{ false and raise_exception('d') }}",
         "abTrueFalse"},
        {"{{ 'abc'.startswith('ab') }}{{ 'abc'.startswith('bc') }}{{ 'abc'.startswith('abcd') }}"
         "{{ 'abc'.startswith('') }}{{ 'abc'.startswith('abc') }}",
         "TrueFalseFalseTrueTrue"},
        {"{{ 'abc'.endswith('bc') }}{{ 'abc'.endswith('ab') }}{{ 'abc'.endswith('zabc') }}"
         "{{ 'abc'.endswith('') }}{{ 'abc'.endswith('abc') }}",
         "TrueFalseFalseTrueTrue"},
    };
    check_rows(rows, sizeof rows / sizeof *rows);
}

/* Blanks around tags, loops and what stands in them, precedence, filters, tests. */
static void blanks_and_loops(void **state) {
    (void)state;
    static const struct row rows[] = {
        {"  {% if true %}a{% endif %}", "a"},
        {"x  {% if true %}a{% endif %}", "x  a"},
        {"x\n  {% if true %}\n  a\n  {% endif %}\nb", "x\n  a\nb"},
        {"{{ 'a' }}\nb", "a\nb"},
        {"a {#- c -#} b", "ab"},
        {"a\n  {# c #}\nb", "a\nb"},
        {"a  {# c #}\nb", "a  b"},
        {"a  {{- 'b' -}}  c", "abc"},
        {"a\n{%- if true -%}\n b {%- endif -%}\nc", "abc"},
        {"  {%+ if true %}a{% endif %}", "  a"},
        {"\t {% set x = 1 %}\n\n{{ x }}", "\n1"},
        {"{% for x in ['a','b','c'] %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ "
         "loop.last }}{{ loop.length }}{% endfor %}",
         "10TrueFalse321FalseFalse332FalseTrue3"},
        {"{% for x in [1,2] %}{{ loop.previtem }}-{{ loop.nextitem }};{% endfor %}", "-2;1-;"},
        {"{% for x in [1,2,3] if x != 2 %}{{ x }}{{ loop.length }}{{ loop.last }}{% endfor %}",
         "12False32True"},
        {"{% for x in [] %}a{% else %}b{% endfor %}", "b"},
        {"{% for x in [1] if x > 1 %}a{% else %}b{% endfor %}", "b"},
        {"{% for x in [1] %}a{% else %}b{% endfor %}", "a"},
        {"{% for k in {'a': 1, 'b': 2} %}{{ k }}{% endfor %}", "ab"},
        {"{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}", "a1"},
        {"{% if false %}a{% elif true %}b{% elif true %}c{% else %}d{% endif %}", "b"},
        {"{% if false %}a{% elif false %}b{% else %}d{% endif %}", "d"},
        {"{{ 2 * 3 ~ 1 }}{{ 1 + 2 * 3 }}{{ -2 + 1 }}{{ 7 - 2 - 1 }}{{ 8 % 3 * 2 }}", "617-144"},
        {"{{ not 1 == 2 }}{{ not false and false }}{{ true or false and false }}", "TrueFalseTrue"},
        {"{{ 'a' if false }}b", "b"},
        {"{{ 'a' if false else 'b' if false else 'c' }}", "c"},
        {"{{ [1, 2] + [3] }}{{ {'a': [1, 'b']} }}{{ none }}{{ 'x' in 'axb' }}{{ 'a' in {'a': 1} }}",
         "[1, 2, 3]{'a': [1, 'b']}NoneTrueTrue"},
        {"{{ 'a\\nb' }}{{ \"c'd\" }}{{ 'e\"f' }}", "a\nbc'de\"f"},
        {"{{ ' a '|trim }}{{ 'Ab'|upper }}{{ 'Ab'|lower }}{{ [1,2]|length }}{{ ['a','b']|join('-') "
         "}}{{ 'abc'|first }}{{ [1,2]|last }}",
         "aABab2a-ba2"},
        {"{{ x is defined }}{{ none is none }}{{ 'a' is string }}{{ 1 is number }}{{ [1] is "
         "iterable }}{{ {} is mapping }}{{ 1 is not none }}{{ true is true }}{{ false is false }}",
         "FalseTrueTrueTrueTrueTrueTrueTrueTrue"},
        {"{{ 'a,b,c'.split(',') }}{{ 'a,b'.split(',')[-1] }}{{ 'aXb'.replace('X','-') }}",
         "['a', 'b', 'c']ba-b"},
        {"{{ x|default('d') }}{{ messages[0]['content'] }}{{ messages[0].get('role') }}{{ "
         "messages[0].none }}",
         "dHello thereuser"},
        {"{%- for m in messages -%}\n  {{- m.role + ':' }}\n  {%- endfor %}!", "user:!"},
        {"{{ ''|length }}{{ ' x  '.strip() }}|{{ ' x '.lstrip() }}|{{ ' x '.rstrip() }}|",
         "0x|x | x|"},
        {"{{ 'abc'[0] }}{{ 'abc'[-1] }}{{ 'abc'[3] }}{{ [1][1] }}{{ [1, 2][-2] }}", "ac1"},
        {"{{ 'caf\u00e9!'[3] }}{{ 'caf\u00e9!'[-2:] }}{{ 'caf\u00e9!'[:4] }}{{ 'caf\u00e9!'|last "
         "}}{{ '\u00e9a'|first }}{{ "
         "'caf\u00e9'|length }}",
         "\u00e9\u00e9!caf\u00e9!\u00e94"},
        {"{{ ['a', \"b'c\", 'd\"e', 'f\\'\"', 'g\\n', none, true, 1] }}",
         "['a', \"b'c\", 'd\"e', 'f\\'\"', 'g\\n', None, True, 1]"},
        {"{{ ['a', \"b'c\", 'd\"e', none, true] | tojson }}",
         "[\"a\", \"b'c\", \"d\\\"e\", null, true]"},
    };
    check_rows(rows, sizeof rows / sizeof *rows);
}

/* Texts are quoted in pieces: escapes at each place of a piece. */
static void quoted(void **state) {
    (void)state;
    for (int n = 230; n < 270; n++) {
        char text[1024], want[1024], a[300] = "";
        memset(a, 'a', (size_t)n);
        snprintf(text, sizeof text, "{{ '%s\x01\x1f\n\"\xc3\xa9%s' | tojson }}", a, a);
        snprintf(want, sizeof want, "\"%s\\u0001\\u001f\\n\\\"\xc3\xa9%s\"", a, a);
        sn_bytes out = {0};
        sn_error err = {0};
        if (!sn_chat_render(text, &chats[0], &out, &err)) fail_msg("%s", err.message);
        assert_int_equal(out.size, strlen(want));
        assert_memory_equal(out.data, want, out.size);
        sn_bytes_free(&out);
    }
}

/* The template of a folder: a file of its own, a text in tokenizer_config.json, or the one of several that is
 * called "default". */
static void folders(void **state) {
    (void)state;
    static const struct {
        const char *name, *text, *want;
    } rows[] = {
        {"tokenizer_config.json", "{\"chat_template\": \"{{ messages[0].content }}ab\"}", "Xab"},
        {"tokenizer_config.json",
         "{\"chat_template\": [{\"name\": \"tools\", \"template\": \"b\"}, {\"template\": \"b\"}, "
         "{\"name\": \"default\", \"template\": \"a{{ messages|length }}\"}, {\"name\": 3}]}",
         "a2"},
        {"tokenizer_config.json",
         "{\"chat_template\": [{\"name\": \"tools\", \"template\": \"b\"}]}", NULL},
        {"tokenizer_config.json", "{\"chat_template\": null}", NULL},
        {"chat_template.jinja", "{{ messages[1].role }}", "user"}};
    static const char text[] = "X2abuser ";
    sn_error err = {0};
    const sn_train_options o = {.kind = SN_TRAIN_CHAR};
    sn_tokenizer *t = sn_tokenizer_train(&o, text, sizeof text - 1, &err);
    assert_non_null(t);
    assert_int_equal(scratch_make(NULL), 0);
    sn_ids ids = {0};
    assert_false(sn_lm_encode_chat(t, scratch_dir, "X", "ab", &ids, &err));
    assert_non_null(strstr(err.message, "this model has no chat template"));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_true(scratch_write(scratch_path(rows[i].name), rows[i].text, strlen(rows[i].text)));
        ids.count = 0, err = (sn_error){0};
        bool ok = sn_lm_encode_chat(t, scratch_dir, "X", "ab", &ids, &err);
        if (!rows[i].want) {
            assert_false(ok);
            assert_non_null(strstr(err.message, "has no \"chat_template\""));
            continue;
        }
        if (!ok) fail_msg("%s", err.message);
        sn_bytes back = decode_ok(t, ids, 0);
        assert_string_equal(back.data, rows[i].want);
        sn_bytes_free(&back);
    }
    assert_false(sn_lm_encode_chat(NULL, scratch_dir, "X", "ab", &ids, &err));
    sn_ids_free(&ids);
    sn_tokenizer_free(t);
    scratch_end(NULL);
}

/* A template has limits of depth, memory and steps. */
static void limits(void **state) {
    (void)state;
    static const char deep[] = "nested too deeply", large[] = "more than 64 MB",
                      slow[] = "more than 10000000 steps";
    static const struct {
        const char *text, *word;
    } bad[] = {
        {"{% set n = namespace(a=1) %}{% set n.a = n %}{{ n }}", deep},
        {"{% set n = namespace(a=1) %}{% set n.a = [n] %}{{ n | tojson }}", deep},
        {"{% set n = namespace(a=1) %}{% set n.a = n %}{{ n ~ '' }}", deep},
        {"{% set n = namespace(a=1) %}{% set n.a = n %}{% set m = namespace(a=1) %}"
         "{% set m.a = m %}{{ n == m }}",
         deep},
        {"{% set n = namespace(a=1) %}{% set n.a = n %}{% set m = namespace(a=1) %}"
         "{% set m.a = m %}{{ n in [m] }}",
         deep},
        {"{% set n = namespace(x=1) %}{% for i in range(65) %}{% set n.x = [n.x] %}{% endfor %}\n"
         "{{ n.x }}",
         "line 2: values are nested too deeply"},
        {"{{ range(-9223372036854775807, 9223372036854775807)|length }}", "arguments of range"},
        {"{% set n = namespace(s='a') %}{% for i in range(40) %}{% set n.s = n.s ~ n.s %}"
         "{% endfor %}",
         large},
        {"{% set n = namespace(s=['a']) %}{% for i in range(40) %}{% set n.s = n.s + n.s %}"
         "{% endfor %}",
         large},
        {"{% set n = namespace(s='a') %}{% for i in range(40) %}"
         "{% set n.s = n.s.replace('a', 'aa') %}{% endfor %}",
         large},
        {"{% set n = namespace(s='a') %}{% for i in range(20) %}{% set n.s = n.s ~ n.s %}"
         "{% endfor %}{% for i in range(100) %}{{ n.s }}{% endfor %}",
         large},
        {"{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}", large},
        {"{% set l = range(30000) %}{% for a in range(1000) %}{% if -1 in l %}{% endif %}"
         "{% endfor %}",
         slow},
        {"{% set n = namespace(s='a') %}{% for i in range(22) %}{% set n.s = n.s ~ n.s %}"
         "{% endfor %}{% for a in range(1000) %}{% if n.s|length == 1 %}{% endif %}{% endfor %}",
         slow},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        sn_bytes out = {0};
        sn_error err = {0};
        if (sn_chat_render(bad[i].text, &chats[0], &out, &err)) fail_msg("%s", bad[i].text);
        if (!strstr(err.message, bad[i].word)) fail_msg("%s: %s", bad[i].text, err.message);
        assert_int_equal(out.size, 0);
        sn_bytes_free(&out);
    }
    sn_bytes out = {0};
    sn_error err = {0};
    const char text[] = "{% set n = namespace(x=1) %}{% for i in range(64) %}{% set n.x = [n.x] %}"
                        "{% endfor %}{{ n.x }}{{ n.x == n.x }}";
    if (!sn_chat_render(text, &chats[0], &out, &err)) fail_msg("%s", err.message);
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families), cmocka_unit_test(refusals),         cmocka_unit_test(language),
        cmocka_unit_test(quoted),   cmocka_unit_test(blanks_and_loops), cmocka_unit_test(limits),
        cmocka_unit_test(folders),  cmocka_unit_test(mutated)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
