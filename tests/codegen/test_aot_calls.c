/* test_aot_calls.c: what a caller of an artefact may change between two calls, and what is refused:
 * numbers of threads, pools, fields of the struct, elements of inputs. Workspaces and states end at a
 * page without access. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "codegen/aot/aot.h"
#include "runtime/deployed.h"
#include "runtime/memory.h"
#include "tests/support/artefact.h"
#include "tests/support/model_case.h"

#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <pthread.h>

#define SMALL                                                                                      \
    "{\"model_type\": \"llama\", \"vocab_size\": 300, \"max_position_embeddings\": 128, "          \
    "\"hidden_size\": 64, \"intermediate_size\": 128, \"num_hidden_layers\": 1, "                  \
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"rms_norm_eps\": 1e-5}"
enum { VOCAB = 300, LENGTH = 120, ROWS = 4, TEAM = 3 };

/* A model compiled ahead of time, with what its calls need. */
typedef struct artefact {
    model_case c;
    sn_program *p;
    sn_session *s;
    void *lib;
    const sn_deployed *d;
    sn_deployed_model m;
    size_t state_bytes;
    void *state;
    int32_t token[LENGTH];
} artefact;

static void make(artefact *a, const char *name, const char *threads, int64_t sequences) {
    sn_error err = {0};
    char file[64];
    *a = (artefact){0};
    sn_config *config = sn_config_parse("test", SMALL, strlen(SMALL), &err);
    need(config != NULL, &err);
    sn_model_options how = {.entries = sequences ? SN_CACHED : SN_CACHED | SN_STEP,
                            .sequences = sequences};
    need(sn_model_build(config, &how, &a->c.model, &err), &err);
    sn_config_free(config);
    case_adopt(&a->c, a->c.model.module);
    a->s = case_compile(&a->c, 4, NULL, &a->p);
    sn_emit_options o = sn_emit_options_default();
    o.name = name;
    o.dir = scratch_dir;
    o.threads = threads;
    o.program = true;
    need(sn_emit(a->s, &o, &err), &err);
    a->lib = artefact_load(name, &(artefact_symbol){&a->d, "sn_deployed_artefact"}, 1);
    snprintf(file, sizeof file, "%s.weights", name);
    assert_int_equal(a->d->open(&a->m, scratch_path(file)), 0);
    const char *line = strstr(a->d->manifest, "\nstate ");
    assert_true(line && sscanf(line, "\nstate %zu", &a->state_bytes) == 1);
    a->state = sn_memory_guarded(a->state_bytes);
    assert_non_null(a->state);
    fill_tokens(a->token, LENGTH, VOCAB);
}

static void discard(artefact *a) {
    a->d->close(&a->m);
    sn_memory_release_guarded(a->state, a->state_bytes);
    dlclose(a->lib);
    sn_session_free(a->s);
    sn_program_free(a->p);
    case_close(&a->c);
}

static const sn_deployed_entry *entry_of(const artefact *a, const char *name) {
    for (int64_t i = 0; i < a->d->n_entry; i++)
        if (!strcmp(a->d->entry[i].name, name)) return &a->d->entry[i];
    fail_msg("no entry %s", name);
    return NULL;
}

static size_t workspace_of(const artefact *a, const char *entry, const int64_t *dims) {
    int64_t bytes = entry_of(a, entry)->workspace(&a->m, dims);
    if (bytes < 0) fail_msg("%s: %s", entry, a->d->message((int32_t)-bytes));
    assert_int_equal(bytes % SN_AOT_ALIGN, 0);
    return (size_t)bytes;
}

static void expect(const artefact *a, int64_t code, int kind, const char *text) {
    if ((code & 255) != kind || !strstr(a->d->message((int32_t)code), text))
        fail_msg("wanted kind %d with \"%s\", got %d: %s", kind, text, (int)(code & 255),
                 a->d->message((int32_t)code));
}

/* ---- threads ---- */

static const int64_t whole[] = {LENGTH, 0}; /* T, P */

typedef struct prompt {
    artefact *a;
    void *workspace;
    float logits[VOCAB];
    int32_t code;
} prompt;

static void *run_prompt(void *arg) {
    prompt *p = arg;
    void *list[] = {p->a->token, p->logits};
    memset(p->logits, 0, sizeof p->logits);
    p->code = entry_of(p->a, "prefill")->call(&p->a->m, p->a->state, p->workspace, whole, list);
    return NULL;
}

static void expect_logits(prompt *p, const prompt *want) {
    run_prompt(p);
    if (p->code) fail_msg("%s", p->a->d->message(p->code));
    assert_memory_equal(p->logits, want->logits, sizeof want->logits);
}

