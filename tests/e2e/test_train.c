/* Training entries of every architecture: the loss falls, equals the mean of the loss entry, is the
 * same bits for one thread and two; packed documents, dropout, initial weights. test_train_refs has
 * levels and accumulation. */
#include "frontend/models.h"
#include "ir/ir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/effort.h"
#include "tests/support/scratch.h"

enum { B = 4, T = 8, V = 13, MAX_IN = 6 };

/* Inputs are i32 tensors of B rows; rng is i64 [2]. */
typedef struct family {
    const char *name, *config;
    const char *input[MAX_IN]; /* "tokens", …; lengths is [B], all else [B, T] */
} family;

#define DECODER                                                                                    \
    { "tokens", "targets" }
static const family families[] = {
    {"gpt2",
     "{\"model_type\": \"gpt2\", \"vocab_size\": 13, \"n_positions\": 8, \"n_embd\": 16, "
     "\"n_layer\": 1, \"n_head\": 2}",
     DECODER},
    {"llama",
     "{\"model_type\": \"llama\", \"vocab_size\": 13, \"max_position_embeddings\": 8, "
     "\"hidden_size\": 16, \"intermediate_size\": 24, \"num_hidden_layers\": 1, "
     "\"num_attention_heads\": 4, \"num_key_value_heads\": 2}",
     DECODER},
    {"tse_gpt",
     "{\"model_type\": \"tse_gpt\", \"n_vocab\": 13, \"n_ctx\": 8, \"n_layers\": 1, "
     "\"n_heads\": 2, \"d_model\": 16}",
     DECODER},
    {"bert",
     "{\"model_type\": \"bert\", \"vocab_size\": 13, \"max_position_embeddings\": 8, "
     "\"hidden_size\": 16, \"intermediate_size\": 32, \"num_hidden_layers\": 1, "
     "\"num_attention_heads\": 2}",
     {"tokens", "types", "lengths", "targets"}},
    {"edt",
     "{\"model_type\": \"edt\", \"vocab_size\": 13, \"max_position_embeddings\": 8, "
     "\"d_model\": 16, \"ffn_dim\": 32, \"encoder_layers\": 1, \"decoder_layers\": 1, "
     "\"attention_heads\": 2}",
     {"source", "lengths", "tokens", "targets"}},
};
enum { N_FAMILIES = sizeof families / sizeof *families };

/* A model ready to train, and one batch. */
typedef struct bench {
    sn_model model;
    sn_program *program;
    sn_parameters start;
    sn_session *session;
    int32_t data[MAX_IN][B * T];
    int64_t rng[2];
    sn_arg_binding in[MAX_IN];
    int n_in;
} bench;

static void need(bool ok, const sn_error *err) {
    if (!ok) fail_msg("%s", err->message);
}

/* Sequences that count upwards, and their successors as targets; one target counts not. */
static void fill_batch(bench *b, const family *f) {
    static const int64_t shape[] = {B, T}, two[] = {2};
    b->n_in = 0;
    for (int i = 0; f->input[i]; i++) {
        const char *name = f->input[i];
        bool lengths = !strcmp(name, "lengths"), types = !strcmp(name, "types");
        for (int j = 0; j < B * T; j++)
            b->data[i][j] = lengths ? T - j % 3
                            : types ? 0
                                    : (3 * (j / T) + j % T + !strcmp(name, "targets")) % V;
        if (!strcmp(name, "targets")) b->data[i][5] = -1;
        b->in[b->n_in++] = (sn_arg_binding){name, SN_I32, lengths ? 1 : 2, shape, b->data[i]};
    }
    b->in[b->n_in++] = (sn_arg_binding){"rng", SN_I64, 1, two, b->rng};
}

static sn_model build(const family *f, const sn_training *t) {
    sn_model m;
    sn_error err = {0};
    sn_config *c = sn_config_parse(f->name, f->config, strlen(f->config), &err);
    need(c != NULL, &err);
    sn_model_options o = {.entries = SN_LOSS | SN_TRAIN, .training = t};
    need(sn_model_build(c, &o, &m, &err), &err);
    sn_config_free(c);
    return m;
}

static bench open_bench(const family *f, const sn_training *t, int level, int threads) {
    bench b = {.rng = {7, 0}, .model = build(f, t)};
    sn_error err = {0};
    sn_options how = {.level = level, .threads = threads};
    b.program = sn_compile(b.model.module, &how, &err);
    need(b.program != NULL, &err);
    need(sn_parameters_draw(b.model.module, b.model.type, b.model.layers, 1, &b.start, &err), &err);
    sn_arg_binding *p = calloc(b.start.count, sizeof *p);
    assert_non_null(p);
    for (size_t i = 0; i < b.start.count; i++) {
        const sn_weight *w = &b.start.weight[i];
        p[i] = (sn_arg_binding){w->name, w->dtype, w->rank, w->shape, (void *)(uintptr_t)w->data};
    }
    b.session = sn_session_new_arrays(b.program, p, (int)b.start.count, &err);
    free(p);
    need(b.session != NULL, &err);
    return b;
}

