/* gguf.h: GGUF files, versions 2 and 3, little endian (ggml-org/ggml, docs/gguf.md): "GGUF", u32
 * version, u64 number of tensors, u64 number of keys; the keys with typed values; name, sizes, type
 * and offset of each tensor; padding; the tensors. A string is a u64 size and its bytes. Internal. */
#ifndef SN_GGUF_H
#define SN_GGUF_H

#include "runtime/file.h"
#include "runtime/weights.h"

typedef enum sn_gguf_type {
    SN_GGUF_U8,
    SN_GGUF_I8,
    SN_GGUF_U16,
    SN_GGUF_I16,
    SN_GGUF_U32,
    SN_GGUF_I32,
    SN_GGUF_F32,
    SN_GGUF_BOOL,
    SN_GGUF_STRING,
    SN_GGUF_ARRAY,
    SN_GGUF_U64,
    SN_GGUF_I64,
    SN_GGUF_F64,
    SN_GGUF_TYPES
} sn_gguf_type;

/* One value, or an array of them: `count` values of `type`, one after another, all inside the
 * file. Arrays of arrays are skipped: count 0, type SN_GGUF_ARRAY. */
typedef struct sn_gguf_key {
    const char *name;
    bool array;
    sn_gguf_type type;
    size_t count, bytes;
    const unsigned char *data;
} sn_gguf_key;

/* An open file. Names belong to it. */
typedef struct sn_gguf {
    char *path;
    sn_mapping map;
    uint32_t version;
    size_t keys_end; /* byte behind the last key */
    sn_gguf_key *key;
    size_t key_count;
    sn_weight *tensor; /* in file order; data points into the map */
    size_t tensor_count;
    char **name; /* [name_count], of keys and tensors */
    size_t name_count;
} sn_gguf;

bool sn_gguf_is_file(const char *path); /* by the first bytes */

/* Maps and checks the whole header: types, sizes and offsets within the file, unique keys. NULL on
 * error. */
sn_gguf *sn_gguf_open(const char *path, sn_error *err);
void sn_gguf_close(sn_gguf *g); /* NULL is allowed */

/* Writes a file with the keys of another one, and no tensors: its vocabulary and sizes. */
bool sn_gguf_save_keys(const char *from, const char *to, sn_error *err);

const sn_gguf_key *sn_gguf_find(const sn_gguf *g, const char *name); /* NULL if absent */

/* Element i of a key as a number; NAN if it is not a number or bool, or there is no such element. k
 * may be NULL. */
double sn_gguf_number(const sn_gguf_key *k, size_t i);

/* Strings of a key, in order: begin with *at = 0. False: no more, or not strings. */
bool sn_gguf_string(const sn_gguf_key *k, size_t *at, const char **text, size_t *size);

/* Whether the file has a vocabulary. */
bool sn_gguf_has_vocabulary(const sn_gguf *g);

/* Whether the key is this one string. k may be NULL. */
bool sn_gguf_says(const sn_gguf_key *k, const char *text);

#endif
