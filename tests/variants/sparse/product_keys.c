/* Product-key memory (Lample et al. 2019): of NK^2 values the K whose keys, pairs of half keys, fit best. */
#include "layer.h"
enum { NK = 32, K = 8, M = 2, HALF = 32 };
static sn_tensor layer(const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor q = sn_nn_layer_norm(sn_nn_linear(x, "q", M * 2 * HALF, SN_BIAS), "norm", 1e-5), i, j;
    q = sn_reshape(q, s->B, s->T, M, 2, HALF);
    sn_tensor z = sn_einsum("btmsd,msnd->btmsn", q, sn_param(s->m, "keys", SN_F32, M, 2, NK, HALF));
    sn_tensor top = sn_top_k(z, K, &i); /* [B, T, M, 2, K] */
    sn_tensor sum = sn_add(sn_expand(sn_index(top, 3, 0), 4), sn_expand(sn_index(top, 3, 1), 3));
    sn_tensor row =
        sn_add(sn_mul(sn_expand(sn_index(i, 3, 0), 4), NK), sn_expand(sn_index(i, 3, 1), 3));
    sn_tensor best = sn_top_k(sn_reshape(sum, s->B, s->T, M, K * K), K, &j);
    row = sn_take_along(sn_reshape(row, s->B, s->T, M, K * K), -1, j); /* [B, T, M, K] */
    sn_tensor w = sn_expand(sn_softmax(best, -1), 4);
    sn_tensor v = sn_gather(sn_param(s->m, "values", SN_F32, NK * NK, D), 0, row);
    return sn_sum(sn_mul(w, v), 2, 3);
}
