/* compare.c: compares measurements, see compare.h. */
#include "bench/compare.h"
#include "bench/noise.h"
#include "runtime/file.h"

#include <cJSON.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

static double number(const cJSON *o, const char *key) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
    return cJSON_IsNumber(v) ? v->valuedouble : NAN;
}

/* A number that an int holds; `none` without one. */
static int whole(const cJSON *o, const char *key, int none) {
    double x = number(o, key);
    return x >= 0 && x <= INT_MAX ? (int)x : none;
}

static void text(const cJSON *o, const char *key, char *out, size_t size) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
    snprintf(out, size, "%s", cJSON_IsString(v) ? v->valuestring : "");
}

static void fill_numbers(void *of, const sn_bench_number *list, int n, const cJSON *o) {
    for (int i = 0; i < n; i++) *sn_bench_number_at(of, &list[i]) = number(o, list[i].key);
}

/* Times are above 0, processes have numbers. */
static bool is_sample(const sn_bench_samples *s, const double *list, double x) {
    if (list == s->ms) return x > 0 && isfinite(x);
    return list != s->process || (x >= 0 && x < SN_BENCH_PROCESSES && x == floor(x));
}

/* Lists that are shorter than that of the times, as in files of earlier versions, are unknown. Returns the key of one
 * with a wrong value, or NULL. */
static const char *fill_samples(sn_bench_samples *s, const cJSON *o) {
    for (int i = 0; i < SN_BENCH_SAMPLE_KEYS; i++) {
        const sn_bench_sample_key *k = &sn_bench_sample_keys[i];
        const cJSON *v, *list = cJSON_GetObjectItemCaseSensitive(o, k->key);
        double *to = (double *)(void *)((char *)s + k->offset);
        int n = 0;
        cJSON_ArrayForEach(v, list) {
            double value = cJSON_IsNumber(v) ? v->valuedouble : NAN;
            if (!is_sample(s, to, value)) return k->key;
            if (n < SN_BENCH_SAMPLES) to[n++] = value;
        }
        if (!i) s->n = n;
        while (n < s->n) to[n++] = to == s->process ? 0 : NAN;
    }
    return NULL;
}

/* Returns the key of a list with a wrong value, or NULL. */
static const char *fill(sn_bench_record *x, const cJSON *o) {
    for (int i = 0; i < SN_BENCH_TEXTS; i++) {
        const sn_bench_text *t = &sn_bench_texts_of[i];
        text(o, t->key, (char *)x + t->offset, t->size);
    }
    x->level = whole(o, "level", -1);
    x->threads = whole(o, "threads", 0);
    x->measurement = whole(o, "measurement", 0);
    x->unfused = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(o, "unfused"));
    fill_numbers(x, sn_bench_numbers_of, SN_BENCH_NUMBERS, o);
    if (isnan(x->ms_low)) x->ms_low = x->ms_min, x->ms_high = x->ms_max; /* of old files */
    const char *wrong = fill_samples(&x->samples, o);
    return wrong ? wrong : fill_samples(&x->again, cJSON_GetObjectItemCaseSensitive(o, "again"));
}

static void fill_machine(sn_bench_report *r, const cJSON *o) {
    text(o, "cpu", r->cpu, sizeof r->cpu);
    text(o, "microarchitecture", r->microarchitecture, sizeof r->microarchitecture);
    text(o, "commit", r->commit, sizeof r->commit);
    text(o, "date", r->date, sizeof r->date);
    fill_numbers(r, sn_bench_machine_numbers, SN_BENCH_MACHINE_NUMBERS, o);
    const cJSON *v, *list = cJSON_GetObjectItemCaseSensitive(o, "process_busy_pct");
    r->n_process = 0;
    cJSON_ArrayForEach(v, list) {
        if (r->n_process < SN_BENCH_PROCESSES)
            r->busy[r->n_process++] = cJSON_IsNumber(v) ? v->valuedouble : NAN;
    }
    const cJSON *note, *notes = cJSON_GetObjectItemCaseSensitive(o, "notes");
    cJSON_ArrayForEach(note, notes) {
        if (cJSON_IsString(note)) sn_bench_note(r, "%s", note->valuestring);
    }
    char caches[8];
    text(o, "caches", caches, sizeof caches);
    r->cold = !strcmp(caches, "cold");
    double read = number(o, "read_gbytes_s");
    r->read_gbytes_s = isnan(read) ? 0 : read;
}