static void close_bench(bench *b) {
    sn_session_free(b->session);
    sn_program_free(b->program);
    sn_module_free(b->model.module);
    sn_parameters_free(&b->start);
}

static float step(bench *b) {
    float loss = 0, norm = 0;
    sn_error err = {0};
    b->rng[1]++;
    sn_arg_binding out[] = {SN_BIND("loss", SN_F32, &loss, SN_REST),
                            SN_BIND("norm", SN_F32, &norm, 1)};
    out[0].rank = out[1].rank = 0;
    need(sn_run(b->session, "train_step", b->in, b->n_in, out, 2, &err), &err);
    assert_true(isfinite(loss) && isfinite(norm));
    return loss;
}

/* The mean of the loss entry over the targets that are tokens. */
static double mean_loss(bench *b) {
    float each[B * T];
    double sum = 0;
    sn_error err = {0};
    sn_arg_binding out = SN_BIND("loss", SN_F32, each, B, T);
    need(sn_run(b->session, "loss", b->in, b->n_in, &out, 1, &err), &err);
    for (int i = 0; i < B * T; i++) sum += each[i];
    return sum / (B * T - 1);
}

static sn_training quick(void) {
    sn_training t = sn_training_default();
    t.optimizer.decay = 0.1, t.optimizer.max_norm = 1;
    t.schedule = (sn_schedule){.kind = SN_COSINE, .peak = 1e-2, .warmup = 2, .total = 50};
    return t;
}

/* ---- */

static void test_every_family_learns(void **unused) {
    (void)unused;
    sn_training t = quick();
    for (int f = 0; f < N_FAMILIES; f++) {
        if (!effort_takes((size_t)f, 3)) continue; /* spec_table has others */
        bench b = open_bench(&families[f], &t, -1, 2);
        fill_batch(&b, &families[f]);
        double before = mean_loss(&b), first = step(&b), last = 0;
        if (!(fabs(before - first) <= 1e-5 * first))
            fail_msg("%s: mean loss %g, loss of the first step %g", families[f].name, before,
                     first);
        if (!(fabs(first - log(V)) <= 0.7))
            fail_msg("%s begins at a loss of %g, ln %d is %g", families[f].name, first, V, log(V));
        for (int i = 1; i < 40; i++) last = step(&b);
        if (!(last < 0.5 * first))
            fail_msg("%s: loss %g, after 40 steps %g", families[f].name, first, last);
        close_bench(&b);
    }
}

/* All parameters and moments in one list of bytes. */
static float *all_states(const bench *b, size_t *count) {
    size_t n = 0;
    for (size_t i = 0; i < b->start.count; i++) n += b->start.weight[i].bytes / sizeof(float);
    float *all = malloc(3 * n * sizeof *all), *at = all;
    assert_non_null(all);
    static const char *const prefix[] = {"", "optimizer.m.", "optimizer.v."};
    for (int k = 0; k < 3; k++)
        for (size_t i = 0; i < b->start.count; i++) {
            const sn_weight *w = &b->start.weight[i];
            char name[256];
            sn_error err = {0};
            snprintf(name, sizeof name, "%s%s", prefix[k], w->name);
            need(sn_state_read(b->session, name, at, w->bytes, &err), &err);
            at += w->bytes / sizeof(float);
        }
    *count = 3 * n;
    return all;
}

static void test_threads(void **unused) {
    (void)unused;
    sn_training t = quick();
    for (int f = 0; f < N_FAMILIES; f++) {
        if (!effort_takes((size_t)f, 3)) continue;
        float *state[2];
        size_t n = 0;
        for (int k = 0; k < 2; k++) {
            bench b = open_bench(&families[f], &t, -1, k + 1);
            fill_batch(&b, &families[f]);
            for (int i = 0; i < 3; i++) step(&b);
            state[k] = all_states(&b, &n);
            close_bench(&b);
        }
        if (memcmp(state[0], state[1], n * sizeof(float)) != 0)
            fail_msg("%s: one thread and two give other bits", families[f].name);
        free(state[0]), free(state[1]);
    }
}

/* Given the schedule's rates, a step that takes the rate has the schedule's bits. It refuses rates
 * below 0. */
