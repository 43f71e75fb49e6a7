/* MoBA (Lu et al. 2025): a query sees its own block causally and the 3 past blocks with the largest q mean(k). */
#define DECODE
#include "layer.h"
enum { BLOCK = 32, N = CAP / BLOCK, TOP = 3 };
static sn_tensor chosen(const sn_score_ctx *c) {
    return sn_at(c->captured[0], c->b, c->h, c->q, sn_div(c->k, BLOCK));
}
static sn_tensor layer(const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor q = heads(x, "q", H, E);
    sn_tensor k = sn_append_kv(s, heads(x, "k", H, E), "keys");
    sn_tensor v = sn_append_kv(s, heads(x, "v", H, E), "values");
    sn_tensor padded = sn_pad(k, 2, 0, sn_dim_sub(s->m, CAP, sn_dim_of(k, 2)), 0);
    sn_tensor mean = sn_mean(sn_reshape(padded, s->B, H, N, BLOCK, E), 3);
    sn_tensor block = sn_arange(s->m, SN_I32, N), own = sn_expand(sn_div(s->pos, BLOCK), -1);
    sn_tensor past = sn_lt(block, own); /* [T, N] */
    sn_tensor gate = sn_where(past, sn_einsum("bhte,bhne->bhtn", q, mean), -1e30);
    sn_tensor third = sn_slice(sn_top_k(gate, TOP, NULL), -1, TOP - 1, 1);
    sn_tensor table = sn_or(sn_and(sn_ge(gate, third), past), sn_eq(block, own));
    sn_tensor y = sn_attention(q, k, v, .causal = true, .mask = chosen, .captured = {table});
    return sn_nn_linear(sn_merge_heads(y), "out", D, 0);
}
