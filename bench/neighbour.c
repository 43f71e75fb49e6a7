/* neighbour.c: threads that read and write memory line by line until they are stopped. */
#include "bench/neighbour.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { MAX_THREADS = 64, BYTES = 256 << 20, LINE = 64, STRETCH = 1 << 16 };

typedef struct walker {
    sn_bench_neighbour *of;
    pthread_t thread;
    char *memory;
    double bytes;
} walker;

struct sn_bench_neighbour {
    atomic_bool stop;
    int n;
    walker walker[MAX_THREADS];
};

static void *walk(void *ctx) {
    walker *w = ctx;
    for (size_t at = 0; !atomic_load(&w->of->stop); at = (at + STRETCH) % BYTES) {
        volatile char *p = w->memory + at;
        for (size_t i = 0; i < STRETCH; i += LINE) p[i] = (char)(p[i] + 1);
        w->bytes += 2.0 * STRETCH;
    }
    return NULL;
}

sn_bench_neighbour *sn_bench_neighbour_start(int threads, sn_error *err) {
    sn_bench_neighbour *n = calloc(1, sizeof *n);
    if (!n || threads < 1 || threads > MAX_THREADS) {
        sn_fail(err, n ? SN_ERR_USAGE : SN_ERR_MEMORY,
                n ? "a neighbour has 1 to %d threads" : "out of memory for a neighbour",
                MAX_THREADS);
        free(n);
        return NULL;
    }
    for (; n->n < threads; n->n++) {
        walker *w = &n->walker[n->n];
        w->of = n;
        w->memory = calloc(1, BYTES);
        if (w->memory && !pthread_create(&w->thread, NULL, walk, w)) continue;
        free(w->memory);
        sn_bench_neighbour_stop(n);
        sn_fail(err, SN_ERR_MEMORY, "no memory for %d threads that walk through %d MB", threads,
                BYTES >> 20);
        return NULL;
    }
    return n;
}

double sn_bench_neighbour_stop(sn_bench_neighbour *n) {
    double bytes = 0;
    if (!n) return 0;
    atomic_store(&n->stop, true);
    for (int i = 0; i < n->n; i++) {
        pthread_join(n->walker[i].thread, NULL);
        bytes += n->walker[i].bytes;
        free(n->walker[i].memory);
    }
    free(n);
    return bytes;
}
