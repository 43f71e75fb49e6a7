/* path_attention.c: positions by data: each token between a key and a query reflects the key at a direction
 * w of its own. All products of reflections come from one triangular system, without any of them being
 * made. Decoding keeps keys as they are after the last token. Yang et al. 2025, "PaTH attention". There are
 * no positional embeddings. formula: softmax(q_i H_i … H_(j+1) k_j / √d + Σ ln f(l) for j < l ≤ i) v, H =
 * I − β wᵀ w, |w| = 1 */
#include "recurrent.h"

static sn_tensor
reflected(const sn_score_ctx *c) { /* captured: what the reflections take away, Σ ln f */
    sn_tensor here = sn_add(sn_query_key_distance(c), c->k); /* the query's position */
    sn_tensor until = sn_at(c->captured[1], c->b, c->h, here);
    sn_tensor score = sn_sub(c->score, sn_at(c->captured[0], c->b, c->h, c->q, c->k));
    return sn_add(score, sn_sub(until, sn_at(c->captured[1], c->b, c->h, c->k)));
}

static sn_tensor attend(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = project(x);
    sn_tensor w = convolution(s, sn_nn_linear(x, "w", WIDTH, 0), "conv", 1), keys = NULL, k = p.k;
    w = unit(sn_split_heads(w, HEADS));
    sn_tensor beta = by_head(sn_mul(sn_sigmoid(sn_nn_linear(x, "beta", HEADS, SN_BIAS)), 2));
    if (s->capacity) {
        keys = sn_state(s->m, "keys", SN_F32, s->B, HEADS, s->capacity, HEAD);
        k = sn_concat(2, sn_slice(keys, 2, 0, s->past), k);
    }
    /* A key is k − Σ wᵀ c after the tokens so far: c_t = β_t (w_t · k − Σ over s < t of w_t · w_s c_s) */
    sn_tensor along = sn_swap(w, 2, 3), bent = sn_mul(col(beta), w);
    sn_tensor later = sn_strict_mask(s->m, s->T, sn_dim_of(k, 2)); /* w of tokens after the key */
    sn_tensor c = sn_where(later, sn_matmul(bent, sn_swap(k, 2, 3)), 0);
    c = sn_solve_triangular(sn_matmul(bent, along), c, .unit = true); /* [B, HEADS, T, keys] */
    sn_tensor until = sn_causal_mask(s->m, s->T, s->T);
    /* As many columns as there are keys, and a solution between the products: not attention. */
    sn_tensor taken = sn_matmul(sn_where(until, sn_matmul(p.q, along), 0), c);
    sn_tensor bend = sn_accept_unfused(sn_matmul(sn_swap(c, 2, 3), w));
    if (keys) sn_assign(keys, sn_update(keys, sn_sub(k, bend), 0, 0, 0, 0));
    sn_accept_unfused(taken);

    sn_tensor f = sn_log_sigmoid(sn_nn_linear(x, "forget", HEADS, SN_BIAS));
    f = sn_append_kv(s, sn_expand(by_head(f), 3), "forgotten"); /* [B, HEADS, keys, 1] */
    sn_tensor captured[] = {sn_mul(taken, 1 / sqrt(HEAD)), sn_squeeze(sn_cumsum(f, 2), 3)};
    return join(sn_attention(p.q, k, sn_append_kv(s, p.v, "values"), .causal = true,
                             .score = reflected, .captured = {captured[0], captured[1]}));
}

SN_MODEL(m, o) {
    small_model(m, o, &(small){.attend = attend});
}
