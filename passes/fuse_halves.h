/* fuse_halves.h: products whose halves meet behind them, as the two maps of a gate do. */
#ifndef SN_FUSE_HALVES_H
#define SN_FUSE_HALVES_H

#include "passes/grouping.h"

/* By node id, for the two slices [0, F) and [F, 2F) of a product (or of what is added to it) that
 * its kernel takes as the halves of pairs: that product; NULL for all other nodes. Remarks say why
 * not, where halves meet. */
sn_node **sn_halves_find(const sn_grouping *g);

#endif
