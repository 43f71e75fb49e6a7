/* tok_symbols.h: character-level and word-level vocabularies: a list of texts that are matched
 * whole. Internal. */
#ifndef SN_TOK_SYMBOLS_H
#define SN_TOK_SYMBOLS_H

#include "runtime/tokenizer/regex.h"
#include "runtime/tokenizer/tok.h"

typedef struct sn_symbols {
    sn_tokenizer base;
    sn_regex *words; /* word level only */
} sn_symbols;

extern const sn_tok_kind sn_tok_char, sn_tok_word;

/* An empty object of either kind. */
sn_symbols *sn_symbols_new(const sn_tok_kind *kind, sn_error *err);

#endif
