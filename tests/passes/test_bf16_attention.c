/* Option `compute` bf16, attention: factors of its products are rounded to bf16, and only these; the same
 * bits, forward and in gradients, on AVX-512 with the instruction and without it and for any number of
 * threads; few queries round alike. (test_attention_grad compares every score and mask with f64.) */
#include "frontend/sinter.h"
#include "tests/support/effort.h"
#include "tests/support/noise.h"
#include "tests/support/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, H = 4, MAX_T = 133, MAX_D = 40, RESULTS = 4, SIZE = B * H * MAX_T * MAX_D };

static float q[SIZE], k[SIZE], v[SIZE], weight[SIZE], first[RESULTS][SIZE], got[RESULTS][SIZE];

typedef struct problem {
    const char *name;
    int key_heads, tq, tk, d, dv;
    bool causal, backward;
    double scale; /* 0: of the width */
    sn_score_fn score, weight;
} problem;

static sn_tensor score_capped(const sn_score_ctx *c) {
    return sn_mul(sn_tanh(sn_mul(c->score, 0.5)), 2);
}

static sn_tensor score_alibi(const sn_score_ctx *c) {
    return sn_sub(c->score, sn_mul(sn_cast(sn_sub(c->q, c->k), SN_F32), 0.125));
}

static sn_tensor weight_plain(const sn_score_ctx *c) {
    return c->score;
}

static sn_module *build(const problem *p) {
    sn_module *m = sn_module_new("attention");
    sn_entry_begin(m, "run");
    sn_tensor x[] = {sn_input(m, "q", SN_F32, B, H, p->tq, p->d),
                     sn_input(m, "k", SN_F32, B, p->key_heads, p->tk, p->d),
                     sn_input(m, "v", SN_F32, B, p->key_heads, p->tk, p->dv)},
              lse = NULL, d[3];
    sn_attention_args a = {.q = x[0],
                           .k = x[1],
                           .v = x[2],
                           .causal = p->causal,
                           .scale = p->scale,
                           .score = p->score,
                           .weight = p->weight};
    if (!p->weight && !p->backward) a.lse = &lse;
    sn_tensor y = sn_attention_at(SN_HERE, &a);
    sn_output("y", y);
    if (lse) sn_output("lse", lse);
    if (!p->backward) return m;
    sn_tensor w = sn_input(m, "weight", SN_F32, B, H, p->tq, p->dv);
    sn_grad(sn_sum_all(sn_mul(y, w)), 3, x, d);
    sn_output("dq", d[0]);
    sn_output("dk", d[1]);
    sn_output("dv", d[2]);
    return m;
}

/* Runs the problem; false: this machine is not such a target. */
static bool run(const problem *p, const char *compute, const char *target, int threads,
                float (*to)[SIZE]) {
    sn_error err = {0};
    sn_module *m = build(p);
    sn_options o = sn_options_default();
    o.compute = compute, o.target = target, o.threads = threads;
    sn_program *program = sn_compile(m, &o, &err);
    sn_session *s = program ? sn_session_new(program, NULL, &err) : NULL;
    if (s) {
        const bool lse = !p->weight && !p->backward;
        sn_arg_binding in[] = {SN_BIND("q", SN_F32, q, B, H, p->tq, p->d),
                               SN_BIND("k", SN_F32, k, B, p->key_heads, p->tk, p->d),
                               SN_BIND("v", SN_F32, v, B, p->key_heads, p->tk, p->dv),
                               SN_BIND("weight", SN_F32, weight, B, H, p->tq, p->dv)};
        sn_arg_binding out[] = {SN_BIND("y", SN_F32, to[0], B, H, p->tq, p->dv),
                                SN_BIND("dq", SN_F32, to[1], B, H, p->tq, p->d),
                                SN_BIND("dk", SN_F32, to[2], B, p->key_heads, p->tk, p->d),
                                SN_BIND("dv", SN_F32, to[3], B, p->key_heads, p->tk, p->dv)};
        sn_arg_binding rows = SN_BIND("lse", SN_F32, to[1], B, H, p->tq, 1);
        int n_in = p->backward ? 4 : 3, n = p->backward ? 4 : lse ? 2 : 1;
        if (lse) out[1] = rows;
        memset(to, 0, sizeof *to * RESULTS);
        if (!sn_run(s, "run", in, n_in, out, n, &err)) fail_msg("%s", err.message);
    }
    bool other = err.code == SN_ERR_TARGET;
    if (!s && !other) fail_msg("%s: %s", p->name, err.message);
    sn_session_free(s);
    sn_program_free(program);
    sn_module_free(m);
    return !other;
}

static void fill(void) {
    for (int i = 0; i < SIZE; i++) {
        q[i] = 2 * noise_at((uint32_t)i), k[i] = 2 * noise_at((uint32_t)i + SIZE);
        v[i] = noise_at((uint32_t)i + 2 * SIZE), weight[i] = noise_at((uint32_t)i + 3 * SIZE);
    }
}

