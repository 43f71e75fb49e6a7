/* tok_wordpiece.h: BERT's WordPiece as an object that vocab.txt and tokenizer.json both make.
 * Internal. */
#ifndef SN_TOK_WORDPIECE_H
#define SN_TOK_WORDPIECE_H

#include "runtime/tokenizer/regex.h"
#include "runtime/tokenizer/tok.h"

typedef struct sn_wordpiece {
    sn_tokenizer base;
    bool lower, strip;  /* lower case; accents off */
    bool chinese;       /* Chinese characters are words of their own */
    int32_t max_chars;  /* a longer word is unk */
    sn_bytes prefix;    /* of a piece within a word: "##" */
    sn_regex *unwanted; /* what is dropped: control characters, marks if strip; may be NULL */
    sn_regex *words;    /* words, punctuation and Chinese characters; the rest is white space */
} sn_wordpiece;

typedef struct sn_wordpiece_options {
    bool clean, chinese, lower, strip;
    int32_t max_chars;
    const char *prefix;
} sn_wordpiece_options;

/* Those of BERT (google-research/bert, tokenization.py), uncased or cased. */
#define SN_WORDPIECE_BERT(lowercase)                                                               \
    ((sn_wordpiece_options){true, true, (lowercase), (lowercase), 100, "##"})

/* An object without its vocabulary. */
sn_wordpiece *sn_wordpiece_new(const sn_wordpiece_options *options, sn_error *err);

extern const sn_tok_kind sn_tok_wordpiece;

#endif
