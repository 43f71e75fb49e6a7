/* plan.c: what must be measured for a plan, and all of its points. */
#include "model/plan/plan.h"

#include "bench/noise.h"
#include "runtime/memory.h"

static void add_rows(int64_t *list, int *n, int64_t rows) {
    for (int i = 0; i < *n; i++)
        if (list[i] == rows) return;
    if (*n < PLAN_ROWS) list[(*n)++] = rows;
}

static void add_level(int *list, int *n, int level) {
    for (int i = 0; i < *n; i++)
        if (list[i] == level) return;
    if (*n < PLAN_LEVELS) list[(*n)++] = level;
}

/* Slices of how many rows there are, and how many ranks run at the same time on a machine. */
static bool find_sizes(const plan_request *r, int64_t *rows, int *n_rows, int *level, int *n_level,
                       sn_error *err) {
    for (int i = 0; i < r->n; i++) {
        int64_t batch, slices;
        plan_divide(r, r->ranks[i], &batch, &slices);
        for (int64_t k = 0; k < slices; k++) add_rows(rows, n_rows, plan_rows(batch, slices, k));
        add_level(level, n_level, plan_level(r, r->ranks[i]));
    }
    return (*n_rows < PLAN_ROWS && *n_level < PLAN_LEVELS) ||
           sn_fail(err, SN_ERR_USAGE,
                   "these ranks need slices of more than %d different sizes: plan fewer of them at "
                   "a time (--ranks)",
                   PLAN_ROWS - 1);
}

/* Whether a slice can be measured, with `together` ranks in this machine's memory; by the first of
 * the team. */
static bool choose_speed(plan *p, plan_team *team, const int64_t *rows, int n_rows, int together,
                         sn_error *err) {
    int64_t largest = 1;
    plan look = {.r = p->r};
    bool ok = true;
    for (int i = 0; i < n_rows; i++) largest = rows[i] > largest ? rows[i] : largest;
    p->measured = p->r->speed != PLAN_ROOFLINE;
    if (p->r->speed == PLAN_AUTO && plan_team_rank(team) == 0) {
        plan_team *alone = plan_team_start(1, err);
        ok = alone && plan_measure(&look, alone, largest, NULL, 0, 1, err);
        if (ok)
            p->measured = together * (look.fixed + look.gradients + look.memory[0].workspace) <
                          0.8 * (double)sn_memory_available();
        if (alone) plan_team_end(alone, err);
        plan_team_raise(team, !p->measured);
        plan_free(&look);
    }
    ok = ok && plan_team_meet(team, err);
    p->measured = p->measured && !plan_team_raised(team);
    return ok && plan_team_meet(team, err);
}

bool plan_make(const plan_request *r, plan *out, sn_error *err) {
    int64_t rows[PLAN_ROWS];
    int level[PLAN_LEVELS], n_rows = 0, n_level = 0, together = 1;
    *out = (plan){.r = r};
    for (int i = 0; i < r->n; i++)
        if (r->ranks[i] % plan_shares(r))
            return sn_fail(err, SN_ERR_USAGE,
                           "--tensor %d: %d ranks cannot be divided into groups of that many: give "
                           "multiples of %d (--ranks)",
                           plan_shares(r), r->ranks[i], plan_shares(r));
    if (!find_sizes(r, rows, &n_rows, level, &n_level, err)) return false;
    for (int i = 0; i < n_level; i++) together = level[i] > together ? level[i] : together;
    const sn_bench_noise noise = sn_bench_noise_begin();
    double stolen;
    plan_team *team = plan_team_start(r->speed == PLAN_ROOFLINE ? 1 : together, err);
    if (!team) return false;
    bool ok = choose_speed(out, team, rows, n_rows, together, err);
    if (ok && !out->measured) { /* one process estimates */
        plan_team_end(team, err);
        team = plan_team_start(1, err);
        if (!team) return false;
    }
    for (int i = 0; ok && i < n_rows; i++)
        ok = plan_measure(out, team, rows[i], level, n_level, 1, err);
    ok = ok && plan_team_meet(team, err);
    plan_team_end(team, err); /* of the first only: the others end here */
    ok = ok && plan_measure_carry(out, err);
    sn_bench_noise_end(&noise, &out->others, &stolen);
    for (int i = 0; ok && i < r->n; i++) {
        plan divided = {.r = r};
        plan_point *o = &out->point[i];
        bool divides = (r->settings->zero > 0 && r->ranks[i] > 1) || plan_shares(r) > 1;
        o->ranks = r->ranks[i];
        ok = (!divides || plan_divided(out, o->ranks, &divided, err)) &&
             plan_predict(divides ? &divided : out, o, err);
        plan_free(&divided);
    }
    return ok;
}
