/* Scores and masks that depend on the distance of query and key in part, in many spellings: rows of
 * distances are found where they should be, and what is read from them is what the evaluator says,
 * forward and backward, at every level and for several targets; the same bits for any number of
 * threads. */
#include "codegen/attention/attention.h"
#include "frontend/sinter.h"
#include "ir/ir.h"
#include "tests/support/effort.h"
#include "tests/support/jit_run.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/support/attention_case.h"
#include "tests/support/compile_case.h"
#include "tests/support/text.h"

enum { EXACT = 4, CLIP = 9, MAX_IN = 8 };

/* --- scores and masks ------------------------------------------------------------------------- */

/* [Raffel et al. 2020], half a step off the edges of buckets; of `far` tokens */
static sn_tensor late_bucket(sn_tensor far, int buckets) {
    sn_tensor ratio = sn_mul(sn_add(sn_cast(far, SN_F32), 0.5), 1.0 / EXACT);
    sn_tensor step = sn_mul(sn_log(ratio), (buckets - EXACT) / log(128.0 / EXACT));
    sn_tensor late = sn_min(sn_add(sn_cast(step, SN_I32), EXACT), buckets - 1);
    return sn_where(sn_lt(far, EXACT), far, late);
}

/* To both sides; table [H, 16]. */
static sn_tensor score_buckets(const sn_score_ctx *c) {
    sn_tensor back = sn_sub(c->q, c->k), far = sn_max(back, sn_neg(back));
    sn_tensor side = sn_mul(sn_cast(sn_lt(back, 0), SN_I32), 8);
    return sn_add(c->score, sn_at(c->captured[0], c->h, sn_add(late_bucket(far, 8), side)));
}

/* The last query is at the position of the last key; future keys are in bucket 0; table [16, H]. */
static sn_tensor score_past_buckets(const sn_score_ctx *c) {
    sn_tensor far = sn_max(sn_query_key_distance(c), 0);
    return sn_add(sn_at(c->captured[0], late_bucket(far, 16), c->h), c->score);
}

/* No difference is written: comparisons, the larger less the smaller, floats; table [H, 9]. */
static sn_tensor score_spelt(const sn_score_ctx *c) {
    sn_tensor far = sn_sub(sn_max(c->q, c->k), sn_min(c->q, c->k));
    sn_tensor x = sn_mul(sn_cast(c->q, SN_F32), 0.25), y = sn_mul(sn_cast(c->k, SN_F32), 0.25);
    sn_tensor wave = sn_cos(sn_sub(sn_add(x, 0.5), sn_add(y, 1.0)));
    wave = sn_where(sn_le(sn_add(c->k, 2), sn_add(c->q, 2)), wave, sn_exp(sn_sub(x, y)));
    sn_tensor near = sn_at(c->captured[0], c->h, sn_min(far, CLIP - 1));
    return sn_add(sn_sub(c->score, near), sn_cast(wave, (sn_dtype)c->score->dtype));
}

/* Two tables, one of them the batch's, and a table of the query, whose part does not depend on the distance. */
static sn_tensor score_tables(const sn_score_ctx *c) {
    sn_tensor back = sn_add(sn_min(sn_max(sn_sub(c->q, c->k), -CLIP), CLIP), CLIP);
    sn_tensor a = sn_at(c->captured[0], c->h, back), b = sn_at(c->captured[1], c->b, back);
    sn_tensor own = sn_at(c->captured[2], c->q);
    return sn_add(sn_mul(c->score, sn_add(a, 1)), sn_add(sn_mul(b, own), sn_exp(sn_mul(a, b))));
}

/* Penalties on distance with the head's own rate: a power, dear enough. */
static sn_tensor score_power(const sn_score_ctx *c) {
    sn_tensor far = sn_cast(sn_abs(sn_sub(c->k, c->q)), (sn_dtype)c->score->dtype);
    sn_tensor rate = sn_abs(sn_at(c->captured[0], c->h));
    return sn_sub(c->score, sn_pow(sn_add(far, 1), sn_add(rate, 0.5)));
}

