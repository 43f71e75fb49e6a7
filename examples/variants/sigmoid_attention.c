/* sigmoid_attention.c: an elementwise sigmoid of each score instead of the softmax of the row; the
 * bias -ln n keeps the sum of a query's n weights near one. Ramapuram et al. 2024, "Theory,
 * analysis, and best practices for sigmoid self-attention". formula: Σ sigmoid(q k / √d − ln n) v */
#include "small.h"

static sn_tensor weigh(const sn_score_ctx *c) {
    /* number of keys visible to the query */
    sn_tensor n = sn_cast(sn_add(sn_query_key_distance(c), sn_add(c->k, 1)), SN_F32);
    return sn_sigmoid(sn_sub(c->score, sn_log(n)));
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = remember(s, project(x));
    return join(sn_attention(p.q, p.k, p.v, .causal = true, .weight = weigh));
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend, .positions = true});
}
