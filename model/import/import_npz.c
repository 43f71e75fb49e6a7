/* import_npz.c: a NumPy .npz archive (a zip of .npy files, stored or deflated) of a vision
 * transformer. Sources: PKWARE APPNOTE 6.3 sections 4.3.7, 4.3.12, 4.3.16; numpy.savez.
 *
 * Names of arrays are kept (the archive's names without ".npy"). Weights are [out, in].
 *   pos_embed [1, N, d]
 *   patch_embed.proj.{weight [d, patch], bias}
 *   encoder.L.attn.in_proj_{weight [3d, d] = q|k|v, bias}, encoder.L.attn.out_proj,
 *   encoder.L.ffn.fc1, encoder.L.ffn.fc2, encoder.L.norm1, encoder.L.norm2
 *   norm, classifier
 * The config has model_type "vit" and Hugging Face's ViT keys, derived from the shapes (square
 * images of one channel in square patches, row-major), plus
 *   "linear_layout": "out_in"
 *   "norm_order": "post"      LayerNorm after each residual sum ("pre" is Hugging Face's ViT)
 *   "use_cls_token": false    no class token
 *   "pooling": "mean"         the classifier reads the mean over patches, after the final norm
 * The number of heads, image_mean and image_std are not in the tensors: num_attention_heads must
 * come from --config, whose other keys also override the derived ones. */
#include "model/import/import.h"
#include "runtime/npy.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { END_SIZE = 22, ENTRY_SIZE = 46, LOCAL_SIZE = 30, COMMENT_LIMIT = 65535 };

/* Limit on the total size of all arrays: this many bytes plus 64 per byte of the archive. Weights
 * hardly compress; a ratio near deflate's maximum, 1032 to 1, is a decompression bomb. */
#define UNPACKED_LIMIT ((uint64_t)64 << 20)

bool npz_matches(const sn_mapping *m) {
    return m->size >= END_SIZE && !memcmp(m->data, "PK\3\4", 4);
}

static uint32_t read_u16(const unsigned char *p) {
    return p[0] | (uint32_t)p[1] << 8;
}

static uint32_t read_u32(const unsigned char *p) {
    return read_u16(p) | read_u16(p + 2) << 16;
}

/* The end record: the last position in the file where one fits, including its comment. */
static const unsigned char *find_end(const sn_mapping *m) {
    for (size_t back = END_SIZE; back <= m->size && back <= END_SIZE + COMMENT_LIMIT; back++) {
        const unsigned char *p = m->data + m->size - back;
        if (!memcmp(p, "PK\5\6", 4) && read_u16(p + 20) == back - END_SIZE) return p;
    }
    return NULL;
}

/* A file in the archive, from its central directory entry. */
typedef struct member {
    char name[256]; /* without ".npy" */
    const unsigned char *packed;
    uint32_t method, crc, packed_size, size;
} member;

/* Reads the entry at *at and moves *at behind it; returns an error text, or NULL. */
static const char *read_member(const sn_mapping *m, const unsigned char **at,
                               const unsigned char *end, member *e) {
    const unsigned char *p = *at;
    if (end - p < ENTRY_SIZE || memcmp(p, "PK\1\2", 4)) return "malformed directory";
    size_t name = read_u16(p + 28), skip = read_u16(p + 30) + read_u16(p + 32);
    if ((size_t)(end - p) < ENTRY_SIZE + name + skip) return "malformed directory";
    *at = p + ENTRY_SIZE + name + skip;
    if (name >= sizeof e->name || name < 5 || memcmp(p + ENTRY_SIZE + name - 4, ".npy", 4) ||
        memchr(p + ENTRY_SIZE, 0, name))
        return "contains files other than .npy";
    memcpy(e->name, p + ENTRY_SIZE, name - 4);
    e->name[name - 4] = 0;
    e->method = read_u16(p + 10);
    e->crc = read_u32(p + 16);
    e->packed_size = read_u32(p + 20);
    e->size = read_u32(p + 24);
    uint64_t local = read_u32(p + 42);
    if (read_u16(p + 8) & 1) return "encrypted";
    if (e->size == UINT32_MAX || local == UINT32_MAX) return "larger than 4 GB (zip64)";
    if (local + LOCAL_SIZE > m->size || memcmp(m->data + local, "PK\3\4", 4))
        return "an entry lies outside the file";
    const unsigned char *h = m->data + local;
    uint64_t start = local + LOCAL_SIZE + read_u16(h + 26) + read_u16(h + 28);
    if (start > m->size || e->packed_size > m->size - start)
        return "an entry lies outside the file";
    e->packed = m->data + start;
    return NULL;
}

