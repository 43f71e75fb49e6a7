/* tok_train.h: shared by the two trainers: counting texts, and the special tokens at the end.
 * Internal. */
#ifndef SN_TOK_TRAIN_H
#define SN_TOK_TRAIN_H

#include "model/tokenizer/tok.h"

/* Distinct texts in order of first occurrence, with their counts. */
typedef struct sn_counter {
    sn_vocab texts;
    int64_t *count; /* [texts.count] */
    size_t capacity;
} sn_counter;

bool sn_count_text(sn_counter *c, const char *text, size_t size, sn_error *err);
void sn_counter_free(sn_counter *c);

enum { SN_TRAIN_SPECIALS = 3 }; /* mask, bos, eos */

/* Appends mask, bos and eos to the vocabulary and completes the tokenizer. */
bool sn_train_finish(sn_tokenizer *t, sn_error *err);

/* Learns at most `merges` new tokens from pairs that occur at least min_count times. */
sn_tokenizer *sn_train_bpe(const char *text, size_t size, size_t tokens, int64_t min_count,
                           sn_error *err);

#endif
