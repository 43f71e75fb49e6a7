/* bench_roofline.c: the machine's limits, each over interleaved rounds. */
#include "bench/benches.h"
#include "bench/probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_LIMITS = 32, MAX_ROUNDS = 101, PEAK_WORK = 1 /* GFLOP whose time a peak is shown as */ };

typedef struct limit {
    const char *name, *dtype;
    char shape[64];
    int kind, threads;  /* of a peak; kind -1: bandwidth */
    size_t read, write; /* bytes */
    double rate[MAX_ROUNDS], seconds[MAX_ROUNDS];
} limit;

static size_t cache_size(int name, size_t otherwise) {
    long n = sysconf(name);
    return n > 0 ? (size_t)n : otherwise;
}

static int list_limits(limit *l, int threads) {
    int n = 0;
    for (int kind = 0; sn_probe_peak_name(kind); kind++)
        for (int t = 1; t <= threads; t = t == 1 && threads > 1 ? threads : threads + 1) {
            l[n] = (limit){.name = "multiply-add peak",
                           .dtype = sn_probe_peak_name(kind),
                           .kind = kind,
                           .threads = t};
            snprintf(l[n++].shape, sizeof l->shape, "%d thread%s", t, t > 1 ? "s" : "");
        }
    size_t l2 = cache_size(_SC_LEVEL2_CACHE_SIZE, 1 << 20),
           l3 = cache_size(_SC_LEVEL3_CACHE_SIZE, 16 << 20);
    size_t private = l2 * (size_t)threads;
    const struct {
        const char *name;
        size_t bytes;
    } level[] = {
        {"L2", private / 2},
        {"L3", l3 / 4 > 2 * private ? l3 / 4 : 2 * private},
        {"memory", 4 * l3 > (size_t)1 << 30 ? 4 * l3 : (size_t)1 << 30},
    };
    for (int copy = 0; copy < 2; copy++)
        for (int i = 0; i < 3; i++) {
            size_t part = level[i].bytes / (copy ? 2 : 1) / 64 * 64;
            l[n] = (limit){.name = copy ? "copy" : "read",
                           .dtype = "f32",
                           .kind = -1,
                           .threads = threads,
                           .read = part,
                           .write = copy ? part : 0};
            snprintf(l[n++].shape, sizeof l->shape, "%s, %.4g MB", level[i].name,
                     (double)level[i].bytes / (1 << 20));
        }
    return n;
}

/* Repeats for at least the requested time; the first pass is not counted. */
static void time_limit(limit *l, int round, char *from, char *to, double seconds) {
    if (l->kind >= 0) {
        l->rate[round] = sn_probe_peak(l->kind, l->threads, seconds);
        l->seconds[round] = l->rate[round] > 0 ? PEAK_WORK / l->rate[round] : 0;
        return;
    }
    double once = sn_probe_stream(l->threads, from, l->read, to, l->write), sum = 0;
    int n = once < seconds ? (int)(seconds / once) + 1 : 1;
    for (int i = 0; i < n; i++) sum += sn_probe_stream(l->threads, from, l->read, to, l->write);
    l->seconds[round] = sum / n;
    l->rate[round] = (double)(l->read + l->write) / l->seconds[round] * 1e-9;
}

static bool add_limit(const limit *l, int rounds, sn_bench_report *out, sn_error *err) {
    double rate = sn_bench_median(l->rate, rounds);
    if (rate == 0) return true; /* this CPU has no instruction for it */
    sn_bench_record *x = sn_bench_add(out, err);
    if (!x) return false;
    snprintf(x->kind, sizeof x->kind, "roofline");
    snprintf(x->name, sizeof x->name, "%s", l->name);
    snprintf(x->shape, sizeof x->shape, "%s", l->shape);
    snprintf(x->dtype, sizeof x->dtype, "%s", l->dtype);
    snprintf(x->backend, sizeof x->backend, "probe");
    snprintf(x->bound, sizeof x->bound, "%s", l->kind < 0 ? "memory" : "compute");
    x->threads = l->threads;
    x->samples.n = rounds;
    for (int i = 0; i < rounds; i++) {
        x->samples.ms[i] = l->seconds[i] * 1e3;
        x->samples.switches[i] = x->samples.waited[i] = x->samples.cpu_ms[i] = NAN;
    }
    sn_bench_summarise(x);
    if (l->kind >= 0) {
        x->gflops = rate;
        x->flop = PEAK_WORK * 1e9;
        return true;
    }
    x->bytes = (double)(l->read + l->write);
    x->gbytes_s = rate;
    return true;
}

bool sn_bench_roofline(const sn_bench_options *o, sn_bench_report *out, sn_error *err) {
    limit *l = calloc(MAX_LIMITS, sizeof *l);
    int n = l ? list_limits(l, sn_bench_threads(o)) : 0;
    int rounds = o->rounds < MAX_ROUNDS ? o->rounds : MAX_ROUNDS;
    size_t max_bytes = 64;
    for (int i = 0; i < n; i++) max_bytes = l[i].read > max_bytes ? l[i].read : max_bytes;
    char *from = aligned_alloc(64, max_bytes), *to = aligned_alloc(64, max_bytes);
    bool ok = (l && from && to) ||
              sn_fail(err, SN_ERR_MEMORY, "out of memory: the probes need %zu MB", max_bytes >> 19);
    if (ok) memset(from, 0, max_bytes), memset(to, 0, max_bytes);
    for (int round = 0; ok && round < rounds; round++)
        for (int i = 0; i < n; i++) {
            sn_bench_progress(o, "roofline: round %d/%d, %s %s %s", round + 1, rounds, l[i].name,
                              l[i].dtype, l[i].shape);
            time_limit(&l[i], round, from, to, o->seconds);
        }
    sn_bench_progress_end(o);
    for (int i = 0; ok && i < n; i++) ok = add_limit(&l[i], rounds, out, err);
    free(from);
    free(to);
    free(l);
    return ok;
}
