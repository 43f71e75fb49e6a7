/* pool.h: compiles modules to objects on several threads. Modules are independent: each has an LLVM
 * context of its own, each thread a code generator. An object does not depend on who compiles it. */
#ifndef SN_POOL_H
#define SN_POOL_H

#include "codegen/emit/emit.h"
#include "codegen/jit/object.h"

typedef struct sn_pool sn_pool;

/* threads: how many compile at a time at most, the caller included; 1: only the caller. If the system
 * allows fewer, fewer do. `t` and `o` (may be NULL) are copied. NULL on failure. */
sn_pool *sn_pool_create(const sn_target *t, const sn_codegen_options *o, int threads,
                        sn_error *err);
/* Waits for what is being compiled and drops the rest. NULL is ignored. */
void sn_pool_destroy(sn_pool *p);

/* Hands over an emission whose em_finish succeeded; e is empty afterwards, also on failure. May first
 * compile another module, so that few wait at a time. Returns the job's number; -1: out of memory. */
int sn_pool_add(sn_pool *p, em *e, sn_error *err);

/* The object of a job, each once; waits for it and compiles others meanwhile. False: `err` says why it
 * cannot be compiled. One thread at a time may call sn_pool_add and this. */
bool sn_pool_take(sn_pool *p, int job, sn_object *out, sn_error *err);

/* The sums over all threads; no job may be running. */
sn_codegen_stats sn_pool_stats(const sn_pool *p);

#endif
