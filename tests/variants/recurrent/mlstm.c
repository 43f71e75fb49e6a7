/* mLSTM: m_t = max(log f + m, log i); C <- f' C + i' v k^T; n <- f' n + i' k; h = C q / max(|n q|, 1) */
#include "layer.h"
static void step(sn_scan_step *s) { /* x: q, k, v, log i, log f; carries: C [v, k], n, m */
    sn_tensor q = s->x[0], k = s->x[1], v = s->x[2], log_i = s->x[3], log_f = s->x[4];
    sn_tensor C = s->carry[0], n = s->carry[1], m = s->carry[2];
    sn_tensor most = sn_max(sn_add(log_f, m), log_i);
    sn_tensor i = sn_expand(sn_exp(sn_sub(log_i, most)), -1);
    sn_tensor f = sn_expand(sn_exp(sn_sub(sn_add(log_f, m), most)), -1);
    s->next[0] = sn_add(sn_mul(sn_expand(f, -1), C),
                        sn_mul(sn_expand(i, -1), sn_einsum("bhv,bhk->bhvk", v, k)));
    s->next[1] = sn_add(sn_mul(f, n), sn_mul(i, k));
    s->next[2] = most;
    sn_tensor by = sn_max(sn_abs(sn_sum_keep(sn_mul(s->next[1], q), -1)), 1);
    s->y[0] = sn_div(sn_einsum("bhvk,bhk->bhv", s->next[0], q), by);
}
static sn_tensor layer(const ctx *s, sn_tensor x) {
    sn_tensor q = heads(sn_nn_linear(x, "q", D, 0), H), v = heads(sn_nn_linear(x, "v", D, 0), H);
    sn_tensor k = sn_div(heads(sn_nn_linear(x, "k", D, 0), H), sqrt(N));
    sn_tensor log_i = sn_swap(sn_nn_linear(x, "i", H, SN_BIAS), 1, 2);
    sn_tensor log_f = sn_swap(sn_log_sigmoid(sn_nn_linear(x, "f", H, SN_BIAS)), 1, 2);
    sn_tensor C = CARRY(s, "C", H, N, N), n = CARRY(s, "n", H, N), m = CARRY(s, "m", H);
    sn_scanned r =
        sn_scan(.carry = {C, n, m}, .x = {q, k, v, log_i, log_f}, .axis = 2, .body = step);
    KEEP(s, C, r.carry[0]);
    KEEP(s, n, r.carry[1]);
    KEEP(s, m, r.carry[2]);
    return out(sn_mul(r.y[0], heads(sn_sigmoid(sn_nn_linear(x, "o", D, SN_BIAS)), H)));
}
