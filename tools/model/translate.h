/* translate.h: an encoder-decoder [PH22 A15] that the JIT runs. */
#ifndef SN_TRANSLATE_H
#define SN_TRANSLATE_H

#include "tools/model/lm.h"
#include "runtime/cli/pair.h"

/* The model for pair.h. m: opened with `translates`; the search has as many beams as it was opened
 * with. A vocabulary that lacks a begin or an end token is an error. */
bool translate_model(lm *m, pair_model *out, sn_error *err);

/* pair_translate of that model. */
bool translate(lm *m, const int32_t *source, int64_t n, const pair_options *o, sn_ids *out,
               double *log_p, sn_error *err);

/* The token that a result begins with, and the one that ends it: the config's
 * decoder_start_token_id (or bos_token_id) and eos_token_id, else the tokenizer's bos and eos; of a
 * model without a tokenizer the vocabulary's last but one and last ones [PH22 section 4]. */
bool translate_ends(const lm *m, int32_t *bos, int32_t *eos, sn_error *err);

#endif
