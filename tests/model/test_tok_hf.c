/* tokenizer.json: generated from the other formats' files and checked against the same ids: GPT-2
 * byte level, BERT WordPiece, llama with byte fallback (merges derived from the scores, as in
 * transformers' converter). Unsupported steps and malformed files are rejected. */
#include "model/tokenizer/regex.h"
#include "model/tokenizer/utf8.h"
#include "tests/model/tok_check.h"

#include <cjson/cJSON.h>
#include <unistd.h>

/* Writes a JSON tree as tokenizer.json to a new directory, loads it and removes the directory. */
static sn_tokenizer *load_tree(const cJSON *root, sn_error *err) {
    char dir[] = "/tmp/sn_tok_hf_XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    char *text = cJSON_PrintUnformatted(root);
    write_whole(path, text, strlen(text));
    sn_tokenizer *t = sn_tokenizer_load(dir, err);
    remove(path);
    rmdir(dir);
    cJSON_free(text);
    return t;
}

static sn_tokenizer *load_tree_ok(cJSON *root) {
    sn_error err = {0};
    sn_tokenizer *t = load_tree(root, &err);
    if (!t) fail_msg("%s", err.message);
    cJSON_Delete(root);
    return t;
}

/* A template: JSON text whose "model" gets the given vocabulary and merges. */
static cJSON *make_tree(const char *text, cJSON *vocab, cJSON *merges) {
    cJSON *root = cJSON_Parse(text);
    assert_non_null(root);
    cJSON *model = cJSON_GetObjectItem(root, "model");
    cJSON_AddItemToObject(model, "vocab", vocab);
    if (merges) cJSON_AddItemToObject(model, "merges", merges);
    return root;
}

static void same_ids(void *ctx, const char *text, size_t size, const int32_t *want, size_t n) {
    sn_ids ids = encode_ok(ctx, text, size, 0);
    assert_int_equal(ids.count, n);
    assert_memory_equal(ids.data, want, n * sizeof *want);
    sn_ids_free(&ids);
}

static void same_text(void *ctx, const char *text, size_t size, const int32_t *want, size_t n) {
    (void)want, (void)n;
    check_round_trip(ctx, text, size);
}

static cJSON *gpt2_vocab(void) {
    size_t size;
    char *text = read_whole(TOK_DATA "gpt2/encoder.json", &size);
    cJSON *vocab = cJSON_Parse(text);
    free(text);
    return vocab;
}

/* Every second merge as an array, as newer files have them. */
static cJSON *gpt2_merges(void) {
    size_t size;
    char *text = read_whole(TOK_DATA "gpt2/vocab.bpe", &size), *at = strchr(text, '\n') + 1, *end;
    cJSON *merges = cJSON_CreateArray();
    for (int i = 0; (end = strchr(at, '\n')); at = end + 1, i++) {
        *end = 0;
        cJSON *pair = cJSON_CreateString(at);
        if (i & 1) {
            cJSON_Delete(pair);
            char *space = strchr(at, ' ');
            *space = 0;
            const char *both[] = {at, space + 1};
            pair = cJSON_CreateStringArray(both, 2);
        }
        cJSON_AddItemToArray(merges, pair);
    }
    free(text);
    return merges;
}

#define ENDOFTEXT                                                                                  \
    "\"added_tokens\": [{\"id\": 50256, \"content\": \"<|endoftext|>\", \"special\": true}],"

static void gpt2(void **state) {
    (void)state;
    sn_tokenizer *t = load_tree_ok(make_tree(
        "{\"version\": \"1.0\"," ENDOFTEXT "\"normalizer\": null, \"pre_tokenizer\": {\"type\": "
        "\"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true}, \"post_processor\": "
        "{\"type\": \"ByteLevel\"}, \"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": "
        "\"BPE\", \"dropout\": null, \"unk_token\": null, \"continuing_subword_prefix\": \"\", "
        "\"end_of_word_suffix\": \"\", \"fuse_unk\": false}}",
        gpt2_vocab(), gpt2_merges()));
    assert_string_equal(sn_tokenizer_kind(t), "gpt2-bpe");
    each_string(TOK_DATA "gpt2/ids.txt", same_ids, t);
    each_string(TOK_DATA "gpt2/ids.txt", same_text, t);
    check_ids(t, "a<|endoftext|>", SN_TOK_SPECIAL | SN_TOK_BOS, 50256, 64, 50256, -1);
    check_ids(t, "a<|endoftext|>", 0, 64, 27, 91, 437, 1659, 5239, 91, 29, -1);
    sn_error err = {0};
    assert_false(sn_tokenizer_save(t, "/tmp", &err));
    assert_non_null(strstr(err.message, "copy that file"));
    sn_tokenizer_free(t);
}

/* The split step as in newer models; an added token that is not special, with its white space; the
 * template's tokens as bos and eos; a prefix space. */
