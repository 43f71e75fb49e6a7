/* tok_bpe.h: byte-pair encoding in two forms: merges ranked by pair of ids (GPT-2, Hugging Face) or
 * by the score of the merged text (SentencePiece, llama2.c); over bytes, or over characters with
 * bytes as fallback. Internal. */
#ifndef SN_TOK_BPE_H
#define SN_TOK_BPE_H

#include "runtime/tokenizer/regex.h"
#include "runtime/tokenizer/tok.h"

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

/* A space that is prepended to the text before encoding. */
typedef enum sn_prefix {
    SN_PREFIX_NONE,
    SN_PREFIX_FIRST,  /* at the start of the text */
    SN_PREFIX_ALWAYS, /* also after every special token inside it */
} sn_prefix;

enum { SN_BPE_PATTERNS = 8 };

typedef struct sn_bpe {
    sn_tokenizer base;
    bool by_score;      /* merge by score[] of the merged text; otherwise by pairs */
    bool byte_level;    /* the initial symbols are bytes; otherwise characters */
    bool whole_first;   /* a piece that is itself a token is not split (Llama 3) */
    bool fuse_unk;      /* consecutive unknown characters become one unk */
    bool prefix_unless; /* no prefix if the text begins with a space */
    bool strip;         /* decode removes the first leading space */
    sn_prefix prefix;
    sn_pairs pairs;
    float *score;         /* [vocab], by_score only */
    int32_t byte_id[256]; /* token of each byte, -1: none */
    /* split by each in turn; matches and the text between them are pieces */
    sn_regex *pattern[SN_BPE_PATTERNS];
    size_t patterns;
} sn_bpe;

extern const sn_tok_kind sn_tok_gpt2, sn_tok_llama; /* byte-level, or not */

/* An empty object, every byte_id -1. */
sn_bpe *sn_bpe_new(const sn_tok_kind *kind, sn_error *err);
/* The next merge, given by the texts of its two tokens; these and the merged text must be in the
 * vocabulary. */
bool sn_bpe_add_merge(sn_bpe *b, const sn_bytes *left, const sn_bytes *right, sn_error *err);
bool sn_bpe_add_pattern(sn_bpe *b, const char *pattern, sn_error *err);
/* Finds the tokens "<0x00>" ... "<0xFF>" and makes them byte tokens. */
void sn_bpe_find_byte_tokens(sn_bpe *b);

/* functions of both kinds */
bool sn_bpe_encode(const sn_tokenizer *t, const char *text, size_t size, bool first, sn_ids *out,
                   sn_error *err);
bool sn_bpe_decode(const sn_tokenizer *t, int32_t id, bool *started, sn_bytes *out, sn_error *err);
void sn_bpe_destroy(sn_tokenizer *t);

/* GPT-2's pattern for splitting text into words (openai/gpt-2, src/encoder.py). */
extern const char sn_gpt2_pattern[];

/* The printable code point that represents a byte in vocab.json, below U+0144 (bytes_to_unicode in
 * src/encoder.py); and the bytes of a token written in these code points. */
uint32_t sn_gpt2_letter(unsigned byte);
bool sn_gpt2_unspell(const char *text, size_t size, sn_bytes *out, sn_error *err);
/* Sets byte_id from one-byte tokens; false if one of the 256 is missing. */
bool sn_gpt2_find_bytes(sn_bpe *b, sn_error *err);

#endif
