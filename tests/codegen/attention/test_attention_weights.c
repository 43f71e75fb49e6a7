/* Attention whose weights are not a softmax: retention, sigmoid, squared ReLU, identity; forward,
 * decoding and gradients, at levels 0 and 4, compared with plain loops; one kernel at level 4; the same
 * bits for any number of threads. */
#include "frontend/sinter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/support/compile_case.h"
#include "tests/support/effort.h"
#include "tests/support/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, H = 4, HK = 2, D = 12, DV = 20, MAX_T = 150 };
enum { Q_SIZE = B * H * MAX_T * D, K_SIZE = B * HK * MAX_T * D, V_SIZE = B * HK * MAX_T * DV };
enum { Y_SIZE = B * H * MAX_T * DV };

static float q[Q_SIZE], k[K_SIZE], v[V_SIZE], g[Y_SIZE], y[Y_SIZE], z[Y_SIZE];
static float d_q[2][Q_SIZE], d_k[2][K_SIZE], d_v[2][V_SIZE], d_table[2][H];
static const float table[H] = {0.9F, 0.97F, 0.5F, 1};

static void need(bool ok, const sn_error *err) {
    if (!ok) fail_msg("%s", err->message);
}

/* ---- variants ---- */

static sn_tensor decay(const sn_score_ctx *c) {
    sn_tensor rate = sn_log(sn_at(c->captured[0], c->h));
    sn_tensor far = sn_cast(sn_max(sn_query_key_distance(c), 0), SN_F32);
    return sn_mul(c->score, sn_exp(sn_mul(far, rate)));
}
static sn_tensor sigmoid(const sn_score_ctx *c) {
    return sn_sigmoid(sn_sub(c->score, sn_at(c->captured[0], c->h)));
}
static sn_tensor squared(const sn_score_ctx *c) {
    return sn_square(sn_relu(sn_add(c->score, sn_at(c->captured[0], c->h))));
}
static sn_tensor identity(const sn_score_ctx *c) {
    return c->score;
}
static sn_tensor exponential(const sn_score_ctx *c) {
    return sn_exp(c->score);
}
/* the mask in the weight itself */
static sn_tensor zeroed(const sn_score_ctx *c) {
    return sn_where(sn_ge(sn_query_key_distance(c), 0), sigmoid(c), 0);
}

static double decay_ref(double s, int h, int far) {
    return s * pow((double)table[h], far);
}
static double sigmoid_ref(double s, int h, int far) {
    (void)far;
    return 1 / (1 + exp(-(s - (double)table[h])));
}
static double squared_ref(double s, int h, int far) {
    (void)far;
    return pow(fmax(s + (double)table[h], 0), 2);
}
static double exponential_ref(double s, int h, int far) {
    (void)h, (void)far;
    return exp(s);
}
static double identity_ref(double s, int h, int far) {
    (void)h, (void)far;
    return s;
}

