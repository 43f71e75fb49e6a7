/* import.c: the table of import formats. */
#include "model/import/import.h"
#include "runtime/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const import_format import_formats[] = {
    {"ctranslate2", "CTranslate2 model.bin (binary version 2; f32, int8 or int16)",
     ctranslate2_matches, import_ctranslate2},
    {"npz", "NumPy .npz archive of a vision transformer", npz_matches, import_npz},
    {"json-tensors", "JSON with base64 f32 tensors of a GPT-2 (minGPT names)", json_tensors_matches,
     import_json_tensors},
    {"llama2c", "llama2.c checkpoint .bin (legacy, version 0)", llama2c_matches, import_llama2c},
    {"onnx", "ONNX model; its graph becomes text", onnx_matches, import_onnx},
    {0}};

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
        {".safetensors", "this is a part of a model folder: pass the folder"},
        {"/config.json", "this is a part of a model folder: pass the folder"},
    };
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++)
        if (sn_ends_with(path, hints[i].ending)) return hints[i].hint;
    return NULL;
}

static const import_format *format_of(const sn_mapping *m) {
    const import_format *f = import_formats;
    while (f->name && !f->matches(m)) f++;
    return f;
}

bool import_knows(const char *path) {
    sn_mapping m;
    if (find_hint(path) || !sn_file_map(path, &m, &(sn_error){0})) return false;
    bool known = format_of(&m)->name != NULL;
    sn_file_unmap(&m);
    return known;
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
    struct stat st;
    if (!stat(r->input, &st) && S_ISDIR(st.st_mode)) {
        sn_fail(err, SN_ERR_FILE,
                "%s: a folder, but import reads one file of another format (%s); a folder with "
                "config.json and model.safetensors needs no import",
                r->input, names);
        return NULL;
    }
    if (!sn_file_map(r->input, &m, err)) return NULL;
    bool empty = !m.size;
    const import_format *f = format_of(&m);
    sn_file_unmap(&m);
    if (f->name && !hint) return f;
    if (empty)
        sn_fail(err, SN_ERR_FILE, "%s: the file is empty", r->input);
    else if (hint)
        sn_fail(err, SN_ERR_FILE, "%s: %s", r->input, hint);
    else
        sn_fail(err, SN_ERR_FILE, "%s: unknown format; known: %s", r->input, names);
    return NULL;
}

bool import_model(const import_request *r, const char *format, sn_error *err) {
    const import_format *f = find_format(r, format, err);
    if (!f) return false;
    import_request request = *r;
    char *beside = r->config ? NULL : import_beside(r->input, "import.json");
    if (!r->config && !beside) return sn_fail(err, SN_ERR_MEMORY, "%s: out of memory", r->input);
    if (beside && sn_file_exists(beside)) request.config = beside;
    bool ok = f->run(&request, err);
    free(beside);
    return ok;
}