/* The size of a workspace is enough whatever happens to numbers of threads before the call. */
static void numbers_of_threads(void **state) {
    (void)state;
    artefact a;
    int before = omp_get_max_threads();
    omp_set_num_threads(2);
    make(&a, "threads", "openmp", 0);
    assert_int_equal(a.m.max_threads, 2);
    prompt want = {.a = &a}, got = {.a = &a};
    size_t two = workspace_of(&a, "prefill", whole);
    got.workspace = want.workspace = sn_memory_guarded(two);
    run_prompt(&want);
    assert_int_equal(want.code, 0);
    static const int later[] = {1, 8};
    for (int i = 0; i < 2; i++) {
        omp_set_num_threads(later[i]);
        assert_int_equal(workspace_of(&a, "prefill", whole), two);
        expect_logits(&got, &want);
        a.m.threads = later[i];
        assert_int_equal(workspace_of(&a, "prefill", whole), two);
        expect_logits(&got, &want);
        a.m.threads = 0;
    }
    pthread_t other; /* which has OpenMP settings of its own */
    memset(got.logits, 0, sizeof got.logits);
    assert_int_equal(pthread_create(&other, NULL, run_prompt, &got), 0);
    pthread_join(other, NULL);
    assert_int_equal(got.code, 0);
    assert_memory_equal(got.logits, want.logits, sizeof got.logits);
    sn_memory_release_guarded(got.workspace, two);
    assert_int_equal(a.d->set_threads(&a.m, 5), 0);
    size_t five = workspace_of(&a, "prefill", whole);
    assert_true(five > two);
    got.workspace = sn_memory_guarded(five);
    expect_logits(&got, &want);
    assert_int_equal(a.d->set_threads(&a.m, 0), 0); /* OpenMP's number here */
    assert_int_equal(a.m.max_threads, 8);
    expect(&a, a.d->set_threads(&a.m, -1), SN_AOT_ARGUMENT, "outside 0..1024");
    expect(&a, a.d->set_threads(&a.m, 1025), SN_AOT_ARGUMENT, "outside 0..1024");
    expect(&a, a.d->set_threads(NULL, 1), SN_AOT_ARGUMENT, "'m' is NULL");
    assert_int_equal(a.m.max_threads, 8);
    sn_memory_release_guarded(got.workspace, five);
    omp_set_num_threads(before);
    discard(&a);
}

/* ---- pools ---- */

/* A pool as users write it: the hook, which is cast back, and then what they need. */
typedef struct pool {
    sn_threads hook;
    int64_t calls;
    pthread_barrier_t meeting;
    void (*fn)(void *arg, int64_t t, int64_t n);
    void *arg;
} pool;

typedef struct worker {
    pool *of;
    int64_t t;
} worker;

static void *work(void *arg) {
    const worker *w = arg;
    w->of->fn(w->of->arg, w->t, w->of->hook.n);
    return NULL;
}

static void run_pool(sn_threads *self, void (*fn)(void *, int64_t, int64_t), void *arg) {
    pool *p = (pool *)self;
    pthread_t thread[TEAM];
    worker w[TEAM];
    p->calls++;
    p->fn = fn;
    p->arg = arg;
    for (int64_t t = 0; t < p->hook.n; t++) {
        w[t] = (worker){p, t};
        if (pthread_create(&thread[t], NULL, work, &w[t])) abort();
    }
    for (int64_t t = 0; t < p->hook.n; t++) pthread_join(thread[t], NULL);
}

static void wait_pool(sn_threads *self, int64_t t) {
    (void)t;
    pthread_barrier_wait(&((pool *)self)->meeting);
}

static void pools(void **state) {
    (void)state;
    static const char *const kinds[] = {"openmp", "none"};
    for (int k = 0; k < 2; k++) {
        artefact a;
        make(&a, k ? "pool_none" : "pool", kinds[k], 0);
        assert_int_equal(a.d->set_threads(&a.m, 2), 0);
        pool mine = {.hook = {TEAM, run_pool, wait_pool, NULL}};
        pthread_barrier_init(&mine.meeting, NULL, TEAM);
        size_t two = workspace_of(&a, "prefill", whole);
        prompt want = {.a = &a, .workspace = sn_memory_guarded(two)}, got = want;
        run_prompt(&want);
        assert_int_equal(want.code, 0);
        a.m.pool = &mine; /* larger than the workspace */
        run_prompt(&got);
        expect(&a, got.code, SN_AOT_ARGUMENT, "_set_threads was told");
        expect(&a, -entry_of(&a, "prefill")->workspace(&a.m, whole), SN_AOT_ARGUMENT, "m->pool");
        mine.hook.n = 0;
        run_prompt(&got);
        expect(&a, got.code, SN_AOT_ARGUMENT, "m->pool has less than 1 thread");
        assert_int_equal(mine.calls, 0);
        sn_memory_release_guarded(want.workspace, two);
        mine.hook.n = TEAM;
        assert_int_equal(a.d->set_threads(&a.m, TEAM), 0);
        size_t bytes = workspace_of(&a, "prefill", whole);
        got.workspace = sn_memory_guarded(bytes);
        expect_logits(&got, &want);
        assert_true(mine.calls > 0 && mine.hook.n == TEAM);
        sn_memory_release_guarded(got.workspace, bytes);
        pthread_barrier_destroy(&mine.meeting);
        discard(&a);
    }
}