static const problem problems[] = {
    {"causal, odd widths", 2, 131, 131, 17, 23, .causal = true, .backward = true},
    {"a score, no power of two", 1, 77, 77, 40, 40, .causal = true, .score = score_capped,
     .backward = true},
    {"an additive score", H, 133, 133, 24, 32, .causal = true, .score = score_alibi,
     .backward = true},
    {"weights", 2, 70, 95, 32, 9, .causal = true, .weight = weight_plain, .backward = true},
};

/* Every lane is a query, whose sums run over elements and keys in one order. Exponentials depend on the
 * vector's length, as in f32: AVX2 has the same bits only where there are none. */
static void same_bits(void **state) {
    (void)state;
    static const struct {
        const char *target;
        int threads;
    } ways[] = {{NULL, 3}, {"x86-64-v3", 2}, {"x86-64-v4", 1}, {"znver4", 1}};
    fill();
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        const problem *p = &problems[i];
        run(p, "bf16", NULL, 2, first);
        for (size_t j = 0; j < sizeof ways / sizeof *ways - !effort_is_long(); j++) {
            bool narrow = ways[j].target && !strcmp(ways[j].target, "x86-64-v3");
            if (narrow && !p->weight) continue;
            if (!run(p, "bf16", ways[j].target, ways[j].threads, got)) continue;
            for (int r = 0; r < RESULTS; r++)
                if (memcmp(first[r], got[r], sizeof *got))
                    fail_msg("%s, %s, %d threads: other bits of result %d", p->name,
                             ways[j].target ? ways[j].target : "this CPU", ways[j].threads, r);
        }
    }
}

static double rounded(float x) {
    return (double)sn_bf16_to_f32(sn_f32_to_bf16(x));
}

/* The log-sum-exp is that of the scores of rounded queries and keys, which are not rounded themselves. */
static void only_factors_round(void **state) {
    (void)state;
    static const problem all[] = {{"full", H, 60, 133, 40, 16, .causal = false},
                                  {"power of two", H, 60, 133, 31, 16, .scale = 0.125},
                                  {"few queries", H, 3, 133, 40, 16, .causal = false},
                                  {"one query", H, 1, 70, 33, 16, .scale = 0.125}};
    fill();
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const problem *p = &all[i];
        run(p, "bf16", NULL, 2, got);
        for (int row = 0; row < B * H * p->tq; row++) {
            const float *x = q + row * p->d, *y = k + row / p->tq * p->tk * p->d;
            double sum = 0, s, scale = p->scale > 0 ? p->scale : 1 / sqrt(p->d);
            for (int j = 0; j < p->tk; j++) {
                s = 0;
                for (int c = 0; c < p->d; c++) s += rounded(x[c]) * rounded(y[j * p->d + c]);
                sum += exp(s * scale);
            }
            if (fabs((double)got[1][row] - log(sum)) > 5e-6 * (1 + fabs(log(sum))))
                fail_msg("%s, row %d: %g, not %g", p->name, row, (double)got[1][row], log(sum));
        }
    }
}

/* Tiles of AMX sum in another order, for any number of threads; where there is none the bits are those of
 * bf16. */
static void unordered(void **state) {
    (void)state;
    static const problem all[] = {
        {"causal", 2, 131, 131, 32, 32, .causal = true, .backward = true},
        {"a score", 1, 77, 77, 32, 16, .score = score_capped, .backward = true},
        {"an additive score", H, 133, 133, 32, 32, .causal = true, .score = score_alibi},
        {"weights", 2, 70, 95, 32, 16, .causal = true, .weight = weight_plain, .backward = true},
        {"a scale of scores", H, 60, 133, 32, 40, .scale = 0.3}};
    fill();
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        run(&all[i], "bf16-unordered", NULL, 3, first);
        run(&all[i], "bf16-unordered", NULL, 1, got);
        assert_memory_equal(first, got, sizeof got);
        run(&all[i], "bf16", NULL, 2, got);
        for (int r = 0; r < RESULTS; r++) {
            double error = 0, size = 0;
            for (int j = 0; j < SIZE; j++) {
                error += pow((double)first[r][j] - (double)got[r][j], 2);
                size += pow((double)got[r][j], 2);
            }
            if (!(error <= size * 1e-6)) /* a thousandth: some factors are rounded the other way */
                fail_msg("%s, result %d: %g", all[i].name, r, sqrt(error / size));
        }
    }
    if (run(&all[0], "bf16-unordered", "native,-amx-bf16", 2, first)) {
        run(&all[0], "bf16", "native,-amx-bf16", 2, got);
        assert_memory_equal(first, got, sizeof got);
    }
}

