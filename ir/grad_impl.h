/* grad_impl.h: shared by the gradient rules. One rule per op, named grad_ROW: given a node and the
 * cotangent of its result, it adds each operand's contribution. Promised by ops.def: every ELEM and
 * PRIM without NOGRAD or LEAF has a rule, and every COMP with GRAD. */
#ifndef SN_GRAD_IMPL_H
#define SN_GRAD_IMPL_H

#include "ir/module_impl.h"

typedef struct grad {
    sn_node *n; /* the node */
    sn_node *g; /* its cotangent, with n's type and shape */
    /* by id: the node's gradient is wanted, or lies on a path to a wanted one */
    const uint8_t *needs;
    sn_node **sum;  /* by id: cotangents so far; NULL: zero */
    sn_node **lse;  /* by id of attention: its log-sum-exp, which has a cotangent; else NULL */
    uint32_t count; /* number of ids */
} grad;

/* False: the rule does not handle this node. A composite is then differentiated through its
 * decomposition; for other ops it is an error, which the rule records. */
typedef bool (*grad_fn)(grad *c);

/* Whether operand i needs a contribution. */
bool sn_gr_needs(const grad *c, int i);
/* Adds d, which has operand i's shape, to its cotangent, cast to the operand's type. */
void sn_gr_give(grad *c, int i, sn_node *d);
/* The same for node `to`, below the node's operands; sn_gr_wants: whether it needs one. */
void sn_gr_give_node(grad *c, sn_node *to, sn_node *d);
bool sn_gr_wants(const grad *c, const sn_node *to);

/* Of a node with several results: the cotangent of result i; NULL: zero. */
sn_node *sn_gr_cotangent(const grad *c, int i);
/* A node that stands for a tensor of that type in a region to be. */
sn_node *sn_gr_stand_in(sn_module *m, int rank, const sn_dim *shape, sn_dtype t);
/* x with the axis in reverse order. */
sn_node *sn_gr_reverse(sn_node *x, int axis);

#define ELEM(name, ...) bool grad_##name(grad *c);
#define PRIM(name, ...) bool grad_##name(grad *c);
#define COMP(name, ...) bool grad_##name(grad *c);
#include "ir/ops.def"

/* Shorthands for formulas: two tensors (broadcast), one tensor, a tensor and a number. */
#define OP2(op, a, b) sn_b_binary(SN_OP_##op, a, b)
#define OP1(op, a) sn_b_unary(SN_OP_##op, a)
#define OPC(op, a, number) sn_b_scalar(SN_OP_##op, a, number)

/* A tensor with n's shape filled with a number, of x's type. */
sn_node *sn_gr_fill(const sn_node *x, double value);

#endif
