/* transformers' tokenizer classes with a SentencePiece model (tests/data/tokenizers/classes.json,
 * by make_classes.py): ids of pieces, what texts begin and end with, added tokens, languages. */
#include "tests/model/tok_check.h"

#include <cjson/cJSON.h>

#include "tests/support/scratch.h"

static void write_file(const char *name, const void *data, size_t size) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", scratch_dir, name);
    write_whole(path, data, size);
}

static void write_json(const char *name, const cJSON *json) {
    if (!json || cJSON_IsNull(json)) return;
    char *text = cJSON_Print(json);
    write_file(name, text, strlen(text));
    cJSON_free(text);
}

/* A folder with the files of a case; loads it. */
static sn_tokenizer *load_class(const cJSON *c, const char *model_type) {
    char path[512];
    size_t size;
    assert_int_equal(scratch_make(NULL), 0);
    snprintf(path, sizeof path, TOK_DATA "pieces/%s.model",
             cJSON_GetObjectItem(c, "model")->valuestring);
    char *model = read_whole(path, &size);
    write_file(cJSON_GetObjectItem(c, "file")->valuestring, model, size);
    free(model);
    if (model_type) {
        snprintf(path, sizeof path, "{\"model_type\": \"%s\"}", model_type);
        write_file("config.json", path, strlen(path));
    } else {
        write_json("tokenizer_config.json", cJSON_GetObjectItem(c, "config"));
    }
    write_json("vocab.json", cJSON_GetObjectItem(c, "vocab"));
    sn_tokenizer *t = load_ok(scratch_dir);
    assert_true(sn_tokenizer_has_template(t));
    return t;
}

static cJSON *read_cases(void) {
    size_t size;
    char *text = read_whole(TOK_DATA "classes.json", &size);
    cJSON *all = cJSON_Parse(text);
    free(text);
    assert_non_null(all);
    return all;
}

static const cJSON *find_case(const cJSON *all, const char *name) {
    const cJSON *c;
    cJSON_ArrayForEach(c, all)
        if (!strcmp(cJSON_GetObjectItem(c, "class")->valuestring, name)) return c;
    fail_msg("no case %s", name);
    return NULL;
}

/* Whether ids[*at ..] begins with the list; advances *at. */
static bool follows(const sn_ids *ids, size_t *at, const cJSON *list) {
    const cJSON *item;
    cJSON_ArrayForEach(item, list)
        if (*at >= ids->count || ids->data[(*at)++] != item->valueint) return false;
    return true;
}

static void check(const cJSON *c, const sn_tokenizer *t, const char *text, size_t size, int i) {
    const cJSON *none = NULL, *want = cJSON_GetArrayItem(cJSON_GetObjectItem(c, "ids"), i);
    for (int full = 0; full < 2; full++) {
        sn_ids got = encode_ok(t, text, size, full ? SN_TOK_TEMPLATE : 0);
        size_t at = 0;
        if (!follows(&got, &at, full ? cJSON_GetObjectItem(c, "before") : none) ||
            !follows(&got, &at, want) ||
            !follows(&got, &at, full ? cJSON_GetObjectItem(c, "after") : none) || at != got.count)
            fail_msg("%s: \"%.*s\"", cJSON_GetObjectItem(c, "class")->valuestring, (int)size, text);
        sn_ids_free(&got);
    }
}

static void classes(void **state) {
    (void)state;
    static const char mark[] = "\n__ggml_vocab_test__\n";
    cJSON *all = read_cases();
    const cJSON *c;
    size_t size;
    char *strings = read_whole(TOK_DATA "pieces/strings.txt", &size);
    cJSON_ArrayForEach(c, all) {
        sn_tokenizer *t = load_class(c, NULL);
        int n = cJSON_GetArraySize(cJSON_GetObjectItem(c, "ids"));
        const char *text = strings, *end = strings + size;
        assert_true(n > 30);
        for (int i = 0; i < n; i++) {
            const char *stop = memmem(text, (size_t)(end - text), mark, strlen(mark));
            check(c, t, text, (size_t)(stop - text), i);
            text = stop + strlen(mark);
        }
        sn_tokenizer_free(t);
        scratch_end(NULL);
    }
    free(strings);
    cJSON_Delete(all);
}

static void check_text(const sn_tokenizer *t, int32_t id, const char *want) {
    size_t size;
    const char *text = sn_tokenizer_text(t, id, &size);
    if (!text || strcmp(text, want) != 0)
        fail_msg("token %d: wanted '%s', not '%s'", (int)id, want, text ? text : "nothing");
}

