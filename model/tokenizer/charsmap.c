/* charsmap.c: implements charsmap.h. */
#include "model/tokenizer/charsmap.h"

#include <string.h>

static uint32_t unit_at(const sn_charsmap *m, size_t i) {
    const unsigned char *b = (const unsigned char *)m->trie.data + 4 * i;
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

bool sn_charsmap_read(sn_charsmap *m, const char *data, size_t size, sn_error *err) {
    sn_bytes head = {.data = (char *)(uintptr_t)data};
    size_t trie = size >= 4 ? unit_at(&(sn_charsmap){.trie = head}, 0) : 0;
    if (trie < 4 || trie % 4 || trie > size - 4)
        return sn_fail(err, SN_ERR_FILE,
                       "the table of character replacements (precompiled_charsmap, %zu bytes) is "
                       "malformed",
                       size);
    return sn_bytes_append(&m->trie, data + 4, trie, err) &&
           sn_bytes_append(&m->texts, data + 4 + trie, size - 4 - trie, err);
}

static int base64_value(char c) {
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

bool sn_charsmap_decode(sn_charsmap *m, const char *base64, sn_error *err) {
    sn_bytes data = {0};
    uint32_t bits = 0;
    int have = 0;
    bool ok = true;
    for (; ok && base64_value(*base64) >= 0; base64++) {
        bits = bits << 6 | (uint32_t)base64_value(*base64);
        have += 6;
        if (have < 8) continue;
        char byte = (char)(bits >> (have -= 8));
        ok = sn_bytes_append(&data, &byte, 1, err);
    }
    if (ok && base64[strspn(base64, "=")])
        ok = sn_fail(err, SN_ERR_FILE, "precompiled_charsmap is not base64: character '%c'",
                     *base64);
    ok = ok && sn_charsmap_read(m, data.data, data.size, err);
    sn_bytes_free(&data);
    return ok;
}

void sn_charsmap_free(sn_charsmap *m) {
    sn_bytes_free(&m->trie);
    sn_bytes_free(&m->texts);
}

static size_t offset_of(uint32_t unit) {
    return (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
}

size_t sn_charsmap_find(const sn_charsmap *m, const char *text, size_t size, bool longest,
                        const char **with) {
    size_t units = m->trie.size / 4, found = 0;
    if (!units) return 0;
    size_t at = offset_of(unit_at(m, 0));
    for (size_t i = 0; i < size; i++) {
        unsigned char byte = (unsigned char)text[i];
        if ((at ^= byte) >= units) break;
        uint32_t unit = unit_at(m, at);
        if ((unit & (1u << 31 | 0xFF)) != byte) break;
        at ^= offset_of(unit);
        if (!(unit >> 8 & 1) || at >= units) continue;
        size_t value = unit_at(m, at) & ~(1u << 31);
        if (value >= m->texts.size) continue;
        *with = m->texts.data + value;
        found = i + 1;
        if (!longest) break;
    }
    return found;
}
