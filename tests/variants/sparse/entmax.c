/* alpha-entmax, alpha = 1.5, by 25 bisections (Peters et al. 2019): p = max(z/2 - tau, 0)^2, sum p = 1. One
 * Newton step from the (constant) root of the bisection carries the gradient of tau. */
#define DECODE
#include "layer.h"
static sn_tensor excess(sn_tensor x, sn_tensor tau) {
    return sn_relu(sn_sub(x, tau));
}
static sn_tensor entmax(sn_tensor z) {
    sn_tensor x = sn_mul(z, 0.5), lo = sn_sub(sn_amax_keep(x, -1), 1);
    double width = 1;
    for (int i = 0; i < 25; i++) {
        width /= 2;
        sn_tensor mid = sn_add(lo, width);
        lo = sn_where(sn_ge(sn_sum_keep(sn_square(excess(x, mid)), -1), 1), mid, lo);
    }
    lo = sn_stop_gradient(lo);
    sn_tensor r = excess(x, lo);
    sn_tensor over = sn_sub(sn_sum_keep(sn_square(r), -1), 1);
    sn_tensor tau = sn_add(lo, sn_div(over, sn_mul(sn_sum_keep(r, -1), 2)));
    return sn_square(excess(x, tau));
}
static sn_tensor layer(const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor q = heads(x, "q", H, E);
    sn_tensor k = sn_append_kv(s, heads(x, "k", H, E), "keys");
    sn_tensor v = sn_append_kv(s, heads(x, "v", H, E), "values");
    sn_tensor z = sn_div(sn_matmul(q, sn_swap(k, 2, 3)), sqrt(E));
    z = sn_mask_scores(z, sn_causal_mask(s->m, s->T, sn_dim_of(k, 2)));
    return sn_nn_linear(sn_merge_heads(sn_matmul(entmax(z), v)), "out", D, 0);
}
