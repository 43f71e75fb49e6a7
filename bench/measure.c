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

enum { MAX_ROUNDS = SN_BENCH_ROUNDS, MAX_REPEATS = 100000 };

/* Seconds of a probe of the FMA peak. */
static const double PROBE = 0.025;

/* The streaming probe is used if streaming takes more than STREAM_MIN_RATIO of the compute time. It
 * streams at most STREAM_MAX_BYTES bytes. */
static const double STREAM_MIN_RATIO = 0.1, STREAM_MAX_BYTES = 1 << 30;

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
    double *const numbers[] = {
        &x->ms_median,      &x->ms_min,
        &x->ms_max,         &x->flop,
        &x->bytes,          &x->traffic,
        &x->gflops,         &x->gbytes_s,
        &x->peak_gflops,    &x->stream_gbytes_s,
        &x->pct_roofline,   &x->run_peak_gflops,
        &x->pct_run_peak,   &x->speedup_vs_level0,
        &x->rel_rms,        &x->max_ulp,
        &x->max_rel,        &x->peak_bytes,
        &x->compile_ms,     &x->tokens_s,
        &x->cpu_ms,         &x->preempted,
        &x->speedup_vs_f32,
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) *numbers[i] = NAN;
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

int sn_bench_ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double sn_bench_median(const double *x, int n) {
    double sorted[MAX_ROUNDS];
    memcpy(sorted, x, sizeof *x * (size_t)n);
    qsort(sorted, (size_t)n, sizeof *sorted, sn_bench_ascending);
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
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
    double *time;            /* [entrants][MAX_ROUNDS] */
    double *cpu;             /* [entrants][MAX_ROUNDS] CPU seconds of a run */
    int *preempted;          /* [entrants] rounds in which a thread lost its CPU */
    double *stream;          /* [entrants][MAX_ROUNDS] seconds, the shortest; 0: not measured */
    double peak[MAX_ROUNDS]; /* the highest of the round's probes */
    bool *failed;            /* [entrants] */
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

static bool run_rounds(const sn_bench_options *o, const sn_bench_work *w, sn_bench_entrant *e,
                       int n, rounds *r, sn_bench_report *out, sn_error *err) {
    int threads = sn_bench_threads(o), *repeats = calloc((size_t)n, sizeof *repeats);
    stream *s = calloc((size_t)n + 1, sizeof *s), *common = s + n;
    char name[64];
    bool ok = (repeats && s) || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (int i = 0; i < n && ok; i++) {
        double once = 0, again = 0;
        sn_bench_progress(o, "%s %s %s: %s: first run", w->kind, w->name, w->shape,
                          entrant_name(&e[i], name));
        ok = time_entrant(&e[i], 1, &once, &r->failed[i], out, err);
        for (int k = 0; k < 3 && ok && !r->failed[i] && once < o->seconds; k++) {
            ok = time_entrant(&e[i], 1, &again, &r->failed[i], out, err);
            once = fmin(once, again);
        }
        double want = once > 0 ? o->seconds / once : MAX_REPEATS;
        repeats[i] = want < 1 ? 1 : want > MAX_REPEATS ? MAX_REPEATS : (int)want;
    }
    ok = ok && streams_init(s, n, w, e, o, err);
    for (int k = 0; k < r->n && ok; k++) {
        if (o->stop && o->stop()) {
            ok = sn_fail(err, SN_ERR_USAGE, "interrupted");
            break;
        }
        double of_all = 0, before = probe_peak(threads, &r->peak[k]);
        if (common->src) of_all = stream_time(common, threads, o->seconds);
        for (int j = 0; j < n && ok; j++) {
            int i = (j + k) % n, at = i * MAX_ROUNDS + k;
            if (r->failed[i]) continue;
            sn_bench_progress(o, "%s %s %s: round %d/%d, %s", w->kind, w->name, w->shape, k + 1,
                              r->n, entrant_name(&e[i], name));
            if (s[i].n_block) r->stream[at] = stream_time(&s[i], threads, o->seconds);
            double cpu, lost, cpu_end, lost_end;
            sn_bench_usage(&cpu, &lost);
            ok = time_entrant(&e[i], repeats[i], &r->time[at], &r->failed[i], out, err);
            sn_bench_usage(&cpu_end, &lost_end);
            r->cpu[at] = (cpu_end - cpu) / (repeats[i] + 1); /* with the untimed run */
            r->preempted[i] += lost_end > lost;
            if (s[i].n_block)
                r->stream[at] = fmin(r->stream[at], stream_time(&s[i], threads, o->seconds));
            double after = probe_peak(threads, &r->peak[k]);
            ok = ok && keep_look(out, (before + after) / 2, err);
            before = after;
        }
        if (common->src) of_all = fmin(of_all, stream_time(common, threads, o->seconds));
        for (int i = 0; i < n; i++)
            if (!s[i].n_block) r->stream[i * MAX_ROUNDS + k] = of_all;
    }
    sn_bench_progress_end(o);
    for (int i = 0; s && i <= n; i++) stream_free(&s[i]);
    free(s);
    free(repeats);
    return ok;
}

/* How many times entrant i is as fast as entrant `base`: a median over rounds. NAN: there is none. */
static double speedup(const rounds *r, int base, int i) {
    double gain[MAX_ROUNDS];
    if (base < 0) return NAN;
    for (int k = 0; k < r->n; k++)
        gain[k] = r->time[base * MAX_ROUNDS + k] / r->time[i * MAX_ROUNDS + k];
    return sn_bench_median(gain, r->n);
}

static const char *type_of(const sn_bench_work *w, const sn_bench_entrant *e) {
    return e->dtype ? e->dtype : e->level >= 0 ? w->dtype : "f32";
}

static void fill_record(sn_bench_record *x, const sn_bench_options *o, const sn_bench_work *w,
                        const sn_bench_entrant *e, int i, const rounds *r) {
    snprintf(x->kind, sizeof x->kind, "%s", w->kind);
    snprintf(x->name, sizeof x->name, "%s", w->name);
    snprintf(x->shape, sizeof x->shape, "%s", w->shape);
    snprintf(x->backend, sizeof x->backend, "%s", e->backend);
    snprintf(x->dtype, sizeof x->dtype, "%s", type_of(w, e));
    snprintf(x->setup, sizeof x->setup, "%s", e->setup);
    snprintf(x->choice, sizeof x->choice, "%s", e->choice);
    snprintf(x->checked, sizeof x->checked, "%s", e->checked);
    x->level = e->level;
    x->threads = sn_bench_threads(o);
    x->rounds = r->n;
    const double *t = r->time + i * MAX_ROUNDS, *stream = r->stream + i * MAX_ROUNDS;
    const double *peak = r->peak;
    double share[MAX_ROUNDS], rate[MAX_ROUNDS];
    int by_memory = 0;
    x->ms_min = INFINITY;
    x->ms_max = 0;
    for (int k = 0; k < r->n; k++) {
        double compute = w->flop / (peak[k] * 1e9);
        by_memory += stream[k] > compute;
        share[k] = 100 * fmax(compute, stream[k]) / t[k];
        rate[k] = stream[k] > 0 ? (w->read + w->write) / stream[k] * 1e-9 : NAN;
        x->round_ms[k] = t[k] * 1e3;
        x->ms_min = fmin(x->ms_min, t[k] * 1e3);
        x->ms_max = fmax(x->ms_max, t[k] * 1e3);
    }
    x->ms_median = sn_bench_median(t, r->n) * 1e3;
    if (e->level >= 0) {
        x->cpu_ms = sn_bench_median(r->cpu + i * MAX_ROUNDS, r->n) * 1e3;
        x->preempted = r->preempted[i];
    }
    x->flop = w->flop;
    x->bytes = w->read + w->write;
    if (e->traffic > 0) x->traffic = e->traffic;
    x->gflops = w->flop / x->ms_median * 1e-6;
    x->gbytes_s = x->bytes / x->ms_median * 1e-6;
    x->peak_gflops = sn_bench_median(peak, r->n);
    if (!isnan(rate[0])) x->stream_gbytes_s = sn_bench_median(rate, r->n);
    x->pct_roofline = sn_bench_median(share, r->n);
    snprintf(x->bound, sizeof x->bound, "%s", 2 * by_memory > r->n ? "memory" : "compute");
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

bool sn_bench_measure(const sn_bench_options *o, const sn_bench_work *w, sn_bench_entrant *e, int n,
                      sn_bench_report *out, sn_error *err) {
    rounds r = {.n = o->rounds < MAX_ROUNDS ? o->rounds : MAX_ROUNDS};
    size_t cells = (size_t)n * MAX_ROUNDS + 1;
    r.time = calloc(cells, sizeof *r.time);
    r.stream = calloc(cells, sizeof *r.stream);
    r.cpu = calloc(cells, sizeof *r.cpu);
    r.preempted = calloc((size_t)n + 1, sizeof *r.preempted);
    r.failed = calloc((size_t)n + 1, sizeof *r.failed);
    bool ok = (r.time && r.stream && r.cpu && r.preempted && r.failed) ||
              sn_fail(err, SN_ERR_MEMORY, "out of memory");
    int before = omp_get_max_threads();
    omp_set_num_threads(sn_bench_threads(o)); /* oneDNN uses omp_get_max_threads */
    ok = ok && run_rounds(o, w, e, n, &r, out, err);
    for (size_t i = 0; ok && i < cells; i++) {
        r.time[i] /= w->runs;
        r.stream[i] /= w->runs;
        r.cpu[i] /= w->runs;
    }
    omp_set_num_threads(before);
    for (int i = 0; i < n && ok; i++) {
        if (r.failed[i]) continue;
        sn_bench_record *x = sn_bench_add(out, err);
        ok = x != NULL;
        if (!ok) break;
        fill_record(x, o, w, &e[i], i, &r);
        x->speedup_vs_level0 = speedup(&r, find_level0(e, n, i), i);
        x->speedup_vs_f32 = speedup(&r, find_f32(w, e, n, i), i);
    }
    rate_by_run(out);
    free(r.time);
    free(r.stream);
    free(r.cpu);
    free(r.preempted);
    free(r.failed);
    return ok;
}
