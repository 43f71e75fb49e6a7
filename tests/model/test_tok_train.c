/* Trained vocabularies: byte-level BPE against the plain algorithm, word and character level, the
 * special tokens at the end, saving and loading, rejected input. */
#include "tests/model/tok_check.h"

#include <unistd.h>

#define SHAKESPEARE SN_SOURCE_DIR "/examples/data/tinyshakespeare.txt"

static sn_tokenizer *train_ok(sn_train_options o, const char *text, size_t size) {
    sn_error err = {0};
    sn_tokenizer *t = sn_tokenizer_train(&o, text, size, &err);
    if (!t) fail_msg("%s", err.message);
    return t;
}

static void check_specials_last(const sn_tokenizer *t) {
    int32_t n = sn_tokenizer_vocab_size(t);
    assert_int_equal(sn_tokenizer_special(t, SN_TOKEN_MASK), n - 3);
    assert_int_equal(sn_tokenizer_special(t, SN_TOKEN_BOS), n - 2);
    assert_int_equal(sn_tokenizer_special(t, SN_TOKEN_EOS), n - 1);
}

/* Saves, loads, and compares vocabulary, special tokens and ids. */
static void check_saved(const sn_tokenizer *t, const char *text, size_t size) {
    char dir[] = "/tmp/sn_tok_train_XXXXXX", path[64];
    static const char *const files[] = {"vocab.json",    "merges.txt", "vocabulary.json",
                                        "tokenizer.bin", "vocab.txt",  "tokenizer_config.json"};
    sn_error err = {0};
    assert_non_null(mkdtemp(dir));
    if (!sn_tokenizer_save(t, dir, &err)) fail_msg("%s", err.message);
    sn_tokenizer *again = load_ok(dir);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        remove(path);
    }
    assert_int_equal(rmdir(dir), 0); /* nothing else was written */
    assert_string_equal(sn_tokenizer_kind(again), sn_tokenizer_kind(t));
    int32_t n = sn_tokenizer_vocab_size(t);
    assert_int_equal(sn_tokenizer_vocab_size(again), n);
    for (int r = 0; r < SN_TOKEN_ROLES; r++)
        assert_int_equal(sn_tokenizer_special(again, (sn_token_role)r),
                         sn_tokenizer_special(t, (sn_token_role)r));
    for (int32_t id = 0; id < n; id++) {
        size_t a, b;
        const char *x = sn_tokenizer_text(t, id, &a), *y = sn_tokenizer_text(again, id, &b);
        assert_int_equal(a, b);
        assert_memory_equal(x, y, a);
    }
    sn_ids want = encode_ok(t, text, size, 0), got = encode_ok(again, text, size, 0);
    assert_int_equal(got.count, want.count);
    assert_memory_equal(got.data, want.data, want.count * sizeof *want.data);
    sn_ids_free(&want);
    sn_ids_free(&got);
    sn_tokenizer_free(again);
}

/* ---- BPE ---- */

enum { PLAIN = 4000 };

/* Algorithm 1 of Sennrich et al., implemented directly for a text of letters, in which a word is a
 * run of letters with the space before it: symbols are ids, 0 ends a word. Writes the merges to out
 * as texts. */
