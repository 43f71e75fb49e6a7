/* edit.c: see edit.h. */
#include "passes/plan/edit.h"

static bool touches(const sn_view *v, int n, int buffer) {
    for (int i = 0; i < n; i++)
        if (v[i].buffer == buffer) return true;
    return false;
}

bool sn_plan_uses(const sn_plan *p, int i, int buffer) {
    return touches(p->step[i].in, p->step[i].n_in, buffer) || sn_plan_writes(p, i, buffer);
}

bool sn_plan_writes(const sn_plan *p, int i, int buffer) {
    return touches(p->step[i].out, p->step[i].n_out, buffer);
}

int64_t sn_plan_elements(const sn_plan *p, int buffer) {
    int64_t count;
    return sn_dim_is_const(p->m, p->buffer[buffer].count, &count) ? count : 0;
}

void sn_plan_rename(sn_plan *p, int from, int to, int first, int last) {
    for (int i = first; i < last; i++) {
        const sn_step *s = &p->step[i];
        for (int k = 0; k < s->n_in + s->n_out; k++) {
            sn_view *v = sn_view_of(s, k);
            if (v->buffer == from) v->buffer = to;
        }
    }
}
