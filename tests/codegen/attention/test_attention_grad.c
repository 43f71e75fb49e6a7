/* The backward attention kernel, through the DSL: gradients of q, k, v and of what the score reads,
 * compiled at every level and for several targets against the evaluator, with more blocks and tiles
 * than one; the same bits for any number of threads. */
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
#include "tests/support/text.h"

enum { BUCKETS = 8 };

/* --- scores and masks ------------------------------------------------------------------------- */

/* T5's spirit: near distances apart, far ones together; table [buckets, H] */
static sn_tensor score_buckets(const sn_score_ctx *c) {
    sn_tensor far = sn_abs(sn_sub(c->q, c->k));
    sn_tensor bucket = sn_min(far, sn_add(sn_div(far, 16), 4));
    bucket = sn_min(bucket, BUCKETS - 1);
    return sn_add(c->score, sn_at(c->captured[0], bucket, c->h));
}

/* relative positions: table [2T - 1, H] at q - k + T - 1, in both directions */
static sn_tensor score_relative(const sn_score_ctx *c) {
    sn_tensor at = sn_sub(sn_add(sn_sub(c->q, c->k), c->n_k), 1);
    return sn_add(c->score, sn_at(c->captured[0], at, c->h));
}

/* learned slopes [H], a learned cap (a scalar), soft-capping */
static sn_tensor score_slopes(const sn_score_ctx *c) {
    sn_tensor far = sn_cast(sn_abs(sn_sub(c->q, c->k)), (sn_dtype)c->score->dtype);
    sn_tensor s = sn_mul(sn_tanh(sn_mul(c->score, 0.5)), c->captured[1]);
    return sn_sub(s, sn_mul(sn_at(c->captured[0], c->h), sn_mul(far, 0.1)));
}

/* dense bias [H, T, T], added and multiplied */
static sn_tensor score_dense(const sn_score_ctx *c) {
    sn_tensor b = sn_at(c->captured[0], c->h, c->q, c->k);
    return sn_add(sn_mul(c->score, sn_add(b, 1)), b);
}

/* keys of a list by heads that share it: no axis of the table is the head's or the batch's */
static sn_tensor score_shared(const sn_score_ctx *c) {
    return sn_add(c->score, sn_at(c->captured[0], sn_mod(sn_add(c->q, sn_mul(c->k, 3)), 5)));
}

/* log(1 + distance), not a number for keys that a causal mask hides */
static sn_tensor score_log(const sn_score_ctx *c) {
    sn_tensor far = sn_cast(sn_sub(c->q, c->k), (sn_dtype)c->score->dtype);
    sn_tensor s = sn_mul(c->score, sn_add(sn_at(c->captured[1], c->h), sn_rsqrt(sn_add(far, 1))));
    return sn_sub(s, sn_mul(sn_at(c->captured[0], c->h), sn_log1p(far)));
}

/* a small network of the distance: 51 reads of two tables */
static sn_tensor score_network(const sn_score_ctx *c) {
    enum { UNITS = 17 };
    sn_tensor far = sn_mul(sn_cast(sn_sub(c->q, c->k), (sn_dtype)c->score->dtype), 0.1);
    sn_tensor s = c->score;
    for (int i = 0; i < UNITS; i++) {
        sn_tensor at = sn_full(c->m, SN_I32, i, SN_SCALAR);
        sn_tensor bias = sn_at(c->captured[0], sn_add(at, UNITS));
        sn_tensor unit = sn_tanh(sn_add(sn_mul(sn_at(c->captured[0], at), far), bias));
        s = sn_add(s, sn_mul(sn_at(c->captured[1], at), unit));
    }
    return s;
}

static sn_tensor mask_documents(const sn_score_ctx *c) {
    sn_tensor doc = c->captured[*(const int *)c->user];
    return sn_eq(sn_at(doc, c->b, c->q), sn_at(doc, c->b, c->k));
}

typedef struct variant {
    const char *name;
    int b, h, hk, tq, tk, d, dv;
    bool causal, documents, packed;
    double dropout;
    sn_score_fn score;
    int n_table;
    int64_t table[2][4]; /* sizes, then 0 */
} variant;

static const variant variants[] = {
    {"full", 1, 2, 2, 110, 110, 16, 16, .causal = false},
    {"causal groups", 2, 4, 2, 99, 99, 16, 24, .causal = true},
    {"cross, one key head", 2, 3, 1, 70, 130, 20, 9, .causal = false},
    {"packed", 2, 3, 3, 100, 100, 32, 32, .causal = true, .packed = true},
    {"few queries", 2, 2, 2, 3, 70, 16, 16, .causal = true},
    {"documents", 2, 2, 2, 110, 110, 8, 8, .causal = true, .documents = true},
    {"buckets", 2, 2, 2, 110, 110, 16, 16, .causal = true, .score = score_buckets, .n_table = 1,
     .table = {{BUCKETS, 2}}},
    {"relative", 1, 4, 2, 100, 100, 16, 16, .score = score_relative, .n_table = 1,
     .table = {{199, 4}}},
    {"slopes", 2, 3, 3, 90, 75, 8, 8, .score = score_slopes, .n_table = 2, .table = {{3}, {0}}},
    {"dense", 2, 2, 1, 70, 70, 16, 16, .documents = true, .score = score_dense, .n_table = 1,
     .table = {{2, 70, 70}}},
    {"shared", 2, 3, 3, 60, 60, 8, 8, .causal = true, .score = score_shared, .n_table = 1,
     .table = {{5}}},
    {"log", 2, 2, 1, 70, 70, 8, 8, .causal = true, .score = score_log, .n_table = 2,
     .table = {{2}, {2}}},
    {"network", 1, 2, 2, 40, 40, 8, 8, .causal = true, .score = score_network, .n_table = 2,
     .table = {{34}, {17}}},
    {"dropout", 2, 2, 1, 100, 100, 16, 16, .causal = true, .dropout = 0.25},
    {"dropout, whole words", 1, 3, 3, 64, 128, 16, 8, .dropout = 0.5},
    {"dropout, few queries", 2, 4, 2, 5, 70, 16, 16, .dropout = 0.1},
    {"dropout, buckets", 1, 2, 2, 100, 100, 8, 8, .dropout = 0.3, .score = score_buckets,
     .n_table = 1, .table = {{BUCKETS, 2}}},
};
enum { N_VARIANTS = sizeof variants / sizeof *variants };

