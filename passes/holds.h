/* holds.h: what a kernel may hold. Passes and the plan ask here before they put a node into one. Its
 * emitter emits what is allowed, and nothing else (tests/codegen/test_holds.c). From which level on, and
 * whether it pays, are other questions. */
#ifndef SN_HOLDS_H
#define SN_HOLDS_H

#include "passes/kernels/table.h"

/* Nodes that are to share a kernel. Of a product the first member is the product. */
typedef struct sn_group {
    sn_kernel_id kernel; /* NONE: a primitive with a separate kernel */
    int rank;
    sn_dim domain[SN_MAX_RANK]; /* in a prologue: of the rows */
    sn_dtype type;              /* of a recurrence or a loop: that of its floats; BOOL: any */
    uint32_t origin;            /* the composite that all members come from; 0: several or none */
    int reductions;
    /* of a product: ours, and chosen with what follows it; its right factor is in panels */
    bool fused, packed;
    bool indexed; /* members use indices of the domain */
    /* > 0: the halves of the product, of this many columns, are combined in the epilogue */
    int64_t pair;
    int64_t swap; /* > 0: columns of a panel are swapped at this distance, so no others can be */
    sn_node **member; /* in topological order */
    int n_member, cap_member;
    int *dep; /* groups that must run before this one (direct) */
    int n_dep, cap_dep;
    uint32_t stamp;
} sn_group;

/* Why the kernel of k cannot compute n there; NULL: it can. */
const char *sn_kernel_refuses(const sn_group *k, sn_kernel_place at, const sn_node *n);
/* The same of product k and a reduction of x over panels. */
const char *sn_sum_refuses(const sn_group *k, const sn_node *x);
/* Whether there is a rule for such nodes at all. */
bool sn_kernel_knows(sn_kernel_id kernel, sn_kernel_place at, sn_op op);

/* Whether the panels of product k can hold columns at this distance side by side, and all of the group
 * is computed for both. */
bool sn_group_pairs(const sn_group *k, int64_t distance);
/* Whether a product of type t has columns at this distance in registers at once: in one panel, or,
 * with constant weights, side by side. */
bool sn_panels_swap(sn_dtype t, int64_t distance);

/* Whether n spreads numbers along the last axis, one for each row; a constant. */
bool sn_spreads_row(const sn_node *n);
bool sn_spreads_constant(const sn_node *n);

/* x, if n reduces x [.., N] over panels of P columns to [.., N / P, 1]; else NULL. */
const sn_node *sn_panel_sum(const sn_node *n);
/* n, a reduction of x [.., N] along its rows, over panels: the argument of sn_panel_sum; NULL: its
 * rows do not consist of whole panels. */
sn_node *sn_panel_sum_of(const sn_node *n);
/* The reduction `op` of x over panels. x must consist of whole panels. */
sn_node *sn_over_panels(sn_op op, sn_node *x);

#endif
