/* grad_impl.h: what the gradient rules share. One rule an op, named grad_ROW: it gets a node and
 * the cotangent of its result, and gives each operand what flows back to it. The promises of
 * ops.def: every ELEM and PRIM without NOGRAD or LEAF has a rule, and every COMP with GRAD. */
#ifndef SN_GRAD_IMPL_H
#define SN_GRAD_IMPL_H

#include "ir/module_impl.h"

typedef struct grad {
    sn_node *n;           /* the node */
    sn_node *g;           /* its cotangent: of n's type and shape */
    const uint8_t *needs; /* by id: the gradient of this node is wanted or on the way */
    sn_node **sum;        /* by id: cotangents so far; NULL: zero */
} grad;

/* False: the rule does not cover this node. A composite is then differentiated through its decomposition; for
 * any other op it is an error, which the rule records. */
typedef bool (*grad_fn)(grad *c);

/* Is anything to be given to operand i? */
bool sn_gr_needs(const grad *c, int i);
/* Adds d, of operand i's shape, to its cotangent; cast to the operand's type. */
void sn_gr_give(grad *c, int i, sn_node *d);

#define ELEM(name, ...) bool grad_##name(grad *c);
#define PRIM(name, ...) bool grad_##name(grad *c);
#define COMP(name, ...) bool grad_##name(grad *c);
#include "ir/ops.def"

/* Short spellings for formulas: two tensors (broadcast), one tensor, a tensor and a number. */
#define OP2(op, a, b) sn_b_binary(SN_OP_##op, a, b)
#define OP1(op, a) sn_b_unary(SN_OP_##op, a)
#define OPC(op, a, number) sn_b_scalar(SN_OP_##op, a, number)

/* n filled with a number, of x's type. */
sn_node *sn_gr_fill(const sn_node *x, double value);

#endif
