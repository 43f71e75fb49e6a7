/* grouped.h: grouped products of primitives. */
#ifndef SN_GROUPED_H
#define SN_GROUPED_H

#include "passes/passes.h"

/* Replaces selections from products, and products with matrices that rows look up, by grouped
 * products. Returns the number of rewrites. */
int sn_group_products(sn_passes *p);

/* A product, row by row, with matrices that the rows look up, as a grouped product; dot itself if it is
 * something else. Its gradient computes the chosen matrices only, that of the look-up all. */
sn_node *sn_group_lookup(sn_node *dot);

#endif
