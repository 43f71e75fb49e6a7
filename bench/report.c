/* report.c: records as a table and as JSON lines. */
#include "bench/measure.h"
#include "bench/noise.h"
#include "bench/probe.h"
#include "codegen/backend.h"
#include "codegen/emit/target.h"
#include "runtime/file.h"
#include "commit.h"

#include <cJSON.h>
#include <llvm/Config/llvm-config.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* ---- comparison of levels ---- */

static bool same_work(const sn_bench_record *x, const sn_bench_record *y) {
    return !strcmp(x->name, y->name) && !strcmp(x->shape, y->shape) &&
           !strcmp(x->backend, y->backend) && !strcmp(x->dtype, y->dtype);
}

void sn_bench_judge(sn_bench_report *r) {
    static const double margin = 1.03;
    for (int i = 0; i < r->n; i++) {
        const sn_bench_record *x = &r->list[i], *best = NULL;
        for (int j = 0; j < r->n; j++) {
            const sn_bench_record *y = &r->list[j];
            bool lower = y->level >= 0 && y->level < x->level && same_work(x, y);
            if (lower && (!best || y->ms_median < best->ms_median)) best = y;
        }
        if (best && x->ms_min > margin * best->ms_median)
            sn_bench_note(r, "%s %s %s: level %d is slower than level %d, %.4g against %.4g ms",
                          x->name, x->shape, x->backend, x->level, best->level, x->ms_median,
                          best->ms_median);
    }
}

/* ---- the table ---- */

static double value_of(const sn_bench_record *x, const sn_bench_number *c) {
    return c->head ? *sn_bench_number_at(x, c) * c->scale : NAN;
}

static void print_group(const sn_bench_report *r, int from, int to, FILE *f) {
    bool shown[SN_BENCH_NUMBERS] = {false};
    int shape = 5, name = 4, backend = 14;
    for (int i = from; i < to; i++) {
        int n = (int)strlen(r->list[i].shape), k = (int)strlen(r->list[i].name);
        shape = n > shape ? n : shape;
        name = k > name ? k : name;
        int b = (int)strlen(r->list[i].backend);
        backend = b > backend ? b : backend;
        for (int c = 0; c < SN_BENCH_NUMBERS; c++)
            shown[c] |= !isnan(value_of(&r->list[i], &sn_bench_numbers_of[c]));
    }
    bool work = strcmp(r->list[from].kind, "roofline") != 0;
    fprintf(f, "%-*s  %-*s  %-*s %s", name, r->list[from].kind, shape, "shape", backend, "back end",
            work ? "level" : "dtype");
    for (int c = 0; c < SN_BENCH_NUMBERS; c++)
        if (shown[c]) fprintf(f, " %*s", sn_bench_numbers_of[c].width, sn_bench_numbers_of[c].head);
    fputs(work ? "  bound by\n" : "\n", f);
    for (int i = from; i < to; i++) {
        const sn_bench_record *x = &r->list[i];
        bool same = i > from && !strcmp(x->name, x[-1].name) && !strcmp(x->shape, x[-1].shape);
        char level[16] = "-";
        if (x->level >= 0) snprintf(level, sizeof level, "%d", x->level);
        fprintf(f, "%-*s  %-*s  %-*s %5s", name, same ? "" : x->name, shape, same ? "" : x->shape,
                backend, x->backend, work ? level : x->dtype);
        for (int c = 0; c < SN_BENCH_NUMBERS; c++) {
            if (!shown[c]) continue;
            char text[32] = "";
            double v = value_of(x, &sn_bench_numbers_of[c]);
            if (!isnan(v)) snprintf(text, sizeof text, sn_bench_numbers_of[c].format, v);
            fprintf(f, " %*s", sn_bench_numbers_of[c].width, text);
        }
        if (*x->bound && work) fprintf(f, "  %s", x->bound);
        if (*x->choice) fprintf(f, "  (%s kernels)", x->choice);
        if (x->unfused) fputs("  (unfused)", f);
        fputc('\n', f);
    }
}

