/* sn_grad: whole models and user-defined attention against differences in f64, gradients of
 * gradients, and mistakes. The ops one by one are in test_ops, mode grad. */
#include "frontend/models.h"
#include "ir/ir.h"
#include "tests/support/effort.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>

#define GOOD 2e-7 /* of sn_check_grad; what is wrong is 1e-3 and more away */
enum { MAX_WRT = 64 };

static const int32_t ids[12] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8};
static const int32_t targets[12] = {1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9};

/* The gradient with respect to every tensor of the list, within GOOD of the differences. */
static void expect_gradient(int line, sn_tensor loss, int n, const sn_tensor *wrt,
                            const sn_arg_binding *value, int n_value) {
    sn_error err = {0};
    sn_grad_error worst;
    if (!sn_check_grad(loss, n, wrt, value, n_value, &worst, &err))
        fail_msg("line %d: %s", line, err.message);
    assert_true(worst.index >= 0);
    if (!(worst.error < GOOD))
        fail_msg("line %d: tensor %d (%s): slope %.12g, difference %.12g, error %.2g", line,
                 worst.index, sn_attr_str(wrt[worst.index], SN_A_name, "?"), worst.slope,
                 worst.difference, worst.error);
}
#define GRADIENT_OK(loss, wrt, value)                                                              \
    expect_gradient(__LINE__, loss, (int)(sizeof(wrt) / sizeof *(wrt)), wrt, value,                \
                    (int)(sizeof(value) / sizeof *(value)))

/* ---- models ---- */

static void check_model(const char *text, int least) {
    sn_error err = {0};
    sn_config *c = sn_config_parse("config.json", text, strlen(text), &err);
    sn_model model;
    sn_model_options o = {.entries = SN_LOSS};
    if (!sn_model_build(c, &o, &model, &err)) fail_msg("%s", err.message);
    sn_tensor loss = sn_mean_all(sn_entry_get(model.module, "loss")->output[0].node);
    sn_tensor wrt[MAX_WRT];
    int n = sn_params_of(loss, MAX_WRT, wrt);
    assert_in_range(n, least, MAX_WRT);
    const sn_arg_binding value[] = {SN_BIND("tokens", SN_I32, (void *)(uintptr_t)ids, 2, 6),
                                    SN_BIND("targets", SN_I32, (void *)(uintptr_t)targets, 2, 6)};
    expect_gradient(__LINE__, loss, n, wrt, value, 2);
    sn_module_free(model.module);
    sn_config_free(c);
}

static void gpt2_all_parameters(void **state) {
    (void)state;
    check_model("{\"model_type\": \"gpt2\", \"vocab_size\": 11, \"n_positions\": 8, \"n_embd\": 8, "
                "\"n_layer\": 1, \"n_head\": 2}",
                16);
}

static void llama_all_parameters(void **state) {
    (void)state;
    check_model("{\"model_type\": \"llama\", \"vocab_size\": 11, \"max_position_embeddings\": 8, "
                "\"hidden_size\": 8, \"intermediate_size\": 12, \"num_hidden_layers\": 1, "
                "\"num_attention_heads\": 4, \"num_key_value_heads\": 2}",
                11);
}

static void tse_gpt_all_parameters(void **state) {
    (void)state;
    check_model("{\"model_type\": \"tse_gpt\", \"n_vocab\": 11, \"n_ctx\": 8, \"n_layers\": 1, "
                "\"n_heads\": 2, \"d_model\": 6}",
                11);
}

/* ---- attention with regions ---- */

typedef struct attend {
    sn_module *m;
    sn_tensor q, k, v, weight;
} attend;

/* 2 sequences, 4 heads on 2 key heads, 5 queries, 7 keys */
static attend new_attention(void) {
    attend a = {.m = sn_module_new("attention")};
    a.q = sn_input(a.m, "q", SN_F32, 2, 4, 5, 6);
    a.k = sn_input(a.m, "k", SN_F32, 2, 2, 7, 6);
    a.v = sn_input(a.m, "v", SN_F32, 2, 2, 7, 3);
    a.weight = sn_input(a.m, "weight", SN_F32, 2, 4, 5, 3);
    return a;
}

