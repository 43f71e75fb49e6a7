/* peers.c: starts peers, sends them requests, and stops them. */
#include "bench/peers.h"

#include <cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TIMEOUT_MS = 300000, LINE = 4096, MAX_ENV = 8 };

/* CPUs for which the peers are told which kernels to take. */
typedef enum cpu_level { OTHER, AVX2, AVX512, N_LEVEL } cpu_level;

static cpu_level level_of_cpu(void) {
#if defined __x86_64__
    if (__builtin_cpu_supports("avx512f")) return AVX512;
    if (__builtin_cpu_supports("avx2")) return AVX2;
#endif
    return OTHER;
}

/* A variable of a peer's environment, and its value on each kind of CPU; NULL: not set. */
typedef struct variable {
    const char *name;
    const char *value[N_LEVEL];
} variable;

/* PyTorch's threads compete for the cores with those of the pthreads build of OpenBLAS. */
static const char openmp_openblas[] = "/usr/lib/x86_64-linux-gnu/openblas-openmp";
static const variable libraries = {"LD_LIBRARY_PATH",
                                   {openmp_openblas, openmp_openblas, openmp_openblas}};
static const char core_variable[] = "OPENBLAS_CORETYPE";
/* PyTorch takes AVX2 kernels where AVX-512 ones are faster. */
static const variable capability = {"ATEN_CPU_CAPABILITY", {NULL, NULL, "avx512"}};
/* PyTorch keeps freed memory; otherwise page faults take up to two thirds of the time. */
static const char keep_memory[] = "glibc.malloc.mmap_threshold=34359738368:"
                                  "glibc.malloc.trim_threshold=34359738368:"
                                  "glibc.malloc.top_pad=268435456";
static const variable tunables = {"GLIBC_TUNABLES", {keep_memory, keep_memory, keep_memory}};

/* ONNX Runtime computes a graph as it is written. */
static const variable as_written = {"PEER_UNFUSED", {"1", "1", "1"}};

/* A peer in its fastest configuration, or, to compare level 0 with, without fusion; variables are set unless the user has set them. */
static const struct peer_info {
    const char *name;
    /* the last word is a script in the peers' folder; empty: built in */
    const char *const command[4];
    bool openblas; /* computes products by it */
    bool unfused;  /* one operation after the other, as level 0 does */
    const variable *const env[MAX_ENV];
} infos[] = {
    {"openblas", {NULL}, true, false, {NULL}},
    {"torch",
     {"/usr/bin/python3", "torch_peer.py"},
     true,
     true,
     {&libraries, &capability, &tunables}},
    {"torch-malloc", {"/usr/bin/python3", "torch_peer.py"}, true, true, {&libraries, &capability}},
    {"onnxruntime", {"node", "ort_peer.js"}, false, false, {NULL}},
    {"onnxruntime-unfused", {"node", "ort_peer.js"}, false, true, {&as_written}},
};
enum { N_INFO = sizeof infos / sizeof *infos };

const char *sn_bench_peer_name(int i) {
    return i >= 0 && i < N_INFO ? infos[i].name : NULL;
}

typedef struct peer {
    const struct peer_info *info;
    const char *core; /* of OpenBLAS; NULL: its own choice */
    sn_bench_openblas *blas;
    pid_t pid;
    int to, from, threads;
    char setup[SN_BENCH_SETUP], path[256], *request; /* path: how it computed the last work */
    char buffer[LINE];                               /* input read beyond the last line */
    size_t used;
} peer;

struct sn_bench_peers {
    peer list[N_INFO];
    int n, threads;
};

/* ---- communication ---- */

/* Reads a line from the worker, without the newline. */
static bool read_line(peer *p, char line[LINE], sn_error *err) {
    for (;;) {
        char *end = memchr(p->buffer, '\n', p->used);
        if (end) {
            size_t n = (size_t)(end - p->buffer);
            memcpy(line, p->buffer, n);
            line[n] = 0;
            p->used -= n + 1;
            memmove(p->buffer, end + 1, p->used);
            return true;
        }
        struct pollfd f = {.fd = p->from, .events = POLLIN};
        if (p->used == LINE - 1 || poll(&f, 1, TIMEOUT_MS) <= 0)
            return sn_fail(err, SN_ERR_FILE, "no answer within %d s", TIMEOUT_MS / 1000);
        ssize_t got = read(p->from, p->buffer + p->used, LINE - 1 - p->used);
        if (got <= 0) return sn_fail(err, SN_ERR_FILE, "the process ended");
        p->used += (size_t)got;
    }
}

/* The answer, which the caller deletes; NULL: none, or malformed. */
static cJSON *receive(peer *p, sn_error *err) {
    char line[LINE];
    if (!read_line(p, line, err)) return NULL;
    cJSON *a = cJSON_Parse(line);
    if (!a) sn_fail(err, SN_ERR_FILE, "an answer that is not JSON: %.80s", line);
    return a;
}

