/* retnet.c: retention as a recurrence: a matrix that each head multiplies by a constant of its own for
 * every token. `retention` is the same layer as attention. Sun et al. 2023, "Retentive Network".
 * formula: S ← γ S + kᵀ v, y = q S, γ = 1 − 2^(−5−h), each head normalised, gated */
#include "recurrent.h"

static void step(sn_scan_step *s) { /* x: q, k, v */
    const sn_tensor *gamma = s->user;
    s->next[0] = sn_add(sn_mul(*gamma, s->carry[0]), sn_mul(col(s->x[1]), row(s->x[2])));
    s->y[0] = times_state(s->x[0], s->next[0]);
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = project(x);
    sn_tensor h = sn_iota(s->m, SN_F32, 0, HEADS, 1, 1);
    sn_tensor gamma = sn_exp(sn_log1p(sn_neg(sn_exp2(sn_sub(-5.0, h)))));
    sn_tensor q = sn_rope(sn_mul(p.q, 1 / sqrt(HEAD)), s->pos), k = sn_rope(p.k, s->pos);
    sn_tensor y = recur(s, carry_of(s, "state", HEADS, HEAD, HEAD), step, &gamma,
                        (sn_tensor[]){q, k, p.v, NULL});
    return gated_output(y, x);
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend});
}
