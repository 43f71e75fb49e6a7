/* plot.c: a report as an SVG: the roofline with ceilings and a point for each record, and bars of
 * time (plot_times.c). */
#include "bench/compare.h"
#include "bench/noise.h"
#include "bench/svg.h"
#include "runtime/cli/drawing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    DOT = 7,
    LEFT = 70,
    TOP = 132,
    WIDTH = 780,
    HEIGHT = 420,
    RIGHT = 30,
    MAX_LABELS = 24,
    LINE = 14
};

/* "layer_norm 1024x768, native level 4: …" as the tooltip of a shape. */
static void print_title(FILE *f, const sn_bench_record *x) {
    fputs("<title>", f);
    sn_bench_svg_text(f, x->name);
    fputc(' ', f);
    sn_bench_svg_text(f, x->shape);
    fprintf(f, ", %s", x->backend);
    if (x->level >= 0) fprintf(f, " level %d", x->level);
    fprintf(f, ": %.4g ms, %.4g GFLOP/s, %.3g %% of the limit</title>", x->ms_median, x->gflops,
            x->pct_roofline);
}

/* ---- the roofline: FLOP per byte against FLOP per second, both logarithmic ---- */

typedef struct axes {
    double x0, x1, y0, y1; /* powers of ten */
} axes;

static bool is_limit(const sn_bench_record *x) {
    return !strcmp(x->kind, "roofline");
}

/* FLOP per byte: of the bytes that the kernels of the level read and write, as in a report; of peers, whose
 * kernels are unknown, of the unavoidable ones. */
static double intensity(const sn_bench_record *x) {
    return x->flop / (x->traffic > 0 ? x->traffic : x->bytes);
}

static bool is_point(const sn_bench_record *x) {
    return !is_limit(x) && x->flop > 0 && x->bytes > 0 && x->gflops > 0;
}

/* A ceiling: GFLOP/s (horizontal) or GB/s (a slope). */
typedef struct ceiling {
    double rate;
    bool slope;
    char name[64];
} ceiling;

enum { MAX_CEILINGS = 24 };

/* The limits of all threads; of other reports the greatest probes beside the work. */
static int find_ceilings(const sn_bench_report *r, ceiling *list) {
    int n = 0, threads = 0;
    double peak = 0, stream = 0;
    for (int i = 0; i < r->n; i++) {
        const sn_bench_record *x = &r->list[i];
        threads = x->threads > threads ? x->threads : threads;
        peak = fmax(peak, x->peak_gflops > 0 ? x->peak_gflops : 0);
        stream = fmax(stream, x->stream_gbytes_s > 0 ? x->stream_gbytes_s : 0);
    }
    for (int i = 0; i < r->n && n < MAX_CEILINGS; i++) {
        const sn_bench_record *x = &r->list[i];
        bool slope = x->gbytes_s > 0;
        if (!is_limit(x) || x->threads < threads || (slope && strcmp(x->name, "read") != 0))
            continue;
        list[n] = (ceiling){slope ? x->gbytes_s : x->gflops, slope, ""};
        snprintf(list[n++].name, sizeof list->name,
                 slope ? "%.20s: %.3g GB/s" : "%.12s %.4g GFLOP/s", slope ? x->shape : x->dtype,
                 slope ? x->gbytes_s : x->gflops);
    }
    if (peak > 0) {
        list[n] = (ceiling){peak, false, ""};
        snprintf(list[n++].name, sizeof list->name, "f32 peak %.4g GFLOP/s", peak);
    }
    if (stream > 0) {
        list[n] = (ceiling){stream, true, ""};
        snprintf(list[n++].name, sizeof list->name, "streaming the same bytes %.3g GB/s", stream);
    }
    if (r->read_gbytes_s > 0 && peak > 0) {
        list[n] = (ceiling){r->read_gbytes_s, true, ""};
        snprintf(list[n++].name, sizeof list->name, "main memory %.3g GB/s", r->read_gbytes_s);
    }
    return n;
}

static double highest(const ceiling *c, int n, bool slope) {
    double v = 0;
    for (int i = 0; i < n; i++)
        if (c[i].slope == slope) v = fmax(v, c[i].rate);
    return v;
}

