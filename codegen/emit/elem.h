/* elem.h: emits scalar IR (elementwise ops and regions) on scalars or vectors. Used by every kernel
 * family that inlines user expressions.
 *
 * Register form of a value: floats in the compute type of `em` whatever their dtype, integers in
 * their own width, bool as i1. Elementwise operations, constants and sums of rows round a float of fewer
 * bits than the compute type to its dtype; products and the running sums of loops keep their
 * accumulators. A value is a scalar or a vector; scalars spread where needed. */
#ifndef SN_ELEM_H
#define SN_ELEM_H

#include "codegen/emit/emit.h"
#include "ir/ir.h"

/* The value of elementwise node `n` for operand values x[0 .. n->n_in-1] in register form. Integer
 * division by zero gives 0; integers wrap. Fails `e->err` on a node that is not elementwise. */
em_val sn_emit_elem(em *e, const sn_node *n, const em_val *x);

/* A float v of the compute type, rounded to t; other types as they are. */
em_val sn_emit_rounded(em *e, sn_dtype t, em_val v);

/* A constant of dtype t in register form, scalar. */
em_val sn_emit_const(em *e, sn_dtype t, double value);

/* An i64 (scalar or vector) as a value of dtype t in register form. */
em_val sn_emit_integer(em *e, sn_dtype t, em_val i);

/* What was loaded by em_load (bool as i8) in register form. */
em_val sn_emit_loaded(em *e, sn_dtype t, em_val v);

/* A region under emission: which nodes have a value already, and on which arguments each depends.
 * Kernels emit it in stages, so that what does not depend on the inner loop stays outside:
 *
 *     sn_region_emit(&r, Q);            all that depends on bits in Q only
 *     loop: sn_region_emit(&r, ~0u);    the rest; result in sn_region_value(&r, 0)
 *           sn_region_forget(&r, K);    forgets the values that depend on a bit in K */
typedef struct sn_region_code sn_region_code;
struct sn_region_code {
    em *e;
    const sn_region *region;
    sn_order order;
    em_val *value;  /* [order.n], NULL: not emitted */
    uint32_t *deps; /* [order.n] union of the operands' */
    uint32_t *slot; /* node id - lowest id -> position in order + 1, 0: not there */
    uint32_t base;
    bool *fixed;  /* [order.n], NULL: none; deps do not follow from the operands' */
    bool *needed; /* [order.n], NULL: all; others are never emitted */
    /* The element that a gather_nd node reads, in register form; index[i] is the i-th index value. The
     * captured tensor is the node's operand 0 (an arg node). Vectors of indices give a vector. */
    em_val (*at)(void *ctx, const sn_node *n, const em_val *index);
    em_val (*dim)(void *ctx, const sn_node *n); /* run-time value of the node's {dim}, i64 */
    void *ctx;
};

/* Prepares region `r` (rank-0 arguments are set with sn_region_arg, others belong to `at`). Memory
 * is the module's. `at` and `dim` may be NULL where the region has no such node. */
bool sn_region_begin(sn_region_code *c, em *e, const sn_region *r);
/* The value of scalar argument i, and a set of bits that stand for what it depends on. */
void sn_region_arg(sn_region_code *c, int i, em_val v, uint32_t deps);
/* Emits here every node that has no value yet and depends only on bits in `allowed`. */
void sn_region_emit(sn_region_code *c, uint32_t allowed);
void sn_region_forget(sn_region_code *c, uint32_t bits);
em_val sn_region_value(const sn_region_code *c, int out);  /* NULL before it is emitted */
uint32_t sn_region_deps(const sn_region_code *c, int out); /* of result `out` */

/* From now on emits only what the n_root nodes need, down to the n_leaf nodes, which get values by
 * sn_region_give before they are used. All of them are nodes of the region. */
void sn_region_only(sn_region_code *c, sn_node *const *root, int n_root, const sn_node *const *leaf,
                    int n_leaf);
void sn_region_give(sn_region_code *c, const sn_node *n, em_val v);
em_val sn_region_node(const sn_region_code *c, const sn_node *n); /* NULL before it is emitted */
uint32_t sn_region_node_deps(const sn_region_code *c, const sn_node *n);
/* Node n is computed elsewhere (a leaf, as above), and stands for `deps`. Before sn_region_arg. */
void sn_region_fix(sn_region_code *c, const sn_node *n, uint32_t deps);
bool sn_region_needs(const sn_region_code *c, const sn_node *n); /* whether n is ever emitted */

#endif
