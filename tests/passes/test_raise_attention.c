/* Raising attention: plain products, masks, biases and softmax in any form and layout become the
 * node, with the same text, that sn_attention with callbacks makes; values are kept. */
#include "tests/support/pass_check.h"
#include "tests/support/raise_check.h"
#include "passes/passes.h"
#include "tests/support/text.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { H = 4, D = 8, HK = 2 };

typedef struct parts {
    sn_module *m;
    sn_dim B, T;
    sn_tensor q, k, v; /* [B,H,T,D]; k and v [B,heads,T,D] */
} parts;

static parts make_parts(sn_module *m, int key_heads) {
    parts p = {.m = m, .B = sn_symbol(m, "B", 1, 8), .T = sn_symbol(m, "T", 1, 64)};
    sn_tensor q = sn_input(m, "q", SN_F32, p.B, p.T, H * D);
    sn_tensor k = sn_input(m, "k", SN_F32, p.B, p.T, key_heads * D);
    sn_tensor v = sn_input(m, "v", SN_F32, p.B, p.T, key_heads * D);
    p.q = sn_split_heads(q, H);
    p.k = sn_split_heads(k, key_heads);
    p.v = sn_split_heads(v, key_heads);
    return p;
}

static sn_tensor scores(const parts *p) {
    return sn_matmul(p->q, sn_swap(p->k, -1, -2));
}

static sn_tensor finish(const parts *p, sn_tensor x) {
    return sn_merge_heads(sn_matmul(sn_softmax(x, -1), p->v));
}

#define SPELLING(name, ...)                                                                        \
    static sn_tensor name(sn_module *m) {                                                          \
        parts p = make_parts(m, H);                                                                \
        __VA_ARGS__                                                                                \
    }
#define ROOT sqrt((double)D)

/* ---- without a mask: position of the scale, forms of softmax ---- */

SPELLING(full_op, return sn_merge_heads(sn_attention(p.q, p.k, p.v));)
SPELLING(full_plain, return finish(&p, sn_mul(scores(&p), 1 / ROOT));)
SPELLING(full_div, return finish(&p, sn_div(scores(&p), ROOT));)
SPELLING(full_sqrt, return finish(&p, sn_div(scores(&p), sn_sqrt(sn_scalar(m, SN_F32, D))));)
SPELLING(full_pow, return finish(&p, sn_mul(scores(&p), sn_pow(sn_scalar(m, SN_F32, D), -0.5)));)
SPELLING(full_q, p.q = sn_mul(p.q, 1 / ROOT); return finish(&p, scores(&p));)
SPELLING(full_both, p.q = sn_div(p.q, sqrt(ROOT)); p.k = sn_div(p.k, sqrt(ROOT));
         return finish(&p, scores(&p));)
SPELLING(full_exp, sn_tensor s = sn_div(scores(&p), ROOT);
         sn_tensor e = sn_exp(sn_sub(s, sn_amax_keep(s, -1)));
         return sn_merge_heads(sn_matmul(sn_div(e, sn_sum_keep(e, -1)), p.v));)
SPELLING(full_einsum, sn_tensor s = sn_div(sn_einsum("bhqd,bhkd->bhqk", p.q, p.k), ROOT);
         return sn_merge_heads(sn_einsum("bhqk,bhkd->bhqd", sn_softmax(s, -1), p.v));)
static sn_tensor full_rows(sn_module *m) { /* heads never move: [B,T,H,D] */
    parts p = make_parts(m, H);
    sn_tensor q = sn_transpose(p.q, 0, 2, 1, 3), k = sn_transpose(p.k, 0, 2, 1, 3);
    sn_tensor v = sn_transpose(p.v, 0, 2, 1, 3);
    sn_tensor s = sn_div(sn_einsum("bqhd,bkhd->bhqk", q, k), ROOT);
    sn_tensor y = sn_einsum("bhqk,bkhd->bqhd", sn_softmax(s, 3), v);
    return sn_reshape(y, p.B, p.T, H * D);
}
static sn_tensor full_keys_first(sn_module *m) { /* scores [B,H,k,q], softmax on axis 2 */
    parts p = make_parts(m, H);
    sn_tensor s = sn_div(sn_matmul(p.k, sn_swap(p.q, 2, 3)), ROOT);
    return sn_merge_heads(sn_matmul(sn_swap(sn_softmax(s, 2), 2, 3), p.v));
}
static sn_tensor full_flat(sn_module *m) { /* batch and heads in one axis, as bmm requires */
    parts p = make_parts(m, H);
    sn_dim BH = sn_dim_mul(m, p.B, H);
    sn_tensor q = sn_reshape(p.q, BH, p.T, D), k = sn_reshape(p.k, BH, p.T, D);
    sn_tensor v = sn_reshape(p.v, BH, p.T, D);
    sn_tensor s = sn_div(sn_matmul(q, sn_swap(k, 1, 2)), ROOT);
    return sn_merge_heads(sn_reshape(sn_matmul(sn_softmax(s, -1), v), p.B, H, p.T, D));
}
static sn_tensor full_middle(sn_module *m) { /* flat products, softmax on four axes */
    parts p = make_parts(m, H);
    sn_dim BH = sn_dim_mul(m, p.B, H);
    sn_tensor q = sn_reshape(p.q, BH, p.T, D), k = sn_reshape(p.k, BH, p.T, D);
    sn_tensor v = sn_reshape(p.v, BH, p.T, D);
    sn_tensor s = sn_reshape(sn_matmul(q, sn_swap(k, 1, 2)), p.B, H, p.T, p.T);
    s = sn_softmax(sn_div(s, ROOT), -1);
    sn_tensor y = sn_matmul(sn_reshape(s, BH, p.T, p.T), v);
    return sn_merge_heads(sn_reshape(y, p.B, H, p.T, D));
}
CHECK(full, "= attention %", S(full_op), S(full_plain), S(full_div), S(full_sqrt), S(full_pow),
      S(full_q), S(full_both), S(full_exp), S(full_einsum), S(full_rows), S(full_keys_first),
      S(full_flat), S(full_middle))

