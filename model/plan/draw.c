/* draw.c: a plan as a picture: tokens a second by ranks, beside what they would be in proportion
 * to the ranks; and the parts of a step. */
#include "model/plan/plan.h"

#include "runtime/cli/drawing.h"

#include <math.h>
#include <stdlib.h>

enum { TOP = 70, LEFT = 80, WIDTH = 360, HEIGHT = 300, GAP = 110, BOTTOM = 60 };

static const char compute_colour[] = "#1976d2", wait_colour[] = "#e65100",
                  ideal_colour[] = "#9e9e9e";

typedef struct axes {
    double x0, x1, y0, y1; /* logarithms */
} axes;

static double ideal(const plan *p, int i) {
    const plan_point *first = &p->point[0];
    return first->tokens / first->ranks * p->point[i].ranks;
}

static double place_x(const axes *a, double ranks) {
    return LEFT + WIDTH * (log(ranks) - a->x0) / (a->x1 - a->x0);
}

static double place_y(const axes *a, double v) {
    return TOP + HEIGHT * (1 - (log(v) - a->y0) / (a->y1 - a->y0));
}

static axes find_axes(const plan *p) {
    int n = p->r->n;
    axes a = {log(p->point[0].ranks), log(p->point[n - 1].ranks), INFINITY, -INFINITY};
    for (int i = 0; i < n; i++) {
        a.y0 = fmin(a.y0, log(fmin(p->point[i].tokens, ideal(p, i))));
        a.y1 = fmax(a.y1, log(fmax(p->point[i].tokens, ideal(p, i))));
    }
    if (n == 1) a.x1 += 1;
    a.y0 -= 0.2, a.y1 += 0.2;
    return a;
}

/* Lines at 1, 2 and 5 times each power of ten. */
static void draw_grid(FILE *f, const axes *a) {
    static const int parts[] = {1, 2, 5};
    static const struct unit {
        double size;
        const char *name;
    } units[] = {{1e9, " G"}, {1e6, " M"}, {1e3, " k"}, {0, ""}};
    for (double d = floor(a->y0 / log(10)); d * log(10) <= a->y1; d++)
        for (int i = 0; i < 3; i++) {
            double v = parts[i] * pow(10, d);
            const struct unit *u = units;
            while (v < u->size) u++;
            if (log(v) < a->y0 || log(v) > a->y1) continue;
            fprintf(f,
                    "<path d='M%d %.1fh%d' stroke='#ddd'/><text x='%d' y='%.1f' "
                    "text-anchor='end'>%.4g%s</text>\n",
                    LEFT, place_y(a, v), WIDTH, LEFT - 6, place_y(a, v) + 4,
                    u->size > 0 ? v / u->size : v, u->name);
        }
}

static void draw_speed(FILE *f, const plan *p) {
    axes a = find_axes(p);
    draw_grid(f, &a);
    for (int k = 0; k < 2; k++) {
        fprintf(f, "<path fill='none' stroke='%s' stroke-width='2' d='",
                k ? compute_colour : ideal_colour);
        for (int i = 0; i < p->r->n; i++)
            fprintf(f, "%s%.1f %.1f", i ? "L" : "M", place_x(&a, p->point[i].ranks),
                    place_y(&a, k ? p->point[i].tokens : ideal(p, i)));
        fputs("'/>\n", f);
    }
    for (int i = 0; i < p->r->n; i++) {
        const plan_point *o = &p->point[i];
        fprintf(f,
                "<circle cx='%.1f' cy='%.1f' r='4' fill='%s'><title>%d ranks: %.4g tokens/s, %.3g "
                "%% of that in proportion to ranks</title></circle><text x='%.1f' y='%d' "
                "text-anchor='middle'>%d</text>\n",
                place_x(&a, o->ranks), place_y(&a, o->tokens), compute_colour, o->ranks, o->tokens,
                100 * o->tokens / ideal(p, i), place_x(&a, o->ranks), TOP + HEIGHT + 18, o->ranks);
    }
    fprintf(f,
            "<rect x='%d' y='%d' width='%d' height='%d' fill='none' stroke='#999'/><text x='%d' "
            "y='%d'>tokens/s</text><text x='%d' y='%d' fill='#777'>grey: in proportion "
            "to ranks</text><text x='%d' y='%d' text-anchor='middle'>ranks</text>\n",
            LEFT, TOP, WIDTH, HEIGHT, LEFT - 50, TOP - 8, LEFT + 40, TOP - 8, LEFT + WIDTH / 2,
            TOP + HEIGHT + 40);
}

/* A bar for each number of ranks: time of the step, and its share of waiting for the network. */
static void draw_step(FILE *f, const plan *p) {
    int left = LEFT + WIDTH + GAP, n = p->r->n;
    double maximum = 0, slot = (double)WIDTH / n;
    for (int i = 0; i < n; i++) maximum = fmax(maximum, p->point[i].step);
    for (int i = 0; i < n; i++) {
        const plan_point *o = &p->point[i];
        double all = HEIGHT * 0.95 * o->step / maximum, wait = HEIGHT * 0.95 * o->waited / maximum;
        double x = left + slot * (i + 0.2), base = TOP + HEIGHT;
        fprintf(f,
                "<rect x='%.1f' y='%.1f' width='%.1f' height='%.1f' fill='%s'/><rect x='%.1f' "
                "y='%.1f' width='%.1f' height='%.1f' fill='%s'><title>%.4g ms of %.4g ms: "
                "waits</title></rect><text x='%.1f' y='%.1f' text-anchor='middle'>%.3g</text>"
                "<text x='%.1f' y='%d' text-anchor='middle'>%d</text>\n",
                x, base - all + wait, slot * 0.6, all - wait, compute_colour, x, base - all,
                slot * 0.6, wait, wait_colour, 1e3 * o->waited, 1e3 * o->step, x + slot * 0.3,
                base - all - 4, 1e3 * o->step, x + slot * 0.3, TOP + HEIGHT + 18, o->ranks);
    }
    fprintf(f,
            "<path d='M%d %dh%d' stroke='#999'/><text x='%d' y='%d'>ms a step: <tspan "
            "fill='%s'>computation</tspan>, <tspan fill='%s'>waiting for other ranks</tspan></text>"
            "<text x='%d' y='%d' text-anchor='middle'>ranks</text>\n",
            left, TOP + HEIGHT, WIDTH, left, TOP - 8, compute_colour, wait_colour, left + WIDTH / 2,
            TOP + HEIGHT + 40);
}

bool plan_draw(const plan *p, const char *path, sn_error *err) {
    drawing d;
    if (!sn_drawing_open(&d, path, err)) return false;
    const plan_net *net = &p->r->net;
    fprintf(d.f,
            "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' "
            "font-family='sans-serif' font-size='12'>\n<rect width='100%%' height='100%%' "
            "fill='white'/>\n<text x='20' y='28' font-size='16'>%s, %.4g M parameters: training on "
            "ranks</text><text x='20' y='46' fill='#555'>%.3g Gbit/s and %.3g µs between machines, "
            "%d rank%s on each</text>\n",
            LEFT + 2 * WIDTH + GAP + 30, TOP + HEIGHT + BOTTOM, p->model,
            (double)p->parameters * 1e-6, net->bandwidth * 8e-9, net->latency * 1e6,
            p->r->per_machine, p->r->per_machine > 1 ? "s" : "");
    draw_speed(d.f, p);
    draw_step(d.f, p);
    fputs("</svg>\n", d.f);
    return sn_drawing_close(&d, err);
}
