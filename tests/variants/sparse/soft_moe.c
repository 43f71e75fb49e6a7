/* Soft MoE (Puigcerver et al. 2023): slots are convex sums of tokens, outputs convex sums of slots. */
#include "layer.h"
enum { X = 8, SLOTS = 4, F = 256 };
static sn_tensor unit(sn_tensor x, int axis) {
    return sn_mul(x, sn_rsqrt(sn_add(sn_sum_keep(sn_square(x), axis), 1e-6)));
}
static sn_tensor layer(const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor phi = unit(sn_param(s->m, "phi", SN_F32, D, X * SLOTS), 0);
    sn_tensor z = sn_matmul(unit(x, -1), sn_mul(phi, sn_param(s->m, "scale", SN_F32, 1)));
    sn_tensor in = sn_matmul(sn_swap(sn_softmax(z, 1), 1, 2), x); /* [B, X SLOTS, D] */
    in = sn_reshape(in, s->B, X, SLOTS, D);
    sn_tensor up = sn_param(s->m, "up", SN_F32, X, F, D),
              down = sn_param(s->m, "down", SN_F32, X, D, F);
    sn_tensor y = sn_einsum("bxpf,xdf->bxpd", sn_gelu(sn_einsum("bxpd,xfd->bxpf", in, up)), down);
    return sn_matmul(sn_softmax(z, 2), sn_reshape(y, s->B, X * SLOTS, D));
}
