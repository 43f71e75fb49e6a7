/* Caches of keys and values in bf16 and int8: decoding gives attention over the rounded rows,
 * computed here in plain loops, at every level and for any number of queries, with grouped heads, for
 * sequences of different lengths and for attention in plain operations; the evaluator agrees; the
 * states are stored narrow. */
#include "tests/support/noise.h"
#include "frontend/sinter.h"
#include "driver/storage.h"
#include "passes/cache.h"
#include "passes/passes.h"
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

enum { B = 2, H = 4, HK = 2, D = 20, DV = 40, MAX_T = 19, CAPACITY = 160 };
enum { Q_SIZE = B * H * MAX_T * D, K_SIZE = B * HK * MAX_T * D, V_SIZE = B * HK * MAX_T * DV };

typedef enum form { PLAIN_STATE, EACH_ROW, SPELLED } form;

static float q[Q_SIZE], k[K_SIZE], v[V_SIZE], y[B * H * MAX_T * DV], z[B * H * MAX_T * DV];
/* what the caches hold, rounded */
static double keys[B][HK][CAPACITY][D], values[B][HK][CAPACITY][DV];

static void need(bool ok, const sn_error *err) {
    if (!ok) fail_msg("%s", err->message);
}

static void round_row(const char *cache, int n, const float *x, double *out) {
    float most = 1e-30f;
    for (int i = 0; i < n; i++) most = fmaxf(most, fabsf(x[i]));
    float scale = most * (float)(1 / 127.0);
    for (int i = 0; i < n; i++)
        out[i] = !strcmp(cache, "bf16")   ? (double)sn_bf16_to_f32(sn_f32_to_bf16(x[i]))
                 : !strcmp(cache, "int8") ? (double)rintf(x[i] * (127 / most)) * (double)scale
                                          : (double)x[i];
}

static sn_tensor append(sn_module *m, sn_tensor x, const char *name, sn_dim past, sn_tensor each) {
    if (!each) return sn_kv_cache(x, name, past, CAPACITY);
    sn_tensor state = sn_state(m, name, SN_F32, B, HK, CAPACITY, sn_dim_of(x, 3));
    sn_tensor next = sn_update_rows(state, 2, x, each);
    sn_assign(state, next);
    return next;
}

/* causal attention as the paper writes it */
static sn_tensor spelled(sn_module *m, sn_tensor Q, sn_tensor K, sn_tensor V, sn_dim T,
                         sn_dim all) {
    K = sn_reshape(sn_broadcast(sn_expand(K, 2), B, HK, H / HK, all, D), B, H, all, D);
    V = sn_reshape(sn_broadcast(sn_expand(V, 2), B, HK, H / HK, all, DV), B, H, all, DV);
    sn_tensor s = sn_mul(sn_matmul(Q, sn_transpose(K, 0, 1, 3, 2)), 1 / sqrt(D));
    s = sn_mask_scores(s, sn_window_mask(m, T, all, 0));
    return sn_matmul(sn_softmax(s, -1), V);
}

static sn_module *build(form f, int64_t one) {
    sn_module *m = sn_module_new("cached");
    assert_non_null(m);
    sn_entry_begin(m, "run");
    sn_dim P = sn_symbol(m, "P", 0, CAPACITY - MAX_T);
    sn_dim T = one ? one : sn_symbol(m, "T", 1, MAX_T), all = sn_dim_add(m, P, T);
    sn_tensor Q = sn_input(m, "q", SN_F32, B, H, T, D), each = NULL;
    sn_tensor K = sn_input(m, "k", SN_F32, B, HK, T, D), V = sn_input(m, "v", SN_F32, B, HK, T, DV);
    if (f == EACH_ROW) each = sn_input(m, "past", SN_I32, B);
    K = append(m, K, "k_cache", P, each);
    V = append(m, V, "v_cache", P, each);
    if (f == SPELLED)
        sn_output("y", spelled(m, Q, K, V, T, all));
    else
        sn_output("y", sn_attention(Q, K, V, .causal = true, .past = each));
    sn_error err;
    if (!sn_module_ok(m, &err)) fail_msg("%s", err.message);
    return m;
}

static void fill(int round) {
    for (int i = 0; i < Q_SIZE; i++) q[i] = 2 * noise_at((uint32_t)(i + 70001 * round));
    for (int i = 0; i < K_SIZE; i++) k[i] = 2 * noise_at((uint32_t)(i + 90001 * round));
    for (int i = 0; i < V_SIZE; i++) v[i] = noise_at((uint32_t)(i + 50001 * round));
}

