/* tok_fold.h: lower case and accent stripping of one code point, as in BERT's tokenizer.
 * Internal. */
#ifndef SN_TOK_FOLD_H
#define SN_TOK_FOLD_H

#include "runtime/base.h"

/* strip: canonical decomposition without non-spacing marks (a mark itself is returned unchanged:
 * drop it before). Then, with lower, simple lower case. Writes 1 to 3 code points, returns their
 * number. */
size_t sn_tok_fold(uint32_t c, bool lower, bool strip, uint32_t out[3]);

#endif