/* Heads in two axes, which flat products join with the batch: a bias for some of the digits. */
static sn_tensor of_digits(sn_module *m, sn_dim b, sn_dim outer, sn_dim inner) {
    parts p = make_parts(m, H);
    sn_dim all = sn_dim_mul(m, p.B, H);
    sn_tensor q = sn_reshape(p.q, all, p.T, D), k = sn_reshape(p.k, all, p.T, D);
    sn_tensor s = sn_reshape(sn_matmul(q, sn_swap(k, 1, 2)), p.B, 2, H / 2, p.T, p.T);
    sn_tensor bias = sn_param(m, "bias", SN_F32, sn_dim_mul(m, b, sn_dim_mul(m, outer, inner)));
    s = sn_softmax(sn_add(s, sn_reshape(bias, b, outer, inner, 1, 1)), -1);
    sn_tensor y = sn_matmul(sn_reshape(s, all, p.T, p.T), sn_reshape(p.v, all, p.T, D));
    return sn_merge_heads(sn_reshape(y, p.B, H, p.T, D));
}
static sn_tensor outer_digit(sn_module *m) {
    return of_digits(m, 1, 2, 1);
}
static sn_tensor inner_digit(sn_module *m) {
    return of_digits(m, 1, 1, H / 2);
}
static sn_tensor both_digits(sn_module *m) {
    return of_digits(m, 1, 2, H / 2);
}
CHECK(outer_digits, "= attention %", S(outer_digit))
CHECK(inner_digits, "= attention %", S(inner_digit))
CHECK(all_digits, "= attention %", S(both_digits))

/* ---- scores that are a sum of two products: one product of longer rows ---- */

SPELLING(sum_op, sn_tensor q = sn_concat(3, sn_tanh(p.q), p.q), k = sn_concat(3, sn_tanh(p.k), p.k);
         return sn_merge_heads(sn_attention(q, k, p.v, .scale = 1 / ROOT));)
SPELLING(sum_plain, sn_tensor r = sn_matmul(sn_tanh(p.q), sn_swap(sn_tanh(p.k), 2, 3));
         return finish(&p, sn_div(sn_add(scores(&p), r), ROOT));)
SPELLING(sum_each, sn_tensor r = sn_einsum("bhqd,bhkd->bhqk", sn_tanh(p.q), sn_tanh(p.k));
         return finish(&p, sn_add(sn_div(scores(&p), ROOT), sn_div(r, ROOT)));)
CHECK(sums, "= attention %", S(sum_op), S(sum_plain), S(sum_each))

SPELLING(weighted_op, sn_tensor q = sn_concat(3, sn_mul(sn_tanh(p.q), 3), p.q);
         sn_tensor k = sn_concat(3, sn_tanh(p.k), p.k);
         return sn_merge_heads(sn_attention(q, k, p.v, .scale = 1 / ROOT));)
SPELLING(weighted_rows, sn_tensor q = sn_transpose(sn_tanh(p.q), 0, 2, 1, 3);
         sn_tensor r = sn_einsum("bqhd,bhkd->bhqk", q, sn_tanh(p.k));
         return finish(&p, sn_div(sn_add(scores(&p), sn_mul(r, 3)), ROOT));)
SPELLING(columns_plain, sn_tensor c = sn_input(m, "c", SN_F32, p.B, H, D, p.T);
         sn_tensor r = sn_matmul(sn_tanh(p.q), c);
         return finish(&p, sn_div(sn_add(scores(&p), r), ROOT));)
CHECK(keys_in_columns, "= attention %", S(columns_plain))
CHECK(weighted_sums, "= attention %", S(weighted_op), S(weighted_rows))

/* ---- logsumexp of the scores, a second result ---- */

SPELLING(lse_op, sn_tensor l, y = sn_attention(p.q, p.k, p.v, .lse = &l);
         return sn_merge_heads(sn_mul(y, sn_tanh(l)));)
SPELLING(lse_plain, sn_tensor s = sn_div(scores(&p), ROOT);
         sn_tensor l = sn_expand(sn_logsumexp(s, -1), -1), y = sn_matmul(sn_softmax(s, -1), p.v);
         return sn_merge_heads(sn_mul(y, sn_tanh(l)));)
SPELLING(lse_divides, sn_tensor s = sn_div(scores(&p), ROOT), m_ = sn_amax_keep(s, -1);
         sn_tensor l = sn_add(m_, sn_log(sn_sum_keep(sn_exp(sn_sub(s, m_)), -1)));
         return sn_merge_heads(sn_mul(sn_matmul(sn_exp(sn_sub(s, l)), p.v), sn_tanh(l)));)
static sn_tensor lse_keys_first(sn_module *m) {
    parts p = make_parts(m, H);
    sn_tensor s = sn_div(sn_matmul(p.k, sn_swap(p.q, 2, 3)), ROOT);
    sn_tensor y = sn_matmul(sn_swap(sn_softmax(s, 2), 2, 3), p.v);
    return sn_merge_heads(sn_mul(y, sn_tanh(sn_expand(sn_logsumexp(s, 2), -1))));
}
CHECK(lse, "= attention_lse %", S(lse_op), S(lse_plain), S(lse_divides), S(lse_keys_first))

/* ---- causal ---- */

SPELLING(causal_op, return sn_merge_heads(sn_attention(p.q, p.k, p.v, .causal = true));)
SPELLING(causal_plain, sn_tensor s = sn_div(scores(&p), ROOT);
         return finish(&p, sn_mask_scores(s, sn_causal_mask(m, p.T, p.T)));)
SPELLING(causal_late_scale, sn_tensor s = sn_mask_scores(scores(&p), sn_causal_mask(m, p.T, p.T));
         return finish(&p, sn_div(s, ROOT));)
SPELLING(causal_future, sn_tensor i = sn_expand(sn_arange(m, SN_I32, p.T), -1);
         sn_tensor j = sn_arange(m, SN_I32, p.T);
         return finish(&p, sn_where(sn_gt(j, i), -INFINITY, sn_div(scores(&p), ROOT)));)
SPELLING(causal_not, sn_tensor i = sn_iota(m, SN_I64, 0, p.T, p.T);
         sn_tensor j = sn_iota(m, SN_I64, 1, p.T, p.T);
         return finish(&p, sn_where(sn_not(sn_lt(i, j)), sn_div(scores(&p), ROOT), -INFINITY));)
