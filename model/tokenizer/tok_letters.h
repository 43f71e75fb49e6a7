/* tok_letters.h: the printable characters that stand for bytes in files of byte-level BPE. Internal. */
#ifndef SN_TOK_LETTERS_H
#define SN_TOK_LETTERS_H

#include "model/tokenizer/tok.h"

/* The printable code point that represents a byte in vocab.json, below U+0144 (bytes_to_unicode in
 * src/encoder.py); and the bytes of a token written in these code points. */
uint32_t sn_gpt2_byte_char(unsigned byte);
bool sn_gpt2_decode_chars(const char *text, size_t size, sn_bytes *out, sn_error *err);
/* Appends text with each byte as its code point. */
bool sn_gpt2_spell(const char *text, size_t size, sn_bytes *out, sn_error *err);

#endif
