/* gated_deltanet.c: a carried matrix that each token corrects: what it stores for the key k moves
 * towards v by the share β, after everything has decayed by α. Yang et al. 2024, "Gated Delta
 * Networks". formula: S ← α S + β kᵀ (v − k α S), y = q S, |k| = |q| = 1 */
#include "recurrent.h"

static void step(sn_scan_step *s) { /* x: q, k, v, α, β */
    sn_tensor S = sn_mul(sn_expand(col(s->x[3]), -1), s->carry[0]);
    sn_tensor miss = sn_sub(s->x[2], times_state(s->x[1], S));
    s->next[0] = sn_add(S, sn_mul(col(s->x[1]), row(sn_mul(col(s->x[4]), miss))));
    s->y[0] = times_state(s->x[0], s->next[0]);
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = convolved(s, x);
    sn_tensor beta = by_head(sn_sigmoid(sn_nn_linear(x, "beta", HEADS, 0)));
    sn_tensor dt = by_head(sn_softplus(sn_nn_linear(x, "dt", HEADS, SN_BIAS)));
    sn_tensor a = sn_expand(sn_exp(sn_param(s->m, "a_log", SN_F32, HEADS)), -1);
    sn_tensor y =
        recur(s, carry_of(s, "state", HEADS, HEAD, HEAD), step, NULL,
              (sn_tensor[]){unit(p.q), unit(p.k), p.v, sn_exp(sn_neg(sn_mul(a, dt))), beta, NULL});
    return gated_output(y, x);
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend});
}
