/* primitive.h: what a library's primitives (oneDNN) can take over. The one place that knows which
 * composites and products fit; expand, fuse and choose ask here. */
#ifndef SN_PRIMITIVE_H
#define SN_PRIMITIVE_H

#include "passes/passes.h"

/* Does the run want primitives wherever there is one? */
bool sn_primitive_wanted(const sn_passes *p);

/* Is there a primitive that computes this composite? */
bool sn_primitive_fits(const sn_node *comp);

/* A composite as one node `primitive`; NULL: there is none for it. A composite whose kind has a
 * primitive that does not fit gets a remark. */
sn_node *sn_primitive_of(sn_passes *p, sn_node *comp);

/* Is this dot a product that a primitive computes? */
bool sn_primitive_dot(const sn_node *dot);
/* Is n the product plus a vector over its columns, which the primitive adds on the way? */
bool sn_primitive_bias(const sn_node *dot, const sn_node *n);
/* Is this gemm node a primitive's work: a product of f32, plain or with a bias? */
bool sn_primitive_gemm(const sn_node *gemm);

#endif
