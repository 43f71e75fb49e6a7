/* model_source.h: what a MODEL argument may be: a folder, a published size, a file that import
 * knows, a C file in the form of SN_MODEL, or a shared object made of one. This resolves the last
 * two: compiles, loads, finds the function. */
#ifndef SN_MODEL_SOURCE_H
#define SN_MODEL_SOURCE_H

#include "frontend/models.h"

/* Whether the path names a model in C: NAME.c or NAME.so. */
bool model_source_is(const char *path);

typedef struct model_source {
    void *library; /* of dlopen */
    int file;      /* its bytes; -1: a file of the user's */
    sn_model_fn *define;
    char name[64]; /* "alibi" of "examples/alibi.c"; cut if longer */
} model_source;

/* Compiles a .c file with $CC (else cc) and $CFLAGS against the headers that belong to this
 * program, into cache_dir (NULL: the user's cache; "none": not kept), unless the same text was
 * compiled before; loads it. What the cache holds is checked as kernels are, and compiled again if
 * damaged. Errors: the C compiler's messages; a file that defines no model; one made for another
 * version. Modules built by it need it open: their places are its strings. */
bool model_source_open(const char *path, const char *cache_dir, model_source *out, sn_error *err);
void model_source_close(model_source *s); /* zeroed is allowed */

#endif