/* Half a decade around what is drawn. False: nothing to draw. */
static bool find_axes(const sn_bench_report *r, const ceiling *c, int n, axes *a) {
    double peak = highest(c, n, false), stream = highest(c, n, true);
    if (peak <= 0) return false;
    double knee = stream > 0 ? peak / stream : 1;
    *a = (axes){log10(knee), log10(knee), log10(peak), log10(peak)};
    if (r->n && is_limit(&r->list[0])) a->x0 -= 2, a->y0 -= 2;
    for (int i = 0; i < n; i++) /* every slope up to the peak */
        if (c[i].slope) a->x1 = fmax(a->x1, log10(peak / c[i].rate));
    for (int i = 0; i < r->n; i++) {
        if (!is_point(&r->list[i])) continue;
        double at = log10(intensity(&r->list[i])), rate = log10(r->list[i].gflops);
        a->x0 = fmin(a->x0, at), a->x1 = fmax(a->x1, at);
        a->y0 = fmin(a->y0, rate), a->y1 = fmax(a->y1, rate);
    }
    a->x0 -= 0.5, a->x1 += 0.5, a->y0 -= 0.3, a->y1 += 0.15;
    return true;
}

static double place_x(const axes *a, double log) {
    return LEFT + WIDTH * (log - a->x0) / (a->x1 - a->x0);
}

static double place_y(const axes *a, double log) {
    return TOP + HEIGHT * (1 - (log - a->y0) / (a->y1 - a->y0));
}

/* The next value to mark on an axis: powers of ten, with 2 and 5 between them if the axis is short. */
static double next_mark(double log, double range) {
    double power = pow(10, floor(log + 1e-9)), times = pow(10, log) / power;
    bool all = range < 2;
    return log10(power * (all && times < 1.5 ? 2 : all && times < 4 ? 5 : 10));
}

static void draw_grid(FILE *f, const axes *a, bool points) {
    double width = a->x1 - a->x0, height = a->y1 - a->y0;
    for (double e = floor(a->x0); e <= a->x1; e = next_mark(e, width)) {
        if (e < a->x0) continue;
        fprintf(f,
                "<line x1='%.1f' y1='%d' x2='%.1f' y2='%d' stroke='#ddd'/>"
                "<text x='%.1f' y='%d' text-anchor='middle'>%g</text>\n",
                place_x(a, e), TOP, place_x(a, e), TOP + HEIGHT, place_x(a, e), TOP + HEIGHT + 18,
                pow(10, e));
    }
    for (double e = floor(a->y0); e <= a->y1; e = next_mark(e, height)) {
        if (e < a->y0) continue;
        fprintf(f,
                "<line x1='%d' y1='%.1f' x2='%d' y2='%.1f' stroke='#ddd'/>"
                "<text x='%d' y='%.1f' text-anchor='end'>%g</text>\n",
                LEFT, place_y(a, e), LEFT + WIDTH, place_y(a, e), LEFT - 6, place_y(a, e) + 4,
                pow(10, e));
    }
    fprintf(f,
            "<rect x='%d' y='%d' width='%d' height='%d' fill='none' stroke='#999'/>"
            "<text x='%d' y='%d' text-anchor='middle'>FLOP per byte%s</text>"
            "<text x='%d' y='%d'>GFLOP/s</text>\n",
            LEFT, TOP, WIDTH, HEIGHT, LEFT + WIDTH / 2, TOP + HEIGHT + 38,
            points ? " that the kernels read and write" : "", LEFT - 50, TOP - 10);
}

/* The place of ceiling i's label: one after those of earlier ceilings that lie so close that the labels would
 * meet. */
static int label_place(const axes *a, const ceiling *c, int i) {
    int place = 0;
    for (int k = 0; k < i; k++) {
        double apart = fabs(place_y(a, log10(c[k].rate)) - place_y(a, log10(c[i].rate)));
        bool meet = c[k].slope == c[i].slope && apart < (c[i].slope ? 2 * LINE : LINE);
        int after = meet ? label_place(a, c, k) + 1 : 0;
        place = after > place ? after : place;
    }
    return place;
}

static void draw_ceiling(FILE *f, const axes *a, const ceiling *c, double peak, int shift) {
    double x0 = a->x0, y0 = log10(c->rate), x1 = a->x1, y1 = y0;
    if (c->slope) {
        y0 = log10(c->rate) + x0;
        if (y0 < a->y0) x0 += a->y0 - y0, y0 = a->y0;
        x1 = fmin(log10(peak) - log10(c->rate), a->x1), y1 = log10(c->rate) + x1;
    }
    double px = place_x(a, x0), py = place_y(a, y0), qx = place_x(a, x1), qy = place_y(a, y1);
    fprintf(f,
            "<line x1='%.1f' y1='%.1f' x2='%.1f' y2='%.1f' stroke='black' stroke-width='1.6'/>\n",
            px, py, qx, qy);
    double angle = atan2(qy - py, qx - px) * 180 / 3.14159265358979;
    double along = 8 + 110 * shift; /* of a slope, to the right */
    fprintf(f, "<text transform='translate(%.1f %.1f) rotate(%.1f)' dy='-5' %s>",
            c->slope ? px + along : qx - 6 - 140 * shift,
            c->slope ? py + along * tan(angle / 57.29578) : qy, angle,
            c->slope ? "" : "text-anchor='end'");
    sn_bench_svg_text(f, c->name);
    fputs("</text>\n", f);
}

