/* region.h: builds a canonical attention node from an expression of one score, found in plain
 * operations or given by callbacks. */
#ifndef SN_RAISE_REGION_H
#define SN_RAISE_REGION_H

#include "passes/raise/index.h"

/* Placeholders for a region's arguments. */
typedef struct sn_score_args {
    sn_node *score;         /* q k without scale */
    sn_node *b, *h, *q, *k; /* i32 */
} sn_score_args;
sn_score_args sn_score_args_make(sn_module *m, sn_dtype t);

/* attention(q [B,H,Tq,d], k [B,Hk,Tk,d], v [B,Hk,Tk,dv]) with the softmax's argument `value`, a
 * scalar expression of the placeholders and of tensors that it reads by gather_nd (or directly, if
 * scalar). A factor that only scales the score becomes the scale attribute, keys that a select
 * hides by -inf the mask region, the rest the score region. The remaining tensors are captured, in
 * an order that depends on them only. Keys and values that were repeated for their query heads are
 * used once. sink [B,H,Tq]: one more term of the
 * divisor; NULL: none. dropped: a node whose {rate}, {stream} and last operand define dropout of the weights;
 * NULL: none. mix: matrices [H,H] of the heads of the scores, which `value` gets mixed, and of the
 * weights, NULL: none; NULL: heads do not mix. */
sn_node *sn_attention_make(sn_node *q, sn_node *k, sn_node *v, const sn_score_args *a,
                           sn_node *value, sn_weights_kind weights, sn_node *sink,
                           const sn_node *dropped, sn_node *const mix[2]);
/* The canonical form of an attention node; factor: of weights that are not a softmax. */
sn_node *sn_attention_canonical(sn_node *n, double factor);

#endif