static sn_tensor weighted(const attend *a, sn_tensor y) {
    return sn_sum_all(sn_mul(y, a->weight));
}

static sn_tensor slopes(const sn_score_ctx *c) { /* ALiBi with learned slopes */
    sn_tensor far = sn_cast(sn_abs(sn_sub(c->q, c->k)), SN_F32);
    return sn_sub(c->score, sn_mul(sn_at(c->captured[0], c->h), far));
}

static sn_tensor biased(const sn_score_ctx *c) { /* soft cap, then a learned table [H, Tq, Tk] */
    sn_tensor capped = sn_mul(sn_tanh(sn_div(c->score, 2)), 2);
    return sn_add(capped, sn_at(c->captured[0], c->h, c->q, c->k));
}

/* T5: exact buckets for near keys, logarithmic ones for far keys; a table [bucket, H] */
static sn_tensor buckets(const sn_score_ctx *c) {
    sn_tensor far = sn_max(sn_sub(c->q, c->k), 0);
    sn_tensor large = sn_add(sn_mul(sn_log(sn_add(sn_cast(far, SN_F32), 1e-6)), 1.5), 2);
    sn_tensor bucket = sn_where(sn_lt(far, 2), far, sn_cast(large, SN_I32));
    bucket = sn_min(bucket, 5);
    return sn_add(c->score, sn_at(c->captured[0], bucket, c->h));
}

static sn_tensor strictly_past(const sn_score_ctx *c) { /* query 0 sees no key */
    return sn_lt(c->k, c->q);
}

static sn_tensor nothing_for_one(const sn_score_ctx *c) { /* of one head, query 2 sees no key */
    return sn_not(sn_and(sn_eq(c->h, 1), sn_eq(c->q, 2)));
}

static void attention_regions(void **state) {
    (void)state;
    attend a = new_attention();
    sn_tensor slope = sn_param(a.m, "slope", SN_F32, 4);
    sn_tensor table = sn_param(a.m, "table", SN_F32, 4, 5, 7);
    sn_tensor bucket = sn_param(a.m, "bucket", SN_F32, 6, 4);
    const sn_arg_binding none[1] = {SN_BIND_DIM("unused", 1)};
    sn_tensor plain[] = {a.q, a.k, a.v};
    if (effort_is_long()) { /* the default run has masks and scores that contain these */
        GRADIENT_OK(weighted(&a, sn_attention(a.q, a.k, a.v)), plain, none);
        GRADIENT_OK(weighted(&a, sn_attention(a.q, a.k, a.v, .causal = true)), plain, none);
    }
    GRADIENT_OK(weighted(&a, sn_attention(a.q, a.k, a.v, .causal = true, .window = 2)), plain,
                none);
    GRADIENT_OK(weighted(&a, sn_attention(a.q, a.k, a.v, .mask = nothing_for_one)), plain, none);
    sn_tensor with_slope[] = {a.q, a.k, a.v, slope};
    GRADIENT_OK(weighted(&a, sn_attention(a.q, a.k, a.v, .causal = true, .score = slopes,
                                          .captured = {slope})),
                with_slope, none);
    sn_tensor with_table[] = {a.q, a.k, a.v, table};
    GRADIENT_OK(weighted(&a, sn_attention(a.q, a.k, a.v, .score = biased, .captured = {table})),
                with_table, none);
    sn_tensor with_bucket[] = {a.q, a.k, a.v, bucket};
    GRADIENT_OK(weighted(&a, sn_attention(a.q, a.k, a.v, .score = buckets, .mask = strictly_past,
                                          .captured = {bucket})),
                with_bucket, none);
    sn_module_free(a.m);
}

/* Values of gradient number i, all finite; NULL: the module has an error. */
static const sn_value *finite_gradient(sn_eval *ev, sn_tensor g) {
    const sn_value *v = sn_eval_node(ev, g);
    if (!v) fail_msg("%s", sn_module_error(sn_module_of(g))->message);
    for (int64_t i = 0; i < v->n; i++) assert_true(isfinite(v->data[i]));
    return v;
}

