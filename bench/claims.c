/* claims.c: verdicts on what a run measured, and on two runs of the same, see claims.h. */
#include "bench/claims.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Claim n of a list, which may be NULL. Returns n + 1. */
static int add_claim(const sn_bench_report *r, const sn_bench_record *x,
                     const sn_bench_record *base, double floor, sn_bench_claim *list, int n) {
    if (!list) return n + 1;
    list[n] = (sn_bench_claim){x, base, sn_bench_compare(base, x, true, 0, floor)};
    sn_bench_refuse_busy(r, &list[n].gain);
    return n + 1;
}

/* Whether record i was timed twice, and no earlier one of its rounds: there is one in each measurement. */
static bool is_twin(const sn_bench_report *r, int i) {
    bool first = r->list[i].again.n > 0;
    for (int j = 0; j < i && first; j++)
        first = !r->list[j].again.n || !sn_bench_same_rounds(&r->list[i], &r->list[j]);
    return first;
}

int sn_bench_claims(const sn_bench_report *r, sn_bench_claim *list) {
    int n = 0;
    for (int i = 0; i < r->n; i++) {
        const sn_bench_record *x = &r->list[i], *plain = NULL;
        if (!is_twin(r, i)) continue;
        for (int j = 0; j < r->n; j++) {
            const sn_bench_record *y = &r->list[j];
            if (y == x || !sn_bench_same_rounds(x, y)) continue;
            n = add_claim(r, x, y, x->floor_pct, list, n);
            if (y->level == 0 && !strcmp(x->backend, y->backend)) plain = y;
        }
        for (int j = 0; j < r->n && plain; j++)
            if (r->list[j].unfused && sn_bench_same_rounds(x, &r->list[j]))
                n = add_claim(r, plain, &r->list[j], x->floor_pct, list, n);
    }
    return n;
}

/* "native level 4", or a peer */
static const char *name_of(const sn_bench_record *x, char name[48]) {
    snprintf(name, 48, x->level >= 0 ? "%s level %d" : "%s", x->backend, x->level);
    return name;
}

static int print_claim(FILE *f, const sn_bench_claim *c, int width) {
    char x[48], base[48], text[256];
    snprintf(text, sizeof text, "%s %s: %s over %s", c->x->name, c->x->shape, name_of(c->x, x),
             name_of(c->base, base));
    return f ? fprintf(f, "%-*s", width, text) : (int)strlen(text);
}

static const char *class_of(const sn_bench_gain *g) {
    return g->verdict == SN_BENCH_REFUSED  ? "refused"
           : g->verdict == SN_BENCH_FASTER ? "supported: faster"
           : g->verdict == SN_BENCH_SLOWER ? "supported: slower"
                                           : "not distinguishable";
}

static sn_bench_claim *claims_of(const sn_bench_report *r, int *n, int *width) {
    sn_bench_claim *list = calloc((size_t)sn_bench_claims(r, NULL) + 1, sizeof *list);
    *width = 5;
    *n = list ? sn_bench_claims(r, list) : 0;
    for (int i = 0; i < *n; i++) {
        int w = print_claim(NULL, &list[i], 0);
        *width = w > *width ? w : *width;
    }
    return list;
}

void sn_bench_print_claims(const sn_bench_report *r, FILE *f) {
    int n, width;
    sn_bench_claim *list = claims_of(r, &n, &width);
    if (n)
        fprintf(f, "\n%-*s  %8s  %-18s %6s  %s\n", width, "claim", "times", "95 % interval",
                "A/A %", "verdict");
    for (int i = 0; i < n; i++) {
        const sn_bench_gain *g = &list[i].gain;
        print_claim(f, &list[i], width);
        fprintf(f, "  %8.3f  %7.3f to %-7.3f %6.2f  %s%s%s\n", g->gain, g->low, g->high, g->bound,
                class_of(g), *g->why ? ": " : "", g->why);
    }
    free(list);
}

/* The claim of list [n] of `now` like one of `old`. NULL: none. */
static const sn_bench_claim *find(const sn_bench_report *now, const sn_bench_claim *list, int n,
                                  const sn_bench_report *old, const sn_bench_claim *c) {
    const sn_bench_record *x = sn_bench_counterpart(now, old, c->x),
                          *base = sn_bench_counterpart(now, old, c->base);
    for (int j = 0; j < n; j++)
        if (list[j].x == x && list[j].base == base) return &list[j];
    return NULL;
}

sn_bench_repeated sn_bench_print_repeated(const sn_bench_report *old, const sn_bench_report *now,
                                          FILE *f) {
    sn_bench_repeated done = {0};
    int n, width, n_now, width_now;
    sn_bench_claim *list = claims_of(old, &n, &width), *again = claims_of(now, &n_now, &width_now);
    if (n)
        fprintf(f, "%-*s  %8s  %-19s  %8s  %-19s  %s\n", width, "claim", "before", "verdict", "now",
                "verdict", "repeated");
    for (int i = 0; i < n; i++) {
        const sn_bench_claim *c = find(now, again, n_now, old, &list[i]);
        const sn_bench_gain *was = &list[i].gain;
        sn_bench_gain is = {NAN, .verdict = SN_BENCH_REFUSED, .why = "not measured"};
        if (c) is = c->gain;
        sn_bench_refuse_caches(now, old, &is);
        const char *before = class_of(was), *after = class_of(&is);
        print_claim(f, &list[i], width);
        fprintf(f, "  %8.3f  %-19s  ", was->gain, before);
        char gain[16] = "-";
        if (c) snprintf(gain, sizeof gain, "%.3f", is.gain);
        fprintf(f, "%8s  %-19s  ", gain, after);
        if (*was->why || *is.why) {
            fprintf(f, "refused: %s%s\n", *was->why ? "before: " : "",
                    *was->why ? was->why : is.why);
            done.refused++;
        } else if (!strcmp(before, after)) {
            fputs("equal verdict\n", f);
            done.equal++;
        } else {
            fputs("different verdict\n", f);
            done.different++;
        }
    }
    free(list);
    free(again);
    return done;
}
