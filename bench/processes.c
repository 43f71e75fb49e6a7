/* processes.c: starts processes that measure, and merges their records, see processes.h. */
#include "bench/processes.h"
#include "bench/compare.h"

#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
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

bool sn_bench_merge(const sn_bench_report *each, int n, sn_bench_report *out, sn_error *err) {
    const void *from[SN_BENCH_PROCESSES];
    for (int p = 0; p < n; p++)
        if (!add_process(&each[p], p, out, err)) return false;
    for (int i = 0; i < out->n; i++) {
        for (int p = 0; p < n; p++) from[p] = sn_bench_counterpart(&each[p], out, &out->list[i]);
        merge_numbers(&out->list[i], from, n, sn_bench_numbers_of, SN_BENCH_NUMBERS);
    }
    for (int p = 0; p < n; p++) {
        from[p] = &each[p];
        out->busy[p] = each[p].others + each[p].stolen;
    }
    merge_numbers(out, from, n, sn_bench_machine_numbers, SN_BENCH_MACHINE_NUMBERS);
    out->n_process = n;
    sn_bench_finish(out);
    return true;
}

/* Runs this program; its standard output goes to a file. Returns its exit code, -1 on failure. */
static int run_self(char *const *argv, FILE *to, sn_error *err) {
    posix_spawn_file_actions_t files;
    pid_t pid;
    int status = 0, failed = posix_spawn_file_actions_init(&files);
    if (!failed) {
        failed = posix_spawn_file_actions_adddup2(&files, fileno(to), STDOUT_FILENO);
        if (!failed) failed = posix_spawn(&pid, "/proc/self/exe", &files, NULL, argv, environ);
        posix_spawn_file_actions_destroy(&files);
    }
    while (!failed && waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) failed = errno;
    if (failed) {
        sn_fail(err, SN_ERR_FILE, "cannot start a process that measures: %s", strerror(failed));
        return -1;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool sn_bench_run_processes(int n, char **argv, int interrupted, sn_bench_report *out,
                            bool *stopped, sn_error *err) {
    sn_bench_report each[SN_BENCH_PROCESSES] = {{0}};
    static char unchecked[] = "--no-check";
    bool ok = true, checks = true;
    int done = 0, end = 0;
    for (; argv[end]; end++) checks = checks && strcmp(argv[end], unchecked) != 0;
    while (ok && done < n && !*stopped) {
        FILE *f = tmpfile();
        char path[64];
        int code = f ? run_self(argv, f, err) : -1;
        *stopped = code == interrupted;
        if (!f) sn_fail(err, SN_ERR_FILE, "cannot make a temporary file: %s", strerror(errno));
        if (code > 0 && !*stopped)
            sn_fail(err, SN_ERR_FILE, "process %d of %d that measured: exit code %d", done + 1, n,
                    code);
        ok = code == 0 || *stopped;
        if (ok) snprintf(path, sizeof path, "/proc/self/fd/%d", fileno(f));
        if (ok && (lseek(fileno(f), 0, SEEK_END) > 0 || !*stopped))
            ok = sn_bench_read_json(path, &each[done++], err);
        if (f) fclose(f);
        if (checks) argv[end] = unchecked;
    }
    ok = ok && sn_bench_merge(each, done, out, err);
    for (int p = 0; p < SN_BENCH_PROCESSES; p++) sn_bench_report_free(&each[p]);
    return ok;
}
