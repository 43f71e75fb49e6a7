/* trace.c: what each kernel call cost on each thread: trace events for Perfetto, and a table. */
#include "codegen/program/visible.h"
#include "codegen/program/calls.h"
#include "runtime/clock.h"
#include "runtime/file.h"

#include <cJSON.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_THREADS = 256 };

typedef struct event {
    int32_t run, step, tid;
    double begin, end; /* seconds */
} event;

/* A run of an entry. Its calls are slots [first, first + n_step) of the table of calls. */
typedef struct traced_run {
    const sn_compiled_entry *entry;
    int64_t *symbol; /* [sn_symbol_count] */
    size_t first;
} traced_run;

/* What is said about the calls of an entry. */
typedef struct described {
    const sn_compiled_entry *entry;
    const char **name;        /* [n_call] arena memory */
    sn_call_formula *formula; /* [n_call] arena memory */
} described;

struct sn_trace {
    sn_profile hook;                /* first: the hook's address is the trace's */
    sn_session *session;            /* the trace is one of its owners */
    const sn_compiled_entry *entry; /* NULL: all */
    size_t cap;
    atomic_size_t n;
    event *list;
    traced_run *run;
    size_t n_run, cap_run, n_call; /* n_call: slots of all runs */
    bool skipped;                  /* the run under way is not traced */
    double open[MAX_THREADS];      /* by thread: when its kernel began */
};

static void mark(sn_profile *self, int64_t step, int64_t tid, int64_t end) {
    sn_trace *t = (sn_trace *)self;
    if (tid >= MAX_THREADS || t->skipped) return;
    if (!end) {
        t->open[tid] = sn_clock();
        return;
    }
    size_t i = atomic_fetch_add_explicit(&t->n, 1, memory_order_relaxed);
    if (i < t->cap)
        t->list[i] =
            (event){(int32_t)t->n_run - 1, (int32_t)step, (int32_t)tid, t->open[tid], sn_clock()};
}

/* Between runs: no thread marks. */
static void begin_run(sn_profile *self, const int64_t *symbol) {
    sn_trace *t = (sn_trace *)self;
    const sn_compiled_entry *e = sn_session_running(t->session);
    size_t bytes = sizeof *symbol * (size_t)(sn_symbol_count(e->code.plan->m) + 1);
    t->skipped = (t->entry && t->entry != e) || atomic_load(&t->n) >= t->cap;
    if (t->skipped) {
        if (!t->entry || t->entry == e) atomic_fetch_add(&t->n, (size_t)e->code.plan->n_call);
        return;
    }
    if (t->n_run == t->cap_run) {
        size_t cap = t->cap_run ? 2 * t->cap_run : 64;
        traced_run *grown = realloc(t->run, cap * sizeof *grown);
        if (grown) t->run = grown, t->cap_run = cap;
    }
    int64_t *copy = t->n_run < t->cap_run ? malloc(bytes) : NULL;
    t->skipped = !copy;
    if (!copy) return;
    memcpy(copy, symbol, bytes - sizeof *symbol);
    t->run[t->n_run++] = (traced_run){e, copy, t->n_call};
    t->n_call += (size_t)e->code.plan->n_call;
}

sn_trace *sn_trace_begin(sn_session *s, const char *entry, size_t events, sn_error *err) {
    if (!s) {
        sn_fail(err, SN_ERR_USAGE, "sn_trace_begin: the session is NULL");
        return NULL;
    }
    const sn_compiled_entry *e = entry ? sn_program_entry(sn_session_program(s), entry) : NULL;
    if (entry && !e) {
        sn_fail(err, SN_ERR_USAGE, "there is no entry '%s' to profile", entry);
        return NULL;
    }
    sn_trace *t = calloc(1, sizeof *t);
    event *list = calloc(events ? events : 1, sizeof *list);
    if (!t || !list) {
        free(t);
        free(list);
        sn_fail(err, SN_ERR_MEMORY, "out of memory for %zu events", events);
        return NULL;
    }
    t->hook.mark = mark;
    t->hook.begin = begin_run;
    t->session = sn_session_retain(s);
    t->entry = e;
    t->cap = events;
    t->list = list;
    sn_session_set_profile(s, &t->hook);
    return t;
}

static size_t count(const sn_trace *t) {
    size_t n = atomic_load(&t->n);
    return n < t->cap ? n : t->cap;
}

size_t sn_trace_lost(const sn_trace *t) {
    if (!t) return 0;
    return atomic_load(&t->n) - count(t);
}

