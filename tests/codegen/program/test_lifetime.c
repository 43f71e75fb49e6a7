/* test_lifetime.c: who keeps what alive, programs shared by threads, and the end of memory.
 * `test_lifetime long` opens 100 000 sessions and limits memory in small steps. */
#include "frontend/sinter.h"
#include "runtime/threads.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WIDTH = 8, ROWS = 4, LAYERS = 4, THREADS = 4 };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MEMORY_SLACK = 1 << 20 }; /* KiB: what was freed stays in quarantine */
#else
enum { MEMORY_SLACK = 512 };
#endif

static float weight[WIDTH * WIDTH], bias[WIDTH];

/* LAYERS layers, a masked softmax (which writes -inf on purpose) and a state that counts runs. */
static sn_module *build(void) {
    sn_module *m = sn_module_new("shared");
    sn_dim T = sn_symbol(m, "T", 1, 64);
    sn_entry_begin(m, "f");
    sn_tensor x = sn_input(m, "x", SN_F32, T, WIDTH), y = x;
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "l%d", i);
        y = sn_gelu(sn_nn_linear(y, name, WIDTH, SN_BIAS));
    }
    sn_tensor runs = sn_state(m, "runs", SN_F32, 1);
    sn_assign(runs, sn_add(runs, 1));
    sn_output("y", sn_softmax(sn_where(sn_lt(y, 0), -INFINITY, y), 1));
    return m;
}

static sn_program *compile(sn_module *m, bool check_nan) {
    sn_error err = {0};
    sn_options o = sn_options_default();
    o.threads = 1;
    o.check_nan = check_nan;
    sn_program *p = sn_compile(m, &o, &err);
    if (!p) fail_msg("%s", err.message);
    return p;
}

static sn_session *open_session(sn_program *p) {
    static char names[2 * LAYERS][32];
    sn_arg_binding param[2 * LAYERS];
    static const int64_t square[] = {WIDTH, WIDTH}, line[] = {WIDTH};
    sn_error err = {0};
    for (int i = 0; i < LAYERS; i++) {
        if (!*names[2 * i]) {
            snprintf(names[2 * i], 32, "l%d.weight", i);
            snprintf(names[2 * i + 1], 32, "l%d.bias", i);
        }
        param[2 * i] = (sn_arg_binding){names[2 * i], SN_F32, 2, square, weight};
        param[2 * i + 1] = (sn_arg_binding){names[2 * i + 1], SN_F32, 1, line, bias};
    }
    return sn_session_new_arrays(p, param, 2 * LAYERS, &err);
}

static bool run(sn_session *s, float y[ROWS * WIDTH]) {
    float x[ROWS * WIDTH];
    sn_error err = {0};
    for (int i = 0; i < ROWS * WIDTH; i++) x[i] = (float)(i % 7) / 7;
    sn_arg_binding in = SN_BIND("x", SN_F32, x, ROWS, WIDTH),
                   out = SN_BIND("y", SN_F32, y, ROWS, WIDTH);
    return sn_run(s, "f", &in, 1, &out, 1, &err);
}

/* ---- the order of freeing ---- */

typedef struct things {
    sn_module *m;
    sn_program *p;
    sn_session *s;
    sn_trace *t;
} things;

static void free_one(things *k, int which) {
    if (which == 0) sn_module_free(k->m);
    if (which == 1) sn_program_free(k->p);
    if (which == 2) sn_session_free(k->s);
    if (which == 3) sn_trace_end(k->t);
}

/* All 24 orders; after each step everything that is left is used. */
static void test_free_in_any_order(void **state) {
    (void)state;
    float y[ROWS * WIDTH], want[ROWS * WIDTH];
    for (int order = 0; order < 256; order++) {
        int place[] = {order & 3, order >> 2 & 3, order >> 4 & 3, order >> 6}, seen = 0;
        for (int i = 0; i < 4; i++) seen |= 1 << place[i];
        if (seen != 15) continue;
        sn_error err = {0};
        things k = {.m = build()};
        k.p = compile(k.m, false);
        k.s = open_session(k.p);
        k.t = sn_trace_begin(k.s, NULL, 1000, &err);
        assert_non_null(k.t);
        assert_true(run(k.s, want));
        bool gone[4] = {false};
        for (int i = 0; i < 4; i++) {
            free_one(&k, place[i]);
            gone[place[i]] = true;
            if (!gone[2]) assert_true(run(k.s, y));
            if (!gone[2]) assert_memory_equal(y, want, sizeof y);
            if (!gone[1]) sn_session_free(open_session(k.p));
            if (!gone[3]) assert_int_equal(sn_trace_lost(k.t), 0);
        }
    }
}

