/* model_source.h: a MODEL argument is a folder, a preset, a file that import can read, a C file
 * with SN_MODEL, a shared object compiled from one, or an ONNX file. This resolves the last three: compiles,
 * loads, finds the function; imports the graph. */
#ifndef SN_MODEL_SOURCE_H
#define SN_MODEL_SOURCE_H

#include "frontend/models.h"

/* Whether the path names a model in C or an ONNX file: NAME.c, NAME.so, NAME.onnx. */
bool model_source_is(const char *path);

typedef struct model_source {
    void *library; /* handle of dlopen */
    int file;      /* descriptor of the object in memory; -1: loaded from the user's file */
    sn_model_fn *define;
    char *onnx;          /* path of an ONNX file; NULL: a model in C */
    sn_config *config;   /* of its folder, as in sn_model_build_onnx; borrowed; may be NULL */
    sn_weights *weights; /* of an ONNX file, from model_source_build on */
    char name[64];       /* "alibi" for "examples/variants/alibi.c"; truncated if longer */
} model_source;

/* Compiles a .c file with $CC (default cc) and $CFLAGS against this program's headers and loads it.
 * Uses the cache in cache_dir (NULL: the user's cache; "none": no cache); cached objects are
 * verified, as kernels are, and recompiled if corrupted. Errors: the C compiler's messages; a file
 * that does not define a model; an object for another interface version. Modules built by it need
 * it to stay open, because their source locations refer to its strings. */
bool model_source_open(const char *path, const char *cache_dir, model_source *out, sn_error *err);
/* The ONNX file of a folder that has no other weights, allocated; NULL: none, or out of memory. cached: a decoder with
 * caches is preferred to model.onnx. */
char *model_source_in(const char *folder, bool cached);
/* The folder with the config of an ONNX file: its own or, of "onnx/NAME.onnx", the one around it, allocated. NULL: none,
 * or out of memory. */
char *model_source_folder(const char *onnx);
/* Builds the model; the first time also the weights of an ONNX file, which belong to the source. */
bool model_source_build(model_source *s, const sn_model_options *o, sn_model *out, sn_error *err);
void model_source_close(model_source *s); /* accepts a zeroed struct */

#endif
