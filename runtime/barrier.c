/* barrier.c: see barrier.h. */
#include "runtime/barrier.h"
#include "runtime/memory.h"

size_t sn_barrier_bytes(int64_t n) {
    return SN_ROUND_UP(sizeof(sn_barrier) + (size_t)n * sizeof(atomic_int), 64);
}

void sn_barrier_init(sn_barrier *b, int64_t n) {
    atomic_init(&b->waiting, 0);
    atomic_init(&b->round, 0);
    for (int64_t i = 0; i < n; i++) atomic_init(&b->cpu[i], -1);
}

void sn_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Whether another thread was seen on this thread's CPU. A CPU is written when it changes: all threads read this line. */
static bool shares_cpu(sn_barrier *b, int64_t n, int64_t tid) {
    const int cpu = sn_this_cpu();
    if (atomic_load_explicit(&b->cpu[tid], memory_order_relaxed) != cpu)
        atomic_store_explicit(&b->cpu[tid], cpu, memory_order_relaxed);
    bool shared = false;
    for (int64_t i = 0; i < n && !shared; i++)
        shared = i != tid && atomic_load_explicit(&b->cpu[i], memory_order_relaxed) == cpu;
    return shared;
}

void sn_barrier_wait(sn_barrier *b, int64_t n, int64_t tid) {
    if (n == 1) return;
    const bool shared = shares_cpu(b, n, tid);
    const long round = atomic_load_explicit(&b->round, memory_order_acquire);
    if (atomic_fetch_add_explicit(&b->waiting, 1, memory_order_acq_rel) + 1 == n) {
        atomic_store_explicit(&b->waiting, 0, memory_order_relaxed);
        atomic_store_explicit(&b->round, round + 1, memory_order_release);
        return;
    }
    int left = shared ? 0 : SN_SPINS;
    while (atomic_load_explicit(&b->round, memory_order_acquire) == round) {
        if (left) {
            left--;
            sn_relax();
        } else
            sn_yield();
    }
}
