/* measure.c: interleaved rounds of entrants and probes, and statistics over them. */
#include "bench/measure.h"
#include "bench/noise.h"
#include "bench/probe.h"
#include "runtime/clock.h"
#include "runtime/memory.h"

#include <math.h>
#include <omp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_REPEATS = 100000 };

/* Seconds of a probe of the FMA peak. */
static const double PROBE = 0.025;

/* The streaming probe is used if streaming takes more than STREAM_MIN_RATIO of the compute time. It
 * streams at most STREAM_MAX_BYTES bytes. */
static const double STREAM_MIN_RATIO = 0.1, STREAM_MAX_BYTES = 1 << 30;

/* Seconds for which rounds are added. */
static const double MORE_ROUNDS = 10;

/* Seconds of a run that needs no untimed one before it. */
static const double LONG_RUN = 0.1;

/* An entrant's memory is used by the streaming probe if it is at least this fraction of the work's
 * bytes. */
static const double MIN_OWN_FRACTION = 0.9;

/* ---- lists ---- */

sn_bench_record *sn_bench_add(sn_bench_report *r, sn_error *err) {
    if (r->n == r->cap) {
        int cap = r->cap ? 2 * r->cap : 32;
        sn_bench_record *list = realloc(r->list, sizeof *list * (size_t)cap);
        if (!list) {
            sn_fail(err, SN_ERR_MEMORY, "out of memory");
            return NULL;
        }
        r->list = list;
        r->cap = cap;
    }
    sn_bench_record *x = &r->list[r->n++];
    *x = (sn_bench_record){.level = -1};
    for (int i = 0; i < SN_BENCH_NUMBERS; i++)
        *sn_bench_number_at(x, &sn_bench_numbers_of[i]) = NAN;
    return x;
}

void sn_bench_note(sn_bench_report *r, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (int i = 0; i < r->n_note; i++)
        if (!strcmp(r->note[i], text)) return;
    char **list = realloc(r->note, sizeof *list * (size_t)(r->n_note + 1));
    if (!list) return;
    r->note = list;
    list[r->n_note] = strdup(text);
    if (list[r->n_note]) r->n_note++;
}

void sn_bench_report_free(sn_bench_report *r) {
    for (int i = 0; i < r->n_note; i++) free(r->note[i]);
    free(r->note);
    free(r->list);
    free(r->probe);
    *r = (sn_bench_report){0};
}

int sn_bench_threads(const sn_bench_options *o) {
    return o->threads > 0 ? o->threads : omp_get_max_threads();
}

bool sn_bench_listed(const char *list, const char *name) {
    size_t n = strlen(name);
    for (const char *p = list ? list : ""; *p;) {
        size_t len = strcspn(p, ",");
        if (len == n && !strncmp(p, name, n)) return true;
        p += len + (p[len] == ',');
    }
    return false;
}

bool sn_bench_only_counts(const sn_bench_options *o) {
    if (!o->total || !o->total->counting) return false;
    o->total->works++;
    return true;
}

/* "2 of 12, 40 s left: " */
static void print_total(const sn_bench_options *o, double now) {
    const sn_bench_total *t = o->total;
    if (!t || t->works < 2) return;
    fprintf(o->progress, "%d of %d", t->done + 1, t->works);
    if (t->done)
        fprintf(o->progress, ", %.0f s left", (now - t->begin) / t->done * (t->works - t->done));
    fputs(": ", o->progress);
}

/* Updates in place on a terminal; elsewhere prints a line every ten seconds. */
void sn_bench_progress(const sn_bench_options *o, const char *fmt, ...) {
    if (!o->progress || !o->shown) return;
    bool terminal = isatty(fileno(o->progress));
    double now = sn_clock();
    if (!terminal && now - *o->shown < 10) return;
    *o->shown = now;
    va_list ap;
    va_start(ap, fmt);
    if (terminal) fputs("\r\033[K", o->progress);
    print_total(o, now);
    vfprintf(o->progress, fmt, ap);
    if (!terminal) fputc('\n', o->progress);
    va_end(ap);
    fflush(o->progress);
}

