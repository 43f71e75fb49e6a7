/* What the sources state about transformers, as tests on the reference evaluator: one function a
 * row of the specification's list of properties. Models are written with the public header; sizes
 * are small; parameters are random numbers that depend on their names only. */
#include "frontend/sinter.h"
#include "ir/ir.h"
#include "runtime/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

enum { B = 2, T = 7, D = 12, H = 3, V = 11 };

/* ---- helpers ---- */

static float *random_floats(uint64_t seed, size_t n) {
    float *p = malloc((n + 1) * sizeof *p);
    assert_non_null(p);
    sn_rng r = {.seed = seed, .stream = SN_STREAM_DATA};
    sn_rng_fill_normal(&r, 0, 0.5f, p, n);
    return p;
}

/* An evaluator of m with every parameter bound. */
static sn_eval *new_eval(sn_module *m) {
    if (sn_module_error(m)->code) fail_msg("%s", sn_module_error(m)->message);
    sn_eval *ev = sn_eval_new(m, NULL);
    assert_non_null(ev);
    for (uint32_t i = 0; i < sn_module_node_count(m); i++) {
        const sn_node *n = sn_module_node(m, i);
        if (n->op != SN_OP_param) continue;
        const char *name = sn_attr_str(n, SN_A_name, "");
        uint64_t seed = 5381;
        for (const char *c = name; *c; c++) seed = seed * 33 + (unsigned char)*c;
        size_t count = 1;
        for (int k = 0; k < n->rank; k++) count *= (size_t)n->shape[k];
        float *p = random_floats(seed, count);
        assert_true(sn_eval_bind(ev, name, p, count * sizeof *p));
        free(p);
    }
    return ev;
}

static const double *value_of(sn_eval *ev, sn_tensor x) {
    const sn_value *v = sn_eval_node(ev, x);
    if (!v) fail_msg("%s", sn_module_error(sn_module_of(x))->message);
    return v->data;
}

/* The value of y as a copy, with the input "x" bound to data. */
static double *value_with(sn_eval *ev, sn_tensor y, const char *name, const float *data, size_t n) {
    assert_true(sn_eval_bind(ev, name, data, n * sizeof *data));
    const double *v = value_of(ev, y);
    size_t bytes = sizeof *v * (size_t)sn_eval_node(ev, y)->n;
    double *copy = malloc(bytes + 1);
    assert_non_null(copy);
    return memcpy(copy, v, bytes);
}

static double distance(const double *a, const double *b, size_t n) {
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs(a[i] - b[i]);
        worst = d <= worst ? worst : d; /* NaN is taken */
    }
    return worst;
}

typedef enum form { COMPOSITE, PLAIN } form; /* sn_attention, or the operations it stands for */

/* Multi-head attention of x on z [PH22 A5], both [B, T, D]. */
static sn_tensor heads(sn_tensor x, sn_tensor z, bool causal, form f) {
    sn_module *m = sn_module_of(x);
    sn_tensor q = sn_split_heads(sn_nn_linear(x, "q", D, SN_BIAS), H);
    sn_tensor k = sn_split_heads(sn_nn_linear(z, "k", D, SN_BIAS), H);
    sn_tensor v = sn_split_heads(sn_nn_linear(z, "v", D, SN_BIAS), H);
    sn_tensor y;
    if (f == COMPOSITE) {
        y = sn_attention(q, k, v, .causal = causal);
    } else {
        sn_tensor s = sn_mul(sn_matmul(q, sn_swap(k, -1, -2)), 1 / sqrt(D / H));
        if (causal) s = sn_mask_scores(s, sn_causal_mask(m, sn_dim_of(x, 1), sn_dim_of(z, 1)));
        y = sn_matmul(sn_softmax(s, -1), v);
    }
    return sn_nn_linear(sn_merge_heads(y), "o", D, SN_BIAS);
}

/* Two pre-norm blocks [PH22 A10]. */
static sn_tensor stack(sn_tensor x, bool causal, form f) {
    sn_module *m = sn_module_of(x);
    for (int i = 0; i < 2; i++) {
        sn_scope_push(m, "h.%d", i);
        sn_tensor n = sn_nn_layer_norm(x, "ln_1", 1e-5);
        x = sn_add(x, heads(n, n, causal, f));
        n = sn_gelu(sn_nn_linear(sn_nn_layer_norm(x, "ln_2", 1e-5), "fc", 2 * D, SN_BIAS));
        x = sn_add(x, sn_nn_linear(n, "proj", D, SN_BIAS));
        sn_scope_pop(m);
    }
    return x;
}

/* ---- 1. causal attention: output [:, 0..t] depends on input [:, 0..t] only ---- */

