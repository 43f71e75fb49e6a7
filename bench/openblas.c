/* openblas.c: OpenBLAS as a peer for matrix products, loaded at run time so that it is not a
 * dependency. */
#include "bench/peers.h"
#include "bench/probe.h"
#include "runtime/clock.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void sgemm_fn(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a,
                      int lda, const float *b, int ldb, float beta, float *c, int ldc);
enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };

struct sn_bench_openblas {
    void *lib;
    sgemm_fn *sgemm;
    int64_t m, n, k, copies;
    float *x, *w, *y;
};

/* The OpenMP build first: it shares threads with everything else here. */
static const char *const places[] = {
    "/usr/lib/x86_64-linux-gnu/openblas-openmp/libopenblas.so.0",
    "/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0",
    "libopenblas.so.0",
};

static void *symbol_of(void *lib, const char *name, void *f) {
    void *p = dlsym(lib, name);
    memcpy(f, &p, sizeof p);
    return p;
}

sn_bench_openblas *sn_bench_openblas_open(int threads, char setup[SN_BENCH_SETUP], sn_error *err) {
    sn_bench_openblas *b = calloc(1, sizeof *b);
    if (!b) {
        sn_fail(err, SN_ERR_MEMORY, "out of memory");
        return NULL;
    }
    for (size_t i = 0; i < sizeof places / sizeof *places && !b->lib; i++)
        b->lib = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
    char *(*config)(void) = NULL, *(*core)(void) = NULL;
    void (*set_threads)(int) = NULL;
    if (!b->lib || !symbol_of(b->lib, "cblas_sgemm", &b->sgemm)) {
        sn_fail(err, SN_ERR_FILE, "libopenblas.so.0 is not installed");
        sn_bench_openblas_close(b);
        return NULL;
    }
    if (symbol_of(b->lib, "openblas_set_num_threads", &set_threads)) set_threads(threads);
    symbol_of(b->lib, "openblas_get_config", &config);
    symbol_of(b->lib, "openblas_get_corename", &core);
    snprintf(setup, SN_BENCH_SETUP, "%s, core %s, weights as [N, K]",
             config ? config() : "OpenBLAS", core ? core() : "unknown");
    return b;
}

/* ---- the fastest kernels ---- */

static const char variable[] = "OPENBLAS_CORETYPE";

/* In a process of its own, since OpenBLAS chooses when it is loaded: the least seconds of a product. */
static double time_core(const char *core) {
    enum { SIZE = 512, LEAST = 3 };
    int end[2];
    double best = INFINITY, seconds;
    if (pipe(end)) return INFINITY;
    pid_t pid = fork();
    if (pid == 0) {
        char setup[SN_BENCH_SETUP];
        sn_error err = {0};
        unsetenv("OPENBLAS_L2_SIZE");
        if (core)
            setenv(variable, core, 1);
        else
            unsetenv(variable);
        sn_bench_openblas *b = sn_bench_openblas_open(1, setup, &err);
        double begin = sn_clock();
        for (int i = 0; b && (i < LEAST || sn_clock() - begin < 0.05); i++)
            if (sn_bench_openblas_time(b, SIZE, SIZE, SIZE, 1, 1, &seconds, &err))
                best = fmin(best, seconds);
        _exit(write(end[1], &best, sizeof best) != sizeof best);
    }
    close(end[1]);
    if (pid < 0 || read(end[0], &best, sizeof best) != sizeof best) best = INFINITY;
    close(end[0]);
    if (pid > 0) waitpid(pid, NULL, 0);
    return best;
}

const char *sn_bench_openblas_core(void) {
    enum { REPEATS = 3, CORES = 5 };
    static char given[32];
    const char *environment = getenv(variable), *core[CORES] = {NULL};
    double least[CORES];
    int n = 1, best = 0; /* the first is OpenBLAS's own choice */
    snprintf(given, sizeof given, "%s", environment ? environment : "");
    if (*given) core[n++] = given;
#if defined __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) core[n++] = "Haswell";
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        core[n++] = "SkylakeX";
    if (__builtin_cpu_supports("avx512bf16")) core[n++] = "Cooperlake";
#endif
    for (int i = 0; i < n; i++) least[i] = INFINITY;
    for (int repeat = 0; repeat < REPEATS; repeat++)
        for (int i = 0; i < n; i++) least[i] = fmin(least[i], time_core(core[i]));
    for (int i = 1; i < n; i++)
        if (least[i] < least[best]) best = i;
    if (!isfinite(least[best])) return "";
    return core[best];
}

static void free_data(sn_bench_openblas *b) {
    free(b->x);
    free(b->w);
    free(b->y);
    b->x = b->w = b->y = NULL;
}

/* The library stays loaded: its threads do not survive unloading. */
void sn_bench_openblas_close(sn_bench_openblas *b) {
    if (!b) return;
    free_data(b);
    free(b);
}

static float *ones_and_more(int64_t n) {
    float *p = aligned_alloc(64, ((size_t)n * sizeof *p + 63) / 64 * 64);
    for (int64_t i = 0; p && i < n; i++) p[i] = (float)(i * 7919 % 1000) / 1000 - 0.5f;
    return p;
}

bool sn_bench_openblas_time(sn_bench_openblas *b, int64_t m, int64_t n, int64_t k, int64_t copies,
                            int repeats, double *seconds, sn_error *err) {
    if (m != b->m || n != b->n || k != b->k || copies != b->copies) {
        free_data(b);
        b->x = ones_and_more(m * k);
        b->w = ones_and_more(n * k * copies);
        b->y = ones_and_more(m * n);
        b->m = m, b->n = n, b->k = k, b->copies = copies;
    }
    if (!b->x || !b->w || !b->y) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    double start = 0;
    int runs = repeats ? repeats : 1;
    for (int i = repeats ? -1 : 0; i < runs; i++) {
        if (i == 0) start = sn_clock();
        for (int64_t j = 0; j < copies; j++)
            b->sgemm(ROW_MAJOR, NO_TRANS, TRANS, (int)m, (int)n, (int)k, 1, b->x, (int)k,
                     b->w + j * n * k, (int)k, 0, b->y, (int)n);
    }
    *seconds = (sn_clock() - start) / runs;
    return true;
}
