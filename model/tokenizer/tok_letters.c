/* tok_letters.c: the printable characters that stand for bytes in files of byte-level BPE. */
#include "model/tokenizer/tok_letters.h"

#include "model/tokenizer/utf8.h"

static bool is_printable(unsigned byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

/* Printable Latin-1 bytes map to themselves, the other 68 bytes in order to U+0100 and up. */
uint32_t sn_gpt2_byte_char(unsigned byte) {
    if (is_printable(byte)) return byte;
    uint32_t rank = 0;
    for (unsigned b = 0; b < byte; b++) rank += !is_printable(b);
    return 256 + rank;
}

/* The byte that a printable character represents, -1: none. */
static int char_byte(uint32_t letter) {
    if (letter < 256) return is_printable(letter) ? (int)letter : -1;
    for (unsigned b = 0; b < 256 && letter < 256 + 68; b++)
        if (!is_printable(b) && letter-- == 256) return (int)b;
    return -1;
}

/* A text with other characters (such as an added token) is taken literally. */
bool sn_gpt2_decode_chars(const char *text, size_t size, sn_bytes *out, sn_error *err) {
    out->size = 0;
    if (!sn_bytes_append(out, "", 0, err)) return false;
    for (size_t at = 0; at < size;) {
        uint32_t cp;
        at += sn_utf8_next(text + at, size - at, &cp);
        int byte = char_byte(cp);
        if (byte < 0) {
            out->size = 0;
            return sn_bytes_append(out, text, size, err);
        }
        char c = (char)byte;
        if (!sn_bytes_append(out, &c, 1, err)) return false;
    }
    return true;
}

bool sn_gpt2_spell(const char *text, size_t size, sn_bytes *out, sn_error *err) {
    for (size_t i = 0; i < size; i++) {
        char letter[4];
        size_t n = sn_utf8_put(sn_gpt2_byte_char((unsigned char)text[i]), letter);
        /* only these two characters need an escape in JSON; merges.txt has no escapes */
        if (!sn_bytes_append(out, letter, n, err)) return false;
    }
    return true;
}
