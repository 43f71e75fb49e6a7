/* processes.c: starts processes that measure, and merges their records, see processes.h. */
#include "bench/processes.h"
#include "bench/compare.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

/* Appends the samples of process p. */
static void append(sn_bench_samples *to, const sn_bench_samples *from, int p) {
    for (int k = 0; k < from->n && to->n < SN_BENCH_SAMPLES; k++, to->n++) {
        for (int i = 0; i < SN_BENCH_SAMPLE_KEYS; i++) {
            size_t at = sn_bench_sample_keys[i].offset;
            ((double *)(void *)((char *)to + at))[to->n] =
                ((const double *)(const void *)((const char *)from + at))[k];
        }
        to->process[to->n] = p;
    }
}

/* The medians of what n reports or records know; NULL: it is not in a report. */
static void merge_numbers(void *to, const void *const *from, int n, const sn_bench_number *list,
                          int n_list) {
    for (int i = 0; i < n_list; i++) {
        double known[SN_BENCH_PROCESSES];
        int m = 0;
        for (int p = 0; p < n; p++) {
            double x = from[p] ? *sn_bench_number_at(from[p], &list[i]) : NAN;
            if (!isnan(x)) known[m++] = x;
        }
        *sn_bench_number_at(to, &list[i]) = m ? sn_bench_median(known, m) : NAN;
    }
}

/* Adds the records of process p, or their samples to those that are there. */
static bool add_process(const sn_bench_report *from, int p, sn_bench_report *out, sn_error *err) {
    for (int i = 0; i < from->n; i++) {
        const sn_bench_record *x = &from->list[i], *same = sn_bench_counterpart(out, from, x);
        sn_bench_record *to = same ? &out->list[same - out->list] : sn_bench_add(out, err);
        if (!to) return false;
        if (!same) {
            *to = *x;
            to->samples.n = to->again.n = 0;
        }
        append(&to->samples, &x->samples, p);
        append(&to->again, &x->again, p);
    }
    for (int i = 0; i < from->n_note; i++) sn_bench_note(out, "%s", from->note[i]);
    return true;
}

/* The numbers of a record of n reports: of the processes that count, and rates at the median time. */
static void merge_record(sn_bench_record *x, const sn_bench_report *each, int n,
                         const sn_bench_report *out) {
    static const size_t rates[] = {offsetof(sn_bench_record, gflops),
                                   offsetof(sn_bench_record, gbytes_s),
                                   offsetof(sn_bench_record, tokens_s)};
    const void *from[SN_BENCH_PROCESSES];
    sn_bench_numbers counted;
    sn_bench_times(&x->samples, &counted);
    const bool some = x->samples.n && !counted.few;
    if (some) n = counted.processes;
    for (int i = 0; i < n; i++) {
        int p = some ? (int)x->samples.process[counted.round[counted.begin[i]]] : i;
        from[i] = sn_bench_counterpart(&each[p], out, x);
    }
    merge_numbers(x, from, n, sn_bench_numbers_of, SN_BENCH_NUMBERS);
    if (!some) return;
    sn_bench_summarise(x);
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        const sn_bench_number at = {.offset = rates[i]};
        const sn_bench_record *one = from[0];
        *sn_bench_number_at(x, &at) = *sn_bench_number_at(one, &at) * one->ms_median / x->ms_median;
    }
    x->pct_run_peak = 100 * x->gflops / x->run_peak_gflops;
}

bool sn_bench_merge(const sn_bench_report *each, int n, sn_bench_report *out, sn_error *err) {
    const void *from[SN_BENCH_PROCESSES];
    for (int p = 0; p < n; p++)
        if (!add_process(&each[p], p, out, err)) return false;
    for (int p = 0; p < n; p++) {
        from[p] = &each[p];
        out->busy[p] = each[p].others + each[p].stolen;
    }
    merge_numbers(out, from, n, sn_bench_machine_numbers, SN_BENCH_MACHINE_NUMBERS);
    out->n_process = n;
    sn_bench_finish(out);
    for (int i = 0; i < out->n; i++) merge_record(&out->list[i], each, n, out);
    return true;
}

