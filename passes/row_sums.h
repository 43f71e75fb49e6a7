/* row_sums.h: reductions along the rows of a product's result, in two stages of which the first is
 * the work of the product's epilogue. */
#ifndef SN_ROW_SUMS_H
#define SN_ROW_SUMS_H

#include "passes/fuse_groups.h"

/* x, where n reduces x [.., N] over panels of P columns to [.., N / P, 1]; else NULL. */
const sn_node *sn_panel_sum(const sn_node *n);

/* n, which reduces x [.., N] along its rows, over panels: sn_panel_sum's argument; NULL: its rows
 * are not whole panels. */
sn_node *sn_panel_sum_of(const sn_node *n);

/* Groups the entry; reductions along rows of products are in two stages where the cost model says
 * that it pays and the first one is surely in the product's group. */
sn_grouping *sn_group_row_sums(sn_passes *p, sn_entry *e);

#endif
