/* native_sparse_attention.c: each query has three attentions, added with gates: to the mean keys and
 * values of whole blocks, to the keys of its own and the best blocks, and to a window.
 * Yuan et al. 2025, "Native Sparse Attention". formula: g₁ attention(means of blocks) + g₂
 * attention(best blocks) + g₃ attention(window) */
#include "small.h"

enum { BLOCKS = 16, BLOCK = CONTEXT / BLOCKS, CHOSEN = 2, WINDOW = 2 * BLOCK };

static sn_tensor is_past(const sn_score_ctx *c) { /* k: a block, which ends before the query */
    bool rows = sn_rank_of(c->captured[0]) > 1;
    sn_tensor i = rows ? sn_at(c->captured[0], c->b, c->q) : sn_at(c->captured[0], c->q);
    return sn_le(sn_mul(sn_add(c->k, 1), BLOCK), i);
}

static sn_tensor is_chosen(const sn_score_ctx *c) {
    return sn_at(c->captured[0], c->b, c->h, c->q, sn_div(c->k, BLOCK));
}

/* The means of all blocks [B, HEADS, BLOCKS, HEAD]; those without keys are 0. */
static sn_tensor means(const sn_forward_ctx *s, sn_tensor k) {
    k = sn_pad(k, 2, 0, sn_dim_sub(s->m, CONTEXT, sn_dim_of(k, 2)), 0);
    return sn_mean(sn_reshape(k, s->B, HEADS, BLOCKS, BLOCK, HEAD), 3);
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = remember(s, project(x));
    sn_tensor keys = means(s, p.k), y[3], gate[3], index;
    sn_tensor own = sn_expand(sn_div(s->pos, BLOCK), -1); /* [.., T, 1] */
    if (sn_rank_of(s->pos) > 1) own = sn_expand(own, 1);
    sn_tensor past = sn_lt(sn_arange(s->m, SN_I32, BLOCKS), own);
    sn_tensor match = sn_matmul(p.q, sn_swap(keys, 2, 3));
    sn_top_k(sn_where(past, match, -1e30), CHOSEN, &index);
    sn_tensor best = sn_gt(sn_sum(sn_one_hot(index, BLOCKS, SN_F32), 3), 0);
    sn_tensor table = sn_or(sn_and(best, past), sn_eq(sn_arange(s->m, SN_I32, BLOCKS), own));
    y[0] = sn_attention(p.q, keys, means(s, p.v), .mask = is_past, .captured = {s->pos});
    y[1] = sn_attention(p.q, p.k, p.v, .causal = true, .mask = is_chosen, .captured = {table});
    y[2] = sn_attention(p.q, p.k, p.v, .causal = true, .window = WINDOW);
    sn_split(sn_sigmoid(sn_nn_linear(x, "gates", 3 * HEADS, SN_BIAS)), 2, 3, gate);
    for (int i = 0; i < 3; i++) y[i] = sn_mul(y[i], sn_expand(sn_swap(gate[i], 1, 2), 3));
    return join(sn_add(sn_add(y[0], y[1]), y[2]));
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend, .positions = true});
}
