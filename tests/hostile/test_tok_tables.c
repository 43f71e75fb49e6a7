/* tokenizer.tables: every tokenizer of the test data, saved as tables and loaded again, gives the same
 * ids, texts and places. Files that are cut off or damaged are refused, or at worst give other ids. */
#include "tests/model/tok_check.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <unistd.h>

#define PIECES TOK_DATA "pieces/"
#define CORPUS SN_SOURCE_DIR "/examples/data/tinyshakespeare.txt"

static const char *const sources[] = {TOK_DATA "gpt2",
                                      TOK_DATA "bert",
                                      TOK_STORIES,
                                      PIECES "unigram.model",
                                      PIECES "unigram_bytes.model",
                                      PIECES "bpe_bytes.model",
                                      PIECES "bpe.model",
                                      PIECES "bpe_suffix.model",
                                      PIECES "pegasus.model",
                                      PIECES "t5.json",
                                      PIECES "xlm.json",
                                      PIECES "llama.json",
                                      PIECES "gemma.json",
                                      PIECES "roberta.json",
                                      PIECES "llama3.json",
                                      PIECES "falcon.json",
                                      PIECES "digits.json",
                                      PIECES "clip.json",
                                      PIECES "bert.json",
                                      PIECES "bert_cased.json",
                                      PIECES "bert_accents.json",
                                      PIECES "words.json",
                                      PIECES "delimiter.json",
                                      PIECES "added.json"};
enum { SOURCES = sizeof sources / sizeof *sources, HEAD = 64 };

static char dir[] = "/tmp/sn_tok_tables_XXXXXX", file[64];

static int make_dir(void **state) {
    (void)state;
    snprintf(file, sizeof file, "%s/tokenizer.tables", mkdtemp(dir) ? dir : "");
    return 0;
}

static int remove_dir(void **state) {
    (void)state;
    remove(file);
    return rmdir(dir);
}

static void save(const sn_tokenizer *t) {
    sn_error err = {0};
    if (!sn_tokenizer_save_tables(t, dir, &err)) fail_msg("%s", err.message);
}

static void same_bytes(const void *a, size_t na, const void *b, size_t nb) {
    assert_int_equal(na, nb);
    if (na) assert_memory_equal(a, b, na);
}

/* Ids and places, and what decoding gives; or the same error. */
static void same_encoding(const sn_tokenizer *a, const sn_tokenizer *b, const char *text,
                          size_t size, unsigned flags) {
    const sn_tokenizer *const t[2] = {a, b};
    sn_ids ids[2] = {{0}, {0}};
    sn_error err[2] = {{0}, {0}};
    bool ok[2];
    for (int i = 0; i < 2; i++)
        ok[i] = sn_tokenizer_encode(t[i], text, size, flags, &ids[i], &err[i]);
    assert_int_equal(ok[0], ok[1]);
    assert_string_equal(err[0].message, err[1].message);
    same_bytes(ids[0].data, ids[0].count * sizeof(int32_t), ids[1].data,
               ids[1].count * sizeof(int32_t));
    sn_bytes back[2] = {decode_ok(a, ids[0], flags), decode_ok(b, ids[1], flags)};
    same_bytes(back[0].data, back[0].size, back[1].data, back[1].size);
    sn_place *place[2] = {calloc(ids[0].count + 1, sizeof(sn_place)),
                          calloc(ids[0].count + 1, sizeof(sn_place))};
    bool placed[2] = {false, false};
    for (int i = 0; i < 2 && !flags; i++)
        placed[i] = sn_tokenizer_locate(t[i], text, size, &ids[i], place[i], &err[i]);
    assert_int_equal(placed[0], placed[1]);
    for (size_t i = 0; placed[0] && i < ids[0].count; i++)
        assert_true(place[0][i].begin == place[1][i].begin && place[0][i].end == place[1][i].end &&
                    place[0][i].continues == place[1][i].continues);
    for (int i = 0; i < 2; i++) {
        free(place[i]);
        sn_ids_free(&ids[i]);
        sn_bytes_free(&back[i]);
    }
}