/* Cheap: left unchanged. */
static sn_tensor score_slope(const sn_score_ctx *c) {
    sn_tensor far = sn_cast(sn_sub(c->q, c->k), (sn_dtype)c->score->dtype);
    return sn_sub(c->score, sn_mul(sn_mul(sn_at(c->captured[0], c->h), 0.1), far));
}

/* Nothing here is a distance. */
static sn_tensor score_sum(const sn_score_ctx *c) {
    sn_tensor at = sn_mod(sn_add(c->q, sn_mul(c->k, 2)), CLIP);
    return sn_add(c->score, sn_at(c->captured[0], c->h, at));
}

/* Positions are pixels of a picture SIDE wide; a number for each offset in rows and columns [Liu et al.
 * 2021, Swin]: one index, two indices, and indices that are not sums; table [H, (2 rows - 1) (2 SIDE - 1)]
 * of at most 9 rows, or [2 SIDE - 1, H, 18]. */
enum { SIDE = 8, ODD = 7 };
static sn_tensor picture_index(const sn_score_ctx *c, double side) {
    sn_tensor down = sn_add(sn_sub(sn_div(c->q, side), sn_div(c->k, side)), 8);
    sn_tensor right = sn_add(sn_sub(sn_mod(c->q, side), sn_mod(c->k, side)), side - 1);
    return sn_add(sn_mul(down, 2 * side - 1), right);
}
static sn_tensor score_picture(const sn_score_ctx *c) {
    return sn_add(c->score, sn_at(c->captured[0], c->h, picture_index(c, SIDE)));
}
static sn_tensor score_odd(const sn_score_ctx *c) {
    sn_tensor x = sn_at(c->captured[0], c->h, picture_index(c, ODD));
    return sn_mul(c->score, sn_add(sn_tanh(x), 1.5));
}
static sn_tensor score_axes(const sn_score_ctx *c) {
    sn_tensor down = sn_sub(sn_neg(sn_div(c->k, SIDE)), sn_neg(sn_div(c->q, SIDE)));
    sn_tensor right = sn_sub(sn_mod(c->k, SIDE), sn_mod(c->q, SIDE));
    sn_tensor i = sn_add(right, SIDE - 1), j = sn_add(sn_add(down, c->h), 8);
    return sn_sub(sn_at(c->captured[0], i, c->h, j), c->score);
}
static sn_tensor mask_picture(const sn_score_ctx *c) {
    return sn_ne(sn_mod(picture_index(c, ODD), 5), 2);
}

/* Whatever the product is. */
static sn_tensor score_alone(const sn_score_ctx *c) {
    return sn_add(sn_at(c->captured[0], c->h, sn_mod(c->k, CLIP)), 1.5);
}
static sn_tensor score_number(const sn_score_ctx *c) {
    return sn_b_const(c->score->m, (sn_dtype)c->score->dtype, 1.5);
}

static sn_tensor mask_strided(const sn_score_ctx *c) {
    return sn_or(sn_eq(sn_mod(sn_sub(c->q, c->k), 5), 0), sn_lt(c->k, 7));
}

/* --- random scores ------------------------------------------------------------------- */

enum { LOOKED_UP = 11 };

typedef struct draw {
    const sn_score_ctx *c;
    uint64_t state;
} draw;

static int pick(draw *d, int n) {
    d->state = d->state * 6364136223846793005u + 1442695040888963407u;
    return (int)((d->state >> 33) % (uint64_t)n);
}

static sn_tensor some_bool(draw *d, int depth);

