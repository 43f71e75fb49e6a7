/* The text form: every sample file parses, prints, and parses back to the same graph; mistakes are
 * reported with line and column; mutilated text gives errors, never crashes. */
#include "ir/ir.h"
#include "tests/support/text.h"
#include "runtime/str.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/support/scratch.h"

static sn_module *parse(const char *text, bool raw) {
    sn_error err = {0};
    sn_module *m = sn_parse(text, "t.sn", raw, &err);
    if (!m) fail_msg("%s\nin\n%s", err.message, text);
    assert_int_equal(err.code, SN_OK);
    return m;
}

/* Prints, parses and prints again, raw and folding; returns the raw text. */
static char *round_trip(const char *text) {
    char *raw_text = NULL;
    for (int raw = 0; raw < 2; raw++) {
        sn_module *a = parse(text, raw);
        assert_true(sn_verify(a));
        char *first = module_text(a);
        sn_module *b = parse(first, raw);
        char *second = module_text(b);
        assert_string_equal(first, second);
        sn_module_free(a);
        sn_module_free(b);
        free(second);
        if (raw)
            raw_text = first;
        else
            free(first);
    }
    return raw_text;
}

typedef void (*on_text)(const char *text);

static int each_sample(on_text visit) {
    static const char folder[] = SN_SOURCE_DIR "/tests/ir/text";
    DIR *d = opendir(folder);
    assert_non_null(d);
    int n = 0;
    for (struct dirent *e; (e = readdir(d));) {
        if (!sn_ends_with(e->d_name, ".sn")) continue;
        char path[sizeof folder + sizeof e->d_name + 1];
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        char *text = file_text(path);
        visit(text);
        free(text);
        n++;
    }
    closedir(d);
    return n;
}

/* Samples hold canonical text: raw, they print as they are, but for comments. */
static void sample_is_canonical(const char *text) {
    char *printed = round_trip(text);
    const char *want = strstr(text, "module ");
    assert_non_null(want);
    assert_string_equal(printed, want);
    free(printed);
}

static void samples(void **state) {
    (void)state;
    assert_true(each_sample(sample_is_canonical) >= 3);
}

static void free_form(void **state) {
    (void)state;
    char *s = round_trip("; CHECK: nothing\nmodule \"two words\" // a comment\n"
                         "dim T in [ 1 , inf ] dim B in [0,8]\n"
                         "entry \"7 up\" {\n"
                         "%weird.1: i32[ B, 1+T*2 ]=input{name=\"a\\\"\\\\\\x0a\\x7f\xc3\xa9\"}\n"
                         "output \"\" = %weird.1 }\n"
                         "entry none {}");
    assert_string_equal(s, "module \"two words\"\n"
                           "dim T in [1, inf]\n"
                           "dim B in [0, 8]\n"
                           "entry \"7 up\" {\n"
                           "  %0: i32[B,2*T+1] = input {name=\"a\\\"\\\\\\x0a\\x7f\xc3\xa9\"}\n"
                           "  output \"\" = %0\n"
                           "}\n"
                           "entry none {\n"
                           "}\n");
    free(s);
}

static void same_node(void **state) {
    (void)state;
    sn_module *m = parse("module m\nentry a {\n%0: f32[2] = input {name=\"x\"}\n"
                         "%z: f32[2] = exp %0 %q: f32[2] = exp %0 ; twice\n"
                         "output \"1\" = %z output \"2\" = %q }\n"
                         "entry b { %0: f32[2] = input {shape=[2], name=\"x\", dtype=f32}\n"
                         "%1: f32[2] = exp %0 output \"1\" = %1 tap \"t\" = %0}",
                         false);
    sn_entry *a = sn_entry_get(m, "a"), *b = sn_entry_get(m, "b");
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal(a->n_output, 2);
    assert_ptr_equal(a->output[0].node, a->output[1].node);
    assert_ptr_equal(a->output[0].node, b->output[0].node);
    assert_int_equal(sn_module_node_count(m), 2);
    char *text = module_text(m);
    assert_string_equal(text, "module m\n"
                              "entry a {\n"
                              "  %0: f32[2] = input {name=\"x\"}\n"
                              "  %1: f32[2] = exp %0\n"
                              "  output \"1\" = %1\n"
                              "  output \"2\" = %1\n"
                              "}\n"
                              "entry b {\n"
                              "  %0: f32[2] = input {name=\"x\"}\n"
                              "  %1: f32[2] = exp %0\n"
                              "  output \"1\" = %1\n"
                              "  tap \"t\" = %0\n"
                              "}\n");
    free(text);
    sn_module_free(m);
}