/* The code of a trace's kernels outlives the session; the second trace continues without the
 * first. */
static void test_traces(void **state) {
    (void)state;
    float y[ROWS * WIDTH];
    sn_error err = {0};
    sn_module *m = build();
    sn_program *p = compile(m, false);
    sn_session *s = open_session(p);
    sn_trace *a = sn_trace_begin(s, NULL, 0, &err), *b = sn_trace_begin(s, NULL, 0, &err);
    sn_trace_end(a);
    assert_true(run(s, y));
    assert_true(sn_trace_lost(b) > 0);
    sn_module_free(m);
    sn_program_free(p);
    sn_session_free(s);
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    sn_trace_print(b, f);
    fclose(f);
    free(text);
    sn_trace_end(b);
}

/* ---- threads ---- */

typedef struct job {
    sn_program *p;
    int n;
    const float *want;
    atomic_int *wrong;
} job;

static void *open_and_run(void *arg) {
    const job *j = arg;
    float y[ROWS * WIDTH], runs;
    sn_error err = {0};
    for (int i = 0; i < j->n; i++) {
        sn_session *s = open_session(j->p);
        bool ok = s && run(s, y) && !memcmp(y, j->want, sizeof y) &&
                  sn_state_read(s, "runs", &runs, sizeof runs, &err) && runs == 1;
        if (!ok) atomic_fetch_add(j->wrong, 1);
        sn_session_free(s);
    }
    return NULL;
}

/* compile_too: meanwhile this thread continues building the module and compiles it again. */
static void share(bool check_nan, int n, bool compile_too) {
    float want[ROWS * WIDTH];
    atomic_int wrong = 0;
    sn_module *m = build();
    sn_program *p = compile(m, check_nan);
    sn_session *s = open_session(p);
    assert_true(run(s, want));
    sn_session_free(s);
    pthread_t thread[THREADS];
    job j = {p, n, want, &wrong};
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, open_and_run, &j), 0);
    if (compile_too) {
        sn_dim Q = sn_symbol(m, "Q", 1, 9);
        sn_entry_begin(m, "g");
        for (int i = 0; i < 40; i++) Q = sn_dim_add(m, Q, sn_dim_mul(m, Q, 1 + i % 2));
        sn_output("q", sn_tanh(sn_input(m, "x", SN_F32, sn_symbol(m, "Q", 1, 9), 2)));
        sn_program_free(compile(m, false));
    }
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    sn_program_free(p);
    sn_module_free(m);
    assert_int_equal(wrong, 0);
}

static void test_threads(void **state) {
    (void)state;
    share(false, 500, false);
}

static void test_threads_checked(void **state) {
    (void)state;
    share(true, 200, false);
}

static void test_threads_while_compiling(void **state) {
    (void)state;
    share(false, 200, true);
}

