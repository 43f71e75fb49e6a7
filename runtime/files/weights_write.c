/* weights_write.c: writes safetensors files, with the data of large alignment first. */
#include "runtime/weights.h"
#include "runtime/file.h"
#include "runtime/files/json.h"
#include "runtime/files/safetensors.h"
#include "runtime/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 64, or for other sizes the largest power of two that divides them. */
static size_t alignment_of(size_t bytes) {
    size_t low = bytes & (~bytes + 1);
    return low == 0 || low > SN_ST_ALIGN ? SN_ST_ALIGN : low;
}

static bool check_tensors(const char *path, const sn_weight *t, size_t count, bool supplied,
                          sn_error *err) {
    sn_st_table names = {0};
    const char *twice = NULL;
    if (count > SN_ST_HEADER_LIMIT / 32)
        return sn_fail(err, SN_ERR_RANGE, "%s: too many tensors (%zu)", path, count);
    for (size_t i = 0; i < count; i++) {
        const sn_st_where at = {path, t[i].name, err};
        uint64_t bytes;
        if (!t[i].name) return sn_fail(err, SN_ERR_USAGE, "%s: tensor %zu has no name", path, i);
        if ((int)t[i].dtype < 0 || t[i].dtype >= SN_DTYPE_COUNT)
            return sn_st_fail(&at, "unknown element type");
        if (!t[i].data && t[i].bytes && !supplied) return sn_st_fail(&at, "its data is NULL");
        if (!strcmp(t[i].name, SN_ST_METADATA)) return sn_st_fail(&at, "this name is reserved");
        if (t[i].rank < 0 || t[i].rank > SN_WEIGHT_RANK)
            return sn_st_fail(&at, "0 to 8 dimensions");
        if (!sn_st_bytes(&t[i], &bytes) || bytes != t[i].bytes)
            return sn_st_fail(&at, "its shape does not match its size in bytes");
    }
    bool ok = sn_st_fill(&names, t, count, &twice);
    free(names.slot);
    const sn_st_where at = {path, twice, err};
    if (twice) return sn_st_fail(&at, "occurs twice");
    return ok || sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", path);
}

