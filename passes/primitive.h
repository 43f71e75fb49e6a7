/* primitive.h: what oneDNN's primitives can compute. The only place that decides which composites
 * and products fit; used by expand, fuse and choose. */
#ifndef SN_PRIMITIVE_H
#define SN_PRIMITIVE_H

#include "passes/passes.h"

/* Whether primitives are preferred wherever there is one. */
bool sn_primitive_wanted(const sn_passes *p);

/* Whether there is a primitive for this composite. */
bool sn_primitive_fits(const sn_node *comp);

/* A composite as a `primitive` node; NULL: there is none for it. Adds a remark if its kind has a
 * primitive but this one does not fit. */
sn_node *sn_primitive_of(sn_passes *p, sn_node *comp);

/* Whether a primitive can compute this dot. */
bool sn_primitive_dot(const sn_node *dot);
/* Whether n is the product plus a vector over its columns, which the primitive adds. */
bool sn_primitive_bias(const sn_node *dot, const sn_node *n);
/* Whether a primitive can compute this gemm node: an f32 product, plain or with a bias. */
bool sn_primitive_gemm(const sn_node *gemm);

#endif
