/* test_aot_train.c [STEPS]: the training step of the Shakespeare config, compiled ahead of time, in
 * f32 (in full runs) and with bf16: every loss and every trained parameter is that of `sinter train`, bit for bit;
 * what was saved from the state is a model. A step that takes slices and the rate has the bits of `sinter train --slices`
 * with the same schedule: on two ranks, which are threads here, and on one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/support/artefact.h"
#include "tests/support/effort.h"
#include "model/open.h"
#include "model/train/train.h"

#include <math.h>
#include <pthread.h>

#define CONFIG SN_SOURCE_DIR "/examples/train/shakespeare.json"

static long steps = 6;

static void need(bool ok, const sn_error *err) {
    if (!ok) fail_msg("%s", err->message);
}

typedef struct model { /* training.h */
    const void *weights;
    int64_t bytes, threads;
    void *pool;
    int32_t target, mapped;
} model;

typedef struct artefact {
    void *lib;
    model m;
    int (*open)(model *, const char *);
    void (*close)(model *);
    const char *(*message)(int);
    int (*state_init)(const model *, void *);
    int64_t (*workspace)(const model *, int64_t T, int64_t B);
    int64_t (*first_workspace)(const model *, int64_t T, int64_t B); /* with slices */
    int (*step)(const model *, void *state, void *workspace, int64_t T, int64_t B,
                const int32_t *tokens, const int32_t *targets, float *loss, float *norm,
                float *rate);
    const sn_weight_place *(*parameters)(void);
} artefact;

static void load(artefact *a) {
    const artefact_symbol names[] = {{(void *)&a->open, "training_open"},
                                     {(void *)&a->close, "training_close"},
                                     {(void *)&a->message, "training_message"},
                                     {(void *)&a->state_init, "training_state_init"},
                                     {(void *)&a->workspace, "training_train_step_workspace"},
                                     {(void *)&a->step, "training_train_step"},
                                     {(void *)&a->parameters, "training_parameters"}};
    a->lib = artefact_load("training", names, sizeof names / sizeof *names);
}

static sn_options compile_options(void) {
    sn_options o = sn_options_default();
    o.backend = "native";
    o.cache_dir = scratch_path("cache");
    return o;
}

/* What `sinter train` notes of each step. */
static void run_train(train_settings *s, double *loss) {
    sn_error err = {0};
    s->steps = steps;
    s->log_every = 1;
    s->validate_every = s->save_every = steps + 1;
    train_request r = {
        .settings = s, .folder = scratch_path("run"), .force = true, .compile = compile_options()};
    train_result result;
    if (train_run(&r, &result, &err) != TRAIN_DONE) fail_msg("%s", err.message);
    FILE *f = fopen(scratch_path("run/metrics.jsonl"), "r");
    assert_non_null(f);
    char line[1024];
    long n = 0;
    while (fgets(line, sizeof line, f)) {
        const char *at = strstr(line, "\"loss\": ");
        assert_true(at && n < steps);
        loss[n++] = strtod(at + 8, NULL);
    }
    fclose(f);
    assert_int_equal(n, steps);
}

/* A number that training.h defines: "STATE_BYTES INT64_C(%lld)". */
static size_t number_of_header(const char *what) {
    FILE *f = fopen(scratch_path("training.h"), "r");
    char line[512], form[64];
    long long n = 0;
    snprintf(form, sizeof form, "#define TRAINING_%s", what);
    assert_non_null(f);
    while (!n && fgets(line, sizeof line, f)) sscanf(line, form, &n);
    fclose(f);
    assert_true(n > 0);
    return (size_t)n;
}

static void run_artefact(artefact *a, train_settings *s, size_t state_bytes, double *loss) {
    sn_error err = {0};
    train_data data = {0};
    sn_batch batch = {0};
    need(train_data_open(s, &data, &err), &err);
    assert_int_equal(a->open(&a->m, scratch_path("training.weights")), 0);
    int64_t bytes = a->workspace(&a->m, s->data.block, s->data.batch);
    assert_true(bytes > 0);
    void *state = aligned_alloc(64, state_bytes),
         *workspace = aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64);
    assert_true(state && workspace);
    assert_int_equal(a->state_init(&a->m, state), 0);
    for (long i = 0; i < steps; i++) {
        float l, norm, rate;
        need(sn_dataset_batch(data.train, i, &batch, &err), &err);
        int code = a->step(&a->m, state, workspace, batch.T, batch.B, batch.tokens, batch.targets,
                           &l, &norm, &rate);
        if (code) fail_msg("%s", a->message(code));
        loss[i] = l;
        if (i < steps - 1) continue; /* zeros are no parameters */
        void *zeros = aligned_alloc(64, state_bytes);
        assert_non_null(zeros);
        code = a->step(&a->m, memset(zeros, 0, state_bytes), workspace, batch.T, batch.B,
                       batch.tokens, batch.targets, &l, &norm, &rate);
        assert_non_null(strstr(a->message(code), "was not initialised: call training_state_init"));
        free(zeros);
    }
    need(sn_weights_save_state(scratch_path("training.model/model.safetensors"), a->parameters(),
                               number_of_header("PARAMETERS %lld"), state, &err),
         &err);
    a->close(&a->m);
    free(state);
    free(workspace);
    sn_batch_free(&batch);
    train_data_close(&data);
}

