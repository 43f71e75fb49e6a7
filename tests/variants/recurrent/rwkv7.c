/* RWKV-7 time mix: S <- S (diag(w) - kappa^T (a . kappa)) + v^T k, y = S r^T; token shift by learned mix */
#include "layer.h"
static sn_tensor mix(const ctx *s, sn_tensor x, sn_tensor before, const char *name, int flags) {
    sn_scope_push(s->m, "%s", name);
    sn_tensor mu = sn_param(s->m, "mu", SN_F32, D);
    sn_tensor y = heads(sn_nn_linear(sn_add(x, sn_mul(mu, sn_sub(before, x))), "map", D, flags), H);
    sn_scope_pop(s->m);
    return y;
}
static void step(sn_scan_step *s) { /* x: r, w, k, v, kappa, a */
    sn_tensor r = s->x[0], w = s->x[1], k = s->x[2], v = s->x[3], kappa = s->x[4], a = s->x[5];
    sn_tensor eye =
        sn_cast(sn_eq(sn_iota(s->m, SN_I32, 0, N, N), sn_iota(s->m, SN_I32, 1, N, N)), SN_F32);
    sn_tensor diag = sn_mul(eye, sn_expand(w, -1));
    sn_tensor G = sn_sub(diag, sn_einsum("bhi,bhj->bhij", kappa, sn_mul(a, kappa)));
    s->next[0] = sn_add(sn_matmul(s->carry[0], G), sn_einsum("bhi,bhj->bhij", v, k));
    s->y[0] = sn_squeeze(sn_matmul(s->next[0], sn_expand(r, -1)), -1);
}
static sn_tensor layer(const ctx *s, sn_tensor x) {
    sn_tensor before = sn_slice(with_past(s, x, "past", 1), 1, 0, s->T);
    sn_tensor r = mix(s, x, before, "r", 0), k = mix(s, x, before, "k", 0),
              v = mix(s, x, before, "v", 0);
    sn_tensor a = sn_sigmoid(mix(s, x, before, "a", SN_BIAS));
    sn_tensor w = sn_exp(sn_mul(sn_sigmoid(mix(s, x, before, "w", SN_BIAS)), -exp(-0.5)));
    sn_tensor kappa = sn_mul(k, sn_param(s->m, "xi", SN_F32, H, 1, N));
    kappa = sn_mul(kappa, sn_rsqrt(sn_add(sn_sum_keep(sn_square(kappa), -1), 1e-6)));
    k = sn_mul(k, sn_add(1, sn_mul(sn_sub(a, 1), sn_param(s->m, "alpha", SN_F32, H, 1, N))));
    sn_tensor S = CARRY(s, "S", H, N, N);
    sn_scanned t = sn_scan(.carry = {S}, .x = {r, w, k, v, kappa, a}, .axis = 2, .body = step);
    KEEP(s, S, t.carry[0]);
    sn_tensor bonus = sn_sum_keep(sn_mul(sn_mul(r, k), sn_param(s->m, "rho", SN_F32, H, 1, N)), -1);
    sn_tensor y = sn_add(sn_layer_norm(t.y[0], NULL, NULL, 64e-5), sn_mul(bonus, v));
    return out(sn_mul(y, sn_sigmoid(mix(s, x, before, "g", 0))));
}
