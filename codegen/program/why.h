/* why.h: the tensors that an entry keeps in memory, and why each is stored rather than kept in
 * registers. For `sinter explain --why`. */
#ifndef SN_PROGRAM_WHY_H
#define SN_PROGRAM_WHY_H

#include "passes/plan/plan.h"
#include "ir/compile.h"

/* A tensor in memory. Text is never NULL and belongs to the program. */
typedef struct sn_stored {
    const char *name; /* of a parameter, state, input or output; "": a temporary */
    const char *what; /* what it is: "a parameter", "between kernels", … */
    sn_buffer_kind kind;
    const char *type; /* "f32[B,T,768]"; of leaves "f32, 768 elements" */
    double bytes;
    const int *writes; /* [n_writes] calls that write it, ascending */
    const int *reads;  /* [n_reads] calls that read it, ascending */
    int n_writes, n_reads;
    int first, last;           /* temporaries: it is alive from call `first` to `last` */
    int shares;                /* temporaries: how many others use the same memory at other times */
    const char *const *reason; /* [n_reason] why it is stored, a sentence each */
    const char *remedy;        /* what would remove it; "": nothing, it is needed */
    int n_reason;
} sn_stored;

/* The tensors of an entry at these sizes (sn_program_calls), temporaries in the order of the calls
 * that write them, then the others. Returns their number; *list belongs to the program. -1: err.
 * Works in the module. */
int sn_program_stored(const sn_program *p, const char *entry, const char *sizes,
                      const sn_stored **list, sn_error *err);

/* The first call of an entry, from `from` on, that computes operations of this source line; file
 * NULL: any. -1: none. */
int sn_program_computes(const sn_program *p, const char *entry, const char *file, int line,
                        int from);

#endif
