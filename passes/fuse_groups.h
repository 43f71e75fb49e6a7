/* fuse_groups.h: which primitives share a kernel (fuse_groups.c decides, fuse.c builds
 * the nodes). */
#ifndef SN_FUSE_GROUPS_H
#define SN_FUSE_GROUPS_H

#include "passes/grouping.h"

sn_grouping *sn_group_entry(sn_passes *p, const sn_entry *e);

#endif
