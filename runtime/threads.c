/* threads.c: the thread hook over OpenMP, with a spinning barrier: kernels are short, and a barrier
 * through the operating system costs more than many of them. */
#include "runtime/threads.h"

#include <omp.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

enum {
    SPINS = 4000
}; /* then the processor is given away: more threads than cores must still make progress */

typedef struct barrier {
    _Alignas(64) atomic_long waiting;
    _Alignas(64) atomic_long round;
} barrier;

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void wait_all(sn_threads *t, int64_t tid) {
    (void)tid;
    if (t->n == 1) return;
    barrier *b = t->state;
    long round = atomic_load_explicit(&b->round, memory_order_acquire);
    if (atomic_fetch_add_explicit(&b->waiting, 1, memory_order_acq_rel) + 1 == t->n) {
        atomic_store_explicit(&b->waiting, 0, memory_order_relaxed);
        atomic_store_explicit(&b->round, round + 1, memory_order_release);
        return;
    }
    for (int spin = 0; atomic_load_explicit(&b->round, memory_order_acquire) == round; spin++) {
        if (spin < SPINS)
            relax();
        else
            sched_yield();
    }
}

static void run_all(sn_threads *t, void (*fn)(void *, int64_t, int64_t), void *arg) {
    if (t->n == 1) {
        fn(arg, 0, 1);
        return;
    }
    int got = 0;
#pragma omp parallel num_threads((int)t->n)
    {
#pragma omp master
        got = omp_get_num_threads();
#pragma omp barrier
        if (got == t->n) fn(arg, omp_get_thread_num(), t->n);
    }
    if (got == t->n) return;
    /* fewer threads than promised (a thread limit, or inside another parallel region): the barrier
     * would wait for ever */
    int64_t n = t->n;
    t->n = 1;
    fn(arg, 0, 1);
    t->n = n;
}

bool sn_threads_init(sn_threads *t, int n, sn_error *err) {
    if (n <= 0) n = omp_get_max_threads();
    *t = (sn_threads){.n = n, .run = run_all, .barrier = wait_all};
    t->state = aligned_alloc(64, sizeof(barrier));
    if (!t->state) return sn_fail(err, SN_ERR_MEMORY, "out of memory for the thread barrier");
    barrier *b = t->state;
    atomic_init(&b->waiting, 0);
    atomic_init(&b->round, 0);
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
