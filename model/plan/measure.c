/* measure.c: what a slice of a batch costs on this machine. Slices are made as a rank makes them,
 * by as many processes as the machine would have ranks, and timed: those that keep their gradients,
 * one that ends the step, with the moments at which that one starts sums and waits for them. Where
 * memory does not suffice, or if the user asks for it, operations and bytes of the calls are
 * compared with the machine's limits instead. */
#include "model/plan/plan.h"

#include "bench/probe.h"
#include "codegen/program/program.h"
#include "codegen/program/sizes.h"
#include "ir/ir.h"
#include "model/open.h"
#include "passes/plan/collectives.h"
#include "runtime/clock.h"
#include "runtime/memory.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Slices that are made together, and the depth of their tree. */
enum { SLICES = 4, DEPTH = 2 };
enum { MAX_RUNS = 40, LEAST_RUNS = 3, EVENTS = 1 << 18 };

/* Times are those of the round in the middle: what disturbs the machine for a second spoils one of them. */
enum { ROUNDS = 3 };

/* No further run of a round begins after so many seconds. */
static const double max_seconds = 0.4;

typedef struct measuring {
    plan *p;
    plan_team *team;
    int64_t rows;
    const int *level;
    int n_level;
} measuring;

static bool no_memory(sn_error *err) {
    return sn_fail(err, SN_ERR_MEMORY, "out of memory");
}

/* ---- the step's collectives ---- */

/* How much of a tensor each collective sends; see plan_sum. */
static const struct traffic {
    sn_op op;
    double passes;
    int rounds;
} traffic[] = {{SN_OP_all_reduce, 2, 2},
               {SN_OP_all_gather, 1, 1},
               {SN_OP_reduce_scatter, 1, 1},
               {SN_OP_all_to_all, 1, 1},
               {SN_OP_collective_broadcast, 1, 1}};

static double view_bytes(sn_module *m, const sn_view *v, const int64_t *symbol) {
    int64_t n = sn_dim_eval(m, sn_dim_product(m, v->rank, v->shape), symbol);
    return (double)n * (double)sn_dtype_size(v->dtype);
}

static void describe_sum(sn_module *m, const sn_step *s, const int64_t *symbol, plan_sum *out) {
    double in = view_bytes(m, &s->in[0], symbol), result = view_bytes(m, &s->out[0], symbol);
    *out = (plan_sum){.bytes = fmax(in, result), .passes = 2, .rounds = 2};
    out->within = !strcmp(sn_attr_str(s->node, SN_A_mesh, ""), "tensor");
    for (size_t i = 0; i < sizeof traffic / sizeof *traffic; i++)
        if (traffic[i].op == (sn_op)s->node->op)
            out->passes = traffic[i].passes, out->rounds = traffic[i].rounds;
}

static bool takes_time(const sn_step *s) {
    return sn_step_is_collective(s) && s->node->op != SN_OP_own_part;
}

/* The number of the collective that step i of the plan waits for. step: the entry that leaves some. */
static int sum_of(const sn_plan *plan, int i, const sn_plan *step) {
    const sn_step *s = plan->call[i];
    bool left = s->wait == SN_WAIT_LEFT;
    const sn_plan *from = left ? step : plan;
    int count = 0, found = 0;
    for (int k = 0; k < (left ? from->n_call : i); k++) {
        if (!takes_time(from->call[k]) || from->call[k]->wait) continue;
        if (from->call[k]->node == s->node && (left || sn_plan_wait_of(plan, k) == i))
            found = count;
        count++;
    }
    return found;
}

static bool find_events(const sn_plan *plan, const sn_plan *step, const int64_t *symbol,
                        plan_program *out, sn_error *err) {
    out->sum = calloc((size_t)plan->n_call + 1, sizeof *out->sum);
    out->event = calloc((size_t)plan->n_call + 1, sizeof *out->event);
    bool ok = (out->sum && out->event) || no_memory(err);
    for (int i = 0; ok && i < plan->n_call; i++) {
        const sn_step *s = plan->call[i];
        if (!takes_time(s) || s->wait == SN_WAIT_LEAVE) continue;
        int sum = s->wait ? sum_of(plan, i, step) : out->n_sum++;
        if (!s->wait) describe_sum(plan->m, s, symbol, &out->sum[sum]);
        out->event[out->n_event++] = (plan_event){i, sum, s->wait};
    }
    return ok;
}

