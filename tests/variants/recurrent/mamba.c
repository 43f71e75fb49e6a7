/* Mamba-1: selective scan, 16 states a channel, softplus of low rank, D skip, gate */
#include "layer.h"
enum { ST = 16, IN = 2 * D, RANK = (D + 15) / 16 };
static void step(sn_scan_step *s) { /* x: delta, u [B, IN]; b, c [B, ST]; carry [B, IN, ST] */
    const sn_tensor *A = s->user;
    sn_tensor delta = sn_expand(s->x[0], 2),
              in = sn_einsum("bi,bs->bis", sn_mul(s->x[0], s->x[1]), s->x[2]);
    s->next[0] = sn_add(sn_mul(sn_exp(sn_mul(delta, *A)), s->carry[0]), in);
    s->y[0] = sn_einsum("bis,bs->bi", s->next[0], s->x[3]);
}
static sn_tensor layer(const ctx *s, sn_tensor x) {
    sn_tensor half[2], y = NULL;
    sn_split(sn_nn_linear(x, "in", 2 * IN, 0), 2, 2, half);
    sn_tensor all = with_past(s, half[0], "past", 3),
              w = sn_param(s->m, "conv.weight", SN_F32, IN, 4);
    for (int i = 0; i < 4; i++) {
        sn_tensor term = sn_mul(sn_slice(all, 1, i, s->T), sn_index(w, 1, i));
        y = y ? sn_add(y, term) : term;
    }
    sn_tensor u = sn_silu(sn_add(y, sn_param(s->m, "conv.bias", SN_F32, IN)));
    sn_tensor p = sn_nn_linear(u, "x", RANK + 2 * ST, 0);
    sn_tensor delta = sn_softplus(sn_nn_linear(sn_slice(p, 2, 0, RANK), "dt", IN, SN_BIAS));
    sn_tensor b = sn_slice(p, 2, RANK, ST), c = sn_slice(p, 2, RANK + ST, ST);
    sn_tensor A = sn_neg(sn_exp(sn_param(s->m, "A_log", SN_F32, IN, ST))),
              h = CARRY(s, "h", IN, ST);
    sn_scanned r =
        sn_scan(.carry = {h}, .x = {delta, u, b, c}, .axis = 1, .body = step, .user = &A);
    KEEP(s, h, r.carry[0]);
    y = sn_add(r.y[0], sn_mul(sn_param(s->m, "D", SN_F32, IN), u));
    return sn_nn_linear(sn_mul(y, sn_silu(half[1])), "out", D, 0);
}
