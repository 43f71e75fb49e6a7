/* translate.h: an encoder-decoder [PH22 A15] run by the JIT. */
#ifndef SN_TRANSLATE_H
#define SN_TRANSLATE_H

#include "tools/model/lm.h"
#include "runtime/cli/pair.h"

/* The model for pair.h. m: opened with `translates`; beam search uses the number of beams it was
 * opened with. A vocabulary without a begin or end token is an error. */
bool translate_model(lm *m, pair_model *out, sn_error *err);

/* pair_translate with that model. */
bool translate(lm *m, const int32_t *source, int64_t n, const pair_options *o, sn_ids *out,
               double *log_p, sn_error *err);

/* The tokens that begin and end a result: the config's decoder_start_token_id (or bos_token_id) and
 * eos_token_id, otherwise the tokenizer's bos and eos; for a model without a tokenizer, the last
 * two ids of the vocabulary, bos before eos [PH22 section 4]. */
bool translate_ends(const lm *m, int32_t *bos, int32_t *eos, sn_error *err);

#endif
