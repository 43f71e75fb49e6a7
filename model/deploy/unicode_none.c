/* unicode_none.c: stands for model/tokenizer/unicode.c in a program whose tokenizer does without
 * its tables, which are larger than the rest of the tokenizers. */
#include "model/tokenizer/unicode.h"
#include "model/tokenizer/utf8.h"

bool sn_unicode_need(sn_tokenizer *t, sn_error *err) {
    (void)t;
    return sn_fail(
        err, SN_ERR_USAGE,
        "this tokenizer needs tables of Unicode, and the one that the program was compiled "
        "with does not: compile the program with this tokenizer");
}

bool sn_unicode_normalize(sn_form form, const char *text, size_t size, sn_bytes *out,
                          sn_error *err) {
    (void)form;
    return sn_bytes_append(out, text, size, err);
}

sn_char_class sn_unicode_class(uint32_t cp) {
    (void)cp;
    return SN_CHAR_OTHER;
}

uint32_t sn_unicode_lower(uint32_t cp) {
    return cp;
}

size_t sn_unicode_grapheme(const char *text, size_t size) {
    uint32_t cp;
    return sn_utf8_next(text, size, &cp);
}