/* A hidden key gets no gradient, and a NaN in it has no effect; a query without keys gets none. */
static void hidden_keys(void **state) {
    (void)state;
    sn_module *m = sn_module_new("hidden");
    sn_tensor q = sn_input(m, "q", SN_F32, 1, 1, 3, 2), k = sn_input(m, "k", SN_F32, 1, 1, 3, 2);
    sn_tensor v = sn_input(m, "v", SN_F32, 1, 1, 3, 2);
    sn_tensor y = sn_attention(q, k, v, .mask = strictly_past), g[3];
    assert_int_equal(sn_grad(sn_sum_all(sn_square(y)), 3, ((sn_tensor[]){q, k, v}), g), 0);
    float numbers[6] = {0.5f, -1, 2, 0.25f, 1.5f, -0.75f};
    float values[6] = {1, 2, -3, 0.5f, NAN, INFINITY}; /* no query sees key 2 */
    sn_eval *ev = sn_eval_new(m, NULL);
    sn_eval_bind(ev, "q", numbers, sizeof numbers);
    sn_eval_bind(ev, "k", numbers, sizeof numbers);
    sn_eval_bind(ev, "v", values, sizeof values);
    const sn_value *dq = finite_gradient(ev, g[0]), *dk = finite_gradient(ev, g[1]);
    const sn_value *dv = finite_gradient(ev, g[2]);
    for (int i = 0; i < 2; i++) {
        assert_true(dq->data[i] == 0);     /* query 0 has no key */
        assert_true(dk->data[4 + i] == 0); /* key 2 has no query */
        assert_true(dv->data[4 + i] == 0);
        assert_true(dv->data[i] != 0);
    }
    sn_eval_free(ev);
    sn_module_free(m);
}

/* The same attention written in plain operations: padding, packed documents, and all of it -inf. */
static void masks_in_plain_operations(void **state) {
    (void)state;
    sn_module *m = sn_module_new("masks");
    sn_tensor q = sn_input(m, "q", SN_F32, 2, 4, 3), k = sn_input(m, "k", SN_F32, 2, 4, 3);
    sn_tensor v = sn_input(m, "v", SN_F32, 2, 4, 3), w = sn_input(m, "w", SN_F32, 2, 4, 3);
    sn_tensor seen = sn_input(m, "seen", SN_BOOL, 2, 4, 4);
    sn_tensor p = sn_softmax(sn_mask_scores(sn_matmul(q, sn_swap(k, 1, 2)), seen), -1);
    sn_tensor loss = sn_sum_all(sn_mul(sn_matmul(p, v), w)), wrt[] = {q, k, v, p};
    uint8_t visible[32] = {1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1,
                           0, 0, 0, 0, 1, 1, 1, 1, 0, 1, 0, 1, 0, 0, 0, 0};
    const sn_arg_binding value[] = {SN_BIND("seen", SN_BOOL, visible, 2, 4, 4)};
    GRADIENT_OK(loss, wrt, value);
    sn_module_free(m);
}

/* ---- orders, constants, places ---- */

/* A gradient is a tensor: its square can be a loss (gradient penalty). */
static void gradient_of_a_gradient(void **state) {
    (void)state;
    sn_module *m = sn_module_new("penalty");
    sn_dim T = sn_symbol(m, "T", 1, 64);
    sn_tensor x = sn_input(m, "x", SN_F32, T, 6), w1 = sn_param(m, "w1", SN_F32, 6, 6);
    sn_tensor w2 = sn_param(m, "w2", SN_F32, 5, 6), gain = sn_param(m, "gain", SN_F32, 6);
    sn_tensor id = sn_input(m, "id", SN_I32, T);
    sn_tensor h = sn_gelu(sn_linear(sn_layer_norm(x, gain, NULL, 1e-3), w1, NULL));
    h = sn_expand(sn_expand(h, 0), 0);
    h = sn_squeeze(sn_squeeze(sn_attention(h, h, h, .causal = true), 0), 0);
    sn_tensor loss = sn_mean_all(sn_cross_entropy(sn_linear(h, w2, NULL), id)), g[2];
    sn_grad(loss, 2, ((sn_tensor[]){x, w1}), g);
    sn_tensor penalty = sn_add(sn_sum_all(sn_square(g[0])), sn_mean_all(sn_abs(g[1])));
    float rows[18];
    for (int i = 0; i < 18; i++) rows[i] = (float)sin(1 + 2.3 * i);
    const sn_arg_binding value[] = {SN_BIND("id", SN_I32, (void *)(uintptr_t)ids, 3),
                                    SN_BIND("x", SN_F32, rows, 3, 6)};
    sn_tensor wrt[] = {x, w1, w2, gain};
    GRADIENT_OK(sn_add(loss, penalty), wrt, value);
    sn_module_free(m);
}

