/* compare.c: compares measurements, see compare.h. */
#include "bench/compare.h"
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
    x->ms_median = number(o, "ms_median");
    x->ms_min = number(o, "ms_min");
    x->ms_max = number(o, "ms_max");
    x->gflops = number(o, "gflops");
    x->rel_rms = number(o, "rel_rms");
    x->peak_bytes = number(o, "peak_bytes");
    const cJSON *v, *list = cJSON_GetObjectItemCaseSensitive(o, "round_ms");
    cJSON_ArrayForEach(v, list) {
        if (cJSON_IsNumber(v) && x->rounds < SN_BENCH_ROUNDS)
            x->round_ms[x->rounds++] = v->valuedouble;
    }
}

static bool read_line(const char *path, int line, const char *s, size_t n, sn_bench_report *out,
                      char cpu[128], sn_error *err) {
    cJSON *o = cJSON_ParseWithLength(s, n);
    char kind[16] = "";
    if (cJSON_IsObject(o)) text(o, "kind", kind, sizeof kind);
    bool ok =
        *kind || sn_fail(err, SN_ERR_FILE, "%s:%d: no record of `sinter bench --json`", path, line);
    if (ok && !strcmp(kind, "machine")) {
        text(o, "cpu", cpu, 128);
    } else if (ok) {
        sn_bench_record *x = sn_bench_add(out, err);
        ok = x != NULL;
        if (ok) fill(x, o);
    }
    cJSON_Delete(o);
    return ok;
}

bool sn_bench_read_json(const char *path, sn_bench_report *out, char cpu[128], sn_error *err) {
    sn_mapping file;
    *cpu = 0;
    if (!sn_file_map(path, &file, err)) return false;
    const char *s = (const char *)file.data, *stop = s + file.size;
    bool ok = true;
    for (int line = 1; ok && s < stop; line++) {
        const char *end = memchr(s, '\n', (size_t)(stop - s));
        size_t n = (size_t)((end ? end : stop) - s);
        if (n) ok = read_line(path, line, s, n, out, cpu, err);
        s += n + (end != NULL);
    }
    sn_file_unmap(&file);
    return ok && (out->n > 0 || sn_fail(err, SN_ERR_FILE, "%s: no measurements", path));
}

/* ---- intervals ---- */

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The 95 % interval of the median of independent rounds: its bounds are two of them. */
static sn_bench_gain of_pairs(const sn_bench_record *base, const sn_bench_record *x) {
    double ratio[SN_BENCH_ROUNDS];
    int n = x->rounds;
    for (int k = 0; k < n; k++) ratio[k] = base->round_ms[k] / x->round_ms[k];
    qsort(ratio, (size_t)n, sizeof *ratio, ascending);
    int cut = (int)((n - 1.96 * sqrt(n)) / 2);
    if (cut < 0) cut = 0;
    return (sn_bench_gain){sn_bench_median(ratio, n), ratio[cut], ratio[n - 1 - cut],
                           SN_BENCH_SAME};
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
    qsort(ratio, DRAWS, sizeof *ratio, ascending);
    return (sn_bench_gain){base->ms_median / x->ms_median, ratio[DRAWS * 25 / 1000],
                           ratio[DRAWS * 975 / 1000 - 1], SN_BENCH_SAME};
}

static int rounds_kept(const sn_bench_record *x) {
    return x->round_ms[0] > 0 ? x->rounds : 0;
}

sn_bench_gain sn_bench_compare(const sn_bench_record *base, const sn_bench_record *x,
                               bool one_run) {
    static const double margin = 0.01;
    sn_bench_gain g = {base->ms_median / x->ms_median, base->ms_min / x->ms_max,
                       base->ms_max / x->ms_min, SN_BENCH_SAME};
    int n = rounds_kept(x), m = rounds_kept(base);
    if (one_run && n == m && n > 0)
        g = of_pairs(base, x);
    else if (n > 0 && m > 0)
        g = of_runs(base, x);
    if (g.low > 1 + margin) g.verdict = SN_BENCH_FASTER;
    if (g.high < 1 - margin) g.verdict = SN_BENCH_SLOWER;
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

static const char *const verdicts[] = {"same", "faster", "slower"};

/* across: base is of another run. */
static void print_pair(FILE *f, const sn_bench_record *base, const sn_bench_record *x,
                       sn_bench_gain g, bool across, int name, int shape,
                       const char *const *color) {
    char who[64];
    if (x->level >= 0)
        snprintf(who, sizeof who, "%s level %d", x->backend, x->level);
    else
        snprintf(who, sizeof who, "%s", x->backend);
    fprintf(f, "%-*s  %-*s  %-20s %10.4g %10.4g %8.3f  %7.3f to %-7.3f  %s%-6s%s", name, x->name,
            shape, x->shape, who, base->ms_median, x->ms_median, g.gain, g.low, g.high,
            color ? color[g.verdict] : "", verdicts[g.verdict], color ? color[3] : "");
    print_columns(f, "MB", base->peak_bytes, x->peak_bytes, 1.0 / (1 << 20), "%.3g");
    print_columns(f, "error", base->rel_rms, x->rel_rms, 1, "%.1e");
    if (across && !same_options(base, x))
        fprintf(f, "  %s level %d %s : %s", base->backend, base->level, base->dtype, x->dtype);
    fputc('\n', f);
}

int sn_bench_print_comparison(const sn_bench_report *r, const sn_bench_report *old,
                              double threshold, const char *const *color, FILE *f) {
    int slower = 0, name = 4, shape = 5, unmatched = 0;
    for (int i = 0; i < r->n; i++) {
        int n = (int)strlen(r->list[i].name), k = (int)strlen(r->list[i].shape);
        name = n > name ? n : name;
        shape = k > shape ? k : shape;
    }
    fprintf(f, "%-*s  %-*s  %-20s %10s %10s %8s  %-18s  %s\n", name, "work", shape, "shape",
            old ? "measured" : "against the lowest", old ? "old ms" : "base ms", "ms", "speed-up",
            "95 % interval", "verdict");
    for (int i = 0; i < r->n; i++) {
        const sn_bench_record *x = &r->list[i], *base = sn_bench_baseline(r, old, x);
        unmatched += old && !base;
        if (!base) continue;
        sn_bench_gain g = sn_bench_compare(base, x, !old);
        print_pair(f, base, x, g, old != NULL, name, shape, color);
        slower += g.verdict == SN_BENCH_SLOWER && g.high < 1 - threshold / 100;
    }
    if (unmatched)
        fprintf(f, "note: %d measurements have no counterpart in the old file\n", unmatched);
    return slower;
}
