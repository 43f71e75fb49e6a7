/* bytes.c: makes files from words. */
#include "tests/hostile/hostile.h"
#include "model/tokenizer/tok.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

void hostile_put(sn_bytes *out, const void *data, size_t size) {
    if (!sn_bytes_append(out, data, size, NULL)) fail_msg("out of memory");
}

static void put_number(sn_bytes *out, uint64_t x, size_t bytes) { /* little endian */
    for (size_t i = 0; i < bytes; i++, x = i < 8 ? x >> 8 : 0)
        hostile_put(out, &(unsigned char){(unsigned char)x}, 1);
}

static void put_zeros(sn_bytes *out, uint64_t n) {
    while (n--) hostile_put(out, "", 1);
}

static void put_varint(sn_bytes *out, uint64_t x) {
    for (; x > 127; x >>= 7) put_number(out, x | 128, 1);
    put_number(out, x, 1);
}

static const char *assemble(const char *at, sn_bytes *out);

/* The field of a message: its number, then a sign and the rest of the word. */
static const char *put_field(const char *at, const char *end, uint64_t field, char sign,
                             sn_bytes *out) {
    enum { VARINT, LENGTH = 2, FOUR = 5 };
    const uint64_t x = strtoull(at, NULL, 0);
    put_varint(out, field << 3 | (sign == '=' ? VARINT : sign == '~' ? FOUR : LENGTH));
    if (sign == '=') put_varint(out, x);
    if (sign == '~') put_number(out, x, 4);
    if (sign == '<' || sign == '*') put_varint(out, x);
    if (sign == '*') put_zeros(out, x);
    if (sign == ':')
        put_varint(out, (uint64_t)(end - at)), hostile_put(out, at, (size_t)(end - at));
    if (sign != '{') return end;
    sn_bytes inner = {0};
    end = assemble(end, &inner);
    put_varint(out, inner.size);
    hostile_put(out, inner.data, inner.size);
    sn_bytes_free(&inner);
    return end;
}

/* Up to the end of the words, or behind "}". */
static const char *assemble(const char *at, sn_bytes *out) {
    for (at += strspn(at, " "); *at && *at != '}'; at += strspn(at, " ")) {
        const char *end = at + strcspn(at, " ");
        char *sign;
        if (*at == '\'')
            hostile_put(out, at + 1, (size_t)(end - at - 1));
        else if (!strncmp(at, "s:", 2)) {
            put_number(out, (uint64_t)(end - at - 2), 8);
            hostile_put(out, at + 2, (size_t)(end - at - 2));
        } else if (*at == '*')
            put_zeros(out, strtoull(at + 1, NULL, 0));
        else if (*at == '^') {
            const uint64_t n = strtoull(at + 1, NULL, 0);
            put_zeros(out, (n - out->size % n) % n);
        } else {
            const uint64_t x = strtoull(at, &sign, 0);
            if (sign == at || !strchr("/=:*~<{", *sign) || !*sign)
                fail_msg("what is the word %s", at);
            if (*sign == '/')
                put_number(out, x, strtoull(sign + 1, NULL, 0));
            else
                end = put_field(sign + 1, end, x, *sign, out);
        }
        at = end;
    }
    return at + (*at == '}');
}

void hostile_assemble(const char *words, sn_bytes *out) {
    if (*assemble(words, out)) fail_msg("a } too many in %s", words);
}

void hostile_words(const hostile_row *r, sn_bytes *out) {
    hostile_assemble(r->text, out);
}

void hostile_plain(const hostile_row *r, sn_bytes *out) {
    hostile_put(out, r->text, strlen(r->text));
}
