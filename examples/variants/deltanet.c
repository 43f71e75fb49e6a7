/* deltanet.c: a carried matrix that each token corrects, without decay: what it stores for the key k
 * moves towards v by the share β. Schlag et al. 2021, "Linear Transformers Are Secretly Fast Weight
 * Programmers"; Yang et al. 2024, "Parallelizing Linear Transformers with the Delta Rule". formula:
 * S ← S + β kᵀ (v − k S), y = q S, |k| = |q| = 1 */
#include "recurrent.h"

static void step(sn_scan_step *s) { /* x: q, k, v, β */
    sn_tensor miss = sn_sub(s->x[2], times_state(s->x[1], s->carry[0]));
    s->next[0] = sn_add(s->carry[0], sn_mul(col(s->x[1]), row(sn_mul(col(s->x[3]), miss))));
    s->y[0] = times_state(s->x[0], s->next[0]);
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = convolved(s, x);
    sn_tensor beta = by_head(sn_sigmoid(sn_nn_linear(x, "beta", HEADS, 0)));
    sn_tensor y = recur(s, carry_of(s, "state", HEADS, HEAD, HEAD), step, NULL,
                        (sn_tensor[]){unit(p.q), unit(p.k), p.v, beta, NULL});
    return gated_output(y, x);
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend});
}
