/* tok.h: shared by the tokenizer's files: the object with its function table, the vocabulary,
 * growing buffers, file and JSON helpers, one constructor per file format. Internal. */
#ifndef SN_TOK_H
#define SN_TOK_H

#include "runtime/files/json.h"

#include "runtime/file.h"
#include "model/tokenizer.h"

/* ---- buffers (tok_util.c): false if out of memory, with err set ---- */

bool sn_ids_push(sn_ids *ids, int32_t id, sn_error *err);
bool sn_bytes_append(sn_bytes *bytes, const char *data, size_t size, sn_error *err);
/* Makes room for `need` elements of `size` bytes in *data, growing by a factor of 1.5. */
bool sn_grow(void *data, size_t *capacity, size_t need, size_t size, sn_error *err);

/* ---- files and JSON (tok_util.c) ---- */

/* Replaces dir/name atomically. */
bool sn_tok_write(const char *dir, const char *name, const sn_bytes *data, sn_error *err);
/* The JSON object in a file; the caller deletes it. */
cJSON *sn_json_read(const char *path, sn_error *err);
/* Reads an integer in [lo, hi] from a JSON number; false if it is not one. */
bool sn_json_int(const cJSON *item, int32_t lo, int32_t hi, int32_t *out);
bool sn_json_flag(const cJSON *object, const char *key, bool otherwise);
/* Appends text as a JSON string, quotes included. */
bool sn_json_quote(sn_bytes *out, const char *text, size_t size, sn_error *err);

/* ---- text (tok_util.c) ---- */

/* Sizes of the white space at the beginning and at the end of text. */
size_t sn_space_run(const char *text, size_t size);
size_t sn_space_tail(const char *text, size_t size);
/* Appends text with spaces and U+2581 exchanged. */
bool sn_swap_spaces(const char *text, size_t size, sn_bytes *out, sn_error *err);

/* ---- vocabulary (tok_vocab.c): id <-> text ---- */

enum {
    SN_TOKEN_CONTROL = 1,  /* special: not text */
    SN_TOKEN_BYTE = 2,     /* "<0xHH>", stands for one byte */
    SN_TOKEN_OTHER = 16,   /* a text that is not a piece of this model */
    SN_TOKEN_NO_TEXT = 19, /* one of these: does not match text */
    SN_TOKEN_USER = 4,     /* SentencePiece: user-defined, matched before the model */
    SN_TOKEN_UNUSED = 8    /* SentencePiece: only an intermediate result */
};

/* Tables lie in memory of their owner, or in a file (tok_serial.h) that may be damaged: so whoever
 * reads one checks the indices and offsets that it holds. */
typedef struct sn_entry {
    uint32_t offset, size; /* offset in pool; SN_NO_TEXT: the id has no text */
    uint32_t flags;
} sn_entry;

#define SN_NO_TEXT UINT32_MAX

typedef struct sn_slot {
    uint32_t id; /* plus 1; 0: free */
    uint32_t hash;
} sn_slot;

typedef struct sn_vocab {
    sn_entry *entry; /* [count] */
    size_t count, capacity;
    sn_bytes pool;
    sn_slot *slot; /* a hash table */
    size_t slots, used;
    uint32_t longest;   /* size of the longest text in bytes */
    uint8_t begins[32]; /* bit set of the first bytes of texts */
} sn_vocab;

/* Sets the text of id; ids between the old count and id are added without text. False if the id
 * already has a text. If several ids have the same text, sn_vocab_find returns the first. */
bool sn_vocab_set(sn_vocab *v, int32_t id, const char *text, size_t size, uint32_t flags,
                  sn_error *err);
int32_t sn_vocab_find(const sn_vocab *v, const char *text, size_t size); /* -1: none */
/* An entry with a text that lies in the pool, or one without text. */
const sn_entry *sn_vocab_entry(const sn_vocab *v, int32_t id);
const char *sn_vocab_text(const sn_vocab *v, int32_t id, size_t *size); /* NULL: none */
/* The token with the longest text that text begins with; -1: none. */
int32_t sn_vocab_prefix(const sn_vocab *v, const char *text, size_t size);
/* Sets byte_id to the ids of the tokens "<0x00>" ... "<0xFF>", -1: none, and flags them. */
void sn_vocab_find_bytes(sn_vocab *v, int32_t byte_id[256]);
/* Whether a text is "<0x00>" to "<0xFF>", with capital letters. */
bool sn_is_byte_token(const char *text, size_t size);
/* Replaces the hash table, which the caller keeps, by a new one that is three quarters full. */
bool sn_vocab_tighten(sn_vocab *v, sn_error *err);
void sn_vocab_free(sn_vocab *v);

/* Largest id that a file of n entries may use: gaps are allowed, absurd allocations are not. */
static inline int32_t sn_vocab_limit(size_t n) {
    return (int32_t)(n < ((size_t)1 << 28) ? n * 4 + 65536 : (size_t)1 << 30);
}

/* ---- the object ---- */

/* A token that is matched in the text before tokenization. */
typedef struct sn_added {
    char *text;
    size_t size;
    int32_t id;
    bool special;        /* matched only with SN_TOK_SPECIAL */
    bool lstrip, rstrip; /* also consumes the white space on that side */
    bool single_word;    /* not inside a word */
    bool normalized;     /* matched in the normalized text */
    bool begins;         /* what follows is encoded like the beginning of a text */
} sn_added;

