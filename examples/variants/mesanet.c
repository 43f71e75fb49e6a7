/* mesanet.c: linear attention that solves its own regression: each token inverts the decayed sum A of the
 * keys' products by conjugate gradients, a loop of ROUNDS in the loop over the tokens, and reads the sum of
 * keys and values by the result. von Oswald et al. 2025, "MesaNet".
 * formula: A ← α A + β kᵀ k, B ← α B + β kᵀ v, y = x B, x (A + diag λ) = q, |k| = |q| = 1 */
#include "recurrent.h"

enum { ROUNDS = 30 };
static const double EPS = 1e-5;

/* The identity, which broadcasts as [.., HEAD, HEAD]. */
static sn_tensor identity(sn_module *m) {
    sn_tensor i = sn_iota(m, SN_I32, 0, HEAD, HEAD), j = sn_iota(m, SN_I32, 1, HEAD, HEAD);
    return sn_cast(sn_eq(i, j), SN_F32);
}

static void
improve(sn_scan_step *s) { /* carry: x, what is left of q, direction; user: A + diag λ */
    sn_tensor left = s->carry[1], p = s->carry[2],
              seen = times_state(p, *(const sn_tensor *)s->user);
    sn_tensor size = sn_sum_keep(sn_square(left), -1);
    sn_tensor far = sn_div(size, sn_add(sn_sum_keep(sn_mul(p, seen), -1), EPS));
    s->next[0] = sn_add(s->carry[0], sn_mul(far, p));
    s->next[1] = sn_sub(left, sn_mul(far, seen));
    sn_tensor rest = sn_sum_keep(sn_square(s->next[1]), -1);
    s->next[2] = sn_add(s->next[1], sn_mul(sn_div(rest, sn_add(size, EPS)), p));
}

static void solve(sn_scan_step *s) { /* carry: A; x: q, k, β k, α; user: λ */
    sn_tensor q = s->x[0], ridge = *(const sn_tensor *)s->user, one = identity(s->m);
    sn_tensor kept = sn_mul(sn_expand(col(s->x[3]), -1), s->carry[0]);
    s->next[0] = sn_add(kept, sn_mul(col(s->x[2]), row(s->x[1])));
    sn_tensor A = sn_add(s->next[0], sn_mul(one, row(ridge)));
    sn_tensor x = sn_div(q, sn_sum(sn_mul(A, one), -1)), left = sn_sub(q, times_state(x, A));
    s->y[0] =
        sn_scan(.carry = {x, left, left}, .count = ROUNDS, .body = improve, .user = &A).carry[0];
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = convolved(s, x);
    sn_tensor k = unit(p.k), beta = by_head(sn_sigmoid(sn_nn_linear(x, "beta", HEADS, SN_BIAS)));
    sn_tensor decay = by_head(sn_sigmoid(sn_nn_linear(x, "decay", HEADS, SN_BIAS)));
    sn_tensor ridge = sn_add(sn_softplus(sn_param(s->m, "ridge", SN_F32, HEADS, HEAD)), 0.25);
    sn_tensor written = sn_mul(col(beta), k);
    sn_tensor q = recur(s, carry_of(s, "keys", HEADS, HEAD, HEAD), solve, &ridge,
                        (sn_tensor[]){unit(p.q), k, written, decay, NULL});
    sn_accept_unfused(q); /* each token solves for itself: no product of many */
    sn_tensor y = recur(s, carry_of(s, "values", HEADS, HEAD, HEAD), pair_step, NULL,
                        (sn_tensor[]){q, written, p.v, decay, NULL});
    return gated_output(y, x);
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend});
}
