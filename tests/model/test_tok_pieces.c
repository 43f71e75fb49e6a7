/* Tiny tokenizers of the kinds that models use (tests/data/tokenizers/pieces, by make_pieces.py):
 * SentencePiece models against SentencePiece, tokenizer.json against Hugging Face's tokenizers. The
 * ids of every string must be equal, with and without what the post-processor adds. Patterns that a
 * GGUF file names: vocabularies that show the pieces. */
#include "model/tokenizer/charsmap.h"
#include "model/tokenizer/tok.h"
#include "model/tokenizer/tok_letters.h"
#include "runtime/files/gguf.h"
#include "tests/model/tok_check.h"
#include "tests/support/scratch.h"

#include <unistd.h>

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

static char *put(char *at, const void *data, size_t size) {
    return (char *)memcpy(at, data, size) + size;
}

static void expect_ids(const char *path, const char *text, const int32_t *want, size_t n) {
    sn_tokenizer *t = load_ok(path);
    sn_ids ids = encode_ok(t, text, strlen(text), 0);
    assert_int_equal(ids.count, n);
    for (size_t i = 0; i < n; i++) assert_int_equal(ids.data[i], want[i]);
    sn_ids_free(&ids);
    sn_tokenizer_free(t);
}

/* An unknown letter costs 10 more than the rarest token: as in SentencePiece, xa (-20) and y (-14) are
 * more likely than an unknown x (-30) and ay (-5). */
static void unknown_letters(void **state) {
    (void)state;
    static const struct {
        const char *piece;
        float score;
        char type; /* 1 normal, 2 unknown, 3 control */
    } pieces[] = {{"<unk>", 0, 2}, {"<s>", 0, 3},  {"</s>", 0, 3},
                  {"y", -14, 1},   {"xa", -20, 1}, {"ay", -5, 1}};
    /* a unigram model; no space is put before a text */
    static const char specs[] = "\x12\2\x18\1\x1a\6\x18\0\x20\0\x28\0";
    static const int32_t known[] = {4, 3}, unknown[] = {0, 5};
    char folder[] = "/tmp/sn_pieces_XXXXXX", path[64], file[256], json[400], *at = file;
    assert_non_null(mkdtemp(folder));
    int n = snprintf(json, sizeof json,
                     "{\"model\": {\"type\": \"Unigram\", \"unk_id\": 0, \"vocab\": [");
    for (size_t i = 0; i < 6; i++) {
        const char size = (char)strlen(pieces[i].piece),
                   head[] = {0x0a, (char)(size + 9), 0x0a, size}, type[] = {0x18, pieces[i].type};
        at = put(put(at, head, 4), pieces[i].piece, (size_t)size);
        at = put(put(put(at, "\x15", 1), &pieces[i].score, 4), type, 2);
        n += snprintf(json + n, sizeof json - (size_t)n, "%s[\"%s\", %g]", i ? ", " : "",
                      pieces[i].piece, (double)pieces[i].score);
    }
    snprintf(json + n, sizeof json - (size_t)n, "]}}");
    at = put(at, specs, sizeof specs - 1);
    snprintf(path, sizeof path, "%s/tokenizer.model", folder);
    write_whole(path, file, (size_t)(at - file));
    expect_ids(path, "xay", known, 2);
    expect_ids(path, "zay", unknown, 2);
    remove(path);
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    write_whole(path, json, strlen(json));
    expect_ids(path, "xay", known, 2);
    expect_ids(path, "zay", unknown, 2);
    remove(path);
    rmdir(folder);
}

