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

/* A region under emission: which nodes have a value already, and on which arguments each depends. All
 * kernels evaluate their regions with it. They emit a region in stages, so that what does not depend on
 * the inner loop stays outside, or value by value (sn_region_at):
 *
 *     sn_region_emit(&r, Q);            all that depends on bits in Q only
 *     loop: sn_region_emit(&r, ~0u);    the rest; result in sn_region_value(&r, 0)
 *           sn_region_forget(&r, K);    forgets the values that depend on a bit in K */
typedef struct sn_region_code sn_region_code;
struct sn_region_code {
    em *e;
    const sn_region *region;
    sn_order order; /* operands first; a kernel that sets it may have a node in it twice */
    int **operand;  /* [order.n] of each node: the places of its operands in the order */
    int copies;     /* values of a node that exist side by side, such as elements; 0: one */
    bool *once;     /* [order.n], NULL: none; nodes whose copies are all the same */
    em_val *value;  /* [copies][order.n], NULL: not emitted */
    uint32_t *deps; /* [order.n] union of the operands' */
    uint32_t *slot; /* node id - lowest id -> position in order + 1, 0: not there */
    uint32_t base;
    bool *fixed;  /* [order.n], NULL: none; deps do not follow from the operands' */
    bool *needed; /* [order.n], NULL: all; others are never emitted */
    /* What the kernel emits for node i, such as a read of memory, in register form. NULL: it is a
     * constant, a broadcast or elementwise. The function may be NULL, too. */
    em_val (*leaf)(const sn_region_code *c, int i, int copy);
    void *ctx;
};

/* Prepares region `r` (arguments are set with sn_region_arg or belong to `leaf`). Memory is the
 * module's. */
bool sn_region_begin(sn_region_code *c, em *e, const sn_region *r);
int sn_region_place(const sn_region_code *c, const sn_node *n); /* of n in the order */
/* The value of node i of the order: emits here what it needs and is not there yet. */
em_val sn_region_at(const sn_region_code *c, int i, int copy);
/* The value of scalar argument i, and a set of bits that stand for what it depends on. */
void sn_region_arg(sn_region_code *c, int i, em_val v, uint32_t deps);
/* Emits here every node that has no value yet and depends only on bits in `allowed`. */
void sn_region_emit(sn_region_code *c, uint32_t allowed);
void sn_region_forget(sn_region_code *c, uint32_t bits);   /* ~0u: all values */
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

/* Of a node reduce_sum, reduce_max or reduce_min: its neutral element, a scalar; two partial results
 * combined, where NaN propagates unless it may be ignored; all lanes to one value, in a fixed order. */
em_val sn_reduce_neutral(em *e, const sn_node *reduction);
em_val sn_reduce(em *e, const sn_node *reduction, bool ignores_nan, em_val a, em_val b);
em_val sn_reduce_lanes(em *e, const sn_node *reduction, bool ignores_nan, em_val v);

#endif
