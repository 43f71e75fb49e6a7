/* embedder.h: opens an encoder and makes embeddings of texts, as `sinter embed` does. Ownership,
 * threads and errors as in model/generation.h. */
#ifndef SN_EMBEDDER_H
#define SN_EMBEDDER_H

#include "model/lm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sn_embedder sn_embedder;

/* Opens a model folder or GGUF file. Of o, `sequences` and `checkpoint` have no meaning. NULL on
 * error: not an encoder of texts, and what sn_lm_open lists. */
sn_embedder *sn_embedder_open(const char *path, const sn_lm_options *o, sn_error *err);
void sn_embedder_close(sn_embedder *e); /* NULL is allowed */

int64_t sn_embedder_width(const sn_embedder *e); /* numbers of an embedding */

/* out [width]: the embedding of a text (UTF-8; token ids for a model without a tokenizer), after the
 * prompt that the model's settings begin texts with. Errors: an empty text, or one longer than the
 * model reads. */
bool sn_embedder_embed(sn_embedder *e, const char *text, float *out, sn_error *err);

/* out [n, width]: the embeddings of n texts, which are the same as those of each text alone, but take
 * less time: texts of the same length are computed together. Errors as above, with the number of the
 * text. */
bool sn_embedder_embed_texts(sn_embedder *e, const char *const *texts, int64_t n, float *out,
                             sn_error *err);

#ifdef __cplusplus
}
#endif
#endif