/* ---- events with the waiting between them ---- */

static int by_thread(const void *a, const void *b) {
    const sn_trace_event *x = a, *y = b;
    if (x->run != y->run) return x->run - y->run;
    if (x->thread != y->thread) return x->thread - y->thread;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Whether a thread waits for others between calls `from` and `to`; from -1: at the beginning. */
static bool passes_barrier(const sn_plan *plan, int from, int to) {
    if (to <= from) return true; /* the next iteration of a loop */
    for (int i = from + 1; i <= to; i++)
        if (plan->call[i]->barrier) return true;
    return false;
}

/* Shorter gaps are the time between two calls. */
static const double least_wait = 1e-6;

static void add_wait(sn_trace_event *list, long *n, const sn_trace_event *like, double begin,
                     double end) {
    if (end - begin < least_wait) return;
    list[(*n)++] = (sn_trace_event){like->run, like->thread, -1, begin, end};
}

/* Adds the waiting to n sorted calls; returns the new number. room: for twice as many and one. */
static long add_waits(const sn_trace *t, sn_trace_event *list, long n) {
    long all = n;
    for (long i = 0, first = 0; i < n; i++) {
        const sn_trace_event *e = &list[i], *last = i > 0 ? e - 1 : NULL;
        const sn_plan *plan = t->run[e->run].entry->code.plan;
        if (!last || last->run != e->run) first = i;
        bool begins = !last || last->run != e->run || last->thread != e->thread;
        bool ends = i + 1 == n || e[1].run != e->run || e[1].thread != e->thread;
        double start = begins ? list[first].begin : last->end, stop = 0;
        if (passes_barrier(plan, begins ? -1 : last->call, e->call))
            add_wait(list, &all, e, start, e->begin);
        for (long k = first; ends && k < n && list[k].run == e->run; k++)
            stop = fmax(stop, list[k].end);
        if (ends) add_wait(list, &all, e, e->end, stop);
    }
    return all;
}

long sn_trace_events(const sn_trace *t, sn_trace_event **list) {
    *list = NULL;
    if (!t) return 0;
    size_t n = count(t);
    double zero = INFINITY; /* events lie in the order of their ends */
    sn_trace_event *out = calloc(3 * n + 1, sizeof *out);
    if (!out) return -1;
    for (size_t i = 0; i < n; i++) zero = fmin(zero, t->list[i].begin);
    for (size_t i = 0; i < n; i++) {
        const event *e = &t->list[i];
        int step = e->step % t->run[e->run].entry->code.plan->n_call;
        out[i] = (sn_trace_event){e->run, e->tid, step, e->begin - zero, e->end - zero};
    }
    qsort(out, n, sizeof *out, by_thread);
    long all = add_waits(t, out, (long)n);
    qsort(out, (size_t)all, sizeof *out, by_thread);
    *list = out;
    return all;
}

/* ---- names ---- */

/* The names and costs of all traced entries, in the program's arena; each is made once. */
typedef struct legend {
    const sn_trace *t;
    described *list;
    int n;
} legend;

static const described *look_up(const legend *l, const sn_compiled_entry *e) {
    for (int i = 0; i < l->n; i++)
        if (l->list[i].entry == e) return &l->list[i];
    return NULL;
}

static void describe(void *ctx) {
    legend *l = ctx;
    const sn_program *p = sn_session_program(l->t->session);
    l->list = sn_arena_alloc(p->m, sizeof *l->list * (size_t)(p->n_entry + 1));
    for (size_t r = 0; r < l->t->n_run; r++) {
        const sn_compiled_entry *e = l->t->run[r].entry;
        if (look_up(l, e)) continue;
        size_t n = (size_t)e->code.plan->n_call + 1;
        described *d = &l->list[l->n];
        *d = (described){e, sn_arena_alloc(p->m, n * sizeof *d->name),
                         sn_arena_alloc(p->m, n * sizeof *d->formula)};
        for (int i = 0; i < e->code.plan->n_call; i++) {
            d->name[i] = sn_call_name(p, e, i);
            d->formula[i] = sn_call_formula_of(p, &e->code, i);
        }
        l->n++;
    }
}

/* False: out of memory. */
static bool make_legend(legend *l, const sn_trace *t) {
    *l = (legend){.t = t};
    return sn_module_try(sn_session_program(t->session)->m, describe, l);
}

/* One line of trace JSON; false: out of memory. */
static bool print_event(FILE *f, const legend *l, const sn_trace_event *e, int process,
                        double later) {
    const sn_compiled_entry *entry = l->t->run[e->run].entry;
    const sn_kernel *k = e->call >= 0 ? &entry->code.kernel[e->call] : NULL;
    const char *where = k ? look_up(l, entry)->name[e->call] : "waiting";
    char name[480];
    snprintf(name, sizeof name, "%s %s %d", where, k ? sn_kernel_family_name(k) : "", e->call);
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "name", !k ? where : *where ? name : name + 1);
    cJSON_AddStringToObject(j, "cat", k ? sn_kernel_family_name(k) : "waiting");
    cJSON_AddStringToObject(j, "ph", "X");
    cJSON_AddNumberToObject(j, "pid", process);
    cJSON_AddNumberToObject(j, "tid", e->thread);
    cJSON_AddNumberToObject(j, "ts", (e->begin + later) * 1e6);
    bool ok = cJSON_AddNumberToObject(j, "dur", (e->end - e->begin) * 1e6) != NULL;
    cJSON *args = cJSON_AddObjectToObject(j, "args");
    cJSON_AddStringToObject(args, "entry", entry->code.plan->entry->name);
    if (k) {
        sn_loc loc = k->step->node->loc;
        cJSON_AddStringToObject(args, "kernel", k->name);
        cJSON_AddStringToObject(args, "file", loc.file ? loc.file : "");
        ok = cJSON_AddNumberToObject(args, "line", loc.line) != NULL;
    }
    char *text = ok ? cJSON_PrintUnformatted(j) : NULL;
    if (text) fputs(text, f);
    free(text);
    cJSON_Delete(j);
    return text != NULL;
}

