/* tok_wordpiece.h: BERT's WordPiece tokenizer, built from vocab.txt or tokenizer.json. Internal. */
#ifndef SN_TOK_WORDPIECE_H
#define SN_TOK_WORDPIECE_H

#include "runtime/tokenizer/regex.h"
#include "runtime/tokenizer/tok.h"

typedef struct sn_wordpiece {
    sn_tokenizer base;
    bool lower, strip; /* convert to lower case; strip accents */
    bool chinese;      /* Chinese characters are separate words */
    int32_t max_chars; /* longer words become unk */
    sn_bytes prefix;   /* prefix of a piece inside a word: "##" */
    /* removed from the text: control characters, and marks if strip; may be NULL */
    sn_regex *unwanted;
    /* matches words, punctuation and Chinese characters; the rest is white space */
    sn_regex *words;
} sn_wordpiece;

typedef struct sn_wordpiece_options {
    bool clean, chinese, lower, strip;
    int32_t max_chars;
    const char *prefix;
} sn_wordpiece_options;

/* The options of BERT (google-research/bert, tokenization.py), uncased or cased. */
#define SN_WORDPIECE_BERT(lowercase)                                                               \
    ((sn_wordpiece_options){true, true, (lowercase), (lowercase), 100, "##"})

/* An object with an empty vocabulary. */
sn_wordpiece *sn_wordpiece_new(const sn_wordpiece_options *options, sn_error *err);

extern const sn_tok_kind sn_tok_wordpiece;

#endif
