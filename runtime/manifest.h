/* manifest.h: the manifest of an artefact (a model compiled ahead of time): a text in its object
 * that describes it. Its first line identifies it in any file that the object was linked into. */
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
    } dim[SN_MANIFEST_DIMS]; /* in the order of the entry's parameters */
    int n_dim;
    sn_manifest_tensor tensor[SN_MANIFEST_TENSORS]; /* inputs, then outputs */
    int n_tensor;
} sn_manifest_entry;

typedef struct sn_manifest {
    char name[SN_MANIFEST_NAME], version[32], threads[16];
    int64_t weight_bytes, state_bytes; /* weight_bytes: size of the weights file */
    bool embedded;
    bool no_bos; /* texts do not start with BOS */
    uint64_t hash;
    struct {
        char name[SN_MANIFEST_NAME], triple[SN_MANIFEST_NAME];
        /* required CPU features and the CPU it was compiled for: "avx2 fma (haswell)" */
        char needs[384];
        int64_t code_bytes; /* 0: not known, since code was generated after the manifest */
    } target[SN_MANIFEST_TARGETS];
    int n_target;
    sn_manifest_entry entry[SN_MANIFEST_ENTRIES];
    int n_entry;
    int32_t bos, eos[SN_MANIFEST_EOS]; /* token ids; bos -1: none */
    int n_eos;
    int64_t source_vocab; /* encoder-decoders: vocabulary size of the source; 0: none */
    int n_label;          /* number of named classes: sn_manifest_label */
} sn_manifest;

/* Parses a manifest of at most `size` bytes, including its first line. False: err names the
 * line. */
bool sn_manifest_parse(const char *text, size_t size, sn_manifest *out, sn_error *err);

/* The k-th manifest in a block of bytes; NULL: there are fewer. */
const char *sn_manifest_find(const void *data, size_t size, int k);

/* The name of class i in a manifest; *length is its length in bytes. NULL: no name. */
const char *sn_manifest_label(const char *manifest, int64_t i, int *length);

/* What an argument, result or length of an entry means; *length is the length in bytes. NULL: nothing is said. */
const char *sn_manifest_about(const char *manifest, const char *entry, const char *name,
                              int *length);

const sn_manifest_entry *sn_manifest_get(const sn_manifest *m, const char *entry); /* NULL: none */

#ifdef __cplusplus
}
#endif
#endif
