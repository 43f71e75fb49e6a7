/* check_report.c: the list of what was checked, and how far numbers are apart; see check.h. */
#include "tools/run/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void check_report_free(check_report *r) {
    free(r->cell);
    *r = (check_report){0};
}

bool check_holds(const check_report *r) {
    bool ok = r->n > 0;
    for (int i = 0; i < r->n; i++) ok &= r->cell[i].holds;
    return ok;
}

bool check_in_bf16(const check_options *o) {
    return !strncmp(o->compute, "bf16", 4);
}

double check_tolerance(const check_options *o) {
    return fmax(o->tolerance, check_in_bf16(o) ? 0x1p-7 : 0);
}

double check_distance(const check_options *o, double got, double want) {
    if (isfinite(got) && isfinite(want)) return fabs(got - want);
    return got == want || (o->allow_nan && isnan(got) && isnan(want)) ? 0 : INFINITY;
}

check_cell *check_add(check_report *r, const char *entry, const char *of, const char *check) {
    for (int i = 0; i < r->n; i++) {
        check_cell *c = &r->cell[i];
        if (!strcmp(c->entry, entry) && !strcmp(c->of, of) && !strcmp(c->check, check)) return c;
    }
    if (r->n == r->room) {
        int room = r->room ? 2 * r->room : 32;
        check_cell *more = realloc(r->cell, sizeof *more * (size_t)room);
        if (!more) return NULL;
        r->cell = more;
        r->room = room;
    }
    check_cell *c = &r->cell[r->n++];
    *c = (check_cell){.error = NAN, .holds = true};
    snprintf(c->entry, sizeof c->entry, "%s", entry);
    snprintf(c->of, sizeof c->of, "%s", of);
    snprintf(c->check, sizeof c->check, "%s", check);
    return c;
}
