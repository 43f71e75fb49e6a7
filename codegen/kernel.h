/* kernel.h: from a step of the plan to a kernel: its run-time sizes, its cache key, and the
 * families that emit it.
 *
 * A kernel's operands are buf[0 .. n_in-1], its results buf[n_in ..]; each pointer already has its
 * view's offset. Constant shapes and strides are compiled in; every symbolic one is a run-time
 * argument dim[k], in the order of first appearance. */
#ifndef SN_KERNEL_H
#define SN_KERNEL_H

#include "codegen/gemm/gemm.h"
#include "passes/plan/plan.h"

enum { SN_KERNEL_DIMS = 256 };

typedef struct sn_kernel {
    sn_module *m;
    const sn_step *step;
    const struct sn_family *family;
    int n_dim;
    sn_dim dim[SN_KERNEL_DIMS]; /* what dim[k] of the call must hold */
    sn_dtype compute;
    int tile;          /* how its work is cut, of the family's tiles; 0: as usual */
    const char *tuned; /* for reports: why this tile; NULL: nobody measured */
    const char *text;  /* everything that its code depends on besides target and compiler */
    char name[48];     /* symbol: family and hash of the text */
} sn_kernel;

/* One way of making code: emits the kernel `k->name` into `e`. */
typedef struct sn_family {
    const char *name;
    void (*emit)(em *e, const sn_kernel *k);
    sn_dim (*scratch)(const sn_kernel *k,
                      const sn_target *t); /* bytes a thread needs; NULL: none */
    /* Bytes that all threads share, at buf[n_in + n_out]; NULL or 0: none. A kernel that has them
     * is two, with a wait in between: NAME and NAME_finish, of the same arguments. */
    int64_t (*shared)(const sn_kernel *k, const sn_target *t);
    /* Dynamic schedule: threads take work items from a counter. buf[n_in + n_out] is an i64 that is 0 when the
     * kernel begins, or NULL where there is none. */
    bool dynamic;
    int (*tiles)(const sn_kernel *k); /* ways to cut its work, all to the same bits; NULL: one */
    const char *(*tile_name)(int tile);
} sn_family;
int64_t sn_kernel_shared(const sn_kernel *k, const sn_target *t);

/* Describes the kernel of a step. False: the module's error. Memory is the module's. */
bool sn_kernel_describe(sn_module *m, const sn_step *s, sn_kernel *k);

/* Takes another of the family's tiles: another text, another name. */
void sn_kernel_set_tile(sn_kernel *k, int tile);

/* In emission: a dim as an i64; input and output views' base pointers. */
em_val sn_kernel_dim(em *e, const sn_kernel *k, sn_dim d);
/* The value of a `const` or `dim_value` of the kernel's region. */
em_val sn_kernel_leaf(em *e, const sn_kernel *k, const sn_node *n);
sn_gemm_size sn_kernel_size(const sn_kernel *k, sn_dim d); /* in the terms of the generators */
int sn_kernel_dim_slot(const sn_kernel *k, sn_dim d);      /* index into dim[], -1: a constant */

/* attention/lower.c, for reports about a step of attention: what the mask does to tiles, as a
 * sentence; returns the derivative of the score region that a gradient uses, NULL: none. */
const sn_region *sn_flash_report(const sn_kernel *k, char *tiles, size_t size);

extern const sn_family sn_family_loops, sn_family_column, sn_family_gemm, sn_family_pack,
    sn_family_flash, sn_family_flash_grad, sn_family_primitive, sn_family_scan, sn_family_scatter;

#endif