typedef struct variant {
    const char *name;
    sn_score_fn weight;
    double (*ref)(double s, int h, int far);
    sn_row_divisor divide;
    bool causal, no_mask, reads; /* no_mask: sees all keys */
    bool sinks;                  /* the table is one more term of the sum */
} variant;
static const variant variants[] = {
    {"retention", decay, decay_ref, SN_DIVIDE_BY_ABS_SUM, true, false, true, false},
    {"sigmoid", sigmoid, sigmoid_ref, SN_DIVIDE_BY_1, true, false, true, false},
    {"zeroed", zeroed, sigmoid_ref, SN_DIVIDE_BY_SUM, false, false, true, false},
    {"squared", squared, squared_ref, SN_DIVIDE_BY_SUM, true, false, true, false},
    {"identity", identity, identity_ref, SN_DIVIDE_BY_1, true, false, false, false},
    {"softmax", NULL, exponential_ref, SN_DIVIDE_BY_SUM, true, false, true, true},
    {"sum", exponential, exponential_ref, SN_DIVIDE_BY_SUM, true, false, true, true},
    {"all", identity, identity_ref, SN_DIVIDE_BY_1, false, true, false, false},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

/* ---- the graph ---- */

static sn_tensor attend(const variant *x, sn_tensor Q, sn_tensor K, sn_tensor V, sn_tensor rates) {
    if (!x->weight) return sn_attention(Q, K, V, .causal = x->causal, .sink = rates);
    return sn_attention(Q, K, V, .causal = x->causal, .weight = x->weight, .divide = x->divide,
                        .sink = x->sinks ? rates : NULL, .captured = {rates});
}

static sn_module *build(const variant *x) {
    sn_module *m = sn_module_new("weights");
    assert_non_null(m);
    sn_dim T = sn_symbol(m, "T", 1, MAX_T), P = sn_symbol(m, "P", 0, MAX_T - 1);
    sn_entry_begin(m, "run");
    sn_tensor Q = sn_input(m, "q", SN_F32, B, H, T, D), K = sn_input(m, "k", SN_F32, B, HK, T, D);
    sn_tensor V = sn_input(m, "v", SN_F32, B, HK, T, DV), rates = sn_input(m, "table", SN_F32, H);
    sn_tensor out = attend(x, Q, K, V, rates);
    sn_tensor loss = sn_sum_all(sn_mul(out, sn_input(m, "g", SN_F32, B, H, T, DV)));
    sn_tensor wrt[] = {Q, K, V, rates}, d[4];
    sn_output("y", out);
    sn_grad(loss, x->reads ? 4 : 3, wrt, d);
    sn_output("dq", d[0]);
    sn_output("dk", d[1]);
    sn_output("dv", d[2]);
    if (x->reads) sn_output("dtable", d[3]);
    sn_entry_begin(m, "decode");
    Q = sn_input(m, "q", SN_F32, B, H, 1, D), rates = sn_input(m, "table", SN_F32, H);
    K = sn_kv_cache(sn_input(m, "k", SN_F32, B, HK, 1, D), "keys", P, MAX_T);
    V = sn_kv_cache(sn_input(m, "v", SN_F32, B, HK, 1, DV), "values", P, MAX_T);
    sn_output("y", attend(x, Q, K, V, rates));
    sn_error err;
    if (!sn_module_ok(m, &err)) fail_msg("%s: %s", x->name, err.message);
    return m;
}

static void fill(int t) {
    uint32_t r = 77;
    float *of[] = {q, k, v, g};
    int n[] = {B * H * t * D, B * HK * t * D, B * HK * t * DV, B * H * t * DV};
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < n[i]; j++) {
            r = r * 1664525u + 1013904223u;
            of[i][j] = (float)((double)(r >> 8) / 8388608 - 1);
        }
}

/* Row n of the result, of t queries and t keys; only the last query if `last`. */
static void reference(const variant *x, int t, int n, double *out) {
    int b = n / (H * t), h = n / t % H, i = n % t, at = (b * HK + h / (H / HK)) * t;
    double sum = !x->sinks ? 0 : x->weight ? (double)table[h] : exp((double)table[h]);
    memset(out, 0, sizeof *out * DV);
    for (int j = 0; j < (x->no_mask ? t : i + 1); j++) {
        double s = 0;
        for (int c = 0; c < D; c++) s += (double)q[n * D + c] * (double)k[(at + j) * D + c];
        double w = x->ref(s / sqrt(D), h, i - j);
        sum += w;
        for (int c = 0; c < DV; c++) out[c] += w * (double)v[(at + j) * DV + c];
    }
    double by = x->divide == SN_DIVIDE_BY_1     ? 1
                : x->divide == SN_DIVIDE_BY_SUM ? sum
                                                : fmax(fabs(sum), 1);
    for (int c = 0; c < DV; c++) out[c] = by == 0 ? 0 : out[c] / by;
}

static void expect_near(const variant *x, const char *what, int i, double got, double want,
                        double size) {
    if (!(fabs(got - want) <= 2e-5 * (size + fabs(want))))
        fail_msg("%s: %s[%d] is %g, not %g", x->name, what, i, got, want);
}

