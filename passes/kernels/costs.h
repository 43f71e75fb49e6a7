/* costs.h: what fusion weighs against each other, in one place. */
#ifndef SN_COSTS_H
#define SN_COSTS_H

#include "ir/ir.h"

/* In operations on a vector. */
enum {
    SN_COST_SIMPLE = 1,
    SN_COST_DIVISION = 4,     /* a division or a square root, which take many cycles */
    SN_COST_EXPENSIVE = 8,    /* an operation with the flag EXPENSIVE: a polynomial */
    SN_COST_STORE_LOAD = 24,  /* storing a vector and loading it in another kernel */
    SN_COST_KEEP_IN_ROW = 8,  /* storing it in a row buffer in L1 and loading it in a later loop */
    SN_COST_RELATIVE_ROW = 4, /* twice of what loading it from a row of relative biases costs */
};

/* Operations of a contraction in the time that moves a byte. */
enum { SN_OPS_PER_BYTE = 16 };

/* A result that has at most this share of an operand's elements is computed early, to free the operand. */
enum { SN_SMALL_FRACTION = 8 };

/* `auto` takes a library's deterministic implementation that needs at most this share of the native
 * kernel's time. */
#define SN_MAX_RELATIVE_TIME 0.97

static inline bool sn_is_expensive(const sn_node *n) {
    return sn_ops[n->op].flags & SN_OPF_EXPENSIVE;
}

/* The cost of n's operation; otherwise: where it is not expensive. */
static inline int sn_cost_of(const sn_node *n, int otherwise) {
    return sn_is_expensive(n) ? SN_COST_EXPENSIVE : otherwise;
}

#endif