static sn_tensor some_int(draw *d, int depth) {
    const sn_score_ctx *c = d->c;
    if (depth == 0) {
        sn_tensor leaf[] = {c->q, c->k, c->h, sn_sub(c->q, c->k), sn_sub(sn_add(c->k, 3), c->q)};
        return leaf[pick(d, 5)];
    }
    int kind = pick(d, 11), by = pick(d, 5);
    sn_tensor x = some_int(d, depth - 1);
    if (kind == 0) return sn_add(x, by - 2);
    if (kind == 1) return sn_mul(x, by - 2);
    if (kind == 2) return sn_abs(x);
    if (kind == 3) return sn_neg(x);
    if (kind == 4) return sn_mod(x, by + 2);
    if (kind == 5) return sn_div(x, by + 1);
    sn_tensor y = some_int(d, depth - 1);
    if (kind == 6) return sn_max(x, y);
    if (kind == 7) return sn_min(x, y);
    if (kind == 8) return sn_where(some_bool(d, depth - 1), x, y);
    return kind == 9 ? sn_add(x, y) : sn_sub(x, y);
}

static sn_tensor some_bool(draw *d, int depth) {
    int kind = pick(d, 6);
    if (depth > 0 && kind == 0) return sn_not(some_bool(d, depth - 1));
    if (depth > 0 && kind == 1) return sn_and(some_bool(d, depth - 1), some_bool(d, depth - 1));
    sn_tensor x = some_int(d, depth), y = some_int(d, depth);
    if (kind == 2) return sn_lt(sn_cast(x, SN_F32), sn_cast(y, SN_F32));
    if (kind == 3) return sn_eq(x, y);
    return kind == 4 ? sn_le(x, y) : sn_ne(x, y);
}

static sn_tensor some_float(draw *d, int depth) {
    const sn_score_ctx *c = d->c;
    int kind = pick(d, depth ? 7 : 2);
    if (kind == 0) return sn_mul(sn_cast(some_int(d, 2), (sn_dtype)c->score->dtype), 1.0 / 64);
    if (kind == 1) return sn_at(c->captured[0], c->h, sn_mod(some_int(d, 2), LOOKED_UP));
    sn_tensor x = some_float(d, depth - 1);
    if (kind == 2) return sn_cos(x);
    if (kind == 3) return sn_tanh(x);
    sn_tensor y = some_float(d, depth - 1);
    if (kind == 4) return sn_where(some_bool(d, 1), x, y);
    return kind == 5 ? sn_add(x, y) : sn_sub(x, y);
}

static sn_tensor score_random(const sn_score_ctx *c) {
    draw d = {c, *(const uint64_t *)c->user};
    sn_tensor part = sn_tanh(some_float(&d, 2));
    if (pick(&d, 2)) part = sn_mul(part, c->score);
    part = sn_add(part, sn_sin(some_float(&d, 2)));
    return sn_add(c->score, sn_mul(part, sn_at(c->captured[0], c->h, sn_mul(c->h, 0))));
}

static sn_tensor mask_random(const sn_score_ctx *c) {
    draw d = {c, ~*(const uint64_t *)c->user};
    return sn_or(some_bool(&d, 2), sn_eq(c->q, c->k));
}

/* --- cases ------------------------------------------------------------------------------------ */

typedef struct variant {
    const char *name;
    sn_score_fn score, mask;
    int rows; /* that the forward kernel keeps */
    int sums; /* of parts of query and key */
    int n_table;
    int64_t table[3][3]; /* sizes, then 0 */
    int b, h, hk, tq, tk, d;
    bool causal;
} variant;

