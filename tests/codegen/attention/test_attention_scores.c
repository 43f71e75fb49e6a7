/* Attention over scores of any size: rows of numbers from 1e-30 to the largest of the type, alone
 * and mixed, as masks by large finite numbers make them; a row that such a mask hides throughout
 * is the softmax of what rounding leaves of its scores. Result and gradients at every level and for
 * several targets against the evaluator.
 *
 * Products are exact, so that a score has one rounding, the same one everywhere.
 *
 * test_attention_scores [SEED [COUNT]]: COUNT times other numbers, from SEED on; SEED
 * 0: from the time. */
#include "frontend/sinter.h"
#include "ir/ir.h"
#include "runtime/rng.h"
#include "tests/support/jit_run.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>
#include "tests/support/attention_case.h"
#include "tests/support/scratch.h"

enum { D = 4, DV = 8 };

static uint64_t first_seed = 1, n_seeds = 1;

/* --- scores ----------------------------------------------------------------------------------- */

static sn_tensor bias_of(const sn_score_ctx *c) {
    return sn_at(c->captured[0], c->b, c->h, c->q, c->k);
}

static sn_tensor score_add(const sn_score_ctx *c) {
    return sn_add(c->score, bias_of(c));
}

static sn_tensor score_where(const sn_score_ctx *c) {
    return sn_where(sn_eq(bias_of(c), 0), c->score, bias_of(c));
}

static sn_tensor score_cap(const sn_score_ctx *c) {
    return sn_add(sn_mul(sn_tanh(sn_mul(c->score, 1.0 / 16)), 16), bias_of(c));
}

static sn_tensor score_terms(const sn_score_ctx *c) { /* with a number of the distance */
    sn_tensor far = sn_cast(sn_sub(c->k, c->q), (sn_dtype)c->score->dtype);
    return sn_add(sn_add(c->score, sn_mul(far, 1.0 / 64)), bias_of(c));
}

static sn_tensor score_alone(const sn_score_ctx *c) { /* queries and keys get no gradient */
    return sn_mul(bias_of(c), 0.5);
}

static sn_tensor mask_some(const sn_score_ctx *c) {
    return sn_ne(sn_mod(sn_add(c->q, c->k), 5), 0);
}

typedef struct variant {
    const char *name;
    sn_score_fn score, mask; /* score NULL: plain operations; so are products by themselves */
    bool products;           /* which are large; no bias */
    int b, h, hk, tq, tk;
    bool causal;
    double dropout;
} variant;

static const variant variants[] = {
    {"operations", NULL, NULL, false, 2, 2, 2, 45, 75, .causal = false},
    {"sum", score_add, NULL, false, 2, 2, 1, 45, 75, .causal = false},
    {"products", NULL, NULL, true, 2, 2, 1, 45, 75, .causal = false},
    {"choice", score_where, NULL, false, 2, 2, 1, 45, 75, .causal = false},
    {"soft cap", score_cap, NULL, false, 2, 2, 2, 45, 75, .causal = false},
    {"terms", score_terms, mask_some, false, 2, 2, 2, 45, 75, .causal = true},
    {"few queries", score_add, NULL, false, 1, 16, 2, 3, 600, .causal = false},
    {"few queries, soft cap", score_cap, mask_some, false, 1, 16, 16, 1, 70, .causal = false},
    {"bias alone", score_alone, NULL, false, 2, 2, 1, 9, 21, .causal = false},
    {"dropout", score_add, NULL, false, 1, 4, 2, 45, 130, .dropout = 0.25},
};

enum { N_VARIANTS = sizeof variants / sizeof *variants, MAX_SETTINGS = N_VARIANTS * 8 };

/* --- the graph -------------------------------------------------------------------------------- */

static sn_tensor plain_operations(sn_tensor q, sn_tensor k, sn_tensor v, sn_tensor bias) {
    sn_tensor s = sn_mul(sn_matmul(q, sn_swap(k, 2, 3)), 0.5);
    return sn_matmul(sn_softmax(sn_add(s, bias), -1), v);
}