/* The limits used for the shares: minimum and maximum of the records' medians. */
static void print_limits(const sn_bench_report *r, FILE *f) {
    double lo = INFINITY, hi = 0, slow = INFINITY, fast = 0;
    double run = 0;
    int threads = 0, rounds = 0;
    for (int i = 0; i < r->n; i++) {
        const sn_bench_record *x = &r->list[i];
        threads = x->threads, rounds = x->samples.n > rounds ? x->samples.n : rounds;
        run = fmax(run, x->run_peak_gflops);
        if (!isnan(x->peak_gflops)) lo = fmin(lo, x->peak_gflops), hi = fmax(hi, x->peak_gflops);
        if (!isnan(x->stream_gbytes_s))
            slow = fmin(slow, x->stream_gbytes_s), fast = fmax(fast, x->stream_gbytes_s);
    }
    if (r->n)
        fprintf(f,
                "\n%d thread%s, medians of %d interleaved rounds with their intervals, caches %s",
                threads, threads == 1 ? "" : "s", rounds, r->cold ? "cold" : "warm");
    if (r->n_process) fprintf(f, ", in %d process%s", r->n_process, r->n_process > 1 ? "es" : "");
    if (hi > 0) fprintf(f, "; f32 peak beside it %.4g to %.4g GFLOP/s", lo, hi);
    if (run > 0) fprintf(f, ", the run's %.4g", run);
    if (fast > 0) fprintf(f, "; streaming the same bytes %.3g to %.3g GB/s", slow, fast);
    if (r->n) fputc('\n', f);
}

double sn_bench_spread(const sn_bench_report *r) {
    if (!r->n_probe) return NAN;
    double low = r->probe[(int)(r->n_probe * 0.1)], high = r->probe[(int)(r->n_probe * 0.9)];
    return 100 * (1 - low / high);
}

void sn_bench_look(sn_bench_report *r, int when) {
    if (getloadavg(&r->load[when], 1) != 1) r->load[when] = NAN;
    r->ghz[when] = sn_probe_ghz();
    r->spread = sn_bench_spread(r);
}

/* " 1.2", or what stands for an unknown number */
static void print_known(FILE *f, const char *before, const char *format, double x) {
    fputs(before, f);
    if (isnan(x) || x < 0)
        fputs("not available here", f);
    else
        fprintf(f, format, x);
}

/* How quiet the machine was. */
static void print_state(const sn_bench_report *r, FILE *f) {
    if (!*r->date) return; /* it is not known which machine */
    const char *missing = sn_bench_counters_missing();
    print_known(f, "machine: other programs ", "%.1f %%", r->others);
    print_known(f, ", host ", "%.1f %%", r->stolen);
    print_known(f, "; load ", "%.2f", r->load[0]);
    print_known(f, " before, after ", "%.2f", r->load[1]);
    print_known(f, "; clock in GHz ", "%.2f", r->ghz[0]);
    print_known(f, " before, after ", "%.2f", r->ghz[1]);
    print_known(f, "; spread of the peak's probes ", "%.1f %%", r->spread);
    fprintf(f, "; counters %s%s%s\n", *missing ? "not available here (" : "read", missing,
            *missing ? ")" : "");
}

void sn_bench_print(const sn_bench_report *r, FILE *f) {
    for (int from = 0, to; from < r->n; from = to) {
        for (to = from + 1; to < r->n && !strcmp(r->list[to].kind, r->list[from].kind);) to++;
        if (from) fputc('\n', f);
        print_group(r, from, to, f);
    }
    print_limits(r, f);
    print_state(r, f);
    for (int i = 0; i < r->n; i++) {
        bool first = *r->list[i].setup != 0;
        for (int j = 0; j < i && first; j++)
            first = strcmp(r->list[j].backend, r->list[i].backend) != 0 ||
                    strcmp(r->list[j].setup, r->list[i].setup) != 0;
        if (first) fprintf(f, "%s: %s\n", r->list[i].backend, r->list[i].setup);
    }
    for (int i = 0; i < r->n_note; i++) fprintf(f, "note: %s\n", r->note[i]);
    char noise[SN_BENCH_NOISE_TEXT];
    if (*sn_bench_noise_text(r->others, r->stolen, noise)) fprintf(f, "note: %s\n", noise);
}

