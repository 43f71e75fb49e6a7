/* steps.h: what happens to a text before the model of a tokenizer: normalizers rewrite it, then
 * pre-tokenizers split it into pieces. Names and meaning follow Hugging Face's tokenizer.json.
 * Internal. */
#ifndef SN_STEPS_H
#define SN_STEPS_H

#include "model/tokenizer/charsmap.h"
#include "model/tokenizer/regex.h"
#include "model/tokenizer/tok.h"
#include "model/tokenizer/unicode.h"

/* U+2581, which represents a space in the vocabularies of SentencePiece. */
#define SN_METASPACE "\xE2\x96\x81"

typedef struct sn_leaves {
    const char *text;
    size_t size;
    bool first; /* at the beginning of the whole text */
} sn_leaves;

/* ---- normalizers (normalize.c) ---- */

typedef struct sn_norm sn_norm;
struct sn_norm {
    /* appends the normalized text to out */
    bool (*run)(const sn_norm *n, sn_leaves in, sn_bytes *out, sn_error *err);
    sn_form form;
    sn_bytes text;   /* Prepend, Replace: the text that is inserted */
    sn_regex *regex; /* Replace */
    sn_charsmap map;
    bool left, right;                      /* Strip */
    bool clean, chinese, strip, lower;     /* BertNormalizer */
    sn_vocab users;                        /* SentencePiece: symbols that stay as they are */
    bool prefix, suffix, collapse, escape; /* SentencePiece's normalizer_spec */
};

bool sn_norm_form(const sn_norm *n, sn_leaves in, sn_bytes *out, sn_error *err);
bool sn_norm_lower(const sn_norm *n, sn_leaves in, sn_bytes *out, sn_error *err);
bool sn_norm_strip_accents(const sn_norm *n, sn_leaves in, sn_bytes *out, sn_error *err);
bool sn_norm_nmt(const sn_norm *n, sn_leaves in, sn_bytes *out, sn_error *err);
bool sn_norm_prepend(const sn_norm *n, sn_leaves in, sn_bytes *out, sn_error *err);
bool sn_norm_replace(const sn_norm *n, sn_leaves in, sn_bytes *out, sn_error *err);
bool sn_norm_strip(const sn_norm *n, sn_leaves in, sn_bytes *out, sn_error *err);
bool sn_norm_precompiled(const sn_norm *n, sn_leaves in, sn_bytes *out, sn_error *err);
bool sn_norm_bert(const sn_norm *n, sn_leaves in, sn_bytes *out, sn_error *err);
/* What SentencePiece does with the whole text: charsmap, collapsing of spaces, dummy prefix. */
bool sn_norm_sentencepiece(const sn_norm *n, sn_leaves in, sn_bytes *out, sn_error *err);

/* A new step at the end; NULL if there are too many. */
sn_norm *sn_tok_add_norm(sn_tokenizer *t, sn_error *err);

/* ---- pre-tokenizers (split.c) ---- */

typedef enum sn_behavior {
    SN_ISOLATED, /* matches are pieces, and what is between them */
    SN_REMOVED,  /* matches are dropped */
    SN_CONTIGUOUS,
    SN_MERGED_WITH_PREVIOUS,
    SN_MERGED_WITH_NEXT,
} sn_behavior;

/* A space that is prepended to a piece. */
typedef enum sn_prefix {
    SN_PREFIX_NONE,
    SN_PREFIX_FIRST,  /* at the start of the text */
    SN_PREFIX_ALWAYS, /* also after every added token inside it */
} sn_prefix;

typedef struct sn_split {
    sn_regex *regex; /* NULL: does not split */
    sn_behavior behavior;
    bool invert;      /* what lies between the matches counts as matches */
    sn_prefix prefix; /* before splitting */
    bool unless;      /* no prefix if the piece begins with a space */
    char space[5];    /* Metaspace: replaces each space; "": none */
    bool spell;       /* ByteLevel before other steps: only spells bytes as GPT-2's letters */
} sn_split;

/* A new step at the end with a pattern (NULL: none); NULL on error. */
sn_split *sn_tok_add_split(sn_tokenizer *t, const char *pattern, sn_behavior behavior,
                           sn_error *err);

/* ---- running both ---- */

/* Runs the normalizers; *in becomes the result, which is in one of the buffers or unchanged. */
bool sn_steps_normalize(const sn_tokenizer *t, sn_leaves *in, sn_bytes buffer[2], sn_error *err);

/* Receives a piece; false: stop. */
typedef bool (*sn_piece)(void *ctx, const char *text, size_t size);

/* Splits the text and calls fn for every non-empty piece. */
bool sn_steps_split(const sn_tokenizer *t, sn_leaves in, sn_piece fn, void *ctx, sn_error *err);

void sn_steps_free(sn_tokenizer *t);

#endif
