/* zero.h: tensors divided among the ranks of data parallelism, for optimizers. Not public. */
#ifndef SN_ZERO_H
#define SN_ZERO_H

#include "ir/ir.h"

#define ZERO_MESH "data" /* the axis of the mesh */

/* Whether a parameter is divided: it has at least a row (of its last axis) for each rank. Others stay
 * whole on every rank. */
bool zero_divides(const sn_node *p, int64_t ranks);
/* The shape of a rank's part: rows, elements of a row. */
void zero_part_shape(const sn_node *p, int64_t ranks, sn_dim shape[2]);
/* The own part of the sum of the ranks' x, which has p's shape. */
sn_node *zero_sum_part(sn_node *x, const sn_node *p, int64_t ranks);
/* The own part of parameter p, with its name. */
sn_node *zero_own_part(sn_node *p, int64_t ranks);
/* The whole of the parts x that the ranks have, with p's shape. */
sn_node *zero_whole(sn_node *x, const sn_node *p, int64_t ranks);
/* sum[i]: the sum of squares of a whole tensor, a gradient of parameter p[i], whose own part is g[i]:
 * rows first, as for a whole tensor. */
void zero_squares(int n, sn_node *const *g, const sn_node *const *p, int64_t ranks, sn_node **sum);

#endif
