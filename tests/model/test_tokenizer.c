/* Tokenizers against published ids: GPT-2 and BERT with their vocabularies, llama2.c with the small
 * one of stories260K; if SN_DATA_DIR is a folder that contains decoder/stories15M/tokenizer.bin,
 * also Llama 2's. Round trips, special tokens, invalid bytes. */
#include "tests/model/tok_check.h"

static void same_ids(void *ctx, const char *text, size_t size, const int32_t *want, size_t n) {
    const sn_tokenizer *t = ctx;
    sn_ids ids = encode_ok(t, text, size, 0);
    for (size_t i = 0; i < n && i < ids.count; i++)
        if (ids.data[i] != want[i])
            fail_msg("\"%.*s\": id %zu is %d, not %d", (int)size, text, i, (int)ids.data[i],
                     (int)want[i]);
    assert_int_equal(ids.count, n);
    sn_ids_free(&ids);
}

static void round_trip_string(void *ctx, const char *text, size_t size, const int32_t *want,
                              size_t n) {
    (void)want, (void)n;
    check_round_trip(ctx, text, size);
}

static void check_special(const sn_tokenizer *t, int bos, int eos, int mask, int unk, int pad) {
    assert_int_equal(sn_tokenizer_special(t, SN_TOKEN_BOS), bos);
    assert_int_equal(sn_tokenizer_special(t, SN_TOKEN_EOS), eos);
    assert_int_equal(sn_tokenizer_special(t, SN_TOKEN_MASK), mask);
    assert_int_equal(sn_tokenizer_special(t, SN_TOKEN_UNK), unk);
    assert_int_equal(sn_tokenizer_special(t, SN_TOKEN_PAD), pad);
}

/* The text of every token maps back to an id with the same text; ids out of range have none. */
static void check_texts(const sn_tokenizer *t) {
    size_t size, again;
    int32_t n = sn_tokenizer_vocab_size(t);
    for (int32_t id = 0; id < n; id++) {
        const char *text = sn_tokenizer_text(t, id, &size);
        assert_non_null(text);
        int32_t found = sn_tokenizer_id(t, text, size);
        assert_in_range(found, 0, id); /* if several have the text, the first */
        sn_tokenizer_text(t, found, &again);
        assert_int_equal(again, size);
    }
    assert_null(sn_tokenizer_text(t, -1, &size));
    assert_null(sn_tokenizer_text(t, n, &size));
    assert_null(sn_tokenizer_text(t, INT32_MAX, &size));
    assert_int_equal(sn_tokenizer_id(t, "no such token at all", 20), -1);
    assert_int_equal(sn_tokenizer_id(t, "", 0), -1);
}

/* Invalid UTF-8, NULs, and a character truncated at each byte. */
static const char odd_bytes[] = "a\xFF b\xC3(\xE2\x82 \xF0\x9F\x98 \xED\xA0\x80 \xC0\x80 x\0y\0\0 "
                                "\x80\x80\x80   \xF4\x90\x80\x80 z\xCC\x81\xE2\x82\xAC\xF0\x9F";

static void gpt2_vectors(void **state) {
    (void)state;
    sn_tokenizer *t = load_ok(TOK_DATA "gpt2");
    assert_string_equal(sn_tokenizer_kind(t), "gpt2-bpe");
    assert_int_equal(sn_tokenizer_vocab_size(t), 50257);
    check_special(t, 50256, 50256, -1, -1, -1);
    check_texts(t);
    each_string(TOK_DATA "gpt2/ids.txt", same_ids, t);
    each_string(TOK_DATA "gpt2/ids.txt", round_trip_string, t);
    check_round_trip(t, odd_bytes, sizeof odd_bytes);
    check_round_trip(t, "", 0);
    check_ids(t, "", SN_TOK_BOS | SN_TOK_EOS, 50256, 50256, -1);
    check_ids(t, " the", SN_TOK_EOS, 262, 50256, -1);
    assert_int_equal(sn_tokenizer_id(t, " the", 4), 262);
    check_ids(t, "a<|endoftext|>", 0, 64, 27, 91, 437, 1659, 5239, 91, 29, -1);
    check_ids(t, "a<|endoftext|><|endoftext|>b", SN_TOK_SPECIAL, 64, 50256, 50256, 65, -1);
    sn_tokenizer_free(t);
}

static void gpt2_files(void **state) {
    (void)state;
    sn_tokenizer *a = load_ok(TOK_DATA "gpt2/encoder.json");
    sn_tokenizer *b = load_ok(TOK_DATA "gpt2/vocab.bpe");
    check_ids(a, "Hello world", 0, 15496, 995, -1);
    check_ids(b, "Hello world", 0, 15496, 995, -1);
    sn_tokenizer_free(a);
    sn_tokenizer_free(b);
}

