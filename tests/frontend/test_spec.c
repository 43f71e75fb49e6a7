/* Properties that the sources state (SPEC numbers), on a small transformer built in the DSL,
 * through the reference evaluator; counts of operations from the compiler's own report. */
#include "frontend/models.h"
#include "ir/ir.h"
#include "tests/support/noise.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>

enum { V = 7, D = 8, H = 2, T = 5, CONTEXT = 8 };

typedef struct variant {
    bool causal, positions, plain, cross; /* plain: attention in plain operations */
    sn_dim past;                          /* with caches, if `cached` */
    bool cached;
} variant;

/* A4, A5: queries from x, keys and values from z */
static sn_tensor attend(const variant *o, sn_tensor x, sn_tensor z) {
    sn_module *m = sn_module_of(x);
    sn_tensor q = sn_split_heads(sn_nn_linear(x, "q", D, SN_BIAS), H);
    sn_tensor k = sn_split_heads(sn_nn_linear(z, "k", D, SN_BIAS), H);
    sn_tensor v = sn_split_heads(sn_nn_linear(z, "v", D, SN_BIAS), H), y;
    if (o->cached) {
        k = sn_kv_cache(k, "k_cache", o->past, CONTEXT);
        v = sn_kv_cache(v, "v_cache", o->past, CONTEXT);
    }
    if (o->plain) {
        sn_tensor s = sn_div(sn_matmul(q, sn_swap(k, 2, 3)), sqrt(D / H));
        sn_tensor mask = sn_causal_mask(m, sn_dim_of(q, 2), sn_dim_of(k, 2));
        if (o->causal) s = sn_mask_scores(s, mask);
        y = sn_matmul(sn_name(sn_softmax(s, -1), "weights"), v);
    } else {
        y = sn_attention(q, k, v, .causal = o->causal);
    }
    return sn_nn_linear(sn_merge_heads(y), "o", D, SN_BIAS);
}

/* Two pre-norm layers on tokens [1, n]; logits [1, n, V] as output "y" of the entry. */
static sn_tensor build(sn_module *m, const char *entry, sn_dim n, const variant *o) {
    sn_entry_begin(m, entry);
    sn_tensor tokens = sn_input(m, "tokens", SN_I32, 1, n);
    sn_tensor x = sn_nn_embedding(tokens, "wte", V, D);
    sn_tensor pos = sn_add(sn_arange(m, SN_I32, n), o->past);
    if (o->positions) x = sn_add(x, sn_nn_embedding(pos, "wpe", CONTEXT, D));
    for (int l = 0; l < 2; l++) {
        sn_scope_push(m, "%d", l);
        sn_tensor a = sn_nn_layer_norm(x, "ln1", 1e-5);
        sn_tensor z = o->cross ? sn_concat(1, sn_slice(a, 1, 0, 1), sn_slice(a, 1, 1, T - 1)) : a;
        x = sn_add(x, attend(o, a, z));
        sn_tensor f = sn_nn_linear(sn_nn_layer_norm(x, "ln2", 1e-5), "fc", 4 * D, SN_BIAS);
        x = sn_add(x, sn_nn_linear(sn_gelu(f), "out", D, SN_BIAS));
        sn_scope_pop(m);
    }
    x = sn_nn_linear(x, "head", V, 0);
    sn_output("y", x);
    return x;
}

/* Every parameter gets numbers that follow from its name: equal in all variants. */
static void bind_all(sn_module *m, sn_eval *ev) {
    for (uint32_t i = 0; i < sn_module_node_count(m); i++) {
        const sn_node *n = sn_module_node(m, i);
        if (n->op != SN_OP_param) continue;
        float w[4 * D * D];
        size_t count = 1;
        unsigned seed = 1;
        const char *name = sn_attr_str(n, SN_A_name, "");
        for (const char *c = name; *c; c++) seed = seed * 31 + (unsigned char)*c;
        for (int a = 0; a < n->rank; a++) count *= (size_t)n->shape[a];
        assert_true(count <= sizeof w / sizeof *w);
        fill_floats(w, (int64_t)count, seed);
        assert_true(sn_eval_bind(ev, name, w, count * sizeof *w));
    }
}

static void compute(sn_eval *ev, sn_tensor y, double *out) {
    const sn_value *v = sn_eval_node(ev, y);
    if (!v) fail_msg("%s", sn_module_error(y->m)->message);
    memcpy(out, v->data, sizeof *out * (size_t)v->n);
}

