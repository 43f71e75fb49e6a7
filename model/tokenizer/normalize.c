/* normalize.c: the normalizers of steps.h. */
#include "model/tokenizer/steps.h"

#include <string.h>

#include "model/tokenizer/utf8.h"

static bool put(sn_bytes *out, uint32_t cp, sn_error *err) {
    char utf8[4];
    return sn_bytes_append(out, utf8, sn_utf8_put(cp, utf8), err);
}

/* Calls fn for each character; bytes that are not UTF-8 become U+FFFD. */
typedef bool (*rewrite_char)(const sn_norm *n, uint32_t cp, sn_bytes *out, sn_error *err);

static bool each_char(const sn_norm *n, sn_leaves in, rewrite_char fn, sn_bytes *out,
                      sn_error *err) {
    for (size_t at = 0; at < in.size;) {
        uint32_t cp;
        at += sn_utf8_next(in.text + at, in.size - at, &cp);
        if (!fn(n, cp == SN_UTF8_INVALID ? 0xFFFD : cp, out, err)) return false;
    }
    return true;
}

bool sn_norm_form(const sn_norm *n, sn_leaves in, sn_bytes *out, sn_error *err) {
    return sn_unicode_normalize(n->form, in.text, in.size, out, err);
}

/* The only character whose lower case is two characters is U+0130. */
static bool put_lower(const sn_norm *n, uint32_t cp, sn_bytes *out, sn_error *err) {
    (void)n;
    return cp == 0x130 ? sn_bytes_append(out, "i\xCC\x87", 3, err)
                       : put(out, sn_unicode_lower(cp), err);
}

bool sn_norm_lower(const sn_norm *n, sn_leaves in, sn_bytes *out, sn_error *err) {
    return each_char(n, in, put_lower, out, err);
}

static bool put_unmarked(const sn_norm *n, uint32_t cp, sn_bytes *out, sn_error *err) {
    (void)n;
    sn_char_class c = sn_unicode_class(cp);
    return c == SN_CHAR_NONSPACING || c == SN_CHAR_MARK || put(out, cp, err);
}

bool sn_norm_strip_accents(const sn_norm *n, sn_leaves in, sn_bytes *out, sn_error *err) {
    return each_char(n, in, put_unmarked, out, err);
}

