/* import.h: turns models of other formats into model folders (runtime/model_dir.h).
 * One row a format in import.c; `sinter import` and the tests go through import_model. */
#ifndef SN_IMPORT_H
#define SN_IMPORT_H

#include "runtime/file.h"
#include "runtime/model_dir.h"

/* What to import. Strings belong to the caller. */
typedef struct import_request {
    const char *input;     /* file of the model */
    const char *output;    /* folder to make or to overwrite */
    const char *tokenizer; /* tokenizer file for formats that have one, or NULL: looked for beside
                              the input */
    const char *config;    /* JSON file whose keys are added to, or replace, the config that the
                              import makes; NULL: import.json beside the input, if it is there */
} import_request;

/* A format. `matches` looks at content only; `run` checks all of it, to the last byte, and writes
 * nothing when something is wrong. */
typedef struct import_format {
    const char *name, *what; /* "llama2c", and a line for the help text */
    bool (*matches)(const sn_mapping *input);
    bool (*run)(const import_request *r, sn_error *err);
} import_format;

extern const import_format import_formats[]; /* ended by a row without name */

/* Imports with the named format, or with the first that matches when `format` is NULL. */
bool import_model(const import_request *r, const char *format, sn_error *err);

/* The formats. Tensor names, shapes and config keys are described at the head of each file. */
bool import_llama2c(const import_request *r, sn_error *err);
bool import_json_tensors(const import_request *r, sn_error *err);
bool import_npz(const import_request *r, sn_error *err);
bool import_ctranslate2(const import_request *r, sn_error *err);

bool llama2c_matches(const sn_mapping *m);
bool json_tensors_matches(const sn_mapping *m);
bool npz_matches(const sn_mapping *m);
bool ctranslate2_matches(const sn_mapping *m);

/* The files that a tokenizer may consist of, ended by NULL. */
extern const char *const import_tokenizer_files[];

/* ---- for the importers ---- */

/* A growing list of tensors that owns their names, and their data if told so. Once something ran
 * out of memory `failed` stays set and adding does nothing; import_save reports it. */
typedef struct import_list {
    sn_weight *tensor;
    size_t count, capacity;
    uint32_t *slot; /* hash table of names: number of a tensor plus 1, or 0 */
    size_t slots;   /* a power of two */
    void **owned;
    size_t owned_count;
    bool failed;
} import_list;

/* Adds a tensor; `data` must live as long as the list, which only points to it. */
void import_add(import_list *l, const char *name, sn_dtype dtype, int rank, const int64_t *shape,
                const void *data);
/* Hands malloc'ed memory to the list; returns it, or NULL after freeing it on failure. */
void *import_own(import_list *l, void *memory);
void import_list_free(import_list *l);
const sn_weight *import_find(const import_list *l, const char *name);

/* Merges r->config into `config`, saves the folder. */
bool import_save(const import_request *r, sn_config *config, const import_list *l, sn_error *err);

/* Copies a file to "output/name" as it is. The folder must exist. */
bool import_copy(const char *from, const char *output, const char *name, sn_error *err);

/* "folder of path"/name, allocated; NULL when out of memory. */
char *import_beside(const char *path, const char *name);

/* Every tensor of a JSON tensor file (see import_json_tensors.c): names, shapes and f32 data. The
 * object "config", if there is one, is returned through *config unless that is NULL (free with
 * sn_config_free; stays NULL if absent). */
bool json_tensors_read(const char *path, import_list *out, sn_config **config, sn_error *err);
#endif
