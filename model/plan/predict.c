/* predict.c: ranks in step with each other. Each makes its slices; in the last one it starts sums,
 * which the network carries one after another once all ranks have started them, and waits for
 * them. What moves and adds the bytes is a thread of each rank; where no CPU is idle, kernels wait
 * for it. */
#include "model/plan/plan.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the network ---- */

typedef struct unit {
    const char *name;
    double factor;
} unit;

static const unit rates[] = {{"Gbit", 1e9 / 8},
                             {"Mbit", 1e6 / 8},
                             {"GB", 1e9},
                             {"MB", 1e6},
                             {NULL, 0}},
                  times[] = {{"ns", 1e-9}, {"us", 1e-6}, {"µs", 1e-6},
                             {"ms", 1e-3}, {"s", 1},     {NULL, 0}};

/* Reads a number and a unit; returns what follows, NULL: something else. */
static const char *read_unit(const char *text, const unit *list, double *out) {
    char *end;
    double v = strtod(text, &end);
    for (; end != text && list->name; list++) {
        size_t n = strlen(list->name);
        if (strncmp(end, list->name, n) != 0 || isalpha((unsigned char)end[n])) continue;
        *out = v * list->factor;
        return end + n;
    }
    return NULL;
}

bool plan_net_read(const char *text, plan_net *out, sn_error *err) {
    *out = (plan_net){.gap = 1e-6};
    const char *s = read_unit(text, rates, &out->bandwidth);
    if (s && *s == ',') s = read_unit(s + 1, times, &out->latency);
    if (s && *s == ',') s = read_unit(s + 1, times, &out->gap);
    bool ok = s && !*s && strchr(text, ',') && out->bandwidth >= 1e3 && out->bandwidth < 1e15 &&
              out->latency >= 0 && out->latency <= 10 && out->gap >= 0 && out->gap <= 1;
    return ok ||
           sn_fail(err, SN_ERR_USAGE,
                   "--net '%s': give bandwidth and latency, such as 25Gbit,10us (Gbit, Mbit, GB, "
                   "MB a second; ns, us, ms)",
                   text);
}

/* ---- the division ---- */

void plan_divide(const plan_request *r, int ranks, int64_t *batch, int64_t *slices) {
    const train_settings *s = r->settings;
    int64_t groups = plan_groups(r, ranks);
    *batch = r->rows ? r->rows * groups : s->data.batch;
    if (*batch < groups) *batch = groups; /* a row each */
    *slices = s->slices > groups ? s->slices : groups;
    if (*slices > *batch) *slices = *batch;
    if (!plan_rounds(r, ranks)) return;
    int64_t rounds = 1;
    while (2 * rounds * groups <= *slices) rounds *= 2;
    *slices = rounds * groups;
}

int plan_shares(const plan_request *r) {
    return r->settings->tensor > 1 ? (int)r->settings->tensor : 1;
}

int plan_groups(const plan_request *r, int ranks) {
    return ranks / plan_shares(r);
}

bool plan_rounds(const plan_request *r, int ranks) {
    return r->settings->zero > 1 && ranks > 1 && r->settings->training.accumulate <= 1;
}

int plan_level(const plan_request *r, int ranks) {
    int together = r->cpus / r->compile.threads,
        local = ranks < r->per_machine ? ranks : r->per_machine;
    if (together < 1) together = 1;
    return local < together ? local : together;
}

int64_t plan_rows(int64_t batch, int64_t slices, int64_t slice) {
    return batch * (slice + 1) / slices - batch * slice / slices;
}

/* ---- a step ---- */

/* The ranks of a group have the same times: what is counted below are groups. */
typedef struct state {
    const plan *p;
    plan_point *out;
    int local, level;
    int shares, groups;      /* ranks of a group, groups */
    double sharing;          /* how many times as long ranks take because they share CPUs */
    double stolen;           /* share of communication's CPU time that kernels wait for */
    double *time;            /* [groups] */
    const plan_times **last; /* [groups] of the slice that ends the step */
    int *depth;              /* [groups] sums of own slices that its gradients get */
    double *end;             /* [step.n_sum] of the step's sums */
    double *left;            /* [step.n_sum] of those of the step before; 0: this one's begin */
    /* from then on the network is free, and no sum is under way: of the step before, later of this one */
    double free, covered;
} state;

