/* compressed_sparse_attention.c: one softmax over the last tokens and over the CHOSEN entries that an indexer ranks
 * highest, with a sink. An entry stands for two windows of BLOCK tokens that overlap. Blocks of queries rank and gather
 * their entries; log-sum-exps join both parts. DeepSeek-AI 2026, "DeepSeek-V4". formula: softmax over {best entries by
 * Σ_h w_h ReLU(q_h · k), last WINDOW tokens, sink} */
#include "compressed.h"

enum { BLOCK = 4, CHOSEN = 8, INDEX_HEADS = 8, INDEX = HEAD };

/* The best entries, [B, 1, ROWS, CHOSEN], for a block of queries: x[0], weights of their heads, positions. */
static void rank(sn_scan_step *s) {
    const sn_tensor k = *(const sn_tensor *)s->user; /* [B, 1, INDEX, E] */
    sn_tensor match = sn_mul(s->x[1], sn_relu(sn_matmul(s->x[0], k)));
    sn_tensor end = sn_mul(sn_add(sn_arange(s->m, SN_I32, sn_dim_of(k, 3)), 1), BLOCK);
    sn_tensor past = sn_le(end, sn_add(s->x[2], 1)); /* [B, 1, ROWS, E] */
    sn_top_k(sn_where(past, sn_sum_keep(match, 1), -1e30), CHOSEN, &s->y[0]);
}

/* Places of the best closed windows for each token: indices [B, T, CHOSEN]; *closed [B, T, CHOSEN]. */
static sn_tensor choose(const sn_forward_ctx *s, sn_tensor x, sn_tensor *closed) {
    sn_tensor k = compress(s, x, "indexer", BLOCK, INDEX, 2);    /* [B, E, INDEX] */
    k = sn_expand(sn_swap(sn_pad(k, 1, 0, CHOSEN, 0), 1, 2), 1); /* CHOSEN of them at least */
    sn_tensor q = sn_nn_linear(x, "index_query", INDEX_HEADS * INDEX, 0);
    sn_tensor w = sn_expand(sn_swap(sn_nn_linear(x, "index_weight", INDEX_HEADS, 0), 1, 2), 3);
    q = blocks(rotated(sn_split_heads(q, INDEX_HEADS), s->pos));
    sn_tensor pos = blocks(sn_expand(sn_broadcast(s->pos, s->B, s->T), 1));
    sn_scanned r = sn_scan(.x = {q, blocks(w), pos}, .axis = 2, .body = rank, .user = &k);
    sn_tensor index = sn_accept_unfused(r.y[0]); /* a sort is a kernel */
    index = sn_slice(sn_reshape(index, s->B, SN_REST, CHOSEN), 1, 0, s->T);
    *closed = sn_le(sn_mul(sn_add(index, 1), BLOCK), sn_expand(sn_add(s->pos, 1), -1));
    return index;
}

static sn_tensor is_closed(const sn_score_ctx *c) {
    return sn_at(c->captured[0], c->b, c->k);
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor q = queries(s, x, "query"), k = keys(s, x), closed, near, far, y[2];
    sn_tensor entries = compress(s, x, "compressor", BLOCK, HEAD, 2);
    sn_tensor index = choose(s, x, &closed), row = sn_arange(s->m, SN_I32, s->B);
    row = sn_mul(sn_expand(sn_expand(row, 1), 2), sn_dim_of(entries, 1));
    index = sn_min(index, sn_dim_sub(s->m, sn_dim_of(entries, 1), 1)); /* there, if not closed */
    entries = sn_gather(sn_reshape(entries, SN_REST, HEAD), 0, sn_add(index, row));
    sn_dim N = sn_dim_mul(s->m, s->B, s->T); /* each token is a batch: its heads are the queries */
    entries = sn_reshape(entries, N, 1, CHOSEN, HEAD);
    sn_tensor each = sn_reshape(sn_swap(q, 1, 2), N, 1, HEADS, HEAD);
    y[0] = sn_attention(q, k, k, .causal = true, .window = WINDOW, .lse = &near);
    y[1] = sn_attention(each, entries, entries, .mask = is_closed, .lse = &far,
                        .captured = {sn_reshape(closed, N, CHOSEN)});
    y[1] = sn_swap(sn_reshape(y[1], s->B, s->T, HEADS, HEAD), 1, 2);
    far = sn_swap(sn_reshape(far, s->B, s->T, HEADS, 1), 1, 2);
    sn_tensor sink = sn_reshape(sn_param(s->m, "sinks", SN_F32, HEADS), HEADS, 1, 1), part[3];
    sink = sn_broadcast(sink, s->B, HEADS, s->T, 1);
    sn_split(sn_softmax(sn_concat(3, near, far, sink), 3), 3, 3, part);
    return leave(s, sn_add(sn_mul(part[0], y[0]), sn_mul(part[1], y[1])));
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend});
}
