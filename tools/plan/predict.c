/* predict.c: ranks in step with each other. Each makes its slices; in the last one it starts sums,
 * which the network carries one after the other once all ranks have started them, and waits for
 * them. What moves and adds the bytes is a thread of each rank; where no CPU is idle, kernels wait
 * for it. */
#include "tools/plan/plan.h"

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
    *batch = r->rows ? r->rows * ranks : s->data.batch;
    if (*batch < ranks) *batch = ranks; /* a row each */
    *slices = s->slices > ranks ? s->slices : ranks;
    if (*slices > *batch) *slices = *batch;
    if (!plan_rounds(r, ranks)) return;
    int64_t rounds = 1;
    while (2 * rounds * ranks <= *slices) rounds *= 2;
    *slices = rounds * ranks;
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

typedef struct state {
    const plan *p;
    plan_point *out;
    int local, level;
    double turns;            /* how many times as long ranks take that share CPUs */
    double stolen;           /* share of communication's CPU time that kernels wait for */
    double *time;            /* [ranks] */
    const plan_times **last; /* [ranks] of the slice that ends the step */
    int *depth;              /* [ranks] sums of own slices that its gradients get */
} state;

static const plan_times *find_times(const state *q, int64_t rows) {
    const plan *p = q->p;
    const plan_times *t = p->times;
    while (t < p->times + p->n_times - 1 && (t->rows != rows || t->level != q->level)) t++;
    return t;
}