/* Adds the rows of this call, and compares y with attention over all rows. */
static void check_call(const char *cache, const int *past, int t, const float *got) {
    for (int b = 0; b < B; b++)
        for (int h = 0; h < HK; h++)
            for (int i = 0; i < t; i++) {
                int row = (b * HK + h) * t + i;
                round_row(cache, D, k + (ptrdiff_t)row * D, keys[b][h][past[b] + i]);
                round_row(cache, DV, v + (ptrdiff_t)row * DV, values[b][h][past[b] + i]);
            }
    for (int n = 0; n < B * H * t; n++) {
        int b = n / (H * t), h = n / t % H / (H / HK), seen = past[b] + n % t + 1;
        double sum = 0, out[DV] = {0};
        for (int j = 0; j < seen; j++) {
            double s = 0;
            for (int i = 0; i < D; i++) s += (double)q[n * D + i] * keys[b][h][j][i];
            double p = exp(s / sqrt(D));
            sum += p;
            for (int i = 0; i < DV; i++) out[i] += p * values[b][h][j][i];
        }
        for (int i = 0; i < DV; i++)
            if (!(fabs((double)got[n * DV + i] - out[i] / sum) < 3e-6))
                fail_msg("%s, %d queries after %d: row %d, element %d: %g, not %g", cache, t,
                         past[0], n, i, (double)got[n * DV + i], out[i] / sum);
    }
}

static bool call(sn_session *s, form f, int t, const int *past, float *out, sn_error *err) {
    int64_t P = past[0];
    int32_t each[B];
    for (int b = 0; b < B; b++) each[b] = past[b];
    sn_arg_binding in[] = {SN_BIND("q", SN_F32, q, B, H, t, D),
                           SN_BIND("k", SN_F32, k, B, HK, t, D),
                           SN_BIND("v", SN_F32, v, B, HK, t, DV), SN_BIND_DIM("P", P),
                           SN_BIND("past", SN_I32, each, B)};
    if (f == EACH_ROW) in[3] = in[4];
    sn_arg_binding result = SN_BIND("y", SN_F32, out, B, H, t, DV);
    return sn_run(s, "run", in, 4, &result, 1, err);
}

/* The states have the narrow type, and nothing else is kept. */
static void check_states(sn_session *s, const char *cache) {
    size_t rows = (size_t)B * HK * CAPACITY, element = !strcmp(cache, "int8") ? 1 : 2;
    unsigned char *data = malloc(rows * D * 4);
    sn_error err = {0};
    assert_non_null(data);
    assert_true(sn_state_read(s, "k_cache", data, rows * D * element, &err));
    assert_false(sn_state_read(s, "k_cache", data, rows * D * 4, &err));
    free(data);
}

/* Calls with several numbers of queries, with 1 and 3 threads: the same bits. */
static void check(form f, int64_t one, const char *cache, int level, const char *target) {
    static const int queries[] = {7, 1, MAX_T, 3, 6, MAX_T, MAX_T, MAX_T, 1, 1, 2};
    sn_error err = {0};
    sn_session *s[2];
    sn_program *p[2];
    for (int i = 0; i < 2; i++) {
        sn_module *m = build(f, one);
        int n;
        sn_cache_states(m, &n);
        assert_int_equal(n, 2);
        double all = (double)B * HK * CAPACITY * (D + DV), rows = 2.0 * B * HK * CAPACITY;
        double bytes = !strcmp(cache, "bf16") ? 2 * all : all + 4 * rows;
        assert_true(storage_of_states(m, cache) == bytes && storage_of_states(m, NULL) == 4 * all);
        sn_options o = sn_options_default();
        o.level = level;
        o.cache = cache;
        o.target = target;
        o.threads = 1 + 2 * i;
        p[i] = sn_compile(m, &o, &err);
        need(p[i] != NULL, &err);
        char *text = explain_text(p[i], "run");
        assert_non_null(strstr(text, cache));
        if (level > 2) assert_non_null(strstr(text, "flash"));
        free(text);
        s[i] = sn_session_new_arrays(p[i], NULL, 0, &err);
        need(s[i] != NULL, &err);
        sn_module_free(m);
    }
    int past[B] = {0, f == EACH_ROW ? 5 : 0};
    memset(keys, 0, sizeof keys);
    memset(values, 0, sizeof values);
    if (f == EACH_ROW) /* the rows that nobody wrote are zeros */
        for (int j = 0; j < 5; j++) keys[1][0][j][0] = 0;
    for (size_t i = 0; i < sizeof queries / sizeof *queries; i++) {
        int t = one ? (int)one : queries[i];
        fill((int)i);
        need(call(s[0], f, t, past, y, &err), &err);
        need(call(s[1], f, t, past, z, &err), &err);
        assert_memory_equal(y, z, sizeof *y * (size_t)(B * H * t * DV));
        check_call(cache, past, t, y);
        for (int b = 0; b < B; b++) past[b] += t;
    }
    check_states(s[0], cache);
    for (int i = 0; i < 2; i++) {
        sn_session_free(s[i]);
        sn_program_free(p[i]);
    }
}

/* The first of two queries does not see the second key, whose value may be anything. */
static void hidden_value(void **state) {
    (void)state;
    static const char *const all[] = {"f32", "bf16", "int8"};
    static const int past[B] = {0};
    for (int i = 0; i < 3; i++) {
        sn_error err = {0};
        sn_module *m = build(PLAIN_STATE, 2);
        sn_options o = sn_options_default();
        o.cache = all[i];
        sn_program *p = sn_compile(m, &o, &err);
        sn_session *s = p ? sn_session_new_arrays(p, NULL, 0, &err) : NULL;
        need(s, &err);
        fill(0);
        need(call(s, PLAIN_STATE, 2, past, z, &err), &err);
        for (int row = 1; row < 2 * B * HK; row += 2)
            for (int j = 0; j < DV; j++) v[row * DV + j] = INFINITY;
        need(call(s, PLAIN_STATE, 2, past, y, &err), &err);
        for (int row = 0; row < B * H; row++)
            assert_memory_equal(y + 2 * row * DV, z + 2 * row * DV, sizeof *y * DV);
        sn_session_free(s);
        sn_program_free(p);
        sn_module_free(m);
    }
}

