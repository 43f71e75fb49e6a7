/* encoder_scores.c: what an encoder's scores are besides q k: which keys a query sees, biases by
 * distance (MPNet), and DeBERTa's products with tables of positions. */
#include "frontend/buckets.h"
#include "frontend/encoder_lm.h"

#include <math.h>

/* ---- MPNet ---- */

/* The score with the bias of its distance. */
static sn_tensor add_distance(const sn_score_ctx *c) {
    const encoder_lm *g = c->user;
    const distance_buckets b = {.count = g->buckets, .farthest = 128};
    return sn_add(c->score, sn_at(c->captured[1], distance_bucket(&b, sn_sub(c->k, c->q)), c->h));
}

/* ---- DeBERTa [He et al. 2021a, section 3; 2021b] ---- */

/* The row of the table for every distance q - k, [2 T - 1], from 1 - T up: up to span / 2 one row
 * each, then ever wider ranges up to the distance log_span - 1. */
static sn_tensor relative_rows(const encoder_lm *g, const sn_forward_ctx *s) {
    sn_module *m = s->m;
    sn_dim n = sn_dim_sub(m, sn_dim_mul(m, 2, s->T), 1);
    sn_tensor back = sn_sub(sn_arange(m, SN_I32, n), sn_dim_sub(m, s->T, 1));
    sn_tensor row = back;
    if (g->log_span) {
        double mid = (double)(g->span / 2);
        double per_log = (mid - 1) / log((double)(g->log_span - 1) / mid);
        sn_tensor far = sn_max(sn_cast(sn_abs(back), SN_F64), mid);
        sn_tensor range = sn_mul(sn_log(sn_mul(far, 1 / mid)), per_log);
        range = sn_cast(sn_add(sn_ceil(sn_sub(range, 1e-9)), mid), SN_I32);
        row = sn_where(sn_gt(back, mid), range, sn_where(sn_lt(back, -mid), sn_neg(range), back));
    }
    return sn_min(sn_max(sn_add(row, (double)g->span), 0), (double)(2 * g->span - 1));
}

/* Products of x [B, H, T, d_head] with the positions' keys or queries: [B, H, T, 2 span]. */
static sn_tensor with_positions(const encoder_lm *g, sn_tensor x, sn_tensor relative,
                                const char *map, double scale) {
    sn_tensor p = sn_expand(encoder_linear(relative, map, g->d, true), 0); /* [1, 2 span, d] */
    return sn_mul(sn_matmul(x, sn_swap(sn_split_heads(p, g->heads), 2, 3)), scale);
}

/* captured: lengths; rows of the table; products of queries, or keys, or both, with positions */
static sn_tensor add_relative(const sn_score_ctx *c) {
    const encoder_lm *g = c->user;
    sn_tensor back = sn_add(sn_sub(c->q, c->k), sn_dim_sub(c->m, c->n_k, 1));
    sn_tensor row = sn_at(c->captured[1], back), score = c->score;
    int i = 2;
    if (g->key_to_position) score = sn_add(score, sn_at(c->captured[i++], c->b, c->h, c->q, row));
    if (g->query_to_position) score = sn_add(score, sn_at(c->captured[i], c->b, c->h, c->k, row));
    return score;
}

/* ---- all ---- */

static sn_tensor inside_length(const sn_score_ctx *c) {
    return sn_lt(c->k, sn_at(c->captured[0], c->b));
}

static sn_tensor inside_window(const sn_score_ctx *c) {
    const encoder_lm *g = c->user;
    sn_tensor back = sn_sub(c->q, c->k), side = sn_le(back, (double)(g->window / 2));
    return sn_and(inside_length(c), sn_and(side, sn_ge(back, -(double)(g->window / 2))));
}

static void score_relative(const encoder_lm *g, const sn_forward_ctx *s, sn_tensor relative,
                           sn_attention_args *a) {
    const encoder_names *n = g->names;
    int terms = 1 + g->key_to_position + g->query_to_position, i = 1;
    a->scale = 1 / sqrt((double)(g->d / g->heads * terms));
    if (terms == 1) return;
    a->score = add_relative;
    a->captured[i++] = relative_rows(g, s);
    if (g->key_to_position)
        a->captured[i++] =
            with_positions(g, a->q, relative, g->shares_maps ? n->k : n->relative_k, a->scale);
    if (g->query_to_position)
        a->captured[i] =
            with_positions(g, a->k, relative, g->shares_maps ? n->q : n->relative_q, a->scale);
}

void encoder_score(const encoder_lm *g, const sn_forward_ctx *s, const encoder_shared *shared,
                   bool windowed, sn_attention_args *a) {
    a->user = g;
    a->captured[0] = shared->lengths;
    a->mask = windowed ? inside_window : inside_length;
    if (shared->distances) a->score = add_distance, a->captured[1] = shared->distances;
    if (shared->relative) score_relative(g, s, shared->relative, a);
}

encoder_shared encoder_share(const encoder_lm *g, const sn_forward_ctx *s) {
    const encoder_names *n = g->names;
    encoder_shared shared = {.lengths = sn_input(s->m, "lengths", SN_I32, s->B)};
    if (n->distances) shared.distances = sn_param(s->m, n->distances, SN_F32, g->buckets, g->heads);
    if (!g->relative) return shared;
    sn_tensor table = sn_param(s->m, n->relative, SN_F32, 2 * g->span, g->d);
    shared.relative = g->norms_relative ? encoder_norm(g, table, n->relative_norm) : table;
    return shared;
}
