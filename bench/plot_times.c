/* plot_times.c: bars of time for each measurement, with their speed-ups. */
#include "bench/compare.h"
#include "bench/svg.h"

#include <math.h>
#include <string.h>

enum { LEFT = 20, TOP = 28, NAMES = 170, BARS = 440, BAR = 20, GAP = 26 };

static bool new_group(const sn_bench_report *r, int i) {
    return !i || strcmp(r->list[i].name, r->list[i - 1].name) != 0 ||
           strcmp(r->list[i].shape, r->list[i - 1].shape) != 0;
}

/* To the end of its whisker. */
static double longest(const sn_bench_record *x) {
    return fmax(x->ms_median, x->ms_high);
}

/* The longest time of the group that begins at i. */
static double slowest(const sn_bench_report *r, const sn_bench_report *old, int i) {
    double ms = 0;
    for (int k = i; k < r->n && (k == i || !new_group(r, k)); k++) {
        const sn_bench_record *base = old ? sn_bench_baseline(r, old, &r->list[k]) : NULL;
        ms = fmax(ms, fmax(longest(&r->list[k]), base ? longest(base) : 0));
    }
    return ms;
}

/* A bar of the median, with a whisker that spans the interval of the median. */
static void draw_bar(FILE *f, const sn_bench_record *x, double scale, int y, const char *colour,
                     const char *who) {
    double left = LEFT + NAMES, middle = y + (BAR - 4) / 2.0;
    fprintf(f, "<text x='%d' y='%d' text-anchor='end' fill='#444'>", LEFT + NAMES - 8, y + BAR - 6);
    sn_bench_svg_text(f, who);
    fprintf(f, "</text><rect x='%d' y='%d' width='%.1f' height='%d' fill='%s'/>", LEFT + NAMES, y,
            x->ms_median * scale, BAR - 4, colour);
    fprintf(f,
            "<path class='whisker' d='M%.1f %.1fH%.1fM%.1f %.1fv6M%.1f %.1fv6' stroke='#e65100' "
            "stroke-width='1.5' fill='none'/>",
            left + x->ms_low * scale, middle, left + x->ms_high * scale, left + x->ms_low * scale,
            middle - 3, left + x->ms_high * scale, middle - 3);
    fprintf(f, "<text x='%.1f' y='%d'>%.4g ms", left + longest(x) * scale + 6, y + BAR - 6,
            x->ms_median);
}

static void draw_record(FILE *f, const sn_bench_report *r, const sn_bench_report *old, int i,
                        double scale, int *y) {
    const sn_bench_record *x = &r->list[i], *base = sn_bench_baseline(r, old, x);
    char who[64];
    if (x->level >= 0)
        snprintf(who, sizeof who, "%s level %d", x->backend, x->level);
    else
        snprintf(who, sizeof who, "%s", x->backend);
    if (old && base) {
        draw_bar(f, base, scale, *y, "#bdbdbd", "before");
        fputs("</text>\n", f);
        *y += BAR;
    }
    draw_bar(f, x, scale, *y, sn_bench_svg_colour(x), who);
    if (base) {
        sn_bench_gain g = sn_bench_compare(base, x, !old, 1, 0);
        fprintf(f, "<tspan dx='10' font-weight='bold'>%.3g×</tspan> (%.3g to %.3g)", g.gain, g.low,
                g.high);
    }
    fputs("</text>\n", f);
    *y += BAR;
}

int sn_bench_times_height(const sn_bench_report *r, const sn_bench_report *old) {
    int groups = 0;
    for (int i = 0; i < r->n; i++) groups += new_group(r, i);
    return TOP + groups * GAP + r->n * (old ? 2 : 1) * BAR + 20;
}

void sn_bench_draw_times(FILE *f, const sn_bench_report *r, const sn_bench_report *old, int y) {
    fprintf(f,
            "<text x='%d' y='%d' font-size='14'>Median time, with its interval as a line, and "
            "speed-up %s, with its interval</text>\n",
            LEFT, y + 20, old ? "from before to now" : "over the lowest level");
    y += TOP;
    for (int i = 0; i < r->n; i++) {
        if (new_group(r, i)) {
            fprintf(f, "<text x='%d' y='%d' font-weight='bold'>", LEFT, y + GAP - 10);
            sn_bench_svg_text(f, r->list[i].name);
            fputc(' ', f);
            sn_bench_svg_text(f, r->list[i].shape);
            fputs("</text>\n", f);
            y += GAP;
        }
        int first = i;
        while (!new_group(r, first)) first--;
        double all = slowest(r, old, first);
        draw_record(f, r, old, i, all > 0 ? BARS / all : 0, &y);
    }
}