void sn_bench_progress_end(const sn_bench_options *o) {
    if (o->progress && isatty(fileno(o->progress))) fputs("\r\033[K", o->progress);
}

/* ---- the streaming probe ---- */

/* Streams an entrant's own memory, or buffers of the same size, so that they sit in the same
 * caches. */
typedef struct stream {
    sn_probe_block *block; /* the entrant's */
    int n_block;
    char *src, *dst;
    size_t n_read, n_write;
    double scale; /* bytes of the work / bytes streamed */
} stream;

static void stream_free(stream *s) {
    free(s->block);
    free(s->src);
    free(s->dst);
    *s = (stream){0};
}

/* Leaves the list empty if the entrant's memory is unknown or too small a part of what is read. */
static bool stream_private(stream *s, const sn_bench_work *w, const sn_bench_entrant *e,
                           sn_error *err) {
    double bytes = 0, total = (w->read + w->write) * w->runs;
    *s = (stream){0};
    s->n_block = e->memory ? e->memory(e->ctx, &s->block) : 0;
    if (s->n_block < 0) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (int i = 0; i < s->n_block; i++) bytes += (double)s->block[i].bytes;
    if (bytes < MIN_OWN_FRACTION * total) stream_free(s);
    s->scale = s->n_block ? total / bytes : 1;
    return true;
}

static bool stream_init(stream *s, const sn_bench_work *w, sn_error *err) {
    double total = (w->read + w->write) * w->runs;
    *s = (stream){.scale = total > STREAM_MAX_BYTES ? total / STREAM_MAX_BYTES : 1};
    s->n_read = (size_t)(w->read * w->runs / s->scale) / 64 * 64;
    s->n_write = (size_t)(w->write * w->runs / s->scale) / 64 * 64;
    s->src = sn_memory_alloc(s->n_read + 64); /* in huge pages, like the memory of the work */
    s->dst = sn_memory_alloc(s->n_write + 64);
    if (!s->src || !s->dst) {
        stream_free(s);
        return sn_fail(err, SN_ERR_MEMORY, "out of memory: the bandwidth probe needs %zu MB",
                       (s->n_read + s->n_write) >> 20);
    }
    memset(s->src, 0, s->n_read + 64);
    memset(s->dst, 0, s->n_write + 64);
    return true;
}

static double stream_once(const stream *s, int threads) {
    if (s->n_block) return sn_probe_blocks(threads, s->block, s->n_block);
    return sn_probe_stream(threads, s->src, s->n_read, s->dst, s->n_write);
}

/* Seconds to stream the work's bytes, not counting the first pass, as for the entrants. */
static double stream_time(const stream *s, int threads, double seconds) {
    double once = stream_once(s, threads), sum = 0;
    int n = once * 3 > seconds ? 2 : (int)(seconds / once);
    for (int i = 0; i < n; i++) sum += stream_once(s, threads);
    return sum / n * s->scale;
}

/* The streams of n entrants: each its own, or the shared one at the end of the list. None if the
 * work's arithmetic takes far longer than streaming. */
static bool streams_init(stream *list, int n, const sn_bench_work *w, const sn_bench_entrant *e,
                         const sn_bench_options *o, sn_error *err) {
    int threads = sn_bench_threads(o), n_private = 0;
    double least = STREAM_MIN_RATIO * w->runs * w->flop / (sn_probe_fma_peak(threads, PROBE) * 1e9);
    if (w->read + w->write <= 0) return true;
    for (int i = 0; i < n; i++) {
        if (!stream_private(&list[i], w, &e[i], err)) return false;
        if (list[i].n_block && stream_time(&list[i], threads, 0) <= least) stream_free(&list[i]);
        n_private += list[i].n_block > 0;
    }
    if (n_private == n) return true;
    if (!stream_init(&list[n], w, err)) return false;
    if (stream_time(&list[n], threads, 0) <= least) stream_free(&list[n]);
    return true;
}

