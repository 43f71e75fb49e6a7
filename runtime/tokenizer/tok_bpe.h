/* tok_bpe.h: byte-pair encoding in the two forms that models use, as one object: merges by rank of
 * a pair of ids (GPT-2, Hugging Face) or by score of the joined text (SentencePiece, llama2.c);
 * over bytes, or over characters with bytes for those that have no token. Internal. */
#ifndef SN_TOK_BPE_H
#define SN_TOK_BPE_H

#include "runtime/tokenizer/regex.h"
#include "runtime/tokenizer/tok.h"

/* Pair of ids -> rank and merged id; open addressing. */
typedef struct sn_pair {
    int32_t left, right, rank, merged; /* left -1: free */
} sn_pair;

typedef struct sn_pairs {
    sn_pair *slot;
    size_t slots, used;
} sn_pairs;

/* Adds a merge; the first of equal pairs counts. */
bool sn_pairs_add(sn_pairs *p, int32_t left, int32_t right, int32_t merged, sn_error *err);
const sn_pair *sn_pairs_find(const sn_pairs *p, int32_t left, int32_t right); /* NULL: none */

/* A leading space that is not in the text. */
typedef enum sn_prefix {
    SN_PREFIX_NONE,
    SN_PREFIX_FIRST,  /* before the text */
    SN_PREFIX_ALWAYS, /* also after every special token within it */
} sn_prefix;

enum { SN_BPE_PATTERNS = 8 };

typedef struct sn_bpe {
    sn_tokenizer base;
    bool by_score;      /* merge by score[] of the joined text, otherwise by pairs */
    bool byte_level;    /* first symbols are bytes, otherwise characters */
    bool whole_first;   /* a piece that is a token is not taken apart (Llama 3) */
    bool fuse_unk;      /* unknown characters in a row are one unk */
    bool prefix_unless; /* no prefix before text that begins with a space */
    bool strip;         /* decode leaves the first leading space out */
    sn_prefix prefix;
    sn_pairs pairs;
    float *score;                       /* [vocab], by_score only */
    int32_t byte_id[256];               /* token of a byte, -1: none */
    sn_regex *pattern[SN_BPE_PATTERNS]; /* cut one after the other; matches and rests are pieces */
    size_t patterns;
} sn_bpe;

extern const sn_tok_kind sn_tok_gpt2, sn_tok_llama; /* byte_level or not */

/* An empty object, every byte_id -1. */
sn_bpe *sn_bpe_new(const sn_tok_kind *kind, sn_error *err);
/* The next merge, by the texts of its two tokens; all three texts must be in the vocabulary. */
bool sn_bpe_add_merge(sn_bpe *b, const sn_bytes *left, const sn_bytes *right, sn_error *err);
bool sn_bpe_add_pattern(sn_bpe *b, const char *pattern, sn_error *err);
/* Finds the tokens "<0x00>" ... "<0xFF>" and makes them byte tokens. */
void sn_bpe_find_byte_tokens(sn_bpe *b);

/* kind functions shared by both */
bool sn_bpe_encode(const sn_tokenizer *t, const char *text, size_t size, bool first, sn_ids *out,
                   sn_error *err);
bool sn_bpe_decode(const sn_tokenizer *t, int32_t id, bool *started, sn_bytes *out, sn_error *err);
void sn_bpe_destroy(sn_tokenizer *t);

/* GPT-2's pattern for cutting text into words (openai/gpt-2, src/encoder.py). */
extern const char sn_gpt2_pattern[];

/* The printable stand-in of a byte in vocab.json, a code point below U+0144 (bytes_to_unicode of
 * src/encoder.py), and the text of a token in those letters as bytes. */
uint32_t sn_gpt2_letter(unsigned byte);
bool sn_gpt2_unspell(const char *text, size_t size, sn_bytes *out, sn_error *err);
/* Sets byte_id from one-byte tokens; false if one of the 256 is missing. */
bool sn_gpt2_find_bytes(sn_bpe *b, sn_error *err);

#endif