static double number_of(sn_eval *ev, sn_tensor x) {
    const sn_value *v = sn_eval_node(ev, x);
    if (!v) fail_msg("%s", sn_module_error(sn_module_of(x))->message);
    assert_int_equal(v->n, 1);
    return v->data[0];
}

/* x^4 by way of gradients: 4 x^3, 12 x^2, 24 x, 24, 0 */
/* Orders: the cotangent of an element is that of its place; also twice. */
static void orders(void **state) {
    (void)state;
    static double x[12] = {3, 1, 4, 1.5, 5, 9, 2.6, 6, 5.3, -3, 7, 8}, y[8];
    for (int i = 0; i < 8; i++) y[i] = i * i - 3 * i + 0.5;
    sn_module *m = sn_module_new("m");
    sn_entry_begin(m, "f");
    sn_tensor in = sn_input(m, "x", SN_F64, 3, 4), z = sn_input(m, "y", SN_F64, 2, 4);
    sn_tensor index, best = sn_top_k(in, 2, &index);
    sn_tensor first = sn_slice(sn_sort(in, 0, true), 0, 0, 2);
    sn_tensor row = sn_slice(sn_mul(sn_mul(best, best), best), 0, 0, 1);
    sn_tensor loss = sn_add(sn_sum_all(sn_mul(sn_mul(first, first), z)), sn_sum_all(row));
    sn_tensor wrt[] = {in, z}, grad;
    sn_arg_binding value[] = {SN_BIND("x", SN_F64, x, 3, 4), SN_BIND("y", SN_F64, y, 2, 4)};
    GRADIENT_OK(loss, wrt, value);
    sn_grad(loss, 1, wrt, &grad);
    GRADIENT_OK(sn_sum_all(sn_mul(sn_mul(grad, grad), in)), wrt, value);
    sn_module_free(m);
}

static void fifth_derivative(void **state) {
    (void)state;
    static const double want[5] = {4 * 27, 12 * 9, 24 * 3, 24, 0};
    sn_module *m = sn_module_new("powers");
    sn_tensor x = sn_input(m, "x", SN_F32, SN_SCALAR), y = sn_square(sn_square(x));
    sn_eval *ev = sn_eval_new(m, NULL);
    sn_eval_bind(ev, "x", &(float){3}, sizeof(float));
    for (int i = 0; i < 5; i++) {
        sn_grad(y, 1, &x, &y);
        assert_true(number_of(ev, y) == want[i]);
    }
    sn_eval_free(ev);
    sn_module_free(m);
}