static bool find_collectives(plan *p, const train_probe *q, const int64_t *symbol, sn_error *err) {
    const sn_compiled_entry *slice = sn_program_entry(q->program, "accumulate");
    const sn_plan *step = sn_program_entry(q->program, "train_step")->code.plan;
    if (!find_events(step, step, symbol, &p->step, err) ||
        (slice && !find_events(slice->code.plan, step, symbol, &p->slice, err)))
        return false;
    for (int i = 0; i < p->step.n_sum; i++)
        if (!p->step.sum[i].within) p->gradients += p->step.sum[i].bytes;
    return true;
}

/* ---- memory ---- */

static double slots(const sn_plan *plan, const int64_t *symbol) {
    int64_t *offset = calloc((size_t)plan->n_slot + 1, sizeof *offset);
    if (offset) sn_plan_offsets(plan, symbol, offset);
    double all = offset ? (double)offset[plan->n_slot] : 0;
    free(offset);
    return all;
}

/* Of parameters that are trained and states: all of them; the gradients of a slice. */
static void add_fixed(plan *q, const sn_program *p) {
    q->fixed = q->partial = 0;
    for (int i = 0; i < p->n_leaf; i++) {
        const sn_leaf *l = &p->leaf[i];
        int64_t n;
        bool is_state = l->state || sn_program_trained(p, l->name);
        if (!is_state ||
            !sn_dim_is_const(p->m, sn_dim_product(p->m, l->node->rank, l->node->shape), &n))
            continue;
        double bytes = (double)n * (double)sn_dtype_size((sn_dtype)l->node->dtype);
        q->fixed += bytes;
        if (!strncmp(l->name, "gradient.", 9)) q->partial += bytes;
    }
}

static void add_memory(measuring *w, const train_probe *q, const int64_t *symbol) {
    plan *p = w->p;
    double maximum = 0;
    for (int i = 0; i < q->program->n_entry; i++)
        maximum = fmax(maximum, slots(q->program->entry[i].code.plan, symbol));
    if (q->session) maximum = fmax(maximum, (double)sn_session_workspace(q->session));
    p->memory[p->n_memory++] = (plan_memory){w->rows, maximum};
    add_fixed(p, q->program);
}

/* ---- measured ---- */

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The mean of the middle half, which other programs have disturbed the least; sorts the list. */
static double middle(double *list, int n) {
    int first = n / 4, last = n - n / 4;
    double sum = 0;
    qsort(list, (size_t)n, sizeof *list, ascending);
    for (int i = first; i < last; i++) sum += list[i];
    return sum / (last - first);
}

/* The standard deviation of a normal distribution with the same middle half; sorts the list. */
static double deviation(double *list, int n) {
    const double width = 1.349;
    qsort(list, (size_t)n, sizeof *list, ascending);
    return (list[n - 1 - n / 4] - list[n / 4]) / width;
}

/* The moments of the events, as shares of the step: means over the runs. */
static bool find_moments(const measuring *w, const sn_trace *trace, double *at, sn_error *err) {
    const plan *p = w->p;
    sn_trace_event *list;
    long n = sn_trace_events(trace, &list);
    if (n < 0) return no_memory(err);
    int runs = 0;
    double *zero = calloc((size_t)n + 1, sizeof *zero), *end = calloc((size_t)n + 1, sizeof *end);
    for (long i = 0; zero && end && i < n; i++) { /* by run and thread */
        int k = list[i].run;
        if (k >= runs) zero[k] = list[i].begin, runs = k + 1;
        zero[k] = fmin(zero[k], list[i].begin);
        end[k] = fmax(end[k], list[i].end);
    }
    for (long i = 0; zero && end && i < n; i++) {
        int k = list[i].run;
        for (int e = 0; e < p->step.n_event; e++)
            if (list[i].call == p->step.event[e].call && end[k] > zero[k])
                at[e] += (list[i].begin - zero[k]) / (end[k] - zero[k]) / runs;
    }
    bool ok = (zero && end) || no_memory(err);
    free(zero), free(end), free(list);
    return ok;
}