/* The model that `sinter train` has saved, and the one that was saved from the artefact's state. */
static void same_models(void) {
    sn_error err = {0};
    sn_weights *told = sn_weights_open(scratch_path("run/model.safetensors"), &err),
               *got = sn_weights_open(scratch_path("training.model/model.safetensors"), &err);
    need(told && got, &err);
    assert_int_equal(sn_weights_count(got), sn_weights_count(told));
    for (size_t i = 0; i < sn_weights_count(told); i++) {
        const sn_weight *x = sn_weights_at(told, i), *y = sn_weights_find(got, x->name);
        assert_true(y && y->dtype == x->dtype && y->rank == x->rank && y->bytes == x->bytes);
        assert_memory_equal(y->shape, x->shape, sizeof *x->shape * (size_t)x->rank);
        assert_memory_equal(y->data, x->data, x->bytes);
    }
    sn_weights_close(told);
    sn_weights_close(got);
    const open_options o = {
        .path = scratch_path("training.model"), .entries = SN_LOSS, .compile = compile_options()};
    open_model *m = lm_open(&o, &err);
    need(m && m->io->tokenizer, &err);
    static const int32_t text[] = {20, 21, 22, 1, 5};
    float loss[4];
    need(lm_loss(m, text, text + 1, 4, loss, &err), &err);
    for (int i = 0; i < 4; i++) assert_true(loss[i] > 0);
    model_close(m);
}

static void same_losses(void **precision) {
    sn_error err = {0};
    train_settings s = {0};
    double *told = calloc((size_t)steps, sizeof *told), *got = calloc((size_t)steps, sizeof *got);
    assert_true(told && got);
    need(train_settings_read(CONFIG, NULL, &s, &err), &err);
    s.precision = *precision;
    if (!effort_is_long()) sn_config_set_int(s.model, "n_layer", 1); /* of 4 alike */
    sn_emit_options o = sn_emit_options_default();
    o.name = "training";
    o.dir = scratch_dir;
    o.compile = compile_options();
    s.steps = steps; /* as in the run: the schedule may depend on it */
    need(train_emit(&s, SN_FORWARD, &o, &err), &err);
    artefact a = {0};
    load(&a);
    run_artefact(&a, &s, number_of_header("STATE_BYTES INT64_C(%lld)"), got);
    dlclose(a.lib);
    run_train(&s, told);
    for (long i = 0; i < steps; i++) {
        char told_text[40], got_text[40]; /* nine digits tell floats apart */
        snprintf(told_text, sizeof told_text, "%.9g", told[i]);
        snprintf(got_text, sizeof got_text, "%.9g", got[i]);
        assert_string_equal(got_text, told_text);
    }
    assert_true(got[0] > 3 && got[steps - 1] < got[0]);
    printf("%ld steps: loss %.9g to %.9g\n", steps, got[0], got[steps - 1]);
    same_models();
    train_settings_free(&s);
    free(told);
    free(got);
}

/* ---- ranks ---- */

enum { RANKS = 2 };

typedef struct comm { /* training.h */
    int (*start)(struct comm *self, int64_t sum, float *data, int64_t n);
    int (*wait)(struct comm *self, int64_t sum);
    void *state;
} comm;

typedef struct ranked {
    model m;
    comm *comm;
} ranked;

typedef int step_of_slice(const ranked *, void *state, void *workspace, int64_t T, int64_t B,
                          const int32_t *tokens, const int32_t *targets, const float *learning_rate,
                          const float *weight, float *loss, float *norm, float *rate);
typedef int first_slice(const ranked *, void *state, void *workspace, int64_t T, int64_t B,
                        const int32_t *tokens, const int32_t *targets, const float *weight,
                        float *loss);

