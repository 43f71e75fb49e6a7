/* import_list.c: what importers share: lists of tensors, and the files of a model folder. */
#define XXH_INLINE_ALL
#include "model/import/import.h"
#include "frontend/models.h"
#include "ir/ir.h"
#include "model/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

const char *import_tokenizer_file(size_t i) {
    static const char *const beside[] = {"tokenizer_config.json", "source_vocabulary.json",
                                         "target_vocabulary.json", NULL};
    size_t n = 0;
    while (sn_tokenizer_file(n)) n++;
    return i < n                                    ? sn_tokenizer_file(i)
           : i - n < sizeof beside / sizeof *beside ? beside[i - n]
                                                    : NULL;
}

void *import_own(import_list *l, void *memory) {
    void **more = memory ? realloc(l->owned, (l->owned_count + 1) * sizeof *more) : NULL;
    if (!more) {
        free(memory);
        l->failed = true;
        return NULL;
    }
    l->owned = more;
    return more[l->owned_count++] = memory;
}

/* The slot of a name in the hash table, or the free slot where it would be inserted. */
static uint32_t *find_slot(const import_list *l, const char *name) {
    size_t at = XXH3_64bits(name, strlen(name)) & (l->slots - 1);
    while (l->slot[at] && strcmp(l->tensor[l->slot[at] - 1].name, name))
        at = (at + 1) & (l->slots - 1);
    return &l->slot[at];
}

/* Doubles the capacity and rebuilds the table of names, half full at most. */
static bool grow_list(import_list *l) {
    size_t capacity = l->capacity ? l->capacity * 2 : 64;
    sn_weight *more = realloc(l->tensor, capacity * sizeof *more);
    if (more) l->tensor = more;
    uint32_t *slot = calloc(capacity * 2, sizeof *slot);
    if (!more || !slot) {
        free(slot);
        return false;
    }
    free(l->slot);
    l->slot = slot;
    l->slots = capacity * 2;
    l->capacity = capacity;
    for (size_t i = 0; i < l->count; i++) {
        uint32_t *place = find_slot(l, l->tensor[i].name);
        if (!*place) *place = (uint32_t)(i + 1); /* for duplicate names, find returns the first */
    }
    return true;
}

void import_add(import_list *l, const char *name, sn_dtype dtype, int rank, const int64_t *shape,
                const void *data) {
    if (l->count == l->capacity && !grow_list(l)) {
        l->failed = true;
        return;
    }
    sn_weight t = {.name = import_own(l, strdup(name)), .dtype = dtype, .rank = rank, .data = data};
    if (!t.name) return;
    for (int i = 0; i < rank; i++) t.shape[i] = shape[i];
    t.bytes = (size_t)sn_weight_elements(&t) * sn_dtype_size(dtype);
    l->tensor[l->count++] = t;
    uint32_t *place = find_slot(l, t.name);
    if (!*place) *place = (uint32_t)l->count;
}

void import_list_free(import_list *l) {
    for (size_t i = 0; i < l->owned_count; i++) free(l->owned[i]);
    free(l->owned);
    free(l->tensor);
    free(l->slot);
    *l = (import_list){0};
}

const sn_weight *import_find(const import_list *l, const char *name) {
    uint32_t n = l->count ? *find_slot(l, name) : 0;
    return n ? &l->tensor[n - 1] : NULL;
}

bool import_save(const import_request *r, sn_config *config, const import_list *l, sn_error *err) {
    if (!config || l->failed) return sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", r->input);
    if (r->config) {
        sn_config *more = sn_config_open(r->config, err);
        if (!more) return false;
        sn_config_merge(config, more);
        sn_config_free(more);
    }
    return sn_model_dir_save_with(r->output, config, l->tensor, l->count, r->progress, err);
}

bool import_save_graph(const char *folder, sn_module *m, sn_error *err) {
    if (!sn_folder_make(folder, err)) return false;
    char *path = sn_path_join(folder, SN_MODEL_GRAPH), *text = NULL;
    size_t size = 0;
    FILE *f = path ? open_memstream(&text, &size) : NULL;
    bool ok = f && sn_print_module_declared(f, m);
    if (!f || fclose(f) || !ok) ok = sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", folder);
    ok = ok && sn_file_save(path, text, size, err);
    free(text);
    free(path);
    return ok;
}

char *import_beside(const char *path, const char *name) {
    const char *slash = strrchr(path, '/');
    char *dir = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    char *p = dir ? sn_path_join(dir, name) : NULL;
    free(dir);
    return p;
}

bool import_copy(const char *from, const char *output, const char *name, sn_error *err) {
    char *to = sn_path_join(output, name), *folder = import_beside(from, "");
    bool ok = to && folder ? sn_file_copy(folder, from, to, err)
                           : sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", from);
    free(to);
    free(folder);
    return ok;
}