/* ---- the struct, and elements of inputs ---- */

static void overwritten_structs(void **state) {
    (void)state;
    artefact a;
    make(&a, "fields", "none", 0);
    const sn_deployed_entry *prefill = entry_of(&a, "prefill");
    size_t bytes = workspace_of(&a, "prefill", whole);
    prompt p = {.a = &a, .workspace = sn_memory_guarded(bytes)};
    const sn_deployed_model good = a.m;
    static const int32_t targets[] = {9, -1, 2, INT32_MIN};
    for (int i = 0; i < 4; i++) {
        a.m.target = targets[i];
        run_prompt(&p);
        expect(&a, p.code, SN_AOT_CLOSED, "overwritten");
        expect(&a, -prefill->workspace(&a.m, whole), SN_AOT_CLOSED, "overwritten");
        expect(&a, a.d->verify(&a.m), SN_AOT_CLOSED, "overwritten");
        expect(&a, a.d->state_init(&a.m, a.state), SN_AOT_CLOSED, "overwritten");
        expect(&a, a.d->choose(&a.m, 1), SN_AOT_CLOSED, "overwritten");
    }
    a.m = good;
    a.m.weights = NULL;
    run_prompt(&p);
    expect(&a, p.code, SN_AOT_CLOSED, "not open");
    expect(&a, a.d->verify(&a.m), SN_AOT_CLOSED, "not open");
    a.m = good;
    a.m.threads = -3;
    run_prompt(&p);
    expect(&a, p.code, SN_AOT_ARGUMENT, "m->threads is negative");
    expect(&a, -prefill->workspace(&a.m, whole), SN_AOT_ARGUMENT, "m->threads is negative");
    a.m = good;
    expect(&a, a.d->state_init(&a.m, (char *)a.state + 8), SN_AOT_ARGUMENT,
           "'state' is not aligned");
    expect(&a, prefill->call(&a.m, a.state, p.workspace, whole, (void *[]){NULL, p.logits}),
           SN_AOT_ARGUMENT, "prefill: 'tokens' is NULL");
    expect(&a, prefill->call(&a.m, a.state, p.workspace, whole, (void *[]){a.token, NULL}),
           SN_AOT_ARGUMENT, "prefill: 'logits' is NULL");
    expect(
        &a,
        prefill->call(&a.m, a.state, (char *)p.workspace + 8, whole, (void *[]){a.token, p.logits}),
        SN_AOT_ARGUMENT, "'workspace' is not aligned to 64 bytes");
    sn_memory_release_guarded(p.workspace, bytes);
    discard(&a);
}

/* The same in a session; past: NULL if the entry has none. */
static bool run_session(const artefact *a, const char *entry, int64_t past, void *const *data,
                        sn_error *err) {
    const sn_plan *plan = sn_program_entry(a->p, entry)->code.plan;
    sn_arg_binding in[4];
    int64_t shape[4][2] = {{ROWS, 1}, {ROWS, 0}, {0, 0}, {2, 0}};
    for (int i = 0; i < plan->n_input; i++) {
        const sn_node *n = plan->input[i].node;
        int64_t *as = n->rank > 1 ? shape[0] : n->dtype == SN_I64 ? shape[3] : shape[1];
        if (n->rank > 1) sn_dim_is_const(n->m, n->shape[0], as);
        in[i] = (sn_arg_binding){plan->input[i].name, (sn_dtype)n->dtype, n->rank, as, data[i]};
    }
    in[plan->n_input] = SN_BIND_DIM("P", past);
    return sn_run(a->s, entry, in, plan->n_input + 1, NULL, 0, err);
}

