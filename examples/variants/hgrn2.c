/* hgrn2.c: a gated recurrent network whose state is a matrix: of each row the share f is kept, and the
 * share 1 - f is written, in place of a key. Each layer learns the lower bound β of f.
 * Qin et al. 2024, "HGRN2". formula: S ← f ∘ S + (1 − f)ᵀ v, y = q S, f = β + (1 − β) sigmoid(x W) */
#include "recurrent.h"

static void step(sn_scan_step *s) { /* x: q, 1 - f, v, f */
    s->next[0] = sn_add(sn_mul(col(s->x[3]), s->carry[0]), sn_mul(col(s->x[1]), row(s->x[2])));
    s->y[0] = times_state(s->x[0], s->next[0]);
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor part[3];
    sn_split(sn_nn_linear(x, "qfv", 3 * WIDTH, SN_BIAS), 2, 3, part);
    sn_tensor least = sn_param(s->m, "least", SN_F32, WIDTH);
    sn_tensor f = sn_add(sn_sigmoid(least), sn_mul(sn_sigmoid(sn_neg(least)), sn_sigmoid(part[1])));
    f = sn_split_heads(f, HEADS);
    sn_tensor q = sn_split_heads(sn_silu(part[0]), HEADS), v = sn_split_heads(part[2], HEADS);
    sn_tensor y = recur(s, carry_of(s, "state", HEADS, HEAD, HEAD), step, NULL,
                        (sn_tensor[]){q, sn_sub(1.0, f), v, f, NULL});
    return gated_output(y, x);
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend});
}
