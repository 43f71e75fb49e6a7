/* TTT-linear: W <- W - eta grad l(W_chunk; k, v), l = |k + LN(k W) - v|^2 / 2, all of a chunk of 16 at the W
 * before the chunk; y = q + LN(q W). The inner gradient by sn_grad. */
#include "layer.h"
enum { CHUNK = 16 };
typedef struct inner {
    sn_tensor gain, bias, past;
} inner;
static sn_tensor f(const inner *p, sn_tensor x, sn_tensor W) { /* x [B, H, N], W [B, H, N, N] */
    sn_tensor y = sn_layer_norm(sn_einsum("bhi,bhij->bhj", x, W), NULL, NULL, 1e-6);
    return sn_add(x, sn_add(sn_mul(y, p->gain), p->bias));
}
static void
step(sn_scan_step *s) { /* x: q, k, v, eta [B, H]; carries: W at the chunk's begin, W now */
    const inner *p = s->user;
    sn_tensor at = sn_add(s->index, p->past), first = sn_eq(sn_mod(at, CHUNK), 0), g;
    sn_tensor base = sn_where(first, s->carry[1], s->carry[0]);
    sn_tensor loss = sn_mul(sn_sum_all(sn_square(sn_sub(f(p, s->x[1], base), s->x[2]))), 0.5);
    sn_grad(loss, 1, &base, &g);
    s->next[0] = base;
    s->next[1] = sn_sub(s->carry[1], sn_mul(sn_expand(sn_expand(s->x[3], -1), -1), g));
    s->y[0] = f(p, s->x[0], s->next[1]);
}
static sn_tensor layer(const ctx *s, sn_tensor x) {
    sn_tensor q = heads(sn_nn_linear(x, "q", D, 0), H), k = heads(sn_nn_linear(x, "k", D, 0), H);
    sn_tensor v = heads(sn_nn_linear(x, "v", D, 0), H);
    sn_tensor eta = sn_div(sn_swap(sn_sigmoid(sn_nn_linear(x, "eta", H, SN_BIAS)), 1, 2), N);
    inner p = {sn_param(s->m, "ln.gain", SN_F32, H, N), sn_param(s->m, "ln.bias", SN_F32, H, N),
               sn_dim_tensor(s->m, SN_I32, s->P)};
    sn_tensor W0 = sn_broadcast(sn_param(s->m, "W0", SN_F32, H, N, N), s->B, H, N, N), a = W0,
              b = W0;
    sn_tensor sa = NULL, sb = NULL;
    if (s->cap) { /* states hold W - W0, because they begin as zeros */
        sa = sn_state(s->m, "a", SN_F32, 1, H, N, N), sb = sn_state(s->m, "b", SN_F32, 1, H, N, N);
        a = sn_add(sa, W0), b = sn_add(sb, W0);
    }
    sn_scanned r =
        sn_scan(.carry = {a, b}, .x = {q, k, v, eta}, .axis = 2, .body = step, .user = &p);
    if (s->cap) {
        sn_assign(sa, sn_sub(r.carry[0], W0));
        sn_assign(sb, sn_sub(r.carry[1], W0));
    }
    return out(r.y[0]);
}
