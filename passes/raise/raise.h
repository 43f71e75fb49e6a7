/* raise.h: shared by the raising rules. A rule gets a node whose operands are already raised and
 * returns the composite that it computes, or NULL. */
#ifndef SN_RAISE_H
#define SN_RAISE_H

#include "passes/passes.h"
#include "passes/rules/rules.h"

typedef struct sn_raiser {
    sn_passes *p;
    sn_module *m;
    uint32_t
        *uses; /* [n_uses] by id: users among the nodes that an entry needs, in the one with most */
    uint32_t n_uses;
    const uint32_t
        *users;     /* the same of the nodes of `order`, also of those that come later in it */
    sn_order order; /* the nodes before this round, operands first */
    sn_order *
        of_entry; /* [n_entry] those that each entry needs; a value is shared within an entry only */
    int n_entry;
    void *scratch; /* of attention.c, for all of its matches */
    /* Applies all rules to n nodes by themselves and to what they are computed from, until nothing changes. Whether
     * anything did. For the body of a loop, whose rule is one of them. */
    bool (*raise_nodes)(const struct sn_raiser *outside, int n, sn_node **root);
    sn_node **
        replacement; /* [n_old] by id: what nodes become once the round is over; NULL: themselves */
    uint32_t n_old;  /* nodes before this round */
    bool has_replacement;
    bool for_gradient;
} sn_raiser;

/* Number of users in one entry; 0: created during this pass by the rules themselves. */
static inline uint32_t sn_raise_uses(const sn_raiser *r, const sn_node *n) {
    return n->id < r->n_uses ? r->uses[n->id] : 0;
}

/* y times c and the factors that are not NULL: a rule has taken the others, which y replaces. */
static inline sn_node *sn_raise_times(sn_node *y, int n, sn_node *const *factor, double c) {
    for (int i = 0; i < n; i++)
        if (factor[i]) y = sn_b_binary(SN_OP_mul, y, factor[i]);
    return c == 1 ? y : sn_b_scalar(SN_OP_mul, y, c);
}

#define CODE(name, ...) sn_node *sn_raise_##name(sn_node *n);
#define RAISE(name, ...) sn_node *sn_raise_##name(sn_raiser *r, sn_node *n);
#include "passes/raise/rules.def"
extern sn_rules sn_raise_rules;

/* ---- loop.c ---- */

/* How many nodes with the flag RAISE_LOSS n nodes are computed from, those in bodies of loops
 * included. */
int sn_whole_gradients_below(sn_module *m, int n, sn_node *const *root);

/* ---- attention.c, missed.c ---- */

/* Whether attention is to become one kernel. */
bool sn_raise_wants_attention(const sn_raiser *r);
/* Remarks on what did not become attention below these roots, and on large products. */
void sn_raise_report(sn_raiser *r, int n_root, sn_node *const *root);

/* ---- softmax.c ---- */

/* A softmax or another composite of one operand and an axis. */
sn_node *sn_raise_on_axis(sn_op op, sn_node *x, int axis);
/* factor times the sum of `weights` over one axis, plus `rest`, which may be NULL */
typedef struct sn_raise_sum {
    sn_node *weights, *rest;
    int axis;
    double factor;
} sn_raise_sum;
/* Whether n is such a sum. */
bool sn_raise_sum_of(sn_node *n, sn_raise_sum *s);

#endif
