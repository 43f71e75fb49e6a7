/* weights.c: reads safetensors files: validates a header against its file, finds tensors by name;
 * tensors of GGUF files (gguf.c). Files are untrusted: every number is checked before use.
 * weights_write.c writes them. */
#include "runtime/weights.h"
#include "runtime/file.h"
#include "runtime/files/blocks.h"
#include "runtime/files/gguf.h"
#include "runtime/files/json.h"
#include "runtime/files/safetensors.h"
#include "runtime/files/weights_impl.h"
#include "runtime/memory.h"
#include "runtime/str.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#define XXH_INLINE_ALL /* header-only: deployed programs link no xxHash library */
#include <xxhash.h>

/* One file: its header owns the names and metadata strings. */
typedef struct part {
    char *path;
    uint64_t identity; /* 0: unknown */
    sn_mapping map;
    cJSON *header; /* of a safetensors file */
    sn_gguf *gguf; /* owns the mapping then */
} part;

struct sn_weights {
    char *path;
    part *part;
    size_t part_count;
    sn_weight *tensor;
    size_t count;
    sn_st_table names;
    uint64_t identity; /* of all parts; 0: unknown */
    char **
        renamed; /* [n_renamed], names from sn_weights_rename, and data that are in none of the files */
    size_t n_renamed;
};

/* ---- reading ---- */

static bool read_whole(const cJSON *v, uint64_t *out) {
    if (!cJSON_IsNumber(v) || !(v->valuedouble >= 0 && v->valuedouble <= 0x1p53) ||
        v->valuedouble != floor(v->valuedouble))
        return false;
    *out = (uint64_t)v->valuedouble;
    return true;
}

static bool read_dtype(const cJSON *v, sn_weight *t, const sn_st_where *at) {
    if (!cJSON_IsString(v)) return sn_st_fail(at, "dtype is not a string");
    for (int i = 0; i < SN_DTYPE_COUNT; i++)
        if (!strcmp(v->valuestring, sn_st_types[i])) {
            t->dtype = (sn_dtype)i;
            return true;
        }
    char shown[24], text[160];
    size_t n = (size_t)snprintf(text, sizeof text, "dtype \"%s\" is not supported; allowed:",
                                sn_printable(shown, sizeof shown, v->valuestring));
    for (int i = 0; i < SN_DTYPE_COUNT; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, " %s", sn_st_types[i]);
    return sn_st_fail(at, text);
}

static bool read_shape(const cJSON *v, sn_weight *t, const sn_st_where *at) {
    if (!cJSON_IsArray(v)) return sn_st_fail(at, "shape is not an array");
    const cJSON *d;
    t->rank = 0;
    cJSON_ArrayForEach(d, v) {
        uint64_t n;
        if (!read_whole(d, &n))
            return sn_st_fail(at, "shape has an entry that is not a valid size");
        if (t->rank == SN_WEIGHT_RANK) return sn_st_fail(at, "more than 8 dimensions");
        t->shape[t->rank++] = (int64_t)n;
    }
    return true;
}

/* Parses one header entry; then t->data points into body, which is `length` bytes long. */
static bool read_entry(const cJSON *item, const unsigned char *body, uint64_t body_size,
                       sn_weight *t, const sn_st_where *at) {
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    const cJSON *field[3] = {NULL}, *f;
    if (!cJSON_IsObject(item)) return sn_st_fail(at, "its header entry is not an object");
    cJSON_ArrayForEach(f, item) {
        for (int k = 0; k < 3; k++)
            if (!strcmp(f->string, keys[k])) field[k] = f;
    }
    if (!field[0] || !field[1] || !field[2])
        return sn_st_fail(at, "its header entry lacks dtype, shape or data_offsets");
    if (!read_dtype(field[0], t, at) || !read_shape(field[1], t, at)) return false;
    uint64_t begin, end, bytes;
    const cJSON *o = field[2];
    if (!cJSON_IsArray(o) || cJSON_GetArraySize(o) != 2 || !read_whole(o->child, &begin) ||
        !read_whole(o->child->next, &end))
        return sn_st_fail(at, "data_offsets is not a pair of byte positions");
    if (end < begin) return sn_st_fail(at, "data_offsets end before they begin");
    if (end > body_size) {
        char text[160];
        snprintf(text, sizeof text,
                 "ends at data byte %" PRIu64 ", but the file has %" PRIu64
                 " of them: truncated file or wrong offset",
                 end, body_size);
        return sn_st_fail(at, text);
    }
    if (!sn_st_bytes(t, &bytes)) return sn_st_fail(at, "its shape is too large");
    if (bytes != end - begin) {
        char text[160];
        snprintf(text, sizeof text,
                 "shape and dtype need %" PRIu64 " bytes, but data_offsets give %" PRIu64, bytes,
                 end - begin);
        return sn_st_fail(at, text);
    }
    t->data = body + begin;
    t->bytes = bytes;
    return true;
}

