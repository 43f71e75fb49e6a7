/* What is at the edge of sense, at levels 0 and 4: masks that forbid everything, sizes 0 and 1, NaN
 * and infinities in visible and in hidden scores; and options that contradict each other. */
#include "frontend/sinter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include "tests/support/scratch.h"

enum { MAX_B = 2, H = 2, MAX_T = 40, D = 8, MAX_SIZE = MAX_B * H * MAX_T * D };

typedef struct attention {
    sn_module *m;
    sn_program *p;
    sn_session *s;
} attention;

/* A key is visible up to the query, and from a number on that is an input. */
static sn_tensor visible(const sn_score_ctx *c) {
    return sn_and(sn_ge(c->k, sn_at(c->captured[0], c->b)), sn_le(c->k, c->q));
}

/* B and T from `least` on. plain: written out as matmul, mask, softmax, matmul. */
static attention open_attention(int level, int least, bool plain) {
    attention a = {.m = sn_module_new("edge")};
    sn_error err = {0};
    sn_dim B = sn_symbol(a.m, "B", least, MAX_B), T = sn_symbol(a.m, "T", least, MAX_T);
    sn_tensor q = sn_input(a.m, "q", SN_F32, B, H, T, D),
              k = sn_input(a.m, "k", SN_F32, B, H, T, D),
              v = sn_input(a.m, "v", SN_F32, B, H, T, D), from = sn_input(a.m, "from", SN_I32, B),
              y;
    if (plain) {
        sn_tensor row = sn_iota(a.m, SN_I32, 2, B, H, T, T),
                  at = sn_iota(a.m, SN_I32, 3, B, H, T, T);
        sn_tensor first = sn_reshape(from, B, 1, 1, 1);
        sn_tensor s = sn_mul(sn_matmul(q, sn_transpose(k, 0, 1, 3, 2)), 1 / sqrt(D));
        s = sn_mask_scores(s, sn_and(sn_ge(at, first), sn_le(at, row)));
        y = sn_matmul(sn_softmax(s, 3), v);
    } else {
        y = sn_attention(q, k, v, .mask = visible, .captured = {from});
    }
    sn_entry_begin(a.m, "main");
    sn_output("y", y);
    sn_options o = {.level = level, .threads = 2, .backend = "native", .cache_dir = scratch_dir};
    a.p = sn_compile(a.m, &o, &err);
    if (!a.p) fail_msg("level %d: %s", level, err.message);
    a.s = sn_session_new_arrays(a.p, NULL, 0, &err);
    if (!a.s) fail_msg("level %d: %s", level, err.message);
    return a;
}

static void close_attention(attention *a) {
    sn_session_free(a->s);
    sn_program_free(a->p);
    sn_module_free(a->m);
}

typedef struct data {
    float q[MAX_SIZE], k[MAX_SIZE], v[MAX_SIZE], y[MAX_SIZE];
    int32_t from[MAX_B];
} data;

static void fill(data *d) {
    uint64_t seed = 7;
    for (int i = 0; i < MAX_SIZE; i++) {
        d->q[i] = (float)(next_random(&seed) % 2001) / 1000 - 1;
        d->k[i] = (float)(next_random(&seed) % 2001) / 1000 - 1;
        d->v[i] = (float)(next_random(&seed) % 2001) / 1000 - 1;
        d->y[i] = 77;
    }
    d->from[0] = d->from[1] = 0;
}

static bool run(const attention *a, data *d, int B, int T, sn_error *err) {
    sn_arg_binding in[] = {
        SN_BIND("q", SN_F32, d->q, B, H, T, D), SN_BIND("k", SN_F32, d->k, B, H, T, D),
        SN_BIND("v", SN_F32, d->v, B, H, T, D), SN_BIND("from", SN_I32, d->from, B)};
    sn_arg_binding out = SN_BIND("y", SN_F32, d->y, B, H, T, D);
    *err = (sn_error){0};
    return sn_run(a->s, "main", in, 4, &out, 1, err);
}

/* Each form of attention at each level: level 0 written out, 0, 4 written out, 4. */
enum { FORMS = 4 };
static attention form(int i, int least) {
    return open_attention(i < 2 ? 0 : 4, least, i % 2 == 0);
}

static void nothing_is_visible(void **state) {
    (void)state;
    static data d;
    for (int i = 0; i < FORMS; i++) {
        attention a = form(i, 0);
        sn_error err;
        fill(&d);
        d.from[0] = MAX_T; /* batch 0 sees nothing */
        if (!run(&a, &d, MAX_B, MAX_T, &err)) fail_msg("%s", err.message);
        for (int e = 0; e < MAX_SIZE / 2; e++) assert_true(d.y[e] == 0);
        for (int e = MAX_SIZE / 2; e < MAX_SIZE; e++) assert_true(isfinite(d.y[e]) && d.y[e] != 77);
        close_attention(&a);
    }
}