static void causal_output_sees_no_future(sn_tensor y, float later) {
    sn_eval *ev = new_eval(sn_module_of(y));
    float *x = random_floats(1, B * T * D);
    double *before = value_with(ev, y, "x", x, B * T * D);
    for (int t = 0; t < T; t++) {
        float *changed = random_floats(1, B * T * D);
        for (int b = 0; b < B; b++)
            for (int i = (t + 1) * D; i < T * D; i++) changed[b * T * D + i] = later;
        double *after = value_with(ev, y, "x", changed, B * T * D);
        for (int b = 0; b < B; b++) {
            size_t at = (size_t)(b * T * D), n = (size_t)((t + 1) * D);
            assert_int_equal(memcmp(before + at, after + at, n * sizeof *before), 0);
        }
        free(changed);
        free(after);
    }
    free(before);
    free(x);
    sn_eval_free(ev);
}

static void property_1_causality(void **state) {
    (void)state;
    sn_module *m = sn_module_new("p1");
    sn_tensor x = sn_input(m, "x", SN_F32, B, T, D);
    causal_output_sees_no_future(stack(x, true, COMPOSITE), 3);
    causal_output_sees_no_future(stack(x, true, PLAIN), 3);
    causal_output_sees_no_future(stack(x, true, COMPOSITE), NAN);
    sn_module_free(m);
}

/* ---- 2. each row of attention weights sums to 1; masked entries are exactly 0 ---- */

static sn_tensor sees_third_before(const sn_score_ctx *c) { /* k < q, and every third key hidden */
    return sn_and(sn_lt(c->k, c->q), sn_ne(sn_mod(c->k, 3), 1));
}

static void property_2_weights(void **state) {
    (void)state;
    sn_module *m = sn_module_new("p2");
    sn_tensor q = sn_input(m, "q", SN_F32, B, H, T, D), k = sn_param(m, "k", SN_F32, B, H, T, D);
    /* values = the unit matrix: the output is the weights */
    sn_tensor unit =
        sn_cast(sn_eq(sn_iota(m, SN_I32, 0, T, T), sn_iota(m, SN_I32, 1, T, T)), SN_F32);
    sn_tensor w = sn_attention(q, k, sn_broadcast(unit, B, H, T, T), .mask = sees_third_before);
    sn_eval *ev = new_eval(m);
    float *data = random_floats(2, B * H * T * D);
    double *p = value_with(ev, w, "q", data, B * H * T * D);
    for (int row = 0; row < B * H * T; row++) {
        double sum = 0;
        for (int key = 0; key < T; key++) {
            bool seen = key < row % T && key % 3 != 1;
            assert_true(seen ? p[row * T + key] > 0 : p[row * T + key] == 0);
            sum += p[row * T + key];
        }
        assert_true(row % T == 0 ? sum == 0 : fabs(sum - 1) < 1e-12); /* the first sees nothing */
    }
    free(p);
    free(data);
    sn_eval_free(ev);
    sn_module_free(m);
}

/* ---- 3. permutation equivariance without positions, broken with them ---- */

static const int permutation[T] = {3, 0, 6, 1, 5, 2, 4};

/* How far f(P x) is from P f(x). */
static double equivariance_error(sn_tensor y) {
    sn_eval *ev = new_eval(sn_module_of(y));
    float *x = random_floats(3, B * T * D), *px = random_floats(3, B * T * D);
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++)
            memcpy(px + (b * T + t) * D, x + (b * T + permutation[t]) * D, D * sizeof *x);
    double *fx = value_with(ev, y, "x", x, B * T * D), *fpx = value_with(ev, y, "x", px, B * T * D);
    double worst = 0;
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++)
            worst =
                fmax(worst, distance(fpx + (b * T + t) * D, fx + (b * T + permutation[t]) * D, D));
    free(x), free(px), free(fx), free(fpx);
    sn_eval_free(ev);
    return worst;
}

static void property_3_permutations(void **state) {
    (void)state;
    sn_module *m = sn_module_new("p3");
    sn_tensor x = sn_input(m, "x", SN_F32, B, T, D), t = sn_arange(m, SN_I32, T);
    assert_true(equivariance_error(stack(x, false, COMPOSITE)) < 1e-12);
    assert_true(equivariance_error(stack(x, false, PLAIN)) < 1e-12);
    assert_true(equivariance_error(
                    stack(sn_add(x, sn_sinusoid(t, D, 10000, true)), false, COMPOSITE)) > 1e-2);
    assert_true(equivariance_error(
                    stack(sn_add(x, sn_nn_embedding(t, "wpe", T, D)), false, COMPOSITE)) > 1e-2);
    assert_true(equivariance_error(stack(x, true, COMPOSITE)) > 1e-2); /* a mask knows the order */
    sn_module_free(m);
}