static int compare_places(const void *a, const void *b) {
    const sn_weight *x = a, *y = b;
    if (x->data != y->data) return (uintptr_t)x->data < (uintptr_t)y->data ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* The format requires that tensors, sorted by offset, are contiguous, and that the last one ends
 * with the file. */
static bool check_places(const sn_weight *t, size_t count, const unsigned char *body, size_t size,
                         const char *path, sn_error *err) {
    const unsigned char *end = body;
    for (size_t i = 0; i < count; i++) {
        const sn_st_where at = {path, t[i].name, err};
        const unsigned char *begin = t[i].data;
        if (begin < end) return sn_st_fail(&at, "overlaps another tensor");
        if (begin > end) return sn_st_fail(&at, "the bytes before it belong to no tensor");
        end = begin + t[i].bytes;
    }
    size_t rest = (size_t)(body + size - end);
    if (!rest) return true;
    return sn_fail(err, SN_ERR_FILE, "%s: %zu bytes at the end belong to no tensor", path, rest);
}

static bool check_metadata(const cJSON *meta, const char *path, sn_error *err) {
    const cJSON *m;
    bool ok = cJSON_IsObject(meta);
    cJSON_ArrayForEach(m, meta) ok = ok && cJSON_IsString(m);
    return ok ||
           sn_fail(err, SN_ERR_FILE, "%s: " SN_ST_METADATA " is not an object of strings", path);
}

/* Maps a file and parses its header as JSON. */
static bool open_header(part *p, const char *path, size_t *header_size, sn_error *err) {
    if (!sn_file_map(path, &p->map, err)) return false;
    uint64_t n;
    if (p->map.size < 8)
        return sn_fail(err, SN_ERR_FILE, "%s: %zu bytes is too short for a safetensors file", path,
                       p->map.size);
    memcpy(&n, p->map.data, 8);
    if (n > p->map.size - 8)
        return sn_fail(err, SN_ERR_FILE,
                       "%s: header length %" PRIu64 " exceeds the file's %zu bytes: truncated, or "
                       "not a safetensors file",
                       path, n, p->map.size);
    if (n > SN_ST_HEADER_LIMIT)
        return sn_fail(err, SN_ERR_FILE, "%s: header length %" PRIu64 " is over the limit of %zu",
                       path, n, SN_ST_HEADER_LIMIT);
    const char *text = (const char *)p->map.data + 8;
    if (!n || *text != '{')
        return sn_fail(err, SN_ERR_FILE, "%s: header is not valid JSON: it must begin with '{'",
                       path);
    p->header = sn_json_parse(path, text, n, err);
    if (!p->header) return false;
    *header_size = n;
    return true;
}

static sn_weight *grow_tensors(sn_weights *w, size_t n, sn_error *err) {
    sn_weight *all = realloc(w->tensor, (w->count + n + 1) * sizeof *all);
    if (!all) {
        sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", w->path);
        return NULL;
    }
    w->tensor = all;
    return all + w->count;
}

static bool add_gguf(sn_weights *w, part *p, const char *path, sn_error *err) {
    p->gguf = sn_gguf_open(path, err);
    if (!p->gguf) return false;
    p->map = p->gguf->map;
    sn_weight *t = grow_tensors(w, p->gguf->tensor_count, err);
    if (!t) return false;
    memcpy(t, p->gguf->tensor, p->gguf->tensor_count * sizeof *t);
    w->count += p->gguf->tensor_count;
    return true;
}

uint64_t sn_file_identity(const struct stat *st) {
    const uint64_t facts[] = {(uint64_t)st->st_dev,          (uint64_t)st->st_ino,
                              (uint64_t)st->st_size,         (uint64_t)st->st_mtim.tv_sec,
                              (uint64_t)st->st_mtim.tv_nsec, (uint64_t)st->st_ctim.tv_sec,
                              (uint64_t)st->st_ctim.tv_nsec};
    return XXH3_64bits(facts, sizeof facts) | 1;
}

/* Before the file is mapped: if it is replaced in between, its identity is never seen again. */
static void add_identity(sn_weights *w, part *p) {
    struct stat st;
    bool known = stat(p->path, &st) == 0 && (w->identity || w->part_count == 1);
    p->identity = known ? sn_file_identity(&st) : 0;
    const uint64_t both[] = {w->identity, p->identity};
    w->identity = known ? XXH3_64bits(both, sizeof both) | 1 : 0;
}

/* A part for another file, which is not mapped yet. NULL: out of memory. */
static part *new_part(sn_weights *w, const char *path, sn_error *err) {
    part *parts = realloc(w->part, (w->part_count + 1) * sizeof *parts);
    char *copy = strdup(path);
    if (parts) w->part = parts;
    if (!parts || !copy) {
        free(copy);
        sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", path);
        return NULL;
    }
    part *p = &parts[w->part_count++];
    *p = (part){.path = copy, .map = {(const unsigned char *)"", 0}};
    add_identity(w, p);
    return p;
}

/* Opens one file and appends its tensors. */
static bool add_part(sn_weights *w, const char *path, sn_error *err) {
    part *p = new_part(w, path, err);
    if (!p) return false;
    if (sn_gguf_is_file(path)) return add_gguf(w, p, path, err);
    size_t header_size = 0;
    if (!open_header(p, path, &header_size, err)) return false;
    sn_weight *t = grow_tensors(w, (size_t)cJSON_GetArraySize(p->header), err);
    if (!t) return false;
    const unsigned char *body = p->map.data + 8 + header_size;
    size_t body_size = p->map.size - 8 - header_size, count = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, p->header) {
        if (!strcmp(item->string, SN_ST_METADATA)) {
            if (!check_metadata(item, path, err)) return false;
            continue;
        }
        const sn_st_where at = {path, item->string, err};
        t[count] = (sn_weight){.name = item->string};
        if (!read_entry(item, body, body_size, &t[count], &at)) return false;
        count++;
    }
    qsort(t, count, sizeof *t, compare_places);
    if (!check_places(t, count, body, body_size, path, err)) return false;
    w->count += count;
    return true;
}