/* A message about a shape gives the values of its symbols. */
static void shape_of_an_input(void **state) {
    (void)state;
    static data d;
    attention a = open_attention(4, 1, false);
    sn_error err = {0};
    fill(&d);
    sn_arg_binding in[] = {
        SN_BIND("q", SN_F32, d.q, 1, H, 4, D), SN_BIND("k", SN_F32, d.k, 1, H, 9, D),
        SN_BIND("v", SN_F32, d.v, 1, H, 4, D), SN_BIND("from", SN_I32, d.from, 1)};
    sn_arg_binding out = SN_BIND("y", SN_F32, d.y, 1, H, 4, D);
    assert_false(sn_run(a.s, "main", in, 4, &out, 1, &err));
    assert_string_equal(err.message,
                        "main: 'k' must be f32[B,2,T,8], where B = 1, T = 4, not f32[1,2,9,8]");
    close_attention(&a);
}

static sn_tensor softmax_by_hand(int way, sn_tensor s) {
    sn_tensor weight = sn_exp(way == 0 ? s : sn_sub(s, sn_amax_keep(s, -1)));
    if (way < 2) return sn_div(weight, sn_sum_keep(weight, -1));
    if (way == 2) return sn_exp(sn_sub(s, sn_expand(sn_logsumexp(s, -1), -1)));
    return sn_exp(sn_log_softmax(s, -1));
}

/* As arithmetic a hidden row would be 0 / 0 or infinity less infinity: it is 0 on every level. */
static void hidden_rows_by_hand(void **state) {
    (void)state;
    enum { T = 9, FIRST = 4 }; /* the first query that sees a key */
    float x[T * D], y[T * D];
    for (int i = 0; i < T * D; i++) x[i] = (float)(i % 11) / 7 - 1;
    for (int way = 0; way < 4; way++)
        for (int level = 0; level <= 4; level++) {
            sn_error err = {0};
            sn_module *m = sn_module_new("hidden");
            sn_entry_begin(m, "main");
            sn_tensor v = sn_input(m, "x", SN_F32, T, D);
            sn_tensor at = sn_iota(m, SN_I32, 1, T, T), row = sn_iota(m, SN_I32, 0, T, T);
            sn_tensor s =
                sn_where(sn_le(at, sn_sub(row, FIRST)), sn_matmul(v, sn_swap(v, 0, 1)), -INFINITY);
            sn_output("y", sn_matmul(softmax_by_hand(way, s), v));
            sn_options o = {.level = level, .backend = "native", .cache_dir = scratch_dir};
            sn_program *p = sn_compile(m, &o, &err);
            sn_session *run = p ? sn_session_new_arrays(p, NULL, 0, &err) : NULL;
            sn_arg_binding in = SN_BIND("x", SN_F32, x, T, D), out = SN_BIND("y", SN_F32, y, T, D);
            if (!run || !sn_run(run, "main", &in, 1, &out, 1, &err)) fail_msg("%s", err.message);
            for (int i = 0; i < FIRST * D; i++)
                if (y[i] != 0) fail_msg("way %d, level %d: %g", way, level, (double)y[i]);
            for (int i = 0; i < D; i++) /* it sees key 0 alone */
                assert_float_equal(y[FIRST * D + i], x[i], 1e-6F);
            sn_session_free(run);
            sn_program_free(p);
            sn_module_free(m);
        }
}

static void sizes(void **state) {
    (void)state;
    static data d;
    for (int i = 0; i < FORMS; i++) {
        attention a = form(i, 0);
        sn_error err;
        fill(&d);
        if (!run(&a, &d, 0, 5, &err)) fail_msg("B = 0: %s", err.message);
        if (!run(&a, &d, 2, 0, &err)) fail_msg("T = 0: %s", err.message);
        for (int e = 0; e < MAX_SIZE; e++)
            assert_true(d.y[e] == 77); /* there is nothing to write */
        if (!run(&a, &d, 2, 1, &err)) fail_msg("T = 1: %s", err.message);
        for (int e = 0; e < 2 * H * D; e++) assert_float_equal(d.y[e], d.v[e], 1e-6F);
        close_attention(&a);
        a = form(i, 1); /* the module says that there are none such */
        assert_false(run(&a, &d, 0, 5, &err));
        expect_error(&err, SN_ERR_RANGE, "main", "B = 0 is outside its range 1..2");
        assert_false(run(&a, &d, 2, 0, &err));
        expect_error(&err, SN_ERR_RANGE, "main", "T = 0 is outside its range 1..40");
        assert_false(run(&a, &d, 2, MAX_T + 1, &err));
        expect_error(&err, SN_ERR_RANGE, "main", "T = 41 is outside its range 1..40");
        close_attention(&a);
    }
}

