/* sigmoid_attention.c: an elementwise sigmoid of each score instead of the softmax of the row; the
 * bias -ln n keeps the sum of a query's n weights near one. Ramapuram et al. 2024, "Theory,
 * analysis, and best practices for sigmoid self-attention". */
#include "small.h"

#include <math.h>

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = remember(s, project(x));
    sn_tensor score = sn_div(sn_matmul(p.q, sn_swap(p.k, 2, 3)), sqrt(HEAD));
    /* number of keys visible to each query */
    sn_tensor n = sn_expand(sn_cast(sn_add(s->pos, 1), SN_F32), 1);
    sn_tensor mask = sn_causal_mask(s->m, s->T, sn_dim_of(p.k, 2));
    sn_tensor weight = sn_where(mask, sn_sigmoid(sn_sub(score, sn_log(n))), 0);
    return join(sn_matmul(weight, p.v));
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend, .positions = true});
}
