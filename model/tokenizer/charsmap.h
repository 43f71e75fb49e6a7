/* charsmap.h: SentencePiece's precompiled_charsmap, a table that rewrites character sequences.
 * Format: u32 size of the trie; the trie, a double array of darts-clone (u32 units); then the
 * replacements, each NUL-terminated. A value of the trie is an offset into them. Internal. */
#ifndef SN_CHARSMAP_H
#define SN_CHARSMAP_H

#include "model/tokenizer/tok.h"

typedef struct sn_charsmap {
    sn_bytes trie, texts;
} sn_charsmap;

/* Copies the table; false if it is malformed. */
bool sn_charsmap_read(sn_charsmap *m, const char *data, size_t size, sn_error *err);
/* The same, from base64. */
bool sn_charsmap_decode(sn_charsmap *m, const char *base64, sn_error *err);
void sn_charsmap_free(sn_charsmap *m);

/* The replacement of a prefix of text: of the longest one in the table, or of the shortest. Returns
 * the size of the prefix; 0: none. */
size_t sn_charsmap_find(const sn_charsmap *m, const char *text, size_t size, bool longest,
                        const char **with);

#endif
