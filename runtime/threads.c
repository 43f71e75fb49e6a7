/* threads.c: the thread hook with OpenMP. */
#include "runtime/threads.h"
#include "runtime/barrier.h"
#include "runtime/memory.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

int sn_this_cpu(void) {
    return sched_getcpu();
}

void sn_yield(void) {
    sched_yield();
}

static void wait_all(sn_threads *t, int64_t tid) {
    sn_barrier_wait(t->state, t->n, tid);
}

static void run_all(sn_threads *t, void (*fn)(void *, int64_t, int64_t), void *arg) {
    if (t->n == 1) {
        fn(arg, 0, 1);
        return;
    }
    int got = 0;
#pragma omp parallel num_threads((int)t->n)
    {
        int team = omp_get_num_threads(), tid = omp_get_thread_num();
        if (tid == 0) got = team;
        if (team == t->n) {
            fn(arg, tid, t->n);
            /* OpenMP's barrier at the end of the region spins for milliseconds without yielding */
            wait_all(t, tid);
        }
    }
    if (got == t->n) return;
    /* with fewer threads than expected (a thread limit, or a nested parallel region) the barrier
     * would deadlock */
    int64_t n = t->n;
    t->n = 1;
    fn(arg, 0, 1);
    t->n = n;
}

static void *wait_for_lock(void *lock) {
    pthread_mutex_lock(lock);
    pthread_mutex_unlock(lock);
    return NULL;
}

/* How many of n threads the system can run at once, including the calling one. */
static int count_threads(int n) {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_t thread[SN_MAX_THREADS];
    int got = 1;
    pthread_mutex_lock(&lock);
    while (got < n && !pthread_create(&thread[got], NULL, wait_for_lock, &lock)) got++;
    pthread_mutex_unlock(&lock);
    for (int i = 1; i < got; i++) pthread_join(thread[i], NULL);
    return got;
}

/* OpenMP exits the process if it cannot create a thread, so numbers above the CPU count are tried
 * out first. */
static bool check_number(int n, sn_error *err) {
    static atomic_int tried; /* this many threads were available before */
    if (n > SN_MAX_THREADS)
        return sn_fail(err, SN_ERR_USAGE, "%d threads: the maximum is %d", n, SN_MAX_THREADS);
    if (n <= omp_get_num_procs() || n <= tried) return true;
    int got = count_threads(n);
    if (got < n)
        return sn_fail(err, SN_ERR_MEMORY,
                       "%d threads: the system allows this process only %d: ask for fewer", n, got);
    tried = n;
    return true;
}

bool sn_threads_init(sn_threads *t, int n, sn_error *err) {
    if (n <= 0) n = omp_get_max_threads();
    if (!check_number(n, err)) return false;
    *t = (sn_threads){.n = n, .run = run_all, .barrier = wait_all};
    t->state = aligned_alloc(64, sn_barrier_bytes(n));
    if (!t->state) return sn_fail(err, SN_ERR_MEMORY, "out of memory for the thread barrier");
    sn_barrier_init(t->state, n);
    return true;
}

void sn_threads_free(sn_threads *t) {
    free(t->state);
    t->state = NULL;
}

int sn_threads_default(int n) {
    int before = omp_get_max_threads();
    if (n != before) omp_set_num_threads(n);
    return before;
}

/* ---- floating-point environment ---- */

static uint64_t fp_state(void) {
#if defined(__x86_64__)
    return __builtin_ia32_stmxcsr();
#elif defined(__aarch64__)
    uint64_t v;
    __asm__ volatile("mrs %0, fpcr" : "=r"(v));
    return v;
#else
    return 0;
#endif
}

static void set_fp_state(uint64_t v) {
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr((unsigned)v);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(v));
#else
    (void)v;
#endif
}

/* Marks the states that `enter` has saved. OpenMP may run `leave` on more threads than `enter`
 * (OMP_DYNAMIC, a thread limit), and those have no saved state. No register uses this bit. */
#define STORED (UINT64_C(1) << 63)

uint64_t sn_fp_set(void) {
    uint64_t before = fp_state();
#if defined(__x86_64__)
    set_fp_state(SN_FP_MXCSR);
#elif defined(__aarch64__)
    set_fp_state(SN_FP_FPCR);
#endif
    return before;
}

void sn_fp_restore(uint64_t before) {
    set_fp_state(before);
}

static void enter(void *before, int64_t tid, int64_t n) {
    (void)n;
    ((uint64_t *)before)[tid] = sn_fp_set() | STORED;
}

static void leave(void *before, int64_t tid, int64_t n) {
    (void)n;
    uint64_t state = ((uint64_t *)before)[tid];
    if (state & STORED) set_fp_state(state & ~STORED);
}

void sn_fp_enter(sn_threads *t, uint64_t *before) {
    t->run(t, enter, before);
}

void sn_fp_leave(sn_threads *t, uint64_t *before) {
    t->run(t, leave, before);
}

void sn_threads_fill(const sn_rng *r, void (*fill)(sn_rng *, float, float, float *, size_t),
                     float a, float b, float *out, int64_t n) {
    enum { PIECE = 1 << 16 };
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < n; at += PIECE) {
        sn_rng own = *r;
        own.index = (uint64_t)at;
        fill(&own, a, b, out + at, (size_t)(n - at < PIECE ? n - at : PIECE));
    }
}
