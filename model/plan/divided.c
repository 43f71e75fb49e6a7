/* divided.c: ranks that divide states, gradients or parameters (ZeRO). What such a step exchanges and needs
 * is that of its own plan. Its times are those of the step that divides nothing, as much longer or
 * shorter as its calls are at this machine's limits: most calls are the same. */
#include "model/plan/plan.h"

#include <string.h>

/* Estimates of the slices of that many ranks, which divide something or nothing. */
static bool look(const plan *p, int ranks, bool divide, plan *out, sn_error *err) {
    int64_t batch, slices;
    plan_divide(p->r, ranks, &batch, &slices);
    const int level = plan_level(p->r, ranks);
    int64_t done = 0;
    bool ok = true;
    for (int64_t k = 0; ok && k < slices; k++) {
        int64_t rows = plan_rows(batch, slices, k);
        if (rows == done) continue; /* sizes differ by 1 at most */
        bool known = false;
        for (int i = 0; i < out->n_times; i++) known |= out->times[i].rows == rows;
        done = rows;
        if (known) continue;
        plan_team *alone = plan_team_start(1, err);
        ok = alone && plan_measure(out, alone, rows, &level, 1, divide ? ranks : 1, err);
        if (alone) plan_team_end(alone, err);
    }
    return ok;
}

static const plan_times *same_times(const plan *p, const plan_times *t) {
    for (int i = 0; i < p->n_times; i++)
        if (p->times[i].rows == t->rows && p->times[i].level == t->level) return &p->times[i];
    return NULL;
}

static void scale(double *x, int n, double factor) {
    for (int i = 0; i < n; i++) x[i] *= factor;
}

bool plan_divided(const plan *p, int ranks, plan *out, sn_error *err) {
    plan whole = {.r = p->r};
    *out = (plan){.r = p->r, .measured = false};
    bool ok = look(p, ranks, false, &whole, err);
    out->n_limit = whole.n_limit;
    memcpy(out->limit, whole.limit, sizeof whole.limit);
    ok = ok && look(p, ranks, true, out, err);
    for (int i = 0; ok && i < out->n_times; i++) {
        plan_times *t = &out->times[i];
        const plan_times *w = same_times(&whole, t), *m = same_times(p, t);
        if (!w || !m) continue; /* p is an estimate itself */
        double step = m->step / w->step, slice = m->accumulate / w->accumulate;
        t->step *= step, t->accumulate *= slice, t->spread = m->spread, t->add = m->add;
        scale(t->at, out->step.n_event, step);
        scale(t->slice_at, out->slice.n_event, slice);
    }
    out->carry = p->carry, out->meet = p->meet;
    plan_free(&whole);
    return ok;
}
