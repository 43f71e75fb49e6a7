/* test_text_heads.c: what classify, answer and embed make of the logits of tiny encoders whose values
 * NumPy computed (tests/data/families): words and names with their places, answers with their
 * probabilities. */
#include "model/answers.h"
#include "model/entities.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/e2e/family_folder.h"
#include "tests/support/compile_case.h"
#include "tests/support/model_case.h"
#include "tests/support/scratch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The tokens of the references are 0, 6, 14, 1, 13, 4, 20, 15, 12, 11, 12, 15. */
static const char vocabulary[] =
    "[CLS]\none\n[UNK]\n[PAD]\nfour\nv5\nsix\nv7\nv8\nv9\nv10\neleven\n"
    "twelve\n,\n##teen\n[SEP]\nv16\nv17\nv18\nv19\nelan\nv21\nv22\n";
#define QUESTION "Sixteen one, four Élan"
#define TEXT "Twelve  eleven twelve"

static lm *open_reference(const char *name, const char *key, const char *json, family_folder *f) {
    sn_error err = {0};
    assert_int_equal(scratch_make(NULL), 0);
    family_read("families", name, SN_F32, f);
    if (key) family_set_key(f, key, json);
    family_write(scratch_dir, f, false);
    family_write_file(scratch_dir, "vocab.txt", vocabulary);
    family_write_file(scratch_dir, "tokenizer_config.json", "{\"do_lower_case\": true}");
    lm_options o = {.path = scratch_dir,
                    .entries = SN_FORWARD,
                    .needs = "forward",
                    .any_model = true,
                    .compile = {.level = 4, .threads = 1, .cache_dir = cc_cache_dir()}};
    lm *m = lm_open(&o, &err);
    if (!m) fail_msg("%s: %s", name, err.message);
    return m;
}

static void close_reference(lm *m, family_folder *f) {
    lm_close(m);
    family_free(f);
    scratch_end(NULL);
}

static double logit(const family_folder *f, int token, int label, int labels) {
    const cJSON *all = cJSON_GetObjectItem(f->json, "logits");
    return cJSON_GetArrayItem(all, token * labels + label)->valuedouble;
}

/* The likeliest of three labels of a token, and its probability. */
static int best_label(const family_folder *f, int token, double *p) {
    int best = 0;
    double sum = 0;
    for (int i = 1; i < 3; i++)
        if (logit(f, token, i, 3) > logit(f, token, best, 3)) best = i;
    for (int i = 0; i < 3; i++) sum += exp(logit(f, token, i, 3) - logit(f, token, best, 3));
    *p = 1 / sum;
    return best;
}

/* ---- labels ---- */

/* The first tokens of the words of WORDS, and where these are. */
#define WORDS QUESTION " [SEP] " TEXT
static const struct {
    int token;
    const char *text;
} words[] = {{1, "Sixteen"}, {3, "one"},    {4, ","},      {5, "four"},   {6, "Élan"},
             {7, "[SEP]"},   {8, "Twelve"}, {9, "eleven"}, {10, "twelve"}};
enum { N_WORDS = sizeof words / sizeof *words };

static void labels_of_words(void **state) {
    (void)state;
    family_folder f;
    sn_error err = {0};
    entity *list;
    size_t n, at = 0;
    lm *m = open_reference("distilbert_tokens", NULL, NULL, &f);
    need(encoder_entities(m, WORDS, strlen(WORDS), &list, &n, &err), &err);
    assert_int_equal(n, N_WORDS); /* without names: every word */
    for (size_t i = 0; i < n; i++) {
        double p;
        at = (size_t)(strstr(WORDS + at, words[i].text) - WORDS);
        assert_int_equal(list[i].begin, at);
        assert_int_equal(list[i].end, at + strlen(words[i].text));
        assert_int_equal(list[i].label, best_label(&f, words[i].token, &p));
        assert_true(fabs(list[i].p - p) < 1e-4);
    }
    free(list);
    assert_false(encoder_entities(m, "", 0, &list, &n, &err));
    assert_non_null(strstr(err.message, "empty"));
    free(list);
    close_reference(m, &f);
}

