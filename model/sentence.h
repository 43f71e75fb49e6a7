/* sentence.h: what Sentence-Transformers does with a text before the encoder reads it: prompts
 * (config_sentence_transformers.json) and the longest text (sentence_bert_config.json). */
#ifndef SN_SENTENCE_SETTINGS_H
#define SN_SENTENCE_SETTINGS_H

#include "model/encoder.h"

typedef struct sentence_settings {
    sn_config *config, *prompts, *limits; /* NULL: no such file or section */
    int64_t longest;                      /* tokens of a text, special ones included */
} sentence_settings;

/* Reads the files of an open model's folder, if there are any. Freed by sentence_close in any case. */
bool sentence_open(const lm *m, sentence_settings *out, sn_error *err);
void sentence_close(sentence_settings *s);

/* The prompt that precedes a text: the one that is called `name`; NULL: the default. "" if there is
 * none. A name that the file does not have is an error (NULL). */
const char *sentence_prompt(sentence_settings *s, const char *name, sn_error *err);
bool sentence_has_prompt(const sentence_settings *s, const char *name);

/* Encodes a text after its prompt. A text of more than s->longest tokens is cut if `cut`, else an
 * error. */
bool sentence_read_text(const lm *m, const sentence_settings *s, const char *prompt,
                        const char *text, size_t size, bool cut, sn_ids *out, sn_error *err);

/* Called before each call of the model with the number of texts that are done; false: stop. */
typedef bool sentence_advance(void *ctx, int64_t done);

/* The embeddings of n texts, *out [n, *width], which the caller frees; of the first *done texts, fewer
 * than n only if `advance` (NULL: none) stopped. batch: the most texts that a call of the model
 * computes, 0: 32; they have the same length, and an embedding is the same for any. *out is NULL if none is done. */
bool sentence_embed_texts(lm *m, const sn_ids *text, int64_t n, int64_t batch,
                          sentence_advance *advance, void *ctx, float **out, int64_t *width,
                          int64_t *done, sn_error *err);

#endif
