/* family_folder.h: model folders with weights that follow from their names, as start() of
 * tests/data/families/make_refs.py makes them: a reference file (JSON) has the config, and names
 * and shapes of the tensors. Include after cmocka.h. */
#ifndef SN_TEST_FAMILY_FOLDER_H
#define SN_TEST_FAMILY_FOLDER_H

#include "runtime/weights.h"

#include <cjson/cJSON.h>

enum { FAMILY_TENSORS = 160 };

typedef struct family_folder {
    cJSON *json; /* the whole reference file */
    sn_weight tensor[FAMILY_TENSORS];
    float *value[FAMILY_TENSORS]; /* the same in f32 */
    size_t n_tensor;
} family_folder;

/* Element i of the tensor: start() of make_refs.py, small multiples of 1/64 (vectors: 1/128), exact
 * in all types. */
float family_value(const char *name, int rank, size_t i);

/* Reads tests/data/FOLDER/NAME.json; t: SN_F32, SN_BF16 or SN_F16, which hold the values exactly. */
void family_read(const char *folder, const char *name, sn_dtype t, family_folder *out);
void family_free(family_folder *f);

/* Replaces a key of the config by a value given as JSON. */
void family_set_key(family_folder *f, const char *key, const char *json);

/* Writes config.json and the weights into `dir`: one file or two shards with an index. */
void family_write(const char *dir, const family_folder *f, bool shards);

/* Writes a text file into `dir`. */
void family_write_file(const char *dir, const char *name, const char *text);

/* Compares n numbers with those of the reference's list `output` from `at` on: off by at most 1e-4
 * of the largest. `where` is for the message. */
void family_compare(const family_folder *f, const char *output, int64_t at, int64_t n,
                    const float *got, const char *where);

#endif
