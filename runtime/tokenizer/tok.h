/* tok.h: shared by the tokenizer's files: the object with its function table, the vocabulary,
 * growing buffers, file and JSON helpers, one constructor per file format. Internal. */
#ifndef SN_TOK_H
#define SN_TOK_H

#include "runtime/files/json.h"

#include "runtime/file.h"
#include "runtime/tokenizer.h"

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
/* Appends text as a JSON string, quotes included. */
bool sn_json_quote(sn_bytes *out, const char *text, size_t size, sn_error *err);

/* ---- vocabulary (tok_vocab.c): id <-> text ---- */

enum {
    SN_TOKEN_CONTROL = 1, /* special: not text */
    SN_TOKEN_BYTE = 2     /* "<0xHH>", stands for one byte */
};

typedef struct sn_entry {
    uint32_t offset, size; /* offset in pool; SN_NO_TEXT: the id has no text */
    uint32_t flags;
} sn_entry;

#define SN_NO_TEXT UINT32_MAX

typedef struct sn_vocab {
    sn_entry *entry; /* [count] */
    size_t count, capacity;
    sn_bytes pool;
    /* hash table of id + 1, 0: free; its size is a power of two, at most half full */
    uint32_t *slot;
    size_t slots, used;
    uint32_t longest; /* size of the longest text in bytes */
} sn_vocab;

/* Sets the text of id; ids between the old count and id are added without text. False if the id
 * already has a text. If several ids have the same text, sn_vocab_find returns the first. */
bool sn_vocab_set(sn_vocab *v, int32_t id, const char *text, size_t size, uint32_t flags,
                  sn_error *err);
int32_t sn_vocab_find(const sn_vocab *v, const char *text, size_t size); /* -1: none */
const char *sn_vocab_text(const sn_vocab *v, int32_t id, size_t *size);  /* NULL: none */
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
} sn_added;

typedef struct sn_tok_kind {
    const char *name;
    size_t size; /* size of the object, which begins with an sn_tokenizer */
    /* Encodes text of size > 0 that contains no added token; first: it is at the beginning of the
     * whole text. */
    bool (*encode)(const sn_tokenizer *t, const char *text, size_t size, bool first, sn_ids *out,
                   sn_error *err);
    /* Text of one token that is not a control token. *started: see sn_text_stream. */
    bool (*decode)(const sn_tokenizer *t, int32_t id, bool *started, sn_bytes *out, sn_error *err);
    bool (*save)(const sn_tokenizer *t, const char *dir, sn_error *err);
    void (*destroy)(sn_tokenizer *t); /* frees what the kind owns, not the object; may be NULL */
} sn_tok_kind;

struct sn_tokenizer {
    const sn_tok_kind *kind;
    sn_vocab vocab;
    int32_t special[SN_TOKEN_ROLES]; /* -1: none */
    bool foreign;    /* loaded from a tokenizer.json, which holds more than save can write */
    sn_added *added; /* sorted by first byte, then longest first */
    size_t added_count, added_capacity;
    uint32_t added_first[257]; /* index of the first token that begins with each byte */
};

/* An empty object of the kind; all roles are -1. */
sn_tokenizer *sn_tok_new(const sn_tok_kind *kind, sn_error *err);

/* Registers a token of the vocabulary as added; the text is copied. */
bool sn_tok_add(sn_tokenizer *t, int32_t id, bool special, bool lstrip, bool rstrip, sn_error *err);

/* Sets the roles that are still unset from tokenizer_config.json (or NULL), then from the usual
 * names ("<s>", "[CLS]", "<|endoftext|>" ...), marks their tokens as control tokens and adds them
 * as special. Last step of every loader. */
bool sn_tok_finish(sn_tokenizer *t, const cJSON *config, sn_error *err);

/* ---- kinds and file formats ---- */

/* config: the tokenizer_config.json next to the file, or NULL */
sn_tokenizer *sn_tok_load_gpt2(const char *vocab, const char *merges, const cJSON *config,
                               sn_error *err);
sn_tokenizer *sn_tok_load_llama(const char *path, const cJSON *config, sn_error *err);
sn_tokenizer *sn_tok_load_wordpiece(const char *path, const cJSON *config, sn_error *err);
sn_tokenizer *sn_tok_load_gguf(const char *path, sn_error *err);
/* root: the parsed file */
sn_tokenizer *sn_tok_load_symbols(const char *path, const cJSON *root, sn_error *err);
sn_tokenizer *sn_tok_load_hf(const char *path, const cJSON *root, const cJSON *config,
                             sn_error *err);

#endif
