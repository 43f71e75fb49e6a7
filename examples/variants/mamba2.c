/* mamba2.c: a state-space layer: each head carries a matrix that decays by a factor which depends
 * on the token, and all heads share k and q, which are called B and C. A short convolution comes
 * before. Dao & Gu 2024, "Transformers are SSMs".
 * formula: S ← e^(−Δ e^a) S + Bᵀ (Δ x), y = C S + D x */
#include "recurrent.h"

enum { STATE = HEAD };

static void step(sn_scan_step *s) { /* x: C, B, x, decay */
    sn_tensor kept = sn_mul(sn_expand(col(s->x[3]), -1), s->carry[0]);
    s->next[0] = sn_add(kept, sn_mul(col(s->x[1]), row(s->x[2])));
    s->y[0] = times_state(s->x[0], s->next[0]);
}

/* [B, T, STATE] for all heads */
static sn_tensor shared(const sn_forward_ctx *s, sn_tensor x) {
    return sn_broadcast(sn_expand(x, 1), s->B, HEADS, s->T, STATE);
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor in = convolution(s, sn_nn_linear(x, "in", WIDTH + 2 * STATE, 0), "conv", 1);
    sn_tensor u = sn_split_heads(sn_slice(in, 2, 0, WIDTH), HEADS);
    sn_tensor dt = by_head(sn_softplus(sn_nn_linear(x, "dt", HEADS, SN_BIAS)));
    sn_tensor a = sn_expand(sn_exp(sn_param(s->m, "a_log", SN_F32, HEADS)), -1);
    sn_tensor skip = sn_param(s->m, "skip", SN_F32, HEADS, 1, 1);
    sn_tensor k = shared(s, sn_slice(in, 2, WIDTH, STATE)),
              q = shared(s, sn_slice(in, 2, WIDTH + STATE, STATE));
    sn_tensor y =
        recur(s, carry_of(s, "state", HEADS, STATE, HEAD), step, NULL,
              (sn_tensor[]){q, k, sn_mul(u, col(dt)), sn_exp(sn_neg(sn_mul(a, dt))), NULL});
    return gated_output(sn_add(y, sn_mul(skip, u)), x);
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend});
}
