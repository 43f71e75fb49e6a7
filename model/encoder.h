/* encoder.h: runs encoders on texts: pads a batch of texts and runs one entry of a BERT. Used by
 * embed, fill and classify. */
#ifndef SN_ENCODER_H
#define SN_ENCODER_H

#include "model/open.h"

/* Encodes a text for BERT, [CLS] text [SEP]; without a tokenizer the text is a list of ids. Errors:
 * an empty text, or one longer than the context. */
bool encoder_read(const lm *m, const char *text, size_t size, sn_ids *out, sn_error *err);

/* Runs the entry on n texts as one batch. *out: the output, row-major, *each elements per text,
 * including padded positions; the caller frees it. *length (may be NULL): the padded length. Token
 * types are all 0. */
bool encoder_run(lm *m, const char *entry, const char *output, const sn_ids *text, int64_t n,
                 float **out, int64_t *each, int64_t *length, sn_error *err);

#endif
