/* Masks by which each query chooses blocks of keys: the queries that see a tile are gathered. Beside
 * windows, biases, dropout and groups of heads, forward and in gradients, against the evaluator; the
 * same bits for any number of threads. */
#include "frontend/sinter.h"
#include "ir/ir.h"
#include "tests/support/effort.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/support/attention_case.h"
#include "tests/support/compile_case.h"
#include "tests/support/text.h"

/* --- masks and scores ------------------------------------------------------------------------- */

typedef struct variant {
    const char *name;
    int b, h, hk, tq, tk, d, dv;
    int block,
        least; /* keys of a block; numbers -9 .. 9 of the table that choose one: from here on */
    bool causal, bias, twice; /* twice: the result is the difference from chosen_otherwise */
    double dropout;
    sn_score_fn mask, score;
} variant;

static sn_tensor chosen(const sn_score_ctx *c) { /* table [B, H, Tq, blocks] */
    const variant *v = c->user;
    sn_tensor x = sn_at(c->captured[0], c->b, c->h, c->q, sn_div(c->k, v->block));
    return sn_ge(x, v->least);
}

/* The same, spelt so that queries are not gathered. */
static sn_tensor chosen_otherwise(const sn_score_ctx *c) {
    const variant *v = c->user;
    sn_tensor block = sn_sub(sn_div(sn_add(c->k, v->block), v->block), 1);
    return sn_ge(sn_at(c->captured[0], c->b, c->h, c->q, block), v->least);
}

static sn_tensor chosen_or_near(const sn_score_ctx *c) {
    return sn_or(chosen(c), sn_lt(sn_sub(c->q, c->k), 20));
}

static sn_tensor chosen_by_some(const sn_score_ctx *c) { /* queries 32 .. 95 see nothing */
    return sn_and(chosen(c), sn_ge(sn_abs(sn_sub(sn_mul(c->q, 2), 127)), 64));
}

/* Another look-up by query and key: in a tile it finds many elements. */
static sn_tensor chosen_diagonals(const sn_score_ctx *c) {
    const variant *v = c->user;
    sn_tensor at = sn_min(sn_add(c->q, c->k), v->tq - 1);
    sn_tensor x = sn_at(c->captured[0], c->b, c->h, at, sn_div(c->k, v->block));
    return sn_and(chosen(c), sn_ge(x, v->least));
}

static sn_tensor score_bias(const sn_score_ctx *c) { /* table [Tq, Tk] */
    return sn_add(c->score, sn_at(c->captured[1], c->q, c->k));
}

static sn_tensor score_far(const sn_score_ctx *c) {
    sn_tensor far = sn_cast(sn_abs(sn_sub(c->q, c->k)), (sn_dtype)c->score->dtype);
    return sn_sub(sn_tanh(c->score), sn_log1p(far));
}

static const variant variants[] = {
    {"causal groups", 2, 4, 2, 150, 150, 16, 24, 16, 8, .causal = true, .mask = chosen},
    {"or near", 1, 3, 1, 300, 300, 12, 9, 32, 8, .causal = true, .mask = chosen_or_near},
    {"nothing to see", 1, 2, 2, 190, 190, 16, 16, 128, 6, .mask = chosen_by_some},
    {"bias", 1, 2, 2, 130, 170, 8, 8, 32, 8, .bias = true, .mask = chosen, .score = score_bias},
    {"far", 1, 3, 3, 130, 200, 16, 16, 64, 8, .mask = chosen, .score = score_far},
    {"dropout", 1, 2, 1, 130, 200, 16, 16, 64, 8, .dropout = 0.25, .mask = chosen},
    {"same bits", 1, 3, 3, 200, 200, 16, 16, 64, 7, .twice = true, .mask = chosen},
    {"all", 1, 2, 2, 100, 130, 8, 8, 16, -9, .mask = chosen},
    {"diagonals", 1, 2, 2, 150, 130, 8, 8, 64, 0, .mask = chosen_diagonals},
};
enum { N_VARIANTS = sizeof variants / sizeof *variants };

static sn_module *build(const ac_setting *s) {
    const variant *v = s->variant;
    sn_dtype t = s->t;
    sn_module *m = sn_module_new("attention_choices");
    sn_tensor wrt[] = {sn_input(m, "q", t, v->b, v->h, v->tq, v->d),
                       sn_input(m, "k", t, v->b, v->hk, v->tk, v->d),
                       sn_input(m, "v", t, v->b, v->hk, v->tk, v->dv)};
    sn_attention_args a = {wrt[0],          wrt[1],           wrt[2], .causal = v->causal,
                           .mask = v->mask, .score = v->score};
    a.user = (void *)v;
    int64_t blocks = (v->tk + v->block - 1) / v->block, square[] = {v->tq, v->tk, 0};
    a.captured[0] = sn_input(m, "choices", SN_I32, v->b, v->h, v->tq, blocks);
    if (v->bias) a.captured[1] = ac_table(m, 1, t, square);
    a.dropout = v->dropout;
    if (v->dropout > 0) a.rng = sn_input(m, "rng", SN_I64, 2);
    sn_tensor y = sn_attention_at(SN_HERE, &a);
    if (v->twice) {
        a.mask = chosen_otherwise;
        y = sn_mul(sn_sub(y, sn_attention_at(SN_HERE, &a)), 1e30);
    }
    sn_entry *e = sn_entry_add(m, "main");
    sn_entry_output(m, e, "y", y);
    if (s->back) ac_gradients(e, y, 3, wrt);
    return m;
}

/* --- tests ------------------------------------------------------------------------------------ */

/* The report says it of one of the two attentions, and of its gradient. */
static void explained(void **state) {
    (void)state;
    const variant *v = variants;
    while (!v->twice) v++;
    sn_module *m = build(&(ac_setting){.variant = v, .t = SN_F32, .back = true});
    sn_error err = {0};
    sn_program *p = sn_compile(m, &(sn_options){.level = 4, .plan_only = true}, &err);
    if (!p) fail_msg("%s", err.message);
    char *text = explain_text(p, NULL);
    int says = 0;
    for (const char *at = text; (at = strstr(at, "; queries that see a tile are gathered")); at++)
        says++;
    assert_int_equal(says, 2);
    free(text);
    sn_program_free(p);
    sn_module_free(m);
}

int main(void) {
    static ac_setting all[N_VARIANTS * 6];
    static const char *const targets[] = {"x86-64-v3", "x86-64"};
    static const struct CMUnitTest more[] = {cmocka_unit_test(explained)};
    size_t n = 0;
    for (int i = 0; i < N_VARIANTS; i++) {
        ac_setting s = {.variant = &variants[i], .name = variants[i].name, .level = 4, .t = SN_F32};
        s.back = true;
        if (i % 4 != 1 || effort_is_long()) all[n++] = s;
        if (effort_takes((size_t)i + 3, 4)) all[n] = s, all[n++].target = targets[i / 4 % 2];
        if (effort_takes((size_t)i + 1, 8)) all[n] = s, all[n++].t = SN_F64;
        /* bf16: dk and dv add pairs of queries, so that gathering changes their rounding */
        if (effort_takes((size_t)i + 2, 8))
            all[n] = s, all[n].back = !variants[i].twice, all[n++].bf16 = true;
        if (effort_takes((size_t)i + 7, 8)) all[n] = s, all[n].bits = true, all[n++].bf16 = true;
        if (effort_takes((size_t)i, 4)) all[n] = s, all[n++].bits = true;
    }
    return ac_run("attention_choices", build, all, n, more, 1);
}
