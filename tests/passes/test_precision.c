/* Training with bf16 between the forward and the backward part: kernels compute what the evaluator
 * says at every level, threads do not change bits, less memory is taken, gradients and losses stay
 * near those of f32, entries that do not train stay as they are; wrong precisions are refused.
 * (test_train_run kills and resumes such runs, test_aot_train deploys one.) */
#include "codegen/backend.h"
#include "codegen/program/program.h"
#include "frontend/models.h"
#include "passes/plan/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>

#include "tests/support/effort.h"
#include "tests/support/scratch.h"

enum { B = 3, T = 20, V = 37, MAX_ARGS = 64 };

static const char gpt2[] = "{\"model_type\": \"gpt2\", \"vocab_size\": 37, \"n_positions\": 32, "
                           "\"n_embd\": 32, \"n_layer\": 2, \"n_head\": 2}";
static const char llama[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 37, \"max_position_embeddings\": 32, "
    "\"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 1, "
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2}";

static void need(bool ok, const sn_error *err) {
    if (!ok) fail_msg("%s", err->message);
}

/* A model in training: its parameters after a step of plain descent at rate 1 are those before
 * less the gradient. */
typedef struct net {
    sn_model model;
    sn_program *program;
    sn_parameters start;
    sn_session *session;
    int32_t tokens[B * T], targets[B * T];
    sn_arg_binding in[2];
    float loss;
} net;

static const int64_t batch_shape[] = {B, T};

static void open_net(net *n, const char *json, const char *precision, int level, int threads) {
    sn_error err = {0};
    sn_training t = sn_training_default();
    t.optimizer = sn_optimizer_of(SN_SGD);
    t.schedule.peak = 1;
    sn_config *c = sn_config_parse("model", json, strlen(json), &err);
    need(c != NULL, &err);
    sn_model_options mo = {.entries = SN_TRAIN, .training = &t};
    need(sn_model_build(c, &mo, &n->model, &err), &err);
    sn_config_free(c);
    sn_options o = {.level = level, .threads = threads, .precision = precision};
    n->program = sn_compile(n->model.module, &o, &err);
    need(n->program != NULL, &err);
    need(sn_parameters_draw(n->model.module, n->model.type, n->model.layers, 3, &n->start, &err),
         &err);
    assert_true(n->start.count <= MAX_ARGS);
    sn_arg_binding p[MAX_ARGS];
    for (size_t i = 0; i < n->start.count; i++) {
        const sn_weight *w = &n->start.weight[i];
        p[i] = (sn_arg_binding){w->name, w->dtype, w->rank, w->shape, (void *)(uintptr_t)w->data};
    }
    n->session = sn_session_new_arrays(n->program, p, (int)n->start.count, &err);
    need(n->session != NULL, &err);
    for (int i = 0; i < B * T; i++) {
        n->tokens[i] = (7 * i + i * i / 5) % V;
        n->targets[i] = (7 * i + 3) % V;
    }
    n->in[0] = (sn_arg_binding){"tokens", SN_I32, 2, batch_shape, n->tokens};
    n->in[1] = (sn_arg_binding){"targets", SN_I32, 2, batch_shape, n->targets};
}

static void close_net(net *n) {
    sn_session_free(n->session);
    sn_program_free(n->program);
    sn_module_free(n->model.module);
    sn_parameters_free(&n->start);
}

static void step(net *n) {
    sn_error err = {0};
    sn_arg_binding out = {.name = "loss", .dtype = SN_F32, .data = &n->loss};
    need(sn_run(n->session, "train_step", n->in, 2, &out, 1, &err), &err);
}

/* Parameter i as the session has it; free it. */
static float *value_of(const net *n, size_t i) {
    const sn_weight *w = &n->start.weight[i];
    sn_error err = {0};
    float *v = malloc(w->bytes);
    assert_non_null(v);
    need(sn_state_read(n->session, w->name, v, w->bytes, &err), &err);
    return v;
}

/* Sums over all parameters: squares of differences between two nets, and of the first gradient. */
typedef struct distance {
    double apart, size;
} distance;

static double relative(distance d) {
    return sqrt(d.apart / d.size);
}

/* The compiled entry, fused and narrowed, evaluated: its new parameters against the session's. */
static distance from_evaluator(net *n) {
    const sn_entry *e = sn_program_entry(n->program, "train_step")->code.plan->entry;
    sn_module *m = n->model.module;
    int64_t symbol[8] = {0};
    assert_true(sn_symbol_count(m) <= 8);
    for (int i = 0; i < sn_symbol_count(m); i++)
        symbol[i] = strcmp(sn_symbol_at(m, i)->name, "B") ? T : B;
    sn_eval *ev = sn_eval_new(m, symbol);
    assert_non_null(ev);
    for (size_t i = 0; i < n->start.count; i++) {
        const sn_weight *w = &n->start.weight[i];
        assert_true(sn_eval_bind(ev, w->name, w->data, w->bytes));
    }
    const int64_t zero = 0;
    assert_true(sn_eval_bind(ev, "tokens", n->tokens, sizeof n->tokens));
    assert_true(sn_eval_bind(ev, "targets", n->targets, sizeof n->targets));
    assert_true(sn_eval_bind(ev, "optimizer.step", &zero, sizeof zero));
    distance d = {0, 0};
    for (size_t i = 0; i < n->start.count; i++) {
        const sn_weight *w = &n->start.weight[i];
        float *got = value_of(n, i);
        const float *before = w->data;
        for (int a = 0; a < e->n_assign; a++) {
            if (strcmp(e->assign[a].name, w->name) != 0) continue;
            const sn_value *want = sn_eval_node(ev, e->assign[a].node);
            if (!want) fail_msg("%s", sn_module_error(m)->message);
            for (int64_t j = 0; j < want->n; j++) {
                d.apart += pow((double)got[j] - want->data[j], 2);
                d.size += pow((double)before[j] - want->data[j], 2);
            }
        }
        free(got);
    }
    sn_eval_free(ev);
    return d;
}