static void gpt2_variants(void **state) {
    (void)state;
    sn_tokenizer *t = load_tree_ok(make_tree(
        "{\"added_tokens\": [{\"id\": 50256, \"content\": \"<|endoftext|>\", \"special\": true},"
        "{\"id\": 50257, \"content\": \"<tool>\", \"special\": false, \"lstrip\": true, "
        "\"rstrip\": "
        "true}, {\"id\": 50300, \"content\": \"<b>\", \"special\": true}, {\"id\": 50301, "
        "\"content\": \"<b><b>\", \"special\": true}], \"normalizer\": {\"type\": \"Sequence\", "
        "\"normalizers\": []}, \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": ["
        "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"'s|'t|'re|'ve|'m|'ll|'d| ?\\\\p{L}+| "
        "?\\\\p{N}+| ?[^\\\\s\\\\p{L}\\\\p{N}]+|\\\\s+(?!\\\\S)|\\\\s+\"}, \"behavior\": "
        "\"Isolated\", \"invert\": false}, {\"type\": \"Digits\", \"individual_digits\": true}, "
        "{\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"use_regex\": false}]}, "
        "\"post_processor\": {\"type\": \"Sequence\", \"processors\": [{\"type\": \"ByteLevel\"}, "
        "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<b>\"}}, "
        "{\"Sequence\": {\"id\": \"A\"}}, {\"SpecialToken\": {\"id\": \"<|endoftext|>\"}}]}]}, "
        "\"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"ignore_merges\": true}}",
        gpt2_vocab(), gpt2_merges()));
    assert_int_equal(sn_tokenizer_vocab_size(t), 50302);
    size_t size;
    assert_null(sn_tokenizer_text(t, 50299, &size));
    check_ids(t, "Hello world", SN_TOK_BOS | SN_TOK_EOS, 50300, 18435, 995, 50256, -1);
    check_ids(t, "Hello world", SN_TOK_TEMPLATE, 50300, 18435, 995, 50256, -1);
    check_ids(t, " Hello 19", 0, 18435, 220, 352, 860, -1); /* the prefix is of each piece */
    check_ids(t, "x <tool> Hello", 0, 2124, 50257, 18435, -1);
    check_ids(t, "<b><b><b>", SN_TOK_SPECIAL, 50301, 50300, -1);
    int32_t hole = 50299;
    sn_error err = {0};
    sn_bytes out = {0};
    assert_false(sn_tokenizer_decode(t, &hole, 1, 0, &out, &err));
    sn_bytes_free(&out);
    sn_tokenizer_free(t);
}

static cJSON *bert_vocab(void) {
    size_t size;
    char *text = read_whole(TOK_DATA "bert/vocab.txt", &size);
    cJSON *vocab = cJSON_CreateObject();
    int id = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        cJSON_AddItemToObject(vocab, line, cJSON_CreateNumber(id++));
    free(text);
    return vocab;
}

static void bert(void **state) {
    (void)state;
    cJSON *root = make_tree(
        "{\"added_tokens\": [{\"id\": 103, \"content\": \"[MASK]\", \"special\": true}], "
        "\"normalizer\": {\"type\": \"BertNormalizer\", \"clean_text\": true, "
        "\"handle_chinese_chars\": true, \"strip_accents\": null, \"lowercase\": true}, "
        "\"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"}, \"post_processor\": {\"type\": "
        "\"BertProcessing\", \"sep\": [\"[SEP]\", 102], \"cls\": [\"[CLS]\", 101]}, \"decoder\": "
        "{\"type\": \"WordPiece\", \"prefix\": \"##\", \"cleanup\": true}, \"model\": {\"type\": "
        "\"WordPiece\", \"unk_token\": \"[UNK]\", \"continuing_subword_prefix\": \"##\", "
        "\"max_input_chars_per_word\": 100}}",
        bert_vocab(), NULL);
    sn_tokenizer *t = load_tree_ok(cJSON_Duplicate(root, true));
    each_string(TOK_DATA "bert/ids.txt", same_ids, t);
    check_ids(t, "hello", SN_TOK_BOS | SN_TOK_EOS, 101, 7592, 102, -1);
    sn_tokenizer_free(t);
    /* cased: no token has capitals; accents are kept */
    cJSON *normalizer = cJSON_GetObjectItem(root, "normalizer");
    cJSON_ReplaceItemInObject(normalizer, "lowercase", cJSON_CreateFalse());
    t = load_tree_ok(root);
    check_ids(t, "Hello hello", 0, 100, 7592, -1);
    sn_tokenizer_free(t);
}

/* ---- llama: merges that give the same ids as the scores ---- */

typedef struct merge {
    int left, right;
    float score;
} merge;

static int compare_merges(const void *a, const void *b) {
    const merge *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    if (x->left != y->left) return x->left < y->left ? -1 : 1;
    return x->right < y->right ? -1 : x->right > y->right;
}

/* A text with U+2581 for each space. */
static void spell_spaces(const char *text, size_t size, char *out) {
    for (size_t i = 0; i < size; i++) {
        if (text[i] == ' ')
            out += sprintf(out, "\xE2\x96\x81");
        else
            *out++ = text[i];
    }
    *out = 0;
}

