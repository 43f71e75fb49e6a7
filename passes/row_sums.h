/* row_sums.h: splits reductions along the rows of a product's result into two stages; the product's
 * epilogue computes the first. */
#ifndef SN_ROW_SUMS_H
#define SN_ROW_SUMS_H

#include "passes/fuse_groups.h"

/* Groups the entry; splits reductions along rows of products where the cost model says that it pays
 * and the first stage can join the product's group. */
sn_grouping *sn_group_row_sums(sn_passes *p, sn_entry *e);

#endif
