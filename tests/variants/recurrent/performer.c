/* Performer FAVOR+: phi(x) = exp(W x - |x|^2 / 2) / sqrt(m), causal, normalised */
#include "layer.h"
enum { M = 32 };
static sn_tensor phi(const ctx *s, sn_tensor x) { /* [B, H, T, N] -> [B, H, T, M] */
    x = sn_mul(x, pow(N, -0.25));
    sn_tensor W = sn_param(s->m, "W", SN_F32, M, N);
    sn_tensor e = sn_sub(sn_linear(x, W, NULL), sn_mul(sn_sum_keep(sn_square(x), -1), 0.5));
    return sn_div(sn_exp(e), sqrt(M));
}
static void step(sn_scan_step *s) {
    s->next[0] = sn_add(s->carry[0], sn_einsum("bhm,bhn->bhmn", s->x[1], s->x[2]));
    s->y[0] = sn_einsum("bhm,bhmn->bhn", s->x[0], s->next[0]);
}
static sn_tensor layer(const ctx *s, sn_tensor x) {
    sn_tensor q = phi(s, heads(sn_nn_linear(x, "q", D, 0), H)),
              k = phi(s, heads(sn_nn_linear(x, "k", D, 0), H));
    sn_tensor v = heads(sn_nn_linear(x, "v", D, 0), H);
    sn_tensor S = CARRY(s, "S", H, M, N), z = CARRY(s, "z", H, 1, M);
    sn_scanned r = sn_scan(.carry = {S}, .x = {q, k, v}, .axis = 2, .body = step);
    sn_tensor sum = sn_add(z, sn_cumsum(k, 2));
    KEEP(s, S, r.carry[0]);
    KEEP(s, z, sn_slice(sum, 2, sn_dim_sub(s->m, s->T, 1), 1));
    return out(sn_div(r.y[0], sn_sum_keep(sn_mul(q, sum), -1)));
}