/* Names as B-X, I-X and O: entities by the rule, from the labels of the words above. */
static void names_of_words(void **state) {
    (void)state;
    static const char *const named[] = {
        "{\"0\": \"O\", \"1\": \"B-X\", \"2\": \"I-X\"}",
        "{\"0\": \"I-X\", \"1\": \"O\", \"2\": \"B-X\"}",
        "{\"0\": \"B-X\", \"1\": \"I-X\", \"2\": \"I-Y\"}",
    };
    static const char kinds[3][4] = {"OBI", "IOB", "BIY"};
    for (int k = 0; k < 3; k++) {
        family_folder f;
        sn_error err = {0};
        entity *list;
        size_t n, at = 0, want = 0, end = 0;
        char last = 'O';
        lm *m = open_reference("distilbert_tokens", "id2label", named[k], &f);
        need(encoder_entities(m, WORDS, strlen(WORDS), &list, &n, &err), &err);
        for (size_t i = 0; i < N_WORDS; i++) {
            double p;
            char kind = kinds[k][best_label(&f, words[i].token, &p)];
            at = (size_t)(strstr(WORDS + at, words[i].text) - WORDS);
            bool joins = kind == 'I' ? last == 'B' || last == 'I' : kind == 'Y' && last == 'Y';
            if (kind != 'O' && !joins) assert_int_equal(list[want++].begin, at);
            if (kind != 'O') end = at + strlen(words[i].text);
            if (want) assert_true(list[want - 1].end >= end);
            last = kind;
        }
        assert_int_equal(n, want);
        assert_int_equal(list[n - 1].end, end);
        free(list);
        close_reference(m, &f);
    }
}

/* ---- answers ---- */

/* [CLS] question [SEP] text [SEP]: the text is tokens 8 to 10. */
static double answer_p(const family_folder *f, int begin, int end) {
    double p = 1;
    for (int column = 0; column < 2; column++) {
        double sum = exp(logit(f, 0, column, 2));
        for (int t = 8; t <= 10; t++) sum += exp(logit(f, t, column, 2));
        p *= exp(logit(f, column ? end : begin, column, 2)) / sum;
    }
    return p;
}

static void answers(void **state) {
    (void)state;
    static const size_t begins[] = {0, 8, 15}, ends[] = {6, 14, 21};
    family_folder f;
    sn_error err = {0};
    text_answer list[10];
    int64_t n;
    lm *m = open_reference("distilbert_spans", NULL, NULL, &f);
    need(encoder_answers(m, QUESTION, TEXT, strlen(TEXT), 2, 10, list, &n, &err), &err);
    assert_int_equal(n, 5); /* of one or two of three words */
    for (int64_t i = 0; i < n; i++) {
        int b = 0, e = 0;
        while (begins[b] != list[i].begin) b++;
        while (ends[e] != list[i].end) e++;
        assert_true(e >= b && e - b < 2);
        assert_true(fabs(list[i].p - answer_p(&f, 8 + b, 8 + e)) < 1e-4);
        assert_true(i == 0 || list[i].p <= list[i - 1].p);
    }
    text_answer first = list[0];
    need(encoder_answers(m, QUESTION, TEXT, strlen(TEXT), 2, 1, list, &n, &err), &err);
    assert_int_equal(n, 1);
    assert_memory_equal(&first, list, sizeof first);
    /* a text of several parts: all its words can be answers */
    char text[60 * 7 + 1] = "";
    for (int i = 0; i < 60; i++) strcat(text, i % 2 ? "one " : "six ");
    need(encoder_answers(m, QUESTION, text, strlen(text), 1, 10, list, &n, &err), &err);
    assert_int_equal(n, 10);
    assert_false(encoder_answers(m, "", text, strlen(text), 1, 1, list, &n, &err));
    assert_non_null(strstr(err.message, "empty"));
    err = (sn_error){0};
    assert_false(encoder_answers(m, text, TEXT, strlen(TEXT), 1, 1, list, &n, &err));
    assert_non_null(strstr(err.message, "shorten it"));
    close_reference(m, &f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels_of_words),
        cmocka_unit_test(names_of_words),
        cmocka_unit_test(answers),
    };
    return cmocka_run_group_tests(tests, cc_begin, cc_end);
}
