/* plot.c: the report as an SVG: the roofline with every record as a point, and bars of the share of
 * the limit that each level and peer reaches. */
#include "bench/svg.h"
#include "runtime/file.h"

#include <math.h>
#include <string.h>

enum { LEFT = 70, TOP = 50, WIDTH = 620, HEIGHT = 420, BAR = 15, GAP = 8, NAMES = 330, BARS = 420 };

static const char *const level_colours[] = {"#9e9e9e", "#90caf9", "#42a5f5", "#1976d2", "#0d47a1"};
static const char peer_colour[] = "#e65100", probe_colour[] = "#2e7d32";

const char *sn_bench_svg_colour(const sn_bench_record *x) {
    if (x->level >= 0) return level_colours[x->level];
    return strcmp(x->kind, "roofline") ? peer_colour : probe_colour;
}

void sn_bench_svg_text(FILE *f, const char *s) {
    for (; *s; s++) {
        if (*s == '<')
            fputs("&lt;", f);
        else if (*s == '&')
            fputs("&amp;", f);
        else
            fputc(*s, f);
    }
}

/* "layer_norm 1024x768, native level 4: 52 GFLOP/s, 91 % of the limit" as the tooltip of a shape. */
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
    double peak, stream;   /* highest measured, GFLOP/s and GB/s */
} axes;

static bool is_point(const sn_bench_record *x) {
    return x->flop > 0 && x->bytes > 0 && x->gflops > 0;
}

static bool find_axes(const sn_bench_report *r, axes *a) {
    *a = (axes){INFINITY, -INFINITY, INFINITY, -INFINITY, 0, 0};
    for (int i = 0; i < r->n; i++) {
        const sn_bench_record *x = &r->list[i];
        if (x->peak_gflops > a->peak) a->peak = x->peak_gflops;
        if (x->stream_gbytes_s > a->stream) a->stream = x->stream_gbytes_s;
        if (!is_point(x)) continue;
        double intensity = log10(x->flop / x->bytes), rate = log10(x->gflops);
        a->x0 = fmin(a->x0, intensity), a->x1 = fmax(a->x1, intensity);
        a->y0 = fmin(a->y0, rate);
    }
    if (!(a->peak > 0) || !isfinite(a->x0)) return false;
    a->x0 = floor(a->x0 - 0.1), a->x1 = ceil(a->x1 + 0.1);
    a->y0 = floor(a->y0), a->y1 = ceil(log10(a->peak) + 0.05);
    return true;
}

static double place_x(const axes *a, double v) {
    return LEFT + WIDTH * (log10(v) - a->x0) / (a->x1 - a->x0);
}

static double place_y(const axes *a, double v) {
    return TOP + HEIGHT * (1 - (log10(v) - a->y0) / (a->y1 - a->y0));
}

static void draw_grid(FILE *f, const axes *a) {
    for (double e = a->x0; e <= a->x1 + 0.5; e++) {
        double x = place_x(a, pow(10, e));
        fprintf(f,
                "<line x1='%.1f' y1='%d' x2='%.1f' y2='%d' stroke='#ddd'/>"
                "<text x='%.1f' y='%d' text-anchor='middle'>%g</text>\n",
                x, TOP, x, TOP + HEIGHT, x, TOP + HEIGHT + 18, pow(10, e));
    }
    for (double e = a->y0; e <= a->y1 + 0.5; e++) {
        double y = place_y(a, pow(10, e));
        fprintf(f,
                "<line x1='%d' y1='%.1f' x2='%d' y2='%.1f' stroke='#ddd'/>"
                "<text x='%d' y='%.1f' text-anchor='end'>%g</text>\n",
                LEFT, y, LEFT + WIDTH, y, LEFT - 6, y + 4, pow(10, e));
    }
    fprintf(f,
            "<text x='%d' y='%d' text-anchor='middle'>operations per byte</text>"
            "<text x='%d' y='%d'>GFLOP/s</text>\n",
            LEFT + WIDTH / 2, TOP + HEIGHT + 38, LEFT - 50, TOP - 12);
}