static const char *const caches[] = {"bf16", "int8"};

static void every_level(void **state) {
    (void)state;
    for (int level = 0; level <= 4; level++)
        if (effort_takes((size_t)level, 4) || level == 4)
            check(PLAIN_STATE, 0, "int8", level, NULL);
    check(PLAIN_STATE, 0, "bf16", 4, NULL);
    check(EACH_ROW, 0, "int8", 4, NULL);
    check(EACH_ROW, 0, "bf16", 0, NULL);
}

static void one_query(void **state) {
    (void)state;
    check(PLAIN_STATE, 1, "bf16", 4, NULL);
    check(EACH_ROW, 1, "int8", 3, NULL);
    check(SPELLED, 1, "int8", 4, NULL);
}

#ifdef __x86_64__
static void other_targets(void **state) {
    (void)state;
    check(PLAIN_STATE, 0, "int8", 4, "x86-64-v2");
    check(PLAIN_STATE, 0, "int8", 4, "x86-64-v3");
}
#endif

/* The graph after the pass, with composites whole, is what the kernels compute. */
static void evaluator(void **state) {
    (void)state;
    for (int c = 0; c < 2; c++) {
        sn_module *m = build(PLAIN_STATE, 7);
        sn_passes p;
        sn_pass_options o = {
            .level = 4, .backend = "native", .only = "cache", .verify = true, .cache = caches[c]};
        if (!sn_passes_run(&p, m, &o)) fail_msg("%s", sn_module_error(m)->message);
        int64_t past = 0;
        sn_eval *ev = sn_eval_new(m, &past);
        assert_non_null(ev);
        fill(c);
        sn_order order = sn_entry_topo(m, sn_entry_at(m, 0));
        void *zeros = calloc(B * HK * CAPACITY * DV, 4);
        for (int i = 0; i < order.n; i++) {
            const sn_node *n = order.node[i];
            const char *name = sn_attr_str(n, SN_A_name, "");
            size_t bytes = sn_dtype_size((sn_dtype)n->dtype);
            for (int a = 0; a < n->rank && n->op == SN_OP_state; a++) bytes *= (size_t)n->shape[a];
            if (n->op == SN_OP_state) assert_true(sn_eval_bind(ev, name, zeros, bytes));
            if (n->op == SN_OP_state) assert_true(n->dtype != SN_F32 || n->shape[3] == 1);
        }
        assert_true(sn_eval_bind(ev, "q", q, sizeof *q * B * H * 7 * D));
        assert_true(sn_eval_bind(ev, "k", k, sizeof *k * B * HK * 7 * D));
        assert_true(sn_eval_bind(ev, "v", v, sizeof *v * B * HK * 7 * DV));
        const sn_value *out = sn_eval_node(ev, sn_entry_at(m, 0)->output[0].node);
        if (!out) fail_msg("%s", sn_module_error(m)->message);
        for (int64_t i = 0; i < out->n; i++) y[i] = (float)out->data[i];
        check_call(caches[c], (int[B]){0}, 7, y);
        free(zeros);
        sn_eval_free(ev);
        sn_module_free(m);
    }
}

/* A state that is not a cache stays as it is; an unknown storage is refused. */
static void others(void **state) {
    (void)state;
    sn_module *m = sn_module_new("other");
    sn_entry_begin(m, "run");
    sn_tensor x = sn_input(m, "x", SN_F32, 4, 8), s = sn_state(m, "sum", SN_F32, 4, 8);
    sn_tensor next = sn_add(s, x);
    sn_assign(s, next);
    sn_output("y", sn_matmul(next, sn_transpose(x, 1, 0)));
    sn_tensor columns = sn_state(m, "columns", SN_F32, 4, 8); /* not whole rows are written */
    sn_tensor last = sn_update_rows(columns, 1, sn_slice(x, 1, 0, 1), sn_input(m, "at", SN_I32, 4));
    sn_assign(columns, last);
    sn_output("z", sn_matmul(last, sn_transpose(x, 1, 0)));
    int n;
    sn_cache_states(m, &n);
    assert_int_equal(n, 0);
    sn_options o = sn_options_default();
    sn_error err = {0};
    o.cache = "int4";
    assert_null(sn_compile(m, &o, &err));
    assert_string_equal(err.message, "cache 'int4': choose f32, bf16 or int8");
    sn_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_level),   cmocka_unit_test(one_query),
#ifdef __x86_64__
                                       cmocka_unit_test(other_targets),
#endif
                                       cmocka_unit_test(evaluator),     cmocka_unit_test(others),
                                       cmocka_unit_test(hidden_value)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