static const char *text_of(const cJSON *a, const char *key) {
    const cJSON *x = cJSON_GetObjectItem(a, key);
    return cJSON_IsString(x) ? x->valuestring : NULL;
}

/* skip: set if the peer does not support this work */
static bool ask(peer *p, int repeats, double *seconds, bool *skip, sn_error *err) {
    cJSON *q = cJSON_Parse(p->request);
    cJSON_AddNumberToObject(q, "threads", p->threads);
    cJSON_AddNumberToObject(q, "repeats", repeats);
    char *text = cJSON_PrintUnformatted(q);
    cJSON_Delete(q);
    size_t n = text ? strlen(text) : 0;
    bool sent = n && write(p->to, text, n) == (ssize_t)n && write(p->to, "\n", 1) == 1;
    free(text);
    if (!sent) return sn_fail(err, SN_ERR_FILE, "the process does not accept requests");
    cJSON *a = receive(p, err);
    if (!a) return false;
    const cJSON *s = cJSON_GetObjectItem(a, "seconds");
    *skip = text_of(a, "skip") != NULL;
    bool ok = *skip || cJSON_IsNumber(s);
    if (cJSON_IsNumber(s)) *seconds = s->valuedouble;
    snprintf(p->path, sizeof p->path, "%s", text_of(a, "path") ? text_of(a, "path") : "");
    if (!ok)
        sn_fail(err, SN_ERR_FILE, "%s", text_of(a, "error") ? text_of(a, "error") : "no result");
    cJSON_Delete(a);
    return ok;
}

static double number_of(const cJSON *q, const char *key) {
    const cJSON *x = cJSON_GetObjectItem(q, key);
    return cJSON_IsNumber(x) ? x->valuedouble : 0;
}

static bool ask_openblas(peer *p, const char *request, int repeats, double *seconds, bool *skip,
                         sn_error *err) {
    cJSON *q = cJSON_Parse(request);
    const char *work = text_of(q, "work");
    *skip = !work || strcmp(work, "gemm") != 0 || cJSON_GetObjectItem(q, "compute");
    bool ok =
        *skip || sn_bench_openblas_time(p->blas, (int64_t)number_of(q, "m"),
                                        (int64_t)number_of(q, "n"), (int64_t)number_of(q, "k"),
                                        (int64_t)number_of(q, "copies"), repeats, seconds, err);
    cJSON_Delete(q);
    return ok;
}

static bool ask_any(peer *p, int repeats, double *seconds, bool *skip, sn_error *err) {
    if (p->blas) return ask_openblas(p, p->request, repeats, seconds, skip, err);
    /* threads, ours and theirs, still spin for some milliseconds after their last loop */
    const struct timespec pause = {.tv_nsec = 20000000};
    nanosleep(&pause, NULL);
    bool ok = ask(p, repeats, seconds, skip, err);
    nanosleep(&pause, NULL);
    return ok;
}

static bool time_peer(void *ctx, int repeats, double *seconds, sn_error *err) {
    bool skip;
    return ask_any(ctx, repeats, seconds, &skip, err);
}

/* ---- starting and stopping ---- */

static void stop_worker(peer *p) {
    sn_bench_openblas_close(p->blas);
    free(p->request);
    if (!p->pid) return;
    close(p->to);
    close(p->from);
    kill(p->pid, SIGTERM);
    waitpid(p->pid, NULL, 0);
}

static bool uses_openblas(const peer *p) {
    return p->info->openblas && (!p->core || *p->core);
}

static void set_variables(const peer *p) {
    for (int i = 0; i < MAX_ENV && p->info->env[i]; i++) {
        const char *value = p->info->env[i]->value[level_of_cpu()];
        if (value) setenv(p->info->env[i]->name, value, 0);
    }
    if (!uses_openblas(p)) return;
    unsetenv("OPENBLAS_L2_SIZE");
    if (p->core)
        setenv(core_variable, p->core, 1);
    else
        unsetenv(core_variable);
}

/* Adds the variables to the description of the set-up. */
static void add_variables(peer *p) {
    size_t at = strlen(p->setup);
    for (int i = 0; i < MAX_ENV && p->info->env[i] && at < sizeof p->setup; i++) {
        const char *name = p->info->env[i]->name, *value = getenv(name);
        if (!value) value = p->info->env[i]->value[level_of_cpu()];
        if (value)
            at += (size_t)snprintf(p->setup + at, sizeof p->setup - at, ", %s=%.90s", name, value);
    }
    if (uses_openblas(p) && at < sizeof p->setup)
        snprintf(p->setup + at, sizeof p->setup - at, ", OpenBLAS %s, the fastest of those tried",
                 p->core ? p->core : "as it chooses");
}