/* Decompresses a deflated member to exactly e->size bytes. */
static bool inflate_member(const member *e, unsigned char *out) {
    z_stream z = {.next_in = (Bytef *)(uintptr_t)e->packed,
                  .avail_in = e->packed_size,
                  .next_out = out,
                  .avail_out = e->size};
    if (inflateInit2(&z, -15) != Z_OK) return false;
    bool ok = inflate(&z, Z_FINISH) == Z_STREAM_END && z.total_out == e->size;
    inflateEnd(&z);
    return ok;
}

/* Adds a member's array to the list. */
static bool read_array(const member *e, const char *path, import_list *l, sn_error *err) {
    char where[400], shown[120];
    snprintf(where, sizeof where, "%.250s: \"%s\"", path,
             sn_printable(shown, sizeof shown, e->name));
    const unsigned char *data = e->packed;
    unsigned char *unpacked = NULL;
    if (e->method == 8) {
        if (e->size / 1100 > e->packed_size) /* deflate's maximum ratio is 1032 to 1 */
            return sn_fail(err, SN_ERR_FILE, "%s: corrupted (impossible sizes)", where);
        unpacked = malloc((size_t)e->size + 1);
        if (!unpacked) return sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", where);
        data = unpacked;
    }
    sn_npy a = {0};
    bool ok = false;
    if (e->method != 8 && e->method != 0)
        sn_fail(err, SN_ERR_FILE, "%s: compression method %" PRIu32 " is not supported", where,
                e->method);
    else if (unpacked ? !inflate_member(e, unpacked) : e->packed_size != e->size)
        sn_fail(err, SN_ERR_FILE, "%s: corrupted (cannot be decompressed)", where);
    else if (crc32(0, data, e->size) != e->crc)
        sn_fail(err, SN_ERR_FILE, "%s: corrupted (wrong checksum)", where);
    else
        ok = sn_npy_parse(where, data, e->size, &a, err);
    free(unpacked);
    if (ok && !a.count) {
        sn_npy_free(&a);
        return sn_fail(err, SN_ERR_FILE, "%s: is empty", where);
    }
    if (ok && import_own(l, a.data)) import_add(l, e->name, a.dtype, a.rank, a.shape, a.data);
    return ok;
}

static bool read_archive(const sn_mapping *m, const char *path, import_list *l, sn_error *err) {
    const unsigned char *end = find_end(m);
    if (!end) return sn_fail(err, SN_ERR_FILE, "%s: not a complete zip archive: truncated?", path);
    uint64_t count = read_u16(end + 10), size = read_u32(end + 12), start = read_u32(end + 16);
    if (start + size > (uint64_t)(end - m->data))
        return sn_fail(err, SN_ERR_FILE, "%s: malformed zip archive", path);
    const unsigned char *at = m->data + start;
    uint64_t packed = 0, unpacked = 0;
    for (uint64_t i = 0; i < count; i++) {
        member e;
        const char *why = read_member(m, &at, m->data + start + size, &e);
        packed += why ? 0 : e.packed_size;
        unpacked += why ? 0 : e.size;
        if (!why && import_find(l, e.name)) why = "duplicate name";
        if (!why && packed > m->size) why = "entries share their data";
        if (!why && unpacked > UNPACKED_LIMIT + 64 * (uint64_t)m->size)
            why = "the arrays are too large for the size of the archive";
        if (why) return sn_fail(err, SN_ERR_FILE, "%s: entry %" PRIu64 ": %s", path, i, why);
        if (!read_array(&e, path, l, err)) return false;
    }
    return at == m->data + start + size ||
           sn_fail(err, SN_ERR_FILE, "%s: malformed zip archive", path);
}