static const plan_times *find_times(const state *q, int64_t rows) {
    const plan *p = q->p;
    const plan_times *t = p->times;
    while (t < p->times + p->n_times - 1 && (t->rows != rows || t->level != q->level)) t++;
    return t;
}

/* The ranks that a sum joins, and how many of them one machine has. */
static int joined(const state *q, const plan_sum *s) {
    return s->within ? q->shares : q->groups;
}

static int joined_here(const state *q, const plan_sum *s) {
    if (s->within) return q->local < q->shares ? q->local : q->shares;
    return q->local > q->shares ? q->local / q->shares : 1;
}

/* Bytes that a rank sends; over the network: those for other machines, of all ranks of this one. */
static double sent_by(const state *q, const plan_sum *s) {
    return s->passes * s->bytes * (joined(q, s) - 1) / joined(q, s);
}

/* Seconds that a sum keeps network and CPUs busy. */
static double duration(const state *q, const plan_sum *s, double *cpu) {
    const plan_net *net = &q->p->r->net;
    int all = joined(q, s);
    if (all == 1) return *cpu = 0;
    double sent = sent_by(q, s), others = all - joined_here(q, s);
    double away = sent * others / (all - 1) * q->local;
    *cpu = sent * q->p->carry * q->sharing;
    return fmax(away / net->bandwidth + s->rounds * others * net->gap, *cpu);
}

static double latency(const state *q, const plan_sum *s) {
    return joined(q, s) > joined_here(q, s) ? s->rounds * q->p->r->net.latency : 0;
}

/* How much later the last of n ranks comes than the mean, in standard deviations of a normal
 * distribution: the integral of F - F^n over all values. */
static double straggling(int n) {
    const double step = 0.01;
    double sum = 0;
    for (double x = -6; x < 6; x += step) {
        double below = 0.5 * erfc(-x / sqrt(2));
        sum += step * (below - pow(below, n));
    }
    return sum;
}

/* A sum within a group, for which its ranks wait at once: for the messages, and for the rank that comes
 * last. Of a slice's deviation, the root of the sums' number is between two of them. */
static void add_within(state *q, int group, const plan_sum *s, const plan_program *p,
                       const plan_times *t) {
    int n = 0;
    if (!s->within) return;
    for (int k = 0; k < p->n_sum; k++) n += p->sum[k].within;
    double late = straggling(q->shares) * t->spread / sqrt(n);
    double cpu, takes = duration(q, s, &cpu) + latency(q, s) + q->p->meet * q->sharing + late;
    q->time[group] += takes;
    if (group) return;
    q->out->sent += sent_by(q, s);
    q->out->network += takes, q->out->busy += takes, q->out->waited += takes;
}

/* The rank's first slice waits for what the step before has left, where it uses that. */
static void wait_for_left(state *q, int rank, const plan_times *t) {
    const plan_program *p = &q->p->slice;
    for (int e = 0; e < p->n_event; e++) {
        if (p->event[e].wait != SN_WAIT_LEFT) continue;
        double late = q->left[p->event[e].sum] - q->time[rank] - t->slice_at[e] * q->sharing;
        if (late <= 0) continue;
        q->time[rank] += late;
        if (!rank) q->out->waited += late;
    }
}

/* How many sums of several slices are added to others while a rank keeps the span's sum, or adds it to
 * another; those of single slices are part of the slices' times. */
static int64_t kept_sums(sn_leaves span, bool add) {
    sn_leaves half[2];
    if (span.last - span.first == 1) return 0;
    sn_leaves_split(span, half);
    return kept_sums(half[0], false) + kept_sums(half[1], true) + add;
}