static void doubles_keep_bits(void **state) {
    (void)state;
    double values[] = {0,      -0.0,     1,         0.1,        1.0 / 3, 1e300, 5e-324,
                       1e-310, INFINITY, -INFINITY, NAN,        -NAN,    1e5,   123456789,
                       0.125,  1e-5,     16777217,  0x1p53 + 2, -1.5e-7, 0,     0};
    const size_t n = sizeof values / sizeof *values;
    uint64_t payload = 0x7ff8000000000123u;
    memcpy(&values[n - 1], &payload, sizeof payload);
    for (size_t i = 0; i < n; i++) {
        sn_module *m = sn_module_new("m");
        sn_entry_output(m, sn_entry_add(m, "e"), "x", sn_b_const(m, SN_F64, values[i]));
        char *text = module_text(m);
        sn_module *back = parse(text, false);
        const sn_node *c = sn_entry_get(back, "e")->output[0].node;
        assert_memory_equal(&sn_attr_get(c, SN_A_value)->f, &values[i], sizeof(double));
        free(text);
        sn_module_free(m);
        sn_module_free(back);
    }
}

/* Text does not depend on the order of birth. */
static void independent_of_birth(void **state) {
    (void)state;
    char *text[2];
    for (int i = 0; i < 2; i++) {
        sn_module *m = sn_module_new("m");
        sn_dim shape[] = {3};
        sn_node *x = NULL, *y = NULL;
        for (int j = 0; j < 2; j++) {
            sn_node **to = i == j ? &x : &y;
            *to = sn_node_new(m, SN_OP_input, 0, NULL,
                              SN_ATTRS(SN_STR(name, i == j ? "x" : "y"), SN_INT(dtype, SN_F32),
                                       SN_LIST(shape, 1, shape)));
        }
        sn_node *r = sn_b_binary(SN_OP_sub, sn_b_unary(SN_OP_exp, x), sn_b_unary(SN_OP_tanh, y));
        sn_entry_output(m, sn_entry_add(m, "e"), "r", sn_b_binary(SN_OP_mul, r, x));
        text[i] = module_text(m);
        sn_module_free(m);
    }
    assert_string_equal(text[0], text[1]);
    free(text[0]);
    free(text[1]);
}

static void region_text(void **state) {
    (void)state;
    char *text[2];
    for (int i = 0; i < 2; i++) {
        sn_module *m = sn_module_new("m");
        sn_dim t = sn_symbol_add(m, "T", 1, 64);
        if (i) sn_b_const(m, SN_F32, 7); /* other ids must not change the text */
        sn_node *arg[] = {sn_arg(m, 0, SN_F32, 0, NULL), sn_arg(m, 1, SN_F32, 1, &t)};
        sn_node *half = sn_b_scalar(SN_OP_mul, arg[0], 0.5);
        sn_node *length = sn_b_cast(sn_b_dim(m, SN_I32, t), SN_F32);
        sn_node *out = sn_b_binary(SN_OP_sub, half, length);
        text[i] = strdup(sn_region_text(m, sn_region_new(m, 2, arg, 1, &out)));
        assert_int_equal(sn_module_error(m)->code, SN_OK);
        sn_module_free(m);
    }
    assert_string_equal(text[0], "(%0: f32[], %1: f32[T]) {\n"
                                 "  %2: f32[] = const {value=0.5}\n"
                                 "  %3: f32[] = mul %0, %2\n"
                                 "  %4: i32[] = dim_value {dim=T}\n"
                                 "  %5: f32[] = cast %4\n"
                                 "  %6: f32[] = sub %3, %5\n"
                                 "  yield %6\n"
                                 "}\n");
    assert_string_equal(text[0], text[1]);
    free(text[0]);
    free(text[1]);
}

