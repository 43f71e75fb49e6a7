/* plugin.c: a communicator over MPI [MPI-3.1], as a plugin: built once for each MPI that is
 * installed, loaded by sn_comm_open. It uses nothing of the program but comm.h. */
#include "runtime/comm/comm.h"

#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef OMPI_MAJOR_VERSION
#define LIBRARY "Open MPI"
#else
#define LIBRARY "MPICH"
#endif

/* MPI is called by one thread at a time (MPI_THREAD_SERIALIZED), whatever communicators threads use. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

typedef struct mpi {
    sn_comm comm;
    bool part;               /* of another one, by split */
    MPI_Comm world, gathers; /* gathers: of their own order */
    char (*name)[MPI_MAX_PROCESSOR_NAME];
    const char **host;
} mpi;

struct sn_comm_request {
    MPI_Request request;
    int count[]; /* counts and displacements, which MPI reads until the end */
};

/* sn_fail of the program is out of reach. */
static bool fail(sn_error *err, sn_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static bool fail(sn_error *err, sn_code code, const char *fmt, ...) {
    if (!err || err->code) return false;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->message, sizeof err->message, fmt, ap);
    va_end(ap);
    err->code = code;
    return false;
}

static bool check(int result, const char *what, sn_error *err) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int size = 0;
    if (result == MPI_SUCCESS) return true;
    MPI_Error_string(result, text, &size);
    return fail(err, SN_ERR_FILE, "%s failed: %s", what, text);
}

/* A request with room for n counts. */
static sn_comm_request *request_for(size_t n, sn_error *err) {
    sn_comm_request *r = malloc(sizeof *r + n * sizeof *r->count);
    if (!r) fail(err, SN_ERR_MEMORY, "out of memory");
    return r;
}

static sn_comm_request *started(sn_comm_request *r, int result, const char *what, sn_error *err) {
    if (check(result, what, err)) return r;
    free(r);
    return NULL;
}

/* Parts as MPI's counts and displacements, in bytes. */
static bool count(int size, sn_comm_parts p, int *counts, int *at, sn_error *err) {
    for (int r = 0; r < size; r++) {
        if (p.bytes[r] > INT_MAX || p.at[r] > INT_MAX)
            return fail(err, SN_ERR_RANGE, "more than 2 GiB in one operation of MPI");
        counts[r] = (int)p.bytes[r], at[r] = (int)p.at[r];
    }
    return true;
}

static sn_comm_request *all_to_all(sn_comm *c, const void *send, sn_comm_parts from, void *receive,
                                   sn_comm_parts to, sn_error *err) {
    int n = c->size;
    sn_comm_request *r = request_for(4 * (size_t)n, err);
    int *k = r ? r->count : NULL;
    if (!r || !count(n, from, k, k + n, err) || !count(n, to, k + 2 * n, k + 3 * n, err)) {
        free(r);
        return NULL;
    }
    for (int i = 0; i < n; i++) c->sent += i == c->rank ? 0 : from.bytes[i];
    pthread_mutex_lock(&lock);
    int result = MPI_Ialltoallv(send, k, k + n, MPI_BYTE, receive, k + 2 * n, k + 3 * n, MPI_BYTE,
                                ((mpi *)c)->world, &r->request);
    pthread_mutex_unlock(&lock);
    return started(r, result, "MPI_Ialltoallv", err);
}

static sn_comm_request *all_gather(sn_comm *c, void *data, sn_comm_parts parts, sn_error *err) {
    int n = c->size;
    sn_comm_request *r = request_for(2 * (size_t)n, err);
    if (!r || !count(n, parts, r->count, r->count + n, err)) {
        free(r);
        return NULL;
    }
    c->sent += parts.bytes[c->rank] * (size_t)(n - 1);
    pthread_mutex_lock(&lock);
    int result = MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_BYTE, data, r->count, r->count + n, MPI_BYTE,
                                 ((mpi *)c)->gathers, &r->request);
    pthread_mutex_unlock(&lock);
    return started(r, result, "MPI_Iallgatherv", err);
}

static sn_comm_request *all_reduce(sn_comm *c, float *data, size_t n, sn_error *err) {
    sn_comm_request *r = request_for(0, err);
    if (!r) return NULL;
    c->sent += 2 * n * sizeof *data * (size_t)(c->size - 1) / (size_t)c->size;
    pthread_mutex_lock(&lock);
    int result = MPI_Iallreduce(MPI_IN_PLACE, data, (int)n, MPI_FLOAT, MPI_SUM, ((mpi *)c)->world,
                                &r->request);
    pthread_mutex_unlock(&lock);
    return started(r, result, "MPI_Iallreduce", err);
}

static sn_comm_request *broadcast(sn_comm *c, void *data, size_t bytes, int root, sn_error *err) {
    sn_comm_request *r = request_for(0, err);
    if (!r) return NULL;
    if (c->rank == root) c->sent += bytes * (size_t)(c->size - 1);
    pthread_mutex_lock(&lock);
    int result = MPI_Ibcast(data, (int)bytes, MPI_BYTE, root, ((mpi *)c)->world, &r->request);
    pthread_mutex_unlock(&lock);
    return started(r, result, "MPI_Ibcast", err);
}

