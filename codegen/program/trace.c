/* trace.c: what each kernel call cost on each thread: trace events for Perfetto, and a table. */
#include "codegen/program/program.h"
#include "runtime/clock.h"
#include "runtime/file.h"

#include <cJSON.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct event {
    const sn_compiled_entry *entry;
    int32_t step, tid;
    double begin, end; /* seconds */
} event;

struct sn_trace {
    sn_profile hook;                /* first: the hook's address is the trace's */
    sn_session *session;            /* the trace is one of its owners */
    const sn_compiled_entry *entry; /* NULL: all */
    size_t cap;
    atomic_size_t n;
    event *list;
    double open[256]; /* by thread: when its kernel began */
};

static void mark(sn_profile *self, int64_t step, int64_t tid, int64_t end) {
    sn_trace *t = (sn_trace *)self;
    const sn_compiled_entry *running = sn_session_running(t->session);
    if (tid >= 256 || (t->entry && t->entry != running)) return;
    if (!end) {
        t->open[tid] = sn_clock();
        return;
    }
    size_t i = atomic_fetch_add_explicit(&t->n, 1, memory_order_relaxed);
    if (i < t->cap)
        t->list[i] = (event){running, (int32_t)step, (int32_t)tid, t->open[tid], sn_clock()};
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

/* One line of trace JSON; false: out of memory. */
static bool print_event(FILE *f, const event *e, double zero) {
    const sn_kernel *k = &e->entry->code.kernel[e->step];
    sn_loc loc = k->step->node->loc;
    char name[64];
    snprintf(name, sizeof name, "%s %d", sn_kernel_family_name(k), e->step);
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "name", name);
    cJSON_AddStringToObject(j, "cat", sn_kernel_family_name(k));
    cJSON_AddStringToObject(j, "ph", "X");
    cJSON_AddNumberToObject(j, "pid", 1);
    cJSON_AddNumberToObject(j, "tid", e->tid);
    cJSON_AddNumberToObject(j, "ts", (e->begin - zero) * 1e6);
    cJSON_AddNumberToObject(j, "dur", (e->end - e->begin) * 1e6);
    cJSON *args = cJSON_AddObjectToObject(j, "args");
    cJSON_AddStringToObject(args, "entry", e->entry->code.plan->entry->name);
    cJSON_AddStringToObject(args, "kernel", k->name);
    cJSON_AddStringToObject(args, "file", loc.file ? loc.file : "");
    bool ok = cJSON_AddNumberToObject(args, "line", loc.line) != NULL;
    char *text = ok ? cJSON_PrintUnformatted(j) : NULL;
    if (text) fputs(text, f);
    free(text);
    cJSON_Delete(j);
    return text != NULL;
}

bool sn_trace_write(const sn_trace *t, const char *path, sn_error *err) {
    if (!t || !path)
        return sn_fail(err, SN_ERR_USAGE, "sn_trace_write: the %s is NULL", t ? "path" : "trace");
    sn_file *file = sn_file_create(path, err);
    if (!file) return false;
    FILE *f = sn_file_stream(file);
    double zero = INFINITY; /* events lie in the order of their ends */
    int threads = 0;
    for (size_t i = 0; i < count(t); i++) {
        zero = fmin(zero, t->list[i].begin);
        threads = t->list[i].tid >= threads ? t->list[i].tid + 1 : threads;
    }
    fputs("{\"traceEvents\":[\n"
          "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"args\":{\"name\":\"sinter\"}}",
          f);
    for (int i = 0; i < threads; i++)
        fprintf(f,
                ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":%d,"
                "\"args\":{\"name\":\"thread %d\"}}",
                i, i);
    for (size_t i = 0; i < count(t); i++) {
        fputs(",\n", f);
        if (!print_event(f, &t->list[i], zero)) {
            sn_file_discard(file);
            return sn_fail(err, SN_ERR_MEMORY, "%s: out of memory for a trace event", path);
        }
    }
    fprintf(f, "\n],\"otherData\":{\"calls_not_kept\":%zu}}\n", sn_trace_lost(t));
    return sn_file_commit(file, err);
}

typedef struct total {
    const sn_kernel *k;
    int calls;
    double seconds;
} total;

static int by_time(const void *a, const void *b) {
    const total *x = a, *y = b;
    return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

void sn_trace_print(const sn_trace *t, FILE *f) {
    if (!t || !f) return;
    int n_total = 0, cap = 0;
    total *list = NULL;
    double all = 0;
    for (size_t i = 0; i < count(t); i++) {
        const event *e = &t->list[i];
        const sn_kernel *k = &e->entry->code.kernel[e->step];
        int j = 0;
        while (j < n_total && strcmp(list[j].k->name, k->name)) j++;
        if (j == cap) {
            total *grown = realloc(list, sizeof *list * (size_t)(cap += 64));
            if (!grown) break;
            list = grown;
        }
        if (j == n_total) list[n_total++] = (total){.k = k};
        list[j].calls++;
        list[j].seconds += e->end - e->begin;
        all += e->end - e->begin;
    }
    if (n_total) qsort(list, (size_t)n_total, sizeof *list, by_time);
    for (int j = 0; j < n_total; j++)
        fprintf(f, "%6.2f%% %10.3f ms %6d calls  %s (line %d)\n", 100 * list[j].seconds / all,
                1e3 * list[j].seconds, list[j].calls, list[j].k->name,
                list[j].k->step->node->loc.line);
    free(list);
}

void sn_trace_seconds(const sn_trace *t, double *seconds, int n) {
    if (!t || !seconds) return;
    for (int i = 0; i < n; i++) {
        size_t events = 0;
        double sum = 0;
        for (size_t k = 0; k < count(t); k++) {
            if (t->list[k].step != i) continue;
            sum += t->list[k].end - t->list[k].begin;
            events++;
        }
        seconds[i] = events ? sum / (double)events : 0;
    }
}

void sn_trace_end(sn_trace *t) {
    if (!t) return;
    if (sn_session_profile(t->session) == &t->hook) sn_session_set_profile(t->session, NULL);
    sn_session_free(t->session);
    free(t->list);
    free(t);
}
