/* grouping.h: which primitives of an entry share a kernel. fuse_groups.c decides, with what fuse_halves.c
 * and row_sums.c find; fuse.c builds the nodes. */
#ifndef SN_GROUPING_H
#define SN_GROUPING_H

#include "passes/choice.h"
#include "passes/holds.h"

/* Nodes that every kernel recomputes: INDEX: made of indices. */
enum { SN_CHEAP = 1, SN_CHEAP_INDEX = 2 };

/* How a node is read: by reductions over panels of a product only; by reductions only. */
enum { SN_SUMMED_PANELS = 1, SN_SUMMED = 2 };

typedef struct sn_grouping {
    sn_passes *p;
    sn_module *m;
    int n_root;
    sn_node **root; /* outputs and assignments of the entry */
    sn_order order;
    sn_group *group;
    int n_group;
    int *group_of;            /* by node id; -1: none (leaves, views, cheap nodes) */
    uint8_t *cheap;           /* by node id: 0, SN_CHEAP or SN_CHEAP_INDEX */
    uint8_t *summed;          /* by node id: 0, SN_SUMMED_PANELS or SN_SUMMED */
    const uint8_t *in_panels; /* by node id: a reduction that joins a product if it can */
    uint32_t *readers;        /* by node id: number of uses */
    sn_node **half_of;        /* by node id: for two slices, the product whose halves they are */
    /* by node id: a product whose selected blocks of columns alone are needed, or elementwise
     * work on it before the selection (take_blocks) */
    uint8_t *selected;
    uint32_t n_id, stamp;
} sn_grouping;

/* Whether a kernel's body may contain n in addition to its group's members: leaves without memory,
 * cheap nodes, broadcasts and casts of those. */
bool sn_group_absorbs(const sn_grouping *g, const sn_node *n);
/* How this product is computed. */
sn_candidate sn_group_choice(const sn_grouping *g, const sn_node *dot);
/* A constant right factor is packed once; a oneDNN primitive has its own layout. */
bool sn_group_packs(const sn_grouping *g, const sn_node *dot);
/* Whether n may join product k: its epilogue can compute it, and it is not better left to the kernel
 * that reduces it; otherwise a square of the product would be stored, too. */
bool sn_group_joins(const sn_grouping *g, const sn_group *k, const sn_node *n);
/* A group of kernel `kernel` on the domain of n, without members; of a product, what is known of it. */
sn_group sn_group_for(const sn_grouping *g, sn_kernel_id kernel, const sn_node *n);

/* ---- fuse_groups.c ---- */

/* row_sums: products may compute sums along their rows. */
sn_grouping *sn_group_entry(sn_passes *p, sn_entry *e, bool row_sums);
/* A new group of kernel `kernel` with n; returns its number. */
int sn_group_add(sn_grouping *g, sn_kernel_id kernel, sn_node *n);

/* ---- fuse_halves.c, row_sums.c: by node id ---- */

/* For the two slices [0, F) and [F, 2F) of a product (or of what is added to it) that its kernel takes
 * as the halves of pairs: that product; NULL for all other nodes. Remarks say why not, where halves
 * meet. */
sn_node **sn_halves_find(const sn_grouping *g);
/* Whether n is a reduction along rows that is faster if a product's epilogue computes a first stage. */
const uint8_t *sn_row_sums_find(const sn_grouping *g);

#endif