/* The slices of a rank before its last one. */
static void run_slices(state *q, int rank) {
    plan_point *o = q->out;
    if (plan_rounds(q->p->r, o->ranks)) { /* run_step makes them */
        o->own = o->slices / q->groups;
        q->last[rank] = find_times(q, plan_rows(o->batch, o->slices, o->slices - q->groups + rank));
        return;
    }
    sn_leaves span = sn_leaves_of_rank(o->slices, q->groups, rank), half[2];
    for (int64_t i = span.first; i + 1 < span.last; i++) {
        const plan_times *t = find_times(q, plan_rows(o->batch, o->slices, i));
        if (i == span.first) wait_for_left(q, rank, t);
        q->time[rank] += t->accumulate * q->sharing;
        for (int k = 0; k < q->p->slice.n_sum; k++)
            add_within(q, rank, &q->p->slice.sum[k], &q->p->slice, t);
    }
    q->last[rank] = find_times(q, plan_rows(o->batch, o->slices, span.last - 1));
    if (span.last - span.first > o->own) o->own = span.last - span.first;
    int64_t sums = 0;
    for (q->depth[rank] = 0; span.last - span.first > 1; span = half[1], q->depth[rank]++) {
        sn_leaves_split(span, half);
        sums += kept_sums(half[0], false);
    }
    q->time[rank] += (double)sums * q->last[rank]->add * q->sharing;
}

/* Ranks never take the same time: all wait for one that is late. What delays it lasts for longer than a
 * slice, so delays of a few slices add up; of more, as the root of their number. Ranks that share CPUs are
 * late together: their delays add up as the CPUs' times do. */
static void delay_last(state *q) {
    enum { FEW = 4 };
    int last = q->groups - 1;
    if (q->out->ranks < 2) return;
    double own = (double)q->out->own, slices = fmin(own, sqrt(FEW * own));
    int cpus = (int)(q->out->ranks / q->sharing + 0.5);
    q->time[last] += straggling(cpus) * q->last[last]->spread * slices * sqrt(q->sharing);
}

static double latest(const state *q) {
    double t = 0;
    for (int r = 0; r < q->groups; r++) t = fmax(t, q->time[r]);
    return t;
}

static void start_sum(state *q, const plan_sum *s, double *end) {
    const plan *p = q->p;
    plan_point *o = q->out;
    double cpu, takes = duration(q, s, &cpu), share = s->bytes / p->gradients, from = q->time[0];
    for (int r = 0; r < q->groups; r++)
        q->time[r] += q->depth[r] * share * q->last[r]->add * q->sharing;
    q->free = fmax(latest(q), q->free) + takes;
    *end = q->free + latency(q, s);
    o->network += takes;
    o->sent += sent_by(q, s);
    o->busy += fmax(*end - fmax(from, q->covered), 0);
    q->covered = fmax(q->covered, *end);
    for (int r = 0; r < q->groups; r++) q->time[r] += q->stolen * cpu;
}

/* Makes a slice on each rank, the last one or another, with its collectives. */
static void run_entry(state *q, const plan_program *p, bool last, double *end) {
    plan_point *o = q->out;
    for (int e = 0; e <= p->n_event; e++) {
        const plan_event *v = &p->event[e];
        for (int r = 0; r < q->groups; r++) {
            const plan_times *t = q->last[r];
            const double *at = last ? t->at : t->slice_at;
            double until = e < p->n_event ? at[e] : last ? t->step : t->accumulate;
            q->time[r] += (until - (e ? at[e - 1] : 0)) * q->sharing;
        }
        if (e == p->n_event) break;
        const plan_sum *sum = v->wait == SN_WAIT_LEFT ? NULL : &p->sum[v->sum];
        if (sum && sum->within) {
            for (int r = 0; r < q->groups && !v->wait; r++) add_within(q, r, sum, p, q->last[r]);
            continue;
        }
        if (!v->wait) {
            start_sum(q, &p->sum[v->sum], &end[v->sum]);
            continue;
        }
        double until = v->wait == SN_WAIT_LEFT ? q->left[v->sum] : end[v->sum];
        o->waited += fmax(until - q->time[0], 0);
        for (int r = 0; r < q->groups; r++) q->time[r] = fmax(q->time[r], until);
    }
}

