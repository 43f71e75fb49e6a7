/* weights e^s / (1 + sum e^s), s = q k / sqrt d - slope (i - j) */
#include "layer.h"
static sn_tensor layer(const ctx *s, sn_tensor x) {
    sn_tensor q = heads(sn_nn_linear(x, "q", D, 0), H);
    sn_tensor k = keys(s, heads(sn_nn_linear(x, "k", D, 0), H), "keys");
    sn_tensor v = keys(s, heads(sn_nn_linear(x, "v", D, 0), H), "values");
    sn_dim Tk = sn_dim_of(k, 2);
    sn_tensor i = sn_add(sn_iota(s->m, SN_I32, 0, s->T, 1), sn_dim_tensor(s->m, SN_I32, s->P));
    sn_tensor far = sn_sub(i, sn_arange(s->m, SN_I32, Tk));
    sn_tensor slope = sn_exp2(sn_mul(sn_add(sn_iota(s->m, SN_F32, 0, H, 1, 1), 1), -8.0 / H));
    sn_tensor a = sn_div(sn_matmul(q, sn_swap(k, 2, 3)), sqrt(N));
    a = sn_sub(a, sn_mul(slope, sn_cast(far, SN_F32)));
    a = sn_where(sn_ge(far, 0), a, -INFINITY);
    sn_tensor m = sn_max(sn_amax_keep(a, -1), 0), e = sn_exp(sn_sub(a, m));
    return out(sn_matmul(sn_div(e, sn_add(sn_sum_keep(e, -1), sn_exp(sn_neg(m)))), v));
}
