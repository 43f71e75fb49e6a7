/* weights_impl.h: the files of a set of tensors; tensors under other names than those of their file.
 * Internal. */
#ifndef SN_WEIGHTS_IMPL_H
#define SN_WEIGHTS_IMPL_H

#include "runtime/files/gguf.h"

#include <sys/stat.h>

/* The GGUF file that was opened; NULL: it has another format. */
const sn_gguf *sn_weights_gguf(const sn_weights *w);

/* The file in which bytes in memory are, and where. */
typedef struct sn_weights_file {
    const char *path;
    uint64_t identity; /* sn_file_identity when it was mapped; 0: unknown */
    sn_mapping map;
    size_t offset;
} sn_weights_file;

/* False: they are not in one of the files. */
bool sn_weights_file_of(const sn_weights *w, const void *data, size_t bytes, sn_weights_file *out);

/* A hash that changes when the file is replaced or written; not 0. */
uint64_t sn_file_identity(const struct stat *st);

/* Writes the new name of a tensor; false: it keeps its name. */
typedef bool sn_rename(const void *ctx, const char *name, char *out, size_t size);

/* Renames the tensors, once. Two equal names are an error. */
bool sn_weights_rename(sn_weights *w, sn_rename *rename, const void *ctx, sn_error *err);

/* Replaces each tensor [n, ..] whose name has "%d" by n tensors [..] with the numbers 0 to n - 1 in
 * its place: the data stays where it is. Tensors without elements and more slices than models have
 * experts (4096) are errors. */
bool sn_weights_split(sn_weights *w, sn_error *err);

/* Gives a vector the shape of a matrix of one row. */
void sn_weights_as_row(sn_weights *w, const char *ending);

/* Gives a matrix of at most `columns` columns the shape of a vector. */
void sn_weights_as_vector(sn_weights *w, const char *ending, int64_t columns);

/* Gives the kernels of a convolution of each channel, [.., K], the shape [channels, 1, K]. */
void sn_weights_as_channels(sn_weights *w, const char *ending);

/* An empty set under this path, for a reader of another format: it maps the format's files, which the set owns,
 * and puts tensors in it whose data lie in them, or are copied. NULL on error. */
sn_weights *sn_weights_begin(const char *path, sn_error *err);
bool sn_weights_map(sn_weights *w, const char *path, sn_mapping *out, sn_error *err);
/* The tensors of the set, once; their names are copied, and so are data outside of the files. */
bool sn_weights_put(sn_weights *w, const sn_weight *tensor, size_t n, sn_error *err);

/* Opens another file; its tensors get the prefix. */
bool sn_weights_add(sn_weights *w, const char *path, const char *prefix, sn_error *err);

#endif