/* A step after another one, which has left what q says; leaves that of this one there. */
static bool run_step(state *q, sn_error *err) {
    const plan *p = q->p;
    plan_point *o = q->out;
    double *end = calloc((size_t)p->slice.n_sum + 1, sizeof *end);
    if (!end) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    o->own = 0;
    o->sent = o->network = o->busy = o->waited = 0;
    memset(q->time, 0, sizeof *q->time * (size_t)q->groups);
    for (int k = 0; k < q->groups; k++) run_slices(q, k);
    delay_last(q);
    for (int64_t k = 1; plan_rounds(p->r, o->ranks) && k < o->own; k++)
        run_entry(q, &p->slice, false, end);
    run_entry(q, &p->step, true, q->end);
    o->hidden = o->busy > 0 && o->ranks > 1 ? 1 - o->waited / o->busy : 0;
    o->step = latest(q);
    if (o->ranks > q->local) o->step += 2 * p->r->net.latency; /* losses of all ranks */
    for (int i = 0; i < p->step.n_sum; i++) q->left[i] = q->end[i] - o->step;
    q->free -= o->step, q->covered -= o->step;
    free(end);
    return true;
}

/* Partial sums of a rank's slices: one for each level of its tree. */
static double memory_of(const plan *p, const plan_point *o) {
    enum { UNDER_WAY = 8 * (16 << 20) }; /* bytes of sums (engine.c) */
    int64_t rows = (o->batch + o->slices - 1) / o->slices;
    double all = p->fixed;
    for (int i = 0; i < p->n_memory; i++)
        if (p->memory[i].rows == rows) all += p->memory[i].workspace;
    for (int64_t n = o->own; n > 1; n = (n + 1) / 2) all += p->partial;
    if (plan_rounds(p->r, o->ranks) && o->own == 1) all -= p->partial; /* nothing is kept */
    return all + (o->ranks > 1 ? fmin(p->gradients, UNDER_WAY) : 0);
}

bool plan_predict(const plan *p, plan_point *o, sn_error *err) {
    const plan_request *r = p->r;
    const train_settings *s = r->settings;
    state q = {.p = p, .out = o};
    size_t n = (size_t)o->ranks;
    plan_divide(r, o->ranks, &o->batch, &o->slices);
    q.shares = plan_shares(r), q.groups = plan_groups(r, o->ranks);
    q.local = o->ranks < r->per_machine ? o->ranks : r->per_machine;
    q.level = plan_level(r, o->ranks);
    q.sharing = q.local > q.level ? (double)q.local / q.level : 1;
    double idle = r->cpus - q.local * r->compile.threads;
    q.stolen = idle > 0 ? fmax(0, 1 - idle / q.local) : 1;
    q.time = calloc(n, sizeof *q.time);
    q.last = calloc(n, sizeof *q.last);
    q.depth = calloc(n, sizeof *q.depth);
    q.end = calloc((size_t)p->step.n_sum + 1, sizeof *q.end);
    q.left = calloc((size_t)p->step.n_sum + 1, sizeof *q.left);
    bool ok = (q.time && q.last && q.depth && q.end && q.left) ||
              sn_fail(err, SN_ERR_MEMORY, "out of memory");
    ok = ok && run_step(&q, err) && run_step(&q, err);
    int64_t length = s->data.block * (s->data.task == SN_TASK_PAIRS ? 2 : 1);
    o->tokens = (double)(o->batch * length * s->training.accumulate) / o->step;
    o->memory = memory_of(p, o);
    free(q.time), free(q.last), free(q.depth), free(q.end), free(q.left);
    return ok;
}
