/* lm.h: opens a language model of any family to continue texts with it (model/generation.h). Example:
 * examples/generate.c. */
#ifndef SN_LM_H
#define SN_LM_H

#include "frontend/sinter.h"
#include "model/generation.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A field that is 0 or NULL has its default. */
typedef struct sn_lm_options {
    int threads;     /* the number of CPUs available to the process */
    int64_t context; /* maximum number of tokens in a sequence: the model's */
    int sequences;   /* maximum number of sequences at once: 1. Each has its own caches */
    /* storage of the matrices: "stored", as the file has them; "f32", "bf16", "int8", "int4", "auto" */
    const char *weights;
    /* Everything else about the compilation: fusion level, back end, target, cache folder. threads
     * and weights above take precedence. Borrowed by the call; NULL: sn_options_default. */
    const sn_options *compile;
    const char *tokenizer; /* file or folder: the model's own, if any */
    /* path is a C file with SN_MODEL, or a shared object made from one (frontend/models.h): its
     * weights, a .safetensors file or a folder with one. Code is run only if path names it. */
    const char *checkpoint;
} sn_lm_options;

/* Opens a model folder, a GGUF file, or a file that `sinter import` can read; compiles the model, or
 * loads its kernels from the cache; prepares the weights. o may be NULL. NULL on error: not a
 * decoder, a missing or malformed file, unsupported config keys; not enough memory (before anything
 * runs), a model in C for several sequences. Free it with sn_lm_close. */
sn_lm *sn_lm_open(const char *path, const sn_lm_options *o, sn_error *err);

/* The size in bytes of a struct of this header, of those that it includes or of models.h, such as "sn_lm_options" or
 * "sn_attention_args"; 0: another name. Callers in other languages, which declare the structs again, compare it with
 * theirs. */
size_t sn_struct_bytes(const char *name);

#ifdef __cplusplus
}
#endif
#endif