static bool add_tensor(cJSON *header, const sn_weight *t, uint64_t begin) {
    char text[128 + 24 * SN_WEIGHT_RANK];
    int n = snprintf(text, sizeof text, "{\"dtype\":\"%s\",\"shape\":[", sn_st_types[t->dtype]);
    for (int i = 0; i < t->rank; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%" PRId64, i ? "," : "", t->shape[i]);
    snprintf(text + n, sizeof text - (size_t)n, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
             begin, begin + t->bytes);
    return cJSON_AddRawToObject(header, t->name, text) != NULL;
}

/* The header as text, or NULL if out of memory. `order`: the order of the tensors in the file. */
static char *print_header(const sn_weight *t, const uint32_t *order, size_t count,
                          const sn_meta *meta, size_t meta_count) {
    cJSON *root = cJSON_CreateObject();
    cJSON *m = root ? cJSON_AddObjectToObject(root, SN_ST_METADATA) : NULL;
    bool ok = m != NULL, format = false;
    for (size_t i = 0; ok && i < meta_count; i++) {
        format = format || !strcmp(meta[i].key, "format");
        ok = cJSON_AddStringToObject(m, meta[i].key, meta[i].value) != NULL;
    }
    if (ok && !format) ok = cJSON_AddStringToObject(m, "format", "pt") != NULL;
    uint64_t at = 0;
    for (size_t i = 0; ok && i < count; at += t[order[i++]].bytes)
        ok = add_tensor(root, &t[order[i]], at);
    char *text = ok ? cJSON_PrintUnformatted(root) : NULL;
    cJSON_Delete(root);
    return text;
}

typedef struct written {
    const sn_weights_progress *progress; /* NULL: nobody is told */
    double done, total;
} written;

static void tell(const written *w) {
    if (w->progress && w->progress->advance)
        w->progress->advance(w->progress->ctx, w->done, w->total);
}

static bool write_tensor(sn_file *f, const sn_weight *t, size_t i, written *w, sn_error *err) {
    enum { PIECE = 16 << 20 };
    const char *data = t->data;
    if (!data && t->bytes) data = w->progress->data(w->progress->ctx, i, err);
    if (!data && t->bytes) return false;
    for (size_t at = 0; at < t->bytes;) {
        size_t n = t->bytes - at < PIECE ? t->bytes - at : PIECE;
        tell(w);
        if (!sn_file_write(f, data + at, n, err)) return false;
        at += n;
        w->done += (double)n;
    }
    return true;
}

static bool write_all(sn_file *f, const char *header, const sn_weight *t, const uint32_t *order,
                      size_t count, const sn_weights_progress *progress, sn_error *err) {
    static const char spaces[SN_ST_ALIGN + 1] =
        "                                                                ";
    size_t n = strlen(header), pad = SN_ROUND_UP(8 + n, SN_ST_ALIGN) - 8 - n;
    uint64_t length = n + pad;
    bool ok = sn_file_write(f, &length, 8, err) && sn_file_write(f, header, n, err) &&
              sn_file_write(f, spaces, pad, err);
    written w = {.progress = progress};
    for (size_t i = 0; i < count; i++) w.total += (double)t[i].bytes;
    for (size_t i = 0; ok && i < count; i++) ok = write_tensor(f, &t[order[i]], order[i], &w, err);
    if (ok) tell(&w);
    return ok;
}

static bool save(const char *path, const sn_weight *t, size_t count, const sn_meta *meta,
                 size_t meta_count, const sn_weights_progress *progress, const char *function,
                 sn_error *err) {
    if (!sn_given(path, function, "the path", err) ||
        (count && !sn_given(t, function, "the list of tensors", err)) ||
        (meta_count && !sn_given(meta, function, "the list of metadata", err)) ||
        !check_tensors(path, t, count, progress && progress->data, err))
        return false;
    uint32_t *order = malloc((count + 1) * sizeof *order);
    size_t n = 0;
    if (order)
        for (size_t a = SN_ST_ALIGN; a; a /= 2)
            for (size_t i = 0; i < count; i++)
                if (alignment_of(t[i].bytes) == a) order[n++] = (uint32_t)i;
    char *header = order ? print_header(t, order, count, meta, meta_count) : NULL;
    bool ok = false;
    if (!header)
        sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", path);
    else if (strlen(header) + SN_ST_ALIGN > SN_ST_HEADER_LIMIT)
        sn_fail(err, SN_ERR_RANGE, "%s: a header of %zu bytes is too long", path, strlen(header));
    else {
        sn_file *f = sn_file_create(path, err);
        if (f && write_all(f, header, t, order, count, progress, err))
            ok = sn_file_commit(f, err);
        else
            sn_file_discard(f);
    }
    cJSON_free(header);
    free(order);
    return ok;
}

bool sn_weights_save(const char *path, const sn_weight *t, size_t count, const sn_meta *meta,
                     size_t meta_count, sn_error *err) {
    return save(path, t, count, meta, meta_count, NULL, "sn_weights_save", err);
}

bool sn_weights_save_with(const char *path, const sn_weight *t, size_t count,
                          const sn_weights_progress *progress, sn_error *err) {
    return save(path, t, count, NULL, 0, progress, "sn_weights_save_with", err);
}

bool sn_weights_save_state(const char *path, const sn_weight_place *places, size_t count,
                           const void *state, sn_error *err) {
    if (!sn_given(path, "sn_weights_save_state", "the path", err) ||
        (count && !sn_given(places, "sn_weights_save_state", "the list of tensors", err)) ||
        !sn_given(state, "sn_weights_save_state", "the state", err))
        return false;
    sn_weight *w = calloc(count + 1, sizeof *w);
    if (!w) return sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", path);
    for (size_t i = 0; i < count; i++) {
        const sn_weight_place *p = &places[i];
        w[i] = (sn_weight){.name = p->name,
                           .dtype = (sn_dtype)p->dtype,
                           .rank = p->rank,
                           .data = (const char *)state + p->offset,
                           .bytes = (size_t)p->bytes};
        memcpy(w[i].shape, p->shape, sizeof p->shape);
    }
    bool ok = sn_weights_save(path, w, count, NULL, 0, err);
    free(w);
    return ok;
}
