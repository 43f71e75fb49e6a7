/* tokenizer.h: text to token ids and back, for the vocabularies that models come with, and training
 * of new ones (SPEC "Tokenization": character, word and byte-pair level).
 * A tokenizer does not change after it is made: several threads may use one. It owns its memory;
 * ids and bytes are appended to buffers that belong to the caller.
 *
 * Kinds, and the files that load finds in a directory, in this order:
 *   tokenizer.json             Hugging Face: BPE (byte level, or characters with byte fallback) and
 *                              WordPiece models
 *   vocabulary.json            Sinter's character and word level; its format is in tok_symbols.c
 *   vocab.json + merges.txt    GPT-2 byte-level BPE (also under the names encoder.json, vocab.bpe)
 *   tokenizer.bin              SentencePiece-style BPE, the format of llama2.c
 *   vocab.txt                  BERT WordPiece, one token a line; lower-cases unless
 *                              tokenizer_config.json says otherwise or a token has a capital
 * An optional tokenizer_config.json beside them names the special tokens (bos_token, eos_token
 * ...).
 *
 * Text is UTF-8, with its length; NUL is an ordinary character. Bytes that are not valid UTF-8 are
 * kept by the kinds that can spell single bytes and are unknown to the others; nothing crashes. */
#ifndef SN_TOKENIZER_H
#define SN_TOKENIZER_H

#include "runtime/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sn_tokenizer sn_tokenizer;

/* Growing arrays; start with {0}, free with the function, reuse by count = 0 or size = 0. */
typedef struct sn_ids {
    int32_t *data;
    size_t count, capacity;
} sn_ids;

typedef struct sn_bytes {
    char *data; /* always followed by a NUL that size does not count */
    size_t size, capacity;
} sn_bytes;

void sn_ids_free(sn_ids *ids);
void sn_bytes_free(sn_bytes *bytes);

/* Roles of special tokens. BERT's [CLS] and [SEP] are its bos and eos. */
typedef enum sn_token_role {
    SN_TOKEN_BOS,
    SN_TOKEN_EOS,
    SN_TOKEN_MASK,
    SN_TOKEN_UNK,
    SN_TOKEN_PAD,
    SN_TOKEN_ROLES
} sn_token_role;

enum {
    SN_TOK_BOS = 1,    /* encode: bos first */
    SN_TOK_EOS = 2,    /* encode: eos last */
    SN_TOK_SPECIAL = 4 /* encode: "<|endoftext|>" and the like in the text are that token, not its
                          letters; decode: special tokens are written, not left out */
};

/* Loads from a directory or from one file of the list above (the second one of a pair is looked for
 * beside it). NULL on failure: the error says which file and what is wrong with it. */
sn_tokenizer *sn_tokenizer_load(const char *path, sn_error *err);
void sn_tokenizer_free(sn_tokenizer *t); /* NULL is fine */

/* "gpt2-bpe", "llama-bpe", "char", "word", "wordpiece". */
const char *sn_tokenizer_kind(const sn_tokenizer *t);

/* Number of ids: the largest plus one. A file may leave some of them without a text. */
int32_t sn_tokenizer_vocab_size(const sn_tokenizer *t);

/* Id of a special token, -1 if the vocabulary has none of that role. */
int32_t sn_tokenizer_special(const sn_tokenizer *t, sn_token_role role);

/* Text of a token as it stands for text (" the", not "Ġthe"; "<0x0A>" for a llama byte token, "##s"
 * for a WordPiece), with its size in *size; NUL-terminated, owned by the tokenizer. NULL if the id
 * is out of range or has no text. */
const char *sn_tokenizer_text(const sn_tokenizer *t, int32_t id, size_t *size);

/* Id of exactly this token text, -1 if it is none. */
int32_t sn_tokenizer_id(const sn_tokenizer *t, const char *text, size_t size);

/* Appends the ids of text[size] to out; flags from SN_TOK_*. On failure (a character that a
 * vocabulary without unk cannot spell, no bos where one is asked for, no memory) out is as before.
 * Empty text is fine. Time O(n log n) for BPE, linear for the others. */
bool sn_tokenizer_encode(const sn_tokenizer *t, const char *text, size_t size, unsigned flags,
                         sn_ids *out, sn_error *err);

/* Appends the text of ids[n] to out. For BPE, character and word level this is the text that was
 * encoded, byte for byte, if no token was unk; WordPiece joins words by single spaces. An id out of
 * range fails, and out is as before. */
bool sn_tokenizer_decode(const sn_tokenizer *t, const int32_t *ids, size_t n, unsigned flags,
                         sn_bytes *out, sn_error *err);

/* Decoding token by token, as they are generated: the pieces joined are what sn_tokenizer_decode
 * gives for the whole. A piece may end within a UTF-8 character. */
typedef struct sn_text_stream {
    const sn_tokenizer *tokenizer;
    unsigned flags;
    bool started; /* something was written: the next leading space is text */
} sn_text_stream;

sn_text_stream sn_text_stream_begin(const sn_tokenizer *t, unsigned flags);
bool sn_text_stream_next(sn_text_stream *d, int32_t id, sn_bytes *out, sn_error *err);

/* Training. Deterministic: ties go to the lower id, or to the lower bytes. */
typedef enum sn_train_kind { SN_TRAIN_BPE, SN_TRAIN_WORD, SN_TRAIN_CHAR } sn_train_kind;

typedef struct sn_train_options {
    sn_train_kind kind;
    int32_t vocab_size; /* at most this many ids, special tokens included; 0: no limit for words and
                           characters, 50257 for BPE */
    int32_t min_count;  /* leave out rarer words or merges; 0 is 1 for words, 2 for merges */
    bool unk;           /* word and char: also an unk token (id 0), so that any text encodes */
} sn_train_options;

/* Learns a vocabulary from text[size] (UTF-8). The last three ids are mask, bos, eos (SPEC
 * "Conventions"), spelled <|mask|>, <|bos|>, <|eos|>. BPE: the 256 bytes, then merges in the order
 * in which they were learned (Sennrich et al. 2016, algorithm 1, on bytes within the words of
 * GPT-2's pattern). Word level: the characters of the text, then its words by frequency; a word
 * outside of the vocabulary is spelled in characters. */
sn_tokenizer *sn_tokenizer_train(const sn_train_options *options, const char *text, size_t size,
                                 sn_error *err);

/* Writes the files that load reads back, into an existing directory. Tokenizers that came from a
 * tokenizer.json are not written: copy that file. */
bool sn_tokenizer_save(const sn_tokenizer *t, const char *dir, sn_error *err);

#ifdef __cplusplus
}
#endif
#endif
