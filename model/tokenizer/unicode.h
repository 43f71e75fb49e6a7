/* unicode.h: Unicode properties and normalization forms. The only interface to utf8proc.
 * Programs of `sinter compile --exe` whose tokenizer does without its tables are linked with
 * model/deploy/unicode_none.c instead, in which sn_unicode_need fails. */
#ifndef SN_UNICODE_H
#define SN_UNICODE_H

#include "model/tokenizer/tok.h"

/* Called when a tokenizer is loaded by steps that use the functions below: notes that it needs them.
 * False if this program was linked without. */
bool sn_unicode_need(sn_tokenizer *t, sn_error *err);

typedef enum sn_form { SN_NFC, SN_NFD, SN_NFKC, SN_NFKD } sn_form;

/* Appends the normalization form of text to out; bytes that are not UTF-8 are copied. */
bool sn_unicode_normalize(sn_form form, const char *text, size_t size, sn_bytes *out,
                          sn_error *err);

typedef enum sn_char_class {
    SN_CHAR_OTHER,      /* none of these */
    SN_CHAR_WORD,       /* Alphabetic, digits, connectors, without marks */
    SN_CHAR_NONSPACING, /* category Mn */
    SN_CHAR_MARK,       /* categories Mc, Me */
    SN_CHAR_CONTROL     /* categories Cc, Cf, Co */
} sn_char_class;
sn_char_class sn_unicode_class(uint32_t cp);

uint32_t sn_unicode_lower(uint32_t cp); /* simple lower case */

/* Size of the first grapheme cluster of text, size > 0; a byte that is not UTF-8 is one. */
size_t sn_unicode_grapheme(const char *text, size_t size);

/* The property White_Space. */
static inline bool sn_is_space(uint32_t c) {
    return c == ' ' || (c >= '\t' && c <= '\r') || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}

#endif
