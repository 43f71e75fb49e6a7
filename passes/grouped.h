/* grouped.h: grouped products of primitives. */
#ifndef SN_GROUPED_H
#define SN_GROUPED_H

#include "passes/passes.h"

/* Replaces selections from products, and products with matrices that rows look up, by grouped
 * products. Returns the number of rewrites. */
int sn_group_products(sn_passes *p);

#endif
