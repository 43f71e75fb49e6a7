/* 3 SSD layers and 1 sliding-window layer; the SSD layers share one convolution */
#include "layer.h"
enum { ST = 16, WIN = 64 };
static void step(sn_scan_step *s) { /* x: c, b [B, ST], x [B, H, N], dt [B, H]; S [B, H, N, ST] */
    const sn_tensor *A = s->user;
    sn_tensor dt = s->x[3], decay = sn_exp(sn_mul(dt, *A));
    sn_tensor in = sn_einsum("bhn,bs->bhns", sn_mul(s->x[2], sn_expand(dt, -1)), s->x[1]);
    s->next[0] = sn_add(sn_mul(sn_expand(sn_expand(decay, -1), -1), s->carry[0]), in);
    s->y[0] = sn_einsum("bhns,bs->bhn", s->next[0], s->x[0]);
}
static sn_tensor ssd(const ctx *s, sn_tensor x, sn_tensor conv) {
    sn_tensor all = with_past(s, sn_nn_linear(x, "in", D + 2 * ST, 0), "past", 3), u = NULL;
    for (int i = 0; i < 4; i++) {
        sn_tensor term = sn_mul(sn_slice(all, 1, i, s->T), sn_index(conv, 0, i));
        u = u ? sn_add(u, term) : term;
    }
    u = sn_silu(u);
    sn_tensor v = sn_reshape(sn_slice(u, 2, 0, D), s->B, s->T, H, N);
    sn_tensor b = sn_slice(u, 2, D, ST), c = sn_slice(u, 2, D + ST, ST);
    sn_tensor dt = sn_softplus(sn_nn_linear(x, "dt", H, SN_BIAS));
    sn_tensor A = sn_neg(sn_exp(sn_param(s->m, "A_log", SN_F32, H))), S = CARRY(s, "S", H, N, ST);
    sn_scanned r = sn_scan(.carry = {S}, .x = {c, b, v, dt}, .axis = 1, .body = step, .user = &A);
    KEEP(s, S, r.carry[0]);
    sn_tensor y = sn_add(r.y[0], sn_mul(sn_param(s->m, "D", SN_F32, H, 1), v));
    y = sn_mul(sn_reshape(y, s->B, s->T, D), sn_silu(sn_nn_linear(x, "z", D, 0)));
    return sn_nn_linear(sn_nn_rms_norm(y, "norm_y", 1e-5), "out", D, 0);
}
static sn_tensor window(const ctx *s, sn_tensor x) {
    sn_tensor q = heads(sn_nn_linear(x, "q", D, 0), H),
              k = keys(s, heads(sn_nn_linear(x, "k", D, 0), H), "keys");
    sn_tensor v = keys(s, heads(sn_nn_linear(x, "v", D, 0), H), "values");
    sn_tensor a = sn_div(sn_einsum("bhqd,bhkd->bhqk", q, k), sqrt(N));
    a = sn_where(sn_window_mask(s->m, s->T, sn_dim_of(k, 2), WIN), a, -INFINITY);
    return out(sn_einsum("bhqk,bhkd->bhqd", sn_softmax(a, -1), v));
}
static sn_tensor layer(const ctx *s, sn_tensor x) {
    sn_tensor conv = sn_param(s->m, "conv", SN_F32, 4, D + 2 * ST);
    for (int l = 0; l < 4; l++) {
        sn_scope_push(s->m, "l%d", l);
        sn_tensor n = sn_nn_rms_norm(x, "norm", 1e-5);
        x = sn_add(x, l == 2 ? window(s, n) : ssd(s, n, conv));
        sn_scope_pop(s->m);
    }
    return x;
}
