/* sentence.h: what Sentence-Transformers does with a text before the encoder reads it: prompts
 * (config_sentence_transformers.json) and the longest text (sentence_bert_config.json). Not public. */
#ifndef SN_SENTENCE_SETTINGS_H
#define SN_SENTENCE_SETTINGS_H

#include "model/tokenizer.h"

struct cJSON;

typedef struct sentence_settings {
    const sn_tokenizer *tokenizer; /* NULL: a text is a list of token ids */
    int64_t longest;               /* tokens of a text, special ones included */
    int64_t vocab;                 /* 0: unknown */
    struct cJSON *prompts;         /* the first file; NULL: none */
} sentence_settings;

/* Reads the files of a folder (NULL: none), if there are any. *s has the tokenizer, the context as the
 * longest text, and the vocabulary. Freed by sn_sentence_close in any case. */
bool sn_sentence_open(sentence_settings *s, const char *folder, sn_error *err);
void sn_sentence_close(sentence_settings *s);

/* The prompt that precedes a text: the one that is called `name`; NULL: the default. "" if there is
 * none. A name that the file does not have is an error (NULL). */
const char *sn_sentence_prompt(const sentence_settings *s, const char *name, sn_error *err);
bool sn_sentence_has_prompt(const sentence_settings *s, const char *name);

/* Encodes a text after its prompt. A text of more than s->longest tokens is cut if `cut`, else an
 * error. */
bool sn_sentence_read_text(const sentence_settings *s, const char *prompt, const char *text,
                           size_t size, bool cut, sn_ids *out, sn_error *err);

/* Called before each call of the model with the number of texts that are done; false: stop. */
typedef bool sentence_advance(void *ctx, int64_t done);

#endif