static void test_rate_is_an_argument(void **unused) {
    (void)unused;
    enum { STEPS = 3 };
    sn_training t = quick();
    float rate[STEPS], *state[2];
    size_t n = 0;
    sn_error err = {0};
    for (int k = 0; k < 2; k++) {
        t.takes_rate = k;
        bench b = open_bench(&families[0], &t, -1, 1);
        fill_batch(&b, &families[0]);
        float given = 0, used = 0;
        sn_arg_binding out = SN_BIND("rate", SN_F32, &used, SN_REST);
        out.rank = 0;
        b.in[b.n_in] = (sn_arg_binding){"learning_rate", SN_F32, 0, NULL, &given};
        b.n_in += k;
        for (int i = 0; i < STEPS; i++) {
            if (k) given = rate[i];
            need(sn_run(b.session, "train_step", b.in, b.n_in, &out, 1, &err), &err);
            if (!k) rate[i] = used;
            assert_true(used == rate[i] && used > 0);
        }
        state[k] = all_states(&b, &n);
        if (k) {
            given = -1e-3f;
            assert_false(sn_run(b.session, "train_step", b.in, b.n_in, &out, 1, &err));
            assert_non_null(strstr(err.message, "learning_rate"));
        }
        close_bench(&b);
    }
    assert_true(rate[0] != rate[1]); /* of the schedule */
    assert_memory_equal(state[0], state[1], n * sizeof(float));
    free(state[0]), free(state[1]);
}

/* A model without positions: two documents in a row have the loss of each alone. */
static void test_documents(void **unused) {
    (void)unused;
    sn_training t = quick();
    t.documents = true;
    for (int f = 0; f < 3; f += 2) { /* gpt2: another mask only; tse_gpt: the same loss */
        if (!effort_takes((size_t)f + 2, 4)) continue;
        float loss[2];
        for (int split = 0; split < 2; split++) {
            bench b = open_bench(&families[f], &t, -1, 2);
            fill_batch(&b, &families[f]);
            static const int64_t shape[] = {B, T}, halves[] = {2 * B, T / 2};
            int32_t ids[B * T];
            for (int i = 0; i < B * T; i++) ids[i] = i % T / (T / 2) + 3;
            b.in[b.n_in++] = (sn_arg_binding){"documents", SN_I32, 2, shape, ids};
            for (int i = 0; split && i < b.n_in; i++)
                if (b.in[i].rank == 2) b.in[i].shape = halves;
            loss[split] = step(&b);
            close_bench(&b);
        }
        bool same = fabsf(loss[0] - loss[1]) < 1e-5f;
        assert_true(same == (f == 2));
    }
}

static void test_dropout_is_drawn(void **unused) {
    (void)unused;
    sn_training t = quick();
    t.schedule = (sn_schedule){.kind = SN_CONSTANT, .peak = 0};
    t.dropout = 0.5;
    bench b = open_bench(&families[0], &t, -1, 2);
    fill_batch(&b, &families[0]);
    double plain = mean_loss(&b);
    float first = step(&b), second = step(&b);
    b.rng[1] = 0;
    assert_true(step(&b) == first);
    assert_true(first != second && fabs(first - plain) > 1e-6);
    assert_true(fabs(mean_loss(&b) - plain) < 1e-9);
    close_bench(&b);
    t.dropout = 1;
    sn_error err = {0};
    sn_config *c = sn_config_parse("gpt2", families[0].config, strlen(families[0].config), &err);
    sn_model m;
    sn_model_options o = {.entries = SN_TRAIN, .training = &t};
    assert_false(sn_model_build(c, &o, &m, &err));
    assert_non_null(strstr(err.message, "dropout 1"));
    sn_config_free(c);
}

/* Attention that the training step reaches drops weights at the training's rate, in every layer. */
static void test_dropout_of_weights(void **unused) {
    (void)unused;
    static const family more[] = {
        {"gopher",
         "{\"model_type\": \"gopher\", \"vocab_size\": 13, \"n_positions\": 8, \"n_embd\": 16, "
         "\"n_layer\": 1, \"n_head\": 2}",
         DECODER},
        {"gpt3",
         "{\"model_type\": \"gpt3\", \"vocab_size\": 13, \"n_positions\": 8, \"n_embd\": 16, "
         "\"n_layer\": 2, \"n_head\": 2}",
         DECODER},
        {"tse_alt",
         "{\"model_type\": \"tse_alt\", \"n_vocab\": 13, \"n_ctx\": 8, \"n_layers\": 1, "
         "\"n_heads\": 2, \"d_model\": 16}",
         DECODER},
        {"vit",
         "{\"model_type\": \"vit\", \"image_size\": 4, \"patch_size\": 2, \"num_channels\": 1, "
         "\"hidden_size\": 16, \"intermediate_size\": 32, \"num_hidden_layers\": 1, "
         "\"num_attention_heads\": 2, \"num_labels\": 3}",
         {"pixels"}},
    };
    enum { N_MORE = sizeof more / sizeof *more };
    static const int layers[N_FAMILIES + N_MORE] = {1, 1, 2, 1, 3, 1, 2, 2, 1};
    sn_training t = quick();
    t.dropout = 0.25;
    for (int f = 0; f < N_FAMILIES + N_MORE; f++) {
        const family *x = f < N_FAMILIES ? &families[f] : &more[f - N_FAMILIES];
        sn_model model = build(x, &t);
        const sn_entry *e = sn_entry_get(model.module, "train_step");
        if (!e) fail_msg("%s has no training entry", x->name);
        sn_node **root = calloc((size_t)e->n_assign, sizeof *root);
        assert_non_null(root);
        for (int i = 0; i < e->n_assign; i++) root[i] = e->assign[i].node;
        sn_order order = sn_topo(model.module, e->n_assign, root);
        int n = 0;
        for (int i = 0; i < order.n; i++) {
            if (order.node[i]->op != SN_OP_attention) continue;
            n++;
            if (sn_attr_flt(order.node[i], SN_A_rate, 0) != 0.25)
                fail_msg("%s: attention without dropout", x->name);
        }
        if (n != layers[f]) fail_msg("%s: %d attentions, not %d", x->name, n, layers[f]);
        free(root);
        sn_module_free(model.module);
    }
}

