/* utf8.h: decodes and encodes one UTF-8 code point at a time; reports invalid bytes and does not
 * repair them. */
#ifndef SN_UTF8_H
#define SN_UTF8_H

#include <stddef.h>
#include <stdint.h>

#define SN_UTF8_INVALID UINT32_MAX

/* Decodes the code point at p[0..n), n > 0. Returns its length 1 to 4, or 1 with *cp =
 * SN_UTF8_INVALID if the byte does not begin a well-formed sequence (Unicode 15, table 3-7: no
 * overlong forms, no surrogates, nothing above U+10FFFF). */
static inline size_t sn_utf8_next(const char *p, size_t n, uint32_t *cp) {
    const unsigned char *s = (const unsigned char *)p;
    *cp = SN_UTF8_INVALID;
    if (s[0] < 0x80) {
        *cp = s[0];
        return 1;
    }
    size_t len = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    if (s[0] < 0xC2 || s[0] > 0xF4 || len > n) return 1;
    uint32_t c = s[0] & (0x7Fu >> len);
    for (size_t i = 1; i < len; i++) {
        if ((s[i] & 0xC0) != 0x80) return 1;
        c = c << 6 | (s[i] & 0x3F);
    }
    if (c < least[len] || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) return 1;
    *cp = c;
    return len;
}

/* The start of the character that ends before p[end], end > 0. */
static inline size_t sn_utf8_back(const char *p, size_t end) {
    for (size_t at = end; at-- > 0 && end - at <= 4;) {
        uint32_t cp;
        if (sn_utf8_next(p + at, end - at, &cp) == end - at && cp != SN_UTF8_INVALID) return at;
    }
    return end - 1;
}

/* Encodes a code point; returns its length. */
static inline size_t sn_utf8_put(uint32_t c, char out[4]) {
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t len = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = len; i-- > 1; c >>= 6) out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)(0xF00u >> len | c);
    return len;
}

#endif
