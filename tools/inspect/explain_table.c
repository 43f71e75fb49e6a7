/* explain_table.c: the calls of an entry as a table, and two levels side by side. */
#include "runtime/cli/screen.h"
#include "bench/noise.h"
#include "tools/inspect/explain.h"

#include <math.h>
#include <string.h>

/* "1.2 G", "510 M": three digits and a prefix. */
static const char *scaled(double v, char buf[32]) {
    static const char prefix[] = " kMGT";
    int k = 0;
    while (v >= 999.5 && k < 4) v /= 1000, k++;
    snprintf(buf, 32, "%.3g %c", v, prefix[k]);
    return buf;
}

typedef struct widths {
    int family, name, result;
    bool times; /* a column for how often a call is repeated */
} widths;

static void widen(int *w, const char *text) {
    enum { MAX_WIDTH = 48 };
    int n = (int)strlen(text);
    if (n > *w) *w = n < MAX_WIDTH ? n : MAX_WIDTH;
}

static void print_notes(FILE *f, const char *notes) {
    for (const char *s = notes; *s;) {
        int n = (int)strcspn(s, "\n");
        fprintf(f, "        %.*s\n", n, s);
        s += n + (s[n] == '\n');
    }
}

/* What the kernel does with the tiles of its mask. */
static void print_tiles(FILE *f, const explain_entry *e, int i) {
    const explain_tiles *t = e->tiles ? &e->tiles[i] : NULL;
    double all = t ? t->skipped + t->partial + t->full : 0;
    if (t && *t->why)
        fprintf(f,
                "        which tiles: not known before a run, %s; neighbouring queries that choose "
                "different keys leave few tiles empty\n",
                t->why);
    if (!(all > 0) || !strstr(e->call[i].fused, "mask: ")) return;
    if (!(t->skipped + t->full > 0))
        fprintf(f, "        no tile is empty or full: all %.0f run with the mask", all);
    else
        fprintf(
            f,
            "        of %.0f tiles %.3g %% are skipped, %.3g %% run without mask, %.3g %% with it",
            all, 100 * t->skipped / all, 100 * t->full / all, 100 * t->partial / all);
    fprintf(f, " (%s)\n", e->tile_sizes);
}

static void print_row(FILE *f, const explain_entry *e, int i, int times, widths w) {
    const sn_kernel_call *c = &e->call[i];
    char flops[32], bytes[32];
    if (*c->loop) fprintf(f, "      loop: %s\n", c->loop);
    fprintf(f, "%5d  %-*s  %-*s  %-*s %6.1f%%", i, w.family, c->family, w.name,
            times > 1 ? e->folded[i] : c->name, w.result, c->result,
            100 * explain_share(e, i) * times);
    if (w.times) fprintf(f, " %6d", times);
    if (e->seconds) {
        double s = e->seconds[i] > 0 ? 1e9 * e->seconds[i] : INFINITY;
        char rate[32] = "-";
        if (c->flops > 0) snprintf(rate, sizeof rate, "%.3g", c->flops / s);
        fprintf(f, " %9.3f %9.3f %8s %6.3g", 1e3 * e->seconds[i], 1e3 * e->least[i], rate,
                c->bytes / s);
    }
    fprintf(f, " %8s %8s", c->flops > 0 ? scaled(c->flops, flops) : "-", scaled(c->bytes, bytes));
    if (*c->fused) fprintf(f, "  %s", c->fused);
    fputs(c->when, f);
    if (*c->file) fprintf(f, "  (%s:%d)", c->file, c->line);
    fputc('\n', f);
    print_notes(f, c->notes);
    print_tiles(f, e, i);
}

/* Shares of a folded call are those of all its repetitions; times and costs are of one. */
static void print_fold(FILE *f, const explain_entry *e, const inspect_fold *d, widths w) {
    fprintf(f, "    -- calls %d to %d: %d times the same %d --\n", d->first,
            d->first + d->period * d->times - 1, d->times, d->period);
    for (int k = 0; k < d->period; k++) print_row(f, e, d->first + k, d->times, w);
    fprintf(f, "    --\n");
}

