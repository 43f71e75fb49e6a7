/* table.h: what a kernel can do, one row per kernel family (kernels.def). Passes, plan, reports and
 * the code generator ask the row; nobody compares op codes or fusion levels to find out. No LLVM
 * here: emitters are in codegen (codegen/kernel.h). */
#ifndef SN_KERNELS_TABLE_H
#define SN_KERNELS_TABLE_H

#include "ir/ir.h"
#include "passes/kernels/levels.h"

typedef enum sn_kernel_id {
    SN_KERNEL_NONE, /* nodes that no kernel computes: leaves, views */
#define KERNEL(name, ...) SN_KERNEL_##name,
#include "passes/kernels/kernels.def"
#undef KERNEL
    SN_KERNEL_COUNT
} sn_kernel_id;

/* What a kernel may compute beside the node it is made for. */
typedef enum sn_holds {
    SN_HOLDS_ELEMENTWISE,     /* elementwise operations on its domain */
    SN_HOLDS_ROWS,            /* reductions along whole rows, look-ups */
    SN_HOLDS_PANEL_REDUCTION, /* reductions along rows, over one panel of columns */
    SN_HOLDS_COLUMN_SWAP,     /* swaps of columns that are in registers at once */
    SN_HOLDS_HALVES,          /* elementwise operations that join two halves of the columns */
    SN_HOLDS_ROW_PROLOGUE,    /* a norm of the left factor's rows */
    SN_HOLDS_OPERAND,         /* the elementwise operation that makes the operand it reduces */
    SN_HOLDS_COUNT
} sn_holds;

typedef struct sn_kernel_traits {
    const char *name;
    sn_level level; /* the level from which on it is made */
    /* From which level on it holds such nodes of other operations of the user; NONE: never. Nodes
     * of one composite share a kernel at every level. */
    sn_level holds[SN_HOLDS_COUNT];
} sn_kernel_traits;

extern const sn_kernel_traits sn_kernels[SN_KERNEL_COUNT];

/* Is the kernel able to hold such nodes, and does it at this level? */
bool sn_kernel_can_hold(const sn_kernel_traits *k, sn_holds what);
bool sn_kernel_holds(const sn_kernel_traits *k, sn_holds what, int level);

#endif