/* ---- JSON ---- */

static void add_number(cJSON *o, const char *key, double v) {
    if (isfinite(v))
        cJSON_AddNumberToObject(o, key, v);
    else
        cJSON_AddNullToObject(o, key);
}

static void add_numbers(cJSON *o, const void *of, const sn_bench_number *list, int n) {
    for (int i = 0; i < n; i++) {
        double v = *sn_bench_number_at(of, &list[i]);
        add_number(o, list[i].key, v < 0 ? NAN : v);
    }
}

static cJSON *numbers(const double *x, int n) {
    cJSON *list = cJSON_CreateArray();
    for (int k = 0; k < n; k++)
        cJSON_AddItemToArray(list, isfinite(x[k]) ? cJSON_CreateNumber(x[k]) : cJSON_CreateNull());
    return list;
}

static void add_samples(cJSON *o, const sn_bench_samples *s) {
    for (int i = 0; i < SN_BENCH_SAMPLE_KEYS; i++) {
        const sn_bench_sample_key *k = &sn_bench_sample_keys[i];
        const double *list = (const double *)(const void *)((const char *)s + k->offset);
        cJSON_AddItemToObject(o, k->key, numbers(list, s->n));
    }
}

static cJSON *record_json(const sn_bench_record *x) {
    cJSON *o = cJSON_CreateObject();
    for (int i = 0; i < SN_BENCH_TEXTS; i++)
        cJSON_AddStringToObject(o, sn_bench_texts_of[i].key,
                                (const char *)x + sn_bench_texts_of[i].offset);
    add_number(o, "level", x->level >= 0 ? x->level : NAN);
    cJSON_AddNumberToObject(o, "threads", x->threads);
    cJSON_AddNumberToObject(o, "measurement", x->measurement);
    cJSON_AddNumberToObject(o, "rounds", x->samples.n);
    add_samples(o, &x->samples);
    if (x->again.n) add_samples(cJSON_AddObjectToObject(o, "again"), &x->again);
    add_numbers(o, x, sn_bench_numbers_of, SN_BENCH_NUMBERS);
    cJSON_AddBoolToObject(o, "unfused", x->unfused);
    return o;
}

/* The line of /proc/cpuinfo that begins with `key`, without it; "": none. */
static void cpu_line(const char *key, char *out, size_t size) {
    char line[8192];
    FILE *f = fopen("/proc/cpuinfo", "r");
    *out = 0;
    while (f && !*out && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, key, strlen(key)) != 0 || !colon) continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(out, size, "%s", colon + 1 + (colon[1] == ' '));
    }
    if (f) fclose(f);
}