static void refuse(size_t n, const char *const (*cases)[2]) {
    for (size_t i = 0; i < n; i++) {
        sn_error err = {0};
        sn_module *m = sn_parse(cases[i][0], "t.sn", i & 1, &err);
        assert_null(m);
        assert_int_not_equal(err.code, SN_OK);
        if (!strstr(err.message, cases[i][1])) fail_msg("\"%s\"\nin\n%s", err.message, cases[i][0]);
    }
}

#define ENTRY "module m\nentry e {\n  %0: f32[2] = input {name=\"x\"}\n"

static void mistakes(void **state) {
    (void)state;
#define SEVERAL                                                                                    \
    "entry e {%0: f32[] = input {name=\"x\"} %1: (f32[], f32[]) = map_reduce %0 {body=@r}\n"
    static const char *const cases[][2] = {
        {"", "t.sn:1:1: expected 'module', found the end of the text"},
        {"  modul x", "t.sn:1:3: expected 'module', found 'modul'"},
        {"module", "t.sn:1:7: expected the name of the module, found the end"},
        {"module m\nentyr", "t.sn:2:1: expected dim, region, entry or describe, found 'entyr'"},
        {"module m\ndescribe dim \"\" \"T\" \"\"", "a description must have 1 to 255 bytes"},
        {"module m\ndescribe dim \"\" \"T\" \"*/\"", "a description must not contain"},
        {"module m\ndescribe dim \"\" \"T\" \"  \"", "must not begin or end with a space"},
        {"module m\ndescribe dim \"\" \"T\" \"a \"", "must not begin or end with a space"},
        {"module m\ndescribe dim T", "t.sn:2:14: expected a string in quotes"},
        {"module m\ndescribe T", "t.sn:2:10: expected leaf, input, output or dim, found 'T'"},
        {"module m dim T in [1 2]", "t.sn:1:22: expected ',', found '2]'"},
        {"module m dim T in [9999999999999999999, 2]", "an integer of 64 bits"},
        {"module m dim T in [3, 2]", "t.sn:1: symbolic dim T: range"},
        {"module m dim 2x in [3, 4]", "t.sn:1: symbolic dim \"2x\""},
        {ENTRY "%1: f32[3] = exp %0", "t.sn:4:5: the type of exp is f32[2]"},
        {ENTRY "%1: f32[2] = add %0", "t.sn:4: add: 1 operands given"},
        {ENTRY "%1: f32[2] = fused_recurrence()", "fused_recurrence: its prologue is missing"},
        {ENTRY "%1: f32[2] = foo %0", "t.sn:4:14: expected the name of an op, found 'foo'"},
        {ENTRY "%1: f99[2] = exp %0", "t.sn:4:5: expected an element type like f32"},
        {ENTRY "%1: f32[Q] = exp %0", "t.sn:4:9: expected a dimension"},
        {ENTRY "%1: f32[1,1,1,1,1,1,1,1,1] = exp %0", "more than 8 numbers"},
        {ENTRY "%1: f32[9223372036854775807*2] = exp %0", "overflows"},
        {ENTRY "%1: f32[2] = exp %2", "t.sn:4:18: %2 is not defined above"},
        {ENTRY "%1: f32[2] = exp %1", "t.sn:4:18: %1 is not defined above"},
        {ENTRY "%0: f32[2] = exp %0", "t.sn:4:1: %0 is defined twice"},
        {ENTRY "%1: (f32[2], f32[2]) = exp %0", "exp has 1 results, but 2 types are given"},
        {ENTRY "%1: f32[2] = cumsum %0 {axis=0, axis=0}", "t.sn:4:33: duplicate attribute"},
        {ENTRY "%1: f32[2] = cumsum %0 {axsi=0}", "expected the name of an attribute"},
        {ENTRY "%1: f32[2] = cumsum %0 {axis=1}", "t.sn:4: cumsum: axis 1 is outside 0..0"},
        {ENTRY "%1: f32[2] = cumsum %0", "attribute 'axis' is missing"},
        {ENTRY "%1: i8[2] = quantise_rows %0 {index=2}", "quantise_rows: there is no result 2"},
        {ENTRY "%1: f32[2] = exp %0 {mask=@r}", "t.sn:4:27: @r is not defined above"},
        {ENTRY "output x = %0", "t.sn:4:8: expected a string in quotes"},
        {ENTRY "output \"x = %0\n\"", "this string is not closed on its line"},
        {ENTRY "output \"\\q\" = %0", "escapes are"},
        {ENTRY "output \"x\" = %0", "expected '%number:', output, assign, tap or '}'"},
        {ENTRY "} entry e {}", "t.sn:4:9: duplicate entry"},
        {ENTRY "yield %0 }", "expected '%number:', output"},
        {"module m region @r (%0: f32[]) { yield %0, %0 }\n" SEVERAL "output \"y\" = %1 }",
         "%1 has several results"},
        {"module m region @r (%0: f32[]) { yield %0, %0 }\n" SEVERAL "%2: f32[] = exp %1 }",
         "exp: operand 0 (map_reduce) has several results"},
        {"module m\nregion @r (%0: f32[]) { }", "expected '%number:' or 'yield'"},
        {"module m\nregion @r () { yield %0 }", "%0 is not defined above"},
        {"module m\nregion @r () { %0: f32[] = input {name=\"x\"} yield %0 }",
         "a region may only use its arguments"},
    };
    refuse(sizeof cases / sizeof *cases, cases);
    assert_null(sn_parse("x", NULL, false, NULL));
}