static sn_module *build(const variant *v, sn_dtype t) {
    sn_module *m = sn_module_new("attention_scores");
    sn_tensor q = sn_input(m, "q", t, v->b, v->h, v->tq, D), bias = NULL;
    sn_tensor k = sn_input(m, "k", t, v->b, v->hk, v->tk, D);
    sn_tensor val = sn_input(m, "v", t, v->b, v->hk, v->tk, DV), y;
    if (!v->products) bias = sn_input(m, "bias", t, v->b, v->h, v->tq, v->tk);
    if (v->score || v->products) {
        sn_attention_args a = {q, k, val, .causal = v->causal, .score = v->score, .mask = v->mask};
        a.captured[0] = bias;
        a.scale = v->products ? 1 : 0;
        a.dropout = v->dropout;
        if (v->dropout > 0) a.rng = sn_input(m, "rng", SN_I64, 2);
        y = sn_attention_at(SN_HERE, &a);
    } else {
        y = plain_operations(q, k, val, bias);
    }
    sn_entry *e = sn_entry_add(m, "main");
    sn_entry_output(m, e, "y", y);
    /* what flows to keys is a sum over queries, which cancels where these are as large as here */
    if (v->products)
        ac_gradients(e, y, 2, (sn_tensor[]){q, val});
    else
        ac_gradients(e, y, 4, (sn_tensor[]){q, k, val, bias});
    return m;
}

/* --- numbers ---------------------------------------------------------------------------------- */

/* Where a score has other roundings before, it must not lie near a tie of these. */
static const double sizes[] = {1e-30, 1e-5, 1,    1e4,  1e9,  5e9,    1e10,
                               1e11,  1e20, 1e30, 1e36, 3e37, 2.4e38, FLT_MAX};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

typedef struct source {
    uint64_t seed;
    bool products; /* queries are as large as a bias */
} source;

static int below(sn_rng *r, int n) {
    return (int)sn_rng_below(r, (uint32_t)n);
}

static double size_of(sn_rng *r, bool wide) {
    double x = sizes[below(r, N_SIZES)];
    return wide && x == FLT_MAX ? DBL_MAX : x;
}

/* What is added to a row of scores: nothing, one number to some or to all, numbers of one size with
 * either sign, numbers of all sizes; in some rows -inf to some keys, in a few to all. */
static void fill_bias(sn_rng *r, bool wide, double *x, int n) {
    double size = size_of(r, wide), part = sn_rng_uniform53(r), hidden = sn_rng_uniform53(r);
    int kind = below(r, 6);
    if (below(r, 3)) size = -size;
    hidden = hidden < 0.05 ? 1 : hidden < 0.2 ? 0.3 : 0;
    for (int i = 0; i < n; i++) {
        double any = size_of(r, wide), by = (below(r, 5) - 2) / 2.0;
        double some = sn_rng_uniform53(r) < part ? size : 0;
        double of[] = {0, size, some, by * size, by * any, size};
        x[i] = sn_rng_uniform53(r) < hidden ? -INFINITY : of[kind];
    }
}

/* Quarters up to 3 (queries) or 2 (keys). As products, |q k| < 24: the largest power of two times
 * that is finite, sums on the way too. */
static void fill_factor(sn_rng *r, bool query, bool large, double *x, int n) {
    double by = large ? ldexp(1, below(r, 3) ? below(r, 224) - 100 : 123) : 1;
    for (int i = 0; i < n; i++) x[i] = by * (query ? below(r, 25) - 12 : below(r, 17) - 8) / 4;
}

static void *numbers(void *ctx, const sn_node *leaf, const int64_t *symbol, size_t *bytes) {
    const source *from = ctx;
    const char *name = sn_attr_str(leaf, SN_A_name, "");
    bool query = !strcmp(name, "q"), bias = !strcmp(name, "bias"), wide = leaf->dtype == SN_F64;
    if (!query && !bias && strcmp(name, "k")) return jit_random_leaf(NULL, leaf, symbol, bytes);
    size_t n = 1;
    for (int a = 0; a < leaf->rank; a++) n *= (size_t)sn_dim_eval(leaf->m, leaf->shape[a], symbol);
    int width = (int)sn_dim_eval(leaf->m, leaf->shape[leaf->rank - 1], symbol);
    *bytes = n * sn_dtype_size((sn_dtype)leaf->dtype);
    double *x = calloc(n, sizeof *x);
    float *narrow = (float *)x;
    sn_rng r = {.seed = from->seed, .stream = SN_STREAM_DATA, .index = 1000000 * (uint64_t)name[0]};
    for (size_t at = 0; x && at < n; at += (size_t)width)
        if (bias)
            fill_bias(&r, wide, x + at, width);
        else
            fill_factor(&r, query, query && from->products, x + at, width);
    for (size_t i = 0; x && !wide && i < n; i++) { /* in place: from the first on */
        float y = (float)x[i];
        memcpy(&narrow[i], &y, sizeof y);
    }
    return x;
}