static void run(const variant *x, sn_session *s, int t, float *out, int which, sn_error *err) {
    sn_arg_binding in[] = {
        SN_BIND("q", SN_F32, q, B, H, t, D), SN_BIND("k", SN_F32, k, B, HK, t, D),
        SN_BIND("v", SN_F32, v, B, HK, t, DV), SN_BIND("g", SN_F32, g, B, H, t, DV),
        SN_BIND("table", SN_F32, (void *)(uintptr_t)table, H)};
    sn_arg_binding result[] = {SN_BIND("y", SN_F32, out, B, H, t, DV),
                               SN_BIND("dq", SN_F32, d_q[which], B, H, t, D),
                               SN_BIND("dk", SN_F32, d_k[which], B, HK, t, D),
                               SN_BIND("dv", SN_F32, d_v[which], B, HK, t, DV),
                               SN_BIND("dtable", SN_F32, d_table[which], H)};
    need(sn_run(s, "run", in, 5, result, x->reads ? 5 : 4, err), err);
}

/* One token after the other gives what all of them give at once. */
static void check_decoding(const variant *x, sn_session *s, int t, sn_error *err) {
    static float one_q[B * H * D], one_k[B * HK * D], one_v[B * HK * DV], one_y[B * H * DV];
    if (x->no_mask) return;
    for (int64_t i = 0; i < t; i++) {
        for (int n = 0; n < B * H; n++) memcpy(one_q + n * D, q + (n * t + i) * D, sizeof *q * D);
        for (int n = 0; n < B * HK; n++) memcpy(one_k + n * D, k + (n * t + i) * D, sizeof *k * D);
        for (int n = 0; n < B * HK; n++)
            memcpy(one_v + n * DV, v + (n * t + i) * DV, sizeof *v * DV);
        sn_arg_binding in[] = {SN_BIND("q", SN_F32, one_q, B, H, 1, D),
                               SN_BIND("k", SN_F32, one_k, B, HK, 1, D),
                               SN_BIND("v", SN_F32, one_v, B, HK, 1, DV), SN_BIND_DIM("P", i),
                               SN_BIND("table", SN_F32, (void *)(uintptr_t)table, H)};
        sn_arg_binding out = SN_BIND("y", SN_F32, one_y, B, H, 1, DV);
        need(sn_run(s, "decode", in, 5, &out, 1, err), err);
        for (int n = 0; n < B * H; n++)
            for (int c = 0; c < DV; c++)
                expect_near(x, "decoded", n, (double)one_y[n * DV + c],
                            (double)y[(n * t + i) * DV + c], 1);
    }
}

static sn_session *open_session(const variant *x, int level, int threads, const char *target,
                                sn_program **p) {
    sn_error err = {0};
    sn_module *m = build(x);
    sn_options o = sn_options_default();
    o.level = level;
    o.threads = threads;
    o.target = target;
    *p = sn_compile(m, &o, &err);
    need(*p != NULL, &err);
    sn_module_free(m);
    sn_session *s = sn_session_new_arrays(*p, NULL, 0, &err);
    need(s != NULL, &err);
    return s;
}

static void expect_same(const variant *x, const char *what, int n, const float *a, const float *b) {
    for (int i = 0; i < n; i++) expect_near(x, what, i, (double)a[i], (double)b[i], 2);
}

/* lowest: gradients are compared with those of level 0. */
static void check(const variant *x, const char *target, bool lowest) {
    static const int sizes[] = {1, 5, 66, MAX_T};
    sn_program *p[3];
    sn_session *s[3] = {open_session(x, 4, 1, target, &p[0]), open_session(x, 4, 3, target, &p[1]),
                        NULL};
    sn_error err = {0};
    p[2] = NULL;
    if (lowest) s[2] = open_session(x, 0, 2, target, &p[2]);
    char *text = explain_text(p[0], "run");
    assert_non_null(strstr(text, x->weight ? "weights without softmax" : "a sink in the divisor"));
    assert_non_null(strstr(text, "flash_grad"));
    if (!x->no_mask) assert_non_null(strstr(text, "empty tiles are skipped"));
    free(text);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int t = sizes[i], rows = B * H * t;
        double want[DV];
        fill(t);
        run(x, s[0], t, y, 0, &err);
        run(x, s[1], t, z, 1, &err);
        assert_memory_equal(y, z, sizeof *y * (size_t)(rows * DV));
        assert_memory_equal(d_q[0], d_q[1], sizeof *q * (size_t)(rows * D));
        assert_memory_equal(d_k[0], d_k[1], sizeof *q * (size_t)(B * HK * t * D));
        for (int n = 0; n < rows; n++) {
            reference(x, t, n, want);
            for (int c = 0; c < DV; c++) expect_near(x, "y", n, (double)y[n * DV + c], want[c], 1);
        }
        if (!lowest) continue;
        run(x, s[2], t, z, 1, &err);
        expect_same(x, "level 0, y", rows * DV, y, z);
        expect_same(x, "level 0, dq", rows * D, d_q[0], d_q[1]);
        expect_same(x, "level 0, dk", B * HK * t * D, d_k[0], d_k[1]);
        expect_same(x, "level 0, dv", B * HK * t * DV, d_v[0], d_v[1]);
        for (int h = 0; h < H && x->reads; h++)
            expect_near(x, "level 0, dtable", h, (double)d_table[0][h], (double)d_table[1][h], 100);
    }
    check_decoding(x, s[0], MAX_T, &err);
    for (int i = 0; i < 3; i++) {
        sn_session_free(s[i]);
        sn_program_free(p[i]);
    }
}

