/* gguf.c: checks the header of a GGUF file and finds its keys and tensors. Files are untrusted:
 * every number is checked before use. */
#include "runtime/files/gguf.h"
#include "runtime/files/blocks.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "GGUF files are little-endian and are mapped directly"
#endif

enum { MAGIC = 0x46554747, MAX_DEPTH = 4, NAME_LIMIT = 65535, ALIGNMENT = 32 };

static const unsigned char type_size[SN_GGUF_TYPES] = {
    [SN_GGUF_U8] = 1,  [SN_GGUF_I8] = 1,  [SN_GGUF_U16] = 2, [SN_GGUF_I16] = 2,
    [SN_GGUF_U32] = 4, [SN_GGUF_I32] = 4, [SN_GGUF_F32] = 4, [SN_GGUF_BOOL] = 1,
    [SN_GGUF_U64] = 8, [SN_GGUF_I64] = 8, [SN_GGUF_F64] = 8};

/* Does not map the file: a page fault reads ahead, and weights may be read past the page cache. */
bool sn_gguf_is_file(const char *path) {
    char magic[4];
    struct stat st;
    FILE *f = stat(path, &st) == 0 && S_ISREG(st.st_mode) ? fopen(path, "rb") : NULL;
    bool is = f && fread(magic, 1, 4, f) == 4 && !memcmp(magic, "GGUF", 4);
    if (f) fclose(f);
    return is;
}

/* ---- reading ---- */

typedef struct reader {
    sn_gguf *g;
    size_t at; /* byte to read next, never behind the end */
    sn_error *err;
} reader;

static size_t rest_of(const reader *r) {
    return r->g->map.size - r->at;
}

static bool truncated(reader *r, const char *what) {
    return sn_fail(r->err, SN_ERR_FILE,
                   "%s: the file ends at byte %zu, inside %s: truncated or damaged", r->g->path,
                   r->g->map.size, what);
}

static bool take(reader *r, void *out, size_t bytes, const char *what) {
    if (bytes > rest_of(r)) return truncated(r, what);
    memcpy(out, r->g->map.data + r->at, bytes);
    r->at += bytes;
    return true;
}

/* A copy of a string, owned by the file. */
static bool take_name(reader *r, const char **out, const char *what) {
    sn_gguf *g = r->g;
    uint64_t size = 0;
    if (!take(r, &size, 8, what)) return false;
    if (size > rest_of(r)) return truncated(r, what);
    const char *text = (const char *)g->map.data + r->at;
    if (!size || size > NAME_LIMIT || memchr(text, 0, size))
        return sn_fail(r->err, SN_ERR_FILE,
                       "%s: the name of %s at byte %zu is empty, too long or contains NUL", g->path,
                       what, r->at);
    char *copy = strndup(text, size);
    if (!copy) return sn_fail(r->err, SN_ERR_MEMORY, "%s: out of memory", g->path);
    g->name[g->name_count++] = copy;
    *out = copy;
    r->at += size;
    return true;
}

static bool skip_value(reader *r, uint32_t type, int depth, sn_gguf_key *k);

static bool skip_array(reader *r, int depth, sn_gguf_key *k) {
    uint32_t type = 0;
    uint64_t count = 0;
    if (!take(r, &type, 4, k->name) || !take(r, &count, 8, k->name)) return false;
    if (type >= SN_GGUF_TYPES || depth == MAX_DEPTH)
        return sn_fail(r->err, SN_ERR_FILE, "%s: key \"%s\" is an array of unknown type %" PRIu32,
                       r->g->path, k->name, type);
    size_t begin = r->at, each = type_size[type];
    if (each) {
        if (count > rest_of(r) / each) return truncated(r, k->name);
        r->at += count * each;
    } else {
        if (count > rest_of(r) / 8) return truncated(r, k->name);
        for (uint64_t i = 0; i < count; i++)
            if (!skip_value(r, type, depth + 1, k)) return false;
    }
    if (depth) return true;
    k->array = true;
    k->type = (sn_gguf_type)type;
    k->count = type == SN_GGUF_ARRAY ? 0 : count;
    k->data = r->g->map.data + begin;
    k->bytes = r->at - begin;
    return true;
}

