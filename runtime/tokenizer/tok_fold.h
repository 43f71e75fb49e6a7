/* tok_fold.h: lower case and accent stripping of one code point, as BERT's tokenizer has them.
 * Internal. */
#ifndef SN_TOK_FOLD_H
#define SN_TOK_FOLD_H

#include "runtime/base.h"

/* strip: canonical decomposition without its non-spacing marks (a mark itself stays: drop it
 * before); then lower: simple lower case. Writes 1 to 3 code points, returns how many. */
size_t sn_tok_fold(uint32_t c, bool lower, bool strip, uint32_t out[3]);

#endif
