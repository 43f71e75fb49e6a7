/* tok_bpe.h: byte-pair encoding in two forms: merges ranked by pair of ids (GPT-2, Hugging Face) or
 * by the score of the merged text (SentencePiece, llama2.c); over bytes, or over characters with
 * bytes as fallback. Internal. */
#ifndef SN_TOK_BPE_H
#define SN_TOK_BPE_H

#include "model/tokenizer/steps.h"
#include "model/tokenizer/tok_letters.h"

/* Maps a pair of ids to rank and merged id; open addressing. */
typedef struct sn_pair {
    int32_t left, right, rank, merged; /* left -1: free */
} sn_pair;

typedef struct sn_pairs {
    sn_pair *slot;
    size_t slots, used;
} sn_pairs;

/* Adds a merge; the first of several equal pairs counts. */
bool sn_pairs_add(sn_pairs *p, int32_t left, int32_t right, int32_t merged, sn_error *err);
const sn_pair *sn_pairs_find(const sn_pairs *p, int32_t left, int32_t right); /* NULL: none */

typedef struct sn_bpe {
    sn_tokenizer base;
    bool by_score;    /* merge by score[] of the merged text; otherwise by pairs */
    bool byte_level;  /* the initial symbols are bytes; otherwise characters */
    bool whole_first; /* a piece that is itself a token is not split (Llama 3) */
    bool fuse_unk;    /* consecutive unknown characters become one unk */
    sn_pairs pairs;
    float *score; /* [scores], by_score only; tokens from there on are added ones */
    size_t scores, score_capacity;
    int32_t byte_id[256];    /* token of each byte, -1: none */
    sn_vocab users;          /* SentencePiece's user-defined symbols, which are not merged */
    sn_bytes prefix, suffix; /* of the symbols inside a piece; of its last symbol */
} sn_bpe;

extern const sn_tok_kind sn_tok_gpt2, sn_tok_llama; /* byte-level, or not */

/* An empty object, every byte_id -1. */
sn_bpe *sn_bpe_new(const sn_tok_kind *kind, sn_error *err);
/* The next merge, given by the texts of its two tokens; these and the merged text must be in the
 * vocabulary. */
bool sn_bpe_add_merge(sn_bpe *b, const sn_bytes *left, const sn_bytes *right, sn_error *err);

/* Sets the score of a token; those before it that have none get 0. */
bool sn_bpe_score(sn_bpe *b, int32_t id, float score, sn_error *err);

/* functions of both kinds, and the size of their scratch */
enum { SN_BPE_SCRATCH = 192 };
bool sn_bpe_encode(sn_encoding *e, const char *text, size_t size);
void sn_bpe_clear(void *scratch);
void sn_bpe_destroy(sn_tokenizer *t);
bool sn_bpe_serialise(struct sn_serial *c, sn_tokenizer *t);

/* GPT-2's pattern for splitting text into words (openai/gpt-2, src/encoder.py). */
extern const char sn_gpt2_pattern[];

/* Sets byte_id from one-byte tokens; false if one of the 256 is missing. */
bool sn_gpt2_find_bytes(sn_bpe *b, sn_error *err);

#endif