/* --- tests ------------------------------------------------------------------------------------ */

typedef struct setting {
    const variant *v;
    sn_dtype t;
    int level;
    const char *target;
    char name[80];
} setting;

static void matches_evaluator(void **state) {
    const setting *s = *state;
    sn_module *m = build(s->v, s->t);
    source from = {.products = s->v->products};
    sn_options o = {.level = s->level, .threads = 2, .target = s->target};
    jit_run r;
    bool ok = jit_open(&r, m, &o, numbers, &from), wide = s->t == SN_F64;
    r.single = true; /* -1e9 + p is rounded, and differences of it are large */
    for (uint64_t i = 0; i < n_seeds && ok; i++) {
        from.seed = first_seed + i;
        ok = jit_check(&r, "main", NULL, wide ? 1e-11 : 2e-5, 0);
    }
    char why[JIT_WHY];
    snprintf(why, sizeof why, "%s", r.why);
    jit_close(&r);
    sn_module_free(m);
    if (!ok) fail_msg("seed %llu: %s", (unsigned long long)from.seed, why);
}

/* Two heads that mix, with scores near -200. A tile of keys is hidden from one head only: its weights
 * there are 0, whatever the other tiles' maximum is. */
static sn_tensor score_low(const sn_score_ctx *c) {
    return sn_sub(c->score, 200);
}

static sn_tensor mask_of_head(const sn_score_ctx *c) {
    return sn_lt(c->k, sn_add(sn_mul(c->h, 1000), 60));
}

static void hidden_from_one_head(void **state) {
    (void)state;
    sn_module *m = sn_module_new("hidden");
    sn_tensor q = sn_input(m, "q", SN_F32, 1, 2, 20, D), k = sn_input(m, "k", SN_F32, 1, 2, 130, D);
    sn_tensor v = sn_input(m, "v", SN_F32, 1, 2, 130, DV), mix = sn_input(m, "mix", SN_F32, 2, 2);
    sn_tensor y =
        sn_attention(q, k, v, .score = score_low, .mask = mask_of_head, .mix_weights = mix);
    sn_entry *e = sn_entry_add(m, "main");
    sn_entry_output(m, e, "y", y);
    ac_gradients(e, y, 4, (sn_tensor[]){q, k, v, mix});
    sn_options o = {.level = 4, .threads = 1};
    char why[JIT_WHY];
    bool ok = jit_matches(m, &o, NULL, jit_random_leaf, NULL, 2e-5, 4, why);
    sn_module_free(m);
    if (!ok) fail_msg("%s", why);
}

/* A mask looks keys up in a table of more elements than a kernel reads to bound them: nothing is known. */
enum { WORDS = 70000 };

static sn_tensor word_of(const sn_score_ctx *c) {
    return sn_at(c->captured[0], sn_at(c->captured[1], c->k));
}

static sn_tensor mask_above(const sn_score_ctx *c) {
    return sn_gt(word_of(c), 0);
}

static sn_tensor mask_below(const sn_score_ctx *c) {
    return sn_lt(word_of(c), 0);
}

static void *words(void *ctx, const sn_node *leaf, const int64_t *symbol, size_t *bytes) {
    const bool ids = !strcmp(sn_attr_str(leaf, SN_A_name, ""), "ids");
    int32_t *data = jit_random_leaf(ctx, leaf, symbol, bytes);
    for (int32_t i = 0; data && leaf->dtype == SN_I32 && i < (int32_t)(*bytes / sizeof *data); i++)
        data[i] = ids ? i * 7919 % WORDS : i % 5 - 2;
    return data;
}

static void looked_up(void **state) {
    (void)state;
    sn_module *m = sn_module_new("words");
    sn_tensor q = sn_input(m, "q", SN_F32, 1, 2, 20, D), k = sn_input(m, "k", SN_F32, 1, 2, 70, D);
    sn_tensor v = sn_input(m, "v", SN_F32, 1, 2, 70, DV),
              table = sn_input(m, "table", SN_I32, WORDS), ids = sn_input(m, "ids", SN_I32, 70);
    sn_entry *e = sn_entry_add(m, "main");
    sn_entry_output(m, e, "above",
                    sn_attention(q, k, v, .mask = mask_above, .captured = {table, ids}));
    sn_entry_output(m, e, "below",
                    sn_attention(q, k, v, .mask = mask_below, .captured = {table, ids}));
    sn_options o = {.level = 4, .threads = 1};
    char why[JIT_WHY];
    bool ok = jit_matches(m, &o, NULL, words, NULL, 2e-5, 4, why);
    sn_module_free(m);
    if (!ok) fail_msg("%s", why);
}