/* Without tokenizer_config.json the model's type says the class. */
static void tokens(void **state) {
    (void)state;
    cJSON *all = read_cases();
    const cJSON *c = find_case(all, "T5Tokenizer");
    sn_tokenizer *t = load_class(c, "t5");
    int32_t n = sn_tokenizer_vocab_size(t);
    check_text(t, n - 100, "<extra_id_99>");
    check_text(t, n - 1, "<extra_id_0>");
    sn_ids ids = encode_ok(t, "hello <extra_id_0> world", 24, SN_TOK_SPECIAL);
    bool found = false;
    for (size_t i = 0; i < ids.count; i++) found |= ids.data[i] == n - 1;
    assert_true(found);
    sn_ids_free(&ids);
    sn_tokenizer_free(t);
    scratch_end(NULL);
    t = load_class(find_case(all, "PegasusTokenizer"), "pegasus");
    check_text(t, 0, "<pad>"), check_text(t, 2, "<mask_1>"), check_text(t, 4, "<unk_2>");
    check_text(t, 104, "<unk_102>"), check_text(t, 105, "<unk>");
    sn_tokenizer_free(t);
    scratch_end(NULL);
    t = load_class(find_case(all, "XLMRobertaTokenizer"), "xlm-roberta");
    check_text(t, sn_tokenizer_vocab_size(t) - 1, "<mask>");
    assert_int_equal(sn_tokenizer_special(t, SN_TOKEN_MASK), sn_tokenizer_vocab_size(t) - 1);
    assert_int_equal(sn_tokenizer_special(t, SN_TOKEN_UNK), 3);
    sn_tokenizer_free(t);
    scratch_end(NULL);
    cJSON_Delete(all);
}

/* Marian decodes tokens of both models; names that are not in vocab.json are not its tokens. */
static void marian(void **state) {
    (void)state;
    cJSON *all = read_cases();
    const cJSON *c = find_case(all, "MarianTokenizer"), *vocab = cJSON_GetObjectItem(c, "vocab");
    sn_tokenizer *t = load_class(c, "marian");
    int32_t n = cJSON_GetArraySize(vocab);
    assert_int_equal(sn_tokenizer_vocab_size(t), n);
    for (const cJSON *e = vocab->child; e; e = e->next) {
        size_t size;
        assert_non_null(sn_tokenizer_text(t, e->valueint, &size));
    }
    int32_t french = cJSON_GetObjectItem(vocab, ">>fra<<")->valueint;
    sn_ids plain = encode_ok(t, "hello world", 11, 0),
           ids = encode_ok(t, ">>fra<< hello world", 19, SN_TOK_SPECIAL);
    assert_int_equal(ids.count, plain.count + 1);
    assert_int_equal(ids.data[0], french);
    assert_memory_equal(ids.data + 1, plain.data, plain.count * sizeof *plain.data);
    sn_ids_free(&ids);
    sn_ids_free(&plain);
    sn_tokenizer_free(t);
    scratch_end(NULL);
    cJSON_Delete(all);
}

static void refuses_folder(const char *why) {
    sn_error err = {0};
    assert_null(sn_tokenizer_load(scratch_dir, &err));
    if (!strstr(err.message, why)) fail_msg("%s", err.message);
}

/* The template's language is replaced; tokens of added_tokens.json; what is refused. */
static void languages(void **state) {
    (void)state;
    cJSON *all = read_cases();
    sn_error err = {0};
    sn_tokenizer *t = load_class(find_case(all, "MBartTokenizer"), "mbart");
    int32_t english = sn_tokenizer_language(t, "en_XX"), german = sn_tokenizer_language(t, "de_DE");
    assert_true(english > 0 && sn_tokenizer_is_language(t, german));
    assert_int_equal(sn_tokenizer_language(t, "hello"), -1);
    assert_int_equal(sn_tokenizer_language(t, "</s>"), -1);
    sn_ids ids = encode_ok(t, "hello", 5, SN_TOK_TEMPLATE);
    assert_int_equal(ids.data[ids.count - 1], english);
    sn_ids_free(&ids);
    assert_true(sn_tokenizer_set_language(t, german, &err));
    ids = encode_ok(t, "hello", 5, SN_TOK_TEMPLATE);
    assert_int_equal(ids.data[ids.count - 1], german);
    sn_ids_free(&ids);
    sn_tokenizer_free(t);
    static const char added[] = "{\"<new>\": 9000, \"my token\": 9001}", bad[] = "{\"x\": -1}",
                      other[] = "{\"tokenizer_class\": \"BarthezTokenizer\"}",
                      siglip[] = "{\"tokenizer_class\": \"SiglipTokenizer\"}", none[] = "{}",
                      model[] = "{\"model_type\": \"siglip\"}";
    write_file("added_tokens.json", added, sizeof added - 1);
    t = load_ok(scratch_dir);
    ids = encode_ok(t, "my token<new>", 13, 0);
    assert_int_equal(ids.count, 2);
    assert_true(ids.data[0] == 9001 && ids.data[1] == 9000);
    sn_ids_free(&ids);
    sn_tokenizer_free(t);
    write_file("added_tokens.json", bad, sizeof bad - 1);
    assert_null(sn_tokenizer_load(scratch_dir, &err));
    assert_non_null(strstr(err.message, "added_tokens.json"));
    write_file("tokenizer_config.json", other, sizeof other - 1);
    err = (sn_error){0};
    assert_null(sn_tokenizer_load(scratch_dir, &err));
    assert_non_null(strstr(err.message, "needs the tokenizer.json"));
    write_file("tokenizer_config.json", siglip, sizeof siglip - 1);
    refuses_folder("SiglipTokenizer changes texts to lower case without punctuation");
    write_file("tokenizer_config.json", none, sizeof none - 1);
    write_file("config.json", model, sizeof model - 1);
    refuses_folder("needs the tokenizer.json");
    scratch_end(NULL);
    t = load_class(find_case(all, "M2M100Tokenizer"), NULL);
    assert_true(sn_tokenizer_language(t, "fr") > 0);
    check_text(t, sn_tokenizer_language(t, "fr"), "__fr__");
    sn_tokenizer_free(t);
    char path[512];
    snprintf(path, sizeof path, "%s/vocab.json", scratch_dir);
    remove(path);
    err = (sn_error){0};
    assert_null(sn_tokenizer_load(scratch_dir, &err));
    assert_non_null(strstr(err.message, "needs vocab.json"));
    scratch_end(NULL);
    cJSON_Delete(all);
}