static void same_facts(sn_tokenizer *a, sn_tokenizer *b) {
    assert_string_equal(sn_tokenizer_kind(a), sn_tokenizer_kind(b));
    assert_int_equal(sn_tokenizer_vocab_size(a), sn_tokenizer_vocab_size(b));
    for (int r = 0; r < SN_TOKEN_ROLES; r++)
        assert_int_equal(sn_tokenizer_special(a, r), sn_tokenizer_special(b, r));
    for (int unknown = 0; unknown < 2; unknown++)
        assert_int_equal(sn_tokenizer_adds_bos(a, unknown), sn_tokenizer_adds_bos(b, unknown));
    assert_int_equal(sn_tokenizer_has_template(a), sn_tokenizer_has_template(b));
    assert_int_equal(sn_tokenizer_needs_unicode(a), sn_tokenizer_needs_unicode(b));
    assert_int_equal(sn_tokenizer_needs_regex(a), sn_tokenizer_needs_regex(b));
    for (int32_t id = -1; id <= sn_tokenizer_vocab_size(a); id++) {
        size_t na, nb;
        const char *x = sn_tokenizer_text(a, id, &na), *y = sn_tokenizer_text(b, id, &nb);
        assert_int_equal(!x, !y);
        same_bytes(x, na, y, nb);
        assert_int_equal(sn_tokenizer_is_language(a, id), sn_tokenizer_is_language(b, id));
        if (x) assert_int_equal(sn_tokenizer_id(a, x, na), sn_tokenizer_id(b, x, nb));
    }
    sn_ids out[2] = {{0}, {0}}, types[2] = {{0}, {0}};
    sn_tokenizer *const t[2] = {a, b};
    size_t at[2];
    for (int i = 0; i < 2; i++) {
        const int32_t second[] = {2, 3};
        sn_error err = {0};
        assert_true(sn_tokenizer_join(t[i], &(sn_ids){(int32_t[]){1}, 1, 1}, second, 2, &out[i],
                                      &types[i], &at[i], &err));
    }
    assert_int_equal(at[0], at[1]);
    same_bytes(out[0].data, out[0].count * 4, out[1].data, out[1].count * 4);
    same_bytes(types[0].data, types[0].count * 4, types[1].data, types[1].count * 4);
    for (int i = 0; i < 2; i++) {
        sn_ids_free(&out[i]);
        sn_ids_free(&types[i]);
    }
}

static void same_text(const sn_tokenizer *a, const sn_tokenizer *b, const char *text, size_t size) {
    static const unsigned flags[] = {0, SN_TOK_SPECIAL | SN_TOK_TEMPLATE};
    for (size_t i = 0; i < 2; i++) same_encoding(a, b, text, size, flags[i]);
}

static void same_results(void **state) {
    (void)state;
    static const char mark[] = "\n__ggml_vocab_test__\n";
    size_t all, strings_size;
    char *corpus = read_whole(CORPUS, &all);
    char *strings = read_whole(PIECES "strings.txt", &strings_size);
    for (size_t i = 0; i < SOURCES; i++) {
        sn_tokenizer *t = load_ok(sources[i]);
        save(t);
        sn_tokenizer *tables = load_ok(i % 2 ? file : dir);
        sn_error err = {0};
        same_facts(t, tables);
        for (char *at = strings, *stop, *end = strings + strings_size;
             (stop = memmem(at, (size_t)(end - at), mark, strlen(mark))); at = stop + strlen(mark))
            same_text(t, tables, at, (size_t)(stop - at));
        same_text(t, tables, corpus, 400);
        same_encoding(t, tables, corpus, i < 3 ? 60000 : 4000, SN_TOK_SPECIAL);
        same_text(t, tables, "\xff\xfe odd \xc3 bytes \x00 here", 22);
        assert_true(sn_tokenizer_verify(t, &err) && sn_tokenizer_verify(tables, &err));
        assert_false(sn_tokenizer_save(tables, dir, &err));
        size_t n, again; /* same files, same bytes */
        char *first = read_whole(file, &n);
        sn_tokenizer *other = load_ok(sources[i]);
        save(other);
        char *second = read_whole(file, &again);
        same_bytes(first, n, second, again);
        free(first);
        free(second);
        save(tables); /* tables of tables */
        sn_tokenizer_free(other);
        other = load_ok(file);
        same_encoding(t, other, corpus, 2000, SN_TOK_SPECIAL);
        sn_tokenizer_free(other);
        sn_tokenizer_free(tables);
        sn_tokenizer_free(t);
    }
    free(corpus);
    free(strings);
}

/* A language is set in a copy: the file and other tokenizers of it do not change. */
static void languages(void **state) {
    (void)state;
    sn_tokenizer *t = load_ok(PIECES "xlm.json");
    save(t);
    sn_tokenizer *a = load_ok(file), *b = load_ok(file);
    sn_error err = {0};
    assert_true(sn_tokenizer_set_language(a, 7, &err));
    assert_true(sn_tokenizer_set_language(t, 7, &err));
    same_encoding(t, a, "text", 4, SN_TOK_TEMPLATE);
    sn_ids x = encode_ok(a, "text", 4, SN_TOK_TEMPLATE),
           y = encode_ok(b, "text", 4, SN_TOK_TEMPLATE);
    assert_true(x.count != y.count || memcmp(x.data, y.data, 4 * x.count));
    sn_ids_free(&x);
    sn_ids_free(&y);
    sn_tokenizer_free(a);
    sn_tokenizer_free(b);
    sn_tokenizer_free(t);
}

