/* test_text_heads.c: what classify, answer and embed make of the logits of tiny encoders whose values
 * NumPy computed (tests/data/families): words and names with their places, answers with their
 * probabilities. */
#include "model/answers.h"
#include "model/entities.h"
#include "model/sentence_batch.h"
#include "runtime/weights.h"

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
#include <sys/stat.h>

/* The tokens of the references are 0, 6, 14, 1, 13, 4, 20, 15, 12, 11, 12, 15. */
static const char vocabulary[] =
    "[CLS]\none\n[UNK]\n[PAD]\nfour\nv5\nsix\nv7\nv8\nv9\nv10\neleven\n"
    "twelve\n,\n##teen\n[SEP]\nv16\nv17\nv18\nv19\nelan\nv21\nv22\n";
#define QUESTION "Sixteen one, four Élan"
#define TEXT "Twelve  eleven twelve"

static int write_folder(const char *name, const char *key, const char *json, family_folder *f) {
    family_read("families", name, SN_F32, f);
    if (key) family_set_key(f, key, json);
    family_write(scratch_dir, f, false);
    family_write_file(scratch_dir, "vocab.txt", vocabulary);
    family_write_file(scratch_dir, "tokenizer_config.json", "{\"do_lower_case\": true}");
    return 0;
}

static void open_folder(const char *name, const char *key, const char *json, family_folder *f) {
    assert_int_equal(scratch_make(NULL), 0);
    write_folder(name, key, json, f);
}

static open_model *open_reference(const char *name, const char *key, const char *json,
                                  family_folder *f) {
    sn_error err = {0};
    open_folder(name, key, json, f);
    open_options o = {.path = scratch_dir,
                      .entries = SN_FORWARD,
                      .needs = "forward",
                      .any_model = true,
                      .compile = {.level = 4, .threads = 1}};
    open_model *m = lm_open(&o, &err);
    if (!m) fail_msg("%s: %s", name, err.message);
    return m;
}

static void close_reference(open_model *m, family_folder *f) {
    model_close(m);
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
    open_model *m = open_reference("distilbert_tokens", NULL, NULL, &f);
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
        open_model *m = open_reference("distilbert_tokens", "id2label", named[k], &f);
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
    open_model *m = open_reference("distilbert_spans", NULL, NULL, &f);
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

/* ---- embeddings ---- */

enum { T = 12, D = 16, OUT = 3 };

static void write_in(const char *folder, const char *name, const char *text) {
    char dir[512];
    snprintf(dir, sizeof dir, "%s/%s", scratch_dir, folder);
    mkdir(dir, 0700);
    family_write_file(dir, name, text);
}

/* Opens a folder with these modules; NULL on error. */
static open_model *open_modules(family_folder *f, const char *modules, const char *pooling,
                                sn_error *err) {
    open_folder("distilbert", NULL, NULL, f);
    family_write_file(scratch_dir, "modules.json", modules);
    write_in("1_Pooling", "config.json", pooling);
    write_in("2_Dense", "config.json",
             "{\"in_features\": 16, \"out_features\": 3, \"bias\": true, "
             "\"activation_function\": \"torch.nn.modules.activation.Tanh\"}");
    float weight[OUT * D], bias[OUT] = {0.5F, -0.25F, 0};
    for (int i = 0; i < OUT * D; i++) weight[i] = (float)(i % 7 - 3) / 4;
    const sn_weight dense[] = {
        {"linear.weight", SN_F32, 2, {OUT, D}, weight, sizeof weight, NULL, NULL},
        {"linear.bias", SN_F32, 1, {OUT}, bias, sizeof bias, NULL, NULL}};
    char path[512];
    snprintf(path, sizeof path, "%s/2_Dense/model.safetensors", scratch_dir);
    need(sn_weights_save(path, dense, 2, NULL, 0, err), err);
    open_options o = {.path = scratch_dir,
                      .entries = SN_EMBED,
                      .any_model = true,
                      .compile = {.level = 4, .threads = 1}};
    return lm_open(&o, err);
}

#define MODULE(number, name, kind)                                                                 \
    "{\"idx\": " number ", \"path\": \"" name "\", \"type\": \"sentence_transformers.models." kind \
    "\"}"
#define MODULES(rest)                                                                              \
    "[" MODULE("0", "", "Transformer") ", " MODULE("1", "1_Pooling", "Pooling") rest "]"

/* Pooling by its definition. */
static double pooled(const double *x, int kind, int i) {
    double sum = 0, weights = 0, most = -1e30;
    for (int t = 0; t < T; t++) {
        double w = kind == 4 ? t + 1 : 1;
        sum += w * x[t * D + i], weights += w, most = fmax(most, x[t * D + i]);
    }
    const double value[] = {x[i], most, sum / T, sum / sqrt(T), sum / weights, x[(T - 1) * D + i]};
    return value[kind];
}

static void check_embedding(open_model *m, const family_folder *f, const double *want, int n) {
    sn_ids ids = {0};
    sn_error err = {0};
    float *got;
    int64_t each;
    const cJSON *token, *tokens = cJSON_GetObjectItem(f->json, "tokens");
    int32_t list[T], k = 0;
    cJSON_ArrayForEach(token, tokens) list[k++] = token->valueint;
    ids = (sn_ids){list, T, T};
    need(encoder_run(m, "embed", "embedding", &ids, NULL, 1, &got, &each, NULL, &err), &err);
    assert_int_equal(each, n);
    for (int i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= 1e-4)) fail_msg("%d: %g, wanted %g", i, got[i], want[i]);
    free(got);
}