typedef struct sn_added_set {
    sn_added *item; /* sorted by first byte, then longest first */
    size_t count, capacity;
    uint32_t first[257]; /* index of the first token that begins with each byte */
} sn_added_set;

/* One call of sn_tokenizer_encode, as a kind sees it. */
typedef struct sn_encoding {
    const sn_tokenizer *t;
    void *scratch; /* of the kind */
    sn_ids *out;
    sn_error *err;
} sn_encoding;

struct sn_serial; /* tok_serial.h */

typedef struct sn_tok_kind {
    const char *name;
    size_t size;    /* size of the object, which begins with an sn_tokenizer */
    size_t scratch; /* size of sn_encoding.scratch, zeroed at the start of a call */
    /* Encodes a piece of size > 0: what the steps before the model (steps.h) made of a text without
     * added tokens. */
    bool (*encode)(sn_encoding *e, const char *text, size_t size);
    void (*clear)(void *scratch); /* frees what the scratch owns; may be NULL */
    bool (*save)(const sn_tokenizer *t, const char *dir, sn_error *err); /* NULL: cannot */
    void (*destroy)(sn_tokenizer *t); /* frees what the kind owns, not the object; may be NULL */
    /* its fields, for tokenizer.tables; NULL: it has none */
    bool (*serialise)(struct sn_serial *c, sn_tokenizer *t);
} sn_tok_kind;

/* How tokens become text. */
typedef struct sn_decoding {
    bool strip;      /* removes the first leading space */
    bool strip_all;  /* removes all leading spaces */
    bool join;       /* spaces between tokens */
    bool cleanup;    /* but not before punctuation */
    sn_bytes prefix; /* marks tokens that continue a word: "##" */
    sn_bytes suffix; /* marks tokens that end a word, written as a space: "</w>" */
} sn_decoding;

struct sn_tokenizer {
    const sn_tok_kind *kind;
    sn_vocab vocab;
    int32_t special[SN_TOKEN_ROLES]; /* -1: none */
    bool unicode;                    /* uses the tables of unicode.h */
    bool foreign;                    /* loaded from a file that holds more than save can write */
    bool spelled;           /* steps spell bytes as GPT-2's letters; the model takes bytes */
    bool swapped;           /* the file writes U+2581 for a space: texts have the two exchanged */
    sn_added_set added[2];  /* [1]: matched in the normalized text */
    struct sn_norm *norm;   /* [norms], steps.h */
    struct sn_split *split; /* [splits] */
    size_t norms, splits;
    sn_decoding decoding;
    sn_ids before, after; /* what the post-processor adds to a text */
    bool templated;       /* if these are empty, it adds nothing */
    sn_ids pair[3];       /* what it adds to two texts: before, between, after */
    int second_type;      /* the second text's token type */
    bool paired;          /* the file says so; else these are as for BERT */
    int32_t end;          /* pieces from here on are unknown tokens; 0: none */
    bool no_bos;          /* add_bos_token of tokenizer_config.json is false */
    sn_mapping image;     /* tokenizer.tables, where all lists lie; data NULL: they are allocated */
};

/* An empty object of the kind; all roles are -1. */
sn_tokenizer *sn_tok_new(const sn_tok_kind *kind, sn_error *err);

/* Registers an added token; its text[size] is copied. */
bool sn_tok_add(sn_tokenizer *t, const sn_added *token, sn_error *err);

/* Registers the tokens of added_tokens_decoder in tokenizer_config.json (or NULL); new ones join the
 * vocabulary. For formats without added tokens of their own. */
bool sn_tok_read_added(sn_tokenizer *t, const char *path, const cJSON *config, sn_error *err);
/* Registers one added token, an object with "content", "special", "lstrip" ... */
bool sn_tok_take_added(sn_tokenizer *t, const char *path, int32_t id, const cJSON *token,
                       sn_error *err);

/* Sets the roles that are still unset from tokenizer_config.json (or NULL), then from the usual
 * names ("<s>", "[CLS]", "<|endoftext|>" ...), marks their tokens as control tokens and adds them
 * as special. Last step of every loader. */
bool sn_tok_finish(sn_tokenizer *t, const cJSON *config, sn_error *err);

/* ---- kinds and file formats ---- */

/* config: the tokenizer_config.json next to the file, or NULL; root: the parsed vocabulary */
sn_tokenizer *sn_tok_load_gpt2(const char *vocab, const cJSON *root, const char *merges,
                               const cJSON *config, sn_error *err);
sn_tokenizer *sn_tok_load_llama(const char *path, const cJSON *config, sn_error *err);
sn_tokenizer *sn_tok_load_sentencepiece(const char *path, const cJSON *config, sn_error *err);
sn_tokenizer *sn_tok_load_wordpiece(const char *path, const cJSON *config, sn_error *err);
sn_tokenizer *sn_tok_load_gguf(const char *path, sn_error *err);
sn_tokenizer *sn_tok_load_tables(const char *path, sn_error *err);
/* root: the parsed file */
sn_tokenizer *sn_tok_load_symbols(const char *path, const cJSON *root, sn_error *err);
sn_tokenizer *sn_tok_load_hf(const char *path, const cJSON *root, const cJSON *config,
                             sn_error *err);

#endif