/* ---- the FMA peak ---- */

/* Updates *best if the rate is higher. */
static double probe_peak(int threads, double *best) {
    double rate = sn_probe_fma_peak(threads, PROBE);
    *best = fmax(*best, rate);
    return rate;
}

static bool keep_look(sn_bench_report *r, double rate, sn_error *err) {
    if (r->n_probe == r->cap_probe) {
        int cap = r->cap_probe ? 2 * r->cap_probe : 64;
        double *list = realloc(r->probe, sizeof *list * (size_t)cap);
        if (!list) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
        r->probe = list;
        r->cap_probe = cap;
    }
    r->probe[r->n_probe++] = rate;
    return true;
}

/* The run's peak so far, and the share of it for every record. */
static void rate_by_run(sn_bench_report *r) {
    if (!r->n_probe) return;
    qsort(r->probe, (size_t)r->n_probe, sizeof *r->probe, sn_bench_ascending);
    double limit = r->probe[(int)(r->n_probe * 0.9)];
    for (int i = 0; i < r->n; i++) {
        sn_bench_record *x = &r->list[i];
        if (isnan(x->peak_gflops) || strcmp(x->bound, "compute") != 0) continue;
        x->run_peak_gflops = limit;
        x->pct_run_peak = 100 * x->gflops / limit;
    }
}

/* ---- rounds ---- */

typedef struct rounds {
    int n;
    sn_bench_samples *of; /* [entrants + 1]: the last is one of them again */
    double *stream; /* [entrants + 1][SN_BENCH_ROUNDS] seconds, the shortest; 0: not measured */
    double peak[SN_BENCH_ROUNDS];                          /* the highest of the round's probes */
    double (*counter)[SN_BENCH_COUNTERS][SN_BENCH_ROUNDS]; /* [entrants + 1] */
    double *runs;                                          /* [entrants + 1] of a round */
    sn_bench_counters *counters;
    bool *failed; /* [entrants + 1] */
} rounds;

static bool time_entrant(sn_bench_entrant *e, int repeats, double *seconds, bool *failed,
                         sn_bench_report *out, sn_error *err) {
    sn_error local = {0};
    if (e->time(e->ctx, repeats, seconds, &local)) return true;
    *failed = true;
    if (e->level >= 0) return sn_fail(err, local.code, "%s", local.message);
    sn_bench_note(out, "%s: %s", e->backend, local.message);
    return true;
}

/* Writes "native level 4", or a peer's name, to `name` and returns it. */
static const char *entrant_name(const sn_bench_entrant *e, char name[64]) {
    if (e->level < 0)
        snprintf(name, 64, "%s", e->backend);
    else
        snprintf(name, 64, "%s level %d", e->backend, e->level);
    return name;
}

/* Memory whose writing puts everything else out of the caches. */
typedef struct flusher {
    char *memory;
    size_t bytes;
} flusher;

static bool flusher_init(flusher *f, sn_error *err) {
    static const long more = 64 << 20, largest = 1 << 30;
    long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE) + more;
    f->bytes = (size_t)(bytes < more ? more : bytes > largest ? largest : bytes);
    f->memory = sn_memory_alloc(f->bytes);
    return f->memory ||
           sn_fail(err, SN_ERR_MEMORY, "out of memory: --cold needs %zu MB", f->bytes >> 20);
}

static void flush_caches(const flusher *f, int threads) {
    if (f->memory) sn_probe_stream(threads, NULL, 0, f->memory, f->bytes);
}

/* Seconds to stream in the state in which the entrants begin. */
static double stream_beside(const stream *s, const flusher *f, int threads, double seconds) {
    flush_caches(f, threads);
    return f->memory ? stream_once(s, threads) * s->scale : stream_time(s, threads, seconds);
}

