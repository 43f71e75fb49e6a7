/* tok_check.h: what the tokenizer tests share: the test strings with their ids, and a check that a
 * text encodes to given ids, decodes back, and does the same token by token. */
#ifndef TOK_CHECK_H
#define TOK_CHECK_H

#include "model/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define TOK_DATA SN_SOURCE_DIR "/tests/data/tokenizers/"
#define TOK_STORIES SN_SOURCE_DIR "/examples/models/stories260K/tok512.bin"

static inline char *read_whole(const char *path, size_t *size) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(*size + 1);
    assert_int_equal(fread(data, 1, *size, f), *size);
    data[*size] = 0;
    fclose(f);
    return data;
}

static inline void write_whole(const char *path, const void *data, size_t size) {
    remove(path); /* file systems flush a file that is cut to nothing and written anew */
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    fclose(f);
}

static inline sn_tokenizer *load_ok(const char *path) {
    sn_error err = {0};
    sn_tokenizer *t = sn_tokenizer_load(path, &err);
    if (!t) print_message("%s\n", err.message);
    assert_non_null(t);
    return t;
}

static inline sn_ids encode_ok(const sn_tokenizer *t, const char *text, size_t size,
                               unsigned flags) {
    sn_ids ids = {0};
    sn_error err = {0};
    if (!sn_tokenizer_encode(t, text, size, flags, &ids, &err)) fail_msg("%s", err.message);
    return ids;
}

static inline sn_bytes decode_ok(const sn_tokenizer *t, sn_ids ids, unsigned flags) {
    sn_bytes all = {0}, pieces = {0};
    sn_error err = {0};
    if (!sn_tokenizer_decode(t, ids.data, ids.count, flags, &all, &err))
        fail_msg("%s", err.message);
    sn_text_stream d = sn_text_stream_begin(t, flags);
    for (size_t i = 0; i < ids.count; i++)
        assert_true(sn_text_stream_next(&d, ids.data[i], &pieces, &err));
    assert_int_equal(all.size, pieces.size);
    if (all.size) assert_memory_equal(all.data, pieces.data, all.size);
    sn_bytes_free(&pieces);
    return all;
}

static inline void check_round_trip(const sn_tokenizer *t, const char *text, size_t size) {
    sn_ids ids = encode_ok(t, text, size, 0);
    sn_bytes back = decode_ok(t, ids, 0);
    assert_int_equal(back.size, size);
    if (size) assert_memory_equal(back.data, text, size);
    sn_ids_free(&ids);
    sn_bytes_free(&back);
}

/* flags and the ids, the list ended by -1. */
static inline void check_ids(const sn_tokenizer *t, const char *text, unsigned flags, ...) {
    sn_ids ids = encode_ok(t, text, strlen(text), flags);
    va_list ap;
    va_start(ap, flags);
    size_t n = 0;
    for (int want; (want = va_arg(ap, int)) >= 0; n++) {
        assert_true(n < ids.count);
        assert_int_equal(ids.data[n], want);
    }
    va_end(ap);
    assert_int_equal(ids.count, n);
    sn_ids_free(&ids);
}

/* Calls fn for each test string; ids: those of the file, -1 after the last one. */
static inline void each_string(const char *ids_path,
                               void (*fn)(void *ctx, const char *text, size_t size,
                                          const int32_t *ids, size_t n),
                               void *ctx) {
    static const char mark[] = "\n__ggml_vocab_test__\n";
    size_t text_size, ids_size;
    char *strings = read_whole(TOK_DATA "strings.txt", &text_size);
    char *lines = read_whole(ids_path, &ids_size), *line = lines, *text = strings, *stop;
    int count = 0;
    for (; (stop = strstr(text, mark)); text = stop + strlen(mark), count++) {
        int32_t ids[1000];
        size_t n = 0;
        char *end = strchr(line, '\n');
        assert_non_null(end);
        *end = 0;
        for (char *next; n < 1000; line = next) {
            long id = strtol(line, &next, 10);
            if (next == line) break;
            ids[n++] = (int32_t)id;
        }
        line = end + 1;
        fn(ctx, text, (size_t)(stop - text), ids, n);
    }
    assert_int_equal(count, 46);
    free(strings);
    free(lines);
}

#endif