/* One rank; its sums are made when they are waited for, in the order in which they were started. */
typedef struct rank {
    int number;
    pthread_barrier_t *meet;
    float **data; /* [RANKS] of the sum that is waited for */
    struct started {
        int64_t sum, n;
        float *data;
    } started[512];
    int n_started, waited, failing; /* failing: number of the call that fails; 0: none */
    artefact *a;
    step_of_slice *step;
    first_slice *first; /* NULL: another rank computes the other slice */
    const train_settings *s;
    const train_data *t;
    size_t state_bytes;
    float loss[32];
    void *state;
    int code;
} rank;

static int start_sum(comm *self, int64_t sum, float *data, int64_t n) {
    rank *r = self->state;
    assert_true(r->n_started < 512);
    r->started[r->n_started++] = (struct started){sum, n, data};
    return r->n_started == r->failing ? 7 : 0;
}

static int wait_sum(comm *self, int64_t sum) {
    rank *r = self->state;
    struct started *s = r->started;
    while (s < r->started + r->n_started && s->sum != sum) s++;
    assert_true(s < r->started + r->n_started);
    r->data[r->number] = s->data;
    pthread_barrier_wait(r->meet);
    int64_t first = s->n * r->number / RANKS, last = s->n * (r->number + 1) / RANKS;
    for (int64_t i = first; i < last; i++) {
        float all = r->data[0][i] + r->data[1][i];
        r->data[0][i] = r->data[1][i] = all;
    }
    pthread_barrier_wait(r->meet);
    r->waited++;
    return 0;
}

/* Powers of two, so that this is the schedule's number in any order of its products. */
static float rate_of(const sn_schedule *s, long step) {
    return (float)(s->peak * (double)(step + 1) / (double)s->warmup);
}

static void *run_rank(void *arg) {
    rank *r = arg;
    sn_error err = {0};
    sn_batch b = {0};
    comm hook = {start_sum, wait_sum, r};
    ranked m = {.m = r->a->m, .comm = r->first ? NULL : &hook};
    int64_t bytes = r->a->workspace(&m.m, r->s->data.block, r->s->data.batch),
            first_bytes = r->a->first_workspace(&m.m, r->s->data.block, r->s->data.batch);
    if (bytes < first_bytes) bytes = first_bytes;
    void *workspace = aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64);
    for (long i = 0; i < steps && !r->code; i++) {
        float norm, rate, weight = 0.5f, given = rate_of(&r->s->training.schedule, i);
        r->n_started = r->waited = 0;
        if (!sn_dataset_batch(r->t->train, i, &b, &err)) abort();
        int64_t first = b.B * r->number / RANKS, rows = b.B * (r->number + 1) / RANKS - first;
        if (r->first)
            r->code = r->first(&m, r->state, workspace, b.T, first, b.tokens, b.targets, &weight,
                               &r->loss[i]);
        if (!r->code)
            r->code = r->step(&m, r->state, workspace, b.T, rows, b.tokens + first * b.T,
                              b.targets + first * b.T, &given, &weight, &r->loss[i], &norm, &rate);
        if (!r->code && (m.comm ? r->waited != r->n_started || r->waited < 2 : r->n_started > 0))
            r->code = -1;
        if (!r->code && rate != given) r->code = -2;
    }
    sn_batch_free(&b);
    free(workspace);
    return NULL;
}

static void compare_parameters(const artefact *a, const void *state) {
    sn_error err = {0};
    sn_weights *told = sn_weights_open(scratch_path("run/model.safetensors"), &err);
    need(told, &err);
    size_t n = number_of_header("PARAMETERS %lld");
    assert_int_equal(n, sn_weights_count(told));
    for (size_t i = 0; i < n; i++) {
        const sn_weight_place *p = &a->parameters()[i];
        const sn_weight *x = sn_weights_find(told, p->name);
        assert_true(x && x->bytes == (size_t)p->bytes);
        assert_memory_equal((const char *)state + p->offset, x->data, x->bytes);
    }
    sn_weights_close(told);
}

/* Two ranks make the steps of `sinter train --slices 2`, and so does one rank without a communicator, whose failure is
 * returned at once. */
