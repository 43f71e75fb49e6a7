/* eval_impl.h: internals of the reference evaluator, shared by eval.c (driver, leaves, memory) and
 * eval_prims.c (one function per primitive). */
#ifndef SN_EVAL_IMPL_H
#define SN_EVAL_IMPL_H

#include "ir/ir.h"

/* The evaluation of one node: operands are computed, `out` is to be filled. */
typedef struct eval_call {
    sn_eval *ev;
    const sn_node *n;
    const sn_value *const *in; /* [n->n_in]; a value with several results is an array of them */
    sn_value *out;
} eval_call;

/* Defines a primitive: computes type, shape and elements of c->out from the operands' values and
 * the attributes alone, so that the driver can compare them with infer.c. */
typedef bool (*eval_fn)(eval_call *c);

#define PRIM(name, ...) bool eval_##name(eval_call *c);
#include "ir/ops.def"

/* x as a factor of a product of bf16: rounded to it from f32, subnormal numbers to 0. */
double sn_eval_bf16(double x);
/* Allocates the result: sets type and shape, returns its elements (zero), NULL on error. */
double *sn_eval_alloc(eval_call *c, sn_dtype t, int rank, const int64_t *shape);
/* The result shares the elements of operand 0. */
bool sn_eval_alias(eval_call *c, int rank, const int64_t *shape);
/* Fails the module at the node's source location; returns false. */
bool sn_eval_fail(eval_call *c, sn_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The elements bound to a leaf's name. */
bool sn_eval_leaf(eval_call *c);
/* What stands for a number of type t among a tensor's elements; exact: as in sn_field_number. */
double sn_eval_number(const eval_call *c, sn_dtype t, double x, bool exact);
/* Two elements of type t, or one, by a row of kind ELEM. */
double sn_eval_elem(const eval_call *c, sn_op op, sn_dtype t, double x, double y);
/* The sum of n products of elements of operand 0's type. */
double sn_eval_sum(const eval_call *c, const double *x, const double *y, int64_t n);
/* Whether floats are handles of other numbers. */
bool sn_eval_has_numbers(const eval_call *c);
/* Whether a dot multiplies factors of bf16. */
bool sn_eval_takes_bf16(const eval_call *c);
int64_t sn_eval_dim(const eval_call *c, sn_dim d);
/* Evaluates a region's results, arg: [n_arg] values. They are valid until the next call. */
bool sn_eval_region(eval_call *c, const sn_region *r, sn_value *arg, sn_value *out);
/* The simulated ranks; NULL: none. */
struct sn_comm *sn_eval_comm(const eval_call *c);

#endif
