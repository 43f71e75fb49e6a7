/* alpha-entmax, alpha = 1.5 (Peters et al. 2019): p = max(z/2 - tau, 0)^2, sum p = 1. */
#define DECODE
#include "layer.h"
static sn_tensor layer(const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor q = heads(x, "q", H, E);
    sn_tensor k = sn_append_kv(s, heads(x, "k", H, E), "keys");
    sn_tensor v = sn_append_kv(s, heads(x, "v", H, E), "values");
    sn_tensor z = sn_div(sn_matmul(q, sn_swap(k, 2, 3)), sqrt(E));
    z = sn_mask_scores(z, sn_causal_mask(s->m, s->T, sn_dim_of(k, 2)));
    return sn_nn_linear(sn_merge_heads(sn_matmul(sn_entmax(z, -1), v)), "out", D, 0);
}