static bool build_names(sn_weights *w, sn_error *err) {
    const char *twice = NULL;
    if (w->count < UINT32_MAX / 4 && sn_st_fill(&w->names, w->tensor, w->count, &twice))
        return true;
    if (!twice) return sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", w->path);
    const sn_st_where at = {w->path, twice, err};
    return sn_st_fail(&at, "occurs twice");
}

/* Reads "weight_map" of an index: tensor name to file name. Opens each file once, then checks that
 * every name is in one of them. */
static bool add_index(sn_weights *w, sn_error *err) {
    sn_mapping m;
    if (!sn_file_map(w->path, &m, err)) return false;
    cJSON *index = m.size <= SN_ST_HEADER_LIMIT
                       ? sn_json_parse(w->path, (const char *)m.data, m.size, err)
                       : (sn_fail(err, SN_ERR_FILE, "%s: over the limit of %zu bytes", w->path,
                                  SN_ST_HEADER_LIMIT),
                          NULL);
    sn_file_unmap(&m);
    if (!index) return false;
    const cJSON *map = cJSON_GetObjectItemCaseSensitive(index, "weight_map"), *item;
    bool ok = cJSON_IsObject(map) ||
              sn_fail(err, SN_ERR_FILE, "%s: has no object \"weight_map\"", w->path);
    const char *slash = strrchr(w->path, '/'), *opened[1024];
    size_t files = 0;
    cJSON_ArrayForEach(item, (ok ? map : NULL)) {
        const char *name = cJSON_IsString(item) ? item->valuestring : "";
        size_t i = 0;
        while (i < files && strcmp(opened[i], name)) i++;
        if (i < files) continue;
        const sn_st_where at = {w->path, item->string, err};
        if (!*name || strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, ".."))
            ok = sn_st_fail(&at, "its file name must not contain folders");
        else if (files == sizeof opened / sizeof *opened)
            ok = sn_fail(err, SN_ERR_FILE, "%s: refers to more than 1024 files", w->path);
        if (!ok) break;
        char *dir = slash ? strndup(w->path, (size_t)(slash - w->path) + 1) : strdup(".");
        char *path = dir ? sn_path_join(dir, name) : NULL;
        ok = path ? add_part(w, path, err)
                  : sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", w->path);
        free(path);
        free(dir);
        if (!ok) break;
        opened[files++] = name;
    }
    ok = ok && build_names(w, err);
    cJSON_ArrayForEach(item, (ok ? map : NULL)) {
        const sn_st_where at = {w->path, item->string, err};
        if (!sn_weights_find(w, item->string))
            ok = sn_st_fail(&at, "is in none of the files of the index");
    }
    cJSON_Delete(index);
    return ok;
}