static sn_tokenizer *llama_as_json(const char *bin) {
    size_t file_size, size;
    char *file = read_whole(bin, &file_size), spelled[2][1024], line[2050];
    sn_tokenizer *t = load_ok(bin);
    int32_t n = sn_tokenizer_vocab_size(t);
    cJSON *vocab = cJSON_CreateObject(), *merges = cJSON_CreateArray();
    merge *list = malloc(sizeof *list * 64 * (size_t)n);
    size_t count = 0;
    const char *record = file + 4;
    for (int32_t id = 0; id < n; id++) {
        float score;
        int32_t length;
        memcpy(&score, record, 4);
        memcpy(&length, record + 4, 4);
        record += 8 + length;
        const char *text = sn_tokenizer_text(t, id, &size);
        spell_spaces(text, size, spelled[0]);
        cJSON_AddItemToObject(vocab, spelled[0], cJSON_CreateNumber(id));
        for (size_t cut = 1; cut < size && id > 258; cut++) {
            int32_t l = sn_tokenizer_id(t, text, cut),
                    r = sn_tokenizer_id(t, text + cut, size - cut);
            if (l >= 0 && r >= 0) list[count++] = (merge){l, r, score};
        }
    }
    qsort(list, count, sizeof *list, compare_merges);
    for (size_t i = 0; i < count; i++) {
        const char *text = sn_tokenizer_text(t, list[i].left, &size);
        spell_spaces(text, size, spelled[0]);
        text = sn_tokenizer_text(t, list[i].right, &size);
        spell_spaces(text, size, spelled[1]);
        snprintf(line, sizeof line, "%s %s", spelled[0], spelled[1]);
        cJSON_AddItemToArray(merges, cJSON_CreateString(line));
    }
    free(list);
    free(file);
    sn_tokenizer_free(t);
    return load_tree_ok(make_tree(
        "{\"added_tokens\": [{\"id\": 0, \"content\": \"<unk>\", \"special\": true}, {\"id\": 1, "
        "\"content\": \"<s>\", \"special\": true}, {\"id\": 2, \"content\": \"</s>\", \"special\": "
        "true}], \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": "
        "\"Prepend\", "
        "\"prepend\": \"\u2581\"}, {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, "
        "\"content\": \"\u2581\"}]}, \"pre_tokenizer\": null, \"post_processor\": {\"type\": "
        "\"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\"}}, "
        "{\"Sequence\": "
        "{\"id\": \"A\"}}]}, \"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": "
        "\"Replace\", \"pattern\": {\"String\": \"\u2581\"}, \"content\": \" \"}, {\"type\": "
        "\"ByteFallback\"}, {\"type\": \"Fuse\"}, {\"type\": \"Strip\", \"content\": \" \", "
        "\"start\": 1, \"stop\": 0}]}, \"model\": {\"type\": \"BPE\", \"unk_token\": \"<unk>\", "
        "\"fuse_unk\": true, \"byte_fallback\": true}}",
        vocab, merges));
}

typedef struct two {
    sn_tokenizer *a, *b;
} two;

static void agree(void *ctx, const char *text, size_t size, const int32_t *ids, size_t n) {
    (void)ids, (void)n;
    two *t = ctx;
    sn_ids want = encode_ok(t->a, text, size, SN_TOK_BOS);
    sn_ids got = encode_ok(t->b, text, size, SN_TOK_BOS);
    assert_int_equal(got.count, want.count);
    assert_memory_equal(got.data, want.data, want.count * sizeof *want.data);
    sn_ids_free(&want);
    sn_ids_free(&got);
    check_round_trip(t->b, text, size);
}

static void llama(void **state) {
    (void)state;
    two t = {load_ok(TOK_STORIES), llama_as_json(TOK_STORIES)};
    assert_string_equal(sn_tokenizer_kind(t.b), "llama-bpe");
    each_string(TOK_DATA "llama/ids.txt", agree, &t);
    assert_int_equal(sn_tokenizer_special(t.b, SN_TOKEN_BOS), 1);
    assert_int_equal(sn_tokenizer_special(t.b, SN_TOKEN_EOS), 2);
    sn_tokenizer_free(t.a);
    sn_tokenizer_free(t.b);
}

static void llama_full(void **state) {
    (void)state;
    const char *dir = getenv("SN_DATA_DIR");
    if (!dir) skip();
    char path[4096];
    snprintf(path, sizeof path, "%s/decoder/stories15M/tokenizer.bin", dir);
    sn_tokenizer *t = llama_as_json(path);
    each_string(TOK_DATA "llama/ids.txt", same_ids, t);
    sn_tokenizer_free(t);
}