/* The default run takes each divisor once, and a weight without a mask; other_targets has the rest. */
static void every_variant(void **state) {
    (void)state;
    for (int i = 0; i < VARIANTS; i++)
        if (i == 0 || i >= VARIANTS - 3 || effort_is_long())
            check(&variants[i], NULL, effort_takes((size_t)i, VARIANTS));
}

#ifdef __x86_64__
static void other_targets(void **state) {
    (void)state;
    if (effort_is_long()) check(&variants[0], "x86-64-v3", true);
    check(&variants[3], "x86-64-v2", true);
    if (effort_is_long()) check(&variants[VARIANTS - 3], "x86-64-v2", false);
}
#endif

/* By differences of the evaluator. */
static void gradients(void **state) {
    (void)state;
    for (int i = 0; i < VARIANTS - 1; i++) {
        if (!variants[i].reads || (i == VARIANTS - 2 && !effort_is_long())) continue;
        sn_module *m = sn_module_new("check");
        sn_entry_begin(m, "loss");
        sn_tensor Q = sn_input(m, "q", SN_F32, 1, H, 7, D),
                  K = sn_input(m, "k", SN_F32, 1, HK, 7, D);
        sn_tensor V = sn_input(m, "v", SN_F32, 1, HK, 7, DV),
                  rates = sn_input(m, "table", SN_F32, H);
        sn_tensor out = attend(&variants[i], Q, K, V, rates), wrt[] = {Q, K, V, rates};
        sn_arg_binding value = SN_BIND("table", SN_F32, (void *)(uintptr_t)table, H);
        sn_grad_error worst;
        sn_error err = {0};
        need(sn_check_grad(sn_sum_all(sn_square(out)), 4, wrt, &value, 1, &worst, &err), &err);
        if (!(worst.error < 1e-5)) fail_msg("%s: %g", variants[i].name, worst.error);
        sn_module_free(m);
    }
}

static void mistakes(void **state) {
    (void)state;
    sn_error err = {0};
    sn_module *m = sn_module_new("mistakes");
    sn_entry_begin(m, "run");
    sn_tensor x = sn_input(m, "x", SN_F32, 1, 2, 3, 4);
    sn_attention(x, x, x, .divide = SN_DIVIDE_BY_SUM);
    assert_false(sn_module_ok(m, &err));
    assert_non_null(strstr(err.message, "a divisor needs .weight"));
    sn_module_free(m);
    err = (sn_error){0};
    m = sn_module_new("mistakes");
    sn_entry_begin(m, "run");
    x = sn_input(m, "x", SN_F32, 1, 2, 3, 4);
    sn_attention(x, x, x, .sink = sn_input(m, "z", SN_F32, 3));
    assert_false(sn_module_ok(m, &err));
    assert_non_null(strstr(err.message, "the sink f32[3] 'z' does not fit"));
    sn_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_variant),
#ifdef __x86_64__
                                       cmocka_unit_test(other_targets),
#endif
                                       cmocka_unit_test(gradients), cmocka_unit_test(mistakes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