/* Gives way to whoever this rank waits for: at first for a moment, then, as ranks may share a CPU, for
 * longer. */
static void give_way(int looks) {
    enum { SOON = 1000, NANOSECONDS = 20000 };
    const struct timespec pause = {0, NANOSECONDS};
    if (looks < SOON)
        sched_yield();
    else
        nanosleep(&pause, NULL);
}

static bool test(sn_comm *c, sn_comm_request **r, bool wait, sn_error *err) {
    (void)c;
    int done = 0, result = MPI_SUCCESS;
    if (!*r) return true;
    for (int looks = 0;; looks++) { /* not MPI_Wait: others may call MPI meanwhile */
        pthread_mutex_lock(&lock);
        result = MPI_Test(&(*r)->request, &done, MPI_STATUS_IGNORE);
        pthread_mutex_unlock(&lock);
        if (!wait || done || result != MPI_SUCCESS) break;
        give_way(looks);
    }
    bool ok = check(result, "a collective operation of MPI", err);
    if (ok && !done) return true;
    free(*r);
    *r = NULL;
    return ok;
}

static void end_all(sn_comm *c, int code) {
    MPI_Abort(((mpi *)c)->world, code);
    _Exit(code);
}

static void free_mpi(mpi *m) {
    free(m->name);
    free(m->host);
    free(m);
}

static void close_mpi(sn_comm *c) {
    mpi *m = (mpi *)c;
    MPI_Comm_free(&m->world);
    MPI_Comm_free(&m->gathers);
    if (!m->part) MPI_Finalize();
    free_mpi(m);
}

static sn_comm *split(sn_comm *c, int color, sn_error *err);

static const sn_comm_ops ops = {all_to_all, all_gather, all_reduce, broadcast,
                                test,       split,      end_all,    close_mpi};

static bool find_hosts(mpi *m, sn_error *err) {
    int n = m->comm.size, length = 0;
    m->name = calloc((size_t)n, sizeof *m->name);
    m->host = calloc((size_t)n, sizeof *m->host);
    if (!m->name || !m->host) return fail(err, SN_ERR_MEMORY, "out of memory");
    MPI_Get_processor_name(m->name[m->comm.rank], &length);
    int result =
        MPI_Allgather(MPI_IN_PLACE, 0, MPI_BYTE, m->name, (int)sizeof *m->name, MPI_BYTE, m->world);
    for (int r = 0; r < n; r++) m->host[r] = m->name[r];
    m->comm.host = m->host;
    return check(result, "MPI_Allgather", err);
}

static bool find_neighbours(mpi *m, sn_error *err) {
    MPI_Comm local;
    int result =
        MPI_Comm_split_type(m->world, MPI_COMM_TYPE_SHARED, m->comm.rank, MPI_INFO_NULL, &local);
    if (!check(result, "MPI_Comm_split_type", err)) return false;
    MPI_Comm_rank(local, &m->comm.local_rank);
    MPI_Comm_size(local, &m->comm.local_size);
    MPI_Comm_free(&local);
    return true;
}

/* m: of the ranks of `all`. */
static bool describe(mpi *m, MPI_Comm all, sn_error *err) {
    if (!check(MPI_Comm_dup(all, &m->world), "MPI_Comm_dup", err)) return false;
    if (!check(MPI_Comm_dup(all, &m->gathers), "MPI_Comm_dup", err)) return false;
    MPI_Comm_set_errhandler(m->world, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(m->gathers, MPI_ERRORS_RETURN);
    MPI_Comm_rank(m->world, &m->comm.rank);
    MPI_Comm_size(m->world, &m->comm.size);
    m->comm.library = LIBRARY;
    m->comm.ops = &ops;
    return find_hosts(m, err) && find_neighbours(m, err);
}

static bool start(mpi *m, sn_error *err) {
    int level = 0;
    if (!check(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread", err))
        return false;
    if (level < MPI_THREAD_SERIALIZED)
        return fail(err, SN_ERR_FILE, "this MPI was built without support for threads");
    return describe(m, MPI_COMM_WORLD, err);
}

/* Nobody else may use communicators meanwhile. */
static sn_comm *split(sn_comm *c, int color, sn_error *err) {
    MPI_Comm part;
    mpi *m = calloc(1, sizeof *m);
    if (!m) {
        fail(err, SN_ERR_MEMORY, "out of memory");
        return NULL;
    }
    m->part = true;
    if (!check(MPI_Comm_split(((mpi *)c)->world, color, c->rank, &part), "MPI_Comm_split", err)) {
        free_mpi(m);
        return NULL;
    }
    bool ok = describe(m, part, err);
    MPI_Comm_free(&part);
    if (ok) return &m->comm;
    free_mpi(m);
    return NULL;
}

sn_comm_plugin_fn sn_comm_plugin;
sn_comm *sn_comm_plugin(size_t built, sn_error *err) {
    mpi *m = built == sizeof(sn_comm_ops) ? calloc(1, sizeof *m) : NULL;
    if (m && start(m, err)) return &m->comm;
    fail(err, SN_ERR_FILE, m ? "out of memory" : "the MPI plugin is of another version of Sinter");
    if (m) free_mpi(m);
    return NULL;
}
