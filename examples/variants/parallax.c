/* parallax.c: attention corrected by its slope: a second query r says in which direction a head looks
 * beside the weighted average, which is moved by how the values change along it. Both averages are
 * attention, the second with weights p (r · k). 2026, "Parallax".
 * formula: y = Σ p v (1 + Σ p s) − Σ p s v, p = softmax(q k / √d), s = r k */
#include "recurrent.h"

static sn_tensor sloped(const sn_score_ctx *c) { /* captured: log-sum-exp of the scores, r k */
    sn_tensor lse = sn_at(c->captured[0], c->b, c->h, c->q, sn_mul(c->q, 0));
    sn_tensor slope = sn_at(c->captured[1], c->b, c->h, c->q, c->k);
    return sn_mul(sn_exp(sn_sub(c->score, lse)), slope);
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = remember(s, project(x));
    sn_tensor r = sn_split_heads(sn_nn_linear(x, "second", WIDTH, 0), HEADS), lse;
    sn_tensor y = sn_attention(p.q, p.k, p.v, .causal = true, .lse = &lse);
    sn_tensor slope = sn_matmul(r, sn_swap(p.k, 2, 3));
    sn_tensor moved = sn_attention(p.q, p.k, with_ones(p.v), .causal = true, .weight = sloped,
                                   .captured = {lse, slope});
    sn_tensor sum = sn_add(sn_slice(moved, 3, HEAD, 1), 1);
    return join(sn_sub(sn_mul(y, sum), sn_slice(moved, 3, 0, HEAD)));
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend, .positions = true});
}
