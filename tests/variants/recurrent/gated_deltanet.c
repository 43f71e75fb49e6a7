/* Gated DeltaNet: S <- a S (I - b k k^T) + b v k^T, y = S q; conv1d(4) + SiLU on q, k, v */
#include "layer.h"
static sn_tensor conv(const ctx *s, sn_tensor x, const char *name, int64_t width) {
    sn_scope_push(s->m, "%s", name);
    sn_tensor all = with_past(s, sn_nn_linear(x, "map", width, 0), "past", 3),
              w = sn_param(s->m, "conv", SN_F32, 4, width), y = NULL;
    for (int i = 0; i < 4; i++) {
        sn_tensor term = sn_mul(sn_slice(all, 1, i, s->T), sn_index(w, 0, i));
        y = y ? sn_add(y, term) : term;
    }
    sn_scope_pop(s->m);
    return heads(sn_silu(y), H);
}
static sn_tensor unit(sn_tensor x) {
    return sn_mul(x, sn_rsqrt(sn_add(sn_sum_keep(sn_square(x), -1), 1e-6)));
}
static void step(sn_scan_step *s) { /* x: q, k, v, a, b; S [v, k] as in the formula */
    sn_tensor q = s->x[0], k = s->x[1], v = s->x[2];
    sn_tensor a = sn_expand(sn_expand(s->x[3], -1), -1), b = sn_expand(sn_expand(s->x[4], -1), -1);
    sn_tensor eye =
        sn_cast(sn_eq(sn_iota(s->m, SN_I32, 0, N, N), sn_iota(s->m, SN_I32, 1, N, N)), SN_F32);
    sn_tensor erase = sn_sub(eye, sn_mul(b, sn_einsum("bhi,bhj->bhij", k, k)));
    sn_tensor write = sn_mul(b, sn_einsum("bhi,bhj->bhij", v, k));
    s->next[0] = sn_add(sn_mul(a, sn_matmul(s->carry[0], erase)), write);
    s->y[0] = sn_einsum("bhvk,bhk->bhv", s->next[0], q);
}
static sn_tensor layer(const ctx *s, sn_tensor x) {
    sn_tensor q = unit(conv(s, x, "q", D)), k = unit(conv(s, x, "k", D)), v = conv(s, x, "v", D);
    sn_tensor b = sn_swap(sn_sigmoid(sn_nn_linear(x, "beta", H, 0)), 1, 2);
    sn_tensor rate = sn_exp(sn_param(s->m, "a_log", SN_F32, H));
    sn_tensor a = sn_exp(sn_neg(sn_mul(rate, sn_softplus(sn_nn_linear(x, "dt", H, SN_BIAS)))));
    sn_tensor S = CARRY(s, "S", H, N, N);
    sn_scanned r =
        sn_scan(.carry = {S}, .x = {q, k, v, sn_swap(a, 1, 2), b}, .axis = 2, .body = step);
    KEEP(s, S, r.carry[0]);
    sn_tensor y = sn_rms_norm(r.y[0], sn_param(s->m, "norm", SN_F32, N), 1e-5);
    return out(sn_mul(y, heads(sn_silu(sn_nn_linear(x, "gate", D, 0)), H)));
}
