/* comm.c: finds out who started this process, loads the plugin for that MPI; what every
 * implementation has in common. */
#include "runtime/comm/comm.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Variables that launchers set for each process. */
static const struct launcher {
    const char *variable, *library;
} launchers[] = {{"OMPI_COMM_WORLD_SIZE", "openmpi"}, /* mpirun of Open MPI */
                 {"PMIX_RANK", "openmpi"},            /* srun --mpi=pmix */
                 {"PMI_SIZE", "mpich"},               /* mpiexec of MPICH */
                 {"PMI_RANK", "mpich"}};              /* srun --mpi=pmi2 */

bool sn_comm_launched(const char **library) {
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        if (getenv(launchers[i].variable)) {
            *library = launchers[i].library;
            return true;
        }
    return false;
}

/* srun without a process manager starts tasks that do not know each other: each would train alone. */
static bool check_slurm(sn_error *err) {
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS"), *type = getenv("SLURM_MPI_TYPE");
    if (!tasks || atoi(tasks) < 2 || !getenv("SLURM_PROCID")) return true;
    return sn_fail(err, SN_ERR_USAGE,
                   "srun started %s tasks, but without MPI (--mpi=%s): use srun --mpi=pmix (Open "
                   "MPI) or srun --mpi=pmi2 (MPICH)",
                   tasks, type ? type : "none");
}

/* Beside the program in a build tree, else where it is installed. */
static void *load(const char *library, sn_error *err) {
    static const char *const places[] = {"", "../" SN_LIBDIR "/sinter/", "../lib/sinter/"};
    char self[4096], path[4300];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    char *slash = strrchr(self, '/');
    if (slash) slash[1] = 0;
    for (size_t i = 0; slash && i < sizeof places / sizeof *places; i++) {
        snprintf(path, sizeof path, "%s%ssinter-%s.so", self, places[i], library);
        if (access(path, R_OK)) continue;
        void *handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL); /* MPI's own plugins use its symbols */
        if (!handle) sn_fail(err, SN_ERR_FILE, "cannot load MPI: %s", dlerror());
        return handle;
    }
    bool open = !strcmp(library, "openmpi");
    sn_fail(err, SN_ERR_FILE,
            "this process was started by %s, but the plugin sinter-%s.so is not installed. Build "
            "Sinter with %s and -DSN_MPI=ON, or start it with the other MPI",
            open ? "Open MPI" : "MPICH", library, open ? "libopenmpi-dev" : "libmpich-dev");
    return NULL;
}

bool sn_comm_open(sn_comm **out, sn_error *err) {
    const char *library;
    *out = NULL;
    if (!sn_comm_launched(&library)) return check_slurm(err);
    void *handle = load(library, err);
    if (!handle) return false;
    sn_comm_plugin_fn *open = NULL;
    *(void **)&open = dlsym(handle, "sn_comm_plugin");
    if (!open) return sn_fail(err, SN_ERR_FILE, "sinter-%s.so is not a plugin of Sinter", library);
    *out = open(sizeof(sn_comm_ops), err);
    return *out != NULL;
}

void sn_comm_close(sn_comm *c) {
    if (c) c->ops->close(c);
}

bool sn_comm_wait(sn_comm *c, sn_comm_request *r, sn_error *err) {
    return r && c->ops->test(c, &r, true, err);
}

bool sn_comm_broadcast(sn_comm *c, void *data, size_t bytes, int root, sn_error *err) {
    size_t at = 0, n;
    for (; at < bytes; at += n) {
        n = bytes - at < SN_COMM_MAX ? bytes - at : SN_COMM_MAX;
        if (!sn_comm_wait(c, c->ops->broadcast(c, (char *)data + at, n, root, err), err))
            return false;
    }
    return true;
}