/* Seconds, without those in which other programs had the CPU of this thread. While threads wait for each
 * other it spins, so it never waits for a CPU by itself. ctx: -1, or the file in which Linux counts. */
static double own_time(void *ctx) {
    const int *file = ctx;
    char text[96] = "";
    double waited = 0, now = sn_clock();
    if (*file >= 0 && pread(*file, text, sizeof text - 1, 0) > 0) sscanf(text, "%*s %lf", &waited);
    return now - 1e-9 * waited;
}

/* Runs slices until the first member has measured; that one fills t. */
static bool run_slices(const measuring *w, const train_probe *q, plan_times *t, sn_error *err) {
    double slice[SLICES], all, together[MAX_RUNS], accumulate[MAX_RUNS], step[MAX_RUNS],
        added[MAX_RUNS];
    bool leads = plan_team_rank(w->team) == 0;
    int counts = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    const train_clock clock = {own_time, &counts};
    bool ok = train_probe_run(q, clock, 0, SLICES, slice, &all, err);
    sn_trace *trace = ok && leads ? sn_trace_begin(q->session, "train_step", EVENTS, err) : NULL;
    int n = 0;
    double begin = sn_clock();
    ok = ok && (trace || !leads);
    while (ok && leads ? n < MAX_RUNS && (n < LEAST_RUNS || sn_clock() - begin < max_seconds)
                       : ok && !plan_team_raised(w->team)) {
        ok = train_probe_run(q, clock, 0, SLICES, slice, &all, err);
        double last = slice[SLICES - 1], one = 0;
        ok = ok && train_probe_run(q, clock, SLICES - 1, SLICES, slice, &one, err);
        if (n == MAX_RUNS) continue;
        together[n] = all;
        accumulate[n] = (all - last) / (SLICES - 1), step[n] = one;
        added[n++] = (last - one) / DEPTH;
    }
    if (counts >= 0) close(counts);
    if (leads) plan_team_raise(w->team, true);
    if (ok && leads) {
        t->spread = deviation(together, n) / SLICES;
        t->accumulate = middle(accumulate, n);
        t->step = middle(step, n);
        t->add = fmax(middle(added, n), 0);
        ok = find_moments(w, trace, t->at, err);
        for (int e = 0; e < w->p->step.n_event; e++) t->at[e] *= t->step;
    }
    sn_trace_end(trace);
    return ok;
}

/* ---- estimated ---- */

/* Seconds of calls of an entry at the limits of a rank; those before each event in at. */
static bool estimate_entry(const train_probe *q, const char *entry, const plan_program *events,
                           const char *sizes, double peak, double stream, double *at, double *all,
                           sn_error *err) {
    const sn_kernel_call *call;
    int n = sn_program_calls(q->program, entry, sizes, &call, err), e = 0;
    if (n < 0) return false;
    *all = 0;
    for (int i = 0; i < n; i++) {
        if (e < events->n_event && events->event[e].call == i)
            at[e++] = *all;
        else
            *all += fmax(call[i].flops / peak, call[i].bytes / stream);
    }
    return true;
}

/* Operations and bytes a second of one of `level` ranks, measured once. */
static bool find_limits(plan *p, int level, double *peak, double *stream, sn_error *err) {
    enum { BUFFER = 256 << 20 };
    int i = 0, threads = p->r->compile.threads * level;
    while (i < p->n_limit && p->limit[i].level != level) i++;
    if (i == p->n_limit && i < PLAN_LEVELS) {
        p->limit[i].level = level;
        p->limit[i].peak = 1e9 * sn_probe_fma_peak(threads, 0.2) / level;
        p->limit[i].stream = 1e9 * sn_probe_read_bandwidth(threads, BUFFER) / level;
        p->n_limit++;
    }
    *peak = p->limit[i].peak, *stream = p->limit[i].stream;
    return (*peak > 0 && *stream > 0) ||
           sn_fail(err, SN_ERR_MEMORY, "cannot measure the limits of this machine");
}

