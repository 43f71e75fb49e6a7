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
    sn_tensor z = sn_div(sn_matmul(q, sn_swap(k, 3, 4)), sqrt(HALF));
    z = sn_softmax(sn_mask_scores(z, sn_causal_mask(s->m, s->T, sn_dim_of(k, 3))), -1);
    sn_tensor p = sn_sub(sn_index(z, 2, 0), sn_mul(lambda, sn_index(z, 2, 1)));
    sn_tensor y = sn_rms_norm(sn_matmul(p, v), sn_param(s->m, "norm", SN_F32, E), 1e-5);
    return sn_nn_linear(sn_merge_heads(sn_mul(y, 1 - start)), "out", D, 0);
}
