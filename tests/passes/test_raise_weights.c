/* Raising attention whose weights are not a softmax, and softmax with a sink: plain operations in
 * any form become the node, with the same text, that sn_attention makes; values are kept. What is not
 * attention stays products. */
#include "tests/support/pass_check.h"
#include "tests/support/raise_check.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { H = 4, D = 8 };

typedef struct parts {
    sn_module *m;
    sn_dim B, T;
    sn_tensor q, k, v;           /* [B,H,T,D] */
    sn_tensor scores, seen, far; /* [B,H,T,T] scaled; [T,T]: whether visible, q - k */
    sn_tensor sink;              /* [H] */
} parts;

static parts make_parts(sn_module *m) {
    parts p = {.m = m, .B = sn_symbol(m, "B", 1, 8), .T = sn_symbol(m, "T", 1, 64)};
    p.q = sn_split_heads(sn_input(m, "q", SN_F32, p.B, p.T, H * D), H);
    p.k = sn_split_heads(sn_input(m, "k", SN_F32, p.B, p.T, H * D), H);
    p.v = sn_split_heads(sn_input(m, "v", SN_F32, p.B, p.T, H * D), H);
    p.scores = sn_div(sn_matmul(p.q, sn_swap(p.k, -1, -2)), sqrt((double)D));
    p.seen = sn_causal_mask(m, p.T, p.T);
    p.far =
        sn_cast(sn_sub(sn_iota(m, SN_I32, 0, p.T, p.T), sn_iota(m, SN_I32, 1, p.T, p.T)), SN_F32);
    p.sink = sn_input(m, "sink", SN_F32, H);
    return p;
}

static sn_tensor weigh(const parts *p, sn_tensor w) {
    return sn_merge_heads(sn_matmul(w, p->v));
}
static sn_tensor number(const parts *p) {
    return sn_cast(p->seen, SN_F32);
}
/* The sink of each head as a column [1,H,1,1]. */
static sn_tensor column(const parts *p) {
    return sn_reshape(p->sink, 1, H, 1, 1);
}

#define SPELLING(name, ...)                                                                        \
    static sn_tensor name(sn_module *m) {                                                          \
        parts p = make_parts(m);                                                                   \
        __VA_ARGS__                                                                                \
    }

/* ---- sigmoid, not divided: where the mask is ---- */

static sn_tensor sigmoid_weight(const sn_score_ctx *c) {
    return sn_sigmoid(sn_sub(c->score, 2.5));
}
SPELLING(sigmoid_op, return sn_merge_heads(sn_attention(p.q, p.k, p.v, .causal = true,
                                                        .weight = sigmoid_weight));)
SPELLING(sigmoid_zeroed, return weigh(&p, sn_where(p.seen, sn_sigmoid(sn_sub(p.scores, 2.5)), 0));)
SPELLING(sigmoid_times, return weigh(&p, sn_mul(sn_sigmoid(sn_sub(p.scores, 2.5)), number(&p)));)
SPELLING(sigmoid_hidden,
         return weigh(&p, sn_sigmoid(sn_sub(sn_mask_scores(p.scores, p.seen), 2.5)));)
SPELLING(sigmoid_by_exp, sn_tensor e = sn_exp(sn_neg(sn_sub(p.scores, 2.5)));
         return weigh(&p, sn_where(sn_not(p.seen), 0, sn_div(1, sn_add(1, e))));)
SPELLING(sigmoid_einsum, sn_tensor s = sn_einsum("bhqd,bhkd->bhqk", p.q, p.k);
         s = sn_sigmoid(sn_sub(sn_div(s, sqrt((double)D)), 2.5));
         return sn_merge_heads(sn_einsum("bhqk,bhkd->bhqd", sn_where(p.seen, s, 0), p.v));)
CHECK(sigmoid, "weights=1", S(sigmoid_op), S(sigmoid_zeroed), S(sigmoid_times), S(sigmoid_hidden),
      S(sigmoid_by_exp), S(sigmoid_einsum))

/* ---- squared relu, divided by the sum ---- */

static sn_tensor squared_weight(const sn_score_ctx *c) {
    return sn_square(sn_relu(c->score));
}
SPELLING(squared_op,
         return sn_merge_heads(sn_attention(p.q, p.k, p.v, .causal = true, .weight = squared_weight,
                                            .divide = SN_DIVIDE_BY_SUM));)
SPELLING(squared_plain, sn_tensor w = sn_where(p.seen, sn_square(sn_relu(p.scores)), 0);
         return weigh(&p, sn_div(w, sn_sum_keep(w, -1)));)
SPELLING(squared_hidden, sn_tensor w = sn_square(sn_relu(sn_mask_scores(p.scores, p.seen)));
         return weigh(&p, sn_div(w, sn_sum_keep(w, -1)));)
SPELLING(squared_last, sn_tensor w = sn_mul(sn_square(sn_relu(p.scores)), number(&p));
         return sn_merge_heads(sn_div(sn_matmul(w, p.v), sn_sum_keep(w, -1)));)