static void constants_and_unused(void **state) {
    (void)state;
    sn_module *m = sn_module_new("constants");
    sn_tensor x = sn_param(m, "x", SN_F32, SN_SCALAR), unused = sn_param(m, "unused", SN_F32, 2, 3);
    sn_tensor y = sn_mul(sn_stop_gradient(sn_square(x)), x); /* slope x^2, not 3 x^2 */
    sn_tensor wrt[] = {x, unused, y, sn_floor(x)}, g[4];
    /* the floor of x is in the loss, but gives x no slope */
    sn_tensor loss = sn_add(sn_mul(y, 5), sn_mul(wrt[3], 7));
    assert_int_equal(sn_grad(loss, 4, wrt, g), 1);
    assert_int_equal(sn_rank_of(g[1]), 2);
    sn_eval *ev = sn_eval_new(m, NULL);
    sn_eval_bind(ev, "x", &(float){3}, sizeof(float));
    assert_true(number_of(ev, g[0]) == 45);
    assert_true(number_of(ev, g[2]) == 5);
    assert_true(number_of(ev, g[3]) == 7);
    const sn_value *zero = sn_eval_node(ev, g[1]);
    assert_int_equal(zero->n, 6);
    for (int i = 0; i < 6; i++) assert_true(zero->data[i] == 0);
    const sn_note *note;
    assert_int_equal(sn_module_notes(m, &note), 1);
    assert_ptr_equal(note->about, unused);
    assert_non_null(strstr(note->text, "does not depend"));
    assert_int_equal(sn_params_of(loss, 0, NULL), 1);
    sn_eval_free(ev);
    sn_module_free(m);
}

/* What the forward part computes is not computed again: one softmax, one reciprocal root. */
static void forward_is_shared(void **state) {
    (void)state;
    sn_module *m = sn_module_new("shared");
    sn_tensor x = sn_input(m, "x", SN_F32, 4, 8), t = sn_input(m, "t", SN_I32, 4), g;
    sn_tensor h = sn_tanh(sn_softmax(x, -1));
    sn_tensor loss = sn_sum_all(sn_cross_entropy(h, t));
    sn_grad(loss, 1, &x, &g);
    sn_order order = sn_topo(m, 2, (sn_node *[]){loss, g});
    int tanh = 0, softmax_of_x = 0;
    for (int i = 0; i < order.n; i++) {
        tanh += order.node[i]->op == SN_OP_tanh;
        softmax_of_x += order.node[i]->op == SN_OP_softmax && order.node[i]->in[0] == x;
    }
    assert_int_equal(tanh, 1);
    assert_int_equal(softmax_of_x, 1);
    sn_module_free(m);
}

/* The usual slopes at kinks. */
static void kinks(void **state) {
    (void)state;
    sn_module *m = sn_module_new("kinks");
    sn_tensor x = sn_input(m, "x", SN_F32, 2), g[5];
    sn_tensor sums[] = {sn_sum_all(sn_relu(x)), sn_sum_all(sn_abs(x)), sn_sum_all(sn_max(x, 0)),
                        sn_amax(x, 0), sn_sum_all(sn_pow(x, 0))};
    static const double want[] = {0, 0, 0.5, 0.5, 0};
    sn_eval *ev = sn_eval_new(m, NULL);
    sn_eval_bind(ev, "x", (float[]){0, 0}, 2 * sizeof(float));
    for (int i = 0; i < 5; i++) {
        sn_grad(sums[i], 1, &x, &g[i]);
        const sn_value *v = sn_eval_node(ev, g[i]);
        assert_non_null(v);
        for (int k = 0; k < 2; k++) assert_true(v->data[k] == want[i]);
    }
    sn_eval_free(ev);
    sn_module_free(m);
}