/* The other files of a GGUF model that was split: NAME-00001-of-00003.gguf is the first. */
static bool add_split(sn_weights *w, sn_error *err) {
    enum { MAX_FILES = 1024 };
    const sn_gguf *g = sn_weights_gguf(w);
    double count = g ? sn_gguf_number(sn_gguf_find(g, "split.count"), 0) : 0;
    double number = g ? sn_gguf_number(sn_gguf_find(g, "split.no"), 0) : 0;
    if (!(count > 1)) return true;
    char ending[64];
    snprintf(ending, sizeof ending, "-00001-of-%05.0f.gguf", count);
    if (count > MAX_FILES || number > 0 || !sn_ends_with(w->path, ending))
        return sn_fail(err, SN_ERR_FILE,
                       "%s: it is one of %.0f files of a model: open the first, whose name ends "
                       "with \"%s\"",
                       w->path, count, ending);
    bool ok = true;
    for (int i = 2; ok && i <= (int)count; i++) {
        char *path = strdup(w->path);
        snprintf(ending, sizeof ending, "-%05d-of-%05.0f.gguf", i, count);
        if (path) strcpy(path + strlen(path) - strlen(ending), ending);
        ok = path ? add_part(w, path, err)
                  : sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", w->path);
        free(path);
    }
    return ok;
}

sn_weights *sn_weights_begin(const char *path, sn_error *err) {
    sn_weights *w = calloc(1, sizeof *w);
    if (w && (w->path = strdup(path))) return w;
    sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", path);
    free(w);
    return NULL;
}

bool sn_weights_map(sn_weights *w, const char *path, sn_mapping *out, sn_error *err) {
    part *p = NULL;
    for (size_t i = 0; i < w->part_count && !p; i++)
        if (!strcmp(w->part[i].path, path)) p = &w->part[i];
    if (!p && (!(p = new_part(w, path, err)) || !sn_file_map(path, &p->map, err))) return false;
    *out = p->map;
    return true;
}

bool sn_weights_put(sn_weights *w, const sn_weight *tensor, size_t n, sn_error *err) {
    sn_weight *t = grow_tensors(w, n, err);
    char **own = t ? calloc(2 * n + 1, sizeof *own) : NULL;
    w->renamed = own;
    bool ok = own != NULL;
    for (size_t i = 0; ok && i < n; i++) {
        sn_weights_file file;
        t[i] = tensor[i];
        t[i].name = own[w->n_renamed++] = strdup(tensor[i].name);
        ok = t[i].name != NULL;
        if (!ok || !t[i].bytes || sn_weights_file_of(w, t[i].data, t[i].bytes, &file)) continue;
        char *copy = own[w->n_renamed++] = malloc(t[i].bytes);
        ok = copy != NULL;
        if (ok) t[i].data = memcpy(copy, tensor[i].data, t[i].bytes);
    }
    w->count = ok ? n : 0;
    return ok ? build_names(w, err) : sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", w->path);
}

/* Is it an array of bytes "NAME_blocks" with scales, or with the shape of blocks? The tensor of its
 * scales, with a wrong shape or type too. */
static bool find_scales(const sn_weights *w, const sn_weight *t, const sn_weight **scales) {
    static const char blocks[] = "_blocks";
    size_t n = strlen(t->name), stem = n - (sizeof blocks - 1);
    char name[256];
    if (!sn_ends_with(t->name, blocks) || t->dtype != SN_U8 || n >= sizeof name) return false;
    snprintf(name, sizeof name, "%.*s_scales", (int)stem, t->name);
    *scales = sn_weights_find(w, name);
    return *scales || (t->rank > 1 && t->shape[t->rank - 1] == sn_mxfp4_apart.bytes);
}

