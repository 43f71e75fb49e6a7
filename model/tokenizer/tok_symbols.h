/* tok_symbols.h: character-level and word-level vocabularies: a list of texts that are matched
 * whole. Internal. */
#ifndef SN_TOK_SYMBOLS_H
#define SN_TOK_SYMBOLS_H

#include "model/tokenizer/steps.h"

extern const sn_tok_kind sn_tok_char, sn_tok_word;

/* An empty object of either kind. */
sn_tokenizer *sn_symbols_new(const sn_tok_kind *kind, sn_error *err);

#endif
