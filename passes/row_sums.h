/* row_sums.h: reductions along the rows of a product's result, in two stages: the product's epilogue
 * computes the first, over panels of columns. */
#ifndef SN_ROW_SUMS_H
#define SN_ROW_SUMS_H

#include "passes/grouping.h"

/* By node id: whether n is a reduction along rows that is faster so, if it can join a product. */
const uint8_t *sn_row_sums_find(const sn_grouping *g);

#endif