SPELLING(causal_added, sn_tensor i = sn_iota(m, SN_F32, 0, p.T, p.T);
         sn_tensor j = sn_iota(m, SN_F32, 1, p.T, p.T);
         return finish(&p, sn_add(sn_where(sn_ge(i, j), 0, -INFINITY), sn_div(scores(&p), ROOT)));)
SPELLING(causal_difference, sn_tensor i = sn_iota(m, SN_I32, 0, p.T, p.T);
         sn_tensor j = sn_iota(m, SN_I32, 1, p.T, p.T);
         sn_tensor seen = sn_cast(sn_ge(sn_sub(i, j), 0), SN_F32);
         return finish(&p, sn_add(sn_div(scores(&p), ROOT), sn_log(seen)));)
SPELLING(causal_weights, sn_tensor e = sn_exp(sn_div(scores(&p), ROOT));
         e = sn_where(sn_causal_mask(m, p.T, p.T), e, 0);
         return sn_merge_heads(sn_matmul(sn_div(e, sn_sum_keep(e, -1)), p.v));)
SPELLING(causal_subtracted, sn_tensor x = sn_where(sn_causal_mask(m, p.T, p.T), 0, INFINITY);
         return finish(&p, sn_sub(sn_div(scores(&p), ROOT), x));)
SPELLING(causal_bound, sn_tensor x = sn_where(sn_causal_mask(m, p.T, p.T), INFINITY, -INFINITY);
         return finish(&p, sn_min(x, sn_div(scores(&p), ROOT)));)
static sn_tensor causal_scores(const parts *p) {
    return sn_mask_scores(sn_div(scores(p), ROOT), sn_causal_mask(p->m, p->T, p->T));
}
SPELLING(causal_divided_last, sn_tensor s = causal_scores(&p);
         sn_tensor e = sn_exp(sn_sub(s, sn_amax_keep(s, -1)));
         return sn_merge_heads(sn_div(sn_matmul(e, p.v), sn_sum_keep(e, -1)));)
SPELLING(causal_twice, sn_tensor a = sn_softmax(causal_scores(&p), -1);
         a = sn_where(sn_causal_mask(m, p.T, p.T), a, 0); return sn_merge_heads(sn_matmul(a, p.v));)
SPELLING(causal_times, sn_tensor a = sn_softmax(causal_scores(&p), -1);
         a = sn_mul(sn_cast(sn_causal_mask(m, p.T, p.T), SN_F32), a);
         return sn_merge_heads(sn_matmul(a, p.v));)
SPELLING(causal_guarded, sn_tensor a = sn_softmax(causal_scores(&p), -1);
         a = sn_where(sn_ne(a, a), 0, a); return sn_merge_heads(sn_matmul(a, p.v));)
CHECK(causal, "mask=@r0", S(causal_guarded), S(causal_op), S(causal_subtracted), S(causal_bound),
      S(causal_divided_last), S(causal_twice), S(causal_times), S(causal_plain),
      S(causal_late_scale), S(causal_future), S(causal_not), S(causal_added), S(causal_difference),
      S(causal_weights))

/* Powers of 2, whose scale is 1 / ROOT up to rounding. */
SPELLING(causal_exp2, sn_tensor s = sn_mul(causal_scores(&p), 1.4426950408889634);
         sn_tensor e = sn_exp2(sn_sub(s, sn_amax_keep(s, -1)));
         return sn_merge_heads(sn_matmul(sn_div(e, sn_sum_keep(e, -1)), p.v));)
CHECK(powers_of_two, "= attention %", S(causal_exp2))

SPELLING(window_op,
         return sn_merge_heads(sn_attention(p.q, p.k, p.v, .causal = true, .window = 3));)
SPELLING(window_plain, sn_tensor s = sn_div(scores(&p), ROOT);
         return finish(&p, sn_mask_scores(s, sn_window_mask(m, p.T, p.T, 3)));)
SPELLING(window_two, sn_tensor i = sn_iota(m, SN_I32, 0, p.T, p.T);
         sn_tensor j = sn_iota(m, SN_I32, 1, p.T, p.T); sn_tensor s = sn_div(scores(&p), ROOT);
         s = sn_where(sn_gt(j, sn_sub(i, 3)), s, -INFINITY);
         return finish(&p, sn_where(sn_le(j, i), s, -INFINITY));)
SPELLING(window_product, sn_tensor i = sn_iota(m, SN_I32, 0, p.T, p.T);
         sn_tensor j = sn_iota(m, SN_I32, 1, p.T, p.T);
         sn_tensor near = sn_cast(sn_lt(sn_sub(i, j), 3), SN_F32);
         sn_tensor past = sn_cast(sn_not(sn_lt(i, j)), SN_F32);
         sn_tensor hidden = sn_eq(sn_mul(near, past), 0);
         return finish(&p, sn_where(hidden, -INFINITY, sn_div(scores(&p), ROOT)));)
CHECK(window, "mask=@r0", S(window_op), S(window_plain), S(window_two), S(window_product))

/* ---- dropout: weights are numbered by batch, head, query, key ---- */

static sn_tensor rng_of(const parts *p) {
    return sn_input(p->m, "rng", SN_I64, 2);
}
SPELLING(dropped_op, return sn_merge_heads(sn_attention(p.q, p.k, p.v, .causal = true,
                                                        .dropout = 0.125, .rng = rng_of(&p)));)
SPELLING(dropped_plain,
         sn_tensor s = sn_mask_scores(sn_div(scores(&p), ROOT), sn_causal_mask(m, p.T, p.T));
         s = sn_dropout(sn_softmax(s, -1), rng_of(&p), 0.125);
         return sn_merge_heads(sn_matmul(s, p.v));)
SPELLING(dropped_flat,
         sn_tensor s = sn_mask_scores(sn_div(scores(&p), ROOT), sn_causal_mask(m, p.T, p.T));
         sn_dim BH = sn_dim_mul(m, p.B, H);
         s = sn_dropout(sn_reshape(sn_softmax(s, -1), BH, p.T, p.T), rng_of(&p), 0.125);
         return sn_merge_heads(sn_matmul(sn_reshape(s, p.B, H, p.T, p.T), p.v));)
