/* sentence_batch.h: embeddings of many texts by an open model, for `sinter embed` and sn_embedder. */
#ifndef SN_SENTENCES_H
#define SN_SENTENCES_H

#include "model/encoder.h"
#include "model/text/sentence.h"

/* The settings of an open model. Freed by sn_sentence_close in any case. */
bool sentence_settings_of(const open_model *m, sentence_settings *out, sn_error *err);

/* The embeddings of n texts, *out [n, *width], which the caller frees; of the first *done texts, fewer
 * than n only if `advance` (NULL: none) stopped. batch: the most texts that a call of the model
 * computes, 0: 32; they have the same length, and an embedding is the same for any. *out is NULL if none is done. */
bool sentence_embed_texts(open_model *m, const sn_ids *text, int64_t n, int64_t batch,
                          sentence_advance *advance, void *ctx, float **out, int64_t *width,
                          int64_t *done, sn_error *err);

#endif
