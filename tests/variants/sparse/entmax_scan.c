/* The same as 14-entmax.c, the 25 bisections as a scan over the widths. */
#define DECODE
#include "layer.h"
static sn_tensor excess(sn_tensor x, sn_tensor tau) {
    return sn_relu(sn_sub(x, tau));
}
static void halve(sn_scan_step *s) {
    sn_tensor x = *(const sn_tensor *)s->user, mid = sn_add(s->carry[0], s->x[0]);
    s->next[0] = sn_where(sn_ge(sn_sum_keep(sn_square(excess(x, mid)), -1), 1), mid, s->carry[0]);
}
static sn_tensor entmax(sn_tensor z) {
    sn_tensor x = sn_mul(z, 0.5), lo = sn_sub(sn_amax_keep(x, -1), 1);
    sn_tensor width = sn_exp2(sn_sub(-1, sn_arange(sn_module_of(z), SN_F32, 25)));
    sn_scanned r = sn_scan(.carry = {lo}, .x = {width}, .axis = 0, .body = halve, .user = &x);
    lo = sn_stop_gradient(r.carry[0]);
    sn_tensor d = excess(x, lo);
    sn_tensor over = sn_sub(sn_sum_keep(sn_square(d), -1), 1);
    sn_tensor tau = sn_add(lo, sn_div(over, sn_mul(sn_sum_keep(d, -1), 2)));
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
