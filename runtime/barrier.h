/* barrier.h: the barrier of the thread hook, on every system. Kernels are short; a barrier through the
 * operating system would cost more than many of them. */
#ifndef SN_BARRIER_H
#define SN_BARRIER_H

#include "runtime/base.h"

#include <stdatomic.h>

/* About 50 microseconds, the cost of sleeping and waking. After that a thread yields, because the thread
 * that it waits for may need this CPU; at once if that one was seen on this CPU. */
enum { SN_SPINS = 1000 };

typedef struct sn_barrier {
    _Alignas(64) atomic_long waiting;
    _Alignas(64) atomic_long round;
    _Alignas(64) atomic_int cpu[]; /* where each thread was when it last came */
} sn_barrier;

/* Its size for n threads, aligned to 64. */
size_t sn_barrier_bytes(int64_t n);
void sn_barrier_init(sn_barrier *b, int64_t n);
/* Returns when all n threads have called it. */
void sn_barrier_wait(sn_barrier *b, int64_t n, int64_t tid);
/* A moment without work of a thread that spins. */
void sn_relax(void);

/* threads.c of each system: the CPU of the calling thread; lets another thread have it. */
int sn_this_cpu(void);
void sn_yield(void);

#endif
