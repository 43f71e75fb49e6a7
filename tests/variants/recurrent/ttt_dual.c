/* TTT-linear in its dual form, a chunk of 16 an iteration; T is a multiple of 16 */
#define CHUNKED 16
#define NODECODE
#include "layer.h"
typedef struct inner {
    sn_tensor gain, bias;
} inner;
static sn_tensor norm(const inner *p, sn_tensor y) {
    return sn_add(sn_mul(sn_layer_norm(y, NULL, NULL, 1e-6), p->gain), p->bias);
}
static void step(sn_scan_step *s) { /* x: q, k, v [B, H, 16, N], eta [B, H, 16, 1]; carry: W */
    const inner *p = s->user;
    sn_tensor q = s->x[0], k = s->x[1], W = s->carry[0], g;
    sn_tensor z = sn_matmul(k, W), miss = sn_sub(sn_add(k, norm(p, z)), s->x[2]);
    sn_grad(sn_mul(sn_sum_all(sn_square(miss)), 0.5), 1, &z, &g);
    g = sn_mul(s->x[3], g);
    sn_tensor a =
        sn_where(sn_causal_mask(s->m, CHUNKED, CHUNKED), sn_matmul(q, sn_swap(k, 2, 3)), 0);
    s->y[0] = sn_add(q, norm(p, sn_sub(sn_matmul(q, W), sn_matmul(a, g))));
    s->next[0] = sn_sub(W, sn_matmul(sn_swap(k, 2, 3), g));
}
static sn_tensor chunks(const ctx *s, sn_tensor x, const char *name, int64_t width, int flags) {
    sn_dim C = sn_dim_quot(s->m, s->T, CHUNKED);
    x = sn_reshape(sn_nn_linear(x, name, width, flags), s->B, C, CHUNKED, H, width / H);
    return sn_transpose(x, 0, 3, 1, 2, 4);
}
static sn_tensor layer(const ctx *s, sn_tensor x) {
    sn_tensor q = chunks(s, x, "q", D, 0), k = chunks(s, x, "k", D, 0), v = chunks(s, x, "v", D, 0);
    sn_tensor eta = sn_div(sn_sigmoid(chunks(s, x, "eta", H, SN_BIAS)), N);
    inner p = {sn_param(s->m, "ln.gain", SN_F32, H, 1, N),
               sn_param(s->m, "ln.bias", SN_F32, H, 1, N)};
    sn_tensor W0 = sn_broadcast(sn_param(s->m, "W0", SN_F32, H, N, N), s->B, H, N, N);
    sn_scanned r = sn_scan(.carry = {W0}, .x = {q, k, v, eta}, .axis = 2, .body = step, .user = &p);
    return out(sn_reshape(r.y[0], s->B, H, s->T, N));
}