/* ---- vision transformer ---- */

typedef struct vit {
    int64_t width, tokens, patch, inner, labels, layers;
} vit;

/* Shapes by letter: 1, n tokens, d width, q 3 d, p patch pixels, f inner, c labels. */
typedef struct kind {
    const char *name, *shape;
} kind;

static const kind outer_kinds[] = {{"pos_embed", "1nd"},
                                   {"patch_embed.proj.weight", "dp"},
                                   {"patch_embed.proj.bias", "d"},
                                   {"norm.weight", "d"},
                                   {"norm.bias", "d"},
                                   {"classifier.weight", "cd"},
                                   {"classifier.bias", "c"}};
static const kind layer_kinds[] = {
    {"attn.in_proj_weight", "qd"}, {"attn.in_proj_bias", "q"}, {"attn.out_proj.weight", "dd"},
    {"attn.out_proj.bias", "d"},   {"ffn.fc1.weight", "fd"},   {"ffn.fc1.bias", "f"},
    {"ffn.fc2.weight", "df"},      {"ffn.fc2.bias", "d"},      {"norm1.weight", "d"},
    {"norm1.bias", "d"},           {"norm2.weight", "d"},      {"norm2.bias", "d"}};

static int64_t find_dim(const vit *v, char symbol) {
    const char symbols[] = "1ndqpfc";
    const int64_t sizes[] = {1, v->tokens, v->width, 3 * v->width, v->patch, v->inner, v->labels};
    return sizes[strchr(symbols, symbol) - symbols];
}

static void check_tensor(const import_list *l, const vit *v, const char *name, const char *shape,
                         sn_problems *p) {
    const sn_weight *t = import_find(l, name);
    int rank = (int)strlen(shape);
    bool fits = t && t->rank == rank && t->dtype == SN_F32;
    for (int i = 0; fits && i < rank; i++) fits = t->shape[i] == find_dim(v, shape[i]);
    if (!t)
        sn_problem(p, "array \"%s\" is missing", name);
    else if (!fits)
        sn_problem(p, "array \"%s\" is not f32, or its shape does not match the others", name);
}

/* The integer square root of a size, which is below 2^32 because the arrays are in memory. */
static int64_t find_root(int64_t n) {
    return (int64_t)sqrt((double)n);
}