/* Operands that an operation does not accept. */
static void operands(void **state) {
    (void)state;
#define INTEGERS                                                                                   \
    ENTRY "%1: i8[2,64] = param {name=\"q\"} %2: f16[2,2] = param {name=\"s\"}\n"                  \
          "%3: f32[2,64] = dequantise "
#define HEADS                                                                                      \
    ENTRY "%1: f32[1,2,3,8] = input {name=\"q\"} %2: f32[1,2,5,8] = input {name=\"k\"}\n"          \
          "%3: f32[3,3] = input {name=\"w\"} %4: f32[1,2,3,8] = "
    static const char *const cases[][2] = {
        {ENTRY "%1: f32[2] = pack_b %0, %0", "pack_b: exactly one operand is required"},
        {HEADS "attention %1, %2, %3", "q must be [B, H, Tq, d], k [B, Hk, Tk, d]"},
        {HEADS "attention %1, %2, %1", "keys and values differ in number"},
        {HEADS "attention %1, %2, %2 {sink=1}", "attention: the sink is missing"},
        {HEADS "attention %1, %2, %2, %3 {sink=1}", "the sink must be [B, H, Tq]"},
        {HEADS "attention %1, %2, %2 {rate=0.5}", "dropout needs a seed and a step"},
        {HEADS "flash %1, %2", "flash: q, k and v are needed"},
        {HEADS "mixed_attention %1, %2, %2, %3", "mixed_attention: no heads mix"},
        {HEADS "mixed_attention %1, %2, %2, %3 {mix=3}",
         "or a matrix that mixes heads, are missing"},
        {HEADS "mixed_attention %1, %2, %2, %3 {mix=1}", "what mixes heads must be [H, H]"},
        {INTEGERS "%1, %2 {group=32, bits=5}",
         "t.sn:5: dequantise: attribute 'bits' must be 4, or 8"},
        {INTEGERS "%1, %2 {group=32, nibble=1}", "'bits' must be 4, or 8 without 'nibble'"},
        {INTEGERS "%1, %2 {group=32, bits=4, nibble=3}", "'nibble', which is 0 to 2"},
        {INTEGERS "%1, %2 {group=0}", "attribute 'group' must divide the last axis"},
        {INTEGERS "%1, %2 {group=24}", "attribute 'group' must divide the last axis"},
        {INTEGERS "%1, %2 {group=16}", "operand 1 must be a float for each group: [.., 4]"},
        {INTEGERS "%1, %2", "operand 1 must be a float for each group: [.., 1]"},
        {INTEGERS "%1, %2, %1 {group=32}", "operand 2 must be a float for each group: [.., 2]"},
        {INTEGERS "%2, %2 {group=1}", "dequantise: operand 0 must be i8"},
    };
    refuse(sizeof cases / sizeof *cases, cases);
}