/* How many runs make a sample; 0: one without another before it. */
static bool calibrate(const sn_bench_options *o, const sn_bench_work *w, sn_bench_entrant *e,
                      int *repeats, bool *failed, sn_bench_report *out, sn_error *err) {
    double once = 0, again = 0;
    char name[64];
    sn_bench_progress(o, "%s %s %s: %s: first run", w->kind, w->name, w->shape,
                      entrant_name(e, name));
    bool ok = time_entrant(e, 1, &once, failed, out, err);
    for (int k = 0; k < 3 && ok && !*failed && once < o->seconds; k++) {
        ok = time_entrant(e, 1, &again, failed, out, err);
        once = fmin(once, again);
    }
    double want = once > 0 ? o->seconds / once : MAX_REPEATS;
    *repeats = want < 1 ? 1 : want > MAX_REPEATS ? MAX_REPEATS : (int)want;
    if (o->cold || once > LONG_RUN) *repeats = 0;
    return ok;
}

/* Sample k of entrant i. */
static bool take_sample(sn_bench_entrant *e, int repeats, int k, int i, int threads, rounds *r,
                        sn_bench_report *out, sn_error *err) {
    double seconds = 0, first[SN_BENCH_COUNTERS], last[SN_BENCH_COUNTERS];
    sn_bench_samples *s = &r->of[i];
    sn_bench_usage before = sn_bench_usage_of(e->pid);
    sn_bench_counters_read(e->pid ? NULL : r->counters, first);
    bool ok = time_entrant(e, repeats, &seconds, &r->failed[i], out, err);
    sn_bench_counters_read(e->pid ? NULL : r->counters, last);
    for (int c = 0; c < SN_BENCH_COUNTERS; c++) r->counter[i][c][k] = last[c] - first[c];
    r->runs[i] = repeats + 1; /* with the untimed run */
    sn_bench_usage after = sn_bench_usage_of(e->pid);
    double cpu = after.cpu - before.cpu, waited = after.waited - before.waited;
    s->n = k + 1;
    s->ms[k] = seconds * 1e3;
    s->cpu_ms[k] = cpu * 1e3 / (repeats + 1);
    s->switches[k] = after.switches - before.switches;
    s->waited[k] = cpu + waited > 0 ? 100 * threads * waited / (cpu + waited) : NAN;
    return ok;
}

/* Round k: every entrant in turn, beginning with another one each time, with probes between them. */
static bool run_round(const sn_bench_options *o, const sn_bench_work *w, sn_bench_entrant *e, int n,
                      const int *repeats, const stream *s, const flusher *f, int k, rounds *r,
                      sn_bench_report *out, sn_error *err) {
    const stream *common = s + n;
    int threads = sn_bench_threads(o);
    double of_all = 0, before = probe_peak(threads, &r->peak[k]);
    char name[64];
    bool ok = true;
    if (common->src) of_all = stream_beside(common, f, threads, o->seconds);
    for (int j = 0; j < n && ok; j++) {
        int i = (j + k) % n, at = i * SN_BENCH_ROUNDS + k;
        if (r->failed[i]) continue;
        sn_bench_progress(o, "%s %s %s: round %d/%d, %s", w->kind, w->name, w->shape, k + 1, r->n,
                          entrant_name(&e[i], name));
        if (s[i].n_block) r->stream[at] = stream_beside(&s[i], f, threads, o->seconds);
        flush_caches(f, threads);
        ok = take_sample(&e[i], repeats[i], k, i, threads, r, out, err);
        if (s[i].n_block)
            r->stream[at] = fmin(r->stream[at], stream_beside(&s[i], f, threads, o->seconds));
        double after = probe_peak(threads, &r->peak[k]);
        ok = ok && keep_look(out, (before + after) / 2, err);
        before = after;
    }
    if (common->src) of_all = fmin(of_all, stream_beside(common, f, threads, o->seconds));
    for (int i = 0; i < n; i++)
        if (!s[i].n_block) r->stream[i * SN_BENCH_ROUNDS + k] = of_all;
    return ok;
}