SPELLING(squared_max, sn_tensor r = sn_max(p.scores, 0);
         sn_tensor w = sn_where(p.seen, sn_mul(r, r), 0);
         return weigh(&p, sn_mul(w, sn_recip(sn_sum_keep(w, -1))));)
CHECK(squared, "weights=2", S(squared_op), S(squared_plain), S(squared_hidden), S(squared_last),
      S(squared_max))

/* ---- retention: decay by distance, divided by max(|sum|, 1) ---- */

static sn_tensor decay(sn_tensor far) {
    return sn_exp(sn_mul(far, -0.05));
}
static sn_tensor retention_weight(const sn_score_ctx *c) {
    return sn_mul(c->score, decay(sn_cast(sn_query_key_distance(c), SN_F32)));
}
SPELLING(retention_op, return sn_merge_heads(sn_attention(p.q, p.k, p.v, .causal = true,
                                                          .weight = retention_weight,
                                                          .divide = SN_DIVIDE_BY_ABS_SUM));)
SPELLING(retention_plain, sn_tensor w = sn_mul(p.scores, sn_where(p.seen, decay(p.far), 0));
         return weigh(&p, sn_div(w, sn_max(sn_abs(sn_sum_keep(w, -1)), 1)));)
SPELLING(retention_late, sn_tensor w = sn_where(p.seen, sn_mul(p.scores, decay(p.far)), 0);
         sn_tensor by = sn_max(1, sn_abs(sn_sum_keep(w, -1)));
         return sn_merge_heads(sn_div(sn_matmul(w, p.v), by));)
SPELLING(retention_hidden, sn_tensor d = sn_exp(sn_where(p.seen, sn_mul(p.far, -0.05), -INFINITY));
         sn_tensor w = sn_mul(p.scores, d);
         return weigh(&p, sn_div(w, sn_max(sn_abs(sn_sum_keep(w, -1)), 1)));)
CHECK(retention, "weights=3", S(retention_op), S(retention_plain), S(retention_late),
      S(retention_hidden))

/* ---- identity: linear attention in its quadratic form ---- */

static sn_tensor identity_weight(const sn_score_ctx *c) {
    return c->score;
}
SPELLING(identity_op, return sn_merge_heads(sn_attention(p.q, p.k, p.v, .causal = true,
                                                         .weight = identity_weight));)
SPELLING(identity_plain, return weigh(&p, sn_where(p.seen, p.scores, 0));)
SPELLING(identity_times, return weigh(&p, sn_mul(p.scores, number(&p)));)
CHECK(identity, "weights=1", S(identity_op), S(identity_plain), S(identity_times))

/* ---- a small number in the divisor ---- */

SPELLING(small_last, sn_tensor w = sn_where(p.seen, sn_square(p.scores), 0);
         return sn_merge_heads(sn_div(sn_matmul(w, p.v), sn_add(sn_sum_keep(w, -1), 1e-6)));)
SPELLING(small_first, sn_tensor w = sn_mul(sn_square(p.scores), number(&p));
         return weigh(&p, sn_div(w, sn_add(1e-6, sn_sum_keep(w, -1))));)
CHECK(small, "sink=1", S(small_last), S(small_first))

/* ---- a sink of each head ---- */

static sn_tensor shown(const parts *p) {
    return sn_mask_scores(p->scores, p->seen);
}
SPELLING(sink_op,
         return sn_merge_heads(sn_attention(p.q, p.k, p.v, .causal = true, .sink = p.sink));)
SPELLING(sink_dropped, sn_tensor z = sn_broadcast(column(&p), p.B, H, p.T, 1);
         sn_tensor a = sn_softmax(sn_concat(-1, shown(&p), z), -1);
         return weigh(&p, sn_slice(a, -1, 0, p.T));)
SPELLING(sink_first, sn_tensor z = sn_broadcast(column(&p), p.B, H, p.T, 1);
         sn_tensor a = sn_softmax(sn_concat(-1, z, shown(&p)), -1);
         return weigh(&p, sn_slice(a, -1, 1, p.T));)
SPELLING(sink_added, sn_tensor s = shown(&p); sn_tensor m_ = sn_amax_keep(s, -1);
         sn_tensor e = sn_exp(sn_sub(s, m_));
         sn_tensor by = sn_add(sn_sum_keep(e, -1), sn_exp(sn_sub(column(&p), m_)));
         return weigh(&p, sn_div(e, by));)
SPELLING(sink_in_maximum, sn_tensor s = shown(&p);
         sn_tensor m_ = sn_max(sn_amax_keep(s, -1), column(&p)), e = sn_exp(sn_sub(s, m_));
         sn_tensor by = sn_add(sn_exp(sn_sub(column(&p), m_)), sn_sum_keep(e, -1));
         return sn_merge_heads(sn_div(sn_matmul(e, p.v), by));)
