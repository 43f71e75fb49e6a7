/* weights.h: named tensors of a safetensors file: mapped for reading, written atomically.
 * Format: huggingface/safetensors README; a u64 header length, a JSON header, the
 * tensors' bytes. */
#ifndef SN_WEIGHTS_H
#define SN_WEIGHTS_H

#include "runtime/base.h"
#include "runtime/problems.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SN_WEIGHT_RANK = 8 };

/* One tensor, row-major. Rank 0 is a scalar. As read: memory belongs to the sn_weights, is
 * read-only, and aligned at least to the element size. As written: memory belongs to the caller. */
typedef struct sn_weight {
    const char *name;
    sn_dtype dtype;
    int rank;
    int64_t shape[SN_WEIGHT_RANK];
    const void *data;
    size_t bytes; /* product of shape times element size */
} sn_weight;

typedef struct sn_meta {
    const char *key, *value;
} sn_meta;

/* An open file, or several that make one set. Read-only, so any number of threads may use it. */
typedef struct sn_weights sn_weights;

/* Maps PATH: a .safetensors file, or a "….safetensors.index.json" that spreads names over several
 * files of its folder. Tensor bytes are not copied, except those that the file places at an address
 * not aligned to their element size. The whole header is checked before anything is returned:
 * offsets inside the file, in order, without overlap or gap; shape times size equal to the byte
 * range; known dtypes; names unique; header at most 16 MB. NULL on error, which names the file and
 * the tensor. */
sn_weights *sn_weights_open(const char *path, sn_error *err);
void sn_weights_close(sn_weights *w); /* NULL is allowed */

const char *sn_weights_path(const sn_weights *w);
size_t sn_weights_count(const sn_weights *w);
const sn_weight *sn_weights_at(const sn_weights *w, size_t i);           /* in file order */
const sn_weight *sn_weights_find(const sn_weights *w, const char *name); /* NULL if absent */

/* As find, but a missing tensor or one of another shape is recorded as a problem (then NULL), so
 * that all of them can be reported at once. A dimension of -1 fits any size. */
const sn_weight *sn_weights_need(const sn_weights *w, const char *name, int rank,
                                 const int64_t *shape, sn_problems *p);

/* The "__metadata__" strings (of the first file). */
size_t sn_weights_meta_count(const sn_weights *w);
sn_meta sn_weights_meta_at(const sn_weights *w, size_t i);
const char *sn_weights_meta(const sn_weights *w, const char *key); /* NULL if absent */

/* Takes the pages of a tensor's bytes out of the process's memory until somebody reads them again.
 * Other bytes than a tensor's are left alone. */
void sn_weights_release(const sn_weights *w, const void *data, size_t bytes);

/* Copies elements to f32 (from f32, f64, bf16, f16); false for other dtypes. `out` has room for
 * bytes / element size floats. */
bool sn_weight_to_f32(const sn_weight *t, float *out);

/* Elements of a tensor; for a weight that was filled by hand, -1 if the shape is negative or too
 * large. */
int64_t sn_weight_elements(const sn_weight *t);

/* Writes a file atomically: a failure (a full disk, say) leaves the old one intact. Tensor data
 * starts at multiples of 64 bytes from the file's start when their sizes are multiples of 64, which
 * are laid down first; the format allows no padding between tensors, so odd-sized ones follow at
 * their natural alignment. Order among equals is kept. Metadata gets "format": "pt" unless given,
 * which Hugging Face's loader wants. Wrong names, duplicates and shapes that do not fit `bytes` are
 * errors. */
bool sn_weights_save(const char *path, const sn_weight *tensors, size_t count, const sn_meta *meta,
                     size_t meta_count, sn_error *err);

/* A tensor in a block of memory. The struct NAME_parameter of an artefact that trains is
 * the same. */
typedef struct sn_weight_place {
    const char *name;
    int32_t dtype, rank; /* dtype: an sn_dtype */
    int64_t shape[SN_WEIGHT_RANK];
    int64_t offset, bytes; /* in the block */
} sn_weight_place;

/* sn_weights_save of `count` tensors of the block, without metadata: the trained parameters of an
 * artefact's state become a model.safetensors. */
bool sn_weights_save_state(const char *path, const sn_weight_place *places, size_t count,
                           const void *state, sn_error *err);

#ifdef __cplusplus
}
#endif
#endif