static void deep_text(void **state) { /* long chains and nested regions do not recurse */
    (void)state;
    char *text;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    assert_non_null(f);
    fputs("module m\nentry e {\n%0: f32[] = input {name=\"x\"}\n", f);
    const int n = 50000;
    for (int i = 0; i < n; i++) fprintf(f, "%%%d: f32[] = tanh %%%d\n", i + 1, i);
    fprintf(f, "%%all: f32[%d] = concat %%0", n);
    fclose(f);
    sn_error err = {0};
    assert_null(sn_parse(text, NULL, true, &err)); /* concat of scalars */
    *strstr(text, "%all") = 0;
    char *whole = NULL;
    assert_true(asprintf(&whole, "%s output \"y\" = %%%d }", text, n) > 0);
    sn_module *m = parse(whole, true);
    assert_int_equal(sn_module_node_count(m), n + 1);
    char *again = module_text(m);
    assert_true(strlen(again) > strlen(text));
    sn_module_free(m);
    free(again);
    free(whole);
    free(text);
}

/* A kernel for each of a graph's nodes takes memory in proportion to the nodes, not to their square:
 * 50,000 maps of as many nodes would exceed a module's limit. */
static void many_regions(void **state) {
    (void)state;
    enum { N = 50000 };
    sn_module *m = sn_module_new("m");
    const sn_dim shape[] = {4};
    sn_node *x = sn_arg(m, 0, SN_F32, 1, shape);
    for (int i = 0; i < N; i++) {
        sn_node *y = sn_b_unary(SN_OP_tanh, x), *back;
        sn_region *r = sn_region_extract(m, 1, &x, 1, &y);
        sn_region_inline(r, &x, &back);
        assert_ptr_equal(back, y);
        x = y;
    }
    assert_int_equal(sn_module_error(m)->code, SN_OK);
    sn_module_free(m);
}

static uint64_t rng = 0x9e3779b97f4a7c15u;

static size_t random_below(size_t n) { /* xorshift */
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (size_t)(rng % n);
}

static void parse_hostile(const char *text) {
    sn_error err = {0};
    sn_module *m = sn_parse(text, "t.sn", rng & 1, &err);
    assert_true((m == NULL) == (err.code != SN_OK));
    if (!m) return;
    if (!sn_verify(m)) { /* the parser checks lines, the verifier what entries say together */
        const char *message = sn_module_error(m)->message;
        if (!strstr(message, "is assigned to a state")) fail_msg("%s\nin\n%s", message, text);
        sn_module_free(m);
        return;
    }
    char *again = module_text(m);
    sn_module_free(m);
    m = parse(again, rng & 1);
    sn_module_free(m);
    free(again);
}

