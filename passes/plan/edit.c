/* edit.c: see edit.h. */
#include "passes/plan/edit.h"
#include "passes/plan/row_blocks.h"
#include "passes/plan/scan.h"

#include <string.h>

static bool touches(const sn_view *v, int n, int buffer) {
    for (int i = 0; i < n; i++)
        if (v[i].buffer == buffer) return true;
    return false;
}

bool sn_plan_uses(const sn_plan *p, int i, int buffer) {
    const sn_step *s = &p->step[i];
    const sn_scan_loop *l = sn_scan_around(p, i); /* its steps use windows */
    return touches(s->in, s->n_in, buffer) || touches(s->out, s->n_out, buffer) ||
           (l && (touches(l->in, l->n_in, buffer) || touches(l->out, l->n_out, buffer)));
}

bool sn_plan_writes(const sn_plan *p, int i, int buffer) {
    const sn_step *s = &p->step[i];
    const sn_scan_loop *l = sn_scan_around(p, i);
    return touches(s->out, s->n_out, buffer) || (l && touches(l->out, l->n_out, buffer));
}

/* ---- loops ---- */

int sn_plan_outside(const sn_plan *p, int i) {
    const sn_row_loop *rows = i < p->n_step ? sn_row_blocks_loop(p, i) : NULL;
    const sn_scan_loop *scan = sn_scan_around(p, i);
    int first = scan ? scan->first : i;
    return rows && rows->first < first ? rows->first : first;
}

void sn_plan_move_loops(sn_plan *p, const int *moved) {
    for (int k = 0; k < p->n_loop; k++) {
        sn_row_loop *l = &p->loop[k];
        int by = moved[l->first] - l->first;
        l->first += by, l->last += by;
    }
    for (int k = 0; k < p->n_scan; k++) {
        sn_scan_loop *l = &p->scan[k];
        int by = moved[l->first] - l->first;
        l->first += by, l->begin += by, l->hoisted_end += by, l->end += by, l->last += by;
        if (l->recompute)
            l->recompute->restore_end += by, l->recompute->store_end += by,
                l->recompute->step_end += by;
    }
}

/* ---- buffers ---- */

static void rename_views(sn_view *v, int n, int from, int to) {
    for (int i = 0; i < n; i++)
        if (v[i].buffer == from) v[i].buffer = to;
}

static const sn_view *renamed(sn_module *m, const sn_view *v, int n, int from, int to) {
    if (!touches(v, n, from)) return v;
    sn_view *out = sn_arena_alloc(m, sizeof *out * (size_t)n);
    memcpy(out, v, sizeof *out * (size_t)n);
    rename_views(out, n, from, to);
    return out;
}

void sn_plan_rename(sn_plan *p, int from, int to, int first, int last) {
    for (int i = first; i < last; i++) {
        rename_views(p->step[i].in, p->step[i].n_in, from, to);
        rename_views(p->step[i].out, p->step[i].n_out, from, to);
    }
    for (int k = 0; k < p->n_scan; k++) {
        sn_scan_loop *l = &p->scan[k];
        if (l->first < first || l->first >= last) continue;
        l->in = renamed(p->m, l->in, l->n_in, from, to);
        l->out = renamed(p->m, l->out, l->n_out, from, to);
    }
}