CHECK(dropped, "rate=0.125", S(dropped_op), S(dropped_plain), S(dropped_flat))

/* ---- masks and biases that are tensors ---- */

static sn_tensor lengths(const parts *p) {
    return sn_input(p->m, "lengths", SN_I32, p->B);
}
static sn_tensor below_length(const sn_score_ctx *c) {
    return sn_lt(c->k, sn_at(c->captured[0], c->b));
}
SPELLING(length_op, return sn_merge_heads(sn_attention(p.q, p.k, p.v, .mask = below_length,
                                                       .causal = true, .captured = {lengths(&p)}));)
SPELLING(length_plain, sn_tensor s = sn_div(scores(&p), ROOT);
         s = sn_mask_scores(s, sn_length_mask(lengths(&p), p.T));
         return finish(&p, sn_mask_scores(s, sn_causal_mask(m, p.T, p.T)));)
SPELLING(length_and, sn_tensor s = sn_div(scores(&p), ROOT);
         sn_tensor seen = sn_and(sn_causal_mask(m, p.T, p.T), sn_length_mask(lengths(&p), p.T));
         return finish(&p, sn_mask_scores(s, seen));)
CHECK(lengths_mask, "mask=@r0", S(length_op), S(length_plain), S(length_and))

static sn_tensor seen_tensor(const parts *p) {
    return sn_input(p->m, "seen", SN_BOOL, p->B, 1, 1, p->T);
}
static sn_tensor read_seen(const sn_score_ctx *c) {
    return sn_at(c->captured[0], c->b, c->k);
}
SPELLING(seen_op, sn_tensor seen = sn_reshape(seen_tensor(&p), p.B, p.T);
         return sn_merge_heads(sn_attention(p.q, p.k, p.v, .mask = read_seen, .captured = {seen}));)
SPELLING(seen_plain, return finish(&p, sn_mask_scores(sn_div(scores(&p), ROOT), seen_tensor(&p)));)
SPELLING(seen_number, sn_tensor x = sn_where(seen_tensor(&p), 0, -INFINITY);
         return finish(&p, sn_add(sn_div(scores(&p), ROOT), x));)
CHECK(bool_mask, "mask=@r0", S(seen_op), S(seen_plain), S(seen_number))

static sn_tensor document_ids(const parts *p) {
    return sn_input(p->m, "document", SN_I32, p->B, p->T);
}
static sn_tensor same_document(const sn_score_ctx *c) {
    return sn_eq(sn_at(c->captured[0], c->b, c->q), sn_at(c->captured[0], c->b, c->k));
}
SPELLING(document_op, return sn_merge_heads(sn_attention(p.q, p.k, p.v, .mask = same_document,
                                                         .captured = {document_ids(&p)}));)
SPELLING(document_plain, sn_tensor seen = sn_document_mask(document_ids(&p));
         return finish(&p, sn_mask_scores(sn_div(scores(&p), ROOT), seen));)
CHECK(documents, "mask=@r0", S(document_op), S(document_plain))

static sn_tensor bias_tensor(const parts *p) {
    return sn_param(p->m, "bias", SN_F32, H, 64, 64);
}
static sn_tensor add_bias(const sn_score_ctx *c) {
    return sn_add(c->score, sn_at(c->captured[0], c->h, c->q, c->k));
}
SPELLING(bias_op, return sn_merge_heads(sn_attention(p.q, p.k, p.v, .score = add_bias,
                                                     .captured = {bias_tensor(&p)}));)
SPELLING(bias_plain, sn_tensor b = sn_slice(sn_slice(bias_tensor(&p), 1, 0, p.T), 2, 0, p.T);
         return finish(&p, sn_add(sn_div(scores(&p), ROOT), b));)
SPELLING(bias_first, sn_tensor b = sn_slice(sn_slice(bias_tensor(&p), 2, 0, p.T), 1, 0, p.T);
         return finish(&p, sn_add(sn_expand(b, 0), sn_mul(scores(&p), 1 / ROOT)));)
CHECK(learned_bias, "score=@r0", S(bias_op), S(bias_plain), S(bias_first))

/* A table whose elements cost a function is stored where query and key together choose the element. */
static sn_tensor by_level(const sn_score_ctx *c) {
    sn_tensor level = sn_cast(sn_ge(sn_xor(c->q, c->k), 8), SN_I32);
    return sn_add(c->score, sn_at(c->captured[0], c->h, level));
}
SPELLING(level_op, sn_tensor table = sn_exp(sn_param(m, "levels", SN_F32, H, 2));
         return sn_merge_heads(sn_attention(p.q, p.k, p.v, .score = by_level,
                                            .captured = {table}));)
CHECK(stored_table, "f32[4,2] = exp %", S(level_op))

/* T5: a table of buckets by distance and head [Raffel 2020], the table stored [buckets, H] */
static sn_tensor bucket_table(const parts *p) {
    return sn_param(p->m, "table", SN_F32, 16, H);
}
static sn_tensor bucket(sn_tensor q, sn_tensor k) {
    return sn_min(sn_max(sn_sub(q, k), 0), 15);
}
static sn_tensor add_bucket(const sn_score_ctx *c) {
    return sn_add(c->score, sn_at(c->captured[0], bucket(c->q, c->k), c->h));
}
SPELLING(bucket_op,
         return sn_merge_heads(sn_attention(p.q, p.k, p.v, .score = add_bucket, .scale = 1,
                                            .captured = {bucket_table(&p)}));)
SPELLING(bucket_plain, sn_tensor i = sn_iota(m, SN_I32, 0, p.T, p.T);
         sn_tensor j = sn_iota(m, SN_I32, 1, p.T, p.T);
         sn_tensor b = sn_embedding(bucket_table(&p), bucket(i, j));
         return finish(&p, sn_add(scores(&p), sn_transpose(b, 2, 0, 1)));)
SPELLING(bucket_gather, sn_tensor i = sn_expand(sn_arange(m, SN_I32, p.T), -1);
         sn_tensor j = sn_arange(m, SN_I32, p.T);
         sn_tensor b = sn_gather(sn_swap(bucket_table(&p), 0, 1), 1, bucket(i, j));
         return finish(&p, sn_add(b, scores(&p)));)