static void temperatures(void **state) {
    (void)state;
    static const float bad[] = {NAN, -1, INFINITY, -INFINITY, -1e-30f},
                       good[] = {0, -0.0f, 0.7f, 3e38f};
    artefact a;
    make(&a, "heat", "none", 0);
    const int64_t past = 3;
    size_t bytes = workspace_of(&a, "step", &past);
    void *workspace = sn_memory_guarded(bytes);
    int32_t next;
    for (int i = 0; i < 9; i++) {
        float heat = i < 5 ? bad[i] : good[i - 5];
        int64_t rng[] = {1, i};
        sn_error err = {0};
        void *args[] = {a.token, rng, &heat, &next};
        const sn_plan *plan = sn_program_entry(a.p, "step")->code.plan;
        if (plan->input[1].node->dtype == SN_F32) args[1] = &heat, args[2] = rng;
        int32_t code = entry_of(&a, "step")->call(&a.m, a.state, workspace, &past, args);
        bool ran = run_session(&a, "step", past, args, &err);
        if (i >= 5) {
            if (code || !ran) fail_msg("%g: %s", (double)heat, err.message);
            continue;
        }
        expect(&a, code, SN_AOT_INDEX, "'temperature' is not a finite number of at least 0");
        assert_false(ran);
        assert_non_null(strstr(err.message, "not a finite number of at least 0"));
    }
    sn_memory_release_guarded(workspace, bytes);
    discard(&a);
}

/* What each row holds is at most P, which bounds what the caches give. */
static void past_tokens(void **state) {
    (void)state;
    artefact a;
    make(&a, "rows", "openmp", ROWS);
    static float logits[ROWS * VOCAB];
    const int64_t P = 10, dims[] = {P, ROWS};
    size_t bytes = workspace_of(&a, "decode", dims);
    void *workspace = sn_memory_guarded(bytes);
    static const int32_t bad[] = {11, 127, 128, 300, INT32_MAX, -1, -1000, INT32_MIN},
                         good[] = {0, 5, 10};
    for (int i = 0; i < 11; i++) {
        int32_t past[ROWS] = {0, 10, 3, i < 8 ? bad[i] : good[i - 8]};
        void *args[] = {a.token, past, logits};
        sn_error err = {0};
        int32_t code = entry_of(&a, "decode")->call(&a.m, a.state, workspace, dims, args);
        bool ran = run_session(&a, "decode", P, args, &err);
        if (i >= 8) {
            if (code || !ran) fail_msg("past %d: %s", (int)past[3], err.message);
            continue;
        }
        expect(&a, code, SN_AOT_INDEX, "decode: an element of 'past' is outside 0..P");
        assert_false(ran);
        assert_non_null(strstr(err.message, "outside 0..10"));
    }
    sn_memory_release_guarded(workspace, bytes);
    discard(&a);
}

/* Reads n tokens after the first P of them, from token[from], and gives the logits. */
static int32_t read_tokens(artefact *a, void *state, void *workspace, int64_t P, int64_t n,
                           int from, float *logits) {
    const int64_t dims[] = {n, P};
    void *args[] = {a->token + from, logits};
    return entry_of(a, "prefill")->call(&a->m, state, workspace, dims, args);
}

/* A copy of a state is a fork; a smaller P goes back; and a state knows its artefact. */
static void states(void **unused) {
    (void)unused;
    artefact a, other;
    make(&a, "states", "none", 0);
    make(&other, "others", "none", ROWS); /* another layout */
    static float want[VOCAB], got[VOCAB];
    void *workspace = sn_memory_guarded(workspace_of(&a, "prefill", whole)),
         *fork = sn_memory_guarded(a.state_bytes);
    assert_int_equal(read_tokens(&a, a.state, workspace, 0, 20, 0, want), 0);
    memcpy(fork, a.state, a.state_bytes);
    assert_int_equal(read_tokens(&a, a.state, workspace, 20, 5, 20, want), 0);
    assert_int_equal(read_tokens(&a, fork, workspace, 20, 7, 50, got), 0); /* another text */
    assert_memory_not_equal(want, got, sizeof want);
    assert_int_equal(read_tokens(&a, fork, workspace, 20, 5, 20, got), 0); /* back to 20 tokens */
    assert_memory_equal(want, got, sizeof want);
    assert_int_equal(other.d->state_init(&other.m, other.state), 0);
    assert_true(other.state_bytes >= a.state_bytes);
    expect(&a, read_tokens(&a, other.state, workspace, 20, 5, 20, got), SN_AOT_STATE,
           "prefill: the state belongs to another artefact");
    assert_int_equal(a.d->state_init(&a.m, fork), 0);
    assert_int_equal(read_tokens(&a, fork, workspace, 0, 25, 0, got), 0);
    sn_memory_release_guarded(fork, a.state_bytes);
    sn_memory_release_guarded(workspace, workspace_of(&a, "prefill", whole));
    discard(&other);
    discard(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_of_threads),  cmocka_unit_test(pools),
        cmocka_unit_test(overwritten_structs), cmocka_unit_test(temperatures),
        cmocka_unit_test(past_tokens),         cmocka_unit_test(states)};
    return cmocka_run_group_tests_name("aot_calls", tests, scratch_make, scratch_end);
}
