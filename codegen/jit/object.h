/* object.h: compiles a finished LLVM module to an object in memory: a short optimisation pipeline (the
 * IR is already vectorised and register-blocked), then code generation. The JIT loads the object, AOT
 * writes it to a file. If target->bitcode is set (for systems other than Linux, and for
 * listings), the object is LLVM's bitcode of the optimised module: code is generated when all of an
 * artefact is together (codegen/aot/bitcode.h). */
#ifndef SN_OBJECT_H
#define SN_OBJECT_H

#include "codegen/emit/target.h"

#include <stdio.h>

struct LLVMOpaqueModule;
struct LLVMOpaqueDiagnosticInfo;

typedef struct sn_object { /* a relocatable file; data is malloc'ed, freed by sn_object_free */
    uint8_t *data;
    size_t size;
} sn_object;

void sn_object_free(sn_object *o);

typedef struct sn_codegen_options {
    const char *passes;   /* LLVM pass pipeline; NULL: the default; "": none */
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

/* A code generator for one target. Not thread-safe. `t` and `options` (may be NULL) are copied. NULL
 * on failure. */
typedef struct sn_codegen sn_codegen;
sn_codegen *sn_codegen_create(const sn_target *t, const sn_codegen_options *options, sn_error *err);
void sn_codegen_destroy(sn_codegen *g);

/* Optimises `mod` in place and compiles it to an object. The module stays the caller's. LLVM's fatal
 * errors are reported in `err` as any other; the module and its context are then leaked on purpose,
 * because LLVM may have left them inconsistent (em_free takes care of that). */
bool sn_codegen_object(sn_codegen *g, struct LLVMOpaqueModule *mod, sn_object *out, sn_error *err);

const sn_codegen_stats *sn_codegen_get_stats(const sn_codegen *g);

/* Whether an object from the cache is well formed: all offsets, indices and names that loading or
 * merging uses are in range. elf: an ELF file is expected, else bitcode; LLVM checks what is in that.
 * name: the object must define this symbol, and, in ELF, otherwise only symbols NAME_…; NULL: any. */
bool sn_object_check(const sn_object *o, bool elf, const char *name);

/* A text that changes whenever the same kernel text might give other code: the versions of Sinter
 * and LLVM, and the pipeline. It is part of a cache key. */
const char *sn_codegen_version(void);

/* Handler of a context's diagnostics: errors go to `err`, an sn_error. */
void sn_llvm_diagnostic(struct LLVMOpaqueDiagnosticInfo *info, void *err);
/* Calls fn(ctx). If LLVM runs out of memory or reports a fatal error in it, the call is abandoned:
 * returns false and sets err. Nothing that LLVM was working on may be used or freed then. */
bool sn_llvm_try(void (*fn)(void *ctx), void *ctx, sn_error *err);
/* A caller that leaves sn_llvm_try by longjmp must restore the mark that it took before. */
const void *sn_llvm_mark(void);
void sn_llvm_reset(const void *mark);

#endif