/* text with [at, at + length) replaced by a word */
static void splice(char *s, const char *text, size_t at, size_t length, const char *word) {
    size_t n = strlen(word);
    memcpy(s, text, at);
    memcpy(s + at, word, n);
    strcpy(s + at + n, text + at + length);
}

/* Cuts, flips bytes, splices words, numbers, pieces of the text itself and names of ops. */
static void mutilate(const char *text) {
    static const char *const words[] = {"[",    "]",   "{", "}",   "(",  ")",   "\"",
                                        "%0",   "@r0", "T", ",",   "\\", "inf", "nan",
                                        "i64[", "1e9", ";", "// ", "=",  "-"};
    static const char *const numbers[] = {"0",
                                          "1",
                                          "2",
                                          "3",
                                          "7",
                                          "8",
                                          "9",
                                          "16",
                                          "-1",
                                          "-7",
                                          "33",
                                          "65536",
                                          "4294967296",
                                          "2147483647",
                                          "9223372036854775807",
                                          "-9223372036854775808",
                                          "T",
                                          "T*T",
                                          "B",
                                          "B-1"};
    size_t n = strlen(text);
    char *s = malloc(2 * n + 64);
    assert_non_null(s);
    for (int round = 0; round < 600; round++) {
        size_t at = random_below(n), to = random_below(n), length = random_below(12), found;
        char piece[16] = "";
        strcpy(s, text);
        switch (round % 6) {
        case 0:
            s[at] = 0;
            break;
        case 1:
            s[at] = (char)random_below(256);
            s[to] = (char)random_below(128);
            break;
        case 2:
            splice(s, text, at, at + length < n ? length : n - at,
                   words[random_below(sizeof words / sizeof *words)]);
            break;
        case 3:
            memcpy(piece, text + to, to + length < n ? length : n - to);
            splice(s, text, at, 0, piece);
            break;
        case 4:
            at += strcspn(text + at, "0123456789");
            splice(s, text, at, strspn(text + at, "0123456789"),
                   numbers[random_below(sizeof numbers / sizeof *numbers)]);
            break;
        default:
            found = strcspn(text + at, "=");
            if (strncmp(text + at + found, "= ", 2)) break;
            at += found + 2;
            splice(s, text, at, strcspn(text + at, " \n"), sn_ops[random_below(SN_OP_COUNT)].name);
        }
        parse_hostile(s);
    }
    free(s);
}

static void hostile_text(void **state) {
    (void)state;
    assert_true(each_sample(mutilate) >= 3);
    char noise[300];
    for (int round = 0; round < 500; round++) {
        for (size_t i = 0; i < sizeof noise - 1; i++) noise[i] = (char)random_below(256);
        memcpy(noise, "module m\nentry e {", round & 1 ? 18 : 0);
        noise[sizeof noise - 1] = 0;
        parse_hostile(noise);
    }
}

/* A text has a decimal point wherever the process is at home. */
static void decimal_comma(void **state) {
    (void)state;
    static const char text[] =
        "module m\n\nentry f {\n  %0: f32[] = const {value=0.3}\n  output \"y\" = %0\n}\n";
    sn_error e = {0};
    assert_int_equal(scratch_make(NULL), 0);
    set_comma_locale();
    sn_module *m = sn_parse(text, "t.sn", false, &e);
    if (!m) fail_msg("%s", e.message);
    char *printed = module_text(m);
    setlocale(LC_ALL, "C");
    assert_non_null(strstr(printed, "value=0.3"));
    free(printed);
    sn_module_free(m);
    scratch_end(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples),       cmocka_unit_test(free_form),
        cmocka_unit_test(same_node),     cmocka_unit_test(doubles_keep_bits),
        cmocka_unit_test(decimal_comma), cmocka_unit_test(independent_of_birth),
        cmocka_unit_test(region_text),   cmocka_unit_test(mistakes),
        cmocka_unit_test(operands),      cmocka_unit_test(deep_text),
        cmocka_unit_test(many_regions),  cmocka_unit_test(hostile_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