/* Biases of places in a grid of 4 rows: the queries of a vector are of one row, or of two. */
enum { GRID = 20, STEPS = 2 * GRID - 1, PLACES = 4 * GRID };

static sn_tensor score_of_places(const sn_score_ctx *c) {
    sn_tensor down = sn_add(sn_sub(sn_div(c->q, GRID), sn_div(c->k, GRID)), 3);
    sn_tensor along = sn_add(sn_sub(sn_mod(c->q, GRID), sn_mod(c->k, GRID)), GRID - 1);
    return sn_add(c->score, sn_at(c->captured[0], c->h, sn_add(sn_mul(down, STEPS), along)));
}

static void of_places(void **state) {
    (void)state;
    sn_module *m = sn_module_new("places");
    sn_tensor x = sn_input(m, "x", SN_F32, 1, 2, PLACES, D);
    sn_entry_output(m, sn_entry_add(m, "main"), "y",
                    sn_attention(x, x, x, .score = score_of_places,
                                 .captured = {sn_param(m, "table", SN_F32, 2, 7 * STEPS)}));
    sn_options o = {.level = 4, .threads = 1};
    char why[JIT_WHY];
    bool ok = jit_matches(m, &o, NULL, jit_random_leaf, NULL, 2e-5, 4, why);
    sn_module_free(m);
    if (!ok) fail_msg("%s", why);
}

/* Queries, keys or values alone in a narrow type. */
static void of_types(void **state) {
    (void)state;
    static const sn_dtype narrow[] = {SN_BF16, SN_BF16, SN_F16};
    sn_module *m = sn_module_new("types");
    for (int i = 0; i < 3; i++) {
        sn_tensor x[3];
        for (int k = 0; k < 3; k++) {
            char name[] = {"qkv"[k], (char)('0' + i), 0};
            x[k] = sn_input(m, name, k == i ? narrow[i] : SN_F32, 1, 2, k ? 70 : 20, D);
            if (k == i) x[k] = sn_cast(x[k], SN_F32);
        }
        char name[] = {'y', (char)('0' + i), 0};
        sn_entry_output(m, sn_entry_add(m, name), "y", sn_attention(x[0], x[1], x[2]));
    }
    sn_options o = {.level = 4, .threads = 1};
    char why[JIT_WHY];
    bool ok = jit_matches(m, &o, NULL, jit_random_leaf, NULL, 2e-5, 4, why);
    sn_module_free(m);
    if (!ok) fail_msg("%s", why);
}

/* One more term of each row's sum, of few queries over so many keys that these are split, and with heads
 * behind queries in memory. */
static sn_tensor score_exp(const sn_score_ctx *c) {
    return sn_exp(c->score);
}

static void of_sinks(void **state) {
    (void)state;
    sn_module *m = sn_module_new("sinks");
    for (int i = 0; i < 3; i++) {
        char name[] = {'m', (char)('0' + i), 0};
        int rows = i == 1 ? 3 : 1, keys = i == 1 ? 70 : 1100;
        sn_tensor q = sn_input(m, name, SN_F32, 1, 2, rows, D);
        name[0] = 'k';
        sn_tensor k = sn_input(m, name, SN_F32, 1, 2, keys, D);
        name[0] = 'v';
        sn_tensor v = sn_input(m, name, SN_F32, 1, 2, keys, DV);
        name[0] = 's';
        sn_tensor z = sn_transpose(sn_input(m, name, SN_F32, 1, rows, 2), 0, 2, 1);
        sn_entry_output(m, sn_entry_add(m, name), "y",
                        i < 2 ? sn_attention(q, k, v, .sink = z)
                              : sn_attention(q, k, v, .weight = score_exp,
                                             .divide = SN_DIVIDE_BY_SUM, .sink = z));
    }
    sn_options o = {.level = 4, .threads = 2};
    char why[JIT_WHY];
    bool ok = jit_matches(m, &o, NULL, jit_random_leaf, NULL, 2e-5, 4, why);
    sn_module_free(m);
    if (!ok) fail_msg("%s", why);
}

/* Where the bits must not depend on chunks, many queries are decoded, in blocks of a few: two heads, four
 * blocks each. */
