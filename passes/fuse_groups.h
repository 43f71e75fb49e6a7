/* fuse_groups.h: which primitives share a kernel (fuse_groups.c decides, fuse.c builds
 * the nodes). */
#ifndef SN_FUSE_GROUPS_H
#define SN_FUSE_GROUPS_H

#include "passes/choice.h"
#include "passes/passes.h"

typedef enum sn_group_kind {
    SN_GROUP_MAP_REDUCE, /* elementwise and row reductions over one domain */
    /* one reduction over axes other than the last, with its elementwise producers */
    SN_GROUP_COLUMN,
    SN_GROUP_GEMM,   /* one product and its epilogue */
    SN_GROUP_SINGLE, /* a primitive with a separate kernel */
} sn_group_kind;

typedef struct sn_group {
    sn_group_kind kind;
    int rank;
    sn_dim domain[SN_MAX_RANK];
    uint32_t origin; /* the composite that all members come from; 0: several or none */
    bool reduces;
    /* > 0: the halves of the product, of this many columns, are combined in the epilogue */
    int64_t pair;
    int64_t swap; /* > 0: columns of a panel are swapped at this distance, so no others can be */
    sn_node **member; /* in topological order */
    int n_member, cap_member;
    int *dep; /* groups that must run before this one (direct) */
    int n_dep, cap_dep;
    uint32_t stamp;
} sn_group;

typedef struct sn_grouping {
    sn_passes *p;
    sn_module *m;
    const sn_entry *entry;
    sn_order order;
    sn_group *group;
    int n_group;
    int *group_of;     /* by node id; -1: none (leaves, views, cheap nodes) */
    uint8_t *cheap;    /* by node id; not 0: recomputed by every user */
    uint8_t *summed;   /* by node id: all users are reductions */
    uint32_t *readers; /* by node id: number of uses */
    sn_node **half_of; /* by node id: for two slices, the product whose halves they are */
    /* by node id: a product whose selected blocks of columns alone are needed, or elementwise
     * work on it before the selection (take_blocks) */
    uint8_t *selected;
    uint32_t n_id, stamp;
} sn_grouping;

sn_grouping *sn_group_entry(sn_passes *p, const sn_entry *e);
/* Whether a kernel's body may contain n in addition to its group's members: leaves without memory,
 * cheap nodes, broadcasts and casts of those. */
bool sn_group_absorbs(const sn_grouping *g, const sn_node *n);
/* How this product is computed. */
sn_candidate sn_group_choice(const sn_grouping *g, const sn_node *dot);
/* A constant right factor is packed once; a oneDNN primitive has its own layout. */
bool sn_group_packs(const sn_grouping *g, const sn_node *dot);
/* May the product's epilogue compute n, if its shape is right? */
bool sn_group_epilogue_may(const sn_grouping *g, const sn_node *dot, const sn_node *n);

#endif