static bool start_worker(peer *p, const char *dir, int threads, sn_error *err) {
    char script[512], count[16];
    struct stat st;
    snprintf(script, sizeof script, "%s/%s", dir, p->info->command[1]);
    snprintf(count, sizeof count, "%d", threads);
    if (stat(script, &st))
        return sn_fail(err, SN_ERR_FILE, "%s: %s (--peer-dir names the folder)", script,
                       strerror(errno));
    int down[2], up[2];
    if (pipe2(down, O_CLOEXEC)) return sn_fail(err, SN_ERR_FILE, "%s", strerror(errno));
    if (pipe2(up, O_CLOEXEC)) {
        close(down[0]), close(down[1]);
        return sn_fail(err, SN_ERR_FILE, "%s", strerror(errno));
    }
    p->pid = fork();
    if (p->pid == 0) {
        dup2(down[0], 0);
        dup2(up[1], 1);
        setenv("OMP_NUM_THREADS", count, 1);
        setenv("PEER_THREADS", count, 1);
        set_variables(p);
        execlp(p->info->command[0], p->info->command[0], script, (char *)NULL);
        _exit(127);
    }
    close(down[0]), close(up[1]);
    p->to = down[1], p->from = up[0];
    if (p->pid < 0) {
        p->pid = 0;
        close(p->to), close(p->from);
        return sn_fail(err, SN_ERR_FILE, "%s", strerror(errno));
    }
    sn_error local = {0};
    cJSON *a = receive(p, &local);
    bool ok = a && text_of(a, "setup");
    if (ok) {
        snprintf(p->setup, sizeof p->setup, "%s", text_of(a, "setup"));
        add_variables(p);
    } else {
        const char *why = a ? text_of(a, "absent") : NULL;
        sn_fail(err, SN_ERR_FILE, "%s", why ? why : "cannot be started");
    }
    cJSON_Delete(a);
    return ok;
}

sn_bench_peers *sn_bench_peers_start(const sn_bench_options *o, sn_bench_report *out) {
    if (!o->peers || !strcmp(o->peers, "none")) return NULL;
    sn_bench_peers *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    signal(SIGPIPE, SIG_IGN); /* a peer that died is reported as an error, not by a signal */
    g->threads = sn_bench_threads(o);
    const char *core = NULL;
    bool tried = false;
    for (int i = 0; i < N_INFO; i++) {
        bool all = !strcmp(o->peers, "all");
        if (!all && !sn_bench_listed(o->peers, infos[i].name)) continue;
        sn_error err = {0};
        peer *p = &g->list[g->n];
        if (infos[i].openblas && !tried) {
            sn_bench_progress(o, "trying the kernels of OpenBLAS");
            core = sn_bench_openblas_core();
            tried = true;
        }
        *p = (peer){.info = &infos[i], .threads = g->threads, .core = core};
        sn_bench_progress(o, "starting %s", infos[i].name);
        if (!infos[i].command[0]) {
            set_variables(p);
            p->blas = sn_bench_openblas_open(g->threads, p->setup, &err);
            if (p->blas) add_variables(p);
        }
        if (p->blas || (infos[i].command[0] && start_worker(p, o->peer_dir, g->threads, &err)))
            g->n++;
        else {
            sn_bench_note(out, "%s skipped: %s", infos[i].name, err.message);
            stop_worker(p);
        }
    }
    sn_bench_progress_end(o);
    return g;
}

void sn_bench_peers_stop(sn_bench_peers *g) {
    for (int i = 0; g && i < g->n; i++) stop_worker(&g->list[i]);
    free(g);
}

int sn_bench_peers_enter(sn_bench_peers *g, const char *request,
                         sn_bench_entrant entrant[SN_BENCH_MAX_PEERS], sn_bench_report *out) {
    int n = 0;
    for (int i = 0; g && i < g->n; i++) {
        peer *p = &g->list[i];
        sn_error err = {0};
        double seconds;
        bool skip = false;
        free(p->request);
        p->request = strdup(request);
        if (!p->request || !ask_any(p, 1, &seconds, &skip, &err))
            sn_bench_note(out, "%s: %s", p->info->name, err.message);
        else if (skip)
            sn_bench_note(out, "%s does not have this work: there is no row of it", p->info->name);
        else {
            entrant[n] = (sn_bench_entrant){.level = -1,
                                            .unfused = p->info->unfused,
                                            .backend = p->info->name,
                                            .time = time_peer,
                                            .ctx = p,
                                            .pid = p->pid,
                                            .rel_rms = NAN,
                                            .max_ulp = NAN,
                                            .max_rel = NAN};
            if (uses_openblas(p))
                snprintf(entrant[n].choice, sizeof entrant[n].choice, "%s",
                         p->core ? p->core : "own choice");
            snprintf(entrant[n++].setup, sizeof entrant[0].setup, "%s%s%.250s", p->setup,
                     *p->path ? "; it ran " : "", p->path);
        }
    }
    return n;
}
