/* differential_attention.c: the difference of two attention maps, as in a differential amplifier:
 * noise common to both cancels. Ye et al. 2024, "Differential transformer". Each head has two
 * queries and two keys of half the width; lambda is learned from four vectors.
 * formula: (softmax(q₁ k₁) − λ softmax(q₂ k₂)) v */
#include "small.h"

#include <math.h>

/* exp of the dot product of rows 2 i and 2 i + 1 */
static sn_tensor exp_dot(sn_tensor rows, int i) {
    return sn_exp(sn_sum_all(sn_mul(sn_index(rows, 0, 2 * i), sn_index(rows, 0, 2 * i + 1))));
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    const double start = 0.8 - 0.6 * exp(-0.3); /* the paper's lambda_init for layer 1 */
    qkv p = remember(s, project(x));
    sn_tensor q[2], k[2];
    sn_split(p.q, 3, 2, q);
    sn_split(p.k, 3, 2, k);
    sn_tensor rows = sn_param(s->m, "lambda", SN_F32, 4, HEAD / 2);
    sn_tensor lambda = sn_sub(exp_dot(rows, 0), exp_dot(rows, 1));
    sn_tensor signal = sn_attention(q[0], k[0], p.v, .causal = true);
    sn_tensor noise = sn_attention(q[1], k[1], p.v, .causal = true);
    sn_tensor y = sn_sub(signal, sn_mul(sn_add(lambda, start), noise));
    return join(sn_mul(sn_nn_rms_norm(y, "head_norm", 1e-5), 1 - start));
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend, .positions = true});
}
