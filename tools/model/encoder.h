/* encoder.h: encoders at work on texts: a batch of unequal texts, padded, through one entry of a
 * BERT; what embed, fill and classify stand on. */
#ifndef SN_ENCODER_H
#define SN_ENCODER_H

#include "tools/model/lm.h"

/* Ids of a text as BERT reads it, [CLS] text [SEP]; without a tokenizer the text is ids. An empty
 * text and one over the context are errors. */
bool encoder_read(const lm *m, const char *text, size_t size, sn_ids *out, sn_error *err);

/* Runs the entry on n texts as one batch; `output` goes to *out (free it), row-major: of every text
 * as many elements as *each, padded positions included. *length (may be NULL): of the padded texts.
 * Token types are all 0. */
bool encoder_run(lm *m, const char *entry, const char *output, const sn_ids *text, int64_t n,
                 float **out, int64_t *each, int64_t *length, sn_error *err);

#endif