static bool estimate(const measuring *w, const train_probe *q, const char *sizes, plan_times *t,
                     sn_error *err) {
    plan *p = w->p;
    double peak, stream;
    if (!find_limits(p, t->level, &peak, &stream, err)) return false;
    t->add = 3 * p->gradients / stream;
    if (!estimate_entry(q, "accumulate", &p->slice, sizes, peak, stream, t->slice_at,
                        &t->accumulate, err) ||
        !estimate_entry(q, "train_step", &p->step, sizes, peak, stream, t->at, &t->step, err))
        return false;
    t->accumulate += t->add;
    return true;
}

/* ---- both ---- */

/* With as many members of the team at work as the level says. */
static bool find_times(const measuring *w, const train_probe *q, const char *sizes, int level,
                       plan_times *t, sn_error *err) {
    *t = (plan_times){.rows = w->rows, .level = level};
    t->at = calloc((size_t)w->p->step.n_event + 1, sizeof *t->at);
    t->slice_at = calloc((size_t)w->p->slice.n_event + 1, sizeof *t->slice_at);
    bool ok = ((t->at && t->slice_at) || no_memory(err)) && plan_team_meet(w->team, err);
    bool runs = plan_team_rank(w->team) < level;
    if (ok && runs) ok = q->session ? run_slices(w, q, t, err) : estimate(w, q, sizes, t, err);
    ok = ok && plan_team_meet(w->team, err);
    if (ok && plan_team_rank(w->team) == 0) plan_team_raise(w->team, false);
    return ok && plan_team_meet(w->team, err);
}

static int by_length(const void *a, const void *b) {
    const plan_times *x = a, *y = b;
    double s = x->accumulate + x->step, t = y->accumulate + y->step;
    return (s > t) - (s < t);
}

/* Adds the times of the middle round to the plan's, with the mean spread, and frees the others. */
static void keep_middle(plan *p, plan_times *round, int rounds) {
    double spread = 0;
    for (int i = 0; i < rounds; i++) spread += round[i].spread / rounds;
    qsort(round, (size_t)rounds, sizeof *round, by_length);
    round[rounds / 2].spread = spread;
    p->times[p->n_times++] = round[rounds / 2];
    for (int i = 0; i < rounds; i++) {
        if (i == rounds / 2) continue;
        free(round[i].at);
        free(round[i].slice_at);
    }
}

/* Fewer ranks at work never make a slice slower: where times of ascending levels say so, it is noise. */
static void limit_times(const plan *p, plan_times *t, int n) {
    for (int k = n - 2; k >= 0; k--) {
        double faster = fmin(1, t[k + 1].step / t[k].step);
        t[k].accumulate = fmin(t[k].accumulate, t[k + 1].accumulate);
        t[k].step *= faster;
        for (int e = 0; e < p->step.n_event; e++) t[k].at[e] *= faster;
    }
}

static bool probe(void *ctx, const train_probe *q, sn_error *err) {
    measuring *w = ctx;
    plan *p = w->p;
    const train_settings *s = p->r->settings;
    char sizes[256];
    sn_module *m = q->module;
    int64_t *symbol = calloc((size_t)sn_symbol_count(m) + 1, sizeof *symbol);
    if (!symbol) return no_memory(err);
    model_sizes(m, w->rows, s->data.block, sizes, sizeof sizes);
    sn_sizes_middle(m, symbol);
    snprintf(p->model, sizeof p->model, "%s", q->type);
    p->parameters = q->parameters, p->flops = q->flops;
    bool ok = sn_sizes_read(m, "sizes", sizes, symbol, err) &&
              (p->step.event || find_collectives(p, q, symbol, err));
    /* it has compiled: the others find its kernels in the disk cache */
    if (ok && plan_team_rank(w->team) == 0) ok = plan_team_meet(w->team, err);
    plan_times round[PLAN_LEVELS][ROUNDS];
    const int rounds = q->session ? ROUNDS : 1, n = ok ? w->n_level : 0;
    memset(round, 0, sizeof round);
    for (int i = 0; ok && i < rounds; i++)
        for (int k = 0; ok && k < n; k++)
            ok = find_times(w, q, sizes, w->level[k], &round[k][i], err);
    for (int k = 0; k < n; k++) keep_middle(p, round[k], rounds);
    if (ok && n) limit_times(p, &p->times[p->n_times - n], n);
    if (ok) add_memory(w, q, symbol);
    free(symbol);
    return ok;
}