/* Ties, targets that are not classes, sinks of any size, frequencies of positions. */
static void conventions(void **state) {
    (void)state;
    enum { ROWS = 4, N = 3 };
    sn_module *m = sn_module_new("conventions");
    sn_entry_begin(m, "f");
    sn_tensor x = sn_input(m, "x", SN_F64, ROWS, N), z = sn_input(m, "z", SN_F64, ROWS, 1), g[3];
    sn_tensor target = sn_input(m, "target", SN_I32, ROWS), y = sn_input(m, "y", SN_F64, ROWS);
    static double x_of[ROWS][N] = {{1, 2, 3}, {0, -1, 2}, {5, 0, 1}, {2, 2, 1}};
    static double z_of[ROWS] = {0, -INFINITY, 1, -2}, y_of[ROWS] = {2, 2, 1, 2};
    static int32_t classes[ROWS] = {-1, 1, N, 0}, places[ROWS] = {0, 0, 1, 0};
    sn_tensor p = SN_NODE(m, softmax, SN_ATTRS(SN_INT(axis, 1)), x, z), w = sn_square(x);
    sn_tensor place = sn_input(m, "place", SN_I32, ROWS), most = sn_scatter_max(y, 0, place, 3);
    sn_grad(sn_sum_all(sn_cross_entropy(x, target)), 1, &x, &g[0]);
    sn_grad(sn_sum_all(sn_mul(p, w)), 1, &z, &g[1]);
    sn_grad(sn_sum_all(sn_mul(sn_slice(most, 0, 0, 2), 6)), 1, &y, &g[2]);
    sn_eval *ev = sn_eval_new(m, NULL);
    sn_eval_bind(ev, "x", x_of, sizeof x_of), sn_eval_bind(ev, "z", z_of, sizeof z_of);
    sn_eval_bind(ev, "y", y_of, sizeof y_of), sn_eval_bind(ev, "place", places, sizeof places);
    sn_eval_bind(ev, "target", classes, sizeof classes);
    const sn_value *of_x = finite_gradient(ev, g[0]), *of_z = finite_gradient(ev, g[1]),
                   *of_y = finite_gradient(ev, g[2]);
    for (int r = 0; r < ROWS; r++) {
        double sum = 0, flow = 0, own = exp(z_of[r]);
        for (int i = 0; i < N; i++) sum += exp(x_of[r][i]);
        for (int i = 0; i < N; i++) {
            bool valid = classes[r] >= 0 && classes[r] < N;
            double want = valid ? exp(x_of[r][i]) / sum - (i == classes[r]) : 0;
            assert_true(fabs(of_x->data[r * N + i] - want) < 1e-12);
            flow += exp(x_of[r][i]) / (sum + own) * x_of[r][i] * x_of[r][i];
        }
        assert_true(fabs(of_z->data[r] + own / (sum + own) * flow) < 1e-12);
        assert_true(of_y->data[r] == (r == 2 ? 6 : 2)); /* three equal ones share */
    }
    sn_eval_free(ev);
    static double f_of[2] = {0.7, 0.01}, h_of[12];
    sn_tensor h = sn_input(m, "h", SN_F64, 3, 4), f = sn_input(m, "f", SN_F64, 2), wrt[] = {h};
    for (int i = 0; i < 12; i++) h_of[i] = sin(i) + 0.3;
    sn_arg_binding value[] = {SN_BIND("h", SN_F64, h_of, 3, 4), SN_BIND("f", SN_F64, f_of, 2)};
    sn_tensor rotated = sn_rope(h, sn_iota(m, SN_I32, 0, 3), .freq = f);
    GRADIENT_OK(sn_sum_all(sn_mul(sn_square(rotated), rotated)), wrt, value);
    sn_module_free(m);
}

/* ---- mistakes ---- */

static void expect_error(sn_module *m, const char *const *words) {
    sn_error err = {0};
    assert_false(sn_module_ok(m, &err));
    for (; *words; words++)
        if (!strstr(err.message, *words)) fail_msg("wanted '%s' in: %s", *words, err.message);
    sn_module_free(m);
}
#define EXPECT_ERROR(...) expect_error(m, (const char *const[]){__VA_ARGS__, NULL})