static size_t plain_bpe(const sn_tokenizer *t, const char *text, size_t size, size_t merges,
                        char out[][2][64]) {
    static int32_t sym[2 * PLAIN], word[2 * PLAIN];
    static char name[2 * PLAIN][64];
    size_t n = 0, made = 0;
    int32_t next = 256;
    for (int b = 0; b < 256; b++) {
        char c = (char)b;
        int32_t id = sn_tokenizer_id(t, &c, 1);
        name[id][0] = c, name[id][1] = 0;
    }
    for (size_t i = 0; i < size; i++) {
        if (i && text[i] == ' ') sym[n++] = -1;
        sym[n++] = sn_tokenizer_id(t, text + i, 1);
    }
    for (; made < merges; made++) {
        int32_t bl = -1, br = -1;
        size_t best = 1; /* at least twice */
        for (size_t i = 0; i + 1 < n; i++) {
            if (sym[i] < 0 || sym[i + 1] < 0) continue;
            size_t count = 0;
            for (size_t j = 0; j + 1 < n; j++)
                count += sym[j] == sym[i] && sym[j + 1] == sym[i + 1];
            bool lower = sym[i] < bl || (sym[i] == bl && sym[i + 1] < br);
            if (count > best || (count == best && bl >= 0 && lower))
                best = count, bl = sym[i], br = sym[i + 1];
        }
        if (bl < 0) break;
        strcpy(out[made][0], name[bl]);
        strcpy(out[made][1], name[br]);
        char both[128];
        snprintf(both, sizeof both, "%s%s", name[bl], name[br]);
        int32_t token = next;
        for (int32_t id = 256; id < next; id++)
            if (!strcmp(name[id], both)) token = id;
        if (token == next) snprintf(name[next++], 64, "%.63s", both);
        size_t m = 0;
        for (size_t i = 0; i < n; i++) {
            bool hit = i + 1 < n && sym[i] == bl && sym[i + 1] == br;
            word[m++] = hit ? token : sym[i];
            i += hit;
        }
        memcpy(sym, word, m * sizeof *sym);
        n = m;
    }
    return made;
}

/* A text of few letters, so that pairs overlap ("aaa") and tokens arise in two ways. */
static size_t make_text(char *text, unsigned seed, int letters) {
    size_t n = 0;
    while (n < 600) {
        seed = seed * 1664525u + 1013904223u;
        unsigned r = seed >> 16;
        bool space = n && r % 5 == 0 && text[n - 1] != ' ';
        text[n++] = space ? ' ' : (char)('a' + r / 5 % (unsigned)letters);
    }
    return n;
}

/* Overlapping pairs are counted by both (the plain implementation counts "aaa" twice, too). */
static void bpe_is_the_algorithm(void **state) {
    (void)state;
    static char text[PLAIN], want[100][2][64];
    for (unsigned seed = 1; seed <= 12; seed++) {
        size_t size = make_text(text, seed, 1 + (int)seed % 4);
        sn_tokenizer *t = train_ok(
            (sn_train_options){.kind = SN_TRAIN_BPE, .vocab_size = 256 + 60 + 3}, text, size);
        size_t made = plain_bpe(t, text, size, 60, want);
        int32_t id = 256, n = sn_tokenizer_vocab_size(t) - 3;
        for (size_t i = 0; i < made && id < n; i++) {
            char both[130];
            size_t length;
            int len = snprintf(both, sizeof both, "%s%s", want[i][0], want[i][1]);
            if (sn_tokenizer_id(t, both, (size_t)len) < id) continue; /* made before */
            const char *got = sn_tokenizer_text(t, id++, &length);
            assert_string_equal(got, both);
        }
        assert_int_equal(id, n);
        check_round_trip(t, text, size);
        check_saved(t, text, size);
        sn_tokenizer_free(t);
    }
}

static void bpe_shakespeare(void **state) {
    (void)state;
    size_t size;
    char *text = read_whole(SHAKESPEARE, &size);
    sn_train_options o = {.kind = SN_TRAIN_BPE, .vocab_size = 1000};
    sn_tokenizer *t = train_ok(o, text, 300000), *same = train_ok(o, text, 300000);
    assert_string_equal(sn_tokenizer_kind(t), "gpt2-bpe");
    assert_int_equal(sn_tokenizer_vocab_size(t), 1000);
    check_specials_last(t);
    for (int32_t id = 0; id < 1000; id++) {
        size_t a, b;
        assert_string_equal(sn_tokenizer_text(t, id, &a), sn_tokenizer_text(same, id, &b));
    }
    assert_int_equal(sn_tokenizer_id(t, "!", 1), 0); /* as in GPT-2 */
    assert_true(sn_tokenizer_id(t, " the", 4) > 256);
    sn_ids ids = encode_ok(t, text, 300000, 0);
    assert_true(ids.count < 300000 / 2.2); /* it compresses */
    sn_ids_free(&ids);
    check_round_trip(t, text, size); /* including unseen text */
    check_round_trip(t, "\xFF\0\x80 \xE4\xBD\xA0", 7);
    check_saved(t, text, 20000);
    int32_t last = sn_tokenizer_vocab_size(t) - 1;
    check_ids(t, "<|eos|>", SN_TOK_SPECIAL | SN_TOK_BOS, last - 1, last, -1);
    sn_tokenizer_free(t);
    sn_tokenizer_free(same);
    free(text);
}

