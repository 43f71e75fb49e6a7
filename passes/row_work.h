/* row_work.h: operations on rows of tensors that a recurrence's kernel can compute. */
#ifndef SN_ROW_WORK_H
#define SN_ROW_WORK_H

#include "ir/ir.h"

/* Elementwise, a sum along the last axis, or what spreads numbers, if the kernel can hold it. */
bool sn_is_row_work(const sn_node *n);
/* Whether the epilogue of a product computes n; in_product: by id, of operands. What is only summed
 * afterwards it leaves to others. */
bool sn_follows_product(const sn_node *n, const bool *in_product, const bool *summed);

#endif
