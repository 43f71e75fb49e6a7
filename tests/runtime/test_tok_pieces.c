/* Tiny tokenizers of the kinds that models use (tests/data/tokenizers/pieces, by make_pieces.py):
 * SentencePiece models against SentencePiece, tokenizer.json against Hugging Face's tokenizers. The
 * ids of every string must be equal, with and without what the post-processor adds. */
#include "tests/runtime/tok_check.h"

#define PIECES TOK_DATA "pieces/"

static const char *const models[] = {"unigram", "unigram_bytes", "bpe_bytes", "bpe", "bpe_suffix"};
static const char *const pipelines[] = {
    "t5",   "xlm",  "llama",      "gemma",        "roberta", "llama3",    "falcon", "digits",
    "clip", "bert", "bert_cased", "bert_accents", "words",   "delimiter", "added"};

/* The ids up to a tab or the end of the line; *line: after it. */
static sn_ids read_ids(char **line) {
    sn_ids ids = {0};
    ids.data = malloc(4096 * sizeof *ids.data);
    while (**line != '\t' && **line != '\n') {
        assert_true(ids.count < 4096);
        ids.data[ids.count++] = (int32_t)strtol(*line, line, 10);
        *line += **line == ' ';
    }
    ++*line;
    return ids;
}

static void compare(const sn_tokenizer *t, const char *name, const char *text, size_t size,
                    unsigned flags, char **line) {
    sn_ids want = read_ids(line), got = encode_ok(t, text, size, flags);
    bool same = got.count == want.count;
    for (size_t i = 0; same && i < got.count; i++) same = got.data[i] == want.data[i];
    if (!same) fail_msg("%s: \"%.*s\" with flags %u", name, (int)size, text, flags);
    sn_ids_free(&want);
    sn_ids_free(&got);
}

static void check(const char *name, const char *ending, unsigned plain, unsigned full) {
    static const char mark[] = "\n__ggml_vocab_test__\n";
    char path[256];
    size_t strings_size, ids_size;
    snprintf(path, sizeof path, PIECES "%s.%s", name, ending);
    sn_tokenizer *t = load_ok(path);
    snprintf(path, sizeof path, PIECES "%s.ids", name);
    char *strings = read_whole(PIECES "strings.txt", &strings_size), *text = strings, *stop;
    char *lines = read_whole(path, &ids_size), *line = lines, *end = strings + strings_size;
    int count = 0;
    for (; (stop = memmem(text, (size_t)(end - text), mark, strlen(mark)));
         text = stop + strlen(mark), count++) {
        size_t size = (size_t)(stop - text);
        compare(t, name, text, size, plain, &line);
        compare(t, name, text, size, full, &line);
    }
    assert_int_equal(count, 77);
    free(strings);
    free(lines);
    sn_tokenizer_free(t);
}

static void sentencepiece(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        check(models[i], "model", 0, SN_TOK_BOS | SN_TOK_EOS);
}

static void hugging_face(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof pipelines / sizeof *pipelines; i++)
        check(pipelines[i], "json", SN_TOK_SPECIAL, SN_TOK_SPECIAL | SN_TOK_TEMPLATE);
}

static void decoded(const char *file, const char *text, const char *want) {
    char path[256];
    snprintf(path, sizeof path, PIECES "%s", file);
    sn_tokenizer *t = load_ok(path);
    sn_ids ids = encode_ok(t, text, strlen(text), 0);
    sn_bytes out = decode_ok(t, ids, 0);
    assert_string_equal(out.data, want);
    sn_bytes_free(&out);
    sn_ids_free(&ids);
    sn_tokenizer_free(t);
}

/* What the decoders make of the tokens. */
static void decoding(void **state) {
    (void)state;
    decoded("bpe_bytes.model", "hello \u4F60 \xF0\x9F\x98\x80 <u1>",
            "hello \u4F60 \xF0\x9F\x98\x80 <u1>");
    decoded("unigram_bytes.model", " two  spaces\n", " two  spaces\n");
    decoded("unigram.model", "  hello   world ", "hello world");
    decoded("bpe.model", "hello\u3000world", "hello world");
    decoded("bpe_suffix.model", "hello world", "hello world ");
    decoded("llama.json", "hello  world\t", "hello  world\t");
    decoded("t5.json", "hello  world", "hello world");
    decoded("clip.json", "Hello  world", "hello world ");
    decoded("bert.json", "Hello, world. It's", "hello, world. it ' s");
    decoded("words.json", "The lazy  DOG", "the lazy dog");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sentencepiece),
                                       cmocka_unit_test(hugging_face), cmocka_unit_test(decoding)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
