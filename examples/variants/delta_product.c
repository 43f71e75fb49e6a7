/* delta_product.c: a delta rule that corrects the carried matrix STEPS times for each token, so that it
 * can rotate and permute its contents. The loop runs over STEPS times as many elements as tokens: the
 * keys, values and rates of a token are consecutive elements. Siems et al. 2025,
 * "DeltaProduct". formula: STEPS times S ← S + β kᵀ (v − k S), then y = q S, |k| = |q| = 1, 0 < β < 2 */
#include "recurrent.h"

enum { STEPS = 2 };

static void step(sn_scan_step *s) { /* x: q, k, v, β */
    sn_tensor S = s->carry[0], miss = sn_sub(s->x[2], times_state(s->x[1], S));
    s->next[0] = sn_add(S, sn_einsum("bhi,bhj->bhij", s->x[1], sn_mul(col(s->x[3]), miss)));
    s->y[0] = times_state(s->x[0], s->next[0]);
}

/* A linear map of x for each correction: [B, STEPS T, width]. */
static sn_tensor each(const sn_forward_ctx *s, sn_tensor x, const char *name, int64_t width) {
    sn_tensor y = sn_nn_linear(x, name, STEPS * width, 0);
    return sn_reshape(y, s->B, sn_dim_mul(s->m, s->T, STEPS), width);
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    sn_dim n = sn_dim_mul(s->m, s->T, STEPS);
    sn_tensor q = unit(sn_split_heads(sn_nn_linear(x, "q", WIDTH, 0), HEADS));
    q = sn_broadcast(sn_expand(q, 3), s->B, HEADS, s->T, STEPS, HEAD); /* the last one counts */
    sn_tensor k = unit(sn_split_heads(each(s, x, "k", WIDTH), HEADS));
    sn_tensor v = sn_split_heads(each(s, x, "v", WIDTH), HEADS);
    sn_tensor beta = by_head(sn_mul(sn_sigmoid(each(s, x, "beta", HEADS)), 2.0));
    sn_tensor y = recur(s, carry_of(s, "state", HEADS, HEAD, HEAD), step, NULL,
                        (sn_tensor[]){sn_reshape(q, s->B, HEADS, n, HEAD), k, v, beta, NULL});
    y = sn_reshape(y, s->B, HEADS, s->T, STEPS, HEAD);
    return gated_output(sn_index(y, 3, STEPS - 1), x);
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend});
}