static bool join_scales(const sn_weights *w, sn_weight *t, const sn_weight *scales, sn_error *err) {
    const sn_st_where at = {w->path, t->name, err};
    const int last = t->rank - 1;
    if (last < 1 || t->shape[last] != sn_mxfp4_apart.bytes)
        return sn_st_fail(&at, "blocks of MXFP4 are [.., blocks, 16] bytes");
    if (!scales) return sn_st_fail(&at, "its scales, \"NAME_scales\", are missing");
    bool fits = scales->dtype == SN_U8 && scales->rank == last;
    for (int i = 0; fits && i < last; i++) fits = scales->shape[i] == t->shape[i];
    if (!fits) return sn_st_fail(&at, "its scales, \"NAME_scales\", are not a byte for each block");
    t->dtype = SN_F32, t->block = &sn_mxfp4_apart, t->scales = scales->data;
    t->shape[last - 1] *= sn_mxfp4_apart.elements; /* at most 2^53 in a header */
    t->rank = last;
    return true;
}

/* Removes the tensors that are marked. */
static bool remove_tensors(sn_weights *w, const bool *marked, sn_error *err) {
    size_t kept = 0;
    for (size_t i = 0; i < w->count; i++)
        if (!marked[i]) w->tensor[kept++] = w->tensor[i];
    if (kept == w->count) return true;
    w->count = kept;
    free(w->names.slot);
    w->names = (sn_st_table){0};
    return build_names(w, err);
}

/* Makes a tensor in blocks [.., K] (sn_mxfp4_apart) of each "NAME_blocks", u8 [.., K / 32, 16], and its
 * "NAME_scales", u8 [.., K / 32], and removes the latter. */
static bool join_blocks(sn_weights *w, sn_error *err) {
    const sn_weight *scales;
    bool *joined = calloc(w->count + 1, sizeof *joined), ok = joined != NULL;
    if (!ok) return sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", w->path);
    for (size_t i = 0; ok && i < w->count; i++) {
        if (!find_scales(w, &w->tensor[i], &scales)) continue;
        ok = join_scales(w, &w->tensor[i], scales, err);
        if (ok) joined[scales - w->tensor] = true;
    }
    ok = ok && remove_tensors(w, joined, err);
    free(joined);
    return ok;
}

sn_weights *sn_weights_open(const char *path, sn_error *err) {
    static const char ending[] = ".index.json";
    if (!sn_given(path, "sn_weights_open", "the path", err)) return NULL;
    sn_weights *w = sn_weights_begin(path, err);
    if (!w) return NULL;
    if ((sn_ends_with(path, ending)
             ? add_index(w, err)
             : add_part(w, path, err) && add_split(w, err) && build_names(w, err)) &&
        join_blocks(w, err))
        return w;
    sn_weights_close(w);
    return NULL;
}

void sn_weights_close(sn_weights *w) {
    if (!w) return;
    for (size_t i = 0; i < w->part_count; i++) {
        if (!w->part[i].gguf) sn_file_unmap(&w->part[i].map);
        sn_gguf_close(w->part[i].gguf);
        cJSON_Delete(w->part[i].header);
        free(w->part[i].path);
    }
    for (size_t i = 0; i < w->n_renamed; i++) free(w->renamed[i]);
    free(w->renamed);
    free(w->part);
    free(w->tensor);
    free(w->names.slot);
    free(w->path);
    free(w);
}

const sn_gguf *sn_weights_gguf(const sn_weights *w) {
    return w->part_count ? w->part[0].gguf : NULL;
}

/* Renames the tensors from `first` on. */
static bool rename_from(sn_weights *w, size_t first, sn_rename *rename, const void *ctx,
                        sn_error *err) {
    char name[256];
    char **all = realloc(w->renamed, (w->n_renamed + w->count - first + 1) * sizeof *all);
    if (!all) return sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", w->path);
    w->renamed = all;
    for (size_t i = first; i < w->count; i++) {
        if (!rename(ctx, w->tensor[i].name, name, sizeof name)) continue;
        char *copy = all[w->n_renamed] = strdup(name);
        if (!copy) return sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", w->path);
        w->tensor[i].name = copy;
        w->n_renamed++;
    }
    free(w->names.slot);
    w->names = (sn_st_table){0};
    return build_names(w, err);
}