void sn_bench_identify(sn_bench_report *r) {
    time_t now = time(NULL);
    struct tm tm;
    sn_target t;
    sn_error err = {0};
    cpu_line("model name", r->cpu, sizeof r->cpu);
    if (!*r->cpu) snprintf(r->cpu, sizeof r->cpu, "unknown");
    strftime(r->date, sizeof r->date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
    snprintf(r->commit, sizeof r->commit, "%s", SN_COMMIT);
    if (sn_target_init(&t, NULL, &err))
        snprintf(r->microarchitecture, sizeof r->microarchitecture, "%s", t.cpu);
}

void sn_bench_describe(const sn_bench_report *r, const sn_bench_options *o, char *out,
                       size_t size) {
    int threads = sn_bench_threads(o);
    snprintf(out, size, "%s (%s), %d thread%s, %.10s", r->cpu, r->microarchitecture, threads,
             threads == 1 ? "" : "s", r->date);
}

static void add_text(cJSON *j, const char *key, const char *value) {
    cJSON_AddStringToObject(j, key, value ? value : "");
}

/* What the operating system says about the machine. */
static void add_system(cJSON *j) {
    struct utsname u;
    char flags[4096];
    char governor[32] = "";
    FILE *f = fopen("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "r");
    if (f && fscanf(f, "%31s", governor) != 1) *governor = 0;
    if (f) fclose(f);
    add_text(j, "kernel", uname(&u) ? "" : u.release);
    add_text(j, "governor", governor);
    cJSON_AddNumberToObject(j, "page_bytes", (double)sysconf(_SC_PAGESIZE));
    add_number(j, "l2_bytes", (double)sysconf(_SC_LEVEL2_CACHE_SIZE));
    add_number(j, "l3_bytes", (double)sysconf(_SC_LEVEL3_CACHE_SIZE));
    add_number(j, "l1d_bytes", (double)sysconf(_SC_LEVEL1_DCACHE_SIZE));
    cpu_line("flags", flags, sizeof flags);
    add_text(j, "cpu_flags", flags);
    add_text(j, "compiler", __VERSION__);
    add_text(j, "llvm", LLVM_VERSION_STRING);
    add_text(j, "counters_missing", sn_bench_counters_missing());
}

static cJSON *machine_json(const sn_bench_report *r, const sn_bench_options *o) {
    cJSON *j = cJSON_CreateObject();
    add_text(j, "kind", "machine");
    add_text(j, "cpu", r->cpu);
    add_text(j, "microarchitecture", r->microarchitecture);
    add_text(j, "date", r->date);
    add_text(j, "version", SN_VERSION);
    add_text(j, "commit", r->commit);
    add_system(j);
    add_text(j, "command", o->command);
    cJSON_AddNumberToObject(j, "threads", sn_bench_threads(o));
    cJSON_AddNumberToObject(j, "rounds", o->rounds);
    cJSON_AddNumberToObject(j, "seconds", o->seconds);
    add_text(j, "caches", r->cold ? "cold" : "warm");
    add_text(j, "target", o->target ? o->target : "native");
    add_text(j, "backends", o->backends);
    add_text(j, "weights", o->weights);
    add_text(j, "compute", o->compute);
    add_text(j, "cache", o->cache);
    add_text(j, "precision", o->precision);
    add_text(j, "invariant", o->invariant);
    add_text(j, "onednn", sn_backend_library_version());
    add_numbers(j, r, sn_bench_machine_numbers, SN_BENCH_MACHINE_NUMBERS);
    cJSON_AddNumberToObject(j, "processes", r->n_process ? r->n_process : 1);
    cJSON_AddItemToObject(j, "process_busy_pct", numbers(r->busy, r->n_process));
    add_number(j, "read_gbytes_s", r->read_gbytes_s > 0 ? r->read_gbytes_s : NAN);
    cJSON *notes = cJSON_AddArrayToObject(j, "notes");
    for (int i = 0; i < r->n_note; i++) cJSON_AddItemToArray(notes, cJSON_CreateString(r->note[i]));
    return j;
}

static bool write_line(sn_file *f, cJSON *j, sn_error *err) {
    char *text = cJSON_PrintUnformatted(j);
    bool ok = text ? sn_file_write(f, text, strlen(text), err) && sn_file_write(f, "\n", 1, err)
                   : sn_fail(err, SN_ERR_MEMORY, "out of memory for a record");
    free(text);
    cJSON_Delete(j);
    return ok;
}

bool sn_bench_write_json(const sn_bench_report *r, const sn_bench_options *o, const char *path,
                         sn_error *err) {
    sn_file *f = sn_file_output(path, err);
    bool ok = f && write_line(f, machine_json(r, o), err);
    for (int i = 0; i < r->n && ok; i++) ok = write_line(f, record_json(&r->list[i]), err);
    if (ok) return sn_file_commit(f, err);
    sn_file_discard(f);
    return false;
}
