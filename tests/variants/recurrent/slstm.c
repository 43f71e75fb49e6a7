/* sLSTM: scalar memory, gates see h of the step before through block-diagonal R; exponential input gate */
#include "layer.h"
static void step(sn_scan_step *s) { /* x: W x, [B, H, 4 N]; carries: c, n, m, h */
    const sn_tensor *R = s->user;
    sn_tensor part[4], c = s->carry[0], n = s->carry[1], m = s->carry[2], h = s->carry[3];
    sn_split(sn_add(s->x[0], sn_einsum("bhi,hio->bho", h, *R)), -1, 4, part);
    sn_tensor z = sn_tanh(part[0]), log_i = part[1], log_f = sn_log_sigmoid(part[2]),
              o = sn_sigmoid(part[3]);
    sn_tensor most = sn_max(sn_add(log_f, m), log_i);
    sn_tensor i = sn_exp(sn_sub(log_i, most)), f = sn_exp(sn_sub(sn_add(log_f, m), most));
    s->next[0] = sn_add(sn_mul(f, c), sn_mul(i, z));
    s->next[1] = sn_add(sn_mul(f, n), i);
    s->next[2] = most;
    s->next[3] = sn_mul(o, sn_div(s->next[0], s->next[1]));
    s->y[0] = s->next[3];
}
static sn_tensor layer(const ctx *s, sn_tensor x) {
    sn_tensor R = sn_param(s->m, "R", SN_F32, H, N, 4 * N);
    sn_tensor in = heads(sn_nn_linear(x, "in", 4 * D, SN_BIAS), H);
    sn_tensor c = CARRY(s, "c", H, N), n = CARRY(s, "n", H, N), m = CARRY(s, "m", H, N),
              h = CARRY(s, "h", H, N);
    sn_scanned r = sn_scan(.carry = {c, n, m, h}, .x = {in}, .axis = 2, .body = step, .user = &R);
    KEEP(s, c, r.carry[0]);
    KEEP(s, n, r.carry[1]);
    KEEP(s, m, r.carry[2]);
    KEEP(s, h, r.carry[3]);
    return out(r.y[0]);
}
