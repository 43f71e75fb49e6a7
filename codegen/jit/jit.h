/* jit.h: loads ELF objects into this process and looks up their symbols. The objects come from
 * object.h, a cache or a file. They can refer to each other's symbols and to a given table of host
 * functions, but to no other symbols of the process. */
#ifndef SN_JIT_H
#define SN_JIT_H

#include "codegen/jit/object.h"

typedef struct sn_jit_symbol {
    const char *name;
    void *address;
} sn_jit_symbol;

/* memcpy, memmove and memset, which LLVM may call. */
enum { SN_JIT_MEMORY = 3 };
void sn_jit_memory(sn_jit_symbol out[SN_JIT_MEMORY]);

typedef struct sn_jit_options {
    const sn_jit_symbol *symbols; /* host functions that objects may call; copied */
    size_t n_symbols;
    bool perf_map;              /* append every function to /tmp/perf-PID.map, for `perf` */
    bool gdb;                   /* tell gdb of every object: names in backtraces and disassembly */
    sn_codegen_options codegen; /* for sn_jit_compile */
} sn_jit_options;

/* A session for one target, which this machine must be able to run. Code lives as long as the
 * session. Not thread-safe, but loaded code needs no lock. NULL on failure. */
typedef struct sn_jit sn_jit;
sn_jit *sn_jit_create(const sn_target *t, const sn_jit_options *options, sn_error *err);
void sn_jit_destroy(sn_jit *jit);

/* Adds an object; its bytes are copied. Duplicate definitions are an error. An object that is not an
 * ELF file for this machine fails here or at the first lookup. */
bool sn_jit_add_object(sn_jit *jit, const sn_object *o, sn_error *err);

/* Compiles a module, which stays the caller's, and adds the object. `keep` (may be NULL) receives
 * the object, which the caller frees. */
bool sn_jit_compile(sn_jit *jit, struct LLVMOpaqueModule *mod, sn_object *keep, sn_error *err);

/* Address of a symbol, linking its object at first use. NULL and `err` (which names missing
 * symbols) on failure. */
void *sn_jit_lookup(sn_jit *jit, const char *name, sn_error *err);

sn_codegen_stats sn_jit_stats(const sn_jit *jit);

#endif
