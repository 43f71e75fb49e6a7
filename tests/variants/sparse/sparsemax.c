/* Sparsemax attention (Martins & Astudillo 2016): p = max(z - tau, 0), sum p = 1, causal. */
#define DECODE
#include "layer.h"
static sn_tensor sparsemax(sn_tensor z) {
    sn_tensor u = sn_sort(z, -1, true), c = sn_cumsum(u, -1);
    sn_tensor j = sn_add(sn_arange(sn_module_of(z), SN_F32, sn_dim_of(z, -1)), 1);
    sn_tensor inside = sn_gt(sn_add(sn_mul(u, j), 1), c);
    sn_tensor k = sn_sum_keep(sn_cast(inside, SN_F32), -1);
    sn_tensor last = sn_take_along(c, -1, sn_cast(sn_sub(k, 1), SN_I32));
    return sn_relu(sn_sub(z, sn_div(sn_sub(last, 1), k)));
}
static sn_tensor layer(const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor q = heads(x, "q", H, E);
    sn_tensor k = sn_append_kv(s, heads(x, "k", H, E), "keys");
    sn_tensor v = sn_append_kv(s, heads(x, "v", H, E), "values");
    sn_tensor z = sn_div(sn_matmul(q, sn_swap(k, 2, 3)), sqrt(E));
    z = sn_mask_scores(z, sn_causal_mask(s->m, s->T, sn_dim_of(k, 2)));
    return sn_nn_linear(sn_merge_heads(sn_matmul(sparsemax(z), v)), "out", D, 0);
}