static void decode_flags(void **state) {
    (void)state;
    sn_tokenizer *t = load_ok(TOK_DATA "gpt2");
    int32_t list[] = {50256, 15496, 50256};
    sn_ids ids = {list, 3, 3};
    sn_bytes plain = decode_ok(t, ids, 0), all = decode_ok(t, ids, SN_TOK_SPECIAL);
    assert_string_equal(plain.data, "Hello");
    assert_string_equal(all.data, "<|endoftext|>Hello<|endoftext|>");
    int32_t bad[] = {15496, 50257}, negative[] = {-1};
    sn_error err = {0};
    assert_false(sn_tokenizer_decode(t, bad, 2, 0, &plain, &err));
    assert_int_equal(err.code, SN_ERR_RANGE);
    assert_non_null(strstr(err.message, "50257"));
    assert_string_equal(plain.data, "Hello"); /* as before */
    assert_false(sn_tokenizer_decode(t, negative, 1, 0, &plain, NULL));
    sn_text_stream d = sn_text_stream_begin(t, 0);
    assert_false(sn_text_stream_next(&d, INT32_MIN, &plain, NULL));
    sn_bytes_free(&plain);
    sn_bytes_free(&all);
    sn_tokenizer_free(t);
}

static void bert_vectors(void **state) {
    (void)state;
    sn_tokenizer *t = load_ok(TOK_DATA "bert");
    assert_string_equal(sn_tokenizer_kind(t), "wordpiece");
    assert_int_equal(sn_tokenizer_vocab_size(t), 30522);
    check_special(t, 101, 102, 103, 100, 0);
    check_texts(t);
    each_string(TOK_DATA "bert/ids.txt", same_ids, t);
    check_ids(t, "", SN_TOK_BOS | SN_TOK_EOS, 101, 102, -1);
    check_ids(t, "Hello [MASK]", SN_TOK_SPECIAL, 7592, 103, -1);
    check_ids(t, "Hello [MASK]", 0, 7592, 1031, 7308, 1033, -1);
    sn_tokenizer_free(t);
}

/* BERT's preprocessing of text: the cases of tokenization.py. */
static void bert_normalisation(void **state) {
    (void)state;
    static const struct {
        const char *text, *same;
    } cases[] = {
        {" \tHeLLo!how  \n Are yoU?  ", "hello ! how are you ?"},
        {"H\u00E9llo \u00C5ngstr\u00F6m \u1E9E \u0130x", "hello angstrom \u00DF ix"},
        {"He\u0301llo", "hello"},
        {"ah\u535A\u63A8zz", "ah \u535A \u63A8 zz"},
        {"a\u200Bb\x07"
         "c\uFFFDd",
         "abcd"},
        {"\u00A0x\u3000y\u2028z", "x y z"},
        {"\u0391\u03A3\u03A9 \u1F80", "\u03B1\u03C3\u03C9 \u03B1"},
        {"\uAC01", "\u1100\u1161\u11A8"},
        {"\uF900", "\u8C48"},
        {"\u0958 \u09CB", "\u0915 \u09C7\u09BE"},
        {"x\xFF\xC3y", "xy"},
    };
    sn_tokenizer *t = load_ok(TOK_DATA "bert");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sn_ids a = encode_ok(t, cases[i].text, strlen(cases[i].text), 0);
        sn_ids b = encode_ok(t, cases[i].same, strlen(cases[i].same), 0);
        assert_int_equal(a.count, b.count);
        assert_memory_equal(a.data, b.data, a.count * sizeof *a.data);
        sn_ids_free(&a);
        sn_ids_free(&b);
    }
    char word[404], *w = word; /* 100 characters are a word, 101 become unk */
    for (int i = 0; i < 101; i++) w += sprintf(w, "\u00E9");
    sn_ids ids = encode_ok(t, word, 200, 0);
    assert_true(ids.count > 1);
    ids.count = 0;
    assert_true(sn_tokenizer_encode(t, word, 202, 0, &ids, NULL));
    assert_int_equal(ids.count, 1);
    assert_int_equal(ids.data[0], 100);
    sn_ids_free(&ids);
    sn_tokenizer_free(t);
}

/* Decoding joins words with single spaces; encoding the result gives the same ids. */
static void bert_again(void *ctx, const char *text, size_t size, const int32_t *want, size_t n) {
    (void)text, (void)size;
    for (size_t i = 0; i < n; i++)
        if (want[i] == 100) return; /* [UNK] is omitted */
    sn_ids ids = {(int32_t *)(uintptr_t)want, n, n};
    sn_bytes back = decode_ok(ctx, ids, 0);
    same_ids(ctx, back.data, back.size, want, n);
    sn_bytes_free(&back);
}

