/* attention.h: shared by the files that raise attention: the match of two products with a softmax
 * in between, and the resulting views of q, k, v and the result. */
#ifndef SN_RAISE_ATTENTION_H
#define SN_RAISE_ATTENTION_H

#include "passes/raise/index.h"
#include "passes/raise/raise.h"

enum { MAX_PIECES = 12, MAX_CHAIN = 64 };

typedef enum ra_role { BATCH, GROUP, QUERY } ra_role;

/* A part of a score axis other than the key's; size 1: no variable. */
typedef struct ra_piece {
    int axis; /* of the scores */
    sn_dim size;
    sn_node *var;    /* a placeholder until roles are known */
    bool in_k, in_v; /* k or v has it */
    ra_role role;
} ra_piece;

typedef struct ra_step {
    sn_node *n, *value; /* value: the element's scalar expression */
    sn_index ix[SN_MAX_RANK];
    uint32_t uses; /* in the chain */
} ra_step;

typedef struct ra_match {
    sn_raiser *r;
    sn_module *m;
    sn_node *scores, *softmax, *product; /* first dot, softmax, second dot */
    sn_node *dropped;                    /* dropout of the weights; NULL: none */
    /* the operand of the second dot that contains the softmax */
    sn_node *weights;
    int side;             /* index of that operand */
    int key_axis, q_side; /* axis of the keys in the scores; operand that is q */
    ra_piece piece[MAX_PIECES];
    int n_piece;
    sn_node *key_var;
    ra_step chain[MAX_CHAIN];
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
/* Whether n repeats its operand along the axis. */
bool ra_repeats(const sn_node *n, int axis);

/* --- views.c ---------------------------------------------------------------------------- */

/* Positions of pieces in the order batch.., head, groups.., query. */
typedef struct ra_order {
    int place[MAX_PIECES];
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
bool ra_make_operands(const ra_match *k, const ra_order *o, const ra_step *w, ra_operands *x);
/* The attention's result y [B,H,Tq,dv] in the shape of the second product; NULL: not possible. */
sn_node *ra_arrange_result(const ra_match *k, const ra_order *o, const ra_step *w,
                           const ra_operands *x, sn_node *y);

#endif