static void print_head(FILE *f, const explain_entry *e, widths w) {
    char flops[32], bytes[32];
    int barriers = 0;
    for (int i = 0; i < e->n; i++) barriers += e->call[i].barrier;
    fprintf(f, "%sentry %s%s: %d kernel calls, %d barriers; %sFLOP, %sB read and written",
            sn_screen_color(f, STYLE_HEADING), e->name, sn_screen_color(f, STYLE_NONE), e->n,
            barriers, scaled(e->flops, flops), scaled(e->bytes, bytes));
    fprintf(f, " (%s)\n", e->sizes);
    fprintf(f, "%5s  %-*s  %-*s  %-*s %7s", "call", w.family, "kernel", w.name, "where", w.result,
            "result", "share");
    if (w.times) fprintf(f, " %6s", "times");
    if (e->seconds) fprintf(f, " %9s %9s %8s %6s", "ms", "min", "GFLOP/s", "GB/s");
    fprintf(f, " %8s %8s  fused operations\n", "FLOP", "bytes");
}

/* The fastest and the slowest of call i and those like it, by medians; false: call i is not the first of
 * them. */
static bool find_twins(const explain_entry *e, int i, int *fastest, int *slowest) {
    *fastest = *slowest = i;
    for (int k = 0; k < e->n; k++) {
        if (k == i || !explain_alike(e, i, k)) continue;
        if (k < i) return false;
        if (e->seconds[k] < e->seconds[*fastest]) *fastest = k;
        if (e->seconds[k] > e->seconds[*slowest]) *slowest = k;
    }
    return true;
}

/* What the times do not say: a run beside its calls, calls that differ from their twins, rates that no
 * probe of the machine reached, other programs. */
static void print_times(FILE *f, const explain_entry *e) {
    static const double differs = 2;
    double sum = 0, least = 0;
    for (int i = 0; i < e->n; i++) sum += e->seconds[i], least += e->least[i];
    fprintf(f,
            "a run took %.3f ms (minimum %.3f), its calls %.3f (%.3f), the rest was between them; "
            "f32 peak %.4g GFLOP/s\n",
            1e3 * e->run_seconds, 1e3 * e->run_least, 1e3 * sum, 1e3 * least, e->peak);
    for (int i = 0; i < e->n; i++) {
        const sn_kernel_call *c = &e->call[i];
        int fast, slow;
        if (find_twins(e, i, &fast, &slow) && e->seconds[slow] > differs * e->seconds[fast])
            fprintf(f,
                    "note: call %d, %s %s, took %.3f ms, its twin, call %d, %.3f ms: something "
                    "interrupted the slower one; compare the minima\n",
                    slow, e->call[slow].family, e->call[slow].name, 1e3 * e->seconds[slow], fast,
                    1e3 * e->seconds[fast]);
        if (explain_chooses(c))
            fprintf(f,
                    "note: call %d, %s %s: the run decides which pairs its mask shows; FLOP and "
                    "GFLOP/s count all of them\n",
                    i, c->family, c->name);
        if (explain_above_peak(e, i))
            fprintf(f,
                    "note: call %d, %s %s, ran above the f32 peak that was measured beside it: the "
                    "probe was interrupted, the machine is busy\n",
                    i, c->family, c->name);
    }
    char text[SN_BENCH_NOISE_TEXT];
    if (*sn_bench_noise_text(e->others, e->stolen, text)) fprintf(f, "note: %s\n", text);
}

/* How often call i is there, if it is the first of equal layers; 0: it repeats an earlier one. */
static int times_of(const explain_entry *e, int i) {
    if (explain_repeats(e, i)) return 0;
    for (int k = 0; k < e->n_fold; k++) {
        const inspect_fold *d = &e->fold[k];
        if (i >= d->first && i < d->first + d->period) return d->times;
    }
    return 1;
}

/* Each time the most expensive row that has not been printed. */
static void print_by_cost(FILE *f, const explain_entry *e, widths w) {
    double last = INFINITY;
    for (int done = -1;;) {
        int best = -1;
        double highest = -1;
        for (int i = 0; i < e->n; i++) {
            double cost = explain_share(e, i) * times_of(e, i);
            bool later = cost < last || (!(cost > last) && i > done);
            if (times_of(e, i) && later && cost > highest) best = i, highest = cost;
        }
        if (best < 0) return;
        print_row(f, e, best, times_of(e, best), w);
        done = best;
        last = highest;
    }
}