/* Whether enough rounds count for all of n entrants. */
static bool enough(rounds *r, int n) {
    int done = 0;
    for (int i = 0; i < n; i++)
        if (!r->failed[i]) sn_bench_find_warm_up(&r->of[i]), done = r->of[i].n;
    int counted = 0;
    for (int k = 0; k < done; k++) {
        bool all = true;
        for (int i = 0; i < n; i++) all = all && (r->failed[i] || sn_bench_counts(&r->of[i], k));
        counted += all;
    }
    return counted >= SN_BENCH_ENOUGH;
}

static bool run_rounds(const sn_bench_options *o, const sn_bench_work *w, sn_bench_entrant *e,
                       int n, rounds *r, sn_bench_report *out, sn_error *err) {
    int *repeats = calloc((size_t)n + 1, sizeof *repeats);
    stream *s = calloc((size_t)n + 1, sizeof *s);
    flusher f = {0};
    bool ok = (repeats && s) || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    ok = ok && (!o->cold || flusher_init(&f, err));
    for (int i = 0; i < n && ok; i++)
        ok = calibrate(o, w, &e[i], &repeats[i], &r->failed[i], out, err);
    ok = ok && streams_init(s, n, w, e, o, err);
    const int most = 2 * r->n < SN_BENCH_ROUNDS ? 2 * r->n : SN_BENCH_ROUNDS;
    double until = INFINITY;
    for (int k = 0; ok && k < most && sn_clock() < until && (k < r->n || !enough(r, n)); k++) {
        if (k == r->n) until = sn_clock() + MORE_ROUNDS;
        ok = o->stop && o->stop() ? sn_fail(err, SN_ERR_USAGE, "interrupted")
                                  : run_round(o, w, e, n, repeats, s, &f, k, r, out, err);
    }
    sn_bench_progress_end(o);
    for (int i = 0; s && i <= n; i++) stream_free(&s[i]);
    free(f.memory);
    free(s);
    free(repeats);
    return ok;
}

/* How many times entrant i is as fast as entrant `base`: a median over rounds. NAN: there is none. */
static double speedup(const rounds *r, int base, int i) {
    sn_bench_numbers gain;
    if (base < 0 || !sn_bench_ratios(&r->of[base], &r->of[i], &gain)) return NAN;
    return sn_bench_median(gain.x, gain.n);
}

static const char *type_of(const sn_bench_work *w, const sn_bench_entrant *e) {
    return e->dtype ? e->dtype : e->level >= 0 ? w->dtype : "f32";
}

void sn_bench_summarise(sn_bench_record *x) {
    const sn_bench_samples *s = &x->samples;
    double t[SN_BENCH_SAMPLES];
    sn_bench_numbers counted;
    sn_bench_times(s, &counted);
    sn_bench_interval i = sn_bench_estimate(&counted, NULL);
    x->ms_median = i.middle, x->ms_low = i.low, x->ms_high = i.high;
    x->ms_min = x->ms_max = counted.x[0];
    for (int k = 1; k < counted.n; k++) {
        x->ms_min = fmin(x->ms_min, counted.x[k]);
        x->ms_max = fmax(x->ms_max, counted.x[k]);
    }
    x->floor_pct = sn_bench_floor(s, &x->again);
    if (s->warm_up) x->warm_up = s->warm_up;
    if (isnan(s->switches[0])) return;
    x->preempted = x->switches = 0;
    for (int k = 0; k < s->n; k++) {
        x->preempted += sn_bench_preempted(s, k);
        x->switches += s->switches[k];
    }
    x->cpu_ms = sn_bench_median(t, sn_bench_pick(s->cpu_ms, &counted, t));
}

/* The samples of processes that ran on a busy machine do not count. */
static void skip_busy(const sn_bench_report *r, sn_bench_samples *s) {
    for (int k = 0, p; k < s->n; k++) {
        p = (int)s->process[k];
        s->skipped[k] |= p >= 0 && p < r->n_process && sn_bench_busy(r->busy[p], 0);
    }
}

