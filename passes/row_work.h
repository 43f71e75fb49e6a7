/* row_work.h: operations on rows of tensors that a recurrence's kernel can compute. */
#ifndef SN_ROW_WORK_H
#define SN_ROW_WORK_H

#include "ir/ir.h"

/* Whether n spreads numbers along the last axis, one for each row; a constant. */
bool sn_spreads_row(const sn_node *n);
bool sn_spreads_constant(const sn_node *n);
/* A sum along the last axis that is not part of a product's kernel. */
bool sn_sums_row(const sn_node *n);
/* Elementwise, such a sum, or what spreads numbers. */
bool sn_is_row_work(const sn_node *n);
/* Whether the epilogue of a product computes n; in_product: by id, of operands. What is only summed
 * afterwards it leaves to others. */
bool sn_follows_product(const sn_node *n, const bool *in_product, const bool *summed);

#endif