bool sn_weights_rename(sn_weights *w, sn_rename *rename, const void *ctx, sn_error *err) {
    return rename_from(w, 0, rename, ctx, err);
}

static const char *number_place(const sn_weight *t) {
    return t->rank > 1 ? strstr(t->name, "%d") : NULL;
}

/* A shape without elements passes every check of sizes, whatever its number of slices. */
static bool check_slices(const sn_weights *w, const sn_weight *t, sn_error *err) {
    enum { MAX_SLICES = 4096, LONGEST_NAME = 255 };
    char text[160];
    if (t->bytes && t->shape[0] <= MAX_SLICES && strlen(t->name) <= LONGEST_NAME) return true;
    snprintf(text, sizeof text,
             "cannot be cut into %" PRId64 " experts of %zu bytes: allowed are 1 to %d experts "
             "that are not empty, and names of at most %d bytes",
             t->shape[0], t->shape[0] ? t->bytes / (size_t)t->shape[0] : 0, MAX_SLICES,
             LONGEST_NAME);
    return sn_st_fail(&(sn_st_where){w->path, t->name, err}, text);
}

/* Slice i of t; its name belongs to w. */
static bool take_slice(sn_weights *w, const sn_weight *t, int64_t i, sn_weight *out) {
    const char *place = number_place(t);
    size_t size = strlen(t->name) + 24;
    char *name = malloc(size);
    if (!name) return false;
    snprintf(name, size, "%.*s%lld%s", (int)(place - t->name), t->name, (long long)i, place + 2);
    *out = *t;
    out->name = w->renamed[w->n_renamed++] = name;
    out->rank--;
    for (int a = 0; a < out->rank; a++) out->shape[a] = t->shape[a + 1];
    out->bytes = t->bytes / (size_t)t->shape[0];
    out->data = (const char *)t->data + out->bytes * (size_t)i;
    return true;
}

bool sn_weights_split(sn_weights *w, sn_error *err) {
    size_t more = 0, n = 0;
    for (size_t i = 0; i < w->count; i++) {
        const sn_weight *t = &w->tensor[i];
        if (!number_place(t)) continue;
        if (!check_slices(w, t, err)) return false;
        more += (size_t)t->shape[0];
    }
    if (!more) return true;
    sn_weight *all = calloc(w->count + more, sizeof *all);
    char **names = reallocarray(w->renamed, w->n_renamed + more, sizeof *names);
    if (names) w->renamed = names;
    bool ok = all && names;
    for (size_t i = 0; ok && i < w->count; i++) {
        const sn_weight *t = &w->tensor[i];
        if (!number_place(t)) all[n++] = *t;
        for (int64_t k = 0; ok && number_place(t) && k < t->shape[0]; k++)
            ok = take_slice(w, t, k, &all[n++]);
    }
    if (!ok) {
        free(all);
        return sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", w->path);
    }
    free(w->tensor);
    w->tensor = all;
    w->count = n;
    free(w->names.slot);
    w->names = (sn_st_table){0};
    return build_names(w, err);
}

void sn_weights_as_row(sn_weights *w, const char *ending) {
    for (size_t i = 0; i < w->count; i++) {
        sn_weight *t = &w->tensor[i];
        if (t->rank != 1 || !sn_ends_with(t->name, ending)) continue;
        t->shape[1] = t->shape[0];
        t->shape[0] = 1;
        t->rank = 2;
    }
}

void sn_weights_as_vector(sn_weights *w, const char *ending, int64_t columns) {
    for (size_t i = 0; i < w->count; i++) {
        sn_weight *t = &w->tensor[i];
        if (t->rank != 2 || t->shape[1] > columns || !sn_ends_with(t->name, ending)) continue;
        t->shape[0] = sn_weight_elements(t);
        t->rank = 1;
    }
}

void sn_weights_as_channels(sn_weights *w, const char *ending) {
    for (size_t i = 0; i < w->count; i++) {
        sn_weight *t = &w->tensor[i];
        if (t->rank < 2 || !sn_ends_with(t->name, ending) || !t->bytes) continue;
        int64_t width = t->shape[t->rank - 1];
        t->shape[0] = sn_weight_elements(t) / width;
        t->shape[1] = 1, t->shape[2] = width;
        t->rank = 3;
    }
}