static bool read_line(const char *path, int line, const char *s, size_t n, sn_bench_report *out,
                      sn_error *err) {
    cJSON *o = cJSON_ParseWithLength(s, n);
    char kind[16] = "";
    if (cJSON_IsObject(o)) text(o, "kind", kind, sizeof kind);
    bool ok =
        *kind || sn_fail(err, SN_ERR_FILE, "%s:%d: no record of `sinter bench --json`", path, line);
    if (ok && !strcmp(kind, "machine")) {
        fill_machine(out, o);
    } else if (ok) {
        sn_bench_record *x = sn_bench_add(out, err);
        const char *wrong = x ? fill(x, o) : NULL;
        if (wrong) sn_fail(err, SN_ERR_FILE, "%s:%d: a wrong value in '%s'", path, line, wrong);
        ok = x && !wrong;
    }
    cJSON_Delete(o);
    return ok;
}

bool sn_bench_read_json(const char *path, sn_bench_report *out, sn_error *err) {
    sn_mapping file;
    if (!sn_file_map(path, &file, err)) return false;
    const char *s = (const char *)file.data, *stop = s + file.size;
    bool ok = true;
    for (int line = 1; ok && s < stop; line++) {
        const char *end = memchr(s, '\n', (size_t)(stop - s));
        size_t n = (size_t)((end ? end : stop) - s);
        if (n) ok = read_line(path, line, s, n, out, err);
        s += n + (end != NULL);
    }
    sn_file_unmap(&file);
    if (ok) sn_bench_finish(out);
    return ok && (out->n > 0 || sn_fail(err, SN_ERR_FILE, "%s: no measurements", path));
}

/* ---- intervals ---- */

bool sn_bench_same_work(const sn_bench_record *x, const sn_bench_record *y) {
    return !strcmp(x->kind, y->kind) && !strcmp(x->name, y->name) && !strcmp(x->shape, y->shape);
}

bool sn_bench_same_rounds(const sn_bench_record *x, const sn_bench_record *y) {
    return x->measurement == y->measurement && sn_bench_same_work(x, y);
}

/* Percent: at a higher floor no two works are called alike. */
static const double quiet_floor = 2;

