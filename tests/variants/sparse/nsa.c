/* Native sparse attention (Yuan et al. 2025) without its window: keys and values of blocks compressed by an MLP, the
 * 4 complete blocks with the largest weights (summed over the heads of a group) and the own block, gates. */
#define DECODE
#include "layer.h"
enum { BLOCK = 32, N = CAP / BLOCK, TOP = 4, KV = 2, G = H / KV, HID = 64 };
static sn_tensor compress(const sn_forward_ctx *s, sn_tensor x, const char *name) {
    sn_scope_push(s->m, "%s", name);
    x = sn_pad(x, 2, 0, sn_dim_sub(s->m, CAP, sn_dim_of(x, 2)), 0);
    x = sn_add(sn_reshape(x, s->B, KV, N, BLOCK, E), sn_param(s->m, "pos", SN_F32, BLOCK, E));
    x = sn_gelu(sn_nn_linear(sn_reshape(x, s->B, KV, N, BLOCK * E), "fc", HID, SN_BIAS));
    x = sn_nn_linear(x, "proj", E, SN_BIAS);
    sn_scope_pop(s->m);
    return x;
}
static sn_tensor chosen(const sn_score_ctx *c) {
    return sn_at(c->captured[0], c->b, sn_div(c->h, G), c->q, sn_div(c->k, BLOCK));
}
static sn_tensor layer(const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor q = heads(x, "q", H, E), part[2];
    sn_tensor k = sn_append_kv(s, heads(x, "k", KV, E), "keys");
    sn_tensor v = sn_append_kv(s, heads(x, "v", KV, E), "values");
    sn_tensor kc = sn_expand(compress(s, k, "kc"), 2), vc = sn_expand(compress(s, v, "vc"), 2);
    sn_tensor qg = sn_reshape(q, s->B, KV, G, s->T, E), block = sn_arange(s->m, SN_I32, N);
    sn_tensor done = sn_lt(block, sn_expand(sn_div(sn_add(s->pos, 1), BLOCK), -1)); /* [T, N] */
    sn_tensor z = sn_div(sn_matmul(qg, sn_swap(kc, 3, 4)), sqrt(E));
    sn_tensor p = sn_softmax(sn_mask_scores(z, done), -1); /* [B, KV, G, T, N] */
    part[0] = sn_reshape(sn_matmul(p, vc), s->B, H, s->T, E);
    sn_tensor weight = sn_where(done, sn_sum(p, 2), -1); /* [B, KV, T, N] */
    sn_tensor least = sn_slice(sn_top_k(weight, TOP, NULL), -1, TOP - 1, 1);
    sn_tensor own = sn_eq(block, sn_expand(sn_div(s->pos, BLOCK), -1));
    sn_tensor table = sn_or(sn_and(sn_ge(weight, least), done), own);
    part[1] = sn_attention(q, k, v, .causal = true, .mask = chosen, .captured = {table});
    sn_tensor gate = sn_sigmoid(sn_nn_linear(x, "gate", 2 * H, SN_BIAS)), g[2];
    sn_split(sn_expand(sn_swap(gate, 1, 2), 3), 1, 2, g); /* [B, H, T, 1] */
    sn_tensor y = sn_add(sn_mul(g[0], part[0]), sn_mul(g[1], part[1]));
    return sn_nn_linear(sn_merge_heads(y), "out", D, 0);
}