static bool put_prefix(const void *prefix, const char *name, char *out, size_t size) {
    return (size_t)snprintf(out, size, "%s%s", (const char *)prefix, name) < size;
}

bool sn_weights_add(sn_weights *w, const char *path, const char *prefix, sn_error *err) {
    size_t first = w->count;
    return add_part(w, path, err) && rename_from(w, first, put_prefix, prefix, err);
}

const char *sn_weights_path(const sn_weights *w) {
    return w->path;
}

uint64_t sn_weights_identity(const sn_weights *w) {
    return w ? w->identity : 0;
}

size_t sn_weights_count(const sn_weights *w) {
    return w ? w->count : 0;
}

const sn_weight *sn_weights_at(const sn_weights *w, size_t i) {
    return w && i < w->count ? &w->tensor[i] : NULL;
}

const sn_weight *sn_weights_find(const sn_weights *w, const char *name) {
    if (!w || !name) return NULL;
    size_t at = XXH3_64bits(name, strlen(name)) & w->names.mask;
    for (; w->names.slot[at]; at = (at + 1) & w->names.mask) {
        const sn_weight *t = &w->tensor[w->names.slot[at] - 1];
        if (!strcmp(t->name, name)) return t;
    }
    return NULL;
}

/* "[2, 3]"; -1 is printed as "any". */
static void print_shape(char *buf, size_t size, int rank, const int64_t *shape) {
    size_t n = (size_t)snprintf(buf, size, "[");
    for (int i = 0; i < rank && n < size; i++)
        n += shape[i] < 0
                 ? (size_t)snprintf(buf + n, size - n, "%sany", i ? ", " : "")
                 : (size_t)snprintf(buf + n, size - n, "%s%" PRId64, i ? ", " : "", shape[i]);
    if (n < size) snprintf(buf + n, size - n, "]");
}

const sn_weight *sn_weights_need(const sn_weights *w, const char *name, int rank,
                                 const int64_t *shape, sn_problems *p) {
    const sn_weight *t = sn_weights_find(w, name);
    if (!t) {
        sn_problem(p, "tensor \"%s\" is missing", name);
        return NULL;
    }
    bool fits = t->rank == rank;
    for (int i = 0; fits && i < rank; i++) fits = shape[i] < 0 || shape[i] == t->shape[i];
    if (fits) return t;
    char want[SN_WEIGHT_RANK * 22], have[SN_WEIGHT_RANK * 22];
    print_shape(want, sizeof want, rank, shape);
    print_shape(have, sizeof have, t->rank, t->shape);
    sn_problem(p, "tensor \"%s\" has shape %s, expected %s", name, have, want);
    return NULL;
}

static const cJSON *find_metadata(const sn_weights *w) {
    return w->part_count ? cJSON_GetObjectItemCaseSensitive(w->part[0].header, SN_ST_METADATA)
                         : NULL;
}

size_t sn_weights_meta_count(const sn_weights *w) {
    return (size_t)cJSON_GetArraySize(find_metadata(w));
}

sn_meta sn_weights_meta_at(const sn_weights *w, size_t i) {
    const cJSON *m = cJSON_GetArrayItem(find_metadata(w), (int)i);
    return (sn_meta){m->string, m->valuestring};
}

const char *sn_weights_meta(const sn_weights *w, const char *key) {
    const cJSON *m = cJSON_GetObjectItemCaseSensitive(find_metadata(w), key);
    return m ? m->valuestring : NULL;
}

void sn_weights_release(const sn_weights *w, const void *data, size_t bytes) {
    for (size_t i = 0; i < w->part_count; i++) sn_file_release(&w->part[i].map, data, bytes);
}

void sn_weights_prefetch(const sn_weights *w, const void *data, size_t bytes) {
    for (size_t i = 0; i < w->part_count; i++) sn_file_prefetch(&w->part[i].map, data, bytes);
}

bool sn_weights_file_of(const sn_weights *w, const void *data, size_t bytes, sn_weights_file *out) {
    for (size_t i = 0; i < w->part_count; i++) {
        const part *p = &w->part[i];
        uintptr_t at = (uintptr_t)data - (uintptr_t)p->map.data; /* huge: before the file */
        if (at >= p->map.size || bytes > p->map.size - at) continue;
        *out = (sn_weights_file){p->path, p->identity, p->map, at};
        return true;
    }
    return false;
}