bool plan_measure(plan *p, plan_team *team, int64_t rows, const int *level, int n_level, int ranks,
                  sn_error *err) {
    measuring w = {.p = p, .team = team, .rows = rows, .level = level, .n_level = n_level};
    train_settings *s = p->r->settings;
    sn_options o = p->r->compile;
    int64_t batch = s->data.batch, slices = s->slices;
    bool leads = plan_team_rank(team) == 0;
    o.plan_only = !p->measured;
    if (!leads) o.advance = NULL, o.progress = NULL;
    if (!leads && !plan_team_meet(team, err)) return false; /* see probe */
    int64_t together =
        ranks > 1 ? 2 * plan_groups(p->r, ranks) : SLICES; /* so that a rank keeps gradients */
    int64_t tensor = s->tensor;
    s->data.batch = together * rows, s->slices = together;
    bool ok = train_probe_open(s, ranks, &o, probe, &w, err);
    s->data.batch = batch, s->slices = slices, s->tensor = tensor;
    return ok;
}

/* ---- what communication costs the CPU ---- */

typedef struct adder {
    sn_comm *comm;
    float *data;
    size_t n;
    double seconds, meet;
    bool ok;
} adder;

/* Of this thread: waiting takes none. */
static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *add_up(void *arg) {
    enum { TIMES = 5, SMALL = 16 };
    adder *a = arg;
    sn_comm_sum sum = {0};
    sn_error err = {0};
    double best = INFINITY;
    bool ok = true;
    for (int i = 0; ok && i < TIMES; i++) {
        bool done;
        ok = sn_comm_barrier(a->comm, &err);
        double begin = cpu_seconds();
        ok = ok && sn_comm_sum_start(&sum, a->comm, SN_REDUCE_EXACT, 2, a->data, a->n, &err) &&
             sn_comm_sum_test(&sum, true, &done, &err);
        best = fmin(best, cpu_seconds() - begin);
    }
    a->seconds = best;
    best = INFINITY;
    for (int i = 0; ok && i < 10 * TIMES; i++) {
        bool done;
        double begin = sn_clock();
        ok = sn_comm_sum_start(&sum, a->comm, SN_REDUCE_EXACT, 2, a->data, SMALL, &err) &&
             sn_comm_sum_test(&sum, true, &done, &err);
        best = fmin(best, sn_clock() - begin);
    }
    sn_comm_sum_free(&sum);
    a->meet = best, a->ok = ok;
    return NULL;
}

bool plan_measure_carry(plan *p, sn_error *err) {
    enum { RANKS = 2, FLOATS = 4 << 20 };
    sn_comm *comm[RANKS];
    adder a[RANKS];
    pthread_t other;
    if (!sn_comm_simulate(RANKS, comm, err)) return false;
    bool ok = true;
    for (int i = 0; i < RANKS; i++) {
        a[i] = (adder){.comm = comm[i], .data = calloc(FLOATS, sizeof(float)), .n = FLOATS};
        ok &= a[i].data != NULL;
    }
    ok = ok && !pthread_create(&other, NULL, add_up, &a[1]);
    if (ok) {
        add_up(&a[0]);
        pthread_join(other, NULL);
        ok = a[0].ok && a[1].ok;
    }
    p->carry = a[0].seconds / (FLOATS * sizeof(float));
    p->meet = a[0].meet;
    for (int i = 0; i < RANKS; i++) {
        free(a[i].data);
        sn_comm_close(comm[i]);
    }
    return ok || no_memory(err);
}

/* ---- memory of a plan ---- */

static void free_program(plan_program *p) {
    free(p->sum);
    free(p->event);
}

void plan_free(plan *p) {
    for (int i = 0; i < p->n_times; i++) {
        free(p->times[i].at);
        free(p->times[i].slice_at);
    }
    free_program(&p->step);
    free_program(&p->slice);
}
