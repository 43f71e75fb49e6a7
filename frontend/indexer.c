/* indexer.c: choice of tokens, see indexer.h. */
#include "frontend/indexer.h"
#include "frontend/front.h"

#include <math.h>

enum { ROWS = 8 }; /* queries whose scores exist at a time */

typedef struct ranking {
    sn_tensor k; /* [B, 1, width, Tk] */
    int64_t chosen;
} ranking;

/* A block of queries: x[0] [B, H, R, width], x[1] weights of heads [B, H, R, 1], x[2] positions [B, 1, R]. Their
 * tokens [B, 1, R, chosen]; where there are fewer, the rest lie behind the query. */
static sn_tensor best(sn_module *m, const ranking *r, const sn_tensor *x) {
    sn_tensor score = sn_sum_keep(sn_mul(x[1], sn_relu(sn_matmul(x[0], r->k))), 1), index;
    sn_tensor seen = sn_le(sn_arange(m, SN_I32, sn_dim_of(r->k, 3)), sn_expand(x[2], -1));
    score = sn_pad(sn_where(seen, score, -1e30), 3, 0, r->chosen, -1e30);
    sn_top_k(score, r->chosen, &index);
    return index;
}

/* Whether they are the tokens, [B, 1, R, Tk]. */
static sn_tensor mark(sn_module *m, const ranking *r, const sn_tensor *x) {
    sn_dim B = sn_dim_of(x[0], 0), R = sn_dim_of(x[0], 2), Tk = sn_dim_of(r->k, 3),
           N = sn_dim_add(m, Tk, r->chosen), rows = sn_dim_mul(m, B, R);
    sn_tensor index = best(m, r, x), row = sn_mul(sn_arange(m, SN_I32, rows), N);
    index = sn_add(sn_reshape(index, rows, r->chosen), sn_expand(row, 1));
    sn_tensor one = sn_full(m, SN_F32, 1, sn_dim_mul(m, rows, r->chosen));
    one = sn_scatter_add(one, 0, sn_reshape(index, SN_REST), sn_dim_mul(m, rows, N));
    return sn_gt(sn_slice(sn_reshape(one, B, 1, R, N), 3, 0, Tk), 0);
}

static void mark_block(sn_scan_step *s) {
    s->y[0] = mark(s->m, s->user, s->x);
}

/* x [B, H, T, ..] as blocks of ROWS tokens, the last one filled up: [B, H, C, ROWS, ..]. */
static sn_tensor blocks(sn_tensor x) {
    sn_module *m = sn_module_of(x);
    sn_dim T = sn_dim_of(x, 2), C = sn_dim_quot_up(m, T, ROWS), B = sn_dim_of(x, 0),
           H = sn_dim_of(x, 1);
    x = sn_pad(x, 2, 0, sn_dim_sub(m, sn_dim_mul(m, C, ROWS), T), 0);
    return sn_rank_of(x) > 3 ? sn_reshape(x, B, H, C, ROWS, SN_REST) : sn_reshape(x, B, H, C, ROWS);
}

bool indexer_gathers(const sn_forward_ctx *s) {
    return s->capacity && s->T == 1 && s->B == 1;
}

sn_tensor indexer_choose(const token_indexer *a, const sn_forward_ctx *s, sn_tensor x,
                         sn_tensor latent, indexer_rotate *rotate, const void *user) {
    if (s->documents || s->ranks > 1)
        return sn_module_fail(s->m, SN_ERR_USAGE,
                              "models that choose tokens cannot be trained on sequences of several "
                              "documents, nor on parts of sequences");
    sn_scope_push(s->m, "%s", a->scope);
    sn_tensor q = sn_split_heads(sn_nn_linear(latent, "wq_b", a->heads * a->width, 0), a->heads);
    sn_tensor k = sn_nn_layer_norm(sn_nn_linear(x, "wk", a->width, 0), "k_norm", 1e-6);
    sn_tensor w = sn_expand(sn_swap(sn_nn_linear(x, "weights_proj", a->heads, 0), 1, 2), 3);
    w = sn_mul(w, 1 / sqrt((double)(a->heads * a->width)));
    q = rotate(user, s, q);
    k = sn_append_kv(s, rotate(user, s, sn_expand(k, 1)), "k_cache");
    sn_scope_pop(s->m);
    if (a->chosen >= sn_dim_hi(s->m, sn_dim_of(k, 2))) return NULL; /* all tokens are chosen */
    ranking r = {sn_swap(k, 2, 3), a->chosen};
    sn_tensor pos = sn_expand(sn_broadcast(s->pos, s->B, s->T), 1);
    if (indexer_gathers(s))
        return sn_reshape(best(s->m, &r, (sn_tensor[]){q, w, pos}), 1, a->chosen);
    sn_tensor y;
    if (s->T == 1)
        y = mark(s->m, &r, (sn_tensor[]){q, w, pos});
    else
        y = sn_scan(.x = {blocks(q), blocks(w), blocks(pos)}, .axis = 2, .body = mark_block,
                    .user = &r)
                .y[0];
    return sn_slice(sn_reshape(y, s->B, SN_REST, sn_dim_of(k, 2)), 1, 0, s->T);
}