/* Moves behind a value. At depth 0 describes it in k. */
static bool skip_value(reader *r, uint32_t type, int depth, sn_gguf_key *k) {
    uint64_t size = 0;
    size_t begin = r->at;
    if (type == SN_GGUF_ARRAY) return skip_array(r, depth, k);
    if (type == SN_GGUF_STRING) {
        if (!take(r, &size, 8, k->name)) return false;
        if (size > rest_of(r)) return truncated(r, k->name);
        r->at += size;
    } else if (type < SN_GGUF_TYPES) {
        if (type_size[type] > rest_of(r)) return truncated(r, k->name);
        r->at += type_size[type];
    } else
        return sn_fail(r->err, SN_ERR_FILE, "%s: key \"%s\" has an unknown type %" PRIu32,
                       r->g->path, k->name, type);
    if (depth) return true;
    k->type = (sn_gguf_type)type;
    k->count = 1;
    k->data = r->g->map.data + begin;
    k->bytes = r->at - begin;
    return true;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const sn_gguf_key *)a)->name, ((const sn_gguf_key *)b)->name);
}

/* What a value may be: bits of types. */
enum {
    TEXT = 1 << SN_GGUF_STRING,
    SWITCH = 1 << SN_GGUF_BOOL,
    REAL = 1 << SN_GGUF_F32 | 1 << SN_GGUF_F64,
    WHOLE = 1 << SN_GGUF_U8 | 1 << SN_GGUF_I8 | 1 << SN_GGUF_U16 | 1 << SN_GGUF_I16 |
            1 << SN_GGUF_U32 | 1 << SN_GGUF_I32 | 1 << SN_GGUF_U64 | 1 << SN_GGUF_I64
};

/* Keys of all architectures: a value of another type is not taken for a missing one. */
static const struct {
    const char *name;
    bool list;
    int types;
    const char *what;
} known_keys[] = {{"general.architecture", false, TEXT, "a text"},
                  {"general.alignment", false, WHOLE, "a whole number"},
                  {"split.count", false, WHOLE, "a whole number"},
                  {"split.no", false, WHOLE, "a whole number"},
                  {"tokenizer.chat_template", false, TEXT, "a text"},
                  {"tokenizer.ggml.model", false, TEXT, "a text"},
                  {"tokenizer.ggml.pre", false, TEXT, "a text"},
                  {"tokenizer.ggml.tokens", true, TEXT, "a list of strings"},
                  {"tokenizer.ggml.merges", true, TEXT, "a list of strings"},
                  {"tokenizer.ggml.scores", true, REAL, "a list of floating-point numbers"},
                  {"tokenizer.ggml.token_type", true, WHOLE, "a list of whole numbers"},
                  {"tokenizer.ggml.bos_token_id", false, WHOLE, "a whole number"},
                  {"tokenizer.ggml.cls_token_id", false, WHOLE, "a whole number"},
                  {"tokenizer.ggml.eos_token_id", false, WHOLE, "a whole number"},
                  {"tokenizer.ggml.eot_token_id", false, WHOLE, "a whole number"},
                  {"tokenizer.ggml.eom_token_id", false, WHOLE, "a whole number"},
                  {"tokenizer.ggml.seperator_token_id", false, WHOLE, "a whole number"},
                  {"tokenizer.ggml.unknown_token_id", false, WHOLE, "a whole number"},
                  {"tokenizer.ggml.padding_token_id", false, WHOLE, "a whole number"},
                  {"tokenizer.ggml.mask_token_id", false, WHOLE, "a whole number"},
                  {"tokenizer.ggml.add_bos_token", false, SWITCH, "true or false"},
                  {"tokenizer.ggml.add_space_prefix", false, SWITCH, "true or false"}};