double sn_trace_first(const sn_trace *t) {
    double zero = INFINITY;
    for (size_t i = 0; i < count(t); i++) zero = fmin(zero, t->list[i].begin);
    return zero;
}

bool sn_trace_print_process(const sn_trace *t, FILE *f, int process, const char *name, double later,
                            sn_error *err) {
    legend l;
    sn_trace_event *list;
    long n = sn_trace_events(t, &list);
    bool ok = n >= 0 && make_legend(&l, t);
    int threads = 0;
    for (long i = 0; i < n; i++) threads = list[i].thread >= threads ? list[i].thread + 1 : threads;
    fprintf(f, "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"%s\"}}",
            process, name);
    for (int i = 0; i < threads; i++)
        fprintf(f,
                ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,"
                "\"args\":{\"name\":\"thread %d\"}}",
                process, i, i);
    for (long i = 0; ok && i < n; i++) {
        fputs(",\n", f);
        ok = print_event(f, &l, &list[i], process, later);
    }
    free(list);
    return ok || sn_fail(err, SN_ERR_MEMORY, "out of memory for trace events");
}

bool sn_trace_write(const sn_trace *t, const char *path, sn_error *err) {
    if (!t || !path)
        return sn_fail(err, SN_ERR_USAGE, "sn_trace_write: the %s is NULL", t ? "path" : "trace");
    sn_file *file = sn_file_output(path, err);
    if (!file) return false;
    FILE *f = sn_file_stream(file);
    fputs("{\"traceEvents\":[\n", f);
    bool ok = sn_trace_print_process(t, f, 1, "sinter", 0, err);
    fprintf(f, "\n],\"otherData\":{\"calls_not_kept\":%zu}}\n", sn_trace_lost(t));
    if (ok) return sn_file_commit(file, err);
    sn_file_discard(file);
    return false;
}

/* ---- the table ---- */

/* When a call began on its first thread and ended on its last; end 0: not traced. */
typedef struct span {
    double begin, end;
} span;

/* [t->n_call]; NULL: out of memory. */
static span *spans(const sn_trace *t) {
    span *list = calloc(t->n_call + 1, sizeof *list);
    for (size_t i = 0; list && i < count(t); i++) {
        const event *e = &t->list[i];
        const sn_plan *plan = t->run[e->run].entry->code.plan;
        span *s = &list[t->run[e->run].first + (size_t)(e->step % plan->n_call)];
        s->begin = s->end > 0 ? fmin(s->begin, e->begin) : e->begin;
        s->end = fmax(s->end, e->end);
    }
    return list;
}

/* All calls of one kernel. */
typedef struct total {
    const sn_kernel *k;
    char *where;
    int calls;
    double seconds, flops, bytes;
} total;