static void of_chunks(void **state) {
    (void)state;
    sn_module *m = sn_module_new("chunks");
    sn_tensor q = sn_input(m, "q", SN_F32, 1, 4, 21, D), k = sn_input(m, "k", SN_F32, 1, 2, 70, D);
    sn_tensor v = sn_input(m, "v", SN_F32, 1, 2, 70, DV);
    sn_entry_output(m, sn_entry_add(m, "main"), "y", sn_attention(q, k, v, .causal = true));
    sn_options o = {.level = 4, .threads = 2, .invariant = "chunk"};
    char why[JIT_WHY];
    bool ok = jit_matches(m, &o, NULL, jit_random_leaf, NULL, 2e-5, 1, why);
    sn_module_free(m);
    if (!ok) fail_msg("%s", why);
}

/* Weights of one query and of many, where values are rows of an identity: within 3.5e-7 of f64's (the
 * exponential is off by 7.5e-8, sums and products round). Scores are exact. */
enum { WEIGHTS = 8, MANY = 20 };

static void *exact_scores(void *ctx, const sn_node *leaf, const int64_t *symbol, size_t *bytes) {
    (void)ctx, (void)symbol;
    const int64_t rows = leaf->shape[2], width = leaf->shape[3];
    float *x = calloc((size_t)(rows * width), sizeof *x);
    *bytes = sizeof *x * (size_t)(rows * width);
    for (int64_t i = 0; x && i < rows; i++)
        x[i * width + (width == WEIGHTS ? i : 0)] = width == WEIGHTS  ? 1e6f
                                                    : rows == WEIGHTS ? (float)i * -0.3125f
                                                                      : 1 - (float)i * 0.03125f;
    return x;
}

static void of_weights(void **state) {
    (void)state;
    static const char *const targets[] = {NULL, "x86-64-v3", "x86-64"};
    for (int i = 0; i < 6; i++) {
        sn_module *m = sn_module_new("weights");
        sn_tensor q = sn_input(m, "q", SN_F32, 1, 1, i % 2 ? MANY : 1, D);
        sn_tensor k = sn_input(m, "k", SN_F32, 1, 1, WEIGHTS, D);
        sn_tensor v = sn_input(m, "v", SN_F32, 1, 1, WEIGHTS, WEIGHTS);
        sn_entry_output(m, sn_entry_add(m, "main"), "y", sn_attention(q, k, v, .scale = 1));
        sn_options o = {.level = 4, .threads = 1, .target = targets[i / 2]};
        char why[JIT_WHY];
        bool ok = jit_matches(m, &o, NULL, exact_scores, NULL, 3.5e-7, 0, why);
        sn_module_free(m);
        if (!ok && !strstr(why, "cannot run code")) fail_msg("%s", why);
    }
}

/* Biases by the distance, from two tables, and by a number that only looks like one: rounded places. */
static sn_tensor score_distances(const sn_score_ctx *c) {
    sn_tensor far = sn_add(sn_sub(c->q, c->k), 69), rounded[2];
    for (int i = 0; i < 2; i++) {
        sn_tensor at = sn_cast(i ? c->k : c->q, SN_F32);
        rounded[i] = sn_cast(sn_mul(at, 0.3), SN_I32);
    }
    sn_tensor x = sn_add(c->score, sn_at(c->captured[0], far, c->h));
    x = sn_add(x, sn_mul(sn_at(c->captured[1], far), 0.5));
    return sn_add(x, sn_at(c->captured[2], sn_add(sn_sub(rounded[0], rounded[1]), 21)));
}

static void of_distances(void **state) {
    (void)state;
    sn_module *m = sn_module_new("distances");
    sn_tensor in[6] = {
        sn_input(m, "q", SN_F32, 1, 2, 70, D),  sn_input(m, "k", SN_F32, 1, 2, 70, D),
        sn_input(m, "v", SN_F32, 1, 2, 70, DV), sn_input(m, "a", SN_F32, 139, 2),
        sn_input(m, "b", SN_F32, 139),          sn_input(m, "c", SN_F32, 43)};
    sn_tensor y = sn_attention(in[0], in[1], in[2], .score = score_distances,
                               .captured = {in[3], in[4], in[5]});
    sn_entry *e = sn_entry_add(m, "main");
    sn_entry_output(m, e, "y", y);
    ac_gradients(e, y, 6, in);
    sn_options o = {.level = 4, .threads = 2};
    char why[JIT_WHY];
    bool ok = jit_matches(m, &o, NULL, jit_random_leaf, NULL, 2e-5, 8, why);
    sn_module_free(m);
    if (!ok) fail_msg("%s", why);
}

