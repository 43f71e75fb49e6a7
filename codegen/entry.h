/* entry.h: the generated function of an entry: kernel calls, loops over them and barriers, which every
 * thread executes. */
#ifndef SN_ENTRY_H
#define SN_ENTRY_H

#include "codegen/kernel.h"
#include "runtime/threads.h"

/* A call with less work than the start of the threads and its barriers cost (in FLOP) runs on one
 * thread: to start them takes about 4 microseconds. Results do not depend on the number of threads. */
enum { SN_FLOPS_PER_START = 250000, SN_FLOPS_PER_BARRIER = 100000 };

/* A planned entry with its kernels described. */
typedef struct sn_entry_code {
    sn_plan *plan;
    sn_kernel *kernel; /* [plan->n_call] */
    char symbol[64];   /* of the entry's C function */
    int *table;        /* [plan->n_buffer]: index into the call's buffer table; -1: temporary */
    int n_table;
    sn_dim work;     /* floating-point operations of a call, roughly */
    sn_dim products; /* multiplications of its matrix products, attention's included */
    int n_barrier;   /* barriers of a call */
    bool checked;    /* the host checks the results of each call i, as extern call n_call + i */
    const struct sn_value_check *check; /* [n_call] if checked (program/check.h) */
    const char *text;                   /* identity, for the cache */
} sn_entry_code;

/* False: the module's error. budget NULL: none. The caller sets u->symbol. */
bool sn_entry_code_make(sn_module *m, const sn_entry *e, const sn_budget *budget, sn_entry_code *u);

/* Emits `int32_t SYMBOL(const sn_call *)` and `int64_t SYMBOL_workspace(const int64_t *symbol,
 * int64_t threads)`. */
void sn_entry_code_emit(em *e, const sn_entry_code *u);

/* Work (sn_entry_code.work) from which on a call takes all threads. */
int64_t sn_entry_work_for_threads(const sn_entry_code *u);

/* Whether the step is a primitive outside the generated code. */
bool sn_step_is_extern(const sn_step *s);
#endif
