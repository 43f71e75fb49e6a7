/* Expert choice (Zhou et al. 2022): each of 8 experts computes the C tokens of the batch that fit it best,
 * C = 2 B T / 8 (capacity factor 2), a size of its own. */
#include "layer.h"
enum { X = 8, F = 256 };
static sn_tensor layer(const sn_forward_ctx *s, sn_tensor x) {
    sn_dim C = sn_symbol(s->m, "C", 1, 64 * CAP / 4), n = sn_dim_mul(s->m, s->B, s->T);
    sn_tensor rows = sn_reshape(x, n, D), index;
    sn_tensor p = sn_softmax(sn_nn_linear(rows, "router", X, 0), -1);
    sn_tensor gate = sn_top_k(sn_swap(p, 0, 1), C, &index); /* [X, C] */
    sn_tensor up = sn_param(s->m, "up", SN_F32, X, F, D),
              down = sn_param(s->m, "down", SN_F32, X, D, F);
    sn_tensor h = sn_gelu(sn_einsum("xcd,xfd->xcf", sn_gather(rows, 0, index), up));
    sn_tensor y = sn_mul(sn_einsum("xcf,xdf->xcd", h, down), sn_expand(gate, 2));
    sn_dim all = sn_dim_mul(s->m, C, X);
    y = sn_scatter_add(sn_reshape(y, all, D), 0, sn_reshape(index, all), n);
    return sn_reshape(y, s->B, s->T, D);
}