void sn_bench_finish(sn_bench_report *r) {
    for (int i = 0; i < r->n; i++) {
        sn_bench_samples *of[] = {&r->list[i].samples, &r->list[i].again};
        for (int j = 0; j < 2; j++) {
            of[j]->processes = r->n_process;
            sn_bench_find_warm_up(of[j]);
            skip_busy(r, of[j]);
        }
        if (of[0]->n) sn_bench_summarise(&r->list[i]);
    }
}

/* The limits beside entrant i, its share of them, and its counters, of the rounds that count. */
static void fill_limits(sn_bench_record *x, const sn_bench_work *w, int i, const rounds *r) {
    const double *stream = r->stream + i * SN_BENCH_ROUNDS;
    double share[SN_BENCH_ROUNDS], rate[SN_BENCH_ROUNDS], peak[SN_BENCH_ROUNDS];
    sn_bench_numbers counted;
    sn_bench_times(&x->samples, &counted);
    int n = counted.n, by_memory = 0;
    for (int k = 0; k < n; k++) {
        peak[k] = r->peak[counted.round[k]];
        double compute = w->flop / (peak[k] * 1e9), streamed = stream[counted.round[k]];
        by_memory += streamed > compute;
        share[k] = 100 * fmax(compute, streamed) / (counted.x[k] * 1e-3);
        rate[k] = streamed > 0 ? (w->read + w->write) / streamed * 1e-9 : NAN;
    }
    x->peak_gflops = sn_bench_median(peak, n);
    if (!isnan(rate[0])) x->stream_gbytes_s = sn_bench_median(rate, n);
    x->pct_roofline = sn_bench_median(share, n);
    snprintf(x->bound, sizeof x->bound, "%s", 2 * by_memory > n ? "memory" : "compute");
    for (int c = 0; c < SN_BENCH_COUNTERS; c++) {
        double sum = 0;
        for (int k = 0; k < n; k++) sum += r->counter[i][c][counted.round[k]];
        x->counter[c] = sum / (n * r->runs[i] * w->runs);
    }
}

static void fill_record(sn_bench_record *x, const sn_bench_options *o, const sn_bench_work *w,
                        const sn_bench_entrant *e) {
    snprintf(x->kind, sizeof x->kind, "%s", w->kind);
    snprintf(x->name, sizeof x->name, "%s", w->name);
    snprintf(x->shape, sizeof x->shape, "%s", w->shape);
    snprintf(x->backend, sizeof x->backend, "%s", e->backend);
    snprintf(x->dtype, sizeof x->dtype, "%s", type_of(w, e));
    snprintf(x->setup, sizeof x->setup, "%s", e->setup);
    snprintf(x->choice, sizeof x->choice, "%s", e->choice);
    snprintf(x->checked, sizeof x->checked, "%s", e->checked);
    x->level = e->level;
    x->unfused = e->unfused;
    x->threads = sn_bench_threads(o);
    x->flop = w->flop;
    x->bytes = w->read + w->write;
    if (e->traffic > 0) x->traffic = e->traffic;
    x->gflops = w->flop / x->ms_median * 1e-6;
    x->gbytes_s = x->bytes / x->ms_median * 1e-6;
    x->rel_rms = e->rel_rms;
    x->max_ulp = e->max_ulp;
    x->max_rel = e->max_rel;
    x->compile_ms = e->level >= 0 ? e->compile_ms : NAN;
    if (e->workspace) x->peak_bytes = (double)e->workspace(e->ctx);
    if (w->tokens > 0) x->tokens_s = w->tokens / x->ms_median * 1e3;
}

/* Index of the same level in f32; -1: none, or i computes in f32 itself. */
static int find_f32(const sn_bench_work *w, const sn_bench_entrant *e, int n, int i) {
    for (int j = 0; j < n; j++)
        if (e[i].level >= 0 && e[j].level == e[i].level && strcmp(type_of(w, &e[i]), "f32") != 0 &&
            !strcmp(type_of(w, &e[j]), "f32"))
            return j;
    return -1;
}