static void draw_roofline(FILE *f, const sn_bench_report *r, const axes *a) {
    draw_grid(f, a);
    double lo = pow(10, a->x0), hi = pow(10, a->x1), bottom = pow(10, a->y0);
    double knee = a->stream > 0 ? fmin(fmax(a->peak / a->stream, lo), hi) : lo;
    if (a->stream > 0) {
        double from = fmax(lo, bottom / a->stream);
        fprintf(f,
                "<line x1='%.1f' y1='%.1f' x2='%.1f' y2='%.1f' stroke='black' stroke-width='2'/>"
                "<text x='%d' y='%d'>%.3g GB/s</text>\n",
                place_x(a, from), place_y(a, fmin(from * a->stream, a->peak)), place_x(a, knee),
                place_y(a, fmin(knee * a->stream, a->peak)), LEFT + 8, TOP + HEIGHT - 10,
                a->stream);
    }
    fprintf(f,
            "<line x1='%.1f' y1='%.1f' x2='%d' y2='%.1f' stroke='black' stroke-width='2'/>"
            "<text x='%d' y='%.1f' text-anchor='end'>%.4g GFLOP/s</text>\n",
            place_x(a, knee), place_y(a, a->peak), LEFT + WIDTH, place_y(a, a->peak),
            LEFT + WIDTH - 4, place_y(a, a->peak) - 6, a->peak);
    for (int i = 0; i < r->n; i++) {
        const sn_bench_record *x = &r->list[i];
        if (!is_point(x)) continue;
        fprintf(f, "<circle cx='%.1f' cy='%.1f' r='4.5' fill='%s' fill-opacity='0.8'>",
                place_x(a, x->flop / x->bytes), place_y(a, x->gflops), sn_bench_svg_colour(x));
        print_title(f, x);
        fputs("</circle>\n", f);
    }
}

/* ---- bars ---- */

/* Share of the limit; for records of the limits themselves, of the largest with the same unit. */
static double share_of(const sn_bench_report *r, const sn_bench_record *x) {
    if (!isnan(x->pct_roofline)) return x->pct_roofline;
    bool compute = !isnan(x->gflops);
    double max_rate = 0;
    for (int i = 0; i < r->n; i++)
        max_rate = fmax(max_rate, compute ? r->list[i].gflops : r->list[i].gbytes_s);
    return max_rate > 0 ? 100 * (compute ? x->gflops : x->gbytes_s) / max_rate : 0;
}

static int draw_bars(FILE *f, const sn_bench_report *r, int left, int y) {
    double scale = BARS / 100.0;
    for (int i = 0; i < r->n; i++) {
        const sn_bench_record *x = &r->list[i];
        bool same = i && !strcmp(x->name, x[-1].name) && !strcmp(x->shape, x[-1].shape);
        if (!same) {
            y += GAP;
            fprintf(f, "<text x='%d' y='%d' text-anchor='end'>", left + NAMES - 100, y + BAR - 3);
            sn_bench_svg_text(f, x->name);
            fputc(' ', f);
            sn_bench_svg_text(f, x->shape);
            fputs("</text>\n", f);
        }
        double share = share_of(r, x);
        fprintf(f, "<text x='%d' y='%d' text-anchor='end' fill='#555'>", left + NAMES - 6,
                y + BAR - 3);
        sn_bench_svg_text(f, strcmp(x->kind, "roofline") ? x->backend : x->dtype);
        if (x->level >= 0) fprintf(f, " %d", x->level);
        fprintf(f, "</text><rect x='%d' y='%d' width='%.1f' height='%d' fill='%s'>", left + NAMES,
                y, fmin(share, 120) * scale, BAR - 2, sn_bench_svg_colour(x));
        print_title(f, x);
        fprintf(f, "</rect><text x='%.1f' y='%d'>%.0f %%</text>\n",
                left + NAMES + fmin(share, 120) * scale + 4, y + BAR - 3, share);
        y += BAR;
    }
    return y;
}

bool sn_bench_write_svg(const sn_bench_report *r, const char *path, sn_error *err) {
    sn_file *file = sn_file_create(path, err);
    if (!file) return false;
    FILE *f = sn_file_stream(file);
    axes a;
    bool roof = find_axes(r, &a);
    int left = roof ? LEFT + WIDTH + 40 : 20, groups = 0;
    for (int i = 0; i < r->n; i++)
        groups += !i || strcmp(r->list[i].name, r->list[i - 1].name) ||
                  strcmp(r->list[i].shape, r->list[i - 1].shape);
    int height = TOP + r->n * BAR + groups * GAP + 30;
    if (height < TOP + HEIGHT + 60) height = TOP + HEIGHT + 60;
    fprintf(f,
            "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' "
            "font-family='sans-serif' font-size='12'>\n<rect width='100%%' height='100%%' "
            "fill='white'/>\n<text x='%d' y='28' font-size='15'>Share of the measured limit, %%; "
            "blue: levels 0 to 4, orange: other systems</text>\n",
            left + NAMES + BARS * 6 / 5 + 70, height, left);
    if (roof) draw_roofline(f, r, &a);
    draw_bars(f, r, left, TOP - GAP);
    fputs("</svg>\n", f);
    return sn_file_commit(file, err);
}
