/* tok_wordpiece.h: WordPiece and WordLevel models. BERT's tokenizer is made from vocab.txt or
 * tokenizer.json. Internal. */
#ifndef SN_TOK_WORDPIECE_H
#define SN_TOK_WORDPIECE_H

#include "model/tokenizer/steps.h"

typedef struct sn_wordpiece {
    sn_tokenizer base;
    int32_t max_chars; /* longer words become unk */
    sn_bytes prefix;   /* prefix of a piece inside a word: "##" */
} sn_wordpiece;

/* An object with an empty vocabulary and no steps. */
sn_wordpiece *sn_wordpiece_new(const char *prefix, sn_error *err);

/* Adds the steps of BERT, uncased, with all options of its normalizer on, which it returns; NULL on
 * error. */
sn_norm *sn_wordpiece_bert(sn_wordpiece *w, sn_error *err);

/* Hugging Face's BertPreTokenizer: splits at white space and around punctuation. */
extern const char sn_bert_pattern[];

/* sn_tok_wordlevel: a piece is a token or unknown. */
extern const sn_tok_kind sn_tok_wordpiece, sn_tok_wordlevel;

#endif
