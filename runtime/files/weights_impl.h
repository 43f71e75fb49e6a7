/* weights_impl.h: tensors under other names than those of their file. Internal. */
#ifndef SN_WEIGHTS_IMPL_H
#define SN_WEIGHTS_IMPL_H

#include "runtime/files/gguf.h"

/* The GGUF file that was opened; NULL: it has another format. */
const sn_gguf *sn_weights_gguf(const sn_weights *w);

/* Writes the new name of a tensor; false: it keeps its name. */
typedef bool sn_rename(const void *ctx, const char *name, char *out, size_t size);

/* Renames the tensors, once. Two equal names are an error. */
bool sn_weights_rename(sn_weights *w, sn_rename *rename, const void *ctx, sn_error *err);

/* Replaces each tensor [n, ..] whose name has "%d" by n tensors [..] with the numbers 0 to n - 1 in
 * its place: the data stays where it is. */
bool sn_weights_split(sn_weights *w, sn_error *err);

/* Gives a vector the shape of a matrix of one row. */
void sn_weights_as_row(sn_weights *w, const char *ending);

/* Opens another file; its tensors get the prefix. */
bool sn_weights_add(sn_weights *w, const char *path, const char *prefix, sn_error *err);

#endif