/* Small integers are exact. */
static void integers(void **state) {
    (void)state;
    static const problem all[] = {
        {"weights", H, 60, 133, 7, 16, .scale = 1, .weight = weight_plain, .backward = true},
        {"few queries", H, 2, 133, 7, 16, .scale = 1, .weight = weight_plain},
        {"causal", 2, 99, 99, 5, 16, .scale = 1, .causal = true, .weight = weight_plain}};
    for (int i = 0; i < SIZE; i++)
        q[i] = (float)(i % 5 - 2), k[i] = (float)(i % 7 - 3), v[i] = (float)(i % 3 - 1),
        weight[i] = (float)(i % 4 - 1);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        run(&all[i], "f32", NULL, 2, first);
        run(&all[i], "bf16", NULL, 2, got);
        for (int r = 0; r < RESULTS; r++) assert_memory_equal(first[r], got[r], sizeof *got);
    }
}

/* A key that is hidden may hold anything; so may one whose value is too large for bf16. */
static void not_finite(void **state) {
    (void)state;
    static const problem p = {"causal", H, 70, 70, 16, 16, .causal = true};
    const float bad[] = {NAN, INFINITY, FLT_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fill();
        for (int head = 0; head < B * H; head++) v[(head * 70 + 45) * 16 + 3] = bad[i];
        run(&p, "bf16", NULL, 2, got);
        for (int row = 0; row < B * H * 70; row++)
            for (int c = 0; c < 16; c++) {
                bool sees = row % 70 >= 45 && c == 3;
                assert_true(isfinite(got[0][row * 16 + c]) == !sees);
            }
    }
}

enum { ROWS = 70, WIDTH = 64 };

/* x's attention to itself between linear maps; `wide`: what is between them is an output, too. */
static void add_block(sn_module *m, const char *entry, bool wide) {
    sn_entry_begin(m, entry);
    sn_tensor x = sn_input(m, "x", SN_F32, 1, ROWS, WIDTH), part[3];
    sn_tensor qkv = sn_linear(x, sn_param(m, "w", SN_F32, 3 * WIDTH, WIDTH), NULL);
    sn_split(qkv, 2, 3, part);
    for (int i = 0; i < 3; i++) part[i] = sn_split_heads(part[i], H);
    sn_attention_args a = {.q = part[0], .k = part[1], .v = part[2], .causal = true};
    sn_tensor y = sn_merge_heads(sn_attention_at(SN_HERE, &a));
    sn_output("y", sn_linear(y, sn_param(m, "o", SN_F32, WIDTH, WIDTH), NULL));
    if (!wide) return;
    sn_output("qkv", qkv);
    sn_output("attention", y);
}

/* What only factors read is stored in bf16, which changes no bit. */
static void stored(void **state) {
    (void)state;
    sn_error err = {0};
    sn_module *m = sn_module_new("attention");
    add_block(m, "narrow", false);
    add_block(m, "wide", true);
    sn_options o = sn_options_default();
    o.compute = "bf16";
    sn_program *p = sn_compile(m, &o, &err);
    if (!p) fail_msg("%s", err.message);
    fill();
    sn_arg_binding param[] = {SN_BIND("w", SN_F32, k, 3 * WIDTH, WIDTH),
                              SN_BIND("o", SN_F32, v, WIDTH, WIDTH)};
    sn_session *s = sn_session_new_arrays(p, param, 2, &err);
    if (!s) fail_msg("%s", err.message);
    sn_arg_binding x = SN_BIND("x", SN_F32, q, 1, ROWS, WIDTH),
                   out[] = {SN_BIND("y", SN_F32, first[0], 1, ROWS, WIDTH),
                            SN_BIND("qkv", SN_F32, first[1], 1, ROWS, 3 * WIDTH),
                            SN_BIND("attention", SN_F32, first[2], 1, ROWS, WIDTH)},
                   alone = SN_BIND("y", SN_F32, got[0], 1, ROWS, WIDTH);
    if (!sn_run(s, "wide", &x, 1, out, 3, &err) || !sn_run(s, "narrow", &x, 1, &alone, 1, &err))
        fail_msg("%s", err.message);
    assert_memory_equal(first[0], got[0], sizeof(float) * ROWS * WIDTH);
    char *narrow = explain_text(p, "narrow"), *wide = explain_text(p, "wide");
    assert_non_null(strstr(narrow, "bf16[1,4,70,16]"));
    assert_null(strstr(wide, "bf16[1,4,70,16]"));
    free(narrow);
    free(wide);
    sn_session_free(s);
    sn_program_free(p);
    sn_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits),  cmocka_unit_test(only_factors_round),
        cmocka_unit_test(unordered),  cmocka_unit_test(integers),
        cmocka_unit_test(not_finite), cmocka_unit_test(stored)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
