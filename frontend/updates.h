/* updates.h: what the files of optimizers share. Not public. */
#ifndef SN_UPDATES_H
#define SN_UPDATES_H

#include "frontend/front.h"

/* Operations on scalars and tensors of one float type; the second operand is broadcast. */
static inline sn_node *add(sn_node *a, sn_node *b) {
    return sn_b_binary(SN_OP_add, a, b);
}
static inline sn_node *sub(sn_node *a, sn_node *b) {
    return sn_b_binary(SN_OP_sub, a, b);
}
static inline sn_node *mul(sn_node *a, sn_node *b) {
    return sn_b_binary(SN_OP_mul, a, b);
}
static inline sn_node *over(sn_node *a, sn_node *b) {
    return sn_b_binary(SN_OP_div, a, b);
}
static inline sn_node *scale(sn_node *a, double k) {
    return sn_b_scalar(SN_OP_mul, a, k);
}
static inline sn_node *plus(sn_node *a, double k) {
    return sn_b_scalar(SN_OP_add, a, k);
}

/* update_states.c: the state "optimizer.WHAT.NAME"; assigns a state's next value, which it returns. */
sn_node *update_state(const sn_update *u, const char *what);
sn_node *update_next(sn_node *state, sn_node *value);
/* A state that is a vector of n^2 elements; n: the size of an axis of the parameter. */
sn_node *update_square_state(const sn_update *u, const char *what, int axis);
/* The next value state + part (x - state). */
sn_node *update_towards(sn_node *state, sn_node *x, sn_node *part);
/* p (1 - rate decay) */
sn_node *update_decayed(const sn_update *u);

/* The next values of the states m, the mean of g, and v, of g^2, by beta1 and beta2. */
sn_node *update_mean(const sn_update *u, sn_node *g),
    *update_mean_square(const sn_update *u, sn_node *g);
/* Adam's direction for g, whose mean is m [Kingma & Ba 2015, algorithm 1]. */
sn_node *update_adam(const sn_update *u, sn_node *m, sn_node *g);

/* updates_matrix.c */
sn_node *update_muon(const sn_update *u), *update_normuon(const sn_update *u),
    *update_adafactor(const sn_update *u), *update_shampoo(const sn_update *u),
    *update_soap(const sn_update *u);

/* What o makes of a parameter; NULL: there is no such optimizer. */
sn_update_fn update_of(const sn_optimizer *o);
/* The first group that parameter p is in; NULL: none. */
const sn_optimizer_group *update_group(const sn_optimizer *o, const sn_node *p);

#endif