/* A table that replaces "a" by the text at an offset: one behind the texts is not used. */
static void replacements(void **state) {
    (void)state;
    enum { UNITS = 98, LEAF = 'a' ^ 1, TEXTS = 4 };
    for (uint32_t offset = 0; offset <= TEXTS + 2; offset++) {
        uint32_t table[1 + UNITS + TEXTS / 4] = {4 * UNITS};
        const uint32_t next = 1u << 10; /* the children of a node are at its place xor 1 */
        table[1] = next;
        table[1 + LEAF] = next | 1u << 8 | 'a';
        table[1 + (LEAF ^ 1)] = 1u << 31 | (offset <= TEXTS + 1 ? offset : INT32_MAX);
        memcpy(&table[1 + UNITS], "b\0c", TEXTS);
        sn_charsmap m = {0};
        sn_error err = {0};
        const char *with = NULL;
        assert_true(sn_charsmap_read(&m, (const char *)table, sizeof table, &err));
        assert_int_equal(m.texts.size, TEXTS);
        assert_int_equal(sn_charsmap_find(&m, "ab", 2, true, &with), offset < TEXTS);
        if (offset < TEXTS) assert_string_equal(with, "b\0c" + offset);
        assert_int_equal(sn_charsmap_find(&m, "b", 1, true, &with), 0);
        sn_charsmap_free(&m);
    }
}

/* ---- how a text is cut before merging ---- */

typedef struct gpt2_file {
    sn_bytes tokens, merges; /* strings, each with its size before it */
    uint64_t n_tokens, n_merges;
} gpt2_file;

static void put_bytes(sn_bytes *out, const void *data, size_t n) {
    sn_error e = {0};
    if (!sn_bytes_append(out, data, n, &e)) fail_msg("%s", e.message);
}

static void put_text(sn_bytes *out, const char *text, size_t n) {
    const uint64_t size = n;
    put_bytes(out, &size, 8);
    put_bytes(out, text, n);
}

static void put_token(gpt2_file *f, const char *bytes, size_t n) {
    sn_bytes spelled = {0};
    sn_error e = {0};
    assert_true(sn_gpt2_spell(bytes, n, &spelled, &e));
    put_text(&f->tokens, (const char *)spelled.data, spelled.size);
    f->n_tokens++;
    sn_bytes_free(&spelled);
}

/* The merge of text[0, a) and text[a, a + b), and its token. */
static void put_merge(gpt2_file *f, const char *text, size_t a, size_t b) {
    sn_bytes all = {0}, right = {0};
    sn_error e = {0};
    assert_true(sn_gpt2_spell(text, a, &all, &e) && sn_gpt2_spell(text + a, b, &right, &e));
    put_bytes(&all, " ", 1);
    put_bytes(&all, right.data, right.size);
    put_text(&f->merges, (const char *)all.data, all.size);
    f->n_merges++;
    put_token(f, text, a + b);
    sn_bytes_free(&all);
    sn_bytes_free(&right);
}

static size_t char_size(const char *at) {
    size_t n = 1;
    while ((at[n] & 0xc0) == 0x80) n++;
    return n;
}

/* Merges that join every piece of a text whose characters all differ into one token: bytes to
 * characters first, then characters from the left. */
static void put_merges(gpt2_file *f, const char *text) {
    for (const char *c = text; *c; c += char_size(c))
        for (size_t n = 1; n < char_size(c); n++) put_merge(f, c, n, 1);
    for (const char *c = text; *c; c += char_size(c))
        for (const char *end = c + char_size(c); *end; end += char_size(end))
            put_merge(f, c, (size_t)(end - c), char_size(end));
}

static void put_list(sn_bytes *out, const char *key, const sn_bytes *list, uint64_t n) {
    static const uint32_t array_of_strings[] = {SN_GGUF_ARRAY, SN_GGUF_STRING};
    put_text(out, key, strlen(key));
    put_bytes(out, array_of_strings, 8);
    put_bytes(out, &n, 8);
    put_bytes(out, list->data, list->size);
}

static void put_word(sn_bytes *out, const char *key, const char *value) {
    static const uint32_t string = SN_GGUF_STRING;
    put_text(out, key, strlen(key));
    put_bytes(out, &string, 4);
    put_text(out, value, strlen(value));
}