static distance between(const net *a, const net *b) {
    distance d = {0, 0};
    for (size_t i = 0; i < a->start.count; i++) {
        float *x = value_of(a, i), *y = value_of(b, i);
        const float *before = a->start.weight[i].data;
        for (int64_t j = 0; j < (int64_t)(a->start.weight[i].bytes / sizeof *x); j++) {
            d.apart += pow((double)x[j] - (double)y[j], 2);
            d.size += pow((double)before[j] - (double)x[j], 2);
        }
        free(x), free(y);
    }
    return d;
}

static int64_t arena_of(const net *n) {
    int64_t symbol[8];
    for (int i = 0; i < sn_symbol_count(n->model.module); i++)
        symbol[i] = strcmp(sn_symbol_at(n->model.module, i)->name, "B") ? T : B;
    return sn_plan_arena(sn_program_entry(n->program, "train_step")->code.plan, symbol);
}

/* ---- one step ---- */

/* Roundings to bf16 of what differs in the last bit of f32 now and then fall to the other side;
 * that, and attention's result, which its gradient reads rounded, is all that differs. */
static void check_step(const char *json, int level, const net *f32) {
    net bf16;
    open_net(&bf16, json, "bf16", level, 2);
    step(&bf16);
    assert_true(relative(from_evaluator(&bf16)) < 5e-5);
    double rounding = relative(between(f32, &bf16));
    assert_true(rounding > 2e-4 && rounding < 1e-2);
    assert_true(fabsf(f32->loss - bf16.loss) < 1e-3f * f32->loss);
    if (level == 4) assert_true(10 * arena_of(&bf16) < 9 * arena_of(f32));
    close_net(&bf16);
}

static void kernels_compute_what_the_evaluator_does(void **state) {
    (void)state;
    net f32;
    open_net(&f32, gpt2, "f32", 4, 2);
    step(&f32);
    for (int level = 0; level <= 4; level++)
        if (level == 4 || effort_takes((size_t)level + 2, 4)) check_step(gpt2, level, &f32);
    close_net(&f32);
    open_net(&f32, llama, "f32", 4, 2); /* fewer key heads than heads, rotary positions, pairs */
    step(&f32);
    check_step(llama, 4, &f32);
    close_net(&f32);
}

static void threads_do_not_change_bits(void **state) {
    (void)state;
    net one;
    open_net(&one, gpt2, "bf16", 4, 1);
    for (int i = 0; i < 3; i++) step(&one);
    for (int threads = 2; threads <= 3; threads++) {
        net more;
        open_net(&more, gpt2, "bf16", 4, threads);
        for (int i = 0; i < 3; i++) step(&more);
        assert_true(one.loss == more.loss && between(&one, &more).apart == 0);
        close_net(&more);
    }
    close_net(&one);
}

/* ---- where it does not apply ---- */

static void entries_that_do_not_train_stay(void **state) {
    (void)state;
    sn_error err = {0};
    sn_module *m = sn_module_new("plain");
    assert_non_null(m);
    sn_entry_begin(m, "run");
    sn_tensor x = sn_input(m, "x", SN_F32, 64, 64);
    sn_tensor y = sn_gelu(sn_matmul(x, sn_softmax(sn_matmul(x, x), -1)));
    sn_output("loss", sn_mean_all(sn_matmul(y, y)));
    sn_options o = sn_options_default();
    o.precision = "bf16";
    sn_program *p = sn_compile(m, &o, &err);
    need(p != NULL, &err);
    const sn_plan *plan = sn_program_entry(p, "run")->code.plan;
    for (int i = 0; i < plan->n_buffer; i++) assert_int_equal(plan->buffer[i].dtype, SN_F32);
    sn_program_free(p);
    sn_module_free(m);
}

static void refuse(const char *precision, const char *backend, const char *say) {
    sn_error err = {0};
    sn_module *m = sn_module_new("none");
    assert_non_null(m);
    sn_options o = sn_options_default();
    o.precision = precision, o.backend = backend;
    assert_null(sn_compile(m, &o, &err));
    assert_int_equal(err.code, SN_ERR_USAGE);
    if (!strstr(err.message, say)) fail_msg("'%s' does not say '%s'", err.message, say);
    sn_module_free(m);
}

static void wrong_precisions(void **state) {
    (void)state;
    refuse("fp8", "native", "precision 'fp8': choose f32 or bf16");
    refuse("", "native", "choose f32 or bf16");
    if (sn_backend_library()) refuse("bf16", "onednn", "choose backend native or auto");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(kernels_compute_what_the_evaluator_does),
                                       cmocka_unit_test(threads_do_not_change_bits),
                                       cmocka_unit_test(entries_that_do_not_train_stay),
                                       cmocka_unit_test(wrong_precisions)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