/* ---- 4. BERT and GPT differ by the mask ---- */

static int count_params(sn_module *m) {
    int n = 0;
    for (uint32_t i = 0; i < sn_module_node_count(m); i++)
        n += sn_module_node(m, i)->op == SN_OP_param;
    return n;
}

static void property_4_only_the_mask_differs(void **state) {
    (void)state;
    sn_module *m = sn_module_new("p4");
    sn_tensor x = sn_input(m, "x", SN_F32, B, T, D);
    sn_tensor bert = heads(x, x, false, COMPOSITE);
    int params = count_params(m);
    sn_tensor gpt = heads(x, x, true, COMPOSITE);
    assert_int_equal(count_params(m), params); /* the same weights serve both */
    assert_ptr_not_equal(bert, gpt);
    sn_eval *ev = new_eval(m);
    float *data = random_floats(4, B * T * D);
    double *a = value_with(ev, bert, "x", data, B * T * D);
    const double *b = value_of(ev, gpt);
    for (int row = 0; row < B * T; row++) {
        double d = distance(a + row * D, b + row * D, D);
        assert_true(row % T == T - 1 ? d < 1e-12 : d > 1e-3); /* only the last token sees all */
    }
    free(a);
    free(data);
    sn_eval_free(ev);
    sn_module_free(m);
}

/* ---- 5. cross-attention with Z = X equals self-attention ---- */

static void property_5_cross_and_self(void **state) {
    (void)state;
    sn_module *m = sn_module_new("p5");
    sn_tensor x = sn_input(m, "x", SN_F32, B, T, D), z = sn_input(m, "z", SN_F32, B, T, D);
    for (int causal = 0; causal < 2; causal++)
        for (form f = COMPOSITE; f <= PLAIN; f++) {
            sn_tensor self = heads(x, x, causal, f), cross = heads(x, z, causal, f);
            assert_ptr_equal(self, heads(x, x, causal, f)); /* one code path, one node */
            sn_eval *ev = new_eval(m);
            float *data = random_floats(5, B * T * D);
            assert_true(sn_eval_bind(ev, "z", data, B * T * D * sizeof *data));
            double *a = value_with(ev, self, "x", data, B * T * D);
            assert_true(distance(a, value_of(ev, cross), B * T * D) == 0);
            free(a);
            free(data);
            sn_eval_free(ev);
        }
    sn_module_free(m);
}

/* ---- 6. the head as two circuits equals the usual head; what it costs ---- */

enum { N = 5, D_MODEL = 12, D_HEAD = 3 };

/* Multiplications of all products that y needs; composites count what they stand for. */
static int64_t count_products(sn_node *n, bool *seen) {
    if (seen[n->id]) return 0;
    seen[n->id] = true;
    int64_t count = 0;
    if (n->meaning) return count_products(n->meaning, seen);
    for (int i = 0; i < n->n_in; i++) count += count_products(n->in[i], seen);
    if (n->op != SN_OP_dot) return count;
    int64_t here = 1;
    for (int i = 0; i < n->rank; i++) here *= n->shape[i];
    const sn_attr *k = sn_attr_get(n, SN_A_contract_a);
    for (int i = 0; k && i < k->n; i++) here *= n->in[0]->shape[k->v[i]];
    return count + here;
}

static int64_t multiplications(sn_tensor y) {
    bool *seen = calloc(sn_module_node_count(sn_module_of(y)), sizeof *seen);
    assert_non_null(seen);
    int64_t count = count_products(y, seen);
    free(seen);
    return count;
}

