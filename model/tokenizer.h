/* tokenizer.h: converts text to token ids and back with the usual vocabularies, and trains new ones
 * (SPEC "Tokenization": character, word and byte-pair level).
 * A tokenizer is immutable, except by sn_tokenizer_set_language: several threads may use it. It
 * owns its memory; ids and bytes are appended to buffers that belong to the caller.
 *
 * Kinds, and the files that load looks for in a directory, in this order:
 *   tokenizer.json             Hugging Face: BPE (byte level, or characters with byte fallback),
 *                              Unigram, WordPiece and WordLevel models
 *   vocabulary.json            Sinter's character and word level; its format is in tok_symbols.c
 *   vocab.json + merges.txt    GPT-2 byte-level BPE (also under the names encoder.json, vocab.bpe)
 *   tokenizer.model            SentencePiece: unigram and BPE models (also under the names
 *                              sentencepiece.bpe.model, spiece.model, spm.model). tokenizer_class of
 *                              tokenizer_config.json, or model_type of config.json, says how
 *                              tokens are numbered and what surrounds a text: T5, Pegasus, XLM-R,
 *                              CamemBERT, mBART, NLLB; M2M-100 also needs vocab.json
 *   source.spm, target.spm     Marian's two models, numbered by vocab.json
 *   tokenizer.bin              SentencePiece-style BPE, the format of llama2.c
 *   vocab.txt                  BERT WordPiece, one token per line; lower-cases unless
 *                              tokenizer_config.json says otherwise or a token has a capital
 *   tokenizer.gguf             the vocabulary of a GGUF file: BPE by scores or merges, or WordPiece;
 *                              any GGUF file can be given by its path
 *   tokenizer.tables           any of these as sn_tokenizer_save_tables writes it, looked for first:
 *                              used in place, so opening takes no time
 * An optional tokenizer_config.json next to them, but for tokenizer.tables, which has them, names the
 * special tokens (bos_token, eos_token ...), and for files without them the added tokens (added_tokens_decoder; or added_tokens.json).
 *
 * Text is UTF-8 with an explicit length; NUL is an ordinary character. Invalid UTF-8 is preserved
 * by kinds that have byte tokens and is unknown to the others; it is never an error in itself. */
#ifndef SN_TOKENIZER_H
#define SN_TOKENIZER_H

#include "runtime/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sn_tokenizer sn_tokenizer;

/* Growing arrays. Initialise with {0}, free with the function below, reuse by setting count or size
 * to 0. */
typedef struct sn_ids {
    int32_t *data;
    size_t count, capacity;
} sn_ids;

typedef struct sn_bytes {
    char *data; /* always NUL-terminated; size does not count the NUL */
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
    SN_TOK_BOS = 1, /* encode: bos first */
    SN_TOK_EOS = 2, /* encode: eos last */
    /* encode: "<|endoftext|>" and the like in the text become that token; decode: special tokens
     * are written instead of omitted */
    SN_TOK_SPECIAL = 4,
    /* encode: adds what the tokenizer's file says that a text begins and ends with (the
     * post_processor of a tokenizer.json), as Hugging Face does by default; for other files, bos
     * and eos if there are such tokens */
    SN_TOK_TEMPLATE = 8
};

/* Loads from a directory or from one file of the list above (the second file of a pair is looked
 * for next to it). NULL on failure: the error names the file and the problem. */
sn_tokenizer *sn_tokenizer_load(const char *path, sn_error *err);
/* The i-th file name of that list: vocabularies in order of preference, then merges. NULL: no more. */
const char *sn_tokenizer_file(size_t i);
void sn_tokenizer_free(sn_tokenizer *t); /* NULL is allowed */

/* "gpt2-bpe", "llama-bpe", "unigram", "wordpiece", "wordlevel", "char", "word". */
const char *sn_tokenizer_kind(const sn_tokenizer *t);

/* Number of ids: the largest plus one. Some of them may have no text. */
int32_t sn_tokenizer_vocab_size(const sn_tokenizer *t);

/* Id of a special token; -1 if the vocabulary has none for that role. */
int32_t sn_tokenizer_special(const sn_tokenizer *t, sn_token_role role);

/* Whether texts begin with bos, as far as the tokenizer's files say so; otherwise `unknown`. */
bool sn_tokenizer_adds_bos(const sn_tokenizer *t, bool unknown);

/* Whether the tokenizer's files say what a text begins and ends with (SN_TOK_TEMPLATE). */
bool sn_tokenizer_has_template(const sn_tokenizer *t);

/* Languages of translation models: the token of one, "fr_XX", or "__fr__" for "fr"; -1: none.
 * Whether a token may be one: it is neither text nor written in brackets as "</s>". */
int32_t sn_tokenizer_language(const sn_tokenizer *t, const char *code);
bool sn_tokenizer_is_language(const sn_tokenizer *t, int32_t id);
/* Texts begin or end with this language's token: the place of the one in the tokenizer's template,
 * or the beginning. Not while another thread uses t. */
bool sn_tokenizer_set_language(sn_tokenizer *t, int32_t id, sn_error *err);

/* Whether it uses tables of Unicode (normal forms, case, categories), which a program can be linked
 * without. */
bool sn_tokenizer_needs_unicode(const sn_tokenizer *t);
/* Whether it matches regular expressions, which a program can be linked without, too. */
bool sn_tokenizer_needs_regex(const sn_tokenizer *t);

