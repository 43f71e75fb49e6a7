/* block_top_k.c: each query sees its own block of keys and the CHOSEN past blocks whose mean keys
 * match it best. The choice is a table that the mask reads: the queries that chose a block are
 * computed together. Lu et al. 2025, "MoBA: Mixture of block attention". formula: softmax over
 * keys of the own block and of the best blocks by q · mean(k) */
#include "small.h"

enum { BLOCK = 16, BLOCKS = CONTEXT / BLOCK, CHOSEN = 2 };

static sn_tensor chosen(const sn_score_ctx *c) {
    return sn_at(c->captured[0], c->b, c->h, c->q, sn_div(c->k, BLOCK));
}

/* The mean keys of all blocks [B, HEADS, BLOCKS, HEAD]; those without keys are 0. */
static sn_tensor means(const sn_forward_ctx *s, sn_tensor k) {
    sn_dim free = sn_dim_sub(s->m, CONTEXT, sn_dim_of(k, 2));
    k = sn_pad(k, 2, 0, free, 0);
    return sn_mean(sn_reshape(k, s->B, HEADS, BLOCKS, BLOCK, HEAD), 3);
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = remember(s, project(x));
    sn_tensor score = sn_matmul(p.q, sn_transpose(means(s, p.k), 0, 1, 3, 2)), index;
    sn_tensor own = sn_expand(sn_div(s->pos, BLOCK), -1); /* [.., T, 1] */
    if (sn_rank_of(s->pos) > 1) own = sn_expand(own, 1);
    sn_tensor block = sn_arange(s->m, SN_I32, BLOCKS);
    sn_top_k(sn_where(sn_lt(block, own), score, -1e30), CHOSEN, &index);
    sn_tensor best = sn_gt(sn_sum(sn_one_hot(index, BLOCKS, SN_F32), 3), 0);
    sn_tensor table = sn_or(sn_and(best, sn_lt(block, own)), sn_eq(block, own));
    return join(sn_attention(p.q, p.k, p.v, .causal = true, .mask = chosen, .captured = {table}));
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend, .positions = true});
}