static void run(const variant *o, const int32_t tokens[T], double out[T][V]) {
    sn_module *m = sn_module_new("spec");
    sn_tensor y = build(m, "forward", T, o);
    sn_eval *ev = sn_eval_new(m, NULL);
    bind_all(m, ev);
    sn_eval_bind(ev, "tokens", tokens, T * sizeof *tokens);
    compute(ev, y, &out[0][0]);
    sn_eval_free(ev);
    sn_module_free(m);
}

/* Largest difference of rows [from, to) */
static double differ(double a[T][V], double b[T][V], int from, int to) {
    double worst = 0;
    for (int t = from; t < to; t++)
        for (int v = 0; v < V; v++) {
            double d = fabs(a[t][v] - b[t][v]);
            if (!(d <= worst)) worst = d; /* NaN stays */
        }
    return worst;
}

static const int32_t some[T] = {3, 0, 6, 2, 5};

static void p1_causal(void **state) {
    (void)state;
    static const int32_t other[T] = {3, 0, 6, 4, 1};
    for (int plain = 0; plain < 2; plain++) {
        variant o = {.causal = true, .positions = true, .plain = plain};
        double a[T][V], b[T][V];
        run(&o, some, a);
        run(&o, other, b);
        assert_true(differ(a, b, 0, 3) == 0);
        assert_true(differ(a, b, 3, 4) > 1e-3);
    }
}

static void p2_weights_sum_to_one(void **state) {
    (void)state;
    sn_module *m = sn_module_new("spec");
    build(m, "forward", T, &(variant){.causal = true, .plain = true});
    sn_eval *ev = sn_eval_new(m, NULL);
    bind_all(m, ev);
    sn_eval_bind(ev, "tokens", some, sizeof some);
    const sn_entry *e = sn_entry_get(m, "forward");
    assert_int_equal(e->n_tap, 2);
    for (int l = 0; l < 2; l++) {
        double w[H][T][T];
        compute(ev, e->tap[l].node, &w[0][0][0]);
        for (int h = 0; h < H; h++)
            for (int q = 0; q < T; q++) {
                double sum = 0;
                for (int k = 0; k < T; k++) {
                    sum += w[h][q][k];
                    assert_true(k <= q ? w[h][q][k] > 0 : w[h][q][k] == 0);
                }
                assert_true(fabs(sum - 1) < 1e-12);
            }
    }
    sn_eval_free(ev);
    sn_module_free(m);
}

static void p3_permutation(void **state) {
    (void)state;
    static const int order[T] = {4, 2, 0, 1, 3};
    int32_t moved[T];
    for (int t = 0; t < T; t++) moved[t] = some[order[t]];
    for (int positions = 0; positions < 2; positions++) {
        variant o = {.positions = positions};
        double a[T][V], b[T][V], pa[T][V];
        run(&o, some, a);
        run(&o, moved, b);
        for (int t = 0; t < T; t++) memcpy(pa[t], a[order[t]], sizeof pa[t]);
        assert_true(positions ? differ(pa, b, 0, T) > 1e-3 : differ(pa, b, 0, T) < 1e-12);
    }
}

/* Same weights, mask on or off: what sees everything anyway is equal in the first layer only, so
 * the outputs differ; with one token there is nothing to mask. */
static void p4_bert_and_gpt_differ_by_the_mask(void **state) {
    (void)state;
    double gpt[T][V], bert[T][V];
    run(&(variant){.causal = true, .positions = true}, some, gpt);
    run(&(variant){.causal = false, .positions = true}, some, bert);
    assert_true(differ(gpt, bert, 0, T) > 1e-3);
    sn_module *m = sn_module_new("spec");
    sn_tensor one[2] = {build(m, "gpt", 1, &(variant){.causal = true}),
                        build(m, "bert", 1, &(variant){.causal = false})};
    uint32_t n_param = 0;
    for (uint32_t i = 0; i < sn_module_node_count(m); i++)
        n_param += sn_module_node(m, i)->op == SN_OP_param;
    assert_int_equal(n_param, 2 + 2 * 16); /* shared: each once */
    sn_eval *ev = sn_eval_new(m, NULL);
    bind_all(m, ev);
    sn_eval_bind(ev, "tokens", some, sizeof *some);
    double y[2][V];
    for (int i = 0; i < 2; i++) compute(ev, one[i], y[i]);
    for (int v = 0; v < V; v++) assert_true(fabs(y[0][v] - y[1][v]) < 1e-12);
    sn_eval_free(ev);
    sn_module_free(m);
}