/* Derives the sizes from a few arrays and checks all of them. */
static bool find_sizes(const import_list *l, vit *v, const char *path, sn_error *err) {
    const sn_weight *pos = import_find(l, "pos_embed"), *fc, *classifier, *patch;
    patch = import_find(l, "patch_embed.proj.weight");
    fc = import_find(l, "encoder.0.ffn.fc1.weight");
    classifier = import_find(l, "classifier.weight");
    if (!pos || !patch || !fc || !classifier || pos->rank != 3 || patch->rank != 2 ||
        fc->rank != 2 || classifier->rank != 2)
        return sn_fail(err, SN_ERR_FILE,
                       "%s: unknown model: expected arrays pos_embed [1, N, d], "
                       "patch_embed.proj.weight, encoder.0.ffn.fc1.weight and classifier.weight",
                       path);
    *v =
        (vit){pos->shape[2], pos->shape[1], patch->shape[1], fc->shape[0], classifier->shape[0], 0};
    sn_problems p = {0};
    if (v->width < 1 || v->width > 1 << 16)
        return sn_fail(err, SN_ERR_FILE, "%s: width %" PRId64 " is invalid", path, v->width);
    size_t outer = sizeof outer_kinds / sizeof *outer_kinds;
    size_t inner = sizeof layer_kinds / sizeof *layer_kinds;
    v->layers = l->count > outer ? (int64_t)((l->count - outer) / inner) : 0;
    if (l->count != outer + (size_t)v->layers * inner)
        sn_problem(&p, "found %zu arrays; expected %zu, and %zu per layer", l->count, outer, inner);
    for (size_t i = 0; i < outer; i++)
        check_tensor(l, v, outer_kinds[i].name, outer_kinds[i].shape, &p);
    for (int64_t n = 0; n < v->layers; n++)
        for (size_t i = 0; i < inner; i++) {
            char name[64];
            snprintf(name, sizeof name, "encoder.%" PRId64 ".%s", n, layer_kinds[i].name);
            check_tensor(l, v, name, layer_kinds[i].shape, &p);
        }
    if (p.count) return sn_problems_check(&p, path, SN_ERR_FILE, err);
    int64_t side = find_root(v->patch), grid = find_root(v->tokens);
    if (side * side != v->patch || grid * grid != v->tokens)
        sn_problem(&p, "patches of %" PRId64 " pixels, %" PRId64 " of them: not square", v->patch,
                   v->tokens);
    return sn_problems_check(&p, path, SN_ERR_FILE, err);
}

static sn_config *make_config(const vit *v) {
    int64_t side = find_root(v->patch);
    sn_config *c = sn_config_new("config.json");
    if (!c) return NULL;
    sn_config_set_string(c, "model_type", "vit");
    sn_config_set_int(c, "hidden_size", v->width);
    sn_config_set_int(c, "intermediate_size", v->inner);
    sn_config_set_int(c, "num_hidden_layers", v->layers);
    sn_config_set_int(c, "image_size", side * find_root(v->tokens));
    sn_config_set_int(c, "patch_size", side);
    sn_config_set_int(c, "num_channels", 1);
    sn_config_set_int(c, "num_labels", v->labels);
    sn_config_set_string(c, "hidden_act", "gelu");
    sn_config_set_float(c, "layer_norm_eps", 1e-5);
    sn_config_set_string(c, "linear_layout", "out_in");
    sn_config_set_string(c, "norm_order", "post");
    sn_config_set_bool(c, "use_cls_token", false);
    sn_config_set_string(c, "pooling", "mean");
    return c;
}

/* The number of heads must be given, and must divide the width. */
static bool check_heads(const import_request *r, const vit *v, sn_error *err) {
    if (!r->config)
        return sn_fail(err, SN_ERR_USAGE,
                       "%s: the number of heads is not in the arrays; give --config FILE with "
                       "{\"num_attention_heads\": N}",
                       r->input);
    sn_config *c = sn_config_open(r->config, err);
    if (!c) return false;
    int64_t heads = sn_config_int(c, "num_attention_heads", 1, 1024);
    if (v->width % heads)
        sn_config_problem(c, "\"num_attention_heads\" = %" PRId64 " does not divide width %" PRId64,
                          heads, v->width);
    bool ok = sn_config_check(c, err);
    sn_config_free(c);
    return ok;
}

bool import_npz(const import_request *r, sn_error *err) {
    sn_mapping m;
    import_list l = {0};
    vit v;
    if (!sn_file_map(r->input, &m, err)) return false;
    bool ok = read_archive(&m, r->input, &l, err);
    sn_file_unmap(&m);
    ok = ok && find_sizes(&l, &v, r->input, err) && check_heads(r, &v, err);
    if (ok) {
        sn_config *c = make_config(&v);
        ok = import_save(r, c, &l, err);
        sn_config_free(c);
    }
    import_list_free(&l);
    return ok;
}
