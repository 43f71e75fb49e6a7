/* Tokenizer files that are missing, truncated, hostile or randomly mutated, and random bytes as
 * text: each is rejected with a message or works; nothing crashes (runs under the sanitizers). What
 * loads must encode, decode and answer queries within bounds. */
#include "tests/model/tok_check.h"

#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/sn_tok_files_XXXXXX";
static uint32_t seed = 12345;

static uint32_t next_random(uint32_t below) {
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

static const char *path_of(const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static int make_dir(void **state) {
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static void remove_files(void) {
    static const char *const names[] = {
        "tokenizer.json",        "vocabulary.json", "vocab.json",   "merges.txt",
        "tokenizer.bin",         "vocab.txt",       "encoder.json", "vocab.bpe",
        "tokenizer_config.json", "odd.model",       "odd.vocab",    "tokenizer.model"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) remove(path_of(names[i]));
}

static int remove_dir(void **state) {
    (void)state;
    remove_files();
    return rmdir(dir);
}

static const char text[] =
    "The cat's 12 d\u00E9j\u00E0-vu\n\n \u4F60\u597D <s>[MASK] \xFF\x80\0 aaaab";

/* Everything that a loaded tokenizer, however odd, must survive. */
static void use(const sn_tokenizer *t) {
    sn_error err = {0};
    sn_ids ids = {0};
    sn_bytes out = {0};
    int32_t n = sn_tokenizer_vocab_size(t);
    size_t size;
    for (unsigned flags = 0; flags < 8; flags++) {
        sn_tokenizer_encode(t, text, sizeof text, flags, &ids, &err);
        for (size_t i = 0; i < ids.count; i++) assert_in_range(ids.data[i], 0, n - 1);
        sn_tokenizer_decode(t, ids.data, ids.count, flags, &out, &err);
    }
    for (int32_t id = -1; id <= n; id++) {
        sn_text_stream d = sn_text_stream_begin(t, SN_TOK_SPECIAL);
        bool is_token = sn_tokenizer_text(t, id, &size);
        assert_int_equal(sn_text_stream_next(&d, id, &out, NULL), is_token);
    }
    sn_ids_free(&ids);
    sn_bytes_free(&out);
}

/* Loads the directory or a file in it; a failure must have a message. */
static bool try_load(const char *path) {
    sn_error err = {0};
    sn_tokenizer *t = sn_tokenizer_load(path, &err);
    if (t) use(t);
    assert_true(t ? err.code == SN_OK : err.code != SN_OK && err.message[0]);
    sn_tokenizer_free(t);
    return t;
}

static void refuse(const char *path, const char *word) {
    sn_error err = {0};
    assert_null(sn_tokenizer_load(path, &err));
    assert_int_equal(err.code, SN_ERR_FILE);
    if (!strstr(err.message, word)) fail_msg("%s", err.message);
    assert_null(sn_tokenizer_load(path, NULL)); /* err may be NULL */
}

static void refuse_file(const char *name, const char *content, const char *word) {
    write_whole(path_of(name), content, strlen(content));
    refuse(path_of(name), word);
    refuse(dir, word);
    remove(path_of(name));
}

static void nothing_there(void **state) {
    (void)state;
    refuse("/no/such/place", "no such file");
    refuse("", "no such file");
    refuse(dir, "no tokenizer found; expected one of tokenizer.tables, tokenizer.json,");
    refuse(dir, "vocab.json with merges.txt, encoder.json with vocab.bpe,");
    char *deep = malloc(20001);
    memset(deep, 'x', 20000);
    deep[20000] = 0;
    refuse(deep, "too long");
    free(deep);
    write_whole(path_of("odd.vocab"), "x", 1);
    refuse(path_of("odd.vocab"), "unrecognised tokenizer file");
    write_whole(path_of("odd.model"), "x", 1);
    refuse(path_of("odd.model"), "not a SentencePiece model");
    write_whole(path_of("vocab.json"), "{}", 2);
    refuse(dir, "no tokenizer found"); /* half of a surrogate pair */
    refuse(path_of("vocab.json"), "needs both vocabulary and merges");
    remove_files();
    write_whole(path_of("merges.txt"), "", 0);
    refuse(path_of("merges.txt"), "needs both vocabulary and merges");
    remove_files();
}

/* An error begins with the file, also in the working folder, whose name "." is in many texts. */
static void errors_name_the_file(void **state) {
    (void)state;
    static const char two[] =
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a.\": 0, \"./\": 0}, \"merges\": []}}";
    char here[4096];
    assert_non_null(getcwd(here, sizeof here));
    write_whole(path_of("tokenizer.json"), two, strlen(two));
    assert_int_equal(chdir(dir), 0);
    refuse("tokenizer.json", "tokenizer.json: id 0 has two texts: \"a.\" and \"./\"");
    refuse("./tokenizer.json", "./tokenizer.json: id 0 has two texts");
    refuse(".", "./tokenizer.json: id 0 has two texts");
    assert_int_equal(chdir(here), 0);
    remove_files();
}

static void wrong_json(void **state) {
    (void)state;
#define SYMBOLS "{\"format\": \"sinter-vocabulary\", \"version\": 1, "
    refuse_file("tokenizer.json", "", "not valid JSON");
    refuse_file("tokenizer.json", "[1, 2]", "not a JSON object");
    refuse_file("tokenizer.json", "{\"model\": {\"type\": \"BPE\"}", "not valid JSON");
    refuse_file("vocabulary.json", "{\"tokens\": []}", "version 1");
    refuse_file("vocabulary.json", "{\"format\": 7, \"tokens\": []}", "version 1");
    refuse_file("vocabulary.json",
                "{\"format\": \"sinter-vocabulary\", \"version\": 2, \"tokens\": []}", "version 1");
    refuse_file("vocabulary.json", SYMBOLS "\"tokens\": [\"a\"]}", "kind");
    refuse_file("vocabulary.json", SYMBOLS "\"kind\": \"x\", \"tokens\": [\"a\"]}", "kind");
    refuse_file("vocabulary.json", SYMBOLS "\"kind\": \"char\", \"tokens\": {}}", "array");
    refuse_file("vocabulary.json", SYMBOLS "\"kind\": \"char\", \"tokens\": []}", "no tokens");
    refuse_file("vocabulary.json", SYMBOLS "\"kind\": \"char\", \"tokens\": [\"a\", 1]}",
                "token 1");
    refuse_file("vocabulary.json", SYMBOLS "\"kind\": \"char\", \"tokens\": [\"\"]}", "token 0");
    refuse_file("vocabulary.json", SYMBOLS "\"kind\": \"char\", \"tokens\": [\"a\", \"a\"]}",
                "duplicate");
    refuse_file("vocabulary.json",
                SYMBOLS "\"kind\": \"char\", \"tokens\": [\"a\"], \"special\": {\"bos\": 1}}",
                "bos");
    refuse_file("vocabulary.json",
                SYMBOLS "\"kind\": \"char\", \"tokens\": [\"a\"], \"special\": {\"cls\": 0}}",
                "cls");
    refuse_file("vocabulary.json",
                SYMBOLS "\"kind\": \"char\", \"tokens\": [\"a\"], \"special\": [0]}", "object");
    write_whole(path_of("merges.txt"), "a\n", 2);
    refuse_file("vocab.json", "{\"a\": 0, \"b\": 1}", "merges.txt line 1");
    write_whole(path_of("merges.txt"), "#version\na b\n", 13);
    refuse_file("vocab.json", "{\"a\": 0, \"b\": 1}", "merges.txt line 2");
    refuse_file("vocab.json", "{\"a\": 0, \"b\": 0}", "two texts");
    refuse_file("vocab.json", "{\"a\": 0, \"b\": null}", "integer");
    refuse_file("vocab.json", "{\"a\": 0, \"b\": 1, \"ab\": 2}", "byte 0x00");
    refuse_file("vocab.json", "{\"a\": 0, \"b\": 1, \"a</w>\": 2, \"ab\": 3}", "tokenizer.json");
    remove_files();
    write_whole(path_of("vocab.txt"), "a\nb\0c\n", 6);
    refuse(dir, "line 2");
    write_whole(path_of("vocab.txt"), "a\n", 2);
    write_whole(path_of("tokenizer_config.json"), "{", 1);
    refuse(dir, "tokenizer_config.json");
    remove_files();
    refuse_file("vocab.txt", "", "empty");
    /* nesting beyond the parser's limit */
    char *deep = malloc(100002);
    memset(deep, '[', 100000);
    memcpy(deep, "{\"a\":", 5);
    deep[100000] = 0;
    refuse_file("tokenizer.json", deep, "not valid JSON");
    free(deep);
}

/* A vocabulary with an ASCII capital outside brackets keeps capitals; lines may end as on Windows. */
static void capitals(void **state) {
    (void)state;
    for (int c = '@'; c <= '['; c++)
        for (int ends = 0; ends < 2; ends++) {
            char text[64];
            int n = snprintf(text, sizeof text, "[UNK]%s\na%s\nx%c%s\n<S>%s", ends ? "\r" : "",
                             ends ? "\r" : "", c, ends ? "\r" : "", ends ? "\r\n" : "");
            write_whole(path_of("vocab.txt"), text, (size_t)n);
            sn_tokenizer *t = load_ok(dir);
            assert_int_equal(sn_tokenizer_vocab_size(t), 4);
            check_ids(t, "a A", 0, 1, c == '@' || c == '[', -1);
            sn_tokenizer_free(t);
        }
    static const char first[] = "x\n[UNK]\n##y\n"; /* id 0 is a token as others are */
    write_whole(path_of("vocab.txt"), first, sizeof first - 1);
    sn_tokenizer *t = load_ok(dir);
    check_ids(t, "x xy y", 0, 0, 0, 2, 1, -1);
    sn_tokenizer_free(t);
    remove_files();
}

static void config_names_tokens(void **state) {
    (void)state;
    write_whole(path_of("vocab.txt"), "[UNK]\nhello\n(b)\n(e)\nHello\n", 26);
    const char config[] = "{\"bos_token\": \"(b)\", \"eos_token\": {\"content\": \"(e)\"}, "
                          "\"mask_token\": null, \"pad_token\": \"none\", \"do_lower_case\": true}";
    sn_tokenizer *t = load_ok(dir);
    check_ids(t, "Hello hello", 0, 4, 1, -1); /* cased, by its capital */
    assert_int_equal(sn_tokenizer_special(t, SN_TOKEN_BOS), -1);
    sn_error err = {0};
    sn_ids ids = {0};
    assert_false(sn_tokenizer_encode(t, "x", 1, SN_TOK_EOS, &ids, &err));
    assert_non_null(strstr(err.message, "no eos token"));
    sn_ids_free(&ids);
    sn_tokenizer_free(t);
    write_whole(path_of("tokenizer_config.json"), config, sizeof config - 1);
    t = load_ok(dir);
    check_ids(t, "Hello", SN_TOK_BOS | SN_TOK_EOS, 2, 1, 3, -1);
    assert_int_equal(sn_tokenizer_special(t, SN_TOKEN_PAD), -1);
    sn_tokenizer_free(t);
    remove_files();
}

/* ---- tokenizer.bin ---- */

static void truncated_bin(void **state) {
    (void)state;
    size_t size;
    char *good = read_whole(TOK_STORIES, &size);
    for (size_t n = 0; n < size; n += n < 64 ? 1 : 61) {
        write_whole(path_of("tokenizer.bin"), good, n);
        sn_error err = {0};
        sn_tokenizer *t = sn_tokenizer_load(dir, &err);
        if (n < 50) assert_null(t); /* no unk, bos, eos and a token yet */
        if (!t) assert_true(err.code == SN_ERR_FILE && strstr(err.message, "tokenizer.bin"));
        sn_tokenizer_free(t); /* whole tokens with the longest one are a valid smaller vocabulary */
    }
    size_t longest = 0, cut = 0;
    for (size_t at = 4, n; at < size; at += 8 + n) {
        uint32_t bytes;
        memcpy(&bytes, good + at + 4, 4);
        n = bytes;
        if (n > longest) longest = n, cut = at;
    }
    write_whole(path_of("tokenizer.bin"), good, cut); /* ends with a whole token */
    refuse(dir, "the longest token has");
    free(good);
    remove_files();
}

static void hostile_bin(void **state) {
    (void)state;
    size_t size;
    char *good = read_whole(TOK_STORIES, &size);
    static const int32_t lengths[] = {-1, INT32_MIN, INT32_MAX, 6228, 1 << 20};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        char *bad = malloc(size);
        memcpy(bad, good, size);
        memcpy(bad + 8, &lengths[i], 4); /* of token 0 */
        write_whole(path_of("tokenizer.bin"), bad, size);
        refuse(dir, "token 0 at byte 4 extends past the end");
        free(bad);
    }
    static const uint32_t nan = 0x7FC00000, infinity = 0x7F800000;
    memcpy(good + 4, &nan, 4);
    write_whole(path_of("tokenizer.bin"), good, size);
    refuse(dir, "NaN");
    memcpy(good + 4, &infinity, 4);
    write_whole(path_of("tokenizer.bin"), good, size);
    assert_true(try_load(dir));
    free(good);
    remove_files();
}

/* ---- mutations ---- */

/* A few random changes: bytes overwritten, copied, inserted or removed, the end truncated. */
static size_t mutate(const char *good, size_t size, char *bad) {
    static const char likely[] = "\"{}[]:,\\ \n0019-ez\xFF\x80\xE2";
    memcpy(bad, good, size);
    for (uint32_t k = 1 + next_random(4); k-- && size > 8;) {
        size_t at = next_random((uint32_t)size), n = 1 + next_random(8);
        if (at + n > size) at = size - n;
        switch (next_random(6)) {
        case 0:
            bad[at] = (char)next_random(256);
            break;
        case 1:
            bad[at] = likely[next_random(sizeof likely)];
            break;
        case 2:
            memmove(bad + at, bad + next_random((uint32_t)(size - n)), n);
            break;
        case 3:
            memmove(bad + at + n, bad + at, size - at);
            size += n;
            break;
        case 4:
            memmove(bad + at, bad + at + n, size - at - n);
            size -= n;
            break;
        default:
            if (next_random(4) == 0) size = at;
        }
    }
    return size;
}

/* Mutates a file of the directory repeatedly; some mutants must load, some must not. */
static void fuzz_file(const char *name, int rounds) {
    size_t size;
    char *good = read_whole(path_of(name), &size), *bad = malloc(size + 64);
    int loaded = 0;
    assert_true(try_load(dir));
    for (int i = 0; i < rounds; i++) {
        size_t n = mutate(good, size, bad);
        write_whole(path_of(name), bad, n);
        loaded += try_load(dir);
    }
    assert_in_range(loaded, 1, rounds - 1);
    write_whole(path_of(name), good, size);
    free(good);
    free(bad);
}

static void save_trained(sn_train_options o) {
    static const char corpus[] = "the cat sat on the mat; the cat's hat. d\u00E9j\u00E0 vu \u4F60";
    sn_tokenizer *t = sn_tokenizer_train(&o, corpus, sizeof corpus - 1, NULL);
    assert_non_null(t);
    assert_true(sn_tokenizer_save(t, dir, NULL));
    sn_tokenizer_free(t);
}

static void mutated_gpt2(void **state) {
    (void)state;
    save_trained((sn_train_options){.kind = SN_TRAIN_BPE, .vocab_size = 280});
    fuzz_file("vocab.json", 400);
    fuzz_file("merges.txt", 400);
    remove_files();
}

static void mutated_symbols(void **state) {
    (void)state;
    save_trained((sn_train_options){.kind = SN_TRAIN_WORD, .unk = true});
    fuzz_file("vocabulary.json", 600);
    save_trained((sn_train_options){.kind = SN_TRAIN_CHAR});
    fuzz_file("vocabulary.json", 600);
    remove_files();
}

static void mutated_llama(void **state) {
    (void)state;
    size_t size;
    char *bin = read_whole(TOK_STORIES, &size);
    write_whole(path_of("tokenizer.bin"), bin, size);
    fuzz_file("tokenizer.bin", 400);
    free(bin);
    remove_files();
}

/* Truncations at every byte of the first pieces, then mutations. */
static void mutated_sentencepiece(void **state) {
    (void)state;
    static const char *const models[] = {"unigram", "bpe_bytes"};
    for (int m = 0; m < 2; m++) {
        char path[256];
        size_t size;
        snprintf(path, sizeof path, TOK_DATA "pieces/%s.model", models[m]);
        char *good = read_whole(path, &size);
        for (size_t n = 0; n < 100; n++) {
            write_whole(path_of("tokenizer.model"), good, n);
            try_load(dir);
        }
        write_whole(path_of("tokenizer.model"), good, size);
        fuzz_file("tokenizer.model", 300);
        free(good);
    }
    remove_files();
}

/* Classes that number the tokens of a .model otherwise; added tokens of the config. */
static void sentencepiece_config(void **state) {
    (void)state;
    size_t size;
    char *model = read_whole(TOK_DATA "pieces/bpe.model", &size);
    write_whole(path_of("tokenizer.model"), model, size);
    free(model);
    static const char shifted[] = "{\"tokenizer_class\": \"BarthezTokenizer\"}";
    write_whole(path_of("tokenizer_config.json"), shifted, sizeof shifted - 1);
    refuse(dir, "needs the tokenizer.json");
    static const char bad[] = "{\"added_tokens_decoder\": {\"x\": {\"content\": \"<a>\"}}}";
    write_whole(path_of("tokenizer_config.json"), bad, sizeof bad - 1);
    refuse(dir, "added_tokens_decoder");
    static const char config[] =
        "{\"added_tokens_decoder\": {\"1\": {\"content\": \"<s>\", \"special\": true}, \"300\": "
        "{\"content\": \"<|user|>\", \"special\": true}, \"301\": {\"content\": \"<t>\", "
        "\"special\": false, \"normalized\": false}}, \"add_bos_token\": false}";
    write_whole(path_of("tokenizer_config.json"), config, sizeof config - 1);
    sn_tokenizer *t = load_ok(dir);
    assert_int_equal(sn_tokenizer_vocab_size(t), 302);
    assert_false(sn_tokenizer_adds_bos(t, true));
    check_ids(t, "<s><|user|><t>", SN_TOK_SPECIAL, 1, 300, 301, -1);
    sn_tokenizer_free(t);
    remove_files();
}

static void mutated_wordpiece(void **state) {
    (void)state;
    const char vocab[] =
        "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\ncat\n##s\n'\na\n##a\n##b\n1\n##2\n"
        "\u4F60\nd\n##\n##e\n";
    write_whole(path_of("vocab.txt"), vocab, sizeof vocab - 1);
    const char config[] = "{\"do_lower_case\": true, \"unk_token\": \"[UNK]\"}";
    write_whole(path_of("tokenizer_config.json"), config, sizeof config - 1);
    fuzz_file("tokenizer_config.json", 300);
    /* any line is a token, so nearly every mutant loads: only NUL is an error */
    fuzz_file("vocab.txt", 1000);
    remove_files();
}

static void mutated_json(void **state) {
    (void)state;
    const char bpe[] =
        "{\"added_tokens\": [{\"id\": 0, \"content\": \"<unk>\", \"special\": true}, {\"id\": 9, "
        "\"content\": \"<s>\", \"special\": true, \"lstrip\": true}], \"normalizer\": {\"type\": "
        "\"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", \"prepend\": \"\u2581\"}, "
        "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"\u2581\"}]}, "
        "\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \" ?\\\\p{L}+|(?:a|b)*c"
        "|\\\\s+(?!\\\\S)\"}, \"behavior\": \"Isolated\"}, \"decoder\": {\"type\": \"Strip\", "
        "\"content\": \" \", \"start\": 1, \"stop\": 0}, \"post_processor\": {\"type\": "
        "\"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\"}}, "
        "{\"Sequence\": "
        "{}}]}, \"model\": {\"type\": \"BPE\", \"unk_token\": \"<unk>\", \"fuse_unk\": true, "
        "\"byte_fallback\": true, \"vocab\": {\"<unk>\": 0, \"a\": 1, \"b\": 2, \"\u2581\": 3, "
        "\"\u2581a\": 4, \"ab\": 5, \"aa\": 6, \"<0xFF>\": 7, \"c\": 8}, \"merges\": [\"a a\", "
        "[\"\u2581\", \"a\"], \"a b\"]}}";
    write_whole(path_of("tokenizer.json"), bpe, sizeof bpe - 1);
    fuzz_file("tokenizer.json", 1500);
    const char wordpiece[] =
        "{\"normalizer\": {\"type\": \"BertNormalizer\", \"lowercase\": true}, \"pre_tokenizer\": "
        "{\"type\": \"BertPreTokenizer\"}, \"post_processor\": {\"type\": \"BertProcessing\", "
        "\"sep\": [\"a\", 1], \"cls\": [\"b\", 2]}, \"model\": {\"type\": \"WordPiece\", "
        "\"unk_token\": \"[UNK]\", \"continuing_subword_prefix\": \"##\", "
        "\"max_input_chars_per_word\": 10, \"vocab\": {\"[UNK]\": 0, \"a\": 1, \"b\": 2, \"##a\": "
        "3, \"the\": 4, \"##b\": 5}}}";
    write_whole(path_of("tokenizer.json"), wordpiece, sizeof wordpiece - 1);
    fuzz_file("tokenizer.json", 1000);
    static const char *const more[] = {"t5", "added", "clip"};
    for (int m = 0; m < 3; m++) {
        char path[256];
        size_t size;
        snprintf(path, sizeof path, TOK_DATA "pieces/%s.json", more[m]);
        char *good = read_whole(path, &size);
        write_whole(path_of("tokenizer.json"), good, size);
        fuzz_file("tokenizer.json", 200);
        free(good);
    }
    remove_files();
}

/* ---- random text ---- */

static void random_text(void **state) {
    (void)state;
    sn_tokenizer *t[] = {load_ok(TOK_DATA "gpt2"), load_ok(TOK_STORIES), load_ok(TOK_DATA "bert")};
    static const char *const parts[] = {
        " ",  "  ",           "\n",         "a",      "Hello",  "'s",     "'",
        "12", "\xC3",         "\xF0\x9F",   "\0",     "\u4F60", "\u0301", "#",
        "<|", "\xED\xA0\x80", "\U0001F999", "\u3000", "<0x41>", "</s>"};
    for (int round = 0; round < 600; round++) {
        char random[600];
        size_t size = 0;
        for (uint32_t n = next_random(40); n--;) {
            const char *part = parts[next_random(sizeof parts / sizeof *parts)];
            size_t length = *part ? strlen(part) : 1;
            memcpy(random + size, part, length);
            size += length;
            if (next_random(4) == 0) random[size++] = (char)next_random(256);
        }
        check_round_trip(t[0], random, size);
        check_round_trip(t[1], random, size);
        sn_ids ids = encode_ok(t[2], random, size, SN_TOK_SPECIAL | SN_TOK_BOS);
        sn_bytes out = decode_ok(t[2], ids, SN_TOK_SPECIAL);
        sn_ids_free(&ids);
        sn_bytes_free(&out);
    }
    for (int i = 0; i < 3; i++) sn_tokenizer_free(t[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_there),        cmocka_unit_test(wrong_json),
        cmocka_unit_test(config_names_tokens),  cmocka_unit_test(capitals),
        cmocka_unit_test(truncated_bin),        cmocka_unit_test(hostile_bin),
        cmocka_unit_test(mutated_gpt2),         cmocka_unit_test(mutated_symbols),
        cmocka_unit_test(mutated_llama),        cmocka_unit_test(mutated_sentencepiece),
        cmocka_unit_test(sentencepiece_config), cmocka_unit_test(mutated_wordpiece),
        cmocka_unit_test(mutated_json),         cmocka_unit_test(random_text),
        cmocka_unit_test(errors_name_the_file),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
