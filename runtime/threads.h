/* threads.h: the thread hook of generated code: run on n threads, all at once, and a barrier.
 * OpenMP by default. */
#ifndef SN_THREADS_H
#define SN_THREADS_H

#include "runtime/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What generated entries call. `run` calls fn(arg, t, n) for every t in [0, n), all of them at the
 * same time, and returns when all have returned. `barrier` returns when all n threads have called
 * it. A user's own pool fills this struct. */
typedef struct sn_threads {
    int64_t n;
    void (*run)(struct sn_threads *self, void (*fn)(void *arg, int64_t tid, int64_t n), void *arg);
    void (*barrier)(struct sn_threads *self, int64_t tid);
    void *state;
} sn_threads;

enum { SN_MAX_THREADS = 1024 }; /* of one session */

/* n threads of OpenMP; n <= 0: as many as OpenMP would take. False: out of memory,
 * more than SN_MAX_THREADS, or more than the system gives. */
bool sn_threads_init(sn_threads *t, int n, sn_error *err);
void sn_threads_free(sn_threads *t);
/* To be called in main before anything is read or written. Threads of libgomp that wait spin for
 * some 15 ms by default; on a shared machine they then burn time that the thread they wait for
 * needs (a run of 20 us took 20 ms). libgomp reads its settings before main, so this function
 * starts the program again, once, with a limit of about 0.2 ms. It returns at once if
 * OMP_WAIT_POLICY or GOMP_SPINCOUNT is set, in static programs, and in those started as `ld.so
 * PROGRAM`. Child processes do not inherit the limit. Under tools that follow one program only
 * (valgrind without
 * --trace-children=yes) set OMP_WAIT_POLICY. */
void sn_threads_limit_spinning(char **argv);
/* Libraries on OpenMP that the calling thread calls use n threads from now on. Returns how many it
 * was before. */
int sn_threads_default(int n);

/* The floating-point state that kernels run in, on every thread: round to nearest, no traps,
 * subnormal operands and results are zero. MXCSR of x86-64 and FPCR of aarch64; other processors
 * keep theirs. Generated code sets it itself and puts back what it found. */
enum { SN_FP_MXCSR = 0x9fc0, SN_FP_FPCR = 1 << 24 };
/* The same for functions of libraries that t's threads run: sn_fp_enter sets the state on all of
 * t's threads and stores what it was in before, [t->n], which is zero at first; sn_fp_leave puts
 * that back on the threads that sn_fp_enter ran on. */
void sn_fp_enter(sn_threads *t, uint64_t *before);
void sn_fp_leave(sn_threads *t, uint64_t *before);

/* Where a thread is: called before (end = 0) and after (end = 1) each kernel if the call
 * has one. */
typedef struct sn_profile {
    void (*mark)(struct sn_profile *self, int64_t step, int64_t tid, int64_t end);
} sn_profile;

/* What an entry receives. */
typedef struct sn_call {
    void *const
        *buffer; /* inputs, outputs, parameters, states: in the order of the entry's table */
    const int64_t *symbol; /* values of the symbolic dims */
    void *workspace;       /* aligned to 64; size: NAME_workspace(symbol, threads->n) */
    sn_threads *threads;
    sn_profile *profile; /* NULL: none */
    void *host;          /* for primitives outside the generated code */
} sn_call;

#ifdef __cplusplus
}
#endif
#endif