/* Attention of so many queries, or dropout alone. */
static sn_tensor dropped(sn_module *m, int queries, double rate) {
    sn_tensor q = sn_input(m, "q", SN_F32, 1, 2, 20, D), k = sn_input(m, "k", SN_F32, 1, 2, 21, D);
    sn_tensor v = sn_input(m, "v", SN_F32, 1, 2, 21, DV), rng = sn_input(m, "rng", SN_I64, 2);
    if (!queries) return sn_dropout(q, rng, rate);
    return sn_attention(sn_slice(q, 2, 0, queries), k, v, .dropout = rate, .rng = rng);
}

/* What is below the rate is dropped: an element whose number is the rate is kept. */
static void at_the_rate(void **state) {
    (void)state;
    static const int queries[] = {0, 1, 20};
    for (int i = 0; i < 3; i++) {
        sn_rng r = {.seed = 41, .step = 42}; /* jit_random_leaf */
        bool ok = true;
        double rate = 0.5;
        for (int pass = 0; pass < 2; pass++) { /* the first one finds the stream */
            sn_module *m = sn_module_new("rate");
            sn_tensor y = dropped(m, queries[i], rate);
            sn_entry_output(m, sn_entry_add(m, "main"), "y", y);
            sn_options o = {.level = 4, .threads = 1};
            char why[JIT_WHY];
            r.stream = (uint32_t)sn_attr_int(y, SN_A_stream, -1);
            rate = (double)sn_bits_uniform(sn_rng_at(&r, 17));
            ok = !pass || jit_matches(m, &o, NULL, jit_random_leaf, NULL, 2e-6, 4, why);
            sn_module_free(m);
            if (!ok) fail_msg("%d queries: %s", queries[i], why);
        }
    }
}

/* By default; further numbers go through every variant, level and target. */
static const setting few_settings[] = {
    {.v = &variants[0], .level = 0, .t = SN_F32},
    {.v = &variants[0], .level = 3, .t = SN_F32},
    {.v = &variants[1], .level = 4, .t = SN_F32, .target = "x86-64-v3"},
    {.v = &variants[8], .level = 4, .t = SN_F64},
    {.v = &variants[2], .level = 4, .t = SN_F32},
    {.v = &variants[4], .level = 4, .t = SN_F32, .target = "x86-64"},
    {.v = &variants[5], .level = 4, .t = SN_F32},
    {.v = &variants[6], .level = 4, .t = SN_F32},
    {.v = &variants[7], .level = 4, .t = SN_F32, .target = "x86-64-v3"},
};

static size_t all_settings(setting *to) {
    static const char *const targets[] = {NULL, "x86-64-v3", "x86-64"};
    size_t n = 0;
    for (int i = 0; i < N_VARIANTS; i++) {
        for (int level = 0; level < 4; level++)
            to[n++] = (setting){.v = &variants[i], .t = SN_F32, .level = level};
        for (int k = 0; k < 3; k++)
            to[n++] = (setting){.v = &variants[i], .t = SN_F32, .level = 4, .target = targets[k]};
        to[n++] = (setting){.v = &variants[i], .t = SN_F64, .level = 4};
    }
    return n;
}

int main(int argc, char **argv) {
    static setting all[MAX_SETTINGS];
    static struct CMUnitTest tests[MAX_SETTINGS + 9];
    size_t n = sizeof few_settings / sizeof *few_settings;
    memcpy(all, few_settings, sizeof few_settings);
    if (argc > 1) first_seed = strtoull(argv[1], NULL, 10);
    if (!first_seed) first_seed = (uint64_t)time(NULL) << 20; /* failures name their seed */
    if (argc > 2) n_seeds = strtoull(argv[2], NULL, 10), n = all_settings(all);
    for (size_t i = 0; i < n; i++) {
        setting *s = &all[i];
        snprintf(s->name, sizeof s->name, "%s, %s, level %d %s", s->v->name, sn_dtype_name(s->t),
                 s->level, s->target ? s->target : "");
        tests[i] = (struct CMUnitTest){s->name, matches_evaluator, NULL, NULL, s};
    }
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(hidden_from_one_head);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(looked_up);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(of_places);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(of_types);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(at_the_rate);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(of_sinks);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(of_distances);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(of_chunks);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(of_weights);
    return _cmocka_run_group_tests("attention_scores", tests, n, scratch_make, scratch_end);
}
