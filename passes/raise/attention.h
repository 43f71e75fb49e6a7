/* attention.h: shared by the files that raise attention: the match of two products with a softmax
 * or other weights in between, and the resulting views of q, k, v and the result. */
#ifndef SN_RAISE_ATTENTION_H
#define SN_RAISE_ATTENTION_H

#include "passes/raise/index.h"
#include "passes/raise/raise.h"

enum { MAX_PIECES = 12, MAX_CHAIN = 64 };

typedef enum ra_role { BATCH, GROUP, QUERY } ra_role;

/* A part of a score axis other than the key's; size 1: no variable. */
typedef struct operand_part {
    int axis; /* of the scores */
    sn_dim size;
    sn_node *var;    /* a placeholder until roles are known */
    bool in_k, in_v; /* k or v has it */
    ra_role role;
} operand_part;

typedef struct score_step {
    sn_node *n, *value; /* value: the element's scalar expression */
    sn_index ix[SN_MAX_RANK];
    uint32_t uses; /* in the chain */
} score_step;

/* Heads that mix: the matrices [H,H] of the scores and of the weights, NULL: none; and where the
 * scores' index has the head: (index of `axis` / low) mod size. */
typedef struct ra_mix {
    sn_node *matrix[2];
    int axis;
    sn_dim low, size;
} ra_mix;

typedef struct ra_match {
    sn_raiser *r;
    sn_module *m;
    sn_node *scores, *product; /* first dot, second dot */
    sn_weights_kind kind;
    sn_node *top;     /* the end of the chain: the softmax's operand, or weights not yet divided */
    sn_node *softmax; /* what normalises `top`: softmax, or its division; `top`: nothing does */
    sn_node *lse;     /* logsumexp of `top` over the keys, which reads it, too; NULL: none */
    sn_node *sink;    /* one more term of the rows' sum, with the rank of `top`; NULL: none */
    double factor, outside; /* the weights are `top` times factor; the result has the other one */
    uint32_t more_uses;     /* uses of `top` by its divisor */
    sn_node *dropped;       /* dropout of the weights; NULL: none */
    sn_node *guard;         /* the softmax with 0 for NaN; NULL: none */
    sn_node *weights;       /* the operand of the second dot that contains `softmax` */
    const ra_mix *mix;      /* NULL: heads do not mix */
    int head;               /* the piece of the heads that mix; -1: not known */
    int side;               /* index of that operand */
    int key_axis, q_side;   /* axis of the keys in the scores; operand that is q */
    operand_part piece[MAX_PIECES];
    int n_piece;
    sn_node *key_var;
    score_step chain[MAX_CHAIN];
    int n_chain;
    sn_element *element; /* NULL: indices only */
    uint8_t *above;      /* by id: is_above, once it is known */
    sn_node *score_value;
} ra_match;

/* --- axes.c ----------------------------------------------------------------------------- */

/* For a dot: whether the axis is in the list; the lists of an operand's axes. */
bool ra_is_listed(const sn_attr *a, int64_t axis);
const sn_attr *ra_batch_of(const sn_node *dot, int side);
const sn_attr *ra_contract_of(const sn_node *dot, int side);
/* Axis i of a dot's result: the corresponding axis of each operand, or -1. */
void ra_result_axis(const sn_node *dot, int i, int operand_axis[2]);
/* Whether a dot's result has an axis of run-time size of each factor. */
bool ra_is_square(const sn_node *dot);
/* Whether n repeats its operand along the axis. */
bool ra_repeats(const sn_node *n, int axis);

/* Whether n, a row of numbers for `side` of the product, varies only along axes of the result that
 * are that side's, at their positions. */
bool ra_goes_with(const sn_node *n, const sn_node *dot, int side);

/* --- attention.c -------------------------------------------------------------------------- */

/* What the product becomes if its operand `side` are the weights of attention, whose heads mix
 * (NULL: they do not); NULL: it is something else. */
sn_node *ra_raise_product(sn_raiser *r, sn_node *product, int side, const ra_mix *mix);

/* --- missed.c --------------------------------------------------------------------------------- */

/* Where an operation is in the way: beside the two products, not between them; the number of keys; whether
 * weights are exponentials of scores. */
typedef struct ra_way {
    bool beside, exponential;
    sn_dim keys;
} ra_way;

/* What to write instead of an operation that keeps weights in memory; NULL: there is no other form. */
const char *ra_advice_on(const sn_node *n, const ra_way *w);

/* --- weights.c ---------------------------------------------------------------------------- */

/* What rows of weights are divided by. */
typedef struct ra_rows {
    sn_raise_sum sum; /* of the weights before the division */
    sn_weights_kind kind;
} ra_rows;
/* Whether `inverse` is 1 / the divisor of some weights' rows: 1 / sum, 1 / max(|sum|, 1); the sum
 * may have one more term. */
bool ra_row_divisor(sn_node *inverse, ra_rows *r);
/* Sets what r says: the weights are c times r's over r's divisor. */
void ra_divide_by(ra_match *k, const ra_rows *r, double c);
/* Sets kind, top and softmax of weights w that are not a softmax. */
void ra_plain_weights(ra_match *k, sn_node *w);
/* Whether products of such weights may be attention: neither queries, keys nor values are
 * parameters, as in a perceptron. */
bool ra_may_be_plain(const ra_match *k);
/* Whether attention y with such weights is worth a kernel: they differ from the scores, no captured
 * tensor is a computed number for each pair of query and key, and y is not a perceptron: without a mask
 * or a divisor there are several batches or heads. */
bool ra_is_worth(const sn_node *y);

/* --- views.c ---------------------------------------------------------------------------- */

/* Positions of pieces in the order batch.., head, groups.., query. */
typedef struct ra_order {
    int index[MAX_PIECES];
    int n_outer; /* batch pieces that form B */
    int n_batch, n_group, n_query;
    sn_dim B, Hk, G, Tq;
} ra_order;
ra_order ra_order_pieces(const ra_match *k);

typedef struct ra_operands {
    sn_node *q, *k, *v;
    sn_dim width[SN_MAX_RANK]; /* the axes of v that form dv */
    int n_width;
    sn_dim dv;
} ra_operands;
/* False: there is no such view, or heads and widths are not numbers. w: the weights. */
bool ra_make_operands(const ra_match *k, const ra_order *o, const score_step *w, ra_operands *x);
/* The sink [B,H,Tq], given the indices of the softmax; NULL: there is no such view. */
sn_node *ra_make_sink(const ra_match *k, const ra_order *o, const score_step *softmax);
/* The log-sum-exp of attention, [B,H,Tq,1], in the shape of k->lse; top: the indices of its operand. NULL: not
 * possible. */
sn_node *ra_arrange_lse(const ra_match *k, const ra_order *o, const score_step *top, sn_node *lse);
/* The attention's result y [B,H,Tq,dv] in the shape of the second product; NULL: not possible. */
sn_node *ra_arrange_result(const ra_match *k, const ra_order *o, const score_step *w,
                           const ra_operands *x, sn_node *y);

#endif