/* Metaspace instead of the normalizer; consecutive unknown characters fuse into one unk. */
static void metaspace(void **state) {
    (void)state;
    sn_tokenizer *t = load_tree_ok(make_tree(
        "{\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"\u2581\", "
        "\"prepend_scheme\": \"first\", \"split\": false}, \"decoder\": {\"type\": \"Metaspace\", "
        "\"replacement\": \"\u2581\", \"prepend_scheme\": \"first\"}, \"model\": {\"type\": "
        "\"BPE\", \"unk_token\": \"<unk>\", \"fuse_unk\": true}}",
        cJSON_Parse("{\"<unk>\": 0, \"a\": 1, \"b\": 2, \"\u2581\": 3, \"\u2581a\": 4, \"ab\": 5, "
                    "\"\u2581ab\": 6, \"a\u2581\": 7}"),
        cJSON_Parse("[\"a \u2581\", \"a b\", \"\u2581 a\", \"\u2581 ab\"]")));
    check_ids(t, "a", 0, 4, -1);
    check_ids(t, " a", 0, 4, -1); /* no second space before one */
    check_ids(t, "ab", 0, 6, -1); /* "a b" has a better rank than "_ a" to its left */
    check_ids(t, "bzzzb", 0, 3, 2, 0, 2, -1);
    int32_t list[] = {4, 2, 4};
    sn_bytes out = decode_ok(t, (sn_ids){list, 3, 3}, 0);
    assert_string_equal(out.data, "ab a");
    sn_bytes_free(&out);
    sn_tokenizer_free(t);
}

typedef struct bad_file {
    const char *json, *word;
} bad_file;

static void refuse_each(const bad_file *bad, size_t n) {
    for (size_t i = 0; i < n; i++) {
        cJSON *root = cJSON_Parse(bad[i].json);
        if (!root) fail_msg("%s", bad[i].json);
        sn_error err = {0};
        assert_null(load_tree(root, &err));
        assert_int_equal(err.code, SN_ERR_FILE);
        if (!strstr(err.message, bad[i].word)) fail_msg("%s\n%s", bad[i].json, err.message);
        cJSON_Delete(root);
    }
}

#define BPE                                                                                        \
    "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": "
static void refused_models(void **state) {
    (void)state;
    static const bad_file bad[] = {
        {"{\"model\": {\"type\": \"Unigram\", \"vocab\": []}}", "no tokens"},
        {"{\"model\": {\"type\": \"Unigram\", \"vocab\": {}}}", "Unigram must be an array"},
        {"{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\"]]}}", "token 0"},
        {"{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\", 1e40]]}}", "score of token 0"},
        {"{\"model\": {\"type\": \"Unigram\", \"unk_id\": 1, \"vocab\": [[\"a\", 0]]}}", "unk_id"},
        {"{\"model\": {\"type\": \"Trigram\", \"vocab\": []}}", "Trigram"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": [1], \"merges\": []}}", "model.vocab"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}}}", "model.merges"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {}, \"merges\": []}}", "no tokens"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": -1}, \"merges\": []}}", "integer"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 1e9}, \"merges\": []}}", "integer"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0.5}, \"merges\": []}}", "integer"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": \"0\"}, \"merges\": []}}", "integer"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 0}, \"merges\": []}}",
         "two"},
        {"{" BPE "[\"a c\"]}}", "merge 0: merge of \"a\" and \"c\""},
        {"{" BPE "[\"a b\", \"b a\"]}}", "merge 1"},
        {"{" BPE "[\"ab\"]}}", "two tokens"},
        {"{" BPE "[[\"a\"]]}}", "two tokens"},
        {"{" BPE "[[\"a\", 1]]}}", "two tokens"},
        {"{" BPE "[[1, \"a\"]]}}", "two tokens"},
        {"{" BPE "[7]}}", "two tokens"},
    };
    refuse_each(bad, sizeof bad / sizeof *bad);
}

