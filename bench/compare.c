/* compare.c: compares measurements, see compare.h. */
#include "bench/compare.h"
#include "bench/noise.h"
#include "runtime/file.h"

#include <cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

static double number(const cJSON *o, const char *key) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
    return cJSON_IsNumber(v) ? v->valuedouble : NAN;
}

static void text(const cJSON *o, const char *key, char *out, size_t size) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
    snprintf(out, size, "%s", cJSON_IsString(v) ? v->valuestring : "");
}

static void fill(sn_bench_record *x, const cJSON *o) {
    text(o, "kind", x->kind, sizeof x->kind);
    text(o, "name", x->name, sizeof x->name);
    text(o, "shape", x->shape, sizeof x->shape);
    text(o, "backend", x->backend, sizeof x->backend);
    text(o, "dtype", x->dtype, sizeof x->dtype);
    double level = number(o, "level"), threads = number(o, "threads");
    x->level = isnan(level) ? -1 : (int)level;
    x->threads = isnan(threads) ? 0 : (int)threads;
    text(o, "bound", x->bound, sizeof x->bound);
    x->ms_median = number(o, "ms_median");
    x->ms_min = number(o, "ms_min");
    x->ms_max = number(o, "ms_max");
    x->flop = number(o, "flop");
    x->bytes = number(o, "bytes");
    x->traffic = number(o, "traffic");
    x->gflops = number(o, "gflops");
    x->pct_roofline = number(o, "pct_roofline");
    x->peak_gflops = number(o, "peak_gflops");
    x->stream_gbytes_s = number(o, "stream_gbytes_s");
    x->rel_rms = number(o, "rel_rms");
    x->peak_bytes = number(o, "peak_bytes");
    const cJSON *v, *list = cJSON_GetObjectItemCaseSensitive(o, "round_ms");
    cJSON_ArrayForEach(v, list) {
        if (cJSON_IsNumber(v) && x->rounds < SN_BENCH_ROUNDS)
            x->round_ms[x->rounds++] = v->valuedouble;
    }
}

static void fill_machine(sn_bench_report *r, const cJSON *o) {
    text(o, "cpu", r->cpu, sizeof r->cpu);
    text(o, "microarchitecture", r->microarchitecture, sizeof r->microarchitecture);
    text(o, "commit", r->commit, sizeof r->commit);
    text(o, "date", r->date, sizeof r->date);
    double others = number(o, "others_pct"), stolen = number(o, "stolen_pct");
    r->others = isnan(others) ? -1 : others;
    r->stolen = isnan(stolen) ? -1 : stolen;
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
        ok = x != NULL;
        if (ok) fill(x, o);
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
    return ok && (out->n > 0 || sn_fail(err, SN_ERR_FILE, "%s: no measurements", path));
}

/* ---- intervals ---- */

/* The probability in percent that the median of n independent rounds lies between the one number `cut`
 * from the bottom and the one from the top. */
static double coverage(int n, int cut) {
    double outside = 0, term = pow(0.5, n);
    for (int i = 0; i <= cut; i++) {
        outside += term;
        term *= (double)(n - i) / (i + 1);
    }
    return 100 * (1 - 2 * outside);
}

/* How many of n sorted rounds lie below and above the interval of their median, which covers 95 % or, of
 * few rounds, as much as they allow. */
static int rounds_cut(int n) {
    int cut = 0;
    while (2 * (cut + 1) < n && coverage(n, cut + 1) >= 95) cut++;
    return cut;
}

static sn_bench_gain of_pairs(const sn_bench_record *base, const sn_bench_record *x) {
    double ratio[SN_BENCH_ROUNDS];
    int n = x->rounds;
    for (int k = 0; k < n; k++) ratio[k] = base->round_ms[k] / x->round_ms[k];
    qsort(ratio, (size_t)n, sizeof *ratio, sn_bench_ascending);
    int cut = rounds_cut(n);
    return (sn_bench_gain){.gain = sn_bench_median(ratio, n),
                           .low = ratio[cut],
                           .high = ratio[n - 1 - cut],
                           .level = coverage(n, cut)};
}

static double resampled_median(const double *x, int n, uint64_t *seed) {
    double draw[SN_BENCH_ROUNDS];
    for (int k = 0; k < n; k++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        draw[k] = x[(*seed >> 33) % (unsigned)n];
    }
    return sn_bench_median(draw, n);
}

/* Rounds of two runs have no order in common: bootstrap of the ratio of medians. */
static sn_bench_gain of_runs(const sn_bench_record *base, const sn_bench_record *x) {
    enum { DRAWS = 1000 };
    double ratio[DRAWS];
    uint64_t seed = 1;
    for (int k = 0; k < DRAWS; k++) {
        double a = resampled_median(base->round_ms, base->rounds, &seed);
        ratio[k] = a / resampled_median(x->round_ms, x->rounds, &seed);
    }
    qsort(ratio, DRAWS, sizeof *ratio, sn_bench_ascending);
    return (sn_bench_gain){.gain = base->ms_median / x->ms_median,
                           .low = ratio[DRAWS * 25 / 1000],
                           .high = ratio[DRAWS * 975 / 1000 - 1],
                           .level = 95};
}

static int rounds_kept(const sn_bench_record *x) {
    return x->round_ms[0] > 0 ? x->rounds : 0;
}