bool sn_comm_gather(sn_comm *c, void *data, size_t bytes, sn_error *err) {
    size_t *list = calloc(2 * (size_t)c->size, sizeof *list), *each = list + c->size;
    if (!list) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    for (int r = 0; r < c->size; r++) list[r] = (size_t)r * bytes, each[r] = bytes;
    sn_comm_request *r = c->ops->all_gather(c, data, (sn_comm_parts){list, each}, err);
    bool ok = sn_comm_wait(c, r, err);
    free(list);
    return ok;
}

bool sn_comm_collect(sn_comm *c, const void *data, size_t bytes, void **all, size_t *size,
                     sn_error *err) {
    size_t n = (size_t)c->size, *list = calloc(4 * n, sizeof *list), sum = 0;
    size_t *from = list, *to = list + n, *sent = list + 2 * n, *got = list + 3 * n;
    *all = NULL;
    if (!list) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    size[c->rank] = bytes;
    bool ok = sn_comm_gather(c, size, sizeof *size, err);
    sent[0] = bytes;
    for (size_t r = 0; r < n; r++) {
        to[r] = sum;
        got[r] = c->rank ? 0 : size[r];
        sum += size[r];
    }
    if (ok && sum > INT32_MAX) ok = sn_fail(err, SN_ERR_RANGE, "%zu bytes of all ranks", sum);
    void *out = ok && c->rank == 0 ? malloc(sum + 1) : NULL;
    ok = sn_comm_agree(c, ok && (c->rank || out || sn_fail(err, SN_ERR_MEMORY, "out of memory")),
                       err);
    sn_comm_parts give = {from, sent}, take = {to, got};
    ok = ok && sn_comm_wait(c, c->ops->all_to_all(c, data, give, out, take, err), err);
    free(list);
    if (ok)
        *all = out;
    else
        free(out);
    return ok;
}

bool sn_comm_barrier(sn_comm *c, sn_error *err) {
    char *all = calloc((size_t)c->size, 1);
    bool ok = all ? sn_comm_gather(c, all, 1, err) : sn_fail(err, SN_ERR_MEMORY, "out of memory");
    free(all);
    return ok;
}

bool sn_comm_agree(sn_comm *c, bool ok, sn_error *err) {
    if (!c) return ok;
    sn_error *all = calloc((size_t)c->size, sizeof *all), why = {0};
    if (!all) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    sn_error *mine = &all[c->rank];
    if (!ok && err) *mine = *err;
    if (!ok && !mine->code) mine->code = SN_ERR_INTERNAL;
    bool known = sn_comm_gather(c, all, sizeof *all, &why);
    int first = 0;
    while (known && first < c->size && !all[first].code) first++;
    ok = known && first == c->size;
    if (!known) {
        sn_fail(err, why.code, "%s", why.message);
    } else if (!ok && err) {
        int same = 0; /* ranks that failed for the same reason: it is not one machine's */
        for (int r = 0; r < c->size; r++) same += !strcmp(all[r].message, all[first].message);
        *err = (sn_error){0};
        if (same == c->size)
            *err = all[0];
        else
            sn_fail(err, all[first].code, "rank %d on %s: %.800s", first, c->host[first],
                    all[first].message);
    }
    free(all);
    return ok;
}

bool sn_comm_check_same(sn_comm *c, const sn_comm_same *list, int n, sn_error *err) {
    if (!c) return true;
    uint64_t *all = calloc((size_t)c->size * (size_t)n, sizeof *all);
    if (!sn_comm_agree(c, all || sn_fail(err, SN_ERR_MEMORY, "out of memory"), err)) {
        free(all);
        return false;
    }
    for (int i = 0; i < n; i++) all[c->rank * n + i] = list[i].hash;
    bool ok = sn_comm_gather(c, all, (size_t)n * sizeof *all, err);
    for (int k = 1; ok && k < c->size; k++)
        for (int i = 0; ok && i < n; i++)
            if (all[k * n + i] != all[i])
                ok = sn_fail(err, SN_ERR_USAGE,
                             "rank %d on %s has not the same %s as rank 0 on %s: %s", k, c->host[k],
                             list[i].what, c->host[0], list[i].hint);
    free(all);
    return ok;
}