static void refused_steps(void **state) {
    (void)state;
    static const bad_file bad[] = {
        {"{" BPE "[]}, \"normalizer\": {\"type\": \"NFX\"}}", "NFX"},
        {"{" BPE
         "[]}, \"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"AAA!\"}}",
         "not base64"},
        {"{" BPE
         "[]}, \"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"AAAA\"}}",
         "malformed"},
        {"{" BPE "[]}, \"normalizer\": {\"type\": \"Replace\", \"content\": \"x\"}}", "pattern"},
        {"{" BPE "[]}, \"post_processor\": {\"type\": \"Other\"}}", "post_processor \"Other\""},
        {"{" BPE "[]}, \"normalizer\": {\"type\": 3}}", "normalizer"},
        {"{" BPE "[]}, \"normalizer\": \"NFC\"}", "normalizer"},
        {"{" BPE "[]}, \"normalizer\": {\"type\": \"Sequence\"}}", "Sequence"},
        {"{" BPE "[]}, \"normalizer\": {\"type\": \"Prepend\", \"prepend\": 3}}", "prepend"},
        {"{" BPE "[]}, \"pre_tokenizer\": {\"type\": \"UnicodeScripts\"}}", "UnicodeScripts"},
        {"{" BPE "[]}, \"pre_tokenizer\": {\"type\": \"ByteLevel\"}}", "byte 0x00"},
        {"{" BPE "[]}, \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"(\"}, "
         "\"behavior\": \"Isolated\"}}",
         "pattern \"(\""},
        {"{" BPE
         "[]}, \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"\\\\C\"}, "
         "\"behavior\": \"Isolated\"}}",
         "pattern"},
        {"{" BPE "[]}, \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"a\"}, "
         "\"behavior\": \"Merged\"}}",
         "split behavior \"Merged\""},
        {"{" BPE "[]}, \"decoder\": {\"type\": \"CTC\"}}", "CTC"},
        {"{" BPE "[]}, \"added_tokens\": [{\"id\": 5}]}", "added token"},
        {"{" BPE "[]}, \"added_tokens\": [7]}", "added token"},
        {"{" BPE "[]}, \"added_tokens\": [{\"id\": 1e7, \"content\": \"x\"}]}", "added token"},
        {"{\"model\": {\"type\": \"WordLevel\", \"vocab\": {\"a\": 0}}, \"pre_tokenizer\": "
         "{\"type\": \"ByteLevel\"}}",
         "ByteLevel with the model \"WordLevel\""},
        {"{\"model\": {\"type\": \"WordPiece\", \"vocab\": {\"a\": 0}, "
         "\"max_input_chars_per_word\": 0}}",
         "max_input_chars_per_word"},
        {"{\"model\": {\"type\": \"WordPiece\", \"vocab\": {\"a\": 0}}, \"normalizer\": {\"type\": "
         "\"Titlecase\"}}",
         "Titlecase"},
    };
    refuse_each(bad, sizeof bad / sizeof *bad);
}

/* The ids of "a", the character, "b" with these steps: of words "a", "b" and unknown ones. */
static sn_tokenizer *words_with(const char *steps) {
    char json[500];
    snprintf(json, sizeof json,
             "{\"model\": {\"type\": \"WordLevel\", \"unk_token\": \"?\", \"vocab\": {\"?\": 0, "
             "\"a\": 1, \"b\": 2, \"ab\": 3}}, %s}",
             steps);
    return load_tree_ok(cJSON_Parse(json));
}

static size_t between(const sn_tokenizer *t, uint32_t c) {
    char text[8] = "a";
    strcpy(text + 1 + sn_utf8_put(c, text + 1), "b");
    sn_ids ids = encode_ok(t, text, strlen(text), 0);
    size_t n = ids.count;
    if (n > 1) assert_true(ids.data[0] == 1 && ids.data[n - 1] == 2);
    if (n == 1) n = ids.data[0] == 3 ? 0 : 1; /* dropped: 0 */
    sn_ids_free(&ids);
    return n;
}

/* Every character splits, whatever it means in a pattern. */
static void delimiters(void **state) {
    (void)state;
    static const bad_file bad[] = {
        {"{" BPE "[]}, \"pre_tokenizer\": {\"type\": \"CharDelimiterSplit\"}}", "delimiter"},
        {"{" BPE "[]}, \"pre_tokenizer\": {\"type\": \"CharDelimiterSplit\", \"delimiter\": "
         "\"\"}}",
         "delimiter"}};
    refuse_each(bad, sizeof bad / sizeof *bad);
    for (unsigned c = 1; c < 0x80; c++) {
        char steps[100];
        if (c == 'a' || c == 'b') continue;
        snprintf(steps, sizeof steps,
                 "\"pre_tokenizer\": {\"type\": \"CharDelimiterSplit\", \"delimiter\": "
                 "\"\\u%04x\"}",
                 c);
        sn_tokenizer *t = words_with(steps);
        if (between(t, c) != 2) fail_msg("U+%04X", c);
        assert_int_equal(between(t, c == 'c' ? 'd' : 'c'), 1);
        sn_tokenizer_free(t);
    }
}

/* Which characters are words of their own, spaces, or dropped: at the ends of each range. */
static void ranges(void **state) {
    (void)state;
    enum { KEEP = 1, SPACE, WORD, DROP = 0 };
    static const struct {
        uint32_t first, last;
        size_t what;
    } chinese[] = {{0x3400, 0x4DBF, WORD},   {0x4E00, 0x9FFF, WORD},   {0xF900, 0xFAFF, WORD},
                   {0x20000, 0x2A6DF, WORD}, {0x2A700, 0x2B73F, WORD}, {0x2B740, 0x2CEAF, WORD},
                   {0x2F800, 0x2FA1F, WORD}, {0x33FF, 0x33FF, KEEP},   {0x4DC0, 0x4DFF, KEEP},
                   {0xA000, 0xA000, KEEP},   {0xAC00, 0xAC00, KEEP}},
      nmt[] = {{1, 8, DROP},
               {0xB, 0xB, DROP},
               {0xE, 0x1F, DROP},
               {0x7F, 0x7F, DROP},
               {0x8F, 0x8F, DROP},
               {0x9F, 0x9F, DROP},
               {9, 0xA, SPACE},
               {0xC, 0xD, SPACE},
               {0x1680, 0x1680, SPACE},
               {0x200B, 0x200F, SPACE},
               {0x2028, 0x2029, SPACE},
               {0x2581, 0x2581, SPACE},
               {0xFEFF, 0xFEFF, SPACE},
               {0xFFFD, 0xFFFD, SPACE},
               {0x80, 0x80, KEEP},
               {0x8E, 0x8E, KEEP},
               {0x90, 0x90, KEEP},
               {0x9E, 0x9E, KEEP},
               {0x2010, 0x2010, KEEP},
               {0x2580, 0x2580, KEEP},
               {0x2582, 0x2582, KEEP},
               {0xFEFE, 0xFEFE, KEEP},
               {0xFFFC, 0xFFFC, KEEP},
               {0x200A, 0x200A, KEEP},
               {0x167F, 0x167F, KEEP},
               {0x1681, 0x1681, KEEP}};
    static const char *const normalizer[] = {
        "\"normalizer\": {\"type\": \"BertNormalizer\", \"clean_text\": false, "
        "\"handle_chinese_chars\": true, \"strip_accents\": false, \"lowercase\": false}, ",
        "\"normalizer\": {\"type\": \"Nmt\"}, "};
    for (int k = 0; k < 2; k++) {
        char steps[400];
        snprintf(steps, sizeof steps,
                 "%s\"pre_tokenizer\": {\"type\": \"CharDelimiterSplit\", \"delimiter\": \" \"}",
                 normalizer[k]);
        sn_tokenizer *t = words_with(steps);
        const size_t n = k ? sizeof nmt / sizeof *nmt : sizeof chinese / sizeof *chinese;
        for (size_t i = 0; i < n; i++) {
            const uint32_t ends[] = {k ? nmt[i].first : chinese[i].first,
                                     k ? nmt[i].last : chinese[i].last};
            for (int e = 0; e < 2; e++) {
                size_t got = between(t, ends[e]), want = k ? nmt[i].what : chinese[i].what;
                if (got != want) fail_msg("U+%04X: %zu, not %zu", (unsigned)ends[e], got, want);
            }
        }
        sn_tokenizer_free(t);
    }
    /* an empty table of replacements changes nothing */
    sn_tokenizer *t = words_with("\"normalizer\": {\"type\": \"Precompiled\", "
                                 "\"precompiled_charsmap\": \"\"}");
    check_ids(t, "ab", 0, 3, -1);
    sn_tokenizer_free(t);
}

/* No unk and no bytes: the file is valid, the text is rejected. */
static void unknown_text(void **state) {
    (void)state;
    cJSON *root = cJSON_Parse("{" BPE "[\"a b\"]}}");
    sn_tokenizer *t = load_tree_ok(root);
    sn_ids ids = {0};
    sn_error err = {0};
    assert_true(sn_tokenizer_encode(t, "abb", 3, 0, &ids, &err));
    assert_false(sn_tokenizer_encode(t, "ab!", 3, 0, &ids, &err));
    assert_non_null(strstr(err.message, "\"!\""));
    assert_int_equal(ids.count, 2);
    assert_false(sn_tokenizer_encode(t, "ab", 2, SN_TOK_BOS, &ids, NULL));
    sn_ids_free(&ids);
    sn_tokenizer_free(t);
}

static bool count_piece(void *ctx, const char *text, size_t size, bool matched) {
    (void)text;
    *(size_t *)ctx += matched ? size : 0;
    return true;
}

/* Llama 3's pattern backtracks over a run of spaces once: as many steps as there are spaces. */
static void long_runs_of_spaces(void **state) {
    (void)state;
    static const char pattern[] =
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
        "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    enum { SIZE = 10000000 };
    sn_error err = {0};
    sn_regex *r = sn_regex_new(pattern, sizeof pattern - 1, &err);
    char *text = malloc(SIZE);
    memset(text, ' ', SIZE);
    text[SIZE - 1] = 'x';
    size_t matched = 0;
    if (!r || !sn_regex_split(r, text, SIZE, count_piece, &matched, &err))
        fail_msg("%s", err.message);
    assert_int_equal(matched, SIZE);
    free(text);
    sn_regex_free(r);
}

/* Pieces are searched up to the length of the longest token, however long the word is. */
static void long_words(void **state) {
    (void)state;
    enum { SIZE = 100000 };
    sn_tokenizer *t = load_tree_ok(
        cJSON_Parse("{\"model\": {\"type\": \"WordPiece\", \"unk_token\": \"u\", \"vocab\": {"
                    "\"u\": 0, \"a\": 1, \"##aaa\": 2}, "
                    "\"max_input_chars_per_word\": 1000000}, "
                    "\"normalizer\": {\"type\": \"BertNormalizer\"}, "
                    "\"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"}}"));
    char *text = malloc(SIZE);
    memset(text, 'a', SIZE);
    sn_ids ids = encode_ok(t, text, SIZE, 0);
    assert_int_equal(ids.count, 1 + SIZE / 3);
    assert_int_equal(ids.data[SIZE / 3], 2);
    free(text);
    sn_ids_free(&ids);
    sn_tokenizer_free(t);
}

/* Pieces within a word have a prefix, from its second letter on. */
static void prefixed_pieces(void **state) {
    (void)state;
    sn_tokenizer *t = load_tree_ok(
        cJSON_Parse("{\"model\": {\"type\": \"BPE\", \"continuing_subword_prefix\": \"##\", "
                    "\"vocab\": {\"a\": 0, "
                    "\"##b\": 1, \"##c\": 2, \"##bc\": 3}, \"merges\": [\"##b ##c\"]}}"));
    check_ids(t, "ab", 0, 0, 1, -1);
    check_ids(t, "abcb", 0, 0, 3, 1, -1);
    sn_tokenizer_free(t);
}

/* Of ways with the same score that with the longest last piece counts, as in SentencePiece. */
static void equal_ways(void **state) {
    (void)state;
    sn_tokenizer *t = load_tree_ok(cJSON_Parse("{\"model\": {\"type\": \"Unigram\", \"unk_id\": 0, "
                                               "\"vocab\": [[\"<unk>\", 0], [\"a\", -1], "
                                               "[\"b\", -1], [\"ab\", -2], [\"ba\", -2]]}}"));
    check_ids(t, "ab", 0, 3, -1);
    check_ids(t, "aba", 0, 1, 4, -1);
    sn_tokenizer_free(t);
}

/* The pieces that steps make of a text, as words of the vocabulary, with | between them. */
static const struct {
    const char *steps, *text, *pieces;
} piece_rows[] = {
#define PRE(type, ...) "\"pre_tokenizer\": {\"type\": \"" type "\"" __VA_ARGS__ "}"
#define NORM(type, ...) "\"normalizer\": {\"type\": \"" type "\"" __VA_ARGS__ "}"
#define DASH(behavior)                                                                             \
    PRE("Split", ", \"pattern\": {\"String\": \"-\"}, \"behavior\": \"" behavior "\"")
    {DASH("Isolated"), "the-final--countdown", "the|-|final|-|-|countdown"},
    {DASH("Removed"), "the-final--countdown", "the|final|countdown"},
    {DASH("Contiguous"), "the-final--countdown", "the|-|final|--|countdown"},
    {DASH("MergedWithPrevious"), "the-final--countdown", "the-|final-|-|countdown"},
    {DASH("MergedWithNext"), "the-final--countdown", "the|-final|-|-countdown"},
    {DASH("MergedWithPrevious"), "-a-", "-|a-"},
    {DASH("MergedWithNext"), "-a-", "-a|-"},
    {PRE("Split", ", \"pattern\": {\"Regex\": \"[0-9]+\"}, \"behavior\": \"Removed\", "
                  "\"invert\": true"),
     "a12b3", "12|3"},
    {PRE("Digits", ""), "a12b", "a|12|b"},
    {PRE("Digits", ", \"individual_digits\": true"), "a12b", "a|1|2|b"},
    {PRE("Punctuation", ""), "Hey, you!!", "Hey|,| you|!|!"},
    {PRE("Punctuation", ", \"behavior\": \"Contiguous\""), "Hey, you!!", "Hey|,| you|!!"},
    {PRE("Punctuation", ", \"behavior\": \"Removed\""), "Hey, you!!", "Hey| you"},
    {PRE("Whitespace", ""), "Hey, you!!", "Hey|,|you|!!"},
    {PRE("Whitespace", ""), "a_b-c", "a_b|-|c"},
    {PRE("WhitespaceSplit", ""), "Hey,  you!!", "Hey,|you!!"},
    {PRE("BertPreTokenizer", ""), "Hey, you!!", "Hey|,|you|!|!"},
    {PRE("CharDelimiterSplit", ", \"delimiter\": \"x\""), "axxbx", "a|b"},
    {PRE("Sequence",
         ", \"pretokenizers\": [{\"type\": \"WhitespaceSplit\"}, {\"type\": \"Digits\"}]"),
     "a1 b", "a|1|b"},
    {PRE("Metaspace", ", \"replacement\": \"\u2581\""), "Hey you", "\u2581Hey|\u2581you"},
    {PRE("Metaspace", ", \"replacement\": \"\u2581\", \"prepend_scheme\": \"never\""), "Hey you",
     "Hey|\u2581you"},
    {PRE("Metaspace", ", \"replacement\": \"\u2581\", \"split\": false"), "Hey you",
     "\u2581Hey\u2581you"},
    {NORM("Lowercase", ""), "\u00c9A", "\u00e9a"},
    {NORM("StripAccents", ""), "e\u0301a", "ea"},
    {NORM("NFD", "") ", " PRE("WhitespaceSplit", ""), "\u00e9", "e\u0301"},
    {NORM("NFC", ""), "e\u0301", "\u00e9"},
    {NORM("NFKC", ""), "\ufb01", "fi"},
    {NORM("Strip", ""), "  ab ", "ab"},
    {NORM("Strip", ", \"strip_left\": false"), " ab ", " ab"},
    {NORM("Strip", ", \"strip_right\": false"), " ab ", "ab "},
    {NORM("Prepend", ", \"prepend\": \"x\""), "ab", "xab"},
    {NORM("Replace", ", \"pattern\": {\"String\": \".\"}, \"content\": \"-\""), "a.b.", "a-b-"},
    {NORM("Replace", ", \"pattern\": {\"Regex\": \"[ab]\"}, \"content\": \"\""), "abc", "c"},
    {NORM("Sequence", ", \"normalizers\": [{\"type\": \"Lowercase\"}, {\"type\": \"Prepend\", "
                      "\"prepend\": \"X\"}]"),
     "AB", "Xab"},
#define ADDED(rest) "\"added_tokens\": [{\"id\": 1, \"content\": \"<m>\"" rest "}]"
#define WHOLE ", \"single_word\": true"
    {ADDED(""), "<m>a <m>b", "<m>|a |<m>|b"},
    {ADDED(", \"lstrip\": true"), "<m>a \t<m> b <m>", "<m>|a|<m>| b|<m>"},
    {ADDED(", \"rstrip\": true"), "<m> a <m> \tb<m> ", "<m>|a |<m>|b|<m>"},
    {ADDED(", \"lstrip\": true, \"rstrip\": true"), "<m> <m>  a", "<m>|<m>|a"},
    {ADDED(WHOLE), "<m> <m>a", "<m>| <m>a"},
    {ADDED(WHOLE), "<m> a<m> <m>_ -<m>", "<m>| a<m> <m>_ -|<m>"},
    {ADDED(WHOLE), "<m>.<m>\u00e9 \u00e9<m>", "<m>|.<m>\u00e9 \u00e9<m>"},
    {ADDED(WHOLE), "<m> \u4e2d<m>\u3002<m>", "<m>| \u4e2d<m>\u3002|<m>"},
    {ADDED(WHOLE), "<m> <m>\u0301", "<m>| <m>\u0301"},
    {ADDED(WHOLE), "<m> <m>\u200d", "<m>| <m>\u200d"},
    {ADDED(WHOLE), "<m> <m>\u24d0", "<m>| <m>\u24d0"},
    {ADDED(WHOLE ", \"lstrip\": true"), "<m> a <m>b <m>", "<m>| a <m>b|<m>"},
    {ADDED(", \"normalized\": false") ", " NORM(
         "Replace", ", \"pattern\": {\"String\": \"<\"}, \"content\": \"(\""),
     "<m>(m><", "<m>|(m>("},
};

static void pieces_of_steps(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof piece_rows / sizeof *piece_rows; i++) {
        char json[900], pieces[100], *save;
        int32_t want[16];
        size_t n = 0;
        cJSON *vocab = cJSON_CreateObject();
        cJSON_AddNumberToObject(vocab, "?", 0);
        snprintf(pieces, sizeof pieces, "%s", piece_rows[i].pieces);
        for (char *p = strtok_r(pieces, "|", &save); p; p = strtok_r(NULL, "|", &save)) {
            const cJSON *known = cJSON_GetObjectItemCaseSensitive(vocab, p);
            want[n++] = known ? known->valueint : cJSON_GetArraySize(vocab);
            if (!known) cJSON_AddNumberToObject(vocab, p, want[n - 1]);
        }
        snprintf(json, sizeof json,
                 "{\"model\": {\"type\": \"WordLevel\", \"unk_token\": \"?\"}, %s}",
                 piece_rows[i].steps);
        sn_tokenizer *t = load_tree_ok(make_tree(json, vocab, NULL));
        sn_ids ids = encode_ok(t, piece_rows[i].text, strlen(piece_rows[i].text), 0);
        if (ids.count != n || memcmp(ids.data, want, n * sizeof *want) != 0)
            fail_msg("%s: '%s' is not %s", piece_rows[i].steps, piece_rows[i].text,
                     piece_rows[i].pieces);
        sn_ids_free(&ids);
        sn_tokenizer_free(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2),           cmocka_unit_test(gpt2_variants),
        cmocka_unit_test(bert),           cmocka_unit_test(llama),
        cmocka_unit_test(llama_full),     cmocka_unit_test(metaspace),
        cmocka_unit_test(refused_models), cmocka_unit_test(refused_steps),
        cmocka_unit_test(delimiters),     cmocka_unit_test(ranges),
        cmocka_unit_test(unknown_text),   cmocka_unit_test(long_runs_of_spaces),
        cmocka_unit_test(long_words),     cmocka_unit_test(prefixed_pieces),
        cmocka_unit_test(equal_ways),     cmocka_unit_test(pieces_of_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