static const variant variants[] = {
    {"buckets", score_buckets, NULL, 1, 0, 1, {{3, 16}}, 2, 3, 3, 131, 131, 16, false},
    {"cross", score_buckets, NULL, 1, 0, 1, {{2, 16}}, 1, 2, 1, 71, 203, 9, false},
    {"many queries", score_buckets, NULL, 1, 0, 1, {{2, 16}}, 1, 2, 2, 150, 40, 8, false},
    {"one token", score_buckets, NULL, 0, 0, 1, {{2, 16}}, 2, 2, 2, 1, 1, 8, false},
    {"one key", score_buckets, NULL, 1, 0, 1, {{2, 16}}, 1, 2, 2, 20, 1, 8, false},
    {"causal", score_past_buckets, NULL, 1, 0, 1, {{16, 4}}, 1, 4, 2, 130, 130, 16, true},
    {"offset", score_past_buckets, NULL, 1, 0, 1, {{16, 2}}, 2, 2, 2, 37, 150, 8, true},
    {"decode", score_past_buckets, NULL, 0, 0, 1, {{16, 8}}, 1, 8, 2, 1, 700, 16, true},
    {"spelt", score_spelt, NULL, 2, 0, 1, {{3, CLIP}}, 1, 3, 3, 100, 90, 8, false},
    {"tables", score_tables, NULL, 3, 0, 3, {{2, 19}, {3, 19}, {99}}, 3, 2, 1, 99, 99, 16, true},
    {"power", score_power, NULL, 1, 0, 1, {{2}}, 1, 2, 2, 80, 80, 8, true},
    {"slope", score_slope, NULL, 0, 0, 1, {{2}}, 1, 2, 2, 80, 80, 8, true},
    {"no distance", score_sum, NULL, 0, 0, 1, {{2, CLIP}}, 1, 2, 2, 70, 70, 8, false},
    {"alone", score_alone, NULL, 0, 0, 1, {{2, CLIP}}, 1, 2, 2, 70, 45, 8, false},
    {"alone, decode", score_alone, NULL, 0, 0, 1, {{4, CLIP}}, 1, 4, 2, 1, 700, 16, false},
    {"number", score_number, NULL, 0, 0, 0, {{0}}, 1, 2, 2, 70, 45, 8, true},
    {"strided", NULL, mask_strided, 1, 0, 0, {{0}}, 1, 2, 2, 140, 140, 16, true},
    {"both", score_buckets, mask_strided, 2, 0, 1, {{2, 16}}, 2, 2, 2, 133, 133, 8, true},
    {"picture", score_picture, NULL, 0, 1, 1, {{2, 17 * 15}}, 2, 2, 1, 70, 70, 16, false},
    {"picture, few", score_picture, NULL, 0, 1, 1, {{2, 17 * 15}}, 2, 2, 2, 3, 70, 8, true},
    {"odd picture", score_odd, NULL, 0, 1, 1, {{2, 17 * 13}}, 3, 2, 2, 49, 49, 8, false},
    {"two axes", score_axes, NULL, 0, 2, 1, {{15, 2, 18}}, 1, 2, 2, 67, 72, 8, false},
    {"picture's mask",
     score_picture,
     mask_picture,
     0,
     2,
     1,
     {{2, 17 * 15}},
     1,
     2,
     2,
     66,
     66,
     8,
     false},
};
enum { N_VARIANTS = sizeof variants / sizeof *variants };

/* --- the graph -------------------------------------------------------------------------------- */

/* Entry "main": the result and, if `back`, the gradients of sum(weight attention). seed: of random
 * scores. */
static sn_module *build(const variant *v, sn_dtype t, bool back, uint64_t seed) {
    sn_module *m = sn_module_new("attention");
    sn_tensor in[MAX_IN];
    in[0] = sn_input(m, "q", t, v->b, v->h, v->tq, v->d);
    in[1] = sn_input(m, "k", t, v->b, v->hk, v->tk, v->d);
    in[2] = sn_input(m, "v", t, v->b, v->hk, v->tk, v->d);
    sn_attention_args a = {in[0],          in[1], in[2], .causal = v->causal, .score = v->score,
                           .mask = v->mask};
    a.user = &seed;
    for (int i = 0; i < v->n_table; i++) in[3 + i] = a.captured[i] = ac_table(m, i, t, v->table[i]);
    sn_tensor y = sn_attention_at(SN_HERE, &a);
    sn_entry *e = sn_entry_add(m, "main");
    sn_entry_output(m, e, "y", y);
    if (back) ac_gradients(e, y, 3 + v->n_table, in);
    return m;
}

/* --- tests ------------------------------------------------------------------------------------ */