static void bpe_small(void **state) {
    (void)state;
    sn_train_options o = {.kind = SN_TRAIN_BPE};
    sn_tokenizer *t = train_ok(o, "ab", 2); /* nothing occurs twice */
    assert_int_equal(sn_tokenizer_vocab_size(t), 259);
    check_specials_last(t);
    check_round_trip(t, "xyz \n", 5);
    check_saved(t, "xyz", 3);
    sn_tokenizer_free(t);
    t = train_ok((sn_train_options){.kind = SN_TRAIN_BPE, .min_count = 1}, "ab", 2);
    assert_int_equal(sn_tokenizer_vocab_size(t), 260);
    sn_tokenizer_free(t);
    char run[512]; /* a^512 : "aa", "aaaa" ... */
    memset(run, 'a', sizeof run);
    t = train_ok(o, run, sizeof run);
    size_t length;
    assert_string_equal(sn_tokenizer_text(t, 256, &length), "aa");
    assert_string_equal(sn_tokenizer_text(t, 257, &length), "aaaa");
    assert_int_equal(sn_tokenizer_vocab_size(t), 256 + 8 + 3); /* up to 256 letters, twice */
    sn_tokenizer_free(t);
}

/* ---- characters and words ---- */

static void characters(void **state) {
    (void)state;
    static const char text[] = "b\u00E9a\n\u4F60a\"\\\t b";
    size_t size = sizeof text - 1;
    sn_tokenizer *t = train_ok((sn_train_options){.kind = SN_TRAIN_CHAR}, text, size);
    assert_string_equal(sn_tokenizer_kind(t), "char");
    assert_int_equal(sn_tokenizer_vocab_size(t), 9 + 3);
    check_specials_last(t);
    check_ids(t, "\t\n \"\\ab\u00E9\u4F60", 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, -1);
    check_ids(t, "a<|bos|>b", SN_TOK_SPECIAL | SN_TOK_EOS, 5, 10, 6, 11, -1);
    check_round_trip(t, text, size);
    check_saved(t, text, size);
    sn_ids ids = {0};
    sn_error err = {0};
    assert_false(sn_tokenizer_encode(t, "az", 2, 0, &ids, &err));
    assert_int_equal(err.code, SN_ERR_RANGE);
    assert_non_null(strstr(err.message, "'z' (U+007A)"));
    err.code = SN_OK;
    assert_false(sn_tokenizer_encode(t, "a\xFF", 2, 0, &ids, &err));
    assert_non_null(strstr(err.message, "0xFF"));
    assert_false(sn_tokenizer_encode(t, "\0", 1, 0, &ids, NULL));
    assert_int_equal(ids.count, 0);
    sn_ids_free(&ids);
    sn_tokenizer_free(t);
    /* room for three characters only: the most frequent ones, the rest is unk */
    sn_train_options o = {.kind = SN_TRAIN_CHAR, .vocab_size = 7, .unk = true};
    t = train_ok(o, "zzzyyyaaxw", 10);
    assert_int_equal(sn_tokenizer_special(t, SN_TOKEN_UNK), 0);
    check_ids(t, "ayzx\xFF", 0, 1, 2, 3, 0, 0, -1);
    check_saved(t, "xyz", 3);
    sn_tokenizer_free(t);
}