/* The model of the tests with [CLS] and [SEP] at the end; loads it with this tokenizer_config.json. */
static sn_tokenizer *load_with(const char *config) {
    static const unsigned char more[] = "\x0a\x0e\x0a\x05[CLS]\x15\0\0\0\0\x18\x03"
                                        "\x0a\x0e\x0a\x05[SEP]\x15\0\0\0\0\x18\x03";
    size_t size;
    char *model = read_whole(TOK_DATA "pieces/unigram.model", &size);
    char *longer = malloc(size + sizeof more);
    memcpy(longer, model, size);
    memcpy(longer + size, more, sizeof more - 1);
    write_file("spiece.model", longer, size + sizeof more - 1);
    write_file("tokenizer_config.json", config, strlen(config));
    free(longer);
    free(model);
    return load_ok(scratch_dir);
}

/* ALBERT's and DeBERTa's texts have the tokens that `cleaned` has without a class, and [CLS], [SEP]
 * around them. */
static void lower_case(void **state) {
    (void)state;
    static const struct {
        const char *class, *options, *text, *cleaned;
    } cases[] = {
        {"AlbertTokenizer", "", "hello world", "hello world"},
        {"AlbertTokenizerFast", "", "``Hello'' World", "\"hello\" world"},
        {"AlbertTokenizer", "", "CAF\u00c9 \u00dcn\u00efcode \ufb01", "cafe unicode fi"},
        {"AlbertTokenizer", "", "\u0130\u03a3 don't", "i\u03c3 don't"},
        {"AlbertTokenizer", ", \"keep_accents\": true", "CAF\u00c9 ''x", "caf\u00e9 \"x"},
        {"AlbertTokenizer", ", \"do_lower_case\": false", "CAF\u00c9", "CAFE"},
        {"DebertaV2Tokenizer", "", "CAF\u00c9 ``Hello''", "CAF\u00c9 ``Hello''"},
        {"DebertaV2Tokenizer", ", \"do_lower_case\": true", "CAF\u00c9", "caf\u00e9"},
    };
    assert_int_equal(scratch_make(NULL), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char json[200];
        snprintf(json, sizeof json, "{\"tokenizer_class\": \"%s\"%s}", cases[i].class,
                 cases[i].options);
        sn_tokenizer *plain = load_with("{}");
        sn_ids want = encode_ok(plain, cases[i].cleaned, strlen(cases[i].cleaned), 0);
        int32_t n = sn_tokenizer_vocab_size(plain);
        sn_tokenizer_free(plain);
        sn_tokenizer *t = load_with(json);
        assert_true(sn_tokenizer_has_template(t));
        sn_ids ids = encode_ok(t, cases[i].text, strlen(cases[i].text), SN_TOK_TEMPLATE);
        if (ids.count != want.count + 2 || ids.data[0] != n - 2 ||
            ids.data[ids.count - 1] != n - 1 ||
            memcmp(ids.data + 1, want.data, want.count * sizeof *want.data) != 0)
            fail_msg("case %zu: %s", i, json);
        if (strstr(json, "Deberta")) check_text(t, n, "[MASK]");
        sn_ids_free(&ids);
        sn_ids_free(&want);
        sn_tokenizer_free(t);
    }
    static const char split[] =
        "{\"tokenizer_class\": \"DebertaV2Tokenizer\", \"split_by_punct\": true}";
    write_file("tokenizer_config.json", split, sizeof split - 1);
    refuses_folder("\"split_by_punct\" is not supported");
    scratch_end(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(classes), cmocka_unit_test(tokens),
                                       cmocka_unit_test(marian), cmocka_unit_test(languages),
                                       cmocka_unit_test(lower_case)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