/* ---- initial weights ---- */

static double deviation(const sn_weight *w, double *mean) {
    const float *x = w->data;
    size_t n = w->bytes / sizeof *x;
    double sum = 0, square = 0;
    for (size_t i = 0; i < n; i++) sum += x[i];
    *mean = sum / (double)n;
    for (size_t i = 0; i < n; i++) square += (x[i] - *mean) * (x[i] - *mean);
    return sqrt(square / (double)n);
}

static void test_initial_weights(void **unused) {
    (void)unused;
    static const struct {
        int family;
        const char *name;
        double mean, deviation;
    } want[] = {
        {0, "wte.weight", 0, 0.02},
        {0, "h.0.mlp.c_proj.weight", 0, 0.01414},
        {0, "h.0.ln_1.weight", 1, 0},
        {0, "h.0.ln_1.bias", 0, 0},
        {0, "h.0.attn.c_attn.bias", 0, 0},
        {1, "model.layers.0.mlp.down_proj.weight", 0, 0.01414},
        {1, "model.norm.weight", 1, 0},
        {3, "embeddings.LayerNorm.weight", 1, 0},
        {3, "cls.predictions.bias", 0, 0},
        {4, "embed_tokens.weight", 0, 0.02},
        {4, "encoder.0.mlp1.weight", 0, 0.2041}, /* sqrt(6/48) / sqrt 3 */
    };
    for (size_t k = 0; k < sizeof want / sizeof *want; k++) {
        sn_model m = build(&families[want[k].family], NULL);
        sn_parameters p, again;
        const sn_weight *w = NULL;
        sn_error err = {0};
        need(sn_parameters_draw(m.module, m.type, m.layers, 1, &p, &err), &err);
        need(sn_parameters_draw(m.module, m.type, m.layers, 1, &again, &err), &err);
        for (size_t i = 0; i < p.count; i++) {
            assert_memory_equal(p.weight[i].data, again.weight[i].data, p.weight[i].bytes);
            if (!strcmp(p.weight[i].name, want[k].name)) w = &p.weight[i];
        }
        if (!w) fail_msg("no parameter %s", want[k].name);
        double mean, sigma = deviation(w, &mean);
        double wide = 4 * want[k].deviation / sqrt((double)w->bytes / 4);
        if (!(fabs(mean - want[k].mean) <= wide && fabs(sigma - want[k].deviation) <= wide))
            fail_msg("%s: mean %g, deviation %g", want[k].name, mean, sigma);
        sn_parameters_free(&p), sn_parameters_free(&again);
        sn_module_free(m.module);
    }
}

static void test_decay_groups(void **unused) {
    (void)unused;
    assert_true(sn_decays_all("h.0.ln_1.bias", 1, NULL));
    assert_true(sn_decays_no_embedding("h.0.attn.c_attn.weight", 2, NULL));
    assert_false(sn_decays_no_embedding("h.0.ln_1.weight", 1, NULL));
    assert_false(sn_decays_no_embedding("wte.weight", 2, NULL));
    assert_false(sn_decays_no_embedding("model.embed_tokens.weight", 2, NULL));
    assert_false(sn_decays_no_embedding("embeddings.position_embeddings.weight", 2, NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_family_learns), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_rate_is_an_argument), cmocka_unit_test(test_documents),
        cmocka_unit_test(test_dropout_is_drawn),    cmocka_unit_test(test_dropout_of_weights),
        cmocka_unit_test(test_initial_weights),     cmocka_unit_test(test_decay_groups),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
