/* noise.c: how much CPU time other programs used during a bench, which makes its results
 * unreliable. Read from /proc; unknown on other systems. */
#include "bench/noise.h"
#include "runtime/clock.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { FIELDS = 8, IDLE = 3, IOWAIT = 4, STEAL = 7 };

/* CPU seconds of all processors since boot: busy, and stolen by the host of a virtual machine. */
static bool read_machine(double *busy, double *stolen) {
    double f[FIELDS] = {0}, tick = (double)sysconf(_SC_CLK_TCK);
    FILE *in = fopen("/proc/stat", "r");
    bool ok = in && fscanf(in, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &f[0], &f[1], &f[2], &f[3],
                           &f[4], &f[5], &f[6], &f[7]) == FIELDS;
    if (in) fclose(in);
    *busy = *stolen = 0;
    for (int i = 0; ok && i < FIELDS; i++)
        if (i != IDLE && i != IOWAIT && i != STEAL) *busy += f[i] / tick;
    *stolen = f[STEAL] / tick;
    return ok;
}

static double seconds_of(struct timeval t) {
    return (double)t.tv_sec + (double)t.tv_usec * 1e-6;
}

static double process_seconds(void) {
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    double sum = seconds_of(r.ru_utime) + seconds_of(r.ru_stime);
    getrusage(RUSAGE_CHILDREN, &r); /* peers that have ended */
    return sum + seconds_of(r.ru_utime) + seconds_of(r.ru_stime);
}

/* The number after `key` in a file of lines; NaN: none. */
static double read_key(const char *path, const char *key) {
    char line[256];
    double value = NAN;
    FILE *f = fopen(path, "r");
    while (f && isnan(value) && fgets(line, sizeof line, f))
        if (!strncmp(line, key, strlen(key))) sscanf(line + strlen(key), "%lf", &value);
    if (f) fclose(f);
    return value;
}

/* Adds a thread's numbers: of a thread that has ended meanwhile none. */
static void add_thread(sn_bench_usage *u, const char *task) {
    char path[400];
    double run, waited;
    snprintf(path, sizeof path, "%s/schedstat", task);
    FILE *f = fopen(path, "r");
    bool known = f && fscanf(f, "%lf %lf", &run, &waited) == 2;
    if (f) fclose(f);
    if (!known) return;
    snprintf(path, sizeof path, "%s/status", task);
    u->cpu += run * 1e-9;
    u->waited += waited * 1e-9;
    u->switches += read_key(path, "nonvoluntary_ctxt_switches:");
}

sn_bench_usage sn_bench_usage_of(long pid) {
    sn_bench_usage u = {0};
    char path[64], task[360];
    snprintf(path, sizeof path, pid ? "/proc/%ld/task" : "/proc/self/task", pid);
    DIR *dir = opendir(path);
    for (struct dirent *d; dir && (d = readdir(dir));) {
        if (*d->d_name == '.') continue;
        snprintf(task, sizeof task, "%s/%s", path, d->d_name);
        add_thread(&u, task);
    }
    if (dir) closedir(dir);
    return u.cpu > 0 ? u : (sn_bench_usage){NAN, NAN, NAN};
}

sn_bench_noise sn_bench_noise_begin(void) {
    sn_bench_noise n = {.start = sn_clock(), .process = process_seconds()};
    n.known = read_machine(&n.busy, &n.stolen);
    return n;
}

void sn_bench_noise_end(const sn_bench_noise *n, double *others, double *stolen) {
    double busy = 0, taken = 0, wall = sn_clock() - n->start;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    bool known = n->known && read_machine(&busy, &taken) && wall > 0 && cpus > 0;
    double all = wall * (double)cpus, rest = busy - n->busy - (process_seconds() - n->process);
    *others = known ? 100 * (rest > 0 ? rest : 0) / all : -1;
    *stolen = known ? 100 * (taken - n->stolen) / all : -1;
}

bool sn_bench_busy(double others, double stolen) {
    static const double quiet = 5;
    return others + stolen >= quiet;
}

const char *sn_bench_noise_text(double others, double stolen, char text[SN_BENCH_NOISE_TEXT]) {
    *text = 0;
    if (sn_bench_busy(others, stolen))
        snprintf(text, SN_BENCH_NOISE_TEXT,
                 "the machine was not idle: other programs used %.0f %% of the CPU time, the host "
                 "took %.0f %%; repeat the measurement",
                 others, stolen);
    return text;
}