static int by_time(const void *a, const void *b) {
    const total *x = a, *y = b;
    return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

typedef struct totals {
    total *list;
    int n, cap;
    double seconds;
    sn_visible_cache visible;
} totals;

static total *total_of(totals *l, const sn_kernel *k) {
    int j = 0;
    while (j < l->n && strcmp(l->list[j].k->name, k->name)) j++;
    if (j == l->cap) {
        total *grown = realloc(l->list, sizeof *grown * (size_t)(l->cap + 64));
        if (!grown) return NULL;
        l->list = grown;
        l->cap += 64;
    }
    if (j == l->n) l->list[l->n++] = (total){.k = k};
    return &l->list[j];
}

static void add_call(totals *l, const legend *names, const traced_run *r, int step, const span *s) {
    total *x = s->end > 0 ? total_of(l, &r->entry->code.kernel[step]) : NULL;
    if (!x) return;
    const described *d = look_up(names, r->entry);
    const sn_program *p = sn_session_program(names->t->session);
    const sn_mask_inputs in = {.m = p->m, .symbol = r->symbol};
    sn_kernel_call cost = {0};
    sn_call_formula formula = d->formula[step];
    formula.visible = sn_visible_share(&in, r->entry->code.plan->call[step]->node, &l->visible);
    sn_call_cost(p, &formula, r->symbol, &cost);
    char *name = x->where ? sn_call_common_name(x->where, d->name[step]) : strdup(d->name[step]);
    free(x->where);
    x->where = name;
    x->calls++;
    x->seconds += s->end - s->begin;
    x->flops += cost.flops;
    x->bytes += cost.bytes;
    l->seconds += s->end - s->begin;
}

static void print_total(FILE *f, const total *x, double all) {
    sn_loc loc = x->k->step->node->loc;
    double s = x->seconds > 0 ? x->seconds : 1;
    fprintf(f, "%6.2f%% %10.3f %7d %9.1f %8.1f  %-10s  %s", 100 * x->seconds / all,
            1e3 * x->seconds, x->calls, 1e-9 * x->flops / s, 1e-9 * x->bytes / s,
            sn_kernel_family_name(x->k), x->where ? x->where : "");
    if (loc.file) fprintf(f, "%s(%s:%d)", x->where && *x->where ? "  " : "", loc.file, loc.line);
    fputc('\n', f);
}

static void print_all_waiting(const sn_trace *t, FILE *f) {
    sn_trace_event *list;
    long n = sn_trace_events(t, &list);
    double busy = 0, idle = 0;
    for (long i = 0; i < n; i++) *(list[i].call < 0 ? &idle : &busy) += list[i].end - list[i].begin;
    free(list);
    if (busy > 0)
        fprintf(f, "waiting at barriers: %.3f ms, %.2f%% of the threads' time\n", 1e3 * idle,
                100 * idle / (idle + busy));
}

void sn_trace_print(const sn_trace *t, FILE *f) {
    if (!t || !f) return;
    totals l = {0};
    legend names;
    span *s = make_legend(&names, t) ? spans(t) : NULL;
    for (size_t r = 0; s && r < t->n_run; r++)
        for (int i = 0; i < t->run[r].entry->code.plan->n_call; i++)
            add_call(&l, &names, &t->run[r], i, &s[t->run[r].first + (size_t)i]);
    if (l.n) qsort(l.list, (size_t)l.n, sizeof *l.list, by_time);
    fprintf(f, "  share         ms   calls   GFLOP/s     GB/s  kernel      where\n");
    for (int j = 0; j < l.n; j++) {
        print_total(f, &l.list[j], l.seconds);
        free(l.list[j].where);
    }
    print_all_waiting(t, f);
    free(l.list);
    free(s);
}

void sn_trace_seconds(const sn_trace *t, double *seconds, int n) {
    if (!t || !seconds) return;
    span *s = spans(t);
    for (int i = 0; i < n; i++) {
        int runs = 0;
        seconds[i] = 0;
        for (size_t r = 0; s && r < t->n_run; r++) {
            if (i >= t->run[r].entry->code.plan->n_call) continue;
            const span *call = &s[t->run[r].first + (size_t)i];
            seconds[i] += call->end - call->begin;
            runs += call->end > 0;
        }
        if (runs) seconds[i] /= runs;
    }
    free(s);
}

void sn_trace_end(sn_trace *t) {
    if (!t) return;
    if (sn_session_profile(t->session) == &t->hook) sn_session_set_profile(t->session, NULL);
    sn_session_free(t->session);
    for (size_t r = 0; r < t->n_run; r++) free(t->run[r].symbol);
    free(t->run);
    free(t->list);
    free(t);
}
