/* softmax_plus_one.c: softmax with 1 added to the sum, so that a head may attend to nothing. It is
 * written in plain operations; the compiler makes one kernel of them. Miller 2023, "Attention is off by
 * one". formula: Σ e^(q k / √d) v / (Σ e^(q k / √d) + 1) */
#include "small.h"

#include <math.h>

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = remember(s, project(x));
    sn_tensor score = sn_div(sn_matmul(p.q, sn_swap(p.k, -1, -2)), sqrt(HEAD));
    sn_tensor seen = sn_causal_mask(s->m, sn_dim_of(p.q, 2), sn_dim_of(p.k, 2));
    sn_tensor weight = sn_where(seen, sn_exp(score), 0);
    sn_tensor sum = sn_add(sn_sum_keep(weight, -1), 1);
    return join(sn_div(sn_matmul(weight, p.v), sum));
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend, .positions = true});
}