static bool check_types(const reader *r) {
    for (size_t i = 0; i < sizeof known_keys / sizeof *known_keys; i++) {
        const sn_gguf_key *k = sn_gguf_find(r->g, known_keys[i].name);
        if (k && (k->array != known_keys[i].list || !(known_keys[i].types >> k->type & 1)))
            return sn_fail(r->err, SN_ERR_FILE, "%s: key \"%s\" must be %s", r->g->path, k->name,
                           known_keys[i].what);
    }
    return true;
}

/* Keys, sorted by name. */
static bool take_keys(reader *r) {
    sn_gguf *g = r->g;
    for (size_t i = 0; i < g->key_count; i++) {
        sn_gguf_key *k = &g->key[i];
        uint32_t type = 0;
        if (!take_name(r, &k->name, "a key") || !take(r, &type, 4, k->name) ||
            !skip_value(r, type, 0, k))
            return false;
    }
    g->keys_end = r->at;
    qsort(g->key, g->key_count, sizeof *g->key, compare_names);
    for (size_t i = 1; i < g->key_count; i++)
        if (!compare_names(&g->key[i - 1], &g->key[i]))
            return sn_fail(r->err, SN_ERR_FILE, "%s: key \"%s\" occurs twice", g->path,
                           g->key[i].name);
    return check_types(r);
}

/* ---- tensors ---- */

static bool fail_tensor(reader *r, const sn_weight *t, const char *what) {
    return sn_fail(r->err, SN_ERR_FILE, "%s: tensor \"%s\": %s", r->g->path, t->name, what);
}

/* Sizes, fastest first in the file; the last axis of ours holds whole blocks. */
static bool take_shape(reader *r, sn_weight *t) {
    uint32_t rank = 0;
    uint64_t size = 0;
    if (!take(r, &rank, 4, t->name)) return false;
    if (rank > SN_WEIGHT_RANK) return fail_tensor(r, t, "more than 8 dimensions");
    t->rank = (int)rank;
    for (int i = t->rank - 1; i >= 0; i--) {
        if (!take(r, &size, 8, t->name)) return false;
        if (size > INT64_MAX) return fail_tensor(r, t, "its shape is too large");
        t->shape[i] = (int64_t)size;
    }
    return true;
}

static bool take_type(reader *r, sn_weight *t) {
    char text[300], known[200];
    uint32_t id = 0;
    if (!take(r, &id, 4, t->name)) return false;
    const sn_gguf_tensor_type *type = sn_gguf_tensor_type_find(id);
    if (!type) {
        sn_gguf_tensor_type_list(known, sizeof known);
        snprintf(text, sizeof text, "type %" PRIu32 " is not supported; allowed: %s", id, known);
        return fail_tensor(r, t, text);
    }
    t->dtype = type->dtype;
    t->block = type->block;
    return true;
}

/* Bytes of a tensor; false: too many, or rows that are not whole blocks. */
static bool find_bytes(sn_weight *t) {
    int64_t n = sn_weight_elements(t), each = t->block ? t->block->elements : 1;
    size_t size = t->block ? (size_t)t->block->bytes : sn_dtype_size(t->dtype);
    if (n < 0 || (t->rank ? t->shape[t->rank - 1] : 1) % each) return false;
    return !__builtin_mul_overflow((size_t)(n / each), size, &t->bytes);
}

static bool take_tensor(reader *r, sn_weight *t, uint64_t *offset) {
    return take_name(r, &t->name, "a tensor") && take_shape(r, t) && take_type(r, t) &&
           take(r, offset, 8, t->name) &&
           (find_bytes(t) || fail_tensor(r, t, "its shape does not fit its type"));
}

