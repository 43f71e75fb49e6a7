#include "tests/long/fuzz_change.h"

#include "tests/long/fuzz_grammar.h"

#include <setjmp.h>
#include <stdarg.h>
#include <zlib.h>
#include <cmocka.h>
#include "tests/support/scratch.h"

/* How many changes: one in half of the cases, since each may be what is refused first. */
static uint64_t count_edits(uint64_t *s) {
    uint64_t n = 1;
    while (n < 16 && next_random(s) & 1) n++;
    return n;
}

size_t fuzz_change_bytes(unsigned char *d, size_t size, uint64_t *s) {
    static const uint64_t limits[] = {0,
                                      1,
                                      0x7f,
                                      0xff,
                                      0x7fff,
                                      0xffff,
                                      0x7fffffff,
                                      0xffffffff,
                                      0x7fffffffffffffff,
                                      ~(uint64_t)0,
                                      (uint64_t)1 << 62};
    static const char *const words[] = {"-1", "1e999", "nan", "0", "99999999999999999999",
                                        "\"", "[",     "}"};
    for (uint64_t n = count_edits(s); n && size > 8; n--) {
        size_t window = grammar_below(s, 4) && size > 4096 ? 4096 : size,
               at = grammar_below(s, window);
        size_t left = size - at, len = 1 + grammar_below(s, left < 16 ? left : 16);
        uint64_t limit = limits[grammar_below(s, sizeof limits / sizeof *limits)];
        const char *word = words[grammar_below(s, sizeof words / sizeof *words)];
        switch (grammar_below(s, 7)) {
        case 0:
            d[at] ^= (unsigned char)(1u << grammar_below(s, 8));
            break;
        case 1:
            d[at] = (unsigned char)next_random(s);
            break;
        case 2:
            memcpy(d + at, &limit, left < 8 ? left : grammar_below(s, 2) ? 8 : 4);
            break;
        case 3:
            memmove(d + at, d + grammar_below(s, size - len + 1), len);
            break;
        case 4:
            memcpy(d + at, word, left < strlen(word) ? left : strlen(word));
            break;
        case 5:
            memmove(d + at, d + at + len, left - len), size -= len;
            break;
        default:
            size = grammar_below(s, 8) ? size : at;
            break;
        }
    }
    return size;
}