static void write_gpt2(const char *path, const char *pre, const char *text) {
    gpt2_file f = {0};
    sn_bytes out = {0};
    for (int i = 0; i < 256; i++) put_token(&f, (const char[]){(char)i}, 1);
    put_merges(&f, text);
    put_bytes(&out, "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\5\0\0\0\0\0\0", 24);
    put_word(&out, "general.architecture", "llama");
    put_word(&out, "tokenizer.ggml.model", "gpt2");
    put_word(&out, "tokenizer.ggml.pre", pre);
    put_list(&out, "tokenizer.ggml.tokens", &f.tokens, f.n_tokens);
    put_list(&out, "tokenizer.ggml.merges", &f.merges, f.n_merges);
    assert_true(scratch_write(path, (const char *)out.data, out.size));
    sn_bytes_free(&out), sn_bytes_free(&f.tokens), sn_bytes_free(&f.merges);
}

/* The published patterns, by hand. Of each text all characters differ. */
static const struct {
    const char *pre, *pieces; /* '|' between them */
} cuts[] = {
    {"gpt-2", "Ab| 12345|.|cd|\n|中ワ한é"},
    {"gpt-2", "I|'d| ok"},
    {"llama-bpe", "Ab| |123|45|.cd|\n|中ワ한é"},
    {"llama-bpe", "I|'d| ok"},
    {"dbrx", "Ab| |123|45|.cd|\n|中ワ한é"},
    {"qwen2", "Ab| |1|2|3|4|5|.cd|\n|中ワ한é"},
    {"qwen2", "ab|\u0301c"},
    {"qwen35", "Ab| |1|2|3|4|5|.cd|\n|中ワ한é"},
    {"qwen35", "ab\u0301c"},
    {"smollm", "Ab| |1|2|3|4|5|.|cd|\n|中ワ한é"},
    {"falcon", "Ab| |123|45|.|cd|\n|中ワ한é"},
    {"tekken", "Ab| |1|2|3|4|5|.cd|\n|中ワ한é"},
    {"tekken", "I|'d| ok"},
    {"gpt-4o", "Ab| |123|45|.cd|\n|中ワ한é"},
    {"gpt-4o", "I'd| ok"},
    {"gpt-4o", "中Ab文c"},
    {"gpt-4o", ".\n/|x"},
    {"deepseek-llm", "Ab| |12345|.|cd|\n|中ワ한|é"},
    {"deepseek-coder", "Ab| |1|2|3|4|5|.|cd|\n|中ワ한|é"},
    {"deepseek-coder", "I|'|d| ok"},
    {"deepseek-v3", "Ab| |123|45|.cd|\n|中ワ|한é"},
    {"kimi-k2", "Ab| |123|45|.cd|\n|中|ワ한é"},
    {"kimi-k2", "I'd| ok"},
    {"kimi-k2", "中|Ab|文|c"},
    {"kimi-k2", ".\n|/x"},
};

static void cuts_by_name(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        char text[64], pieces[64] = "";
        size_t n = 0;
        for (const char *c = cuts[i].pieces; *c; c++)
            if (*c != '|') text[n++] = *c;
        text[n] = 0;
        const char *path = scratch_path("cuts.gguf");
        write_gpt2(path, cuts[i].pre, text);
        sn_error e = {0};
        sn_ids ids = {0};
        sn_tokenizer *t = sn_tokenizer_load(path, &e);
        if (!t || !sn_tokenizer_encode(t, text, n, 0, &ids, &e)) fail_msg("%s", e.message);
        for (size_t k = 0; k < ids.count; k++) {
            size_t size;
            const char *token = sn_tokenizer_text(t, ids.data[k], &size);
            snprintf(pieces + strlen(pieces), sizeof pieces - strlen(pieces), "%s%.*s",
                     k ? "|" : "", (int)size, token);
        }
        if (strcmp(pieces, cuts[i].pieces))
            fail_msg("%s: %s instead of %s", cuts[i].pre, pieces, cuts[i].pieces);
        sn_ids_free(&ids);
        sn_tokenizer_free(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sentencepiece), cmocka_unit_test(hugging_face),
        cmocka_unit_test(decoding),      cmocka_unit_test(unknown_letters),
        cmocka_unit_test(replacements),  cmocka_unit_test(cuts_by_name)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