CHECK(buckets, "score=@r0", S(bucket_op), S(bucket_plain), S(bucket_gather))

static sn_tensor slopes(const parts *p) {
    return sn_param(p->m, "slopes", SN_F32, H);
}
static sn_tensor alibi_score(const sn_score_ctx *c) {
    sn_tensor back = sn_cast(sn_sub(c->k, c->q), SN_F32);
    return sn_add(c->score, sn_mul(sn_at(c->captured[0], c->h), back));
}
SPELLING(alibi_op, return sn_merge_heads(sn_attention(p.q, p.k, p.v, .score = alibi_score,
                                                      .causal = true, .captured = {slopes(&p)}));)
SPELLING(alibi_plain, sn_tensor i = sn_iota(m, SN_I32, 0, p.T, p.T);
         sn_tensor j = sn_iota(m, SN_I32, 1, p.T, p.T);
         sn_tensor back = sn_cast(sn_sub(j, i), SN_F32);
         sn_tensor s = sn_add(sn_div(scores(&p), ROOT),
                              sn_mul(sn_reshape(slopes(&p), H, 1, 1), back));
         return finish(&p, sn_mask_scores(s, sn_causal_mask(m, p.T, p.T)));)
SPELLING(alibi_reversed, sn_tensor i = sn_arange(m, SN_I32, p.T);
         sn_tensor back = sn_cast(sn_sub(sn_expand(i, 0), sn_expand(i, 1)), SN_F32);
         sn_tensor s = sn_mul(back, sn_expand(sn_expand(slopes(&p), -1), -1));
         s = sn_mask_scores(s, sn_causal_mask(m, p.T, p.T));
         return finish(&p, sn_add(s, sn_div(scores(&p), ROOT)));)
CHECK(alibi, "score=@r0", S(alibi_op), S(alibi_plain), S(alibi_reversed))

static sn_tensor cap_score(const sn_score_ctx *c) {
    return sn_mul(sn_tanh(sn_div(c->score, 30)), 30);
}
SPELLING(cap_op,
         return sn_merge_heads(sn_attention(p.q, p.k, p.v, .score = cap_score, .causal = true));)
SPELLING(cap_plain, sn_tensor s = sn_mul(30, sn_tanh(sn_div(sn_div(scores(&p), ROOT), 30)));
         return finish(&p, sn_mask_scores(s, sn_causal_mask(m, p.T, p.T)));)
CHECK(softcap, "score=@r0", S(cap_op), S(cap_plain))

/* A finite mask is arithmetic: it stays in the score. */
static sn_tensor finite_score(const sn_score_ctx *c) {
    return sn_add(c->score, sn_where(sn_le(c->k, c->q), 0, -1e9));
}
SPELLING(finite_op, return sn_merge_heads(sn_attention(p.q, p.k, p.v, .score = finite_score));)
SPELLING(finite_plain, sn_tensor x = sn_where(sn_causal_mask(m, p.T, p.T), 0, -1e9);
         return finish(&p, sn_add(sn_div(scores(&p), ROOT), x));)
CHECK(finite_mask, "score=@r0}", S(finite_op), S(finite_plain))

/* ---- heads ---- */

#define GROUPED(name, ...)                                                                         \
    static sn_tensor name(sn_module *m) {                                                          \
        parts p = make_parts(m, HK);                                                               \
        __VA_ARGS__                                                                                \
    }
static sn_tensor repeat(const parts *p, sn_tensor x) { /* [B,HK,T,D] -> [B,H,T,D] */
    sn_tensor wide = sn_broadcast(sn_expand(x, 2), p->B, HK, H / HK, p->T, D);
    return sn_reshape(wide, p->B, H, p->T, D);
}
static sn_tensor repeat_rows(const parts *p, sn_tensor x) { /* before the transpose */
    x = sn_expand(sn_transpose(x, 0, 2, 1, 3), 3);
    x = sn_reshape(sn_broadcast(x, p->B, p->T, HK, H / HK, D), p->B, p->T, H, D);
    return sn_transpose(x, 0, 2, 1, 3);
}
GROUPED(group_op, return sn_merge_heads(sn_attention(p.q, p.k, p.v, .causal = true));)
GROUPED(group_repeat, p.k = repeat(&p, p.k); p.v = repeat(&p, p.v);
        sn_tensor s = sn_div(scores(&p), ROOT);
        return finish(&p, sn_mask_scores(s, sn_causal_mask(m, p.T, p.T)));)
GROUPED(group_repeat_rows, p.k = repeat_rows(&p, p.k); p.v = repeat_rows(&p, p.v);
        sn_tensor s = sn_div(scores(&p), ROOT);
        return finish(&p, sn_mask_scores(s, sn_causal_mask(m, p.T, p.T)));)
GROUPED(group_axis, sn_tensor q = sn_reshape(p.q, p.B, HK, H / HK, p.T, D);
        sn_tensor s = sn_div(sn_einsum("bhgqd,bhkd->bhgqk", q, p.k), ROOT);
        s = sn_mask_scores(s, sn_causal_mask(m, p.T, p.T));
        sn_tensor y = sn_einsum("bhgqk,bhkd->bhgqd", sn_softmax(s, -1), p.v);
        return sn_merge_heads(sn_reshape(y, p.B, H, p.T, D));)
GROUPED(group_spread, sn_tensor q = sn_reshape(p.q, p.B, HK, H / HK, p.T, D);
        sn_tensor s = sn_matmul(q, sn_expand(sn_swap(p.k, 2, 3), 2));
        s = sn_mask_scores(sn_div(s, ROOT), sn_causal_mask(m, p.T, p.T));
        sn_tensor y = sn_matmul(sn_softmax(s, -1), sn_expand(p.v, 2));
        return sn_merge_heads(sn_reshape(y, p.B, H, p.T, D));)
GROUPED(group_callback, p.k = repeat(&p, p.k); p.v = repeat(&p, p.v);
        return sn_merge_heads(sn_attention(p.q, p.k, p.v, .causal = true));)
CHECK(grouped, "= attention %", S(group_op), S(group_repeat), S(group_repeat_rows), S(group_axis),
      S(group_spread), S(group_callback))

