/* test_tok_pairs.c: two texts as one sequence, and the places of tokens in their text. The expected
 * ids are those that Hugging Face's post-processors are documented to give. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "model/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DATA SN_SOURCE_DIR "/tests/data/tokenizers/"

static sn_tokenizer *load(const char *name) {
    char path[512];
    sn_error err = {0};
    snprintf(path, sizeof path, DATA "%s", name);
    sn_tokenizer *t = sn_tokenizer_load(path, &err);
    if (!t) fail_msg("%s: %s", name, err.message);
    return t;
}

/* As "3 5 | 7", with | where the second text begins, and /1 after tokens of type 1. */
static void joins(const char *name, const char *want) {
    static const int32_t first[] = {5, 6}, second[] = {7};
    sn_tokenizer *t = load(name);
    sn_ids a = {(int32_t *)(uintptr_t)first, 2, 2}, out = {0}, types = {0};
    sn_error err = {0};
    size_t at;
    char text[256] = "";
    if (!sn_tokenizer_join(t, &a, second, 1, &out, &types, &at, &err)) fail_msg("%s", err.message);
    assert_int_equal(out.count, types.count);
    for (size_t i = 0; i < out.count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s%d%s", i ? " " : "",
                 i == at ? "| " : "", (int)out.data[i], types.data[i] ? "/1" : "");
    if (strcmp(text, want)) fail_msg("%s: %s, wanted %s", name, text, want);
    sn_ids_free(&out);
    sn_ids_free(&types);
    sn_tokenizer_free(t);
}

static void test_join(void **state) {
    (void)state;
    joins("bert/vocab.txt", "101 5 6 102 | 7/1 102/1");
    joins("pieces/bert.json", "5 6 | 7"); /* its template adds nothing to pairs */
    joins("pieces/bert_cased.json", "2 5 6 3 | 7/1 3/1");
    joins("pieces/roberta.json", "316 5 6 317 317 | 7 317");
    joins("gpt2", "50256 5 6 50256 50256 | 7 50256");
}

/* Text with the places of its tokens in brackets; a word's later tokens in <>. */
static void places(const char *name, const char *text, const char *want) {
    sn_tokenizer *t = load(name);
    sn_ids ids = {0};
    sn_error err = {0};
    sn_place place[64];
    char shown[256] = "";
    size_t size = strlen(text), n = 0;
    if (!sn_tokenizer_encode(t, text, size, SN_TOK_SPECIAL, &ids, &err))
        fail_msg("%s: %s", name, err.message);
    assert_true(ids.count <= 64);
    if (!sn_tokenizer_locate(t, text, size, &ids, place, &err)) fail_msg("%s", err.message);
    for (size_t i = 0; i < ids.count; i++)
        n += (size_t)snprintf(shown + n, sizeof shown - n, place[i].continues ? "<%.*s>" : "[%.*s]",
                              (int)(place[i].end - place[i].begin), text + place[i].begin);
    if (strcmp(shown, want)) fail_msg("%s, '%s': %s, wanted %s", name, text, shown, want);
    sn_ids_free(&ids);
    sn_tokenizer_free(t);
}

static void test_places(void **state) {
    (void)state;
    places("bert/vocab.txt", "  Más vital, Playwrights!", "[Más][vital][,][Playwright]<s>[!]");
    places("bert/vocab.txt", "東京 is 2", "[東][京][is][2]");
    places("bert/vocab.txt", "a [MASK] b", "[a][[MASK]][b]");
    places("bert/vocab.txt", "", "");
    places("bert/vocab.txt", "  ", "");
    places("gpt2", "Hello  world, unfathomably", "[Hello]<>[world][,][unf]<athom><ably>");
}

/* Whatever the kind and the text: places are in order, and cover no white space around words. */
static void test_any(void **state) {
    (void)state;
    static const char *const files[] = {
        "pieces/roberta.json", "pieces/xlm.json",   "pieces/t5.json",          "pieces/llama.json",
        "pieces/bpe.model",    "pieces/words.json", "pieces/bert_accents.json"};
    static const char *const texts[] = {"Hello  world, it's 12.5%!",
                                        "Ünïcödé ﬁne \t x\n\ny ",
                                        "東京タワー and 서울",
                                        "a",
                                        " a ",
                                        "x\xff\xfe y"};
    for (size_t f = 0; f < sizeof files / sizeof *files; f++)
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
            sn_tokenizer *t = load(files[f]);
            sn_ids ids = {0};
            sn_error err = {0};
            size_t size = strlen(texts[k]), last = 0;
            if (sn_tokenizer_encode(t, texts[k], size, SN_TOK_SPECIAL, &ids, &err)) {
                sn_place *p = calloc(ids.count + 1, sizeof *p);
                assert_non_null(p);
                if (!sn_tokenizer_locate(t, texts[k], size, &ids, p, &err))
                    fail_msg("%s: %s", files[f], err.message);
                for (size_t i = 0; i < ids.count; i++) {
                    assert_true(p[i].begin <= p[i].end && p[i].end <= size && p[i].begin >= last);
                    last = p[i].begin;
                    assert_true(p[i].begin == p[i].end || texts[k][p[i].begin] != ' ');
                }
                free(p);
            }
            sn_ids_free(&ids);
            sn_tokenizer_free(t);
        }
}

/* A folder of DeBERTa's, whose SentencePiece model has a name of its own. */
static void test_name(void **state) {
    (void)state;
    char dir[] = "/tmp/sn_test_XXXXXX", path[64];
    sn_error err = {0};
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/spm.model", dir);
    assert_int_equal(symlink(DATA "pieces/unigram.model", path), 0);
    sn_tokenizer *t = sn_tokenizer_load(dir, &err);
    if (!t) fail_msg("%s", err.message);
    assert_string_equal(sn_tokenizer_kind(t), "unigram");
    sn_tokenizer_free(t);
    remove(path);
    remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_join),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_any),
        cmocka_unit_test(test_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