static void mistakes(void **state) {
    (void)state;
    sn_module *m = sn_module_new("a");
    sn_tensor x = sn_input(m, "x", SN_F32, 2, 3), g[2] = {NULL, NULL};
    assert_int_equal(sn_grad(sn_exp(x), 1, &x, g), 0);
    assert_ptr_equal(g[0], sn_module_error_node(m));
    EXPECT_ERROR("test_grad.c:", "sn_grad", "f32[2,3] (exp, test_grad.c:", "sn_mean_all");

    m = sn_module_new("b");
    sn_tensor i = sn_input(m, "i", SN_I32, SN_SCALAR);
    sn_grad(i, 1, &i, g);
    EXPECT_ERROR("i32[] 'i'", "float scalar");

    m = sn_module_new("c");
    x = sn_input(m, "x", SN_F32, 2);
    sn_tensor pair[] = {x, sn_input(m, "n", SN_I32, 2)};
    sn_grad(sn_sum_all(x), 2, pair, g);
    EXPECT_ERROR("tensor 2", "i32[2] 'n'", "only floats");

    m = sn_module_new("d");
    sn_module *other = sn_module_new("other");
    sn_tensor y = sn_input(other, "y", SN_F32, 2);
    sn_grad(sn_sum_all(sn_input(m, "x", SN_F32, 2)), 1, &y, g);
    EXPECT_ERROR("'other'");
    sn_module_free(other);

    m = sn_module_new("e");
    x = sn_input(m, "x", SN_F32, 2);
    sn_grad(sn_sum_all(x), 2, ((sn_tensor[]){x, NULL}), g);
    EXPECT_ERROR("operand 2 is NULL");
    assert_int_equal(sn_grad(NULL, 1, &x, g), 0);
}

static void check_needs_values(void **state) {
    (void)state;
    sn_error err = {0};
    sn_grad_error worst;
    sn_module *m = sn_module_new("values");
    sn_tensor x = sn_param(m, "x", SN_F32, 5, 2),
              id = sn_input(m, "id", SN_I32, sn_symbol(m, "T", 1, 9));
    sn_tensor loss = sn_sum_all(sn_embedding(x, id));
    assert_false(sn_check_grad(loss, 1, &x, NULL, 0, &worst, &err));
    assert_non_null(strstr(err.message, "dimension T"));
    err = (sn_error){0};
    sn_arg_binding value = SN_BIND_DIM("T", 3);
    assert_false(sn_check_grad(loss, 1, &x, &value, 1, &worst, &err));
    assert_non_null(strstr(err.message, "'id' has no value"));
    err = (sn_error){0};
    value = SN_BIND("id", SN_I32, (void *)(uintptr_t)targets, 4);
    assert_false(sn_check_grad(sn_exp(x), 1, &x, &value, 1, &worst, &err));
    assert_non_null(strstr(err.message, "float scalar"));
    sn_module_free(m);
}

/* The check finds a wrong gradient: the loss of a tensor whose slope is hidden. */
static void check_finds_errors(void **state) {
    (void)state;
    sn_error err = {0};
    sn_grad_error worst;
    sn_module *m = sn_module_new("wrong");
    sn_tensor x = sn_param(m, "x", SN_F32, 4), y = sn_param(m, "y", SN_F32, 4);
    sn_tensor loss = sn_sum_all(sn_mul(sn_mul(x, sn_stop_gradient(y)), y)), wrt[] = {x, y};
    assert_true(sn_check_grad(loss, 2, wrt, NULL, 0, &worst, &err));
    assert_int_equal(worst.index, 1);
    assert_true(worst.error > 0.1);
    sn_module_free(m);
}

/* A shift that softmax takes back changes the loss by rounding alone: of terms that are larger than
 * their sum. */
static void check_knows_rounding(void **state) {
    (void)state;
    sn_error err = {0};
    sn_grad_error worst;
    sn_module *m = sn_module_new("rounding");
    sn_tensor x = sn_param(m, "x", SN_F32, 3, 8), z = sn_param(m, "z", SN_F32, 3, 8);
    sn_tensor shift = sn_param(m, "shift", SN_F32, 3, 1), wrt[] = {x, z, shift};
    sn_tensor y = sn_mul(sn_softmax(sn_add(x, shift), -1), sn_mul(x, 1e6));
    sn_tensor loss = sn_sum_all(sn_sub(y, sn_mul(sn_softmax(z, -1), sn_mul(z, 1e6))));
    float same[24];
    for (int i = 0; i < 24; i++) same[i] = (float)sin(i);
    const sn_arg_binding value[] = {SN_BIND("x", SN_F32, same, 3, 8),
                                    SN_BIND("z", SN_F32, same, 3, 8)};
    assert_true(sn_check_grad(loss, 3, wrt, value, 2, &worst, &err));
    assert_true(worst.error < 1e-3);
    sn_module_free(m);
}

