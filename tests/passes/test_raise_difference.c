/* Raising differential attention: the product of a sum of softmaxes with values becomes a sum of attentions, in any
 * spelling, also where one softmax was computed for all; values are kept. */
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
    sn_tensor q[2], k[2], v, both_q, both_k; /* [B,H,T,D]; [B,H,2,T,D] */
} parts;

static sn_tensor both(parts *p, const char *name, sn_tensor *each) {
    sn_tensor x =
        sn_reshape(sn_input(p->m, name, SN_F32, p->B, p->T, 2 * H * D), p->B, p->T, H, 2, D);
    x = sn_transpose(x, 0, 2, 3, 1, 4);
    for (int i = 0; i < 2; i++) each[i] = sn_index(x, 2, i);
    return x;
}

static parts make_parts(sn_module *m) {
    parts p = {.m = m, .B = sn_symbol(m, "B", 1, 4), .T = sn_symbol(m, "T", 1, 32)};
    p.both_q = both(&p, "q", p.q);
    p.both_k = both(&p, "k", p.k);
    p.v = sn_split_heads(sn_input(m, "v", SN_F32, p.B, p.T, H * D), H);
    return p;
}

static sn_tensor softmax(const parts *p, sn_tensor q, sn_tensor k) {
    sn_tensor z = sn_div(sn_matmul(q, sn_swap(k, -1, -2)), sqrt(D));
    return sn_softmax(sn_mask_scores(z, sn_causal_mask(p->m, p->T, p->T)), -1);
}

static sn_tensor weights(const parts *p, int i) {
    return softmax(p, p->q[i], p->k[i]);
}

#define SPELLING(name, ...)                                                                        \
    static sn_tensor name(sn_module *m) {                                                          \
        parts p = make_parts(m);                                                                   \
        __VA_ARGS__                                                                                \
    }

SPELLING(published, sn_tensor w = softmax(&p, p.both_q, p.both_k);
         sn_tensor lambda = sn_exp(sn_input(m, "lambda", SN_F32, 1));
         w = sn_sub(sn_index(w, 2, 0), sn_mul(lambda, sn_index(w, 2, 1)));
         return sn_matmul(w, p.v);)
SPELLING(literal, sn_tensor lambda = sn_exp(sn_input(m, "lambda", SN_F32, 1));
         return sn_matmul(sn_sub(weights(&p, 0), sn_mul(lambda, weights(&p, 1))), p.v);)
SPELLING(of_heads, sn_tensor lambda = sn_input(m, "lambda", SN_F32, H, 1, 1);
         return sn_matmul(sn_sub(weights(&p, 0), sn_mul(lambda, weights(&p, 1))), p.v);)
SPELLING(of_rows, sn_tensor gate = sn_sigmoid(sn_input(m, "gate", SN_F32, p.B, H, p.T, 1));
         sn_tensor w = softmax(&p, p.both_q, p.both_k);
         w = sn_sub(sn_mul(sn_mul(sn_index(w, 2, 0), gate), 3), sn_neg(sn_index(w, 2, 1)));
         return sn_matmul(w, p.v);)
SPELLING(by_einsum, sn_tensor w = sn_sub(weights(&p, 0), sn_mul(weights(&p, 1), 0.3));
         return sn_einsum("bhqk,bhkd->bqhd", w, p.v);)
SPELLING(heads_apart, sn_tensor w = softmax(&p, p.q[0], p.k[0]); /* of two halves of heads */
         w = sn_add(sn_slice(w, 1, 0, 2), sn_slice(w, 1, 2, 2));
         return sn_matmul(w, sn_slice(p.v, 1, 0, 2));)
SPELLING(nested, sn_tensor w = sn_sub(weights(&p, 1), softmax(&p, p.q[0], p.k[1]));
         return sn_matmul(sn_sub(weights(&p, 0), w), p.v);)
SPELLING(one_part, sn_tensor w = softmax(&p, p.both_q, p.both_k);
         return sn_matmul(sn_index(w, 2, 1), p.v);)
/* left alone: columns have different factors, keys are cut, weights are read elsewhere, too */
SPELLING(of_keys, sn_tensor f = sn_input(m, "f", SN_F32, p.T);
         return sn_matmul(sn_sub(weights(&p, 0), sn_mul(f, weights(&p, 1))), p.v);)
SPELLING(cut_keys, sn_tensor w = softmax(&p, p.both_q, p.both_k);
         return sn_matmul(sn_slice(sn_index(w, 2, 1), 3, 0, 1), sn_slice(p.v, 2, 0, 1));)
SPELLING(cut_both, sn_tensor w = sn_sub(weights(&p, 0), sn_mul(weights(&p, 1), 0.3));
         return sn_matmul(sn_slice(w, 3, 0, 1), sn_slice(p.v, 2, 0, 1));)
SPELLING(cut_each, sn_tensor a = sn_slice(weights(&p, 0), 3, 0, 1);
         sn_tensor b = sn_slice(weights(&p, 1), 3, 0, 1);
         return sn_matmul(sn_sub(a, sn_mul(b, 0.3)), sn_slice(p.v, 2, 0, 1));)
SPELLING(every_other, sn_tensor w = softmax(&p, p.q[0], p.k[0]);
         w = sn_sub(sn_slice_step(w, 1, 0, 2, 2), sn_slice_step(w, 1, 1, 2, 2));
         return sn_matmul(w, sn_slice(p.v, 1, 0, 2));)
SPELLING(read_twice, sn_tensor w = softmax(&p, p.both_q, p.both_k);
         w = sn_sub(sn_index(w, 2, 0), sn_mul(sn_index(w, 2, 1), 0.3));
         return sn_mul(sn_matmul(w, p.v), sn_sum_keep(w, -1));)

static void sums(void **state) {
    (void)state;
    static const struct {
        raise_spelling of;
        int attentions;
    } rows[] = {{S(published), 2},   {S(literal), 2},     {S(of_heads), 2}, {S(of_rows), 2},
                {S(by_einsum), 2},   {S(heads_apart), 2}, {S(nested), 3},   {S(one_part), 1},
                {S(of_keys), 0},     {S(cut_keys), 0},    {S(cut_both), 0}, {S(cut_each), 0},
                {S(every_other), 0}, {S(read_twice), 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int n = 0;
        char *text = raise_text(&rows[i].of);
        for (const char *s = text; (s = strstr(s, "= attention %")); s++) n++;
        if (n != rows[i].attentions) fail_msg("%s: %d in\n%s", rows[i].of.name, n, text);
        free(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
