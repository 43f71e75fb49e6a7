/* Differential attention (Ye et al. 2024): (softmax(q1 k1) - lambda softmax(q2 k2)) v, each head normalised,
 * lambda = exp(a1 b1) - exp(a2 b2) + lambda_init. */
#define DECODE
#include "layer.h"
enum { HALF = E / 2 };
static sn_tensor dot(sn_module *m, const char *a, const char *b) {
    return sn_exp(sn_sum_all(sn_mul(sn_param(m, a, SN_F32, HALF), sn_param(m, b, SN_F32, HALF))));
}
static sn_tensor pairs(const sn_forward_ctx *s, sn_tensor x,
                       const char *name) { /* [B, H, 2, T, HALF] */
    x = sn_reshape(sn_nn_linear(x, name, D, 0), s->B, s->T, H, 2, HALF);
    return sn_transpose(x, 0, 2, 3, 1, 4);
}
static sn_tensor layer(const sn_forward_ctx *s, sn_tensor x) {
    const double start = 0.8 - 0.6 * exp(-0.6);
    sn_tensor lambda = sn_add(sn_sub(dot(s->m, "q1", "k1"), dot(s->m, "q2", "k2")), start);
    sn_tensor q = pairs(s, x, "q"), k = sn_append_kv(s, pairs(s, x, "k"), "keys");
    sn_tensor v = sn_append_kv(s, heads(x, "v", H, E), "values");
    sn_tensor a[2], mask = sn_causal_mask(s->m, s->T, sn_dim_of(k, 3));
    for (int i = 0; i < 2; i++) {
        sn_tensor z = sn_matmul(sn_index(q, 2, i), sn_swap(sn_index(k, 2, i), 2, 3));
        a[i] = sn_softmax(sn_mask_scores(sn_div(z, sqrt(HALF)), mask), -1);
    }
    sn_tensor p = sn_sub(a[0], sn_mul(lambda, a[1]));
    sn_tensor y = sn_rms_norm(sn_matmul(p, v), sn_param(s->m, "norm", SN_F32, E), 1e-5);
    return sn_nn_linear(sn_merge_heads(sn_mul(y, 1 - start)), "out", D, 0);
}