/* --- the graph -------------------------------------------------------------------------------- */

/* Entry "main": the result and all gradients of sum(weight attention). */
static sn_module *build(const variant *v, sn_dtype t) {
    sn_module *m = sn_module_new("attention_grad");
    sn_tensor in[3], wrt[AC_MAX_GRADIENTS];
    int n = 0;
    if (v->packed) {
        sn_tensor x = sn_input(m, "x", t, v->b, v->tq, 3 * v->h * v->d), part[3];
        sn_split(x, 2, 3, part);
        for (int i = 0; i < 3; i++) in[i] = sn_split_heads(part[i], v->h);
        wrt[n++] = x;
    } else {
        wrt[n++] = in[0] = sn_input(m, "q", t, v->b, v->h, v->tq, v->d);
        wrt[n++] = in[1] = sn_input(m, "k", t, v->b, v->hk, v->tk, v->d);
        wrt[n++] = in[2] = sn_input(m, "v", t, v->b, v->hk, v->tk, v->dv);
    }
    sn_attention_args a = {in[0], in[1], in[2], .causal = v->causal, .score = v->score};
    a.user = &v->n_table;
    for (int i = 0; i < v->n_table; i++) wrt[n++] = a.captured[i] = ac_table(m, i, t, v->table[i]);
    if (v->documents) {
        a.mask = mask_documents;
        a.captured[v->n_table] = sn_input(m, "documents", SN_I32, v->b, v->tq);
    }
    a.dropout = v->dropout;
    if (v->dropout > 0) a.rng = sn_input(m, "rng", SN_I64, 2);
    sn_tensor y = sn_attention_at(SN_HERE, &a);
    sn_entry *e = sn_entry_add(m, "main");
    sn_entry_output(m, e, "y", y);
    ac_gradients(e, y, n, wrt);
    return m;
}

/* --- tests ------------------------------------------------------------------------------------ */

/* What `sinter explain` says of a variant; free it. */
static char *report_of(const char *name) {
    const variant *v = NULL;
    for (int i = 0; i < N_VARIANTS; i++)
        if (!strcmp(variants[i].name, name)) v = &variants[i];
    assert_non_null(v);
    sn_module *m = build(v, SN_F32);
    sn_error err = {0};
    sn_options o = {.level = 4, .plan_only = true};
    sn_program *p = sn_compile(m, &o, &err);
    if (!p) fail_msg("%s", err.message);
    char *text = explain_text(p, NULL);
    sn_program_free(p);
    sn_module_free(m);
    return text;
}

/* The report names the derivative, what it adds up, and what the mask does to tiles. */
static void explained(void **state) {
    (void)state;
    char *text = report_of("slopes");
    const char *back = strstr(text, "flash_grad");
    assert_non_null(back);
    assert_non_null(strstr(back, "no mask"));
    assert_non_null(strstr(back, "score and its derivative: "));
    assert_non_null(strstr(back, "tanh"));
    assert_non_null(strstr(back, "gradient of captured tensor 0"));
    assert_non_null(strstr(back, "gradient of captured tensor 1"));
    free(text);
}

/* q, k and v are read as parts of one tensor, and their gradients stored as parts of one. */
static void packed_in_place(void **state) {
    (void)state;
    char *text = report_of("packed");
    assert_non_null(strstr(text, "entry main: 2 kernel calls"));
    free(text);
}

static sn_module *build_setting(const ac_setting *s) {
    return build(s->variant, s->t);
}

/* The default run takes every variant once, alternately in f32, in f64 and for other targets, and one of
 * them at each lower level. Bits for any number of threads: heads that divide evenly among them,
 * heads that several threads share, threads without a head. */
int main(void) {
    static ac_setting all[N_VARIANTS * 8];
    static const char *const targets[] = {"x86-64-v3", "x86-64"};
    static const struct CMUnitTest more[] = {cmocka_unit_test(explained),
                                             cmocka_unit_test(packed_in_place)};
    size_t n = 0;
    for (int i = 0; i < N_VARIANTS; i++) {
        ac_setting s = {.variant = &variants[i], .name = variants[i].name, .level = 4, .t = SN_F32};
        for (int level = 0; level < 4; level += 2)
            if (effort_takes((size_t)(i + level * 3), N_VARIANTS))
                all[n] = s, all[n++].level = level;
        if (i % 4 < 2 || effort_is_long()) all[n++] = s;
        if (effort_takes((size_t)i + 2, 4)) all[n] = s, all[n++].t = SN_F64;
        if (effort_takes((size_t)i + 1, 4))
            all[n] = s, all[n].t = i % 8 == 3 ? SN_F64 : SN_F32,
            all[n++].target = targets[i / 4 % 2];
        if (effort_takes((size_t)i, 4)) all[n] = s, all[n++].bits = true;
        if (effort_takes((size_t)i, 4))
            all[n] = s, all[n].bf16 = true, all[n++].target = i % 2 ? targets[i / 2 % 2] : NULL;
    }
    return ac_run("attention_grad", build_setting, all, n, more, 2);
}