/* Index of level 0 of the same back end; for peers, of the first back end that has it. -1: none. */
static int find_level0(const sn_bench_entrant *e, int n, int i) {
    for (int j = 0; j < n; j++)
        if (e[j].level == 0 && (e[i].level < 0 || !strcmp(e[i].backend, e[j].backend))) return j;
    return -1;
}

/* Index of the entrant that is timed twice: the first of the highest level. -1: only peers. */
static int find_twin(const sn_bench_entrant *e, int n) {
    int best = -1;
    for (int i = 0; i < n; i++)
        if (e[i].level >= 0 && (best < 0 || e[i].level > e[best].level)) best = i;
    return best;
}

/* Adds the records of n entrants; `twin` was timed again as entrant n. */
static bool add_records(const sn_bench_options *o, const sn_bench_work *w,
                        const sn_bench_entrant *e, int n, int twin, rounds *r, sn_bench_report *out,
                        sn_error *err) {
    const int measurement = out->n ? out->list[out->n - 1].measurement + 1 : 1;
    for (int i = 0; i < n + (twin >= 0); i++) {
        sn_bench_samples *s = &r->of[i];
        for (int k = 0; k < s->n; k++) s->ms[k] /= w->runs, s->cpu_ms[k] /= w->runs;
        for (int k = 0; k < s->n; k++) r->stream[i * SN_BENCH_ROUNDS + k] /= w->runs;
        sn_bench_find_warm_up(s);
    }
    for (int i = 0; i < n; i++) {
        if (r->failed[i]) continue;
        sn_bench_record *x = sn_bench_add(out, err);
        if (!x) return false;
        x->samples = r->of[i];
        if (i == twin) x->again = r->of[n];
        sn_bench_summarise(x);
        fill_record(x, o, w, &e[i]);
        fill_limits(x, w, i, r);
        x->measurement = measurement;
        x->speedup_vs_level0 = speedup(r, find_level0(e, n, i), i);
        x->speedup_vs_f32 = speedup(r, find_f32(w, e, n, i), i);
    }
    return true;
}

bool sn_bench_measure(const sn_bench_options *o, const sn_bench_work *w, const sn_bench_entrant *e,
                      int n, sn_bench_report *out, sn_error *err) {
    rounds r = {.n = o->rounds < SN_BENCH_ROUNDS ? o->rounds : SN_BENCH_ROUNDS};
    size_t all = (size_t)n + 1;
    sn_bench_entrant *list = calloc(all, sizeof *list);
    int twin = find_twin(e, n);
    r.of = calloc(all, sizeof *r.of);
    r.stream = calloc(all * SN_BENCH_ROUNDS, sizeof *r.stream);
    r.failed = calloc(all, sizeof *r.failed);
    r.counter = calloc(all, sizeof *r.counter);
    r.runs = calloc(all, sizeof *r.runs);
    r.counters = sn_bench_counters_open(sn_bench_threads(o));
    bool ok = (list && r.of && r.stream && r.failed && r.counter && r.runs && r.counters) ||
              sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (ok && n) memcpy(list, e, sizeof *e * (size_t)n);
    if (ok && twin >= 0) list[n] = e[twin];
    int before = omp_get_max_threads();
    omp_set_num_threads(sn_bench_threads(o)); /* oneDNN uses omp_get_max_threads */
    ok = ok && run_rounds(o, w, list, n + (twin >= 0), &r, out, err);
    omp_set_num_threads(before);
    ok = ok && add_records(o, w, e, n, twin, &r, out, err);
    rate_by_run(out);
    sn_bench_counters_close(r.counters);
    free(r.counter);
    free(r.runs);
    free(list);
    free(r.of);
    free(r.stream);
    free(r.failed);
    return ok;
}