/* Control characters are dropped; unusual spaces become spaces. */
static bool put_nmt(const sn_norm *n, uint32_t c, sn_bytes *out, sn_error *err) {
    (void)n;
    if ((c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F ||
        c == 0x9F)
        return true;
    bool space = c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
                 (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                 c == 0xFEFF || c == 0xFFFD;
    return put(out, space ? ' ' : c, err);
}

bool sn_norm_nmt(const sn_norm *n, sn_leaves in, sn_bytes *out, sn_error *err) {
    return each_char(n, in, put_nmt, out, err);
}

bool sn_norm_prepend(const sn_norm *n, sn_leaves in, sn_bytes *out, sn_error *err) {
    return sn_bytes_append(out, n->text.data, in.size ? n->text.size : 0, err) &&
           sn_bytes_append(out, in.text, in.size, err);
}

typedef struct replacing {
    const sn_norm *n;
    sn_bytes *out;
    sn_error *err;
} replacing;

static bool replace_piece(void *ctx, const char *text, size_t size, bool matched) {
    const replacing *r = ctx;
    return matched ? sn_bytes_append(r->out, r->n->text.data, r->n->text.size, r->err)
                   : sn_bytes_append(r->out, text, size, r->err);
}

bool sn_norm_replace(const sn_norm *n, sn_leaves in, sn_bytes *out, sn_error *err) {
    replacing r = {n, out, err};
    return sn_regex_split(n->regex, in.text, in.size, replace_piece, &r, err);
}

bool sn_norm_strip(const sn_norm *n, sn_leaves in, sn_bytes *out, sn_error *err) {
    size_t from = n->left ? sn_space_run(in.text, in.size) : 0, end = in.size;
    if (n->right) end -= sn_space_tail(in.text + from, end - from);
    return sn_bytes_append(out, in.text + from, end - from, err);
}

/* As Hugging Face does it: a grapheme cluster shorter than 6 bytes is replaced if the table has any
 * prefix of it; otherwise each of its characters for itself. The shortest entry counts. */
static bool replace_cluster(const sn_norm *n, const char *text, size_t size, sn_bytes *out,
                            sn_error *err) {
    const char *with;
    if (size < 6 && sn_charsmap_find(&n->map, text, size, false, &with))
        return sn_bytes_append(out, with, strlen(with), err);
    for (size_t at = 0, len; at < size; at += len) {
        uint32_t cp;
        len = sn_utf8_next(text + at, size - at, &cp);
        bool known = sn_charsmap_find(&n->map, text + at, len, false, &with) > 0;
        if (!sn_bytes_append(out, known ? with : text + at, known ? strlen(with) : len, err))
            return false;
    }
    return true;
}

bool sn_norm_precompiled(const sn_norm *n, sn_leaves in, sn_bytes *out, sn_error *err) {
    for (size_t at = 0, len; at < in.size; at += len) {
        len = sn_unicode_grapheme(in.text + at, in.size - at);
        if (!replace_cluster(n, in.text + at, len, out, err)) return false;
    }
    return true;
}

/* ---- BERT ---- */

/* The "CJK" ranges of _is_chinese_char in google-research/bert, tokenization.py. */
static bool is_chinese(uint32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
           (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
           (c >= 0x2B740 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) ||
           (c >= 0x2F800 && c <= 0x2FA1F);
}

static bool put_clean(const sn_norm *n, uint32_t cp, sn_bytes *out, sn_error *err) {
    if (cp > ' ' && cp < 0x7F) return put(out, cp, err);
    bool blank = cp == '\t' || cp == '\n' || cp == '\r';
    if (n->clean && !blank && (cp == 0 || cp == 0xFFFD || sn_unicode_class(cp) == SN_CHAR_CONTROL))
        return true;
    if (n->clean && sn_is_space(cp)) cp = ' ';
    bool separate = n->chinese && is_chinese(cp);
    return sn_bytes_append(out, " ", separate, err) && put(out, cp, err) &&
           sn_bytes_append(out, " ", separate, err);
}

static bool put_folded(const sn_norm *n, uint32_t cp, sn_bytes *out, sn_error *err) {
    if (n->strip && cp >= 0x300 && sn_unicode_class(cp) == SN_CHAR_NONSPACING) return true;
    return n->lower ? put_lower(n, cp, out, err) : put(out, cp, err);
}

bool sn_norm_bert(const sn_norm *n, sn_leaves in, sn_bytes *out, sn_error *err) {
    sn_bytes clean = {0}, decomposed = {0};
    bool ok = each_char(n, in, put_clean, &clean, err) &&
              (!n->strip || sn_unicode_normalize(SN_NFD, clean.data, clean.size, &decomposed, err));
    sn_bytes *last = n->strip ? &decomposed : &clean;
    ok = ok && each_char(n, (sn_leaves){last->data, last->size, false}, put_folded, out, err);
    sn_bytes_free(&clean);
    sn_bytes_free(&decomposed);
    return ok;
}

/* ---- SentencePiece: normalizer.cc ---- */

/* The next piece of normalized text; returns the size of what it stands for. */
static size_t next_piece(const sn_norm *n, const char *text, size_t size, const char **piece,
                         size_t *piece_size) {
    size_t len;
    int32_t user = sn_vocab_prefix(&n->users, text, size);
    if (user >= 0) {
        *piece = sn_vocab_text(&n->users, user, &len);
        return *piece_size = len;
    }
    if ((len = sn_charsmap_find(&n->map, text, size, true, piece))) {
        *piece_size = strlen(*piece);
        return len;
    }
    uint32_t cp;
    len = sn_utf8_next(text, size, &cp);
    *piece = cp == SN_UTF8_INVALID ? "\xEF\xBF\xBD" : text;
    *piece_size = cp == SN_UTF8_INVALID ? 3 : len;
    return len;
}

static bool put_escaped(const sn_norm *n, const char *text, size_t size, sn_bytes *out,
                        sn_error *err) {
    bool ok = true;
    for (size_t i = 0; ok && i < size; i++)
        ok = n->escape && text[i] == ' ' ? sn_bytes_append(out, SN_METASPACE, 3, err)
                                         : sn_bytes_append(out, text + i, 1, err);
    return ok;
}

static bool ends_with_space(const sn_norm *n, const sn_bytes *out, size_t from) {
    if (!n->escape) return out->size > from && out->data[out->size - 1] == ' ';
    return out->size >= from + 3 && !memcmp(out->data + out->size - 3, SN_METASPACE, 3);
}

bool sn_norm_sentencepiece(const sn_norm *n, sn_leaves in, sn_bytes *out, sn_error *err) {
    const char *piece;
    size_t at = 0, size, from = out->size;
    while (n->collapse && at < in.size) {
        size_t len = next_piece(n, in.text + at, in.size - at, &piece, &size);
        if (size != 1 || *piece != ' ') break;
        at += len;
    }
    if (at == in.size) return true;
    if (n->prefix && !n->suffix && in.first && !put_escaped(n, " ", 1, out, err)) return false;
    bool after_space = n->collapse;
    while (at < in.size) {
        at += next_piece(n, in.text + at, in.size - at, &piece, &size);
        while (after_space && size && *piece == ' ') piece++, size--;
        if (!put_escaped(n, piece, size, out, err)) return false;
        if (size) after_space = n->collapse && piece[size - 1] == ' ';
    }
    while (n->collapse && ends_with_space(n, out, from)) out->size -= n->escape ? 3 : 1;
    return !n->prefix || !n->suffix || put_escaped(n, " ", 1, out, err);
}