/* The slices of a rank before its last one. */
static void run_slices(state *q, int rank) {
    plan_point *o = q->out;
    if (plan_rounds(q->p->r, o->ranks)) { /* run_rounds makes them */
        o->own = o->slices / o->ranks;
        q->last[rank] = find_times(q, plan_rows(o->batch, o->slices, o->slices - o->ranks + rank));
        return;
    }
    sn_leaves span = sn_leaves_of_rank(o->slices, o->ranks, rank), half[2];
    for (int64_t i = span.first; i + 1 < span.last; i++)
        q->time[rank] += find_times(q, plan_rows(o->batch, o->slices, i))->accumulate * q->turns;
    q->last[rank] = find_times(q, plan_rows(o->batch, o->slices, span.last - 1));
    if (span.last - span.first > o->own) o->own = span.last - span.first;
    int64_t sums = span.last - span.first - 1; /* of two slices each */
    for (q->depth[rank] = 0; span.last - span.first > 1; span = half[1], q->depth[rank]++)
        sn_leaves_split(span, half);
    q->time[rank] += (double)(sums - q->depth[rank]) * q->last[rank]->add * q->turns;
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

/* Ranks never take the same time: all wait for one that is late. Its delay grows with the root of
 * its slices, of which two were measured together. */
static void delay_last(state *q) {
    int last = q->out->ranks - 1;
    if (!last) return;
    double spread = q->last[last]->spread * sqrt((double)q->out->own / 2);
    q->time[last] += straggling(q->out->ranks) * spread * q->turns;
}

/* Bytes that a rank sends; over the network: those for other machines, of all ranks of this one. */
static double sent_by(const plan_point *o, const plan_sum *s) {
    return s->passes * s->bytes * (o->ranks - 1) / o->ranks;
}

/* Seconds that a sum keeps network and CPUs busy. */
static double duration(const state *q, const plan_sum *s, double *cpu) {
    const plan_point *o = q->out;
    const plan_net *net = &q->p->r->net;
    if (o->ranks == 1) return *cpu = 0;
    double sent = sent_by(o, s), others = o->ranks - q->local;
    double away = sent * others / (o->ranks - 1) * q->local;
    *cpu = sent * q->p->carry * q->turns;
    return fmax(away / net->bandwidth + s->rounds * others * net->gap, *cpu);
}

static double latest(const state *q) {
    double t = 0;
    for (int r = 0; r < q->out->ranks; r++) t = fmax(t, q->time[r]);
    return t;
}

static void start_sum(state *q, const plan_sum *s, double *end, double *network_free) {
    const plan *p = q->p;
    const plan_point *o = q->out;
    double cpu, takes = duration(q, s, &cpu), share = s->bytes / p->gradients;
    for (int r = 0; r < o->ranks; r++)
        q->time[r] += q->depth[r] * share * q->last[r]->add * q->turns;
    double begin = fmax(latest(q), *network_free);
    bool away = o->ranks > q->local;
    *network_free = begin + takes;
    *end = begin + takes + (away ? s->rounds * p->r->net.latency : 0);
    q->out->network += takes;
    for (int r = 0; r < o->ranks; r++) q->time[r] += q->stolen * cpu;
}

/* What the network does. */
typedef struct network {
    double free;        /* from then on */
    double busy, begun; /* time in which sums were under way, for rank 0 */
    int under_way;
} network;

/* Makes a slice on each rank, the last one or another, with its collectives. */
static bool run_entry(state *q, const plan_program *p, bool last, network *net, sn_error *err) {
    plan_point *o = q->out;
    double *end = calloc((size_t)p->n_sum + 1, sizeof *end);
    if (!end) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (int e = 0; e <= p->n_event; e++) {
        const plan_event *v = &p->event[e];
        for (int r = 0; r < o->ranks; r++) {
            const plan_times *t = q->last[r];
            const double *at = last ? t->at : t->slice_at;
            double until = e < p->n_event ? at[e] : last ? t->step : t->accumulate;
            q->time[r] += (until - (e ? at[e - 1] : 0)) * q->turns;
        }
        if (e == p->n_event) break;
        if (!v->wait) {
            if (!net->under_way++) net->begun = q->time[0];
            start_sum(q, &p->sum[v->sum], &end[v->sum], &net->free);
            o->sent += sent_by(o, &p->sum[v->sum]);
            continue;
        }
        o->waited += fmax(end[v->sum] - q->time[0], 0);
        for (int r = 0; r < o->ranks; r++) q->time[r] = fmax(q->time[r], end[v->sum]);
        if (!--net->under_way) net->busy += q->time[0] - net->begun;
    }
    free(end);
    return true;
}

static bool run_step(state *q, sn_error *err) {
    const plan *p = q->p;
    plan_point *o = q->out;
    network net = {0};
    bool ok = true;
    for (int64_t k = 1; ok && plan_rounds(p->r, o->ranks) && k < o->own; k++)
        ok = run_entry(q, &p->slice, false, &net, err);
    ok = ok && run_entry(q, &p->step, true, &net, err);
    o->hidden = net.busy > 0 && o->ranks > 1 ? 1 - o->waited / net.busy : 0;
    o->step = latest(q);
    if (o->ranks > q->local) o->step += 2 * p->r->net.latency; /* losses of all ranks */
    return ok;
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
    q.local = o->ranks < r->per_machine ? o->ranks : r->per_machine;
    q.level = plan_level(r, o->ranks);
    q.turns = q.local > q.level ? (double)q.local / q.level : 1;
    double idle = r->cpus - q.local * r->compile.threads;
    q.stolen = idle > 0 ? fmax(0, 1 - idle / q.local) : 1;
    q.time = calloc(n, sizeof *q.time);
    q.last = calloc(n, sizeof *q.last);
    q.depth = calloc(n, sizeof *q.depth);
    bool ok = (q.time && q.last && q.depth) || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (int k = 0; ok && k < o->ranks; k++) run_slices(&q, k);
    if (ok) delay_last(&q);
    ok = ok && run_step(&q, err);
    int64_t length = s->data.block * (s->data.task == SN_TASK_PAIRS ? 2 : 1);
    o->tokens = (double)(o->batch * length * s->training.accumulate) / o->step;
    o->memory = memory_of(p, o);
    free(q.time), free(q.last), free(q.depth);
    return ok;
}