static void embeddings(void **state) {
    (void)state;
    static const char *const keys[] = {"cls_token",           "max_tokens",
                                       "mean_tokens",         "mean_sqrt_len_tokens",
                                       "weightedmean_tokens", "lasttoken"};
    for (int k = 0; k < 7; k++) { /* 6: two kinds, joined */
        family_folder f;
        sn_error err = {0};
        char pooling[300];
        double x[T * D], want[2 * D], sum = 0;
        snprintf(pooling, sizeof pooling,
                 "{\"word_embedding_dimension\": 16%s, \"pooling_mode_%s\": true}",
                 k == 2 ? "" : ", \"pooling_mode_mean_tokens\": false", keys[k % 6]);
        if (k == 6) strcpy(pooling, "{\"pooling_mode\": [\"mean\", \"cls\"]}");
        bool dense = k == 2, unit = k == 3;
        open_model *m = open_modules(&f,
                                     dense  ? MODULES(", " MODULE("2", "2_Dense", "Dense"))
                                     : unit ? MODULES(", " MODULE("2", "2_Normalize", "Normalize"))
                                            : MODULES(""),
                                     pooling, &err);
        if (!m) fail_msg("%s", err.message);
        const cJSON *item = cJSON_GetObjectItem(f.json, "hidden")->child;
        for (int i = 0; i < T * D; i++, item = item->next) x[i] = item->valuedouble;
        for (int i = 0; i < D; i++) want[i] = pooled(x, k % 6, i), sum += want[i] * want[i];
        for (int i = 0; i < D && k == 6; i++) want[D + i] = pooled(x, 2, i);
        for (int i = 0; i < D && unit; i++) want[i] /= sqrt(sum);
        double mapped[OUT] = {0.5, -0.25, 0};
        for (int i = 0; i < OUT * D; i++) mapped[i / D] += want[i % D] * (i % 7 - 3) / 4;
        for (int i = 0; i < OUT; i++) mapped[i] = tanh(mapped[i]);
        check_embedding(m, &f, dense ? mapped : want, dense ? OUT : k == 6 ? 2 * D : D);
        close_reference(m, &f);
    }
}

static void wrong_modules(void **state) {
    (void)state;
    static const struct {
        const char *modules, *pooling, *why;
    } rows[] = {
        {MODULES(""), "{\"pooling_mode\": \"middle\"}", "pooling_mode"},
        {MODULES(""), "{\"word_embedding_dimension\": 8}", "width 8"},
        {MODULES(""), "{\"pooling_mode_mean_tokens\": false}", "no kind of pooling"},
        {MODULES(""), "{\"pooling_mode_best\": true}", "pooling_mode_best"},
        {MODULES(""), "{\"include_prompt\": false}", "include_prompt"},
        {MODULES(", " MODULE("2", "2_LSTM", "LSTM")), "{}", "2_LSTM"},
        {MODULES(", " MODULE("2", "../x", "Normalize")), "{}", "not a folder"},
        {"[" MODULE("0", "2_Dense", "Dense") "]", "{}", "before the pooling"},
        {"{}", "{}", "not a list"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        family_folder f;
        sn_error err = {0};
        open_model *m = open_modules(&f, rows[i].modules, rows[i].pooling, &err);
        if (m || !strstr(err.message, rows[i].why))
            fail_msg("row %zu: wanted '%s' in: %s", i, rows[i].why, err.message);
        close_reference(m, &f);
    }
}

/* What precedes a text, and how much of it is read. */
static void prompts(void **state) {
    (void)state;
    family_folder f;
    sn_error err = {0};
    sentence_settings s;
    sn_ids ids = {0};
    open_model *m = open_reference("distilbert_tokens", NULL, NULL, &f);
    family_write_file(scratch_dir, "config_sentence_transformers.json",
                      "{\"prompts\": {\"query\": \"six \", \"other\": \"one, \"}, "
                      "\"default_prompt_name\": \"other\"}");
    family_write_file(scratch_dir, "sentence_bert_config.json",
                      "{\"max_seq_length\": 5, \"do_lower_case\": true}");
    need(sentence_settings_of(m, &s, &err), &err);
    assert_int_equal(s.longest, 5);
    assert_string_equal(sn_sentence_prompt(&s, NULL, &err), "one, ");
    assert_null(sn_sentence_prompt(&s, "third", &err));
    need(sn_sentence_read_text(&s, sn_sentence_prompt(&s, "query", &err), "four", 4, false, &ids,
                               &err),
         &err);
    static const int32_t want[] = {0, 6, 4, 15}, cut[] = {0, 6, 4, 12, 15};
    assert_int_equal(ids.count, 4);
    assert_memory_equal(ids.data, want, sizeof want);
    ids.count = 0;
    err = (sn_error){0};
    assert_false(sn_sentence_read_text(&s, "six ", "four twelve four", 16, false, &ids, &err));
    assert_non_null(strstr(err.message, "--truncate"));
    ids.count = 0;
    need(sn_sentence_read_text(&s, "six ", "four twelve four", 16, true, &ids, &err), &err);
    assert_int_equal(ids.count, 5);
    assert_memory_equal(ids.data, cut, sizeof cut);
    sn_ids_free(&ids);
    sn_sentence_close(&s);
    close_reference(m, &f);
}

/* write NAME KEY JSON DIR: only makes a model folder, for tests of commands; KEY: of the config, or "". */
int main(int argc, char **argv) {
    if (argc == 6) {
        family_folder f;
        snprintf(scratch_dir, sizeof scratch_dir, "%s", argv[5]);
        return write_folder(argv[2], *argv[3] ? argv[3] : NULL, argv[4], &f);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels_of_words), cmocka_unit_test(names_of_words),
        cmocka_unit_test(answers),         cmocka_unit_test(embeddings),
        cmocka_unit_test(wrong_modules),   cmocka_unit_test(prompts),
    };
    return cmocka_run_group_tests(tests, cc_begin, cc_end);
}
