/* tok_unigram.h: the unigram model (Kudo 2018): the most probable segmentation of a text, where a
 * token has a score, the logarithm of its probability. Internal. */
#ifndef SN_TOK_UNIGRAM_H
#define SN_TOK_UNIGRAM_H

#include "model/tokenizer/steps.h"

typedef struct sn_unigram {
    sn_tokenizer base;
    double *score; /* [scores]; tokens from there on are added ones */
    size_t scores, score_capacity;
    double unk_score;
    bool floats;          /* sums are rounded to f32, as in SentencePiece */
    int32_t byte_id[256]; /* token of each byte, -1: none */
    int32_t *order;       /* [ordered] ids of the tokens that match text, sorted by their bytes */
    size_t ordered;
    uint32_t begin[257]; /* index in order of the first text that begins with each byte */
} sn_unigram;

sn_unigram *sn_unigram_new(sn_error *err);
/* Sets the score of a token; those before it that have none get 0. */
bool sn_unigram_score(sn_unigram *u, int32_t id, double score, sn_error *err);
/* Sorts the vocabulary; after all scores and flags are set. */
bool sn_unigram_finish(sn_unigram *u, sn_error *err);

extern const sn_tok_kind sn_tok_unigram;

#endif
