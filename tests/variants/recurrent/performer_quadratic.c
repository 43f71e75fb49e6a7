/* the same, quadratic, in plain operations: (mask . phi(q) phi(k)^T) / sum, times v */
#include "layer.h"
enum { M = 32 };
static sn_tensor phi(const ctx *s, sn_tensor x) {
    x = sn_mul(x, pow(N, -0.25));
    sn_tensor W = sn_param(s->m, "W", SN_F32, M, N);
    sn_tensor e = sn_sub(sn_linear(x, W, NULL), sn_mul(sn_sum_keep(sn_square(x), -1), 0.5));
    return sn_div(sn_exp(e), sqrt(M));
}
static sn_tensor layer(const ctx *s, sn_tensor x) {
    sn_tensor q = phi(s, heads(sn_nn_linear(x, "q", D, 0), H)),
              k = phi(s, heads(sn_nn_linear(x, "k", D, 0), H));
    sn_tensor v = keys(s, heads(sn_nn_linear(x, "v", D, 0), H), "values");
    k = keys(s, k, "keys");
    sn_tensor a = sn_matmul(q, sn_swap(k, 2, 3));
    a = sn_where(sn_causal_mask(s->m, s->T, sn_dim_of(k, 2)), a, 0);
    return out(sn_matmul(sn_div(a, sn_sum_keep(a, -1)), v));
}
