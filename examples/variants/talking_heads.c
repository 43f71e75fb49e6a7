/* talking_heads.c: heads exchange scores before the softmax and weights after it, each by a learned
 * matrix [HEADS, HEADS]. It is written in plain operations; the compiler makes one kernel of them.
 * Shazeer et al. 2020, "Talking-heads attention".
 * formula: Σ over g of C[h,g] softmax(Σ over f of A[g,f] q_f k_f / √d) v_h */
#include "small.h"

#include <math.h>

/* The sum over h of w[g,h] x[b,h,q,k]. */
static sn_tensor mix(const sn_forward_ctx *s, const char *name, sn_tensor x) {
    sn_tensor w = sn_param(s->m, name, SN_F32, HEADS, HEADS);
    return sn_einsum("gh,bhqk->bgqk", w, x);
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = remember(s, project(x));
    sn_tensor score = sn_div(sn_matmul(p.q, sn_swap(p.k, -1, -2)), sqrt(HEAD));
    sn_tensor seen = sn_causal_mask(s->m, sn_dim_of(p.q, 2), sn_dim_of(p.k, 2));
    sn_tensor weight = sn_softmax(sn_mask_scores(mix(s, "before", score), seen), -1);
    return join(sn_matmul(mix(s, "after", weight), p.v));
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend, .positions = true});
}
