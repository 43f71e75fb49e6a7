/* report_run.c: measures an entry: the time of each call, and what each thread did in one run. */
#include "bench/measure.h"
#include "bench/noise.h"
#include "bench/probe.h"
#include "codegen/program/program.h"
#include "runtime/clock.h"
#include "tools/inspect/report.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_RUNS = 20, LEAST_RUNS = 3, EVENTS = 1 << 18, MAX_EVENTS = 60000 };

/* No further run begins after so many seconds. */
static const double max_seconds = 0.6;
/* Of a probe of the multiply-add peak, before and after the runs. */
static const double PROBE = 0.025;

/* The run with the median time. */
static void add_timeline(report *r, cJSON *entry, const sn_trace *t, int run) {
    sn_trace_event *list;
    long n = sn_trace_events(t, &list), shown = 0;
    double zero = INFINITY, end = 0;
    int threads = 0;
    if (n < 0) r->full = true;
    for (long i = 0; i < n; i++) {
        if (list[i].run != run) continue;
        zero = fmin(zero, list[i].begin);
        end = fmax(end, list[i].end);
        threads = list[i].thread >= threads ? list[i].thread + 1 : threads;
        shown++;
    }
    cJSON *o = report_object(r, entry, "timeline");
    report_number(r, o, "threads", threads);
    report_number(r, o, "ms", shown ? 1e3 * (end - zero) : 0);
    report_number(r, o, "left_out", (double)(shown > MAX_EVENTS ? shown - MAX_EVENTS : 0));
    cJSON *events = report_list(r, o, "events");
    shown = 0;
    for (long i = 0; i < n && shown < MAX_EVENTS && !r->full; i++) {
        if (list[i].run != run) continue;
        cJSON *e = report_list(r, events, NULL); /* thread, call, begin and end in µs */
        report_add_number(r, e, list[i].thread);
        report_add_number(r, e, list[i].call);
        report_add_number(r, e, round(1e8 * (list[i].begin - zero)) / 100);
        report_add_number(r, e, round(1e8 * (list[i].end - zero)) / 100);
        shown++;
    }
    free(list);
}

/* The median and the minimum over n runs of each call, from the first thread's begin to the last one's end; a call in
 * a loop: of all iterations together. */
static void call_seconds(report *r, const sn_trace *t, explain_entry *e, int n) {
    sn_trace_event *list;
    long events = sn_trace_events(t, &list);
    size_t cells = (size_t)n * (size_t)e->n + 1;
    double *begin = calloc(cells, sizeof *begin), *end = calloc(cells, sizeof *end);
    for (long i = 0; begin && end && i < events; i++) {
        const sn_trace_event *v = &list[i];
        if (v->call < 0 || v->call >= e->n || v->run >= n) continue;
        size_t at = (size_t)v->run * (size_t)e->n + (size_t)v->call;
        begin[at] = end[at] > 0 ? fmin(begin[at], v->begin) : v->begin;
        end[at] = fmax(end[at], v->end);
    }
    for (int i = 0; begin && end && i < e->n; i++) {
        double of[MAX_RUNS];
        for (int k = 0; k < n; k++) {
            size_t at = (size_t)k * (size_t)e->n + (size_t)i;
            of[k] = end[at] - begin[at];
        }
        qsort(of, (size_t)n, sizeof *of, sn_bench_ascending);
        e->seconds[i] = of[n / 2];
        e->least[i] = of[0];
    }
    if (!begin || !end || events < 0) r->full = true;
    free(begin);
    free(end);
    free(list);
}

bool report_run(report *r, cJSON *entry, explain_entry *e, sn_session *s, const inspect_inputs *in,
                double *seconds, sn_error *err) {
    double time[MAX_RUNS], sorted[MAX_RUNS], begin;
    int n = 0, run = 0;
    *seconds = 0;
    int threads = sn_session_program(s)->threads;
    e->seconds = calloc((size_t)e->n + 1, sizeof *e->seconds);
    e->least = calloc((size_t)e->n + 1, sizeof *e->least);
    if (!e->seconds || !e->least) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (!inspect_inputs_run(in, s, e->name, err)) return false;
    e->peak = sn_probe_fma_peak(threads, PROBE);
    sn_trace *t = sn_trace_begin(s, e->name, EVENTS, err);
    if (!t) return false;
    sn_bench_noise noise = sn_bench_noise_begin();
    begin = sn_clock();
    bool ok = true;
    while (ok && n < MAX_RUNS && (n < LEAST_RUNS || sn_clock() - begin < max_seconds)) {
        double start = sn_clock();
        ok = inspect_inputs_run(in, s, e->name, err);
        sorted[n] = time[n] = sn_clock() - start;
        n++;
    }
    sn_bench_noise_end(&noise, &e->others, &e->stolen);
    e->peak = fmax(e->peak, sn_probe_fma_peak(threads, PROBE));
    if (ok) {
        qsort(sorted, (size_t)n, sizeof *sorted, sn_bench_ascending);
        *seconds = e->run_seconds = sorted[n / 2];
        e->run_least = sorted[0];
        for (int i = 0; i < n; i++)
            if (time[i] == *seconds) run = i;
        call_seconds(r, t, e, n);
        if (entry && !sn_trace_lost(t)) add_timeline(r, entry, t, run);
    }
    sn_trace_end(t);
    return ok;
}
