/* mamba.c: a selective state-space layer: each channel carries STATE numbers, whose decays and
 * inputs depend on the token. Gu & Dao 2023, "Mamba". formula: h ← e^(−Δ A) h + Δ B x, y = C h + D x */
#include "recurrent.h"

enum { STATE = 16, INNER = 2 * WIDTH, RANK = (WIDTH + 15) / 16 };

static void step(sn_scan_step *s) { /* x: x, Δ of each channel; B, C of the token */
    const sn_tensor *a = s->user;
    sn_tensor dt = col(s->x[1]), in = sn_mul(sn_mul(dt, col(s->x[0])), row(s->x[2]));
    s->next[0] = sn_add(sn_mul(sn_exp(sn_mul(dt, *a)), s->carry[0]), in);
    s->y[0] = sn_sum(sn_mul(s->next[0], row(s->x[3])), -1);
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor gate = sn_silu(sn_nn_linear(x, "gate", INNER, 0));
    sn_tensor u = convolution(s, sn_nn_linear(x, "in", INNER, 0), "conv", 1);
    sn_tensor p = sn_nn_linear(u, "select", RANK + 2 * STATE, 0);
    sn_tensor dt = sn_softplus(sn_nn_linear(sn_slice(p, 2, 0, RANK), "dt", INNER, SN_BIAS));
    sn_tensor a = sn_neg(sn_exp(sn_param(s->m, "a_log", SN_F32, INNER, STATE)));
    sn_tensor h = carry_of(s, "state", INNER, STATE);
    sn_scanned r =
        sn_scan(.carry = {h}, .axis = 1, .body = step, .user = &a,
                .x = {u, dt, sn_slice(p, 2, RANK, STATE), sn_slice(p, 2, RANK + STATE, STATE)});
    if (s->capacity) sn_assign(h, r.carry[0]);
    sn_tensor y = sn_add(r.y[0], sn_mul(u, sn_param(s->m, "skip", SN_F32, INNER)));
    return sn_nn_linear(sn_mul(y, gate), "out", WIDTH, 0);
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend});
}