static int compare_places(const void *a, const void *b) {
    const sn_weight *x = *(sn_weight *const *)a, *y = *(sn_weight *const *)b;
    if (x->data != y->data) return (uintptr_t)x->data < (uintptr_t)y->data ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static bool check_overlaps(reader *r) {
    const sn_gguf *g = r->g;
    const sn_weight **by_place = malloc((g->tensor_count + 1) * sizeof *by_place);
    if (!by_place) return sn_fail(r->err, SN_ERR_MEMORY, "%s: out of memory", g->path);
    for (size_t i = 0; i < g->tensor_count; i++) by_place[i] = &g->tensor[i];
    qsort(by_place, g->tensor_count, sizeof *by_place, compare_places);
    bool ok = true;
    for (size_t i = 1; ok && i < g->tensor_count; i++) {
        const sn_weight *p = by_place[i - 1];
        if ((const char *)p->data + p->bytes > (const char *)by_place[i]->data)
            ok = fail_tensor(r, by_place[i], "overlaps another tensor");
    }
    free(by_place);
    return ok;
}

static bool find_alignment(reader *r, uint64_t *alignment) {
    const sn_gguf_key *k = sn_gguf_find(r->g, "general.alignment");
    double a = k ? sn_gguf_number(k, 0) : ALIGNMENT;
    /* not less than 8, so that every type is aligned */
    if (!(a >= 8 && a <= 1 << 20) || ((uint32_t)a & ((uint32_t)a - 1)))
        return sn_fail(r->err, SN_ERR_FILE,
                       "%s: \"general.alignment\" must be a power of two from 8 to 2^20",
                       r->g->path);
    *alignment = (uint64_t)a;
    return true;
}

static bool take_tensors(reader *r) {
    sn_gguf *g = r->g;
    uint64_t alignment = ALIGNMENT, *offset = malloc((g->tensor_count + 1) * sizeof *offset);
    if (!offset) return sn_fail(r->err, SN_ERR_MEMORY, "%s: out of memory", g->path);
    bool ok = find_alignment(r, &alignment);
    for (size_t i = 0; ok && i < g->tensor_count; i++)
        ok = take_tensor(r, &g->tensor[i], &offset[i]);
    size_t pad = ok ? (alignment - r->at % alignment) % alignment : 0;
    size_t begin = g->tensor_count && pad > rest_of(r) ? g->map.size : r->at + pad;
    for (size_t i = 0; ok && i < g->tensor_count; i++) {
        sn_weight *t = &g->tensor[i];
        size_t size = g->map.size - begin;
        if (offset[i] % alignment)
            ok = fail_tensor(r, t, "its offset is not a multiple of the alignment");
        else if (offset[i] > size || t->bytes > size - offset[i])
            ok = fail_tensor(r, t, "ends behind the end of the file: truncated or damaged");
        else
            t->data = g->map.data + begin + offset[i];
    }
    free(offset);
    return ok && check_overlaps(r);
}

static bool take_header(reader *r) {
    enum { LEAST_KEY = 8 + 1 + 4 + 1, LEAST_TENSOR = 8 + 1 + 4 + 4 + 8 };
    sn_gguf *g = r->g;
    uint32_t magic = 0;
    uint64_t tensors = 0, keys = 0;
    if (!take(r, &magic, 4, "the header") || !take(r, &g->version, 4, "the header") ||
        !take(r, &tensors, 8, "the header") || !take(r, &keys, 8, "the header"))
        return false;
    if (magic != MAGIC) return sn_fail(r->err, SN_ERR_FILE, "%s: not a GGUF file", g->path);
    if (g->version != 2 && g->version != 3)
        return sn_fail(r->err, SN_ERR_FILE,
                       "%s: GGUF version %" PRIu32 " is not supported; allowed: 2 and 3, little "
                       "endian",
                       g->path, g->version);
    if (keys > rest_of(r) / LEAST_KEY || tensors > rest_of(r) / LEAST_TENSOR)
        return truncated(r, "the header");
    g->key_count = keys, g->tensor_count = tensors;
    g->key = calloc(keys + 1, sizeof *g->key);
    g->tensor = calloc(tensors + 1, sizeof *g->tensor);
    g->name = calloc(keys + tensors + 1, sizeof *g->name);
    return (g->key && g->tensor && g->name) ||
           sn_fail(r->err, SN_ERR_MEMORY, "%s: out of memory", g->path);
}

sn_gguf *sn_gguf_open(const char *path, sn_error *err) {
    sn_gguf *g = calloc(1, sizeof *g);
    if (!g || !(g->path = strdup(path))) {
        sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", path);
        free(g);
        return NULL;
    }
    reader r = {g, 0, err};
    g->map.data = (const unsigned char *)"";
    if (sn_file_map(path, &g->map, err) && take_header(&r) && take_keys(&r) && take_tensors(&r))
        return g;
    sn_gguf_close(g);
    return NULL;
}

void sn_gguf_close(sn_gguf *g) {
    if (!g) return;
    sn_file_unmap(&g->map);
    for (size_t i = 0; i < g->name_count; i++) free(g->name[i]);
    free(g->name);
    free(g->key);
    free(g->tensor);
    free(g->path);
    free(g);
}

bool sn_gguf_save_keys(const char *from, const char *to, sn_error *err) {
    sn_gguf *g = sn_gguf_open(from, err);
    if (!g) return false;
    unsigned char *copy = malloc(g->keys_end);
    if (copy)
        memset((unsigned char *)memcpy(copy, g->map.data, g->keys_end) + 8, 0, 8); /* no tensors */
    bool ok = copy ? sn_file_save(to, copy, g->keys_end, err)
                   : sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", to);
    free(copy);
    sn_gguf_close(g);
    return ok;
}

/* ---- values ---- */

const sn_gguf_key *sn_gguf_find(const sn_gguf *g, const char *name) {
    const sn_gguf_key wanted = {.name = name};
    return bsearch(&wanted, g->key, g->key_count, sizeof *g->key, compare_names);
}

double sn_gguf_number(const sn_gguf_key *k, size_t i) {
    if (!k || i >= k->count || !type_size[k->type]) return NAN;
    const unsigned char *p = k->data + i * type_size[k->type];
    switch (k->type) {
#define CASE(TYPE, c_type)                                                                         \
    case SN_GGUF_##TYPE: {                                                                         \
        c_type v;                                                                                  \
        memcpy(&v, p, sizeof v);                                                                   \
        return (double)v;                                                                          \
    }
        CASE(U8, uint8_t)
        CASE(I8, int8_t)
        CASE(U16, uint16_t)
        CASE(I16, int16_t)
        CASE(U32, uint32_t)
        CASE(I32, int32_t)
        CASE(F32, float)
        CASE(U64, uint64_t)
        CASE(I64, int64_t)
        CASE(F64, double)
#undef CASE
    case SN_GGUF_BOOL:
        return *p != 0;
    default:
        return NAN;
    }
}

bool sn_gguf_string(const sn_gguf_key *k, size_t *at, const char **text, size_t *size) {
    uint64_t n;
    if (!k || k->type != SN_GGUF_STRING || *at >= k->bytes) return false;
    memcpy(&n, k->data + *at, 8);
    *text = (const char *)k->data + *at + 8;
    *size = n;
    *at += 8 + n;
    return true;
}

bool sn_gguf_has_vocabulary(const sn_gguf *g) {
    const sn_gguf_key *k = sn_gguf_find(g, "tokenizer.ggml.model");
    return k && !sn_gguf_says(k, "none") && !sn_gguf_says(k, "no_vocab");
}

bool sn_gguf_says(const sn_gguf_key *k, const char *text) {
    const char *s;
    size_t at = 0, size;
    return k && !k->array && sn_gguf_string(k, &at, &s, &size) && size == strlen(text) &&
           !memcmp(s, text, size);
}
