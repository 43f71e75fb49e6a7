/* unicode.c: implements unicode.h with utf8proc. */
#include "model/tokenizer/unicode.h"

#include <stdlib.h>
#include <utf8proc.h>

#include "model/tokenizer/utf8.h"

bool sn_unicode_need(sn_tokenizer *t, sn_error *err) {
    (void)err;
    return t->unicode = true;
}

/* symbols that count as letters: in circles and squares */
static bool is_enclosed_letter(uint32_t cp) {
    return (cp >= 0x24B6 && cp <= 0x24E9) || (cp >= 0x1F130 && cp <= 0x1F149) ||
           (cp >= 0x1F150 && cp <= 0x1F169) || (cp >= 0x1F170 && cp <= 0x1F189);
}

sn_char_class sn_unicode_class(uint32_t cp) {
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return SN_CHAR_WORD;
    case UTF8PROC_CATEGORY_MN:
        return SN_CHAR_NONSPACING;
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
        return SN_CHAR_MARK;
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
        return SN_CHAR_CONTROL;
    default:
        return is_enclosed_letter(cp) ? SN_CHAR_WORD : SN_CHAR_OTHER;
    }
}

uint32_t sn_unicode_lower(uint32_t cp) {
    return (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
}

static bool normalize_valid(sn_form form, const char *text, size_t size, sn_bytes *out,
                            sn_error *err) {
    static const utf8proc_option_t options[] = {
        [SN_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
        [SN_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
        [SN_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
        [SN_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
    };
    utf8proc_uint8_t *made = NULL;
    utf8proc_ssize_t n =
        utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)size, &made, options[form]);
    bool ok = n >= 0 ? sn_bytes_append(out, (const char *)made, (size_t)n, err)
                     : sn_fail(err, n == UTF8PROC_ERROR_NOMEM ? SN_ERR_MEMORY : SN_ERR_RANGE,
                               "normalizing the text: %s", utf8proc_errmsg(n));
    free(made);
    return ok;
}

/* ASCII is unchanged in every form, except that a mark may follow its last character. */
bool sn_unicode_normalize(sn_form form, const char *text, size_t size, sn_bytes *out,
                          sn_error *err) {
    for (size_t at = 0, from = 0; from < size; from = at) {
        bool ascii = true, valid = true;
        for (uint32_t cp; at < size; ascii = ascii && cp < 0x80) {
            size_t n = sn_utf8_next(text + at, size - at, &cp);
            valid = cp != SN_UTF8_INVALID;
            if (!valid) break;
            at += n;
        }
        if (!(ascii ? sn_bytes_append(out, text + from, at - from, err)
                    : normalize_valid(form, text + from, at - from, out, err)))
            return false;
        if (!valid && !sn_bytes_append(out, text + at++, 1, err)) return false;
    }
    return true;
}

size_t sn_unicode_grapheme(const char *text, size_t size) {
    uint32_t last, next;
    utf8proc_int32_t state = 0;
    size_t at = sn_utf8_next(text, size, &last);
    while (last != SN_UTF8_INVALID && at < size) {
        size_t n = sn_utf8_next(text + at, size - at, &next);
        if (next == SN_UTF8_INVALID || utf8proc_grapheme_break_stateful(
                                           (utf8proc_int32_t)last, (utf8proc_int32_t)next, &state))
            break;
        at += n, last = next;
    }
    return at;
}