static void p5_cross_attention_on_itself(void **state) {
    (void)state;
    for (int causal = 0; causal < 2; causal++) {
        double self[T][V], cross[T][V];
        run(&(variant){.causal = causal}, some, self);
        run(&(variant){.causal = causal, .cross = true}, some, cross);
        assert_true(differ(self, cross, 0, T) == 0);
    }
}

/* Multiply-adds of the products of a model of [TSE] for n states, as written: level 0, nothing
 * simplified. */
enum { N_LENGTH = 3 };
static const int64_t lengths[N_LENGTH] = {1, 5, 32};

/* Multiplications of the forward pass for every length. */
static void count_products(const char *type, int heads, int64_t *products) {
    char text[256];
    sn_error err = {0};
    snprintf(
        text, sizeof text,
        "{\"model_type\": \"%s\", \"n_vocab\": 7, \"n_ctx\": 64, \"n_layers\": 1, \"n_heads\": "
        "%d, \"d_model\": 24, \"d_head\": 4, \"pairwise\": true}",
        type, heads);
    sn_config *c = sn_config_parse("tse", text, strlen(text), &err);
    sn_model model;
    if (!c || !sn_model_build(c, &(sn_model_options){.entries = SN_FORWARD}, &model, &err))
        fail_msg("%s", err.message);
    sn_options o = {.level = 0, .cache_dir = "", .passes = "-simplify"};
    sn_program *p = sn_compile(model.module, &o, &err);
    for (int i = 0; i < N_LENGTH; i++) {
        sn_arg_binding tokens = SN_BIND("tokens", SN_I32, NULL, 1, lengths[i]);
        products[i] = p ? sn_program_macs(p, "forward", &tokens, 1, &err) : -1;
        if (products[i] < 0) fail_msg("%s", err.message);
        assert_int_equal(sn_program_macs(p, "backward", &tokens, 1, &err), -1);
    }
    sn_program_free(p);
    sn_module_free(model.module);
    sn_config_free(c);
}

/* What a second head adds. (That the logits are the same: test_algorithms.) */
static void p6_two_circuits_cost_more(void **state) {
    (void)state;
    enum { D_MODEL = 24, D_HEAD = 4 };
    int64_t usual[2][N_LENGTH], pairs[2][N_LENGTH];
    for (int h = 0; h < 2; h++) {
        count_products("tse_gpt", h + 1, usual[h]);
        count_products("tse_alt", h + 1, pairs[h]);
    }
    for (int i = 0; i < N_LENGTH; i++) {
        int64_t n = lengths[i];
        assert_int_equal(usual[1][i] - usual[0][i], 2 * D_HEAD * n * (2 * D_MODEL + n));
        assert_int_equal(pairs[1][i] - pairs[0][i], n * n * 4 * D_HEAD * D_MODEL);
    }
}

static void p7_one_hot_product_is_a_look_up(void **state) {
    (void)state;
    sn_module *m = sn_module_new("spec");
    sn_entry_begin(m, "forward");
    sn_tensor ids = sn_input(m, "tokens", SN_I32, 1, T);
    sn_tensor table = sn_param(m, "wte.weight", SN_F32, V, D);
    sn_tensor a = sn_embedding(table, ids), b = sn_matmul(sn_one_hot(ids, V, SN_F32), table);
    sn_eval *ev = sn_eval_new(m, NULL);
    bind_all(m, ev);
    sn_eval_bind(ev, "tokens", some, sizeof some);
    double x[T * D], y[T * D];
    compute(ev, a, x);
    compute(ev, b, y);
    assert_memory_equal(x, y, sizeof x);
    sn_eval_free(ev);
    sn_module_free(m);
}