/* ---- damage ---- */

static void refused(const char *data, size_t size, const char *why) {
    sn_error err = {0};
    write_whole(file, data, size);
    assert_null(sn_tokenizer_load(file, &err));
    assert_int_equal(err.code, SN_ERR_FILE);
    if (!strstr(err.message, file) && !strstr(err.message, "tokenizer.tables"))
        fail_msg("no file in: %s", err.message);
    if (!strstr(err.message, why)) fail_msg("\"%s\" instead of \"%s\"", err.message, why);
}

static uint64_t get_u64(const char *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

static void damaged(void **state) {
    (void)state;
    sn_tokenizer *t = load_ok(TOK_STORIES);
    save(t);
    size_t n;
    char *good = read_whole(file, &n);
    const size_t fields = get_u64(good + 16);
    for (size_t cut = 0; cut < n; cut += cut < 200 ? 1 : 997)
        refused(good, cut, cut < HEAD ? "cut off" : "is cut off or damaged");
    for (size_t at = 0; at < HEAD + fields; at += at < 40 ? 1 : 13) {
        if (at >= 48 && at < HEAD) continue; /* zeros that nothing reads */
        good[at] ^= 0x10;
        if (at < 40 || at >= HEAD) refused(good, n, "");
        good[at] ^= 0x10;
    }
    good[n - 5] ^= 1; /* in a list: found by reading all */
    write_whole(file, good, n);
    sn_tokenizer *bad = load_ok(file);
    sn_error err = {0};
    assert_false(sn_tokenizer_verify(bad, &err));
    assert_non_null(strstr(err.message, "damaged"));
    sn_tokenizer_free(bad);
    sn_tokenizer_free(t);
    free(good);
}

/* Makes the hash of the fields fit again, as whoever writes a hostile file would. */
static void sign(char *data) {
    memset(data + 32, 0, 8);
    uint64_t hash = XXH3_64bits_withSeed(data + HEAD, get_u64(data + 16), XXH3_64bits(data, 48));
    memcpy(data + 32, &hash, 8);
}

static void use(const sn_tokenizer *t, const char *text, size_t size) {
    sn_ids ids = {0};
    sn_bytes back = {0};
    sn_error err = {0};
    size_t n;
    (void)sn_tokenizer_encode(t, text, size, SN_TOK_SPECIAL | SN_TOK_TEMPLATE, &ids, &err);
    (void)sn_tokenizer_decode(t, ids.data, ids.count, SN_TOK_SPECIAL, &back, &err);
    for (int32_t id = 0; id < 600; id++) (void)sn_tokenizer_text(t, id, &n);
    sn_ids_free(&ids);
    sn_bytes_free(&back);
}

/* Nothing that a file can hold makes the loader, or what uses it, read outside or not end. */
static void hostile(void **state) {
    (void)state;
    static const char text[] = "Once upon a time, na\xc3\xafve <s> 12 \xf0\x9f\x98\x80 the  end";
    uint32_t random = 1;
    size_t tried = 0, loaded = 0;
    for (size_t i = 0; i < SOURCES; i++) {
        sn_tokenizer *t = load_ok(sources[i]);
        save(t);
        sn_tokenizer_free(t);
        size_t n;
        char *good = read_whole(file, &n), *bad = malloc(n);
        const size_t fields = get_u64(good + 16), rounds = n > 300000 ? 6 : 40;
        for (size_t round = 0; round < rounds; round++) {
            memcpy(bad, good, n);
            for (int change = 0; change < (round % 2 ? 3 : 1 + (int)(n / 4000)); change++) {
                random = random * 1664525 + 1013904223;
                size_t room = round % 2 ? fields : n - HEAD - fields;
                size_t at = HEAD + (round % 2 ? 0 : fields) + (random >> 4) % room;
                bad[at] = change % 3 ? (char)(random >> 24) : change % 2 ? -1 : 127;
            }
            sign(bad);
            write_whole(file, bad, n);
            sn_error err = {0};
            tried++;
            if (!(t = sn_tokenizer_load(file, &err))) continue;
            use(t, text, sizeof text - 1);
            sn_tokenizer_free(t);
            loaded++;
        }
        free(good);
        free(bad);
    }
    assert_true(loaded > tried / 3); /* lists are not checked before they are used */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_results),
        cmocka_unit_test(languages),
        cmocka_unit_test(damaged),
        cmocka_unit_test(hostile),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