static void refuse(sn_bench_gain *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void refuse(sn_bench_gain *g, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(g->why, sizeof g->why, fmt, ap);
    va_end(ap);
    g->verdict = SN_BENCH_REFUSED;
}

/* The verdict, and for an unclear one how many of n rounds' number would do: the width of an interval falls
 * with their root. */
static void judge(sn_bench_gain *g, int n, double floor) {
    const double margin = g->bound / 100;
    g->verdict = g->low > 1 + margin                             ? SN_BENCH_FASTER
                 : g->high < 1 - margin                          ? SN_BENCH_SLOWER
                 : g->low >= 1 - margin && g->high <= 1 + margin ? SN_BENCH_SAME
                                                                 : SN_BENCH_UNCLEAR;
    double off = fabs(fabs(g->gain - 1) - margin), half = fmax(g->gain - g->low, g->high - g->gain);
    if (g->verdict == SN_BENCH_UNCLEAR)
        g->rounds = off > 0 ? ceil(n * pow(half / off, 2)) : INFINITY;
    if (g->verdict >= SN_BENCH_UNCLEAR || g->verdict == SN_BENCH_SAME)
        if (floor > quiet_floor)
            refuse(g, "the same program timed twice differed by up to %.1f %%", floor);
}

/* Refuses if there are too few. */
static void refuse_few(sn_bench_gain *g, const sn_bench_numbers *x) {
    if (!x->few) return;
    if (x->all > 1)
        refuse(g, "fewer than two of %d processes have %d rounds that count", x->all,
               SN_BENCH_ENOUGH);
    else
        refuse(g, "fewer than %d of %d rounds count (warm-up, preemption)", SN_BENCH_ENOUGH, x->n);
}

sn_bench_gain sn_bench_compare(const sn_bench_record *base, const sn_bench_record *x, bool one_run,
                               double bound, double floor) {
    sn_bench_numbers a, b;
    sn_bench_interval i = {base->ms_median / x->ms_median, base->ms_low / x->ms_high,
                           base->ms_high / x->ms_low};
    bool paired = one_run && sn_bench_ratios(&base->samples, &x->samples, &a);
    bool sets = !paired && base->samples.n && x->samples.n;
    if (sets) sn_bench_times(&base->samples, &a), sn_bench_times(&x->samples, &b);
    if (paired || sets) i = sn_bench_estimate(&a, paired ? NULL : &b);
    sn_bench_gain g = {i.middle, i.low, i.high, .bound = fmax(bound, floor)};
    if (paired || sets) g.processes = a.processes;
    judge(&g, g.processes > 1 ? g.processes : a.n, floor);
    if (paired || sets) refuse_few(&g, &a);
    if (sets) refuse_few(&g, &b);
    if (sets && one_run && base->samples.processes > 1)
        refuse(&g, "none of %d processes measured both in the same rounds",
               base->samples.processes);
    return g;
}

double sn_bench_floor_of(const sn_bench_report *r, const sn_bench_record *x) {
    for (int i = 0; i < r->n; i++)
        if (sn_bench_same_rounds(&r->list[i], x) && r->list[i].again.n) return r->list[i].floor_pct;
    return NAN;
}

void sn_bench_refuse_busy(const sn_bench_report *r, sn_bench_gain *g) {
    if (sn_bench_busy(r->others, r->stolen))
        refuse(g, "other programs used %.0f %% of the CPU time, the host took %.0f %%", r->others,
               r->stolen);
}

void sn_bench_refuse_caches(const sn_bench_report *r, const sn_bench_report *old,
                            sn_bench_gain *g) {
    if (r->cold != old->cold)
        refuse(g, "the caches were %s before, and are %s now", old->cold ? "cold" : "warm",
               r->cold ? "cold" : "warm");
}

/* ---- the table ---- */

static bool same_options(const sn_bench_record *x, const sn_bench_record *y) {
    return y->level == x->level && !strcmp(y->backend, x->backend) && !strcmp(y->dtype, x->dtype);
}

static bool same_record(const sn_bench_record *x, const sn_bench_record *y) {
    return sn_bench_same_work(x, y) && same_options(x, y);
}

const sn_bench_record *sn_bench_counterpart(const sn_bench_report *r, const sn_bench_report *of,
                                            const sn_bench_record *x) {
    int before = 0;
    for (const sn_bench_record *y = of ? of->list : x; y < x; y++) before += same_record(y, x);
    for (int i = 0; i < r->n; i++)
        if (same_record(&r->list[i], x) && !before--) return &r->list[i];
    return NULL;
}

/* What the old run did with x's work, and r did not: with other options (level, back end, type of the
 * weights). NULL unless it is one measurement, or one of x's level. */
static const sn_bench_record *
with_other_options(const sn_bench_report *r, const sn_bench_report *old, const sn_bench_record *x) {
    const sn_bench_record *any = NULL, *level = NULL;
    int n_any = 0, n_level = 0;
    for (int i = 0; i < old->n; i++) {
        const sn_bench_record *y = &old->list[i];
        if (!sn_bench_same_work(x, y) || sn_bench_counterpart(r, NULL, y)) continue;
        any = y;
        n_any++;
        if (y->level != x->level) continue;
        level = y;
        n_level++;
    }
    return n_level == 1 ? level : n_any == 1 ? any : NULL;
}

const sn_bench_record *sn_bench_baseline(const sn_bench_report *r, const sn_bench_report *old,
                                         const sn_bench_record *x) {
    const sn_bench_record *best = NULL;
    if (old) {
        best = sn_bench_counterpart(old, r, x);
        return best ? best : with_other_options(r, old, x);
    }
    for (int i = 0; i < r->n; i++) {
        const sn_bench_record *y = &r->list[i];
        if (sn_bench_same_rounds(x, y) && y->level >= 0 && (!best || y->level < best->level))
            best = y;
    }
    return best == x ? NULL : best;
}

static void print_columns(FILE *f, const char *head, double base, double x, double scale,
                          const char *format) {
    if (isnan(base) || isnan(x)) return;
    fprintf(f, "  %s ", head);
    fprintf(f, format, base * scale);
    fputs(" : ", f);
    fprintf(f, format, x * scale);
}

static const char *const verdicts[SN_BENCH_VERDICTS] = {"same", "faster", "slower", "unclear",
                                                        "refused"};

/* A pair of records, whose base is of another run if `across`. */
typedef struct pair {
    const sn_bench_record *base, *x;
    sn_bench_gain gain;
    bool across;
} pair;

static void print_pair(FILE *f, const pair *p, int name, int shape, const char *const *color) {
    const sn_bench_record *x = p->x, *base = p->base;
    sn_bench_gain g = p->gain;
    char who[64];
    if (x->level >= 0)
        snprintf(who, sizeof who, "%s level %d", x->backend, x->level);
    else
        snprintf(who, sizeof who, "%s", x->backend);
    fprintf(f, "%-*s  %-*s  %-20s %10.4g %10.4g %8.3f  %7.3f to %-7.3f  %s%-6s%s", name, x->name,
            shape, x->shape, who, base->ms_median, x->ms_median, g.gain, g.low, g.high,
            color ? color[g.verdict] : "", verdicts[g.verdict],
            color ? color[SN_BENCH_VERDICTS] : "");
    if (g.verdict == SN_BENCH_REFUSED) fprintf(f, ": %s", g.why);
    if (g.verdict == SN_BENCH_UNCLEAR &&
        g.rounds <= (g.processes > 1 ? SN_BENCH_PROCESSES : SN_BENCH_ROUNDS))
        fprintf(f, ": %.0f %s may do", g.rounds, g.processes > 1 ? "processes" : "rounds");
    print_columns(f, "MB", base->peak_bytes, x->peak_bytes, 1.0 / (1 << 20), "%.3g");
    print_columns(f, "error", base->rel_rms, x->rel_rms, 1, "%.1e");
    if (p->across && !same_options(base, x))
        fprintf(f, "  %s level %d %s : %s", base->backend, base->level, base->dtype, x->dtype);
    fputc('\n', f);
}

static bool same_machine(const sn_bench_report *r, const sn_bench_report *old) {
    return !strcmp(r->cpu, old->cpu) && !strcmp(r->microarchitecture, old->microarchitecture);
}

/* How far the limits beside two measurements of one machine are apart: it had another speed. */
static double drift(const pair *p) {
    double peak = p->x->peak_gflops / p->base->peak_gflops,
           stream = p->x->stream_gbytes_s / p->base->stream_gbytes_s;
    bool memory = !strcmp(p->x->bound, "memory") && stream > 0;
    double ratio = memory ? stream : peak;
    return ratio > 0 ? fabs(ratio - 1) : 0;
}

static void print_busy(FILE *f, const char *which, const sn_bench_report *r) {
    char noise[SN_BENCH_NOISE_TEXT];
    if (*sn_bench_noise_text(r->others, r->stolen, noise)) fprintf(f, "note: %s%s\n", which, noise);
}

/* What the reader of verdicts must know. */
static void print_notes(FILE *f, const sn_bench_report *r, const sn_bench_report *old,
                        int unmatched, int drifted, int other_threads) {
    print_busy(f, old ? "this run: " : "", r);
    if (!old) return;
    print_busy(f, "the old run: ", old);
    if (unmatched)
        fprintf(f, "note: %d measurements have no counterpart in the old file\n", unmatched);
    if (!same_machine(r, old))
        fprintf(f, "note: the machines differ: %s %s against %s %s\n", old->cpu,
                old->microarchitecture, r->cpu, r->microarchitecture);
    if (other_threads)
        fprintf(f, "note: %d measurements had another number of threads\n", other_threads);
    if (drifted)
        fprintf(
            f,
            "note: beside %d measurements the machine's limits differ by more than 3 %% between "
            "the runs: their verdicts are refused\n",
            drifted);
    fprintf(f, "note: the interval does not cover how the machine's speed drifts between two runs; "
               "bench/against.py OLD NEW times two builds in turn\n");
}

/* Fills list [r->n] with the pairs to print. Returns their number. */
static int find_pairs(const sn_bench_report *r, const sn_bench_report *old, double bound,
                      pair *list) {
    int n = 0;
    for (int i = 0; i < r->n; i++) {
        const sn_bench_record *x = &r->list[i], *base = sn_bench_baseline(r, old, x);
        if (!base) continue;
        double floor = sn_bench_floor_of(r, x);
        if (old) floor = fmax(floor, sn_bench_floor_of(old, base));
        pair *p = &list[n++];
        *p = (pair){base, x, sn_bench_compare(base, x, !old, bound, floor), old != NULL};
        sn_bench_refuse_busy(r, &p->gain);
        if (old) sn_bench_refuse_busy(old, &p->gain);
        if (old) sn_bench_refuse_caches(r, old, &p->gain);
    }
    return n;
}

sn_bench_compared sn_bench_print_comparison(const sn_bench_report *r, const sn_bench_report *old,
                                            double threshold,
                                            const char *const color[SN_BENCH_VERDICTS + 1],
                                            FILE *f) {
    static const double far = 0.03, usual = 1;
    double bound = threshold > 0 ? threshold : usual;
    pair *list = calloc((size_t)r->n + 1, sizeof *list);
    sn_bench_compared done = {0};
    int name = 4, shape = 5, drifted = 0, other_threads = 0;
    if (!list) return done;
    done.pairs = find_pairs(r, old, bound, list);
    for (int i = 0; i < done.pairs; i++) {
        pair *p = &list[i];
        int n = (int)strlen(p->x->name), k = (int)strlen(p->x->shape);
        name = n > name ? n : name;
        shape = k > shape ? k : shape;
        done.slower += p->gain.high < 1 - bound / 100;
        other_threads += p->across && p->x->threads != p->base->threads;
        if (!p->across || !same_machine(r, old) || drift(p) <= far) continue;
        refuse(&p->gain, "the machine's limits differ by %.0f %% between the runs", 100 * drift(p));
        drifted++;
    }
    fprintf(f, "%-*s  %-*s  %-20s %10s %10s %8s  %-18s  %s\n", name, "work", shape, "shape",
            old ? "measured" : "against the lowest", old ? "old ms" : "base ms", "ms", "speed-up",
            "95 % interval", "verdict");
    for (int i = 0; i < done.pairs; i++) print_pair(f, &list[i], name, shape, color);
    fprintf(f, "%s; same: within %g %%\n",
            old ? "speed-up: ratio of the medians" : "speed-up: median of the ratios in each round",
            bound);
    print_notes(f, r, old, r->n - done.pairs, drifted, other_threads);
    free(list);
    return done;
}
