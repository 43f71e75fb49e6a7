/* Based: 2nd-order Taylor linear attention + window-64 softmax, summed */
#include "layer.h"
enum { F = 8, E = 1 + F + F * F };
/* x [B, H, T, F] -> [1, x, x (x) x / sqrt 2] */
static sn_tensor phi(const ctx *s, sn_tensor x) {
    sn_tensor outer = sn_einsum("bhti,bhtj->bhtij", x, x);
    outer = sn_reshape(sn_div(outer, sqrt(2)), s->B, H, s->T, F * F);
    return sn_concat(3, sn_full(s->m, SN_F32, 1, s->B, H, s->T, 1), x, outer);
}
static void step(sn_scan_step *s) {
    sn_tensor q = s->x[0], k = s->x[1], v = s->x[2];
    s->next[0] = sn_add(s->carry[0], sn_einsum("bhe,bhn->bhen", k, v));
    s->next[1] = sn_add(s->carry[1], k);
    s->y[0] =
        sn_div(sn_einsum("bhe,bhen->bhn", q, s->next[0]), sn_sum_keep(sn_mul(q, s->next[1]), -1));
}
static sn_tensor layer(const ctx *s, sn_tensor x) {
    sn_tensor q = heads(sn_nn_linear(x, "q", H * F, 0), H),
              k = heads(sn_nn_linear(x, "k", H * F, 0), H);
    sn_tensor v = heads(sn_nn_linear(x, "v", D, 0), H);
    double c = pow(F, -0.25);
    sn_tensor S = CARRY(s, "S", H, E, N), z = CARRY(s, "z", H, E);
    sn_scanned r = sn_scan(.carry = {S, z}, .x = {phi(s, sn_mul(q, c)), phi(s, sn_mul(k, c)), v},
                           .axis = 2, .body = step);
    KEEP(s, S, r.carry[0]);
    KEEP(s, z, r.carry[1]);
    sn_tensor wq = heads(sn_nn_linear(x, "wq", D, 0), H),
              wk = heads(sn_nn_linear(x, "wk", D, 0), H);
    sn_tensor wv = heads(sn_nn_linear(x, "wv", D, 0), H);
    sn_tensor near =
        sn_attention(wq, keys(s, wk, "keys"), keys(s, wv, "values"), .causal = true, .window = 64);
    return out(sn_add(r.y[0], near));
}
