/* counters.c: perf_event_open (Linux), one descriptor for each thread and counter. */
#include "bench/counters.h"

#include <errno.h>
#include <math.h>
#include <omp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined __linux__
#include <linux/perf_event.h>
#include <sys/syscall.h>

static const struct {
    uint32_t type;
    uint64_t event;
} events[SN_BENCH_COUNTERS] = {{PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
                               {PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
                               {PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES},
                               {PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS}};

/* Of the calling thread, without what the kernel does for it; -1: errno. */
static int open_event(int i) {
    struct perf_event_attr a = {.type = events[i].type,
                                .size = sizeof a,
                                .config = events[i].event,
                                .exclude_kernel = 1,
                                .exclude_hv = 1};
    return (int)syscall(SYS_perf_event_open, &a, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}
#else
static int open_event(int i) {
    (void)i;
    errno = ENOSYS;
    return -1;
}
#endif

const char *const sn_bench_counter_names[SN_BENCH_COUNTERS] = {"cycles", "instructions",
                                                               "cache_misses", "page_faults"};

struct sn_bench_counters {
    int threads;
    int fd[][SN_BENCH_COUNTERS]; /* [threads] */
};

sn_bench_counters *sn_bench_counters_open(int threads) {
    sn_bench_counters *c = malloc(sizeof *c + sizeof *c->fd * (size_t)threads);
    if (!c) return NULL;
    c->threads = threads;
    memset(c->fd, 0xff, sizeof *c->fd * (size_t)threads); /* -1 */
#pragma omp parallel num_threads(threads)
    for (int i = 0; i < SN_BENCH_COUNTERS; i++) c->fd[omp_get_thread_num()][i] = open_event(i);
    return c;
}

void sn_bench_counters_close(sn_bench_counters *c) {
    for (int t = 0; c && t < c->threads; t++)
        for (int i = 0; i < SN_BENCH_COUNTERS; i++)
            if (c->fd[t][i] >= 0) close(c->fd[t][i]);
    free(c);
}

void sn_bench_counters_read(const sn_bench_counters *c, double value[SN_BENCH_COUNTERS]) {
    for (int i = 0; i < SN_BENCH_COUNTERS; i++) value[i] = c ? 0 : NAN;
    for (int t = 0; c && t < c->threads; t++)
        for (int i = 0; i < SN_BENCH_COUNTERS; i++) {
            uint64_t n;
            bool known = c->fd[t][i] >= 0 && read(c->fd[t][i], &n, sizeof n) == sizeof n;
            value[i] = known ? value[i] + (double)n : NAN;
        }
}

const char *sn_bench_counters_missing(void) {
    int fd = open_event(0);
    if (fd < 0) return strerror(errno);
    close(fd);
    return "";
}