static long resident_kib(void) {
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%*d %ld", &pages) != 1) pages = 0;
    if (f) fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void check_constant_memory(int sessions) {
    float y[ROWS * WIDTH];
    sn_module *m = build();
    sn_program *p = compile(m, true);
    long before = 0;
    for (int i = 0; i < sessions + 200; i++) {
        if (i == 200) before = resident_kib(); /* after what is kept for good */
        sn_session *s = open_session(p);
        assert_true(run(s, y));
        sn_session_free(s);
    }
    assert_in_range(resident_kib(), 0, before + MEMORY_SLACK);
    sn_program_free(p);
    sn_module_free(m);
}

static void test_memory_stays(void **state) {
    (void)state;
    check_constant_memory(MEMORY_SLACK > 512 ? 200 : 3000);
}

static void test_memory_stays_long(void **state) {
    (void)state;
    check_constant_memory(100000);
}

/* ---- limits of the system ---- */

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they need terabytes */
/* Address space for these KiB more than there is now. */
static void limit_memory(long kib) {
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld", &pages) != 1) _exit(99);
    fclose(f);
    rlim_t most = (rlim_t)(pages * sysconf(_SC_PAGESIZE)) + ((rlim_t)kib << 10);
    setrlimit(RLIMIT_AS, &(struct rlimit){most, most});
}

/* 0: it compiled; the code of the error otherwise. */
static int compile_large(int threads) {
    sn_error err = {0};
    sn_module *m = sn_module_new("large");
    if (!m) return SN_ERR_MEMORY;
    sn_entry_begin(m, "f");
    sn_tensor x = sn_input(m, "x", SN_F32, 32, 32), w = sn_param(m, "w", SN_F32, 32, 32), g;
    for (int i = 0; i < 40; i++) x = sn_softmax(sn_matmul(sn_tanh(x), w), 1);
    sn_grad(sn_sum_all(x), 1, &w, &g);
    sn_output("g", g);
    sn_options o = {.level = 4, .threads = threads, .cache_dir = ""};
    sn_program *p = sn_compile(m, &o, &err);
    if (!p && !*err.message) return 98;
    sn_program_free(p);
    sn_module_free(m);
    return p ? 0 : (int)err.code;
}

static int compile_limited(int kib) {
    limit_memory(kib);
    return compile_large(1);
}

static int compile_limited_by_all(int kib) {
    limit_memory(kib);
    return compile_large(4);
}

/* Names are stored before their nodes are made: the memory may end at either. */
static int names_limited(int kib) {
    sn_module *m = sn_module_new("names");
    if (!m) return 97;
    limit_memory(kib);
    char name[1000];
    sn_error err = {0};
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = 0;
    sn_entry_begin(m, "f");
    for (int i = 0; i < 3000; i++) {
        snprintf(name, 8, "%07d", i);
        name[7] = 'x';
        sn_output(name, sn_input(m, name, SN_F32, 2));
        sn_scope_push(m, "%s", name + 900);
        sn_scope_pop(m);
    }
    for (int i = 0; i < 3000; i++) sn_program_free(sn_compile(m, NULL, &err));
    sn_module_free(m);
    return (int)err.code;
}

static int threads_limited(int kib) {
    limit_memory(kib);
    sn_error err = {0};
    sn_threads t = {.n = 0};
    bool ok = sn_threads_init(&t, 1000, &err);
    sn_threads_free(&t);
    return ok ? 0 : (int)err.code;
}

/* In a separate process. */
static int in_child(int (*fn)(int), int kib) {
    int status;
    pid_t child = fork();
    if (!child) {
        signal(SIGSEGV, SIG_DFL); /* cmocka would catch it and go on */
        _exit(fn(kib));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status)) fail_msg("%d KiB: signal %d", kib, WTERMSIG(status));
    return WEXITSTATUS(status);
}

/* Compiles or is out of memory: nothing else. */
static int check_limit(int kib) {
    int all = in_child(compile_limited_by_all, kib), one = in_child(compile_limited, kib);
    if (all && all != SN_ERR_MEMORY) fail_msg("%d KiB, 4 threads: code %d", kib, all);
    if (one && one != SN_ERR_MEMORY) fail_msg("%d KiB: code %d", kib, one);
    return one;
}

static void test_out_of_memory(void **state) {
    (void)state;
    static const int mib[] = {1, 2, 3, 5, 8, 13, 21, 34, 55};
    assert_int_equal(compile_large(1), 0); /* so that LLVM has started */
    assert_int_equal(check_limit(0), SN_ERR_MEMORY);
    for (size_t i = 0; i < sizeof mib / sizeof *mib; i++) check_limit(mib[i] << 10);
    assert_int_equal(in_child(compile_limited_by_all, 4000 << 10), 0);
    assert_int_equal(in_child(compile_limited, 4000 << 10), 0);
    assert_int_equal(in_child(names_limited, 0), SN_ERR_MEMORY);
}

/* Small steps: LLVM returns failed allocations in several ways, and each is hit at few limits. */
static void test_out_of_memory_long(void **state) {
    (void)state;
    for (int kib = 0; kib < 64 << 10; kib += 2000) check_limit(kib); /* LLVM starts in the child */
    assert_int_equal(compile_large(1), 0);
    for (int kib = 0; kib < 64 << 10; kib += 100) check_limit(kib);
}

static void test_too_many_threads(void **state) {
    (void)state;
    assert_int_equal(in_child(threads_limited, 100 << 10), SN_ERR_MEMORY);
}
#endif

static void test_number_of_threads(void **state) {
    (void)state;
    sn_error err = {0};
    sn_threads t;
    assert_false(sn_threads_init(&t, 100000, &err));
    assert_int_equal(err.code, SN_ERR_USAGE);
    assert_non_null(strstr(err.message, "maximum is 1024"));
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_free_in_any_order),
        cmocka_unit_test(test_traces),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_threads_checked),
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_too_many_threads),
#endif
        cmocka_unit_test(test_number_of_threads),
        cmocka_unit_test(test_threads_while_compiling),
        cmocka_unit_test(test_memory_stays),
    };
    const struct CMUnitTest slow[] = {
        cmocka_unit_test(test_memory_stays_long),
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        cmocka_unit_test(test_out_of_memory_long),
#endif
    };
    for (int i = 0; i < WIDTH * WIDTH; i++) weight[i] = (float)(i % 13) / 13 - 0.4f;
    if (argc > 1 && !strcmp(argv[1], "long")) return cmocka_run_group_tests(slow, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