/* The report says how many values are rows of distances, how many are sums. */
static void rows_found(void **state) {
    (void)state;
    for (int i = 0; i < N_VARIANTS; i++) {
        sn_module *m = build(&variants[i], SN_F32, false, 0);
        sn_error err = {0};
        sn_options o = {.level = 4, .plan_only = true};
        sn_program *p = sn_compile(m, &o, &err);
        if (!p) fail_msg("%s", err.message);
        char *text = explain_text(p, NULL), want[64];
        int n = variants[i].rows;
        snprintf(want, sizeof want, "; %d value%s of the distance", n, n > 1 ? "s" : "");
        const char *found = strstr(text, n ? want : " of the distance");
        if (n ? !found : found != NULL) fail_msg("%s:\n%s", variants[i].name, text);
        n = variants[i].sums;
        snprintf(want, sizeof want, "; %d sum%s of a query's part", n, n > 1 ? "s" : "");
        found = strstr(text, n ? want : " of a query's part");
        if (n ? !found : found != NULL) fail_msg("%s:\n%s", variants[i].name, text);
        free(text);
        sn_program_free(p);
        sn_module_free(m);
    }
}

/* In f64, where no rounding hides a wrong distance. Enough of them have rows. */
static void random_scores(void **state) {
    (void)state;
    enum { SCORES = 16 };
    int with_rows = 0, drawn = 0;
    for (uint64_t seed = 0; seed < SCORES; seed++) {
        if (!effort_takes((size_t)seed, 3)) continue;
        drawn++;
        variant v = {"random", score_random, NULL, 0,       0, 1, {{2, LOOKED_UP}}, 1, 2, 1,
                     0,        70,           8,    seed % 2};
        v.tq = 33 + (int)(seed % 5) * 9;
        if (seed % 3 == 0) v.mask = mask_random;
        sn_module *m = build(&v, SN_F64, seed % 4 == 0, seed);
        jit_run run;
        sn_options o = {.level = 4, .threads = 2};
        bool ok = jit_open(&run, m, &o, jit_random_leaf, NULL);
        ok = ok && jit_check(&run, "main", NULL, 1e-10, 0);
        if (!ok) fail_msg("seed %d: %s", (int)seed, run.why);
        char *text = explain_text(run.p, NULL);
        with_rows += strstr(text, "of the distance, computed once") != NULL;
        free(text);
        jit_close(&run);
        sn_module_free(m);
    }
    assert_true(with_rows > drawn / 3);
}

static sn_module *build_setting(const ac_setting *s) {
    return build(s->variant, s->t, s->back, 0);
}

/* Every variant runs forward at level 4. The default run takes a part of them at level 0, for other
 * targets, in f64, backward and for several numbers of threads. */
int main(void) {
    static ac_setting all[N_VARIANTS * 8];
    static const char *const targets[] = {"x86-64-v3", "x86-64"};
    static const struct CMUnitTest more[] = {cmocka_unit_test(rows_found),
                                             cmocka_unit_test(random_scores)};
    size_t n = 0;
    for (int i = 0; i < N_VARIANTS; i++) {
        ac_setting s = {.variant = &variants[i], .name = variants[i].name, .level = 4, .t = SN_F32};
        all[n++] = s;
        if (effort_takes((size_t)i + 9, N_VARIANTS)) all[n] = s, all[n++].level = 0;
        if (effort_takes((size_t)i, 9)) all[n] = s, all[n++].target = targets[i / 2 % 2];
        if (effort_takes((size_t)i + 1, 8))
            all[n] = s, all[n].t = SN_F64, all[n++].back = i % 3 == 0;
        if (effort_takes((size_t)i + 1, 9)) all[n] = s, all[n++].back = true;
        if (effort_takes((size_t)i + 1, 9)) all[n] = s, all[n].bits = true, all[n++].back = i % 2;
    }
    return ac_run("attention_diagonal", build_setting, all, n, more, 2);
}