/* A label per work, at its fastest point; from the top down, none on another. */
typedef struct label {
    const sn_bench_record *x;
    double px, py, y;
} label;

static int from_top(const void *a, const void *b) {
    const label *x = a, *y = b;
    return (x->py > y->py) - (x->py < y->py);
}

static bool same_work(const sn_bench_record *a, const sn_bench_record *b) {
    return !strcmp(a->name, b->name) && !strcmp(a->shape, b->shape);
}

static void draw_labels(FILE *f, const sn_bench_report *r, const axes *a) {
    label list[MAX_LABELS];
    int n = 0;
    for (int i = 0; i < r->n; i++) {
        const sn_bench_record *x = &r->list[i];
        int k = 0;
        if (!is_point(x)) continue;
        while (k < n && !same_work(list[k].x, x)) k++;
        if (k == MAX_LABELS) return; /* too many to read: the tooltips have the names */
        if (k == n) list[n++].x = x;
        if (x->gflops >= list[k].x->gflops) list[k].x = x;
    }
    for (int k = 0; k < n; k++) {
        list[k].px = place_x(a, log10(intensity(list[k].x)));
        list[k].py = place_y(a, log10(list[k].x->gflops));
    }
    qsort(list, (size_t)n, sizeof *list, from_top);
    for (int k = 0; k < n; k++) {
        list[k].y = list[k].py - DOT;
        if (k) list[k].y = fmax(list[k].y, list[k - 1].y + LINE);
        bool right = list[k].px > LEFT + WIDTH * 2 / 3;
        double x = list[k].px + (right ? -12 : 12);
        fprintf(f, "<line x1='%.1f' y1='%.1f' x2='%.1f' y2='%.1f' stroke='#aaa'/>", list[k].px,
                list[k].py, x, list[k].y - 4);
        fprintf(f, "<text x='%.1f' y='%.1f' text-anchor='%s'>", x, list[k].y,
                right ? "end" : "start");
        sn_bench_svg_text(f, list[k].x->name);
        fputc(' ', f);
        sn_bench_svg_text(f, list[k].x->shape);
        fputs("</text>\n", f);
    }
}

/* The point of the same work with the same options at the highest level, if x has the lowest; or NULL. */
static const sn_bench_record *fused_of(const sn_bench_report *r, const sn_bench_record *x) {
    const sn_bench_record *top = x;
    for (int i = 0; i < r->n; i++) {
        const sn_bench_record *y = &r->list[i];
        if (!is_point(y) || y->level < 0 || !same_work(x, y) || strcmp(x->backend, y->backend) ||
            strcmp(x->dtype, y->dtype))
            continue;
        if (y->level < x->level) return NULL;
        if (y->level > top->level) top = y;
    }
    return top == x || x->level < 0 ? NULL : top;
}

/* From the lowest level to the highest, between the edges of both circles: what fusion changes. */
static void draw_arrows(FILE *f, const sn_bench_report *r, const axes *a) {
    fputs("<defs><marker id='tip' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='8' "
          "markerHeight='8' orient='auto'><path d='M0 0L8 4L0 8z' fill='#555'/></marker></defs>\n",
          f);
    for (int i = 0; i < r->n; i++) {
        const sn_bench_record *x = &r->list[i], *y = is_point(x) ? fused_of(r, x) : NULL;
        if (!y) continue;
        double px = place_x(a, log10(intensity(x))), py = place_y(a, log10(x->gflops)),
               qx = place_x(a, log10(intensity(y))), qy = place_y(a, log10(y->gflops)),
               length = hypot(qx - px, qy - py), edge = length > 4 * DOT ? DOT / length : 0;
        fprintf(f,
                "<line class='fusion' x1='%.1f' y1='%.1f' x2='%.1f' y2='%.1f' stroke='#555' "
                "marker-end='url(#tip)'/>\n",
                px + edge * (qx - px), py + edge * (qy - py), qx - edge * (qx - px),
                qy - edge * (qy - py));
    }
}

