/* comba.c: a gated delta rule that erases by a scaled key and reads by a corrected query, as closed-loop
 * control does: the state's feedback has the share b of a head, the output's the share d. Hu et al. 2025,
 * "Comba". formula: p = σ(b) k, S ← α S, S ← S + β kᵀ (v − p S), y = (q − d p) S, |k| = |q| = 1 */
#include "recurrent.h"

static void step(sn_scan_step *s) { /* x: q − d p, k, v, α, β, p */
    sn_tensor S = sn_mul(sn_expand(col(s->x[3]), -1), s->carry[0]);
    sn_tensor miss = sn_sub(s->x[2], times_state(s->x[5], S));
    s->next[0] = sn_add(S, sn_mul(col(s->x[1]), row(sn_mul(col(s->x[4]), miss))));
    s->y[0] = times_state(s->x[0], s->next[0]);
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = convolved(s, x);
    sn_tensor q = sn_mul(unit(p.q), 1 / sqrt(HEAD)), k = unit(p.k);
    sn_tensor erase = sn_mul(sn_sigmoid(sn_param(s->m, "feedback", SN_F32, HEADS, 1, 1)), k);
    q = sn_sub(q, sn_mul(sn_param(s->m, "d", SN_F32, HEADS, 1, 1), erase));
    sn_tensor beta = by_head(sn_sigmoid(sn_nn_linear(x, "beta", HEADS, 0)));
    sn_tensor dt = by_head(sn_softplus(sn_nn_linear(x, "dt", HEADS, SN_BIAS)));
    sn_tensor rate = sn_expand(sn_exp(sn_param(s->m, "a_log", SN_F32, HEADS)), -1);
    sn_tensor y =
        recur(s, carry_of(s, "state", HEADS, HEAD, HEAD), step, NULL,
              (sn_tensor[]){q, k, p.v, sn_exp(sn_neg(sn_mul(rate, dt))), beta, erase, NULL});
    return gated_output(y, x);
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend});
}
