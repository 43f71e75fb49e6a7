/* row_blocks.h: the loop over rows that a row_blocked node becomes. */
#ifndef SN_PLAN_ROW_BLOCKS_H
#define SN_PLAN_ROW_BLOCKS_H

#include "passes/plan/planner.h"

/* Makes a loop of the steps from `first` on: they compute the body of n, result i into result[i], with
 * buffers from `first_buffer` on created for them. In views of its steps the buffer is the number of an operand or
 * result of the loop, so that a copy may refer to others; at the end sn_row_blocks_bind makes them buffers. */
sn_step *sn_row_blocks_fold(sn_planner *p, sn_node *n, int first, int first_buffer,
                            const sn_view *result);
void sn_row_blocks_bind(const sn_step *loop);

/* A product of rows as a node that adds itself to its last operand, of the same type; a kernel that
 * adds two tensors of that type. */
sn_node *sn_row_blocks_add_product(sn_node *gemm);
sn_node *sn_row_blocks_add(sn_module *m, const sn_view *type);

/* The product whose epilogue computes what `consumer`, a map_reduce node, computes from its operand i,
 * the product's result. Operands: the product's two, then the consumer's others in order. A reduction
 * along rows becomes one over panels. NULL: not possible in an epilogue. */
sn_node *sn_row_blocks_epilogue(sn_node *gemm, const sn_node *consumer, int i);
/* The kernel that computes a reduction along rows [1, M] from those over panels, [M, panels, 1],
 * given as [panels, M]. */
sn_node *sn_row_blocks_end_sums(const sn_node *panels, sn_op op);

/* The first iteration's product that computes result `index` of a loop; NULL: none. */
sn_step *sn_row_blocks_product(const sn_step *whole, int index);

#endif