static void p8_cached_decoding(void **state) {
    (void)state;
    double full[T][V];
    float cache[4][CONTEXT * D] = {{0}};
    run(&(variant){.causal = true, .positions = true}, some, full);
    for (int t = 0; t < T; t++) {
        sn_module *m = sn_module_new("spec");
        sn_dim P = sn_symbol(m, "P", 0, CONTEXT - 1);
        variant o = {.causal = true, .positions = true, .plain = t % 2, .past = P, .cached = true};
        sn_tensor y = build(m, "decode", 1, &o);
        const sn_entry *e = sn_entry_get(m, "decode");
        sn_eval *ev = sn_eval_new(m, (int64_t[]){t});
        bind_all(m, ev);
        sn_eval_bind(ev, "tokens", &some[t], sizeof *some);
        assert_int_equal(e->n_assign, 4);
        for (int i = 0; i < 4; i++) sn_eval_bind(ev, e->assign[i].name, cache[i], sizeof cache[i]);
        double logits[V], next[CONTEXT * D];
        compute(ev, y, logits);
        for (int v = 0; v < V; v++) assert_true(fabs(logits[v] - full[t][v]) < 1e-5);
        for (int i = 0; i < 4; i++) {
            compute(ev, e->assign[i].node, next);
            for (int j = 0; j < CONTEXT * D; j++) cache[i][j] = (float)next[j];
        }
        sn_eval_free(ev);
        sn_module_free(m);
    }
}

/* E[a] - E[b] + E[c] and its cosine with every row of the table: all look-ups and products. The
 * table is a sum of what the words mean, so that man : woman = king : queen. */
static void p9_embedding_arithmetic(void **state) {
    (void)state;
    enum { MAN, WOMAN, KING, QUEEN, CHILD, TABLE, WORDS };
    static const float meaning[WORDS][3] = {{1, 0, 0},  {-1, 0, 0},    {1, 1, 0},
                                            {-1, 1, 0}, {0.1f, -1, 0}, {0, 0, 1}};
    float table[WORDS][D];
    for (int w = 0; w < WORDS; w++)
        for (int i = 0; i < D; i++) {
            double mix[3] = {sin(i + 1.0), cos(2.0 * i), sin(3.0 * i + 2)};
            table[w][i] = 0;
            for (int k = 0; k < 3; k++) table[w][i] += (float)mix[k] * meaning[w][k];
        }
    sn_module *m = sn_module_new("spec");
    sn_entry_begin(m, "analogy");
    sn_tensor e = sn_param(m, "wte.weight", SN_F32, WORDS, D);
    sn_tensor abc = sn_embedding(e, sn_input(m, "words", SN_I32, 3)), part[3];
    sn_split(abc, 0, 3, part);
    sn_tensor target = sn_add(sn_sub(part[1], part[0]), part[2]); /* [1, D] */
    sn_tensor length = sn_sqrt(sn_mul(sn_sum(sn_square(e), 1), sn_sum_all(sn_square(target))));
    sn_tensor cosine = sn_div(sn_squeeze(sn_matmul(e, sn_swap(target, 0, 1)), 1), length);
    sn_output("cosine", cosine);
    sn_output("best", sn_argmax(cosine, 0));
    static const struct {
        int32_t ask[3];
        int answer;
    } cases[] = {
        {{MAN, WOMAN, KING}, QUEEN}, {{KING, QUEEN, MAN}, WOMAN}, {{MAN, KING, WOMAN}, QUEEN}};
    sn_eval *ev = sn_eval_new(m, NULL);
    assert_true(sn_eval_bind(ev, "wte.weight", table, sizeof table));
    const sn_entry *entry = sn_entry_get(m, "analogy");
    for (int i = 0; i < 3; i++) {
        double cosines[WORDS], best;
        assert_true(sn_eval_bind(ev, "words", cases[i].ask, sizeof cases[i].ask));
        compute(ev, entry->output[0].node, cosines);
        compute(ev, entry->output[1].node, &best);
        assert_int_equal((int)best, cases[i].answer);
        assert_true(fabs(cosines[cases[i].answer] - 1) < 1e-6);
        for (int w = 0; w < WORDS; w++) assert_true(fabs(cosines[w]) < 1 + 1e-6);
    }
    sn_eval_free(ev);
    sn_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(p1_causal),
        cmocka_unit_test(p2_weights_sum_to_one),
        cmocka_unit_test(p3_permutation),
        cmocka_unit_test(p4_bert_and_gpt_differ_by_the_mask),
        cmocka_unit_test(p5_cross_attention_on_itself),
        cmocka_unit_test(p6_two_circuits_cost_more),
        cmocka_unit_test(p7_one_hot_product_is_a_look_up),
        cmocka_unit_test(p8_cached_decoding),
        cmocka_unit_test(p9_embedding_arithmetic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
