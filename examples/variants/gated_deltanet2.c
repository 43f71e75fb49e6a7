/* gated_deltanet2.c: a gated delta rule whose erasing and writing have gates of their own, by channel:
 * b says which channels of the key read what is erased, w which channels of the value are written. 2026,
 * "Gated DeltaNet-2". formula: S ← diag(α) S, S ← S + kᵀ (w ∘ v − (b ∘ k) S), y = q S, |k| = |q| = 1 */
#include "recurrent.h"

static void step(sn_scan_step *s) { /* x: q, k, w v, α, b k */
    sn_tensor S = sn_mul(col(s->x[3]), s->carry[0]);
    sn_tensor miss = sn_sub(s->x[2], times_state(s->x[4], S));
    s->next[0] = sn_add(S, sn_mul(col(s->x[1]), row(miss)));
    s->y[0] = times_state(s->x[0], s->next[0]);
}

/* A gate between 0 and 1 for each channel of each head. */
static sn_tensor gate(sn_tensor x, const char *name) {
    return sn_split_heads(sn_sigmoid(sn_nn_linear(x, name, WIDTH, SN_BIAS)), HEADS);
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = convolved(s, x);
    sn_tensor q = sn_mul(unit(p.q), 1 / sqrt(HEAD)), k = unit(p.k);
    sn_tensor rate = sn_exp(sn_param(s->m, "a_log", SN_F32, HEADS, 1, 1));
    sn_tensor f = sn_split_heads(sn_nn_linear(x, "f", WIDTH, SN_BIAS), HEADS);
    sn_tensor y = recur(s, carry_of(s, "state", HEADS, HEAD, HEAD), step, NULL,
                        (sn_tensor[]){q, k, sn_mul(gate(x, "write"), p.v),
                                      sn_exp(sn_neg(sn_mul(rate, sn_softplus(f)))),
                                      sn_mul(gate(x, "erase"), k), NULL});
    return gated_output(y, x);
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend});
}
