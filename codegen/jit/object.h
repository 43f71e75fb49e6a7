/* object.h: from a finished LLVM module to an ELF object in memory.
 * A short optimisation pipeline (the IR is already vectorised and register-blocked), then code
 * generation. What comes out is what a file would hold: the JIT loads it, AOT writes it. */
#ifndef SN_OBJECT_H
#define SN_OBJECT_H

#include "codegen/emit/target.h"

#include <stdio.h>

struct LLVMOpaqueModule;

typedef struct sn_object { /* an ELF relocatable file; data is malloc'ed, freed by sn_object_free */
    uint8_t *data;
    size_t size;
} sn_object;

void sn_object_free(sn_object *o);

typedef struct sn_codegen_options {
    const char *passes;   /* LLVM pass pipeline; NULL: the usual one; "": none */
    bool verify;          /* verify after every pass (slow) */
    FILE *dump_ir;        /* module as emitted ... */
    FILE *dump_optimised; /* ... and after the pipeline */
    FILE *dump_asm;       /* assembly */
} sn_codegen_options;

typedef struct sn_codegen_stats {
    double optimise, codegen, load; /* seconds, summed */
    int64_t modules;                /* compiled */
    int64_t objects;                /* loaded, compiled or from a cache */
    int64_t bytes;                  /* of the objects made */
} sn_codegen_stats;

/* A code generator for one target; used by one thread at a time. `t` and `options` (may be NULL)
 * are copied. NULL on failure. */
typedef struct sn_codegen sn_codegen;
sn_codegen *sn_codegen_create(const sn_target *t, const sn_codegen_options *options, sn_error *err);
void sn_codegen_destroy(sn_codegen *g);

/* Optimises `mod` in place and makes an object of it. The module stays the caller's. What LLVM
 * calls a fatal error arrives in `err` like any other; the module and its context are then leaked
 * on purpose, since LLVM may have left them in pieces (em_free knows). */
bool sn_codegen_object(sn_codegen *g, struct LLVMOpaqueModule *mod, sn_object *out, sn_error *err);

const sn_codegen_stats *sn_codegen_get_stats(const sn_codegen *g);

/* Whether an object that was not made just now (a cached one) is well formed: every offset, index
 * and name that loading or merging follows lies inside. name: it must define this symbol, and
 * besides it only NAME_…; NULL: any. */
bool sn_object_check(const sn_object *o, const char *name);

/* A text that changes whenever the same kernel text might give other code: our version, LLVM's, the
 * pipeline. Part of a cache key, next to the target and the kernel. */
const char *sn_codegen_version(void);

/* Calls fn(ctx), in which LLVM may run out of memory or meet what it calls fatal: then it is left
 * in the middle, false, err. Nothing that LLVM was working on may be used or freed after that. */
bool sn_llvm_try(void (*fn)(void *ctx), void *ctx, sn_error *err);
/* Who leaves sn_llvm_try by a jump of his own restores what sn_llvm_mark gave before. */
const void *sn_llvm_mark(void);
void sn_llvm_reset(const void *mark);

#endif
