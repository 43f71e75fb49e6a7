/* mlstm.c: the matrix memory of xLSTM, with exponential input gates. A column of ones beside the values
 * sums the keys; a query's result is divided by its product with this sum. The largest exponent so far,
 * m, scales both, so that gates do not overflow; it does not change the result. Beck et al. 2024,
 * "xLSTM". formula: S ← f S + e^i kᵀ [v, 1], [y, n] = q S, h = y / max(|n|, 1), f = sigmoid(x W) */
#include "recurrent.h"

static void step(sn_scan_step *s) { /* x: q, k, [v, 1], decay, share */
    sn_tensor kept = sn_mul(sn_expand(col(s->x[3]), -1), s->carry[0]);
    s->next[0] = sn_add(kept, sn_mul(col(sn_mul(col(s->x[4]), s->x[1])), row(s->x[2])));
    s->y[0] = times_state(s->x[0], s->next[0]);
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = project(x);
    sn_tensor in = by_head(sn_nn_linear(x, "in", HEADS, SN_BIAS)); /* [B, HEADS, T] */
    sn_tensor f = by_head(sn_log_sigmoid(sn_nn_linear(x, "forget", HEADS, SN_BIAS)));
    sn_tensor sum = sn_cumsum(f, 2), past = carry_of(s, "largest", HEADS, 1);
    sn_tensor m = sn_add(sum, sn_max(past, sn_cummax(sn_sub(in, sum), 2)));
    sn_tensor before = sn_concat(2, past, sn_slice(m, 2, 0, sn_dim_sub(s->m, s->T, 1)));
    if (s->capacity) sn_assign(past, sn_slice(m, 2, sn_dim_sub(s->m, s->T, 1), 1));
    sn_tensor decay = sn_exp(sn_sub(sn_add(f, before), m)), share = sn_exp(sn_sub(in, m));
    sn_tensor y =
        recur(s, carry_of(s, "state", HEADS, HEAD, HEAD + 1), step, NULL,
              (sn_tensor[]){p.q, sn_mul(p.k, 1 / sqrt(HEAD)), with_ones(p.v), decay, share, NULL});
    sn_tensor n = sn_max(sn_abs(sn_slice(y, 3, HEAD, 1)), col(sn_exp(sn_neg(m))));
    return gated_output(sn_div(sn_slice(y, 3, 0, HEAD), n), x);
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend});
}
