/* Attention whose score only adds something to the product, in many spellings, under masks and with
 * lengths that fill no tile; and heads so large that blocks of queries take turns at stretches of
 * keys. Against the evaluator, for several targets; the same bits for any number of threads. */
#include "frontend/sinter.h"
#include "ir/ir.h"
#include "tests/support/effort.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/support/attention_case.h"
#include "tests/support/compile_case.h"

enum { MAX_TABLES = 2 };

/* --- scores and masks ------------------------------------------------------------------------- */

static sn_tensor score_bias(const sn_score_ctx *c) { /* table [Tq, Tk] */
    return sn_add(c->score, sn_at(c->captured[0], c->q, c->k));
}

static sn_tensor score_less(const sn_score_ctx *c) {
    return sn_sub(c->score, sn_at(c->captured[0], c->q, c->k));
}

/* Not what this is about: the product is taken from it. */
static sn_tensor score_from(const sn_score_ctx *c) {
    return sn_sub(sn_at(c->captured[0], c->q, c->k), c->score);
}

/* Four terms, each of another kind; tables [H, Tq, Tk] and [Tk]. */
static sn_tensor score_terms(const sn_score_ctx *c) {
    sn_dtype t = (sn_dtype)c->score->dtype;
    sn_tensor far = sn_mul(sn_cast(sn_sub(c->k, c->q), t), 1.0 / 64);
    sn_tensor x = sn_add(sn_at(c->captured[0], c->h, c->q, c->k), c->score);
    x = sn_sub(sn_add(x, sn_at(c->captured[1], c->k)), far);
    return sn_add(x, sn_cast(sn_mul(c->h, 2), t));
}

/* More terms than are kept apart. */
static sn_tensor score_many(const sn_score_ctx *c) {
    sn_tensor x = c->score, row = sn_at(c->captured[0], c->q, c->k);
    for (int i = 1; i < 6; i++) x = sn_sub(x, sn_mul(row, 1.0 / i));
    return x;
}

/* Forbids by minus infinity, a row of queries altogether. */
static sn_tensor score_forbids(const sn_score_ctx *c) {
    sn_tensor hidden = sn_or(sn_eq(sn_mod(sn_add(c->q, c->k), 3), 0), sn_eq(c->q, 5));
    return sn_add(c->score, sn_where(hidden, -INFINITY, sn_at(c->captured[0], c->q, c->k)));
}

static sn_tensor mask_window(const sn_score_ctx *c) {
    sn_tensor back = sn_sub(c->q, c->k);
    return sn_and(sn_ge(back, -3), sn_lt(back, 20));
}

/* --- cases ------------------------------------------------------------------------------------ */

typedef struct variant {
    const char *name;
    sn_score_fn score, mask;
    int b, h, hk, tq, tk, d;
    bool causal;
    int64_t table[MAX_TABLES][4]; /* sizes, then 0 */
} variant;

static const variant variants[] = {
    {"bias", score_bias, NULL, 2, 2, 1, 61, 77, 8, false, {{61, 77}}},
    {"bias, whole tiles", score_bias, NULL, 1, 2, 2, 96, 128, 64, false, {{96, 128}}},
    {"bias, causal", score_bias, NULL, 1, 2, 2, 131, 131, 16, true, {{131, 131}}},
    {"bias, window", score_bias, mask_window, 1, 2, 2, 200, 200, 8, false, {{200, 200}}},
    {"less", score_less, NULL, 1, 2, 2, 33, 75, 8, false, {{33, 75}}},
    {"from", score_from, NULL, 1, 2, 2, 33, 75, 8, false, {{33, 75}}},
    {"terms", score_terms, NULL, 2, 3, 3, 70, 81, 12, false, {{3, 70, 81}, {81}}},
    {"terms, window", score_terms, mask_window, 1, 2, 1, 90, 90, 12, true, {{2, 90, 90}, {90}}},
    {"many", score_many, NULL, 1, 2, 2, 40, 66, 8, false, {{40, 66}}},
    {"forbids", score_forbids, NULL, 1, 2, 2, 70, 70, 8, true, {{70, 70}}},
    {"one key", score_bias, NULL, 1, 1, 1, 20, 1, 8, false, {{20, 1}}},
    {"long", NULL, NULL, 1, 1, 1, 430, 520, 256, false, {{0}}},
    {"long, heads left over", NULL, NULL, 1, 3, 1, 430, 520, 256, true, {{0}}},
    {"long, window", score_bias, mask_window, 1, 1, 1, 440, 530, 256, false, {{440, 530}}},
};
enum { N_VARIANTS = sizeof variants / sizeof *variants };

static sn_module *build(const ac_setting *s) {
    const variant *v = s->variant;
    sn_dtype t = s->t;
    sn_module *m = sn_module_new("attention");
    sn_attention_args a = {sn_input(m, "q", t, v->b, v->h, v->tq, v->d),
                           sn_input(m, "k", t, v->b, v->hk, v->tk, v->d),
                           sn_input(m, "v", t, v->b, v->hk, v->tk, v->d),
                           .causal = v->causal,
                           .score = v->score,
                           .mask = v->mask};
    for (int i = 0; i < MAX_TABLES && v->table[i][0]; i++)
        a.captured[i] = ac_table(m, i, t, v->table[i]);
    sn_entry_output(m, sn_entry_add(m, "main"), "y", sn_attention_at(SN_HERE, &a));
    return m;
}

/* --- tests ------------------------------------------------------------------------------------ */

int main(void) {
    static ac_setting all[N_VARIANTS * 4];
    static const char *const targets[] = {"x86-64-v3", "x86-64"};
    size_t n = 0;
    for (int i = 0; i < N_VARIANTS; i++) {
        ac_setting s = {.variant = &variants[i], .name = variants[i].name, .level = 4, .t = SN_F32};
        bool large = variants[i].d > 64; /* narrow vectors make more blocks of fewer queries */
        all[n++] = s;
        if (effort_takes((size_t)i, 4))
            all[n] = s, all[n++].target = targets[large ? 0 : i / 4 % 2];
        if (!large && effort_takes((size_t)i + 2, 4)) all[n] = s, all[n++].t = SN_F64;
        if (effort_takes((size_t)i, 3))
            all[n] = s, all[n].bits = true, all[n++].target = large ? targets[0] : NULL;
    }
    return ac_run("attention_long", build, all, n, NULL, 0);
}
