/* product.h: products over tensors become products of matrices: one row axis, one column axis,
 * one contracted axis. */
#ifndef SN_PLAN_PRODUCT_H
#define SN_PLAN_PRODUCT_H

#include "passes/plan/plan.h"

enum { SN_PRODUCT_BATCH = 3 }; /* batch axes that the kernels take */

/* Rewrites the views of a gemm step: in[0] [batch.., M, K], in[1] [batch.., K, N] (a packed one
 * stays), the epilogue's operands, which may keep several axes of rows and of columns (where they
 * repeat or have gaps), and all results [batch.., M, N], or [batch.., M, panels] where they are
 * reductions over panels of columns. Returns the index of an operand whose strides do not allow it
 * (n_in + i: result i), -1: done. */
int sn_product_views(sn_module *m, sn_step *s);
/* Axes of rows that such a view of an operand of the epilogue, or of a result, has. */
int sn_product_row_axes(sn_module *m, const sn_step *s, const sn_view *v);
/* Operand i of a gemm step's epilogue spread over the result, or over the product if it is added
 * before the halves of pairs meet. */
sn_view sn_product_lay(sn_module *m, const sn_step *s, int i);
/* Columns of a gemm step's right factor. */
sn_dim sn_product_columns(sn_module *m, const sn_step *s);
/* Multiplications of a gemm step with such views. */
sn_dim sn_product_work(sn_module *m, const sn_step *s);

/* The shape of the product's result, whatever results the step has; returns the rank. */
int sn_product_shape(const sn_step *s, sn_dim *shape);
/* Is result i the sums (or another reduction) of panels of columns [batch.., M, panels]? */
bool sn_product_sums(const sn_step *s, int i);
/* The order in which the axes of factor 0 or 1 (of pack_b: 0) must be stored so that it is a
 * matrix. order: [SN_MAX_RANK] */
void sn_product_order(sn_module *m, const sn_step *s, int operand, int64_t *order);
/* Index of an operand of a product, matrices by now, that a primitive cannot walk and wants as a
 * copy without gaps; -1: none. */
int sn_product_unfit(const sn_step *s);
/* The same for pack_b: in[0] becomes [K, N]. False: its strides do not allow it. */
bool sn_pack_view(sn_module *m, sn_step *s);

#endif
