/* tok_locate.c: where tokens are in their text. A text is encoded part by part, as many words at a
 * time as it takes to get the same ids as for the whole; within a part, tokens take as many bytes or
 * characters as their texts have. */
#include "model/tokenizer/tok.h"
#include "model/tokenizer/utf8.h"

#include "runtime/problems.h"

#include <string.h>

/* A part of the text, and its ids [first, first + n). */
typedef struct part {
    const char *text;
    size_t begin, end, first, n;
} part;

/* The text of a token without marks: spaces before it, what continues or ends a word. */
static const char *bare_text(const sn_tokenizer *t, int32_t id, size_t *size) {
    const sn_decoding *how = &t->decoding;
    const char *text = sn_tokenizer_text(t, id, size);
    if (!text) *size = 0;
    if (!text) return "";
    if (how->prefix.size && *size > how->prefix.size &&
        !memcmp(text, how->prefix.data, how->prefix.size))
        text += how->prefix.size, *size -= how->prefix.size;
    if (how->suffix.size && *size > how->suffix.size &&
        !memcmp(text + *size - how->suffix.size, how->suffix.data, how->suffix.size))
        *size -= how->suffix.size;
    size_t spaces = sn_space_run(text, *size);
    *size -= spaces;
    return text + spaces;
}

static size_t count_characters(const char *text, size_t size) {
    size_t n = 0;
    for (size_t i = 0; i < size; i++) n += ((unsigned char)text[i] & 0xC0) != 0x80;
    return n;
}

/* Bytes of the first n characters of text[size]. */
static size_t skip_characters(const char *text, size_t size, size_t n) {
    size_t at = 0;
    while (at < size && (n || ((unsigned char)text[at] & 0xC0) == 0x80))
        n -= ((unsigned char)text[at++] & 0xC0) != 0x80;
    return at;
}

/* Gives each token of the part as many bytes, or characters, as its text has, if that takes up the
 * whole part; spaces before a token belong to none. */
static bool divide(const sn_tokenizer *t, const part *p, const int32_t *ids, bool bytes,
                   sn_place *out) {
    size_t at = p->begin, size;
    for (size_t i = 0; i < p->n; i++) {
        const char *own = bare_text(t, ids[i], &size);
        if (size) at += sn_space_run(p->text + at, p->end - at);
        size_t n =
            bytes ? size : skip_characters(p->text + at, p->end - at, count_characters(own, size));
        if (n > p->end - at || (bytes && memcmp(p->text + at, own, n) != 0)) return false;
        if (!bytes && count_characters(p->text + at, n) != count_characters(own, size))
            return false;
        out[i] = (sn_place){at, at + n, false};
        at += n;
    }
    return at == p->end;
}

static void place_part(const sn_tokenizer *t, const part *p, const int32_t *ids, sn_place *out) {
    part inner = *p;
    inner.begin += sn_space_run(p->text + p->begin, p->end - p->begin);
    if (p->n == 1)
        out[0] = (sn_place){inner.begin, p->end, false};
    else if (!divide(t, &inner, ids, true, out) && !divide(t, &inner, ids, false, out))
        for (size_t i = 0; i < p->n; i++) out[i] = (sn_place){inner.begin, p->end, false};
}

/* The end of the next word from `at` on, spaces before it included; of the text, if only spaces
 * follow it. */
static size_t next_word(const char *text, size_t size, size_t at) {
    at += sn_space_run(text + at, size - at);
    while (at < size && !sn_space_run(text + at, 1)) at++;
    return at + sn_space_run(text + at, size - at) == size ? size : at;
}

/* A letter or digit that forms words with its neighbours. */
static bool is_joining(const char *text, size_t size) {
    uint32_t c;
    sn_utf8_next(text, size, &c);
    if (c < 0x80) return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
    return c >= 0xC0 && !(c >= 0x2000 && c <= 0x206F) &&
           (c < 0x2E80 || (c >= 0xAC00 && c < 0xD7B0));
}

static bool continues(const sn_tokenizer *t, const char *text, size_t size, int32_t id,
                      const sn_place *place) {
    const sn_bytes *mark = &t->decoding.prefix;
    size_t n;
    const char *own = sn_tokenizer_text(t, id, &n);
    if (mark->size) return own && n > mark->size && !memcmp(own, mark->data, mark->size);
    if (place->begin == place->end) return true;
    if (!place->begin) return false; /* the text begins here */
    if (place[-1].end != place->begin) return place[-1].begin == place->begin;
    size_t back = sn_utf8_back(text, place->begin);
    return is_joining(text + back, size - back) &&
           is_joining(text + place->begin, size - place->begin);
}

bool sn_tokenizer_locate(const sn_tokenizer *t, const char *text, size_t size, const sn_ids *ids,
                         sn_place *out, sn_error *err) {
    if (!sn_given(t, "sn_tokenizer_locate", "the tokenizer", err) ||
        !sn_given(ids, "sn_tokenizer_locate", "the ids", err) ||
        !sn_given(out, "sn_tokenizer_locate", "the list for the places", err) ||
        (size && !sn_given(text, "sn_tokenizer_locate", "the text", err)))
        return false;
    sn_ids some = {0};
    part p = {.text = text};
    bool ok = true;
    while (ok && p.first < ids->count) {
        size_t rest = ids->count - p.first;
        p.end = next_word(text, size, p.end > p.begin ? p.end : p.begin);
        some.count = 0;
        ok = sn_tokenizer_encode(t, text + p.begin, p.end - p.begin, SN_TOK_SPECIAL, &some, err);
        bool same = some.count && some.count <= rest &&
                    !memcmp(some.data, ids->data + p.first, some.count * sizeof *some.data);
        if (!ok || (!same && p.end < size)) continue;
        p.n = p.end < size ? some.count : rest;
        place_part(t, &p, ids->data + p.first, out + p.first);
        p.first += p.n;
        p.begin = p.end;
    }
    for (size_t i = 1; ok && i < ids->count; i++)
        out[i].continues = continues(t, text, size, ids->data[i], out + i);
    sn_ids_free(&some);
    return ok;
}