SPELLING(sink_unshifted, sn_tensor e = sn_mul(sn_exp(p.scores), number(&p));
         sn_tensor by = sn_add(sn_sum_keep(e, -1), sn_exp(column(&p)));
         return weigh(&p, sn_div(e, by));)
SPELLING(sink_gate, sn_tensor s = shown(&p);
         sn_tensor g = sn_sigmoid(sn_sub(sn_expand(sn_logsumexp(s, -1), -1), column(&p)));
         return sn_merge_heads(sn_mul(sn_matmul(sn_softmax(s, -1), p.v), g));)
SPELLING(sink_gated_weights, sn_tensor s = shown(&p);
         sn_tensor g = sn_sigmoid(sn_sub(sn_expand(sn_logsumexp(s, -1), -1), column(&p)));
         return weigh(&p, sn_mul(g, sn_softmax(s, -1)));)
SPELLING(sink_gate_by_row, sn_tensor s = shown(&p), z = sn_reshape(p.sink, H, 1);
         sn_tensor g = sn_sigmoid(sn_sub(sn_logsumexp(s, -1), z));
         return sn_merge_heads(sn_mul(sn_matmul(sn_softmax(s, -1), p.v), sn_expand(g, -1)));)
CHECK(sink, "sink=1", S(sink_op), S(sink_dropped), S(sink_first), S(sink_added), S(sink_in_maximum),
      S(sink_unshifted), S(sink_gate), S(sink_gated_weights), S(sink_gate_by_row))

/* ---- softmax plus one ---- */

SPELLING(one_plain, sn_tensor e = sn_where(p.seen, sn_exp(p.scores), 0);
         return weigh(&p, sn_div(e, sn_add(1, sn_sum_keep(e, -1))));)
SPELLING(one_shifted, sn_tensor s = shown(&p); sn_tensor m_ = sn_max(sn_amax_keep(s, -1), 0);
         sn_tensor e = sn_exp(sn_sub(s, m_));
         return weigh(&p, sn_div(e, sn_add(sn_exp(sn_neg(m_)), sn_sum_keep(e, -1))));)
SPELLING(one_gate, sn_tensor s = shown(&p);
         return sn_merge_heads(sn_mul(sn_matmul(sn_softmax(s, -1), p.v),
                                      sn_sigmoid(sn_expand(sn_logsumexp(s, -1), -1))));)
SPELLING(one_padded, sn_tensor a = sn_softmax(sn_pad(shown(&p), -1, 1, 0, 0), -1);
         return sn_merge_heads(sn_matmul(a, sn_pad(p.v, 2, 1, 0, 0)));)
CHECK(one, "sink=1", S(one_plain), S(one_shifted), S(one_gate), S(one_padded))

/* ---- what is not attention ---- */

static void expect_none(sn_tensor (*build)(sn_module *m)) {
    char *text = raise_text(&(raise_spelling){"none", build});
    if (strstr(text, "= attention")) fail_msg("%s", text);
    free(text);
}

static sn_tensor perceptron(sn_module *m) {
    sn_dim T = sn_symbol(m, "T", 1, 64);
    sn_tensor x = sn_input(m, "x", SN_F32, T, D), w = sn_param(m, "w", SN_F32, D, 32);
    sn_tensor h = sn_square(sn_relu(sn_matmul(x, w)));
    return sn_matmul(h, sn_param(m, "out", SN_F32, 32, D));
}
static sn_tensor perceptron_of_inputs(sn_module *m) {
    sn_dim T = sn_symbol(m, "T", 1, 64);
    sn_tensor x = sn_input(m, "x", SN_F32, T, D), w = sn_input(m, "w", SN_F32, D, 32);
    sn_tensor h = sn_square(sn_relu(sn_matmul(x, w)));
    return sn_matmul(h, sn_input(m, "out", SN_F32, 32, D));
}
/* Products of three matrices with nothing between them are reordered or left, not tiled. */
SPELLING(three_products, return weigh(&p, p.scores);)
/* Weights that are needed elsewhere stay in memory. */
SPELLING(needed, sn_tensor w = sn_sigmoid(p.scores); return sn_add(weigh(&p, w), sn_sum_all(w));)
/* Every other column: the padding is not what is left out. */
static sn_tensor every_other(sn_module *m) {
    sn_tensor x = sn_input(m, "x", SN_F32, sn_symbol(m, "T", 1, 64), D);
    return sn_slice_step(sn_softmax(sn_pad(x, 1, 0, D, 0.5), 1), 1, 0, D, 2);
}

static void none(void **state) {
    (void)state;
    expect_none(every_other);
    expect_none(perceptron);
    expect_none(perceptron_of_inputs);
    expect_none(three_products);
    expect_none(needed);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sigmoid),   cmocka_unit_test(squared),
                                       cmocka_unit_test(retention), cmocka_unit_test(identity),
                                       cmocka_unit_test(small),     cmocka_unit_test(sink),
                                       cmocka_unit_test(one),       cmocka_unit_test(none)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
