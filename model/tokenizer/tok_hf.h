/* tok_hf.h: shared by the files that read Hugging Face's tokenizer.json. Internal. */
#ifndef SN_TOK_HF_H
#define SN_TOK_HF_H

#include "model/tokenizer/steps.h"

typedef struct sn_hf_reading {
    const char *path;
    const cJSON *root, *model;
    sn_tokenizer *t;
    bool byte_level;   /* the vocabulary spells bytes as GPT-2 does */
    size_t byte_steps; /* number of pre-tokenizing steps up to ByteLevel */
    sn_bytes text;     /* scratch */
    sn_error *err;
} sn_hf_reading;

/* Members of an object: NULL or the default if absent or of another type. */
const cJSON *sn_hf_get(const cJSON *object, const char *key);
const char *sn_hf_text(const cJSON *object, const char *key);
bool sn_hf_bool(const cJSON *object, const char *key, bool otherwise);

/* "PATH: WHAT "VALUE" is not supported"; returns false. */
bool sn_hf_refuse(sn_hf_reading *r, const char *what, const char *value);

/* Reads normalizer, pre_tokenizer and decoder into r->t. */
bool sn_hf_read_steps(sn_hf_reading *r);

#endif
