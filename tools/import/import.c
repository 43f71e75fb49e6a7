/* import.c: the table of import formats and helpers of the importers. */
#define XXH_INLINE_ALL
#include "tools/import/import.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

const import_format import_formats[] = {
    {"ctranslate2", "CTranslate2 model.bin (binary version 2; f32, int8 or int16)",
     ctranslate2_matches, import_ctranslate2},
    {"npz", "NumPy .npz archive of a vision transformer", npz_matches, import_npz},
    {"json-tensors", "JSON with base64 f32 tensors of a GPT-2 (minGPT names)", json_tensors_matches,
     import_json_tensors},
    {"llama2c", "llama2.c checkpoint .bin (legacy, version 0)", llama2c_matches, import_llama2c},
    {0}};

const char *const import_tokenizer_files[] = {"tokenizer.json",
                                              "vocabulary.json",
                                              "vocab.json",
                                              "merges.txt",
                                              "encoder.json",
                                              "vocab.bpe",
                                              "tokenizer.bin",
                                              "vocab.txt",
                                              "tokenizer_config.json",
                                              "source_vocabulary.json",
                                              "target_vocabulary.json",
                                              NULL};

/* The names of all formats, "a, b, c". */
static void list_formats(char *buf, size_t size) {
    size_t n = 0;
    *buf = 0;
    for (const import_format *f = import_formats; f->name && n < size; f++)
        n += (size_t)snprintf(buf + n, size - n, "%s%s", n ? ", " : "", f->name);
}

/* Advice for formats that cannot be imported, by file extension; NULL: none. */
static const char *find_hint(const char *path) {
    static const struct {
        const char *ending, *hint;
    } hints[] = {
        {".pth",
         "PyTorch pickles are not supported; save the model as safetensors (save_pretrained)"},
        {".pt",
         "PyTorch pickles are not supported; save the model as safetensors (save_pretrained)"},
        {"pytorch_model.bin",
         "PyTorch pickles are not supported; save the model as safetensors (save_pretrained)"},
        {".gguf", "a GGUF file begins with \"GGUF\" and is used as it is, without import"},
        {".onnx", "ONNX files are not supported; use the model's safetensors"},
        {".safetensors", "this is a part of a model folder: pass the folder"},
        {"/config.json", "this is a part of a model folder: pass the folder"},
    };
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++) {
        size_t n = strlen(path), k = strlen(hints[i].ending);
        if (n >= k && !strcmp(path + n - k, hints[i].ending)) return hints[i].hint;
    }
    return NULL;
}

static const import_format *find_format(const import_request *r, const char *name, sn_error *err) {
    char names[160];
    list_formats(names, sizeof names);
    if (name) {
        for (const import_format *f = import_formats; f->name; f++)
            if (!strcmp(f->name, name)) return f;
        sn_fail(err, SN_ERR_USAGE, "unknown import format \"%s\"; known: %s", name, names);
        return NULL;
    }
    sn_mapping m;
    const char *hint = find_hint(r->input);
    if (!sn_file_map(r->input, &m, err)) return NULL;
    const import_format *f = import_formats;
    while (f->name && !f->matches(&m)) f++;
    sn_file_unmap(&m);
    if (f->name && !hint) return f;
    if (hint)
        sn_fail(err, SN_ERR_FILE, "%s: %s", r->input, hint);
    else
        sn_fail(err, SN_ERR_FILE, "%s: unknown format; known: %s", r->input, names);
    return NULL;
}

bool import_model(const import_request *r, const char *format, sn_error *err) {
    const import_format *f = find_format(r, format, err);
    if (!f) return false;
    import_request own = *r;
    char *beside = r->config ? NULL : import_beside(r->input, "import.json");
    if (!r->config && !beside) return sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", r->input);
    if (beside && sn_file_exists(beside)) own.config = beside;
    bool ok = f->run(&own, err);
    free(beside);
    return ok;
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
    return sn_model_dir_save(r->output, config, l->tensor, l->count, err);
}

char *import_beside(const char *path, const char *name) {
    const char *slash = strrchr(path, '/');
    char *dir = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    char *p = dir ? sn_path_join(dir, name) : NULL;
    free(dir);
    return p;
}

bool import_copy(const char *from, const char *output, const char *name, sn_error *err) {
    sn_mapping m;
    if (!sn_file_map(from, &m, err)) return false;
    char *to = sn_path_join(output, name);
    bool ok = to ? sn_file_save(to, m.data, m.size, err)
                 : sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", from);
    free(to);
    sn_file_unmap(&m);
    return ok;
}
