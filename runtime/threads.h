/* threads.h: the thread hook of generated code: run a function on n threads at once, and a barrier.
 * Implemented with OpenMP by default. */
#ifndef SN_THREADS_H
#define SN_THREADS_H

#include "runtime/rng.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The hook that generated entries call. `run` calls fn(arg, t, n) for every t in [0, n), all
 * concurrently, and returns when all have returned. `barrier` returns when all n threads have
 * called it. Fill this struct to use another thread pool. */
typedef struct sn_threads {
    int64_t n;
    void (*run)(struct sn_threads *self, void (*fn)(void *arg, int64_t tid, int64_t n), void *arg);
    void (*barrier)(struct sn_threads *self, int64_t tid);
    void *state;
} sn_threads;

enum { SN_MAX_THREADS = 1024 }; /* per session */

/* n OpenMP threads; n <= 0: OpenMP's default number. False: out of memory, more than
 * SN_MAX_THREADS, or more than the system can create. */
bool sn_threads_init(sn_threads *t, int n, sn_error *err);
void sn_threads_free(sn_threads *t);
/* Fills out[n] on OpenMP's threads with sn_rng_fill_uniform(r, a, b, …) or _normal: element i is sample
 * i of the stream. */
void sn_threads_fill(const sn_rng *r, void (*fill)(sn_rng *, float, float, float *, size_t),
                     float a, float b, float *out, int64_t n);
/* Call this first in main. Waiting threads of libgomp spin for about 15 ms by default; on a shared
 * machine they take time from the thread that they wait for (a run of 20 us took 20 ms). This
 * function limits it to about 0.2 ms: by libgomp's variable if libgomp is linked statically, else it
 * re-executes the program once, because libgomp reads its settings before main. It does nothing if
 * OMP_WAIT_POLICY or GOMP_SPINCOUNT is set, and with a shared libgomp in programs started as `ld.so
 * PROGRAM`. Child processes do not inherit the limit. Under tools that trace only one process
 * (valgrind without --trace-children=yes), set OMP_WAIT_POLICY. */
void sn_threads_limit_spinning(char **argv);
/* Sets the number of threads that OpenMP libraries called from this thread use; returns the
 * previous number. */
int sn_threads_default(int n);

/* The floating-point environment of kernels on every thread: round to nearest, no traps, subnormal
 * operands and results flushed to zero. MXCSR of x86-64 and FPCR of aarch64; unchanged on other
 * processors. Generated code sets it and restores the previous one. */
enum { SN_FP_MXCSR = 0x9fc0, SN_FP_FPCR = 1 << 24 };
/* The same for library functions that run on t's threads. sn_fp_enter sets the environment on all
 * of t's threads and saves the previous one in before, [t->n], initially zero; sn_fp_leave restores
 * it on those threads. */
void sn_fp_enter(sn_threads *t, uint64_t *before);
void sn_fp_leave(sn_threads *t, uint64_t *before);

/* The same for the calling thread. Returns the previous state, for sn_fp_restore. */
uint64_t sn_fp_set(void);
void sn_fp_restore(uint64_t before);

/* Profiling hooks. mark: called before (end = 0) and after (end = 1) each kernel, on each thread.
 * begin: called before each run, with the values of the symbolic dims. */
typedef struct sn_profile {
    void (*mark)(struct sn_profile *self, int64_t step, int64_t tid, int64_t end);
    void (*begin)(struct sn_profile *self, const int64_t *symbol);
} sn_profile;

/* The arguments of an entry. */
typedef struct sn_call {
    void *const
        *buffer; /* inputs, outputs, parameters, states: in the order of the entry's table */
    const int64_t *symbol; /* values of the symbolic dims */
    void *workspace;       /* aligned to 64; size: NAME_workspace(symbol, threads->n) */
    sn_threads *threads;
    sn_profile *profile; /* NULL: none */
    /* runs primitives that are not generated code, called with `host`; returns 0 or an error code */
    int32_t (*step)(void *host, int64_t step, void *const *buf, const int64_t *dim);
    void *host;
} sn_call;

#ifdef __cplusplus
}
#endif
#endif
