/* product.h: products of tensors become products of matrices: one row axis, one column axis, one
 * contracted axis. */
#ifndef SN_PLAN_PRODUCT_H
#define SN_PLAN_PRODUCT_H

#include "passes/plan/plan.h"

enum { SN_PRODUCT_BATCH = 3 }; /* number of batch axes that the kernels support */

/* Rewrites the views of a gemm step: in[0] [batch.., M, K], in[1] [batch.., K, N] (a packed one
 * stays), the epilogue's operands, which may keep several row and column axes (where they repeat or
 * have gaps), and all results [batch.., M, N], or [batch.., M, panels] where they are reductions
 * over panels of columns. Returns the index of an operand whose strides do not allow it (n_in + i:
 * result i); -1: success. */
int sn_product_views(sn_module *m, sn_step *s);
/* Number of row axes of such a view of an epilogue operand or result. */
int sn_product_row_axes(sn_module *m, const sn_step *s, const sn_view *v);
/* Operand i of a gemm step's epilogue broadcast to the result, or to the product if it is added
 * before the halves of pairs are combined. */
sn_view sn_product_broadcast(sn_module *m, const sn_step *s, int i);
/* Columns of a gemm step's right factor. */
sn_dim sn_product_columns(sn_module *m, const sn_step *s);
/* Whether the product is symmetric, X X^T with an epilogue that works element by element: its kernel
 * multiplies the triangle up to the diagonal only. */
bool sn_product_symmetric(sn_module *m, const sn_step *s);
/* Multiply-adds of a gemm step with such views; of a symmetric one the triangle's, if its size is known. */
sn_dim sn_product_work(sn_module *m, const sn_step *s);

/* The shape of the product's result, whatever the step's results; returns the rank. */
int sn_product_shape(const sn_step *s, sn_dim *shape);
/* Whether result i is a reduction over panels of columns [batch.., M, panels]. */
bool sn_product_sums(const sn_step *s, int i);
/* The order in which the axes of factor 0 or 1 (of pack_b: 0) must be stored so that it is a
 * matrix. order: [SN_MAX_RANK] */
void sn_product_order(sn_module *m, const sn_step *s, int operand, int64_t *order);
/* Index of an operand of a product, already a matrix, that a primitive cannot walk and needs as a
 * contiguous copy; -1: none. */
int sn_product_unfit(const sn_step *s);
/* The same for pack_b: in[0] becomes [K, N]. False: its strides do not allow it. */
bool sn_pack_view(sn_module *m, sn_step *s);

#endif