static void print_attention(FILE *f, const explain_entry *e) {
    if (e->pairs)
        fprintf(f, "attention: %d of %d softmax-product pairs fused\n", explain_fused(e), e->pairs);
}

void explain_table(FILE *f, const explain_entry *e, bool by_cost) {
    widths w = {6, 5, 6, by_cost && e->n_fold};
    for (int i = 0; i < e->n; i++) {
        widen(&w.family, e->call[i].family);
        widen(&w.name, e->call[i].name);
        widen(&w.result, e->call[i].result);
    }
    print_head(f, e, w);
    if (by_cost) print_by_cost(f, e, w);
    for (int i = by_cost ? e->n : 0; i < e->n;) {
        const inspect_fold *d = explain_fold_at(e, i);
        if (d)
            print_fold(f, e, d, w);
        else
            print_row(f, e, i, 1, w);
        i += d ? d->period * d->times : 1;
    }
    print_attention(f, e);
    if (e->seconds) print_times(f, e);
}

/* ---- two levels ---- */

typedef struct sums {
    int calls, barriers;
    double flops, bytes, written, seconds;
} sums;

static sums sum_of(const explain_entry *e, const char *family) {
    sums s = {0};
    for (int i = 0; i < e->n; i++) {
        const sn_kernel_call *c = &e->call[i];
        if (family && strcmp(family, c->family) != 0) continue;
        s.calls++;
        s.barriers += c->barrier;
        s.flops += c->flops;
        s.bytes += c->bytes;
        s.written += c->result_bytes;
        if (e->seconds) s.seconds += e->seconds[i];
    }
    return s;
}

static void diff_row(FILE *f, const char *what, double a, double b) {
    char text[2][32];
    char ratio[32] = "";
    if (a > 0 && b > 0) snprintf(ratio, sizeof ratio, "%.3g times", a / b);
    fprintf(f, "  %-28s %12s %12s   %s\n", what, scaled(a, text[0]), scaled(b, text[1]), ratio);
}

static bool seen_before(const explain_entry *e, int i) {
    for (int k = 0; k < i; k++)
        if (!strcmp(e->call[k].family, e->call[i].family)) return true;
    return false;
}

static void diff_families(FILE *f, const explain_entry *from, const explain_entry *a,
                          const explain_entry *b, bool also_in_a) {
    for (int i = 0; i < from->n; i++) {
        const char *family = from->call[i].family;
        sums x = sum_of(a, family), y = sum_of(b, family);
        if (seen_before(from, i) || (x.calls > 0) != also_in_a) continue;
        char what[64];
        snprintf(what, sizeof what, "calls of %s", family);
        diff_row(f, what, x.calls, y.calls);
        if (a->seconds && b->seconds)
            diff_row(f, "    their time, µs", 1e6 * x.seconds, 1e6 * y.seconds);
    }
}

void explain_diff(FILE *f, const explain_entry *a, const explain_entry *b, const char *name_a,
                  const char *name_b) {
    sums x = sum_of(a, NULL), y = sum_of(b, NULL);
    fprintf(f, "entry %s (%s)\n", a->name, a->sizes);
    fprintf(f, "  %-28s %11s %12s\n", "", name_a, name_b);
    if (a->seconds && b->seconds) {
        diff_row(f, "time of a run, µs", 1e6 * a->run_seconds, 1e6 * b->run_seconds);
        diff_row(f, "time of all calls, µs", 1e6 * x.seconds, 1e6 * y.seconds);
        diff_row(f, "not in kernels, µs", 1e6 * fmax(0, a->run_seconds - x.seconds),
                 1e6 * fmax(0, b->run_seconds - y.seconds));
    }
    diff_row(f, "kernel calls", x.calls, y.calls);
    diff_row(f, "barriers", x.barriers, y.barriers);
    diff_row(f, "FLOP of products", x.flops, y.flops);
    diff_row(f, "bytes read and written", x.bytes, y.bytes);
    diff_row(f, "bytes written by kernels", x.written, y.written);
    diff_families(f, a, a, b, true);
    diff_families(f, b, a, b, false);
    if (a->seconds && b->seconds) {
        char text[SN_BENCH_NOISE_TEXT];
        if (*sn_bench_noise_text(fmax(a->others, b->others), fmax(a->stolen, b->stolen), text))
            fprintf(f, "note: %s\n", text);
    }
}