/* Text of a token as it appears in text (" the", not "Ġthe"; "<0x0A>" for a llama byte token, "##s"
 * for a WordPiece), with its size in *size; NUL-terminated, owned by the tokenizer. NULL if the id
 * is out of range or has no text. */
const char *sn_tokenizer_text(const sn_tokenizer *t, int32_t id, size_t *size);

/* Id of the token with exactly this text; -1: none. */
int32_t sn_tokenizer_id(const sn_tokenizer *t, const char *text, size_t size);

/* Appends the ids of text[size] to out; flags from SN_TOK_*. On failure (a character that a
 * vocabulary without unk cannot encode, SN_TOK_BOS without a bos token, out of memory) out is
 * unchanged. Empty text is allowed. Time O(n log n) for BPE, linear for the others. */
bool sn_tokenizer_encode(const sn_tokenizer *t, const char *text, size_t size, unsigned flags,
                         sn_ids *out, sn_error *err);

/* Joins two texts' ids to the sequence that a model reads: appends to `out`, and the token types to
 * `types` (0; and what the tokenizer's file says for the second text). *at: where the second text
 * begins in what was appended. The post_processor of a tokenizer.json says what is added; for other
 * files it is bos, eos between and after the texts, and token type 1; twice eos and 0 for byte-level
 * BPE. On failure both lists are unchanged. */
bool sn_tokenizer_join(const sn_tokenizer *t, const sn_ids *first, const int32_t *second, size_t n,
                       sn_ids *out, sn_ids *types, size_t *at, sn_error *err);

/* Where a token is in its text: bytes [begin, end). A token without text there has begin = end. */
typedef struct sn_place {
    size_t begin, end;
    bool continues; /* it continues the word of the token before */
} sn_place;

/* Finds the places of the ids that sn_tokenizer_encode made of text[size] without a template:
 * out[ids->count]. Places are exact unless the normalizer changed a word's number of characters;
 * then they are the whole word's. Words of most languages are divided by white space and
 * punctuation, those of Chinese and Japanese at every token. */
bool sn_tokenizer_locate(const sn_tokenizer *t, const char *text, size_t size, const sn_ids *ids,
                         sn_place *out, sn_error *err);

/* Appends the text of ids[n] to out. For BPE, character and word level this restores the encoded
 * text byte for byte if it contained no unk and no normalizer changed it; WordPiece joins words with
 * single spaces. An id out of range is an error and leaves out unchanged. */
bool sn_tokenizer_decode(const sn_tokenizer *t, const int32_t *ids, size_t n, unsigned flags,
                         sn_bytes *out, sn_error *err);

/* Incremental decoding during generation: the concatenated pieces are what sn_tokenizer_decode
 * returns for the whole. A piece may end inside a UTF-8 character. */
typedef struct sn_text_stream {
    const sn_tokenizer *tokenizer;
    unsigned flags;
    bool started; /* text was written: a leading space of the next token is kept */
} sn_text_stream;

sn_text_stream sn_text_stream_begin(const sn_tokenizer *t, unsigned flags);
bool sn_text_stream_next(sn_text_stream *d, int32_t id, sn_bytes *out, sn_error *err);

/* Training. Deterministic: ties are broken by the lower id, or the lower bytes. */
typedef enum sn_train_kind { SN_TRAIN_BPE, SN_TRAIN_WORD, SN_TRAIN_CHAR } sn_train_kind;

typedef struct sn_train_options {
    sn_train_kind kind;
    /* maximum number of ids, including special tokens; 0: unlimited for words and characters, 50257
     * for BPE */
    int32_t vocab_size;
    int32_t min_count; /* omit rarer words or merges; 0: 1 for words, 2 for merges */
    /* word and char: add an unk token (id 0), so that any text can be encoded */
    bool unk;
} sn_train_options;

/* Learns a vocabulary from text[size] (UTF-8). The last three ids are mask, bos, eos (SPEC
 * "Conventions"), with the texts <|mask|>, <|bos|>, <|eos|>. BPE: the 256 bytes, then merges in the
 * order in which they were learned (Sennrich et al. 2016, algorithm 1, on bytes within the words of
 * GPT-2's pattern). Word level: the characters of the text, then its words by frequency; a word
 * that is not in the vocabulary is encoded as characters. */
sn_tokenizer *sn_tokenizer_train(const sn_train_options *options, const char *text, size_t size,
                                 sn_error *err);

/* Writes the files that load reads, into an existing directory. A tokenizer loaded from a
 * tokenizer.json, tokenizer.tables, a SentencePiece model or a GGUF file cannot be saved: copy that
 * file. */
bool sn_tokenizer_save(const sn_tokenizer *t, const char *dir, sn_error *err);

/* Writes tokenizer.tables into an existing directory: a tokenizer of any kind, with its special
 * tokens, as tables that load maps and uses in place. Ids and texts are the same. Tokenizers of the
 * same files give the same bytes. Such a file fits this version of Sinter, on little-endian CPUs of 64 bits. */
bool sn_tokenizer_save_tables(const sn_tokenizer *t, const char *dir, sn_error *err);
/* Loading tokenizer.tables checks its size and its head; damaged tables give wrong ids. This reads
 * them all and compares their checksum. True for tokenizers of other files. */
bool sn_tokenizer_verify(const sn_tokenizer *t, sn_error *err);

#ifdef __cplusplus
}
#endif
#endif
