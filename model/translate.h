/* translate.h: an encoder-decoder [PH22 A15] run by the JIT. */
#ifndef SN_TRANSLATE_H
#define SN_TRANSLATE_H

#include "model/open.h"
#include "model/cli/seq2seq.h"

/* The model for seq2seq.h. m: opened with `translates`; beam search uses the number of beams it was
 * opened with. A vocabulary without a begin or end token is an error. */
bool translate_model(open_model *m, seq2seq_model *out, sn_error *err);

/* sn_seq2seq_translate with that model. */
bool translate(open_model *m, const int32_t *source, int64_t n, const seq2seq_options *o,
               sn_ids *out, double *log_p, sn_error *err);

#endif