void sn_bench_interval(const sn_bench_record *x, double *low, double *high) {
    double ms[SN_BENCH_ROUNDS];
    int n = rounds_kept(x), cut = rounds_cut(n);
    *low = x->ms_min, *high = x->ms_max;
    if (!n) return;
    memcpy(ms, x->round_ms, sizeof *ms * (size_t)n);
    qsort(ms, (size_t)n, sizeof *ms, sn_bench_ascending);
    *low = ms[cut], *high = ms[n - 1 - cut];
}

/* The verdict, and for an unclear one how many of n rounds' number would do: the width of an interval falls
 * with their root. */
static void judge(sn_bench_gain *g, int n, double bound) {
    const double margin = bound / 100;
    g->verdict = g->low > 1 + margin                             ? SN_BENCH_FASTER
                 : g->high < 1 - margin                          ? SN_BENCH_SLOWER
                 : g->low >= 1 - margin && g->high <= 1 + margin ? SN_BENCH_SAME
                                                                 : SN_BENCH_UNCLEAR;
    double off = fabs(fabs(g->gain - 1) - margin), half = fmax(g->gain - g->low, g->high - g->gain);
    if (g->verdict == SN_BENCH_UNCLEAR)
        g->rounds = off > 0 ? ceil(n * pow(half / off, 2)) : INFINITY;
}

sn_bench_gain sn_bench_compare(const sn_bench_record *base, const sn_bench_record *x, bool one_run,
                               double bound) {
    sn_bench_gain g = {.gain = base->ms_median / x->ms_median,
                       .low = base->ms_min / x->ms_max,
                       .high = base->ms_max / x->ms_min,
                       .level = 100};
    int n = rounds_kept(x), m = rounds_kept(base);
    if (one_run && n == m && n > 0)
        g = of_pairs(base, x);
    else if (n > 0 && m > 0)
        g = of_runs(base, x);
    judge(&g, n > m ? n : m, bound);
    return g;
}

/* ---- the table ---- */

static bool same_work(const sn_bench_record *x, const sn_bench_record *y) {
    return !strcmp(x->kind, y->kind) && !strcmp(x->name, y->name) && !strcmp(x->shape, y->shape);
}

static bool same_options(const sn_bench_record *x, const sn_bench_record *y) {
    return y->level == x->level && !strcmp(y->backend, x->backend) && !strcmp(y->dtype, x->dtype);
}

/* The record of r for x's work with y's options; NULL: none. */
static const sn_bench_record *find(const sn_bench_report *r, const sn_bench_record *x,
                                   const sn_bench_record *y) {
    for (int i = 0; i < r->n; i++)
        if (same_work(&r->list[i], x) && same_options(&r->list[i], y)) return &r->list[i];
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
        if (!same_work(x, y) || find(r, x, y)) continue;
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
        best = find(old, x, x);
        return best ? best : with_other_options(r, old, x);
    }
    for (int i = 0; i < r->n; i++) {
        const sn_bench_record *y = &r->list[i];
        if (same_work(x, y) && y->level >= 0 && (!best || y->level < best->level)) best = y;
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
                                                        "unreliable"};

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
    if (g.verdict == SN_BENCH_UNCLEAR && g.rounds <= SN_BENCH_ROUNDS)
        fprintf(f, ": %.0f rounds may do", g.rounds);
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
            "the runs: their verdicts are unreliable\n",
            drifted);
    fprintf(f, "note: the interval does not cover how the machine's speed drifts between two runs; "
               "bench/against.py OLD NEW times two builds in turn\n");
}

/* Fills list [r->n] with the pairs to print. Returns their number. */
static int find_pairs(const sn_bench_report *r, const sn_bench_report *old, double bound,
                      pair *list) {
    int n = 0;
    bool busy =
        sn_bench_busy(r->others, r->stolen) || (old && sn_bench_busy(old->others, old->stolen));
    for (int i = 0; i < r->n; i++) {
        const sn_bench_record *x = &r->list[i], *base = sn_bench_baseline(r, old, x);
        if (!base) continue;
        list[n] = (pair){base, x, sn_bench_compare(base, x, !old, bound), old != NULL};
        if (busy) list[n].gain.verdict = SN_BENCH_UNRELIABLE;
        n++;
    }
    return n;
}

sn_bench_compared sn_bench_print_comparison(const sn_bench_report *r, const sn_bench_report *old,
                                            double threshold,
                                            const char *const color[SN_BENCH_VERDICTS + 1],
                                            FILE *f) {
    static const double far = 0.03, usual = 1;
    double bound = threshold > 0 ? threshold : usual, level = 100;
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
        level = fmin(level, p->gain.level);
        done.slower += p->gain.high < 1 - bound / 100;
        other_threads += p->across && p->x->threads != p->base->threads;
        if (!p->across || !same_machine(r, old) || drift(p) <= far) continue;
        p->gain.verdict = SN_BENCH_UNRELIABLE;
        drifted++;
    }
    char interval[24];
    snprintf(interval, sizeof interval, level >= 95 ? "%.0f %% interval" : "%.4g %% interval",
             level >= 95 ? 95 : level);
    fprintf(f, "%-*s  %-*s  %-20s %10s %10s %8s  %-18s  %s\n", name, "work", shape, "shape",
            old ? "measured" : "against the lowest", old ? "old ms" : "base ms", "ms", "speed-up",
            interval, "verdict");
    for (int i = 0; i < done.pairs; i++) print_pair(f, &list[i], name, shape, color);
    fprintf(f, "%s; same: within %g %%\n",
            old ? "speed-up: ratio of the medians" : "speed-up: median of the ratios in each round",
            bound);
    print_notes(f, r, old, r->n - done.pairs, drifted, other_threads);
    free(list);
    return done;
}
