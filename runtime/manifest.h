/* manifest.h: what an artefact (a model compiled ahead of time) says of itself: a text in its
 * object, found by its first line in whatever the object was linked into. */
#ifndef SN_MANIFEST_H
#define SN_MANIFEST_H

#include "runtime/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SN_MANIFEST_MARK "SINTER-ARTEFACT 1\n"
enum {
    SN_MANIFEST_TARGETS = 8,
    SN_MANIFEST_ENTRIES = 16,
    SN_MANIFEST_DIMS = 16,
    SN_MANIFEST_TENSORS = 32,
    SN_MANIFEST_EOS = 16,
    SN_MANIFEST_NAME = 128
};

typedef struct sn_manifest_tensor {
    char name[SN_MANIFEST_NAME], shape[SN_MANIFEST_NAME]; /* shape: "[B,T,768]" */
    sn_dtype dtype;
    bool is_output;
} sn_manifest_tensor;

typedef struct sn_manifest_entry {
    char name[SN_MANIFEST_NAME];
    bool has_state;
    struct {
        char name[SN_MANIFEST_NAME];
        int64_t lo, hi;
    } dim[SN_MANIFEST_DIMS]; /* in the order in which the entry takes them */
    int n_dim;
    sn_manifest_tensor tensor[SN_MANIFEST_TENSORS]; /* inputs, then outputs */
    int n_tensor;
} sn_manifest_entry;

typedef struct sn_manifest {
    char name[SN_MANIFEST_NAME], version[32], threads[16];
    int64_t weight_bytes, state_bytes; /* weight_bytes: of the file */
    bool embedded;
    bool no_bos; /* texts begin without BOS */
    uint64_t hash;
    struct {
        char name[SN_MANIFEST_NAME], triple[SN_MANIFEST_NAME];
        char needs[384]; /* CPU features and where it was made: "avx2 fma (haswell)" */
        int64_t code_bytes;
    } target[SN_MANIFEST_TARGETS];
    int n_target;
    sn_manifest_entry entry[SN_MANIFEST_ENTRIES];
    int n_entry;
    int32_t bos, eos[SN_MANIFEST_EOS]; /* tokens; bos -1: none */
    int n_eos;
    int64_t source_vocab; /* of an encoder-decoder; 0: none */
    int n_label;          /* classes that have a name: sn_manifest_label */
} sn_manifest;

/* Reads a manifest of at most `size` bytes, its mark included. False: err says which line. */
bool sn_manifest_parse(const char *text, size_t size, sn_manifest *out, sn_error *err);

/* The k-th manifest in some bytes; NULL: there are not so many. */
const char *sn_manifest_find(const void *data, size_t size, int k);

/* The name of class i in a manifest, *length bytes of its text; NULL: it has none. */
const char *sn_manifest_label(const char *manifest, int64_t i, int *length);

const sn_manifest_entry *sn_manifest_get(const sn_manifest *m, const char *entry); /* NULL: none */

#ifdef __cplusplus
}
#endif
#endif
