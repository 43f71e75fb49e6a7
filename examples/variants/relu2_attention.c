/* relu2_attention.c: the squared ReLU of each score, over the number of visible keys, instead of the
 * softmax of the row: many weights are exactly zero. Hua et al. 2022, "Transformer quality in linear
 * time". formula: Σ relu(q k / √d)² v / n */
#include "small.h"

static sn_tensor squared(const sn_score_ctx *c) {
    sn_tensor n = sn_cast(sn_add(sn_query_key_distance(c), sn_add(c->k, 1)), SN_F32);
    return sn_div(sn_square(sn_relu(c->score)), n);
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = remember(s, project(x));
    return join(sn_attention(p.q, p.k, p.v, .causal = true, .weight = squared));
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend, .positions = true});
}