/* One head, without an axis for it. */
static sn_tensor single_input(sn_module *m, const char *name) {
    return sn_input(m, name, SN_F32, sn_symbol(m, "B", 1, 8), sn_symbol(m, "T", 1, 64), D);
}
static sn_tensor single_op(sn_module *m) {
    sn_tensor q = single_input(m, "q"), k = single_input(m, "k"), v = single_input(m, "v");
    return sn_squeeze(
        sn_attention(sn_expand(q, 1), sn_expand(k, 1), sn_expand(v, 1), .causal = true), 1);
}
static sn_tensor single_plain(sn_module *m) {
    sn_tensor q = single_input(m, "q"), k = single_input(m, "k"), v = single_input(m, "v");
    sn_dim T = sn_dim_of(q, 1);
    sn_tensor s = sn_div(sn_matmul(q, sn_swap(k, 1, 2)), ROOT);
    return sn_matmul(sn_softmax(sn_mask_scores(s, sn_causal_mask(m, T, T)), -1), v);
}
CHECK(single_head, "= attention %", S(single_op), S(single_plain))

/* Queries, keys and values are views of one product; a cache of constant batch 1. */
static sn_tensor packed(sn_module *m, bool plain) {
    sn_dim T = sn_symbol(m, "T", 1, 64), P = sn_symbol(m, "P", 0, 64);
    sn_tensor x = sn_input(m, "x", SN_F32, 1, T, H * D), part[3];
    sn_tensor w = sn_param(m, "w", SN_F32, 3 * H * D, H * D);
    sn_split(sn_linear(x, w, NULL), 2, 3, part);
    parts p = {.m = m, .B = 1, .T = T};
    p.q = sn_split_heads(part[0], H);
    p.k = sn_kv_cache(sn_split_heads(part[1], H), "keys", P, 160);
    p.v = sn_kv_cache(sn_split_heads(part[2], H), "values", P, 160);
    if (!plain) return sn_merge_heads(sn_attention(p.q, p.k, p.v, .causal = true));
    sn_tensor s = sn_div(scores(&p), ROOT);
    return finish(&p, sn_mask_scores(s, sn_causal_mask(m, T, sn_dim_of(p.k, 2))));
}
static sn_tensor packed_op(sn_module *m) {
    return packed(m, false);
}
static sn_tensor packed_plain(sn_module *m) {
    return packed(m, true);
}
CHECK(packed_cache, "= attention %", S(packed_op), S(packed_plain))

static sn_tensor cross(sn_module *m, bool plain) {
    parts p = make_parts(m, H);
    sn_dim S = sn_symbol(m, "S", 1, 64);
    p.k = sn_split_heads(sn_input(m, "mk", SN_F32, p.B, S, H * D), H);
    p.v = sn_split_heads(sn_input(m, "mv", SN_F32, p.B, S, H * 3), H); /* narrower values */
    if (!plain) return sn_merge_heads(sn_attention(p.q, p.k, p.v));
    return finish(&p, sn_div(scores(&p), ROOT));
}
static sn_tensor cross_op(sn_module *m) {
    return cross(m, false);
}
static sn_tensor cross_plain(sn_module *m) {
    return cross(m, true);
}
CHECK(cross_attention, "= attention %", S(cross_op), S(cross_plain))

/* Relative positions as a second product [Dai 2019]: the one with the keys is taken, or the other;
 * either way one node is left whose other term is captured. */
SPELLING(relative, sn_tensor r = sn_param(m, "r", SN_F32, H, 64, D); r = sn_slice(r, 1, 0, p.T);
         sn_tensor s = sn_add(scores(&p), sn_einsum("bhqd,hkd->bhqk", p.q, r));
         return finish(&p, sn_div(s, ROOT));)
CHECK(relative_positions, "= attention %", S(relative))

/* ---- what is not raised, and the remark about it ---- */

static void check_missed(sn_module *m, const char *why) {
    sn_passes run;
    sn_pass_options o = {.level = 4, .backend = "native", .only = "simplify,raise", .verify = true};
    assert_int_equal(sn_module_error(m)->code, SN_OK);
    assert_true(sn_passes_run(&run, m, &o));
    char *text = module_text(m);
    assert_null(strstr(text, "= attention"));
    int missed = 0;
    for (int i = 0; i < run.n_remark; i++)
        missed += run.remark[i].missed && strstr(run.remark[i].text, why);
    assert_int_equal(missed, 1);
    free(text);
    sn_module_free(m);
}

static void shared_weights(void **state) {
    (void)state;
    sn_module *m = sn_module_new("m");
    sn_entry_begin(m, "f");
    parts p = make_parts(m, H);
    sn_tensor weights = sn_softmax(sn_div(scores(&p), ROOT), -1);
    sn_output("weights", weights);
    sn_output("y", sn_matmul(weights, p.v));
    check_missed(
        m, "is needed elsewhere, by an output, so the weights stay in memory. Instead: compute it "
           "in an entry of its own");
}

/* What another entry needs is computed there. */
static void weights_of_another_entry(void **state) {
    (void)state;
    sn_module *m = sn_module_new("m");
    sn_entry_begin(m, "f");
    parts p = make_parts(m, H);
    sn_tensor s = sn_div(scores(&p), ROOT), weights = sn_softmax(s, -1);
    sn_output("y", sn_matmul(weights, p.v));
    sn_entry_begin(m, "g");
    sn_output("weights", weights);
    sn_entry_begin(m, "h");
    sn_output("z", sn_matmul(sn_where(sn_causal_mask(m, p.T, p.T), sn_sigmoid(s), 0), p.v));
    sn_passes run;
    sn_pass_options o = {.level = 4, .backend = "native", .only = "simplify,raise", .verify = true};
    assert_true(sn_passes_run(&run, m, &o));
    char *text = module_text(m);
    const char *first = strstr(text, "= attention");
    assert_true(first && strstr(first + 1, "= attention"));
    free(text);
    sn_module_free(m);
}