/* A bad number in key `at` (of batch 0, head 0): queries before `at` do not see it. */
static void not_finite(void **state) {
    (void)state;
    static data d, clean;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    enum { AT = 17 };
    for (int i = 0; i < FORMS; i++) {
        attention a = form(i, 0);
        sn_error err;
        fill(&clean);
        for (int e = 0; e < MAX_SIZE; e++) clean.q[e] = fabsf(clean.q[e]) + 0.1F;
        if (!run(&a, &clean, 1, MAX_T, &err)) fail_msg("%s", err.message);
        for (int b = 0; b < 3; b++)
            for (int hidden = 0; hidden < 2; hidden++) {
                d = clean;
                d.k[AT * D + 3] = bad[b];
                d.from[0] = hidden ? AT + 1 : 0; /* then no query sees it */
                if (!run(&a, &d, 1, MAX_T, &err)) fail_msg("%s", err.message);
                for (int e = 0; e < H * MAX_T * D; e++) {
                    int t = e / D;
                    bool sees = t >= AT && t < MAX_T && !hidden;
                    if (!sees && !isfinite(d.y[e]))
                        fail_msg("form %d, number %d: row %d has %g", i, b, t, (double)d.y[e]);
                    if (!sees && !hidden) assert_true(d.y[e] == clean.y[e]);
                    /* a score of -inf is a key of no weight; NaN and +inf spoil the row */
                    if (sees && isnan(d.y[e]) != (b < 2))
                        fail_msg("form %d, number %d: row %d has %g", i, b, t, (double)d.y[e]);
                }
            }
        close_attention(&a);
    }
}

static void options(void **state) {
    (void)state;
    static const char *const taps[] = {"h.1"}, *const no_name[] = {NULL};
    static const struct {
        sn_options o;
        const char *name, *what;
    } rows[] = {
        {{.level = 7}, "fusion level 7", "levels are 0 to 4"},
        {{.level = -7}, "fusion level -7", "levels are 0 to 4"},
        {{.level = 4, .threads = 1000000}, "1000000 threads", "the maximum is 1024"},
        {{.level = 4, .taps = no_name, .n_taps = 1}, "tap 0 is NULL", "tap 0 is NULL"},
        {{.level = 4, .n_taps = 3}, "3 taps", "give a list"},
        {{.level = 4, .passes = "-merge,-fuze"}, "no pass 'fuze'", "passes are"},
        {{.level = 4, .backend = "mkl"}, "backend 'mkl'", "choose auto, native or onednn"},
        {{.level = 4, .weights = "fp8"}, "weights 'fp8'", "choose f32, bf16, int8, int4 or stored"},
        {{.level = 4, .target = "z80"}, "z80", "target"},
        {{.level = 4, .threads = -3}, "-3", "threads"},
        {{.level = 4, .memory_budget = -1}, "memory budget -1", "must not be negative"},
        {{.level = 4, .budget_sizes = "T"}, "budget sizes 'T'", "write them as"},
        {{.level = 4, .budget_sizes = "N=3"}, "module bad", "no dimension 'N'"},
        {{.level = 4, .budget_sizes = "T=99"}, "T = 99", "outside 1..9"},
        {{.level = 4, .taps = taps, .n_taps = 1}, "'h.1'", "module bad"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sn_module *m = sn_module_new("bad");
        sn_tensor x = sn_input(m, "x", SN_F32, sn_symbol(m, "T", 1, 9));
        sn_error err = {0};
        sn_entry_begin(m, "main");
        sn_output("y", sn_exp(x));
        sn_options o = rows[i].o;
        o.cache_dir = "";
        sn_program *p = sn_compile(m, &o, &err);
        sn_session *s = p ? sn_session_new_arrays(p, NULL, 0, &err) : NULL;
        assert_null(s);
        if (!strstr(err.message, rows[i].name) || !strstr(err.message, rows[i].what))
            fail_msg("row %zu: %s", i, err.message);
        assert_true(err.code == SN_ERR_USAGE || err.code == SN_ERR_TARGET ||
                    err.code == SN_ERR_RANGE);
        sn_program_free(p);
        sn_module_free(m);
    }
}

/* Narrow weights have native kernels only. Without oneDNN that is the first complaint. */
static void weights_and_backend(void **state) {
    (void)state;
    static const char *const narrow[] = {"bf16", "int8", "int4"};
    for (int i = 0; i < 3; i++) {
        sn_module *m = sn_module_new("bad");
        sn_error err = {0};
        sn_options o = {.level = 4, .cache_dir = "", .weights = narrow[i], .backend = "onednn"};
        assert_null(sn_compile(m, &o, &err));
        if (err.code == SN_ERR_TARGET)
            expect_error(&err, SN_ERR_TARGET, "backend 'onednn'", "this build has no oneDNN");
        else
            expect_error(&err, SN_ERR_USAGE, narrow[i], "with backend 'onednn'");
        sn_module_free(m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_visible),  cmocka_unit_test(shape_of_an_input),
        cmocka_unit_test(hidden_rows_by_hand), cmocka_unit_test(sizes),
        cmocka_unit_test(not_finite),          cmocka_unit_test(options),
        cmocka_unit_test(weights_and_backend),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