static void bert_decoding(void **state) {
    (void)state;
    sn_tokenizer *t = load_ok(TOK_DATA "bert/vocab.txt");
    each_string(TOK_DATA "bert/ids.txt", bert_again, t);
    int32_t list[] = {101, 12731, 2050, 19710, 1010, 7592, 102};
    sn_bytes back = decode_ok(t, (sn_ids){list, 7, 7}, 0);
    assert_string_equal(back.data, "cua viet , hello");
    sn_bytes_free(&back);
    sn_tokenizer_free(t);
}

static void llama_small(void **state) {
    (void)state;
    sn_tokenizer *t = load_ok(TOK_STORIES);
    assert_string_equal(sn_tokenizer_kind(t), "llama-bpe");
    assert_int_equal(sn_tokenizer_vocab_size(t), 512);
    check_special(t, 1, 2, -1, 0, -1);
    check_texts(t);
    each_string(TOK_DATA "llama/ids.txt", round_trip_string, t);
    check_round_trip(t, odd_bytes, sizeof odd_bytes);
    check_ids(t, "", SN_TOK_BOS, 1, -1);
    /* the beginning of this model's published greedy story */
    check_ids(t, "Once upon a time, there was a little girl named Lily.", SN_TOK_BOS, 1, 403, 407,
              261, 378, 432, 383, 286, 261, 376, 298, 315, 421, 395, 317, 426, -1);
    sn_tokenizer_free(t);
}

static void llama_vectors(void **state) {
    (void)state;
    const char *dir = getenv("SN_DATA_DIR");
    if (!dir) skip();
    char path[4096];
    snprintf(path, sizeof path, "%s/decoder/stories15M/tokenizer.bin", dir);
    sn_tokenizer *t = load_ok(path);
    assert_int_equal(sn_tokenizer_vocab_size(t), 32000);
    each_string(TOK_DATA "llama/ids.txt", same_ids, t);
    each_string(TOK_DATA "llama/ids.txt", round_trip_string, t);
    check_round_trip(t, odd_bytes, sizeof odd_bytes);
    check_ids(t, "", SN_TOK_BOS, 1, -1);
    check_ids(t, "I believe the meaning of life is", SN_TOK_BOS, 1, 306, 4658, 278, 6593, 310, 2834,
              338, -1);
    check_ids(t, "Simply put, the theory of relativity states that ", SN_TOK_BOS, 1, 3439, 17632,
              1925, 29892, 278, 6368, 310, 14215, 537, 5922, 393, 29871, -1);
    sn_tokenizer_free(t);
}

/* A first leading space is the tokenizer's prefix, a second one the text's; bos starts a new
 * text. */
static void llama_spaces(void **state) {
    (void)state;
    sn_tokenizer *t = load_ok(TOK_STORIES);
    check_round_trip(t, " x", 2);
    check_round_trip(t, "  x  ", 5);
    check_round_trip(t, " ", 1);
    check_round_trip(t, "\n", 1);
    int32_t once = sn_tokenizer_id(t, " the", 4), byte = sn_tokenizer_id(t, "<0x0A>", 6);
    int32_t list[] = {1, once, once, byte, once, 2, 1, once};
    sn_bytes back = decode_ok(t, (sn_ids){list, 8, 8}, 0);
    assert_string_equal(back.data, "the the\n thethe");
    sn_bytes_free(&back);
    back = decode_ok(t, (sn_ids){list, 2, 2}, SN_TOK_SPECIAL);
    assert_string_equal(back.data, "<s>the");
    sn_bytes_free(&back);
    sn_tokenizer_free(t);
}

/* n log n: a megabyte of one letter (all merges tie) and of spaces is encoded quickly. */
static void long_text(void **state) {
    (void)state;
    enum { N = 1 << 20 };
    char *text = malloc(N);
    sn_tokenizer *gpt2 = load_ok(TOK_DATA "gpt2"), *llama = load_ok(TOK_STORIES);
    for (int i = 0; i < 2; i++) {
        memset(text, i ? ' ' : 'a', N);
        check_round_trip(gpt2, text, N);
        check_round_trip(llama, text, N);
    }
    free(text);
    sn_tokenizer_free(gpt2);
    sn_tokenizer_free(llama);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_vectors),       cmocka_unit_test(gpt2_files),
        cmocka_unit_test(decode_flags),       cmocka_unit_test(bert_vectors),
        cmocka_unit_test(bert_normalisation), cmocka_unit_test(bert_decoding),
        cmocka_unit_test(llama_small),        cmocka_unit_test(llama_vectors),
        cmocka_unit_test(llama_spaces),       cmocka_unit_test(long_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