/* The remark names what is between the two products, its line, and what to write instead. */
static void between_products(void **state) {
    (void)state;
    static const char *const why[] = {
        "`dot` (test_raise_attention.c", "`cumsum` (test_raise_attention.c",
        "is needed elsewhere, by `reduce_sum` (test_raise_attention.c",
        "needed elsewhere, by `scan` (test_raise_attention.c"};
    for (int i = 0; i < 4; i++) {
        sn_module *m = sn_module_new("m");
        sn_entry_begin(m, "f");
        parts p = make_parts(m, H);
        sn_tensor s = sn_div(scores(&p), ROOT), mix = sn_input(m, "mix", SN_F32, H, H);
        if (i == 0) s = sn_einsum("bhqk,hg->bgqk", sn_relu(s), mix);
        if (i == 1) s = sn_cumsum(s, -1);
        sn_tensor w = i < 2 ? sn_softmax(s, -1) : sn_div(s, sn_sqrt(sn_sum_keep(sn_square(s), -1)));
        if (i == 3) /* stick-breaking */
            w = sn_mul(sn_sigmoid(s), sn_exp(sn_cumulate(sn_neg(sn_softplus(s)), .axis = -1,
                                                         .reverse = true, .exclusive = true)));
        sn_output("y", sn_matmul(w, p.v));
        check_missed(m, why[i]);
    }
}

/* Softmaxes that no kernel of attention has: two in the weights, one over other axes; a running sum of
 * scores that are needed elsewhere, too. */
static void other_softmaxes(void **state) {
    (void)state;
    static const char *const why[] = {"made of `softmax` (test_raise_attention.c",
                                      "made of `softmax` (test_raise_attention.c",
                                      "is not over the keys",
                                      "is not over the keys, so",
                                      "`cumsum` (test_raise_attention.c",
                                      "between `softmax` (test_raise_attention.c",
                                      "Instead: write columns that have no value",
                                      "Instead: sums over heads are .mix_scores",
                                      "Instead: cut queries and keys",
                                      "This has no fused form",
                                      "This has no fused form",
                                      "This has no fused form",
                                      "This has no fused form"};
    for (size_t i = 0; i < sizeof why / sizeof *why; i++) {
        sn_module *m = sn_module_new("m");
        sn_entry_begin(m, "f");
        parts p = make_parts(m, H);
        sn_tensor s = sn_div(scores(&p), ROOT), w = NULL, other = sn_mul(scores(&p), 0.3);
        if (i == 0) w = sn_sub(sn_softmax(s, -1), sn_mul(sn_softmax(other, -1), 0.5));
        if (i == 1) w = sn_mul(sn_softmax(s, -1), sn_softmax(s, -2));
        if (i == 2) w = sn_softmax(s, 1);
        if (i == 3) w = sn_softmax(s, 2);
        if (i == 4) w = sn_mul(sn_sigmoid(s), sn_exp(sn_cumsum(sn_neg(s), -1)));
        if (i == 5) w = sn_square(sn_softmax(s, -1)), w = sn_div(w, sn_sum_keep(w, -1));
        if (i == 6) { /* columns before and after */
            sn_tensor z = sn_full(m, SN_F32, 0, p.B, H, p.T, 1);
            w = sn_slice(sn_softmax(sn_concat(-1, z, s, z), -1), -1, 1, p.T);
        }
        if (i == 7) { /* heads mixed by hand */
            sn_tensor mix = sn_input(m, "mix", SN_F32, 1, H, H, 1, 1);
            w = sn_softmax(sn_sum(sn_mul(mix, sn_expand(s, 1)), 2), -1);
        }
        if (i == 8) /* weights of two heads multiplied */
            w = sn_softmax(s, -1), w = sn_mul(sn_slice(w, 1, 0, 1), sn_slice(w, 1, 1, 1));
        if (i == 9) w = sn_relu(sn_sub(s, sn_slice(sn_sort(s, -1, true), -1, 0, 1)));
        if (i == 10) w = sn_square(sn_relu(sn_sub(s, sn_amax_keep(s, -1))));
        if (i == 11) w = sn_softmax(s, -1), sn_output("sums", sn_square(sn_sum(w, 1)));
        if (i == 12) w = sn_softmax(s, -1), sn_output("slots", sn_softmax(s, -2));
        sn_output("y", sn_matmul(w, p.v));
        check_missed(m, why[i]);
    }
}

static void recur(sn_scan_step *s) {
    s->next[0] = sn_tanh(sn_add(s->carry[0], s->x[0]));
    s->y[0] = sn_sum(s->next[0], -1);
}

/* Every softmax and every loop that stays has a remark: what it is, and what would change it. */
static void nothing_is_silent(void **state) {
    (void)state;
    static const struct {
        bool missed;
        const char *text;
    } want[] = {
        {true, "stay in memory for an output, not for a product with values"},
        {false, "a kernel over rows of 8 elements"},
        {false, "its scores come from no product"},
        {false, "`tanh` (test_raise_attention.c"},
        {false, "a kernel over rows of T elements, not a part of attention with `dot`"},
        {true, "is needed elsewhere"},
        {false, "no second product takes it, as attention has"},
    };
    sn_module *m = sn_module_new("m");
    sn_entry_begin(m, "f");
    parts p = make_parts(m, H);
    sn_tensor s = sn_div(scores(&p), ROOT), c = sn_full(m, SN_F32, 0, H, 8, 4);
    sn_output("weights", sn_softmax(s, -1));
    sn_output("y", sn_matmul(sn_softmax(sn_mul(s, 3), -1), p.v));
    sn_output("squares", sn_relu(sn_matmul(p.q, sn_swap(p.q, -2, -1))));
    sn_output("few", sn_softmax(sn_input(m, "router", SN_F32, p.T, 8), -1));
    sn_output("pool", sn_softmax(sn_input(m, "pool", SN_F32, 2, p.T), -1));
    sn_output("loop", sn_scan(.carry = {c}, .x = {sn_input(m, "x", SN_F32, p.T, H, 8, 4)},
                              .axis = 0, .body = recur)
                          .y[0]);
    sn_passes run;
    sn_pass_options o = {.level = 4, .backend = "native", .only = "simplify,raise", .verify = true};
    assert_true(sn_passes_run(&run, m, &o));
    for (size_t k = 0; k < sizeof want / sizeof *want; k++) {
        int found = 0;
        for (int i = 0; i < run.n_remark; i++)
            found += run.remark[i].missed == want[k].missed &&
                     strstr(run.remark[i].text, want[k].text) != NULL;
        if (found != 1) fail_msg("%d remarks: %s", found, want[k].text);
    }
    sn_module_free(m);
}