/* Caches are not differentiated, and explain says so. */
static void rows_of_caches(void **state) {
    (void)state;
    sn_module *m = sn_module_new("rows");
    sn_tensor x = sn_param(m, "x", SN_F32, 2, 8, 3), y = sn_param(m, "y", SN_F32, 2, 1, 3), g;
    sn_tensor at = sn_input(m, "at", SN_I32, 2);
    assert_int_equal(sn_grad(sn_sum_all(sn_update_rows(x, 1, y, at)), 1, &y, &g), 1);
    const sn_note *note;
    int n = sn_module_notes(m, &note), found = 0;
    for (int i = 0; i < n; i++) found += strstr(note[i].text, "0 by definition") != NULL;
    assert_int_equal(found, 1);
    sn_module_free(m);
}

typedef enum hidden { HIDES_SCORE, HIDES_ARGUMENT, HIDES_KEY } hidden;

/* score - slope log1p(q - k), which is NaN for later keys. */
static sn_tensor penalty(const sn_score_ctx *c) {
    sn_tensor far = sn_cast(sn_sub(c->q, c->k), (sn_dtype)c->score->dtype);
    sn_tensor zero = sn_full(c->m, SN_I32, 0, SN_SCALAR);
    return sn_sub(c->score, sn_mul(sn_at(c->captured[0], zero), sn_log1p(far)));
}

/* What sn_check_grad says of the gradient of `slope`. */
static double error_with(hidden how) {
    sn_error err = {0};
    sn_grad_error worst;
    sn_module *m = sn_module_new("nan");
    sn_tensor q = sn_param(m, "q", SN_F32, 1, 2, 4, 4), slope = sn_param(m, "slope", SN_F32, 1), y;
    sn_tensor far = sn_sub(sn_iota(m, SN_F32, 0, 4, 1), sn_iota(m, SN_F32, 1, 1, 4));
    sn_tensor mask = sn_causal_mask(m, 4, 4);
    if (how == HIDES_ARGUMENT) far = sn_where(mask, far, 0);
    sn_tensor s = sn_sub(sn_matmul(q, sn_transpose(q, 0, 1, 3, 2)), sn_mul(slope, sn_log1p(far)));
    if (how == HIDES_KEY)
        y = sn_attention(q, q, q, .causal = true, .score = penalty, .captured = {slope});
    else
        y = sn_matmul(sn_softmax(sn_where(mask, s, -INFINITY), -1), q);
    if (!sn_check_grad(sn_sum_all(sn_square(y)), 1, &slope, NULL, 0, &worst, &err))
        fail_msg("%s", err.message);
    sn_module_free(m);
    return worst.error;
}

/* It finds a NaN, too, even one that fused kernels leave out: log1p of less than -1 where a causal
 * mask in plain operations hides the score. There is none if the mask hides the argument, nor in
 * keys that sn_attention hides. */
static void check_finds_nan(void **state) {
    (void)state;
    assert_true(isinf(error_with(HIDES_SCORE)));
    assert_true(error_with(HIDES_ARGUMENT) < 1e-3);
    assert_true(error_with(HIDES_KEY) < 1e-3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_all_parameters),
        cmocka_unit_test(llama_all_parameters),
        cmocka_unit_test(tse_gpt_all_parameters),
        cmocka_unit_test(attention_regions),
        cmocka_unit_test(hidden_keys),
        cmocka_unit_test(masks_in_plain_operations),
        cmocka_unit_test(gradient_of_a_gradient),
        cmocka_unit_test(orders),
        cmocka_unit_test(fifth_derivative),
        cmocka_unit_test(constants_and_unused),
        cmocka_unit_test(forward_is_shared),
        cmocka_unit_test(kinks),
        cmocka_unit_test(conventions),
        cmocka_unit_test(mistakes),
        cmocka_unit_test(check_needs_values),
        cmocka_unit_test(check_finds_errors),
        cmocka_unit_test(check_knows_rounding),
        cmocka_unit_test(rows_of_caches),
        cmocka_unit_test(check_finds_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
