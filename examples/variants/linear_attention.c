/* linear_attention.c: weights f(q) f(k) with f(x) = elu(x) + 1 instead of the softmax. All earlier
 * tokens then fit into a state of fixed size, without a KV cache. A column of ones beside the values gives
 * the sum of the weights. Katharopoulos et al. 2020, "Transformers are RNNs".
 * formula: S ← S + f(k)ᵀ [v, 1], [y, n] = f(q) S, y / n, f(x) = elu(x) + 1 */
#include "recurrent.h"

static sn_tensor feature(sn_tensor x) {
    return sn_where(sn_gt(x, 0), sn_add(x, 1), sn_exp(sn_min(x, 0)));
}

static void step(sn_scan_step *s) { /* x: q, k, [v, 1] */
    s->next[0] = sn_add(s->carry[0], sn_mul(col(s->x[1]), row(s->x[2])));
    s->y[0] = times_state(s->x[0], s->next[0]);
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = project(x);
    sn_tensor y = recur(s, carry_of(s, "state", HEADS, HEAD, HEAD + 1), step, NULL,
                        (sn_tensor[]){feature(p.q), feature(p.k), with_ones(p.v), NULL});
    return join(sn_div(sn_slice(y, 3, 0, HEAD), sn_slice(y, 3, HEAD, 1)));
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend, .positions = true});
}
