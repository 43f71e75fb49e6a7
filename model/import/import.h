/* import.h: converts models of other formats to model folders (runtime/model_dir.h). One row per
 * format in import.c; `sinter import` and the tests call import_model. */
#ifndef SN_IMPORT_H
#define SN_IMPORT_H

#include "frontend/sinter.h"
#include "runtime/file.h"
#include "runtime/model_dir.h"

/* What to import. Strings belong to the caller. */
typedef struct import_request {
    const char *input;  /* file of the model */
    const char *output; /* folder to create or overwrite */
    /* tokenizer file for formats that have one; NULL: looked for next to the input */
    const char *tokenizer;
    /* JSON file whose keys are added to, or replace, those of the generated config; NULL:
     * import.json next to the input, if it exists */
    const char *config;
    const sn_weights_progress *progress; /* of writing the weights; NULL: nobody is told */
} import_request;

/* A format. `matches` checks the file's contents only; `run` validates the whole file and writes
 * nothing if there is an error. */
typedef struct import_format {
    const char *name, *what; /* such as "llama2c", and a line for the help text */
    bool (*matches)(const sn_mapping *input);
    bool (*run)(const import_request *r, sn_error *err);
} import_format;

extern const import_format import_formats[]; /* terminated by a row without a name */

/* Imports with the named format; format NULL: the first one that matches. */
bool import_model(const import_request *r, const char *format, sn_error *err);

/* Whether a format matches the contents of the file. */
bool import_knows(const char *path);

/* The formats. Tensor names, shapes and config keys are described at the head of each file. */
bool import_llama2c(const import_request *r, sn_error *err);
bool import_json_tensors(const import_request *r, sn_error *err);
bool import_npz(const import_request *r, sn_error *err);
bool import_ctranslate2(const import_request *r, sn_error *err);
bool import_onnx(const import_request *r, sn_error *err);

bool llama2c_matches(const sn_mapping *m);
bool json_tensors_matches(const sn_mapping *m);
bool npz_matches(const sn_mapping *m);
bool ctranslate2_matches(const sn_mapping *m);
bool onnx_matches(const sn_mapping *m);

/* The i-th file name of tokenizers and of what belongs to them; NULL: no more. */
const char *import_tokenizer_file(size_t i);

/* ---- for the importers ---- */

/* A growing list of tensors. Owns their names, and the data that it was given. After an allocation
 * failure `failed` is set and adding does nothing; import_save reports it. */
typedef struct import_list {
    sn_weight *tensor;
    size_t count, capacity;
    uint32_t *slot; /* hash table of names: index of a tensor plus 1, or 0 */
    size_t slots;   /* a power of two */
    void **owned;
    size_t owned_count;
    bool failed;
} import_list;

/* Adds a tensor; `data` is borrowed and must outlive the list. */
void import_add(import_list *l, const char *name, sn_dtype dtype, int rank, const int64_t *shape,
                const void *data);
/* Gives malloc'ed memory to the list. Returns it; on failure frees it and returns NULL. */
void *import_own(import_list *l, void *memory);
void import_list_free(import_list *l);
const sn_weight *import_find(const import_list *l, const char *name);

/* Merges r->config into `config`, saves the folder. */
bool import_save(const import_request *r, sn_config *config, const import_list *l, sn_error *err);

/* Writes the module as text to SN_MODEL_GRAPH in the folder, which is created if missing. */
bool import_save_graph(const char *folder, sn_module *m, sn_error *err);

/* Copies a file to "output/name". The folder must exist. */
bool import_copy(const char *from, const char *output, const char *name, sn_error *err);

/* The file `name` in the folder of `path`, allocated; NULL if out of memory. */
char *import_beside(const char *path, const char *name);

/* Adds every tensor of a JSON tensor file (see import_json_tensors.c): names, shapes and f32 data.
 * Unless config is NULL, *config receives the object "config" if there is one (free with
 * sn_config_free; unchanged if absent). */
bool json_tensors_read(const char *path, import_list *out, sn_config **config, sn_error *err);
#endif