static void words(void **state) {
    (void)state;
    static const char text[] = "The cat's hat; the cat sat.\n\n  the d\u00E9j\u00E0-vu cat";
    size_t size = sizeof text - 1;
    sn_tokenizer *t = train_ok((sn_train_options){.kind = SN_TRAIN_WORD}, text, size);
    assert_string_equal(sn_tokenizer_kind(t), "word");
    check_specials_last(t);
    check_round_trip(t, text, size);
    check_saved(t, text, size);
    int32_t cat = sn_tokenizer_id(t, "cat", 3), the = sn_tokenizer_id(t, "the", 3);
    int32_t vu = sn_tokenizer_id(t, "d\u00E9j\u00E0-vu", 9), two = sn_tokenizer_id(t, "  ", 2);
    int32_t space = sn_tokenizer_id(t, " ", 1), c = sn_tokenizer_id(t, "c", 1);
    /* 2 cats, 2 thes: ties are broken by bytes */
    assert_true(the > 0 && vu > the && two > the && cat < the);
    check_ids(t, "the cat", 0, the, space, cat, -1);
    check_ids(t, "catc", 0, c, sn_tokenizer_id(t, "a", 1), sn_tokenizer_id(t, "t", 1), c, -1);
    check_round_trip(t, "hatsss", 6); /* an unseen word, encoded as characters */
    sn_tokenizer_free(t);
    sn_train_options o = {.kind = SN_TRAIN_WORD, .min_count = 2, .unk = true};
    t = train_ok(o, text, size);
    assert_true(sn_tokenizer_id(t, "cat", 3) > 0);
    assert_int_equal(sn_tokenizer_id(t, "hat", 3), -1);
    check_ids(t, "Q\xFF", 0, 0, 0, -1);
    sn_tokenizer_free(t);
    char *play = read_whole(SHAKESPEARE, &size);
    t = train_ok((sn_train_options){.kind = SN_TRAIN_WORD, .vocab_size = 3000}, play, size);
    assert_int_equal(sn_tokenizer_vocab_size(t), 3000);
    check_round_trip(t, play, size);
    check_saved(t, play, 20000);
    sn_tokenizer_free(t);
    free(play);
}

/* The other kinds also save their files. */
static void save_loaded(void **state) {
    (void)state;
    static const char text[] = "Once upon a time \u4F60 \xFF";
    static const char *const from[] = {TOK_DATA "gpt2", TOK_DATA "bert", TOK_STORIES};
    for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
        sn_tokenizer *t = load_ok(from[i]);
        check_saved(t, text, sizeof text - 1);
        sn_tokenizer_free(t);
    }
    char dir[] = "/tmp/sn_tok_train_XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/tokenizer.bin", dir);
    sn_tokenizer *t = load_ok(TOK_STORIES);
    assert_true(sn_tokenizer_save(t, dir, NULL));
    size_t a, b;
    char *x = read_whole(TOK_STORIES, &a), *y = read_whole(path, &b);
    assert_int_equal(a, b);
    assert_memory_equal(x, y, a); /* to the byte */
    free(x);
    free(y);
    remove(path);
    rmdir(dir);
    sn_error err = {0};
    assert_false(sn_tokenizer_save(t, dir, &err)); /* no such directory */
    assert_int_equal(err.code, SN_ERR_FILE);
    sn_tokenizer_free(t);
}

static void refusals(void **state) {
    (void)state;
    static const struct {
        sn_train_options o;
        const char *text, *word;
    } bad[] = {
        {{.kind = SN_TRAIN_BPE, .vocab_size = 258}, "a", "259"},
        {{.kind = SN_TRAIN_BPE, .vocab_size = -1}, "a", "too small"},
        {{.kind = SN_TRAIN_BPE, .vocab_size = (1 << 24) + 1}, "a", "above"},
        {{.kind = SN_TRAIN_BPE, .min_count = -1}, "a", "minimum count"},
        {{.kind = SN_TRAIN_BPE}, "", "empty"},
        {{.kind = SN_TRAIN_CHAR}, "", "empty"},
        {{.kind = SN_TRAIN_CHAR, .vocab_size = 3}, "a", "at least 4"},
        {{.kind = SN_TRAIN_CHAR, .vocab_size = 5}, "abc", "3 characters"},
        {{.kind = SN_TRAIN_WORD}, "ab\xFF", "byte 2"},
        {{.kind = (sn_train_kind)9}, "a", "kind"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        sn_error err = {0};
        assert_null(sn_tokenizer_train(&bad[i].o, bad[i].text, strlen(bad[i].text), &err));
        if (!strstr(err.message, bad[i].word)) fail_msg("%zu: %s", i, err.message);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bpe_is_the_algorithm),
        cmocka_unit_test(bpe_shakespeare),
        cmocka_unit_test(bpe_small),
        cmocka_unit_test(characters),
        cmocka_unit_test(words),
        cmocka_unit_test(save_loaded),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
