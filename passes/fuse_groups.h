/* fuse_groups.h: which primitives share a kernel (fuse_groups.c decides, fuse.c builds
 * the nodes). */
#ifndef SN_FUSE_GROUPS_H
#define SN_FUSE_GROUPS_H

#include "passes/grouping.h"

/* row_sums: products may compute sums along their rows. */
sn_grouping *sn_group_entry(sn_passes *p, sn_entry *e, bool row_sums);
/* A new group of kernel `kernel` with n; returns its number. */
int sn_group_add(sn_grouping *g, sn_kernel_id kernel, sn_node *n);

#endif
