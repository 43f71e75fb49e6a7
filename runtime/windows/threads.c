/* threads.c: the thread hook for Windows: threads that wait for work. */
#include "runtime/threads.h"
#include "runtime/barrier.h"
#include "runtime/memory.h"

#include <stdlib.h>
#include <windows.h>

enum { STACK = 2 << 20 };

struct pool;

typedef struct worker {
    struct pool *pool;
    int64_t tid;
    HANDLE thread;
} worker;

typedef struct pool {
    _Alignas(64) atomic_long job; /* how many there were */
    SRWLOCK lock;
    CONDITION_VARIABLE begun;
    void (*fn)(void *, int64_t, int64_t); /* the job; NULL: end */
    void *arg;
    int64_t n;
    sn_barrier *barrier;
    worker team[]; /* [n], the first is the caller's */
} pool;

int sn_this_cpu(void) {
    return (int)GetCurrentProcessorNumber();
}

void sn_yield(void) {
    SwitchToThread();
}

static void wait_all(sn_threads *t, int64_t tid) {
    pool *p = t->state;
    sn_barrier_wait(p->barrier, t->n, tid);
}

static void begin(pool *p, void (*fn)(void *, int64_t, int64_t), void *arg) {
    p->fn = fn;
    p->arg = arg;
    AcquireSRWLockExclusive(&p->lock); /* a thread that found no work is asleep */
    atomic_fetch_add_explicit(&p->job, 1, memory_order_release);
    ReleaseSRWLockExclusive(&p->lock);
    WakeAllConditionVariable(&p->begun);
}

static void run_all(sn_threads *t, void (*fn)(void *, int64_t, int64_t), void *arg) {
    pool *p = t->state;
    begin(p, fn, arg);
    fn(arg, 0, t->n);
    wait_all(t, 0);
}

static bool idle(pool *p, long job) {
    return atomic_load_explicit(&p->job, memory_order_acquire) == job;
}

/* A thread without work spins for as long as at a barrier, then sleeps. */
static DWORD WINAPI work(void *arg) {
    worker *w = arg;
    pool *p = w->pool;
    for (long job = 0;; job++) {
        for (int spin = 0; spin < SN_SPINS && idle(p, job); spin++) sn_relax();
        if (idle(p, job)) {
            AcquireSRWLockExclusive(&p->lock);
            while (idle(p, job)) SleepConditionVariableSRW(&p->begun, &p->lock, INFINITE, 0);
            ReleaseSRWLockExclusive(&p->lock);
        }
        if (!p->fn) return 0;
        p->fn(p->arg, w->tid, p->n);
        sn_barrier_wait(p->barrier, p->n, w->tid);
    }
}

/* The CPUs that the process may use, of its group. */
static int count_cpus(void) {
    DWORD_PTR own = 0, all = 0;
    GetProcessAffinityMask(GetCurrentProcess(), &own, &all);
    return own ? __builtin_popcountll(own) : 1;
}

bool sn_threads_init(sn_threads *t, int n, sn_error *err) {
    if (n <= 0) n = count_cpus();
    if (n > SN_MAX_THREADS)
        return sn_fail(err, SN_ERR_USAGE, "%d threads: the maximum is %d", n, SN_MAX_THREADS);
    const size_t bytes = SN_ROUND_UP(sizeof(pool) + (size_t)n * sizeof(worker), 64);
    pool *p =
        VirtualAlloc(NULL, bytes + sn_barrier_bytes(n), MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
    if (!p) return sn_fail(err, SN_ERR_MEMORY, "out of memory for threads");
    p->barrier = (sn_barrier *)((char *)p + bytes);
    sn_barrier_init(p->barrier, n);
    *t = (sn_threads){.n = 1, .run = run_all, .barrier = wait_all, .state = p};
    for (; t->n < n; t->n++) {
        worker *w = &p->team[t->n];
        *w = (worker){.pool = p, .tid = t->n};
        w->thread = CreateThread(NULL, STACK, work, w, STACK_SIZE_PARAM_IS_A_RESERVATION, NULL);
        if (!w->thread) {
            const int got = (int)t->n;
            p->n = got;
            sn_threads_free(t);
            return sn_fail(err, SN_ERR_MEMORY,
                           "%d threads: the system allows this process only %d: ask for fewer", n,
                           got);
        }
    }
    p->n = n;
    return true;
}

void sn_threads_free(sn_threads *t) {
    pool *p = t->state;
    if (!p) return;
    begin(p, NULL, NULL);
    for (int64_t i = 1; i < p->n; i++) {
        WaitForSingleObject(p->team[i].thread, INFINITE);
        CloseHandle(p->team[i].thread);
    }
    VirtualFree(p, 0, MEM_RELEASE);
    t->state = NULL;
}

/* COFF has no weak names by which this could find out whether libgomp is linked. */
void sn_threads_limit_spinning(char **argv) {
    (void)argv;
}