static void property_6_two_circuits(void **state) {
    (void)state;
    sn_module *m = sn_module_new("p6");
    sn_tensor x = sn_input(m, "x", SN_F32, N, D_MODEL);
    sn_tensor wq = sn_param(m, "q", SN_F32, D_HEAD, D_MODEL),
              wk = sn_param(m, "k", SN_F32, D_HEAD, D_MODEL);
    sn_tensor wv = sn_param(m, "v", SN_F32, D_HEAD, D_MODEL),
              wo = sn_param(m, "o", SN_F32, D_MODEL, D_HEAD);
    sn_tensor causal = sn_causal_mask(m, N, N);
    /* usual: project, score, weigh, project back */
    sn_tensor s = sn_matmul(sn_linear(x, wq, NULL), sn_swap(sn_linear(x, wk, NULL), 0, 1));
    sn_tensor p = sn_softmax(sn_mask_scores(s, causal), -1);
    sn_tensor usual = sn_linear(sn_matmul(p, sn_linear(x, wv, NULL)), wo, NULL);
    /* pair by pair: for every query row and key row, x_q . W_Q^T (W_K x_k) and W_O (W_V x_k) */
    sn_tensor xk = sn_broadcast(sn_expand(x, 0), N, N, D_MODEL);
    sn_tensor qk = sn_linear(sn_linear(xk, wk, NULL), sn_swap(wq, 0, 1), NULL);
    sn_tensor ov = sn_linear(sn_linear(xk, wv, NULL), wo, NULL);
    sn_tensor pair_score = sn_sum(sn_mul(sn_expand(x, 1), qk), 2);
    sn_tensor pair_p = sn_softmax(sn_mask_scores(pair_score, causal), -1);
    sn_tensor pairs = sn_sum(sn_mul(sn_expand(pair_p, 2), ov), 1);
    /* full matrices */
    sn_tensor w_qk = sn_matmul(sn_swap(wq, 0, 1), wk), w_ov = sn_matmul(wo, wv);
    sn_tensor full_s = sn_matmul(sn_matmul(x, w_qk), sn_swap(x, 0, 1));
    sn_tensor full_p = sn_softmax(sn_mask_scores(full_s, causal), -1);
    sn_tensor full = sn_linear(sn_matmul(full_p, x), w_ov, NULL);

    sn_eval *ev = new_eval(m);
    float *data = random_floats(6, N * D_MODEL);
    double *want = value_with(ev, usual, "x", data, N * D_MODEL);
    assert_true(distance(want, value_of(ev, pairs), N * D_MODEL) < 1e-12);
    assert_true(distance(want, value_of(ev, full), N * D_MODEL) < 1e-12);
    assert_int_equal(multiplications(usual), 2 * D_HEAD * N * (2 * D_MODEL + N));
    assert_int_equal(multiplications(pairs), N * N * 4 * D_HEAD * D_MODEL);
    free(want);
    free(data);
    sn_eval_free(ev);
    sn_module_free(m);
}

/* ---- 7. a one-hot matrix product equals the embedding look-up ---- */

static void property_7_one_hot(void **state) {
    (void)state;
    sn_module *m = sn_module_new("p7");
    sn_tensor ids = sn_input(m, "ids", SN_I32, B, T), table = sn_param(m, "wte", SN_F32, V, D);
    sn_tensor product = sn_matmul(sn_one_hot(ids, V, SN_F32), table);
    sn_tensor looked_up = sn_embedding(table, ids);
    sn_eval *ev = new_eval(m);
    int32_t id[B * T];
    for (int i = 0; i < B * T; i++) id[i] = i * 7 % V;
    assert_true(sn_eval_bind(ev, "ids", id, sizeof id));
    assert_true(distance(value_of(ev, product), value_of(ev, looked_up), B * T * D) == 0);
    sn_eval_free(ev);
    sn_module_free(m);
}

/* ---- A3: one query at a time is a row of A4 ---- */

static void a3_single_query_is_a_row(void **state) {
    (void)state;
    sn_module *m = sn_module_new("a3");
    sn_tensor q = sn_input(m, "q", SN_F32, B, H, T, D);
    sn_tensor k = sn_param(m, "k", SN_F32, B, H, T, D), v = sn_param(m, "v", SN_F32, B, H, T, D);
    sn_tensor all = sn_attention(q, k, v, .causal = true);
    sn_tensor row[T];
    for (sn_dim t = 0; t < T; t++) { /* what a decode step sees: its query, the keys so far */
        sn_tensor past_k = sn_slice(k, 2, 0, t + 1), past_v = sn_slice(v, 2, 0, t + 1);
        row[t] = sn_attention(sn_slice(q, 2, t, 1), past_k, past_v, .causal = true);
    }
    sn_eval *ev = new_eval(m);
    float *data = random_floats(8, B * H * T * D);
    double *want = value_with(ev, all, "q", data, B * H * T * D);
    for (int t = 0; t < T; t++) {
        const double *got = value_of(ev, row[t]);
        for (int h = 0; h < B * H; h++)
            assert_true(distance(got + h * D, want + (h * T + t) * D, D) < 1e-14);
    }
    free(want);
    free(data);
    sn_eval_free(ev);
    sn_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(property_1_causality),
        cmocka_unit_test(property_2_weights),
        cmocka_unit_test(property_3_permutations),
        cmocka_unit_test(property_4_only_the_mask_differs),
        cmocka_unit_test(property_5_cross_and_self),
        cmocka_unit_test(property_6_two_circuits),
        cmocka_unit_test(property_7_one_hot),
        cmocka_unit_test(a3_single_query_is_a_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
