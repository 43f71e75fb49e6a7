/* family.h: the interface of kernel families. Each row of passes/kernels/kernels.def has an emitter,
 * which lies in the folder of its generator.
 *
 * A kernel's operands are buf[0 .. n_in-1], its results buf[n_in ..]; each pointer already has its
 * view's offset. Constant shapes and strides are compiled in; every symbolic one is a run-time
 * argument dim[k]: those of views in the order of first appearance, then those of regions by hash. */
#ifndef SN_FAMILY_H
#define SN_FAMILY_H

#include "codegen/emit/emit.h"
#include "passes/kernels/table.h"
#include "passes/plan/plan.h"

enum { SN_KERNEL_DIMS = 256 };

typedef struct sn_kernel {
    sn_module *m;
    const sn_step *step;
    const sn_kernel_traits *traits; /* what it can do, and */
    const struct sn_family *family; /* how it is emitted: the halves of a row of kernels.def */
    int n_dim;
    sn_dim dim[SN_KERNEL_DIMS]; /* what dim[k] of the call must hold */
    sn_dtype compute;
    int tile;          /* tiling, one of the family's; 0: the default */
    const char *tuned; /* for reports: why this tile; NULL: not measured */
    const char *text;  /* everything that its code depends on besides target and compiler */
    char name[48];     /* symbol: family and hash of the text */
} sn_kernel;

/* The emitter of a kernel family: emits the kernel `k->name` into `e`. */
typedef struct sn_family {
    void (*emit)(em *e, const sn_kernel *k);
    /* Bytes of scratch per thread; NULL: none. */
    sn_dim (*scratch)(const sn_kernel *k, const sn_target *t);
    /* Bytes of memory that all threads share, at buf[n_in + n_out]; NULL or 0: none. With it the
     * kernel has two halves, NAME and NAME_finish, with the same arguments and a barrier between. */
    int64_t (*shared)(const sn_kernel *k, const sn_target *t);
    /* Dynamic schedule: threads take work items from a counter. buf[n_in + n_out] points to two i64
     * that are 0 when the kernel starts, or is NULL. A kernel of two halves then shares nothing else. */
    bool dynamic;
    int (*tiles)(const sn_kernel *k); /* number of tilings, all with the same bits; NULL: 1 */
    const char *(*tile_name)(int tile);
    /* For `explain`: one more sentence about the kernel; returns the derivative of its score region
     * if it computes that, else NULL. NULL: nothing to add. */
    const sn_region *(*report)(const sn_kernel *k, char *text, size_t size);
    /* For reports, of attention: emits a kernel that writes to buf[n_in + n_out] what becomes of each
     * tile (attention.h); queries and keys of a tile. NULL: no tiles. */
    void (*emit_tile_map)(em *e, const sn_kernel *k);
    void (*tile_size)(const sn_kernel *k, const sn_target *t, int *queries, int *keys);
} sn_family;

/* What must not change its bits, a sum of SN_INVARIANT_. */
int sn_kernel_invariant(const sn_kernel *k);
/* Whether the bits of a sequence's elements must not depend on how many a call has. */
bool sn_kernel_keeps_chunks(const sn_kernel *k);
/* The code of a kernel, k->name. */
void sn_kernel_emit(em *e, const sn_kernel *k);

/* In emission: a dim as an i64; input and output views' base pointers. */
em_val sn_kernel_dim(em *e, const sn_kernel *k, sn_dim d);
/* The value of a `const` or `dim_value` of the kernel's region. */
em_val sn_kernel_leaf(em *e, const sn_kernel *k, const sn_node *n);
em_size sn_kernel_size(const sn_kernel *k, sn_dim d); /* as the generators take it */
int sn_kernel_dim_slot(const sn_kernel *k, sn_dim d); /* index into dim[], -1: a constant */

/* One emitter per row of the table of kernels. */
#define KERNEL(name, ...) extern const sn_family sn_family_##name;
#include "passes/kernels/kernels.def"

#endif