static uint32_t read_big(const unsigned char *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

void fuzz_mend_png(unsigned char *d, size_t size) {
    enum {
        SIGNATURE = 8,
        HEAD = 8,
        SUM = 4
    }; /* a chunk: its size, its name, its bytes, their sum */
    if (size < SIGNATURE || memcmp(d, "\x89PNG", 4)) return;
    for (size_t at = SIGNATURE; size - at >= HEAD + SUM;) {
        const size_t n = read_big(d + at);
        if (n > size - at - HEAD - SUM) return;
        const uint32_t sum = (uint32_t)crc32(0, d + at + 4, (uInt)n + 4);
        at += HEAD + n;
        for (int i = 0; i < SUM; i++) d[at++] = (unsigned char)(sum >> (24 - 8 * i));
    }
}

/* ---- JSON ---- */

enum { MAX_VALUES = 1 << 12, MAX_DEPTH = 64 };

/* A value's bytes; `from`: where its member begins, at the key if it has one. */
typedef struct value {
    size_t from, begin, end;
} value;

static value values[MAX_VALUES];

/* What stands between values, and what ends a number or a word. */
static bool is_between[256] = {[' '] = true, ['\t'] = true, ['\r'] = true, ['\n'] = true,
                               [','] = true, [':'] = true,  [']'] = true,  ['}'] = true};
static bool is_end[256] = {
    [' '] = true, ['\t'] = true, ['\r'] = true, ['\n'] = true, [','] = true, [':'] = true,
    [']'] = true, ['}'] = true,  ['['] = true,  ['{'] = true,  ['"'] = true};

static size_t end_of_string(const unsigned char *d, size_t size, size_t at) {
    for (at++; at < size && d[at] != '"'; at++)
        if (d[at] == '\\') at++;
    return at < size ? at + 1 : size;
}

/* Finds the values, up to a limit; those with a missing end have end 0. */
static int find_values(const unsigned char *d, size_t size) {
    int n = 0, depth = 0, open[MAX_DEPTH];
    size_t key = size;
    for (size_t at = 0; at < size && n < MAX_VALUES;) {
        unsigned char c = d[at];
        if ((c == '}' || c == ']') && depth) values[open[--depth]].end = at + 1;
        if (is_between[c]) {
            at++;
            continue;
        }
        size_t end = c == '"' ? end_of_string(d, size, at) : at + 1;
        if (c == '"' && end < size && d[end] == ':') {
            key = at, at = end;
            continue;
        }
        values[n] = (value){key < at ? key : at, at, 0};
        key = size;
        if ((c == '{' || c == '[') && depth < MAX_DEPTH)
            open[depth++] = n;
        else {
            while (c != '"' && end < size && !is_end[d[end]]) end++;
            values[n].end = end;
        }
        n++, at = end;
    }
    return n;
}

/* Puts `n` bytes in the place of those from begin to end, if there is room. */
static size_t put(unsigned char *d, size_t size, size_t room, size_t begin, size_t end,
                  const void *text, size_t n) {
    if (size - (end - begin) + n > room) return size;
    memmove(d + begin + n, d + end, size - end);
    memcpy(d + begin, text, n);
    return size - (end - begin) + n;
}

/* One change, of the value v. */
static size_t change_value(unsigned char *d, size_t size, size_t room, const value *v,
                           const value *other, uint64_t *s) {
    static const char *const literals[] = {"0",
                                           "-1",
                                           "1e999",
                                           "-1e-999",
                                           "0.5",
                                           "2147483648",
                                           "9223372036854775808",
                                           "1e18",
                                           "true",
                                           "false",
                                           "null",
                                           "\"\"",
                                           "\"\\ud800\"",
                                           "\"\\u0000\"",
                                           "[]",
                                           "{}",
                                           "[[]]",
                                           "[0]",
                                           "[null]",
                                           "{\"\":null}",
                                           "\"\xf0\x9f\x98\x80\"",
                                           "\"../x\"",
                                           "[1,2]",
                                           "1",
                                           "2",
                                           "\"a\"",
                                           "-9223372036854775808"};
    static unsigned char copy[1 << 12];
    const char *literal = literals[grammar_below(s, sizeof literals / sizeof *literals)];
    size_t n = other->end - other->begin, from = v->from, end = v->end;
    switch (grammar_below(s, 6)) {
    case 0:
        if (n > sizeof copy) break;
        memcpy(copy, d + other->begin, n);
        return put(d, size, room, v->begin, end, copy, n);
    case 1: /* the element twice, seldom a key */
        if (end - from > sizeof copy - 1 || (from != v->begin && grammar_below(s, 8))) break;
        memcpy(copy, d + from, end - from), copy[end - from] = ',';
        return put(d, size, room, from, from, copy, end - from + 1);
    case 2: /* not at all, with its comma */
        if (end < size && d[end] == ',')
            end++;
        else if (from && d[from - 1] == ',')
            from--;
        return put(d, size, room, from, end, "", 0);
    case 3: /* one byte of it, and no end of a string */
        if (d[v->begin] == '"' && end - v->begin > 2)
            d[v->begin + 1 + grammar_below(s, end - v->begin - 2)] =
                (unsigned char)(' ' + 3 + grammar_below(s, 56));
        return size;
    default:
        break;
    }
    return put(d, size, room, v->begin, end, literal, strlen(literal));
}

size_t fuzz_change_json(unsigned char *d, size_t size, size_t room, uint64_t *s) {
    for (uint64_t edits = count_edits(s); edits; edits--) {
        int n = find_values(d, size);
        if (n < 2) break;
        const value *v = &values[1 + grammar_below(s, (uint64_t)n - 1)],
                    *other = &values[grammar_below(s, (uint64_t)n)];
        if (v->end && other->end) size = change_value(d, size, room, v, other, s);
    }
    return grammar_below(s, 4) ? size : fuzz_change_bytes(d, size, s);
}
