/* Raising attention whose heads mix: products over the heads, in any spelling, become the node with the
 * same text that .mix_scores and .mix_weights of sn_attention make; values are kept. */
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

enum { H = 4, D = 8 };

typedef struct parts {
    sn_module *m;
    sn_dim B, T;
    sn_tensor q, k, v, before, after; /* [B,H,T,D], [H,H] */
} parts;

static parts make_parts(sn_module *m) {
    parts p = {.m = m, .B = sn_symbol(m, "B", 1, 8), .T = sn_symbol(m, "T", 1, 64)};
    p.q = sn_split_heads(sn_input(m, "q", SN_F32, p.B, p.T, H * D), H);
    p.k = sn_split_heads(sn_input(m, "k", SN_F32, p.B, p.T, H * D), H);
    p.v = sn_split_heads(sn_input(m, "v", SN_F32, p.B, p.T, H * D), H);
    p.before = sn_input(m, "before", SN_F32, H, H);
    p.after = sn_input(m, "after", SN_F32, H, H);
    return p;
}

static sn_tensor scores(const parts *p) {
    return sn_div(sn_matmul(p->q, sn_swap(p->k, -1, -2)), sqrt((double)D));
}

static sn_tensor shown(const parts *p, sn_tensor s) {
    return sn_mask_scores(s, sn_causal_mask(p->m, p->T, p->T));
}

static sn_tensor mixed(sn_tensor w, sn_tensor x) {
    return sn_einsum("gh,bhqk->bgqk", w, x);
}

/* Heads as the last axis of a linear map, as modules of a framework spell it. */
static sn_tensor mixed_last(sn_tensor w, sn_tensor x, sn_tensor b) {
    sn_tensor y = sn_linear(sn_transpose(x, 0, 2, 3, 1), w, b);
    return sn_transpose(y, 0, 3, 1, 2);
}

static sn_tensor mixed_flat(const parts *p, sn_tensor w, sn_tensor x) {
    sn_tensor flat = sn_reshape(x, p->B, H, sn_dim_mul(p->m, p->T, p->T));
    return sn_reshape(sn_matmul(w, flat), p->B, H, p->T, p->T);
}

static sn_tensor finish(const parts *p, sn_tensor w) {
    return sn_merge_heads(sn_matmul(w, p->v));
}

#define SPELLING(name, ...)                                                                        \
    static sn_tensor name(sn_module *m) {                                                          \
        parts p = make_parts(m);                                                                   \
        __VA_ARGS__                                                                                \
    }

SPELLING(both_op,
         return sn_merge_heads(sn_attention(p.q, p.k, p.v, .causal = true, .mix_scores = p.before,
                                            .mix_weights = p.after));)
SPELLING(both_einsum, sn_tensor s = shown(&p, mixed(p.before, scores(&p)));
         return finish(&p, mixed(p.after, sn_softmax(s, -1)));)
SPELLING(both_right, sn_tensor s = sn_einsum("bhqk,hg->bgqk", scores(&p), sn_swap(p.before, 0, 1));
         s = sn_softmax(shown(&p, s), -1);
         return finish(&p, sn_einsum("bhqk,hg->bgqk", s, sn_swap(p.after, 0, 1)));)
SPELLING(both_linear, sn_tensor s = shown(&p, mixed_last(p.before, scores(&p), NULL));
         return finish(&p, mixed_last(p.after, sn_softmax(s, -1), NULL));)
SPELLING(both_flat, sn_tensor s = shown(&p, mixed_flat(&p, p.before, scores(&p)));
         return finish(&p, mixed_flat(&p, p.after, sn_softmax(s, -1)));)
SPELLING(both_rows, sn_tensor q = sn_transpose(p.q, 0, 2, 1, 3), k = sn_transpose(p.k, 0, 2, 1, 3);
         sn_tensor s = sn_einsum("bqhd,bkhd->bqkh", q, k); /* heads last */
         s = sn_div(sn_einsum("bqkh,gh->bgqk", s, p.before), sqrt((double)D));
         s = sn_softmax(shown(&p, s), -1);
         return finish(&p, sn_einsum("gh,bhqk->bgqk", p.after, s));)
static sn_tensor both_middle(sn_module *m) { /* flat products, mixed on four axes */
    parts p = make_parts(m);
    sn_dim BH = sn_dim_mul(m, p.B, H);
    sn_tensor q = sn_reshape(p.q, BH, p.T, D), k = sn_reshape(p.k, BH, p.T, D);
    sn_tensor s = sn_reshape(sn_matmul(q, sn_swap(k, 1, 2)), p.B, H, p.T, p.T);
    s = shown(&p, mixed(p.before, sn_div(s, sqrt((double)D))));
    s = sn_reshape(mixed(p.after, sn_softmax(s, -1)), BH, p.T, p.T);
    sn_tensor y = sn_matmul(s, sn_reshape(p.v, BH, p.T, D));
    return sn_merge_heads(sn_reshape(y, p.B, H, p.T, D));
}
CHECK(both, "= mixed_attention %", S(both_op), S(both_einsum), S(both_right), S(both_linear),
      S(both_flat), S(both_rows), S(both_middle))

SPELLING(before_op, return sn_merge_heads(sn_attention(p.q, p.k, p.v, .mix_scores = p.before));)
SPELLING(before_einsum, return finish(&p, sn_softmax(mixed(p.before, scores(&p)), -1));)
SPELLING(before_bias, sn_tensor b = sn_input(m, "b", SN_F32, H); /* the same for all keys */
         return finish(&p, sn_softmax(mixed_last(p.before, scores(&p), b), -1));)
CHECK(before, "mix=1", S(before_op), S(before_einsum), S(before_bias))

SPELLING(after_op, return sn_merge_heads(sn_attention(p.q, p.k, p.v, .mix_weights = p.after));)
SPELLING(after_einsum, return finish(&p, mixed(p.after, sn_softmax(scores(&p), -1)));)
CHECK(after, "mix=2", S(after_op), S(after_einsum))

/* What the kernel cannot do stays as it is. */
static void not_raised(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        sn_module *m = sn_module_new("m");
        sn_entry_begin(m, "f");
        parts p = make_parts(m);
        sn_tensor s = scores(&p);
        if (i == 0) s = mixed(p.before, mixed(p.after, s)); /* twice */
        if (i == 1) s = mixed(p.before, shown(&p, s));      /* hidden before they mix */
        if (i == 2) s = mixed(p.before, sn_relu(s));        /* not linear before */
        sn_tensor w = sn_softmax(s, -1);
        if (i == 3) { /* the mixed weights are needed elsewhere */
            w = mixed(p.after, w);
            sn_output("w", w);
        }
        sn_output("y", finish(&p, w));
        sn_passes run;
        sn_pass_options o = {.level = 4, .backend = "native", .only = "simplify,raise"};
        assert_int_equal(sn_module_error(m)->code, SN_OK);
        assert_true(sn_passes_run(&run, m, &o));
        char *text = module_text(m);
        assert_null(strstr(text, "mixed_attention"));
        free(text);
        sn_module_free(m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both),
        cmocka_unit_test(before),
        cmocka_unit_test(after),
        cmocka_unit_test(not_raised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