static void draw_points(FILE *f, const sn_bench_report *r, const axes *a) {
    for (int i = 0; i < r->n; i++) {
        const sn_bench_record *x = &r->list[i];
        if (!is_point(x)) continue;
        double px = place_x(a, log10(intensity(x))), py = place_y(a, log10(x->gflops));
        fprintf(f, "<circle cx='%.1f' cy='%.1f' r='%d' fill='%s' fill-opacity='0.85'>", px, py, DOT,
                sn_bench_svg_colour(x));
        print_title(f, x);
        fputs("</circle>\n", f);
        if (x->level >= 0)
            fprintf(f,
                    "<text x='%.1f' y='%.1f' text-anchor='middle' font-size='9' fill='%s' "
                    "pointer-events='none'>%d</text>\n",
                    px, py + 3, x->level > 1 ? "white" : "black", x->level);
    }
}

/* What the colours mean: the levels and whether there are peers. */
static void draw_legend(FILE *f, const sn_bench_report *r, int y) {
    int x = 20;
    for (int level = 0; level <= 4; level++) {
        bool any = false;
        for (int i = 0; i < r->n; i++) any |= r->list[i].level == level;
        if (!any) continue;
        fprintf(f,
                "<rect x='%d' y='%d' width='11' height='11' fill='%s'/><text x='%d' y='%d'>level "
                "%d</text>\n",
                x, y - 10, sn_bench_svg_level_colours[level], x + 16, y, level);
        x += 76;
    }
    for (int i = 0; i < r->n; i++) {
        if (r->list[i].level >= 0 || is_limit(&r->list[i])) continue;
        fprintf(f,
                "<rect x='%d' y='%d' width='11' height='11' fill='%s'/><text x='%d' y='%d'>other "
                "systems, at the unavoidable bytes</text>\n",
                x, y - 10, sn_bench_svg_peer_colour, x + 16, y);
        break;
    }
}

/* Below the subtitle: what makes the numbers doubtful, and how to read the points. */
static void draw_notes(FILE *f, const sn_bench_report *r, const sn_bench_report *old, bool points) {
    const sn_bench_report *busy = old && !sn_bench_busy(r->others, r->stolen) ? old : r;
    char noise[SN_BENCH_NOISE_TEXT];
    if (*sn_bench_noise_text(busy->others, busy->stolen, noise))
        fprintf(f, "<text x='20' y='66' fill='#b71c1c'>%s%s</text>\n",
                busy == old ? "the old run: " : "", noise);
    if (points)
        fputs("<text x='20' y='102' fill='#555'>above a slope: the operands are in a cache; an "
              "arrow leads from the lowest level to the highest</text>\n",
              f);
}

bool sn_bench_write_svg(const sn_bench_report *r, const sn_bench_report *old, const char *subtitle,
                        const char *path, sn_error *err) {
    drawing p;
    if (!sn_drawing_open(&p, path, err)) return false;
    FILE *f = p.f;
    ceiling c[MAX_CEILINGS + 3];
    axes a = {0};
    int n = find_ceilings(r, c);
    bool roof = find_axes(r, c, n, &a), limits = r->n && is_limit(&r->list[0]);
    int below = roof ? TOP + HEIGHT + 50 : TOP - 10;
    int height = limits ? below : below + sn_bench_times_height(r, old);
    fprintf(f,
            "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' "
            "font-family='sans-serif' font-size='12'>\n<rect width='100%%' height='100%%' "
            "fill='white'/>\n<text x='20' y='28' font-size='16'>%s</text>\n<text x='20' y='48' "
            "fill='#555'>",
            LEFT + WIDTH + RIGHT, height,
            limits ? "Roofline of this machine" : "Measurements, and the limits beside them");
    sn_bench_svg_text(f, subtitle);
    fputs("</text>\n", f);
    draw_notes(f, r, old, roof && !limits);
    if (!limits) draw_legend(f, r, 84);
    if (roof) {
        draw_grid(f, &a, !limits);
        for (int i = 0; i < n; i++)
            draw_ceiling(f, &a, &c[i], highest(c, n, false), label_place(&a, c, i));
        draw_labels(f, r, &a);
        draw_arrows(f, r, &a);
        draw_points(f, r, &a);
    }
    if (!limits) sn_bench_draw_times(f, r, old, below);
    fputs("</svg>\n", f);
    return sn_drawing_close(&p, err);
}