/* Whether a process catches SIGINT: one that measures does until the first. */
static bool catches_stop(pid_t pid) {
    char path[64], line[256];
    unsigned long long caught = 0;
    snprintf(path, sizeof path, "/proc/%ld/status", (long)pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f) && sscanf(line, "SigCgt: %llx", &caught) != 1) {
    }
    if (f) fclose(f);
    return caught >> (SIGINT - 1) & 1;
}

/* Waits for a process; once stop() says so, it gets SIGINT, unless it had that of the terminal, since a second one
 * would end it. Returns an error number. */
static int wait_for(pid_t pid, bool (*stop)(void), int *status) {
    static const struct timespec moment = {.tv_nsec = 10000000};
    for (bool told = false;;) {
        bool asked = stop && stop();
        pid_t ended = waitpid(pid, status, asked ? WNOHANG : 0);
        if (ended == pid) return 0;
        if (ended < 0 && errno != EINTR) return errno;
        if (asked && !told && catches_stop(pid)) told = !kill(pid, SIGINT);
        if (asked) nanosleep(&moment, NULL);
    }
}

/* Runs this program; its standard output goes to a file. Fails if it cannot be started, or ends by a signal. *code: its
 * exit code; `interrupted` also if it ended by SIGINT. */
static bool run_self(char *const *argv, FILE *to, int interrupted, bool (*stop)(void), int *code,
                     sn_error *err) {
    posix_spawn_file_actions_t files;
    pid_t pid;
    int status = 0, failed = posix_spawn_file_actions_init(&files);
    if (!failed) {
        failed = posix_spawn_file_actions_adddup2(&files, fileno(to), STDOUT_FILENO);
        if (!failed) failed = posix_spawn(&pid, "/proc/self/exe", &files, NULL, argv, environ);
        posix_spawn_file_actions_destroy(&files);
    }
    if (!failed) failed = wait_for(pid, stop, &status);
    if (failed) return sn_fail(err, SN_ERR_FILE, "cannot be run: %s", strerror(failed));
    int by = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    *code = by == SIGINT ? interrupted : WEXITSTATUS(status);
    return !by || by == SIGINT ||
           sn_fail(err, SN_ERR_FILE, "ended by signal %d (%s)", by, strsignal(by));
}

/* Runs a process and reads what it measured. *stopped: it was interrupted, and may have measured nothing. */
static bool run_one(char *const *argv, int interrupted, bool (*stop)(void), sn_bench_report *out,
                    bool *stopped, sn_error *err) {
    FILE *f = tmpfile();
    char path[64];
    int code = 0;
    if (!f) return sn_fail(err, SN_ERR_FILE, "cannot make a temporary file: %s", strerror(errno));
    bool ok = run_self(argv, f, interrupted, stop, &code, err);
    *stopped = ok && code == interrupted;
    if (ok && code && !*stopped) ok = sn_fail(err, SN_ERR_FILE, "exit code %d", code);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fileno(f));
    if (ok && (lseek(fileno(f), 0, SEEK_END) > 0 || !*stopped))
        ok = sn_bench_read_json(path, out, err);
    fclose(f);
    return ok;
}

bool sn_bench_run_processes(int n, char **const *argv, int interrupted, bool (*stop)(void),
                            sn_bench_report *out, bool *stopped, sn_error *err) {
    sn_bench_report each[SN_BENCH_PROCESSES] = {{0}};
    sn_error local = {0}, merging = {0};
    bool ok = true;
    int done = 0;
    for (int p = 0; ok && p < n && !*stopped; p++) {
        *stopped = stop && stop();
        if (!*stopped) ok = run_one(argv[p > 0], interrupted, stop, &each[done], stopped, &local);
        if (ok) done += each[done].n > 0;
    }
    if (!ok) {
        sn_fail(err, local.code, "process %d of %d that measured: %s", done + 1, n, local.message);
        sn_bench_note(out, "%s", err->message);
    }
    if (!sn_bench_merge(each, done, out, &merging))
        ok = sn_fail(err, merging.code, "%s", merging.message);
    for (int p = 0; p < SN_BENCH_PROCESSES; p++) sn_bench_report_free(&each[p]);
    return ok;
}