/* An obstacle that one round reports and the next one removes is not a remark. */
static void no_longer_in_the_way(void **state) {
    (void)state;
    sn_module *m = sn_module_new("m");
    sn_entry_begin(m, "f");
    parts p = make_parts(m, H);
    sn_tensor s = sn_div(scores(&p), ROOT);
    sn_tensor e = sn_exp(sn_sub(s, sn_amax_keep(s, -1)));
    e = sn_where(sn_causal_mask(m, p.T, p.T), e, 0);
    sn_output("y", sn_matmul(sn_div(e, sn_sum_keep(e, -1)), p.v));
    sn_passes run;
    sn_pass_options o = {.level = 4, .backend = "native", .only = "simplify,raise", .verify = true};
    assert_true(sn_passes_run(&run, m, &o));
    char *text = module_text(m);
    assert_non_null(strstr(text, "= attention"));
    for (int i = 0; i < run.n_remark; i++) assert_false(run.remark[i].missed);
    free(text);
    sn_module_free(m);
}

static void dropped_in_other_order(void **state) {
    (void)state;
    sn_module *m = sn_module_new("m");
    sn_entry_begin(m, "f");
    parts p = make_parts(m, H);
    sn_tensor weights = sn_swap(sn_softmax(sn_div(scores(&p), ROOT), -1), -1, -2);
    weights = sn_swap(sn_dropout(weights, rng_of(&p), 0.1), -1, -2);
    sn_output("y", sn_matmul(weights, p.v));
    check_missed(m, "in an order other than");
}

/* ---- in the body of a loop, with a mask and keys from outside ---- */

typedef struct captured {
    sn_tensor k, transposed, mask;
} captured;
static void retrieve_op(sn_scan_step *s) {
    const captured *c = s->user;
    s->next[0] = sn_attention(s->carry[0], c->k, c->k, .causal = true);
}
static void retrieve_plain(sn_scan_step *s) {
    const captured *c = s->user;
    sn_tensor z = sn_div(sn_matmul(s->carry[0], sn_swap(c->k, 2, 3)), ROOT);
    s->next[0] = sn_matmul(sn_softmax(sn_mask_scores(z, c->mask), -1), c->k);
}
static void retrieve_einsum(sn_scan_step *s) { /* the keys are captured in two orders */
    const captured *c = s->user;
    sn_tensor z = sn_div(sn_einsum("bhqd,bhdk->bhqk", s->carry[0], c->transposed), ROOT);
    z = sn_where(c->mask, z, -INFINITY);
    s->next[0] = sn_einsum("bhqk,bhkd->bhqd", sn_softmax(z, -1), c->k);
}
static sn_tensor retrieved(sn_module *m, sn_scan_fn body, bool transposed) {
    parts p = make_parts(m, H);
    captured c = {p.k, transposed ? sn_swap(p.k, 2, 3) : NULL, sn_causal_mask(m, p.T, p.T)};
    sn_tensor x = sn_cumsum(sn_full(m, SN_F32, 1, 3), 0);
    return sn_merge_heads(sn_scan(.carry = {p.q}, .x = {x}, .body = body, .user = &c).carry[0]);
}
static sn_tensor loop_op(sn_module *m) {
    return retrieved(m, retrieve_op, false);
}
static sn_tensor loop_plain(sn_module *m) {
    return retrieved(m, retrieve_plain, false);
}
static sn_tensor loop_einsum(sn_module *m) {
    return retrieved(m, retrieve_einsum, true);
}
CHECK(in_loops, "= attention %", S(loop_op), S(loop_plain), S(loop_einsum))

/* A tap that was not requested does not count; levels below 3 do not raise attention. */
static void free_tap(void **state) {
    (void)state;
    for (int level = 2; level <= 3; level++) {
        sn_module *m = sn_module_new("m");
        sn_entry_begin(m, "f");
        parts p = make_parts(m, H);
        sn_tensor weights = sn_name(sn_softmax(sn_div(scores(&p), ROOT), -1), "weights");
        sn_output("y", sn_matmul(weights, p.v));
        sn_passes run;
        sn_pass_options o = {
            .level = level, .backend = "native", .off = "merge,expand,fuse,choose,hoist"};
        assert_true(sn_passes_run(&run, m, &o));
        char *text = module_text(m);
        assert_int_equal(strstr(text, "= attention") != NULL, level == 3);
        free(text);
        sn_module_free(m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full),
        cmocka_unit_test(outer_digits),
        cmocka_unit_test(inner_digits),
        cmocka_unit_test(all_digits),
        cmocka_unit_test(sums),
        cmocka_unit_test(weighted_sums),
        cmocka_unit_test(keys_in_columns),
        cmocka_unit_test(lse),
        cmocka_unit_test(causal),
        cmocka_unit_test(powers_of_two),
        cmocka_unit_test(window),
        cmocka_unit_test(lengths_mask),
        cmocka_unit_test(bool_mask),
        cmocka_unit_test(documents),
        cmocka_unit_test(learned_bias),
        cmocka_unit_test(stored_table),
        cmocka_unit_test(buckets),
        cmocka_unit_test(alibi),
        cmocka_unit_test(softcap),
        cmocka_unit_test(finite_mask),
        cmocka_unit_test(grouped),
        cmocka_unit_test(single_head),
        cmocka_unit_test(packed_cache),
        cmocka_unit_test(cross_attention),
        cmocka_unit_test(relative_positions),
        cmocka_unit_test(shared_weights),
        cmocka_unit_test(weights_of_another_entry),
        cmocka_unit_test(between_products),
        cmocka_unit_test(other_softmaxes),
        cmocka_unit_test(nothing_is_silent),
        cmocka_unit_test(no_longer_in_the_way),
        cmocka_unit_test(dropped),
        cmocka_unit_test(dropped_in_other_order),
        cmocka_unit_test(in_loops),
        cmocka_unit_test(free_tap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
