/* wall_attention.c: each channel of the keys fades by a gate of its own while tokens pass, so that a head
 * forgets in some channels and remembers in others, with a softmax. All exponents are at most 0: no decay
 * overflows. The running sums of the gates' logarithms are cached beside the keys. FLA 2026, "Wall
 * attention". formula: softmax(Σ_n q_in k_jn e^(P_in − P_jn) / √d) v, P = Σ over the tokens of ln gate */
#include "small.h"

#include <math.h>

static sn_tensor faded(const sn_score_ctx *c) {
    return sn_at(c->captured[0], c->b, c->h, c->q, c->k);
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = remember(s, project(x));
    sn_tensor gate = sn_log_sigmoid(sn_nn_linear(x, "gate", WIDTH, SN_BIAS));
    sn_tensor P = sn_cumsum(sn_append_kv(s, sn_split_heads(gate, HEADS), "gates"), 2);
    sn_tensor here = sn_slice(P, 2, s->past, s->T); /* that of the queries */

    sn_tensor age = sn_sub(sn_expand(here, 3), sn_expand(P, 2)); /* [B, HEADS, T, keys, HEAD] */
    sn_tensor pair = sn_mul(sn_mul(sn_expand(p.q, 3), sn_expand(p.k, 2)), sn_exp(sn_min(age, 0)));
    sn_tensor score = sn_mul(sn_sum(pair, -1), 1 / sqrt(HEAD));
    return join(sn_attention(p.q, p.k, p.v, .causal = true, .score = faded, .captured = {score}));
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend});
}