static void same_on_ranks(void **unused) {
    (void)unused;
    sn_error err = {0};
    train_settings s = {0};
    train_data data = {0};
    double told[32] = {0};
    if (steps > 32) return; /* compared by the others */
    need(train_settings_read(CONFIG, NULL, &s, &err), &err);
    need(train_settings_optimizer(&s, "soap", &err), &err); /* products, states of squares */
    sn_config_set_int(s.model, "n_layer", 1);
    s.slices = RANKS, s.steps = steps, s.data.batch = 4;
    s.training.schedule = (sn_schedule){.kind = SN_CONSTANT, .peak = 0x1p-9, .warmup = 8};
    s.training.takes_rate = true;
    sn_emit_options o = sn_emit_options_default();
    o.name = "training";
    o.dir = scratch_dir;
    o.compile = compile_options();
    need(train_emit(&s, 0, &o, &err), &err);
    artefact a = {0};
    step_of_slice *step = NULL;
    first_slice *first = NULL;
    load(&a);
    *(void **)&step = dlsym(a.lib, "training_train_step");
    *(void **)&first = dlsym(a.lib, "training_accumulate");
    *(void **)&a.first_workspace = dlsym(a.lib, "training_accumulate_workspace");
    assert_true(step && first && a.first_workspace);
    s.training.takes_rate = false; /* `sinter train` has the schedule */
    need(train_data_open(&s, &data, &err), &err);
    ranked opened = {.comm = NULL};
    assert_int_equal(a.open(&opened.m, scratch_path("training.weights")), 0);
    a.m = opened.m;
    assert_null(opened.comm);
    pthread_barrier_t meet;
    pthread_barrier_init(&meet, NULL, RANKS);
    float *now[RANKS];
    rank *r = calloc(RANKS, sizeof *r);
    pthread_t thread[RANKS];
    size_t bytes = number_of_header("STATE_BYTES INT64_C(%lld)");
    for (int k = 0; k < RANKS; k++) {
        r[k] = (rank){
            .number = k, .meet = &meet, .data = now, .a = &a, .step = step, .s = &s, .t = &data};
        r[k].state = aligned_alloc(64, bytes);
        assert_int_equal(a.state_init(&a.m, r[k].state), 0);
        pthread_create(&thread[k], NULL, run_rank, &r[k]);
    }
    for (int k = 0; k < RANKS; k++) pthread_join(thread[k], NULL);
    for (int k = 0; k < RANKS; k++)
        if (r[k].code)
            fail_msg("rank %d: %s", k, r[k].code > 0 ? a.message(r[k].code) : "waits, or its rate");
    assert_int_equal((size_t)r[0].n_started, number_of_header("SUMS %lld"));
    run_train(&s, told);
    for (long i = 0; i < steps; i++) {
        char told_text[40], got_text[40];
        snprintf(told_text, sizeof told_text, "%.9g", told[i]);
        snprintf(got_text, sizeof got_text, "%.9g",
                 (double)(float)(0.5 * (double)r[0].loss[i] + 0.5 * (double)r[1].loss[i]));
        assert_true(fabs(atof(told_text) - atof(got_text)) < 1e-6);
    }
    compare_parameters(&a, r[0].state);
    compare_parameters(&a, r[1].state);
    rank one = r[1]; /* computes both slices */
    one.first = first;
    assert_int_equal(a.state_init(&a.m, one.state), 0);
    run_rank(&one);
    if (one.code)
        fail_msg("one rank: %s", one.code > 0 ? a.message(one.code) : "sums, or its rate");
    compare_parameters(&a, one.state);
    r[0].failing = 2, r[0].code = 0, r[0].n_started = 0;
    run_rank(&r[0]);
    assert_non_null(strstr(a.message(r[0].code), "communicator"));
    assert_int_equal(r[0].waited, 0);
    for (int k = 0; k < RANKS; k++) free(r[k].state);
    free(r);
    pthread_barrier_destroy(&meet);
    a.close(&a.m);
    dlclose(a.lib);
    train_data_close(&data);
    train_settings_free(&s);
}

int main(int argc, char **argv) {
    if (argc > 1) steps = strtol(argv[1], NULL, 10);
    static char f32[] = "f32", bf16[] = "bf16";
    const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(same_losses, bf16),
                                       cmocka_unit_test(same_on_ranks)};
    const struct CMUnitTest all[] = {cmocka_unit_test_prestate(same_losses, f32),
                                     cmocka_unit_test_prestate(same_losses, bf16),
                                     cmocka_unit_test(same_on_ranks)};
    return effort_is_long() ? cmocka_run_group_tests(all, scratch_make, scratch_end)
                            : cmocka_run_group_tests(tests, scratch_make, scratch_end);
}
