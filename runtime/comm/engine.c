/* engine.c: a thread that carries sums, scatters and gathers over ranks while kernels run. Every rank issues its operations
 * in the same order, as MPI requires: sums start in the order of sn_comm_engine_start, and their
 * second rounds, which go over another channel, follow each other in the same order. */
#include "runtime/clock.h"
#include "runtime/comm/comm.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    WINDOW = 8,       /* sums under way; a window of pieces is all the memory that they need */
    PIECE = 4 << 20,  /* floats of one sum */
    SHORTEST = 20000, /* nanoseconds between two looks at what is under way ... */
    LONGEST = 640000, /* ... while nothing happens */
    AWAITED = 40000   /* ... and the program waits */
};

typedef enum kind { SUM, SCATTER, GATHER } kind;

typedef struct job {
    struct job *next;
    const void *key;
    const char *label;
    kind kind;
    sn_comm_shares x;  /* SUM: one part */
    float *out;        /* SCATTER */
    size_t started;    /* floats of x.part that have begun */
    int pieces;        /* under way */
    double due;        /* not complete before */
    double begin, end; /* under way */
    bool done;
} job;

typedef struct piece {
    sn_comm_sum sum;
    job *job; /* NULL: free */
} piece;

struct sn_comm_engine {
    sn_comm *c;
    sn_reduction how;
    int64_t leaves;
    double latency, bandwidth, free_at; /* of a simulated network; 0: none */
    pthread_t thread;
    pthread_mutex_t lock; /* of all below but the pieces */
    pthread_cond_t added, completed;
    job *first, *last;
    bool ending;
    int under_way; /* jobs that are not complete */
    bool awaited;  /* the program waits for one */
    bool called;   /* something has changed since the last look */
    sn_error failure;
    sn_comm_times times;
    const char *label;  /* of the next job */
    sn_comm_span *span; /* [n_span] of room_span */
    size_t n_span, room_span;
    piece piece[WINDOW]; /* a ring: [head, head + count) in order */
    int head, count;
};

/* ---- the thread ---- */

/* The next job with something to start. */
static job *next_job(sn_comm_engine *e) {
    pthread_mutex_lock(&e->lock);
    job *j = e->first;
    while (j && j->started == j->x.part) j = j->next;
    pthread_mutex_unlock(&e->lock);
    return j;
}

/* Starts n more floats of a job's part. */
static bool start_piece(sn_comm_engine *e, sn_comm_sum *s, const job *j, size_t n, sn_error *err) {
    if (j->kind == SCATTER)
        return sn_comm_scatter_start(s, e->c, e->leaves, j->x, j->started, n, j->out + j->started,
                                     err);
    if (j->kind == GATHER) return sn_comm_gather_start(s, e->c, j->x, j->started, n, err);
    return sn_comm_sum_start(s, e->c, e->how, e->leaves, j->x.data + j->started, n, err);
}

static bool start_pieces(sn_comm_engine *e, bool *moved, sn_error *err) {
    job *j;
    while (e->count < WINDOW && (j = next_job(e))) {
        piece *p = &e->piece[(e->head + e->count) % WINDOW];
        size_t most = j->kind == SUM ? PIECE : (PIECE - 1) / (size_t)e->c->size + 1;
        size_t n = j->x.part - j->started < most ? j->x.part - j->started : most;
        if (!start_piece(e, &p->sum, j, n, err)) return false;
        pthread_mutex_lock(&e->lock);
        j->started += n;
        j->pieces++;
        pthread_mutex_unlock(&e->lock);
        p->job = j;
        e->count++;
        *moved = true;
    }
    return true;
}

static bool look(sn_comm_engine *e, bool *moved, sn_error *err) {
    for (int i = 0; i < e->count; i++) {
        piece *p = &e->piece[(e->head + i) % WINDOW];
        int round = p->sum.round;
        bool done = false;
        if (!p->job) continue;
        if (!sn_comm_sum_test(&p->sum, false, &done, err)) return false;
        *moved |= done || p->sum.round != round;
        if (done) {
            pthread_mutex_lock(&e->lock);
            p->job->pieces--;
            pthread_mutex_unlock(&e->lock);
            p->job = NULL;
        } else if (p->sum.round == 1) {
            break; /* second rounds begin in order */
        }
    }
    for (; e->count && !e->piece[e->head].job; e->count--) e->head = (e->head + 1) % WINDOW;
    return true;
}

/* Marks jobs that are complete. */
static void complete(sn_comm_engine *e) {
    double now = sn_clock();
    pthread_mutex_lock(&e->lock);
    for (job *j = e->first; j; j = j->next) {
        bool done = j->started == j->x.part && !j->pieces && now >= j->due;
        if (!done || j->done) continue;
        j->done = true, j->end = now;
        if (!--e->under_way) e->times.busy += now - e->times.begun;
        pthread_cond_broadcast(&e->completed);
    }
    pthread_mutex_unlock(&e->lock);
}

/* Sleeps until there is something to do. False: the end. */
static bool await_jobs(sn_comm_engine *e) {
    pthread_mutex_lock(&e->lock);
    while (!e->ending && !e->first) pthread_cond_wait(&e->added, &e->lock);
    bool ending = e->ending;
    pthread_mutex_unlock(&e->lock);
    return !ending;
}

/* Until the next look: the program may call before. Returns how long the next pause may be, nanoseconds. */
static long rest(sn_comm_engine *e, long pause) {
    double until = sn_clock() + 1e-9 * (double)pause, whole;
    long part = (long)(1e9 * modf(until, &whole));
    pthread_mutex_lock(&e->lock);
    if (!e->called)
        pthread_cond_timedwait(&e->added, &e->lock, &(struct timespec){(time_t)whole, part});
    long longest = e->awaited ? AWAITED : LONGEST;
    e->called = false;
    pthread_mutex_unlock(&e->lock);
    return 2 * pause < longest ? 2 * pause : longest;
}

static void report(sn_comm_engine *e, const sn_error *why) {
    pthread_mutex_lock(&e->lock);
    e->failure = *why;
    pthread_cond_broadcast(&e->completed);
    pthread_mutex_unlock(&e->lock);
}

/* Asks for short time slices: since Linux 6.12 a thread that wakes with a shorter slice than the one
 * that computes goes first, and gives way soon. Otherwise it may wait for milliseconds at each look
 * where no CPU is idle. Not where ranks share CPUs: each look would change the rank that computes. Fails
 * without harm elsewhere. */
static void ask_short_slices(const sn_comm *c) {
#ifdef SYS_sched_setattr
    if (c->local_size > sysconf(_SC_NPROCESSORS_ONLN)) return;
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period; /* nanoseconds */
    } slice = {.size = sizeof slice};
    enum { SHORT = 100000 };
    if (syscall(SYS_sched_getattr, 0, &slice, sizeof slice, 0)) return;
    slice.runtime = SHORT;
    syscall(SYS_sched_setattr, 0, &slice, 0);
#endif
}

static void *run(void *arg) {
    sn_comm_engine *e = arg;
    ask_short_slices(e->c);
    sn_error why = {0};
    long pause = SHORTEST;
    while (await_jobs(e)) {
        bool moved = false;
        if (!start_pieces(e, &moved, &why) || !look(e, &moved, &why)) {
            report(e, &why);
            return NULL;
        }
        complete(e);
        pause = moved ? SHORTEST : rest(e, pause);
    }
    return NULL;
}

/* ---- for the program ---- */

sn_comm_engine *sn_comm_engine_new(sn_comm *c, sn_reduction how, int64_t leaves, sn_error *err) {
    sn_comm_engine *e = calloc(1, sizeof *e);
    if (!e) {
        sn_fail(err, SN_ERR_MEMORY, "out of memory");
        return NULL;
    }
    e->c = c, e->how = how, e->leaves = leaves;
    pthread_mutex_init(&e->lock, NULL);
    pthread_condattr_t by_clock; /* sn_clock's */
    pthread_condattr_init(&by_clock);
    pthread_condattr_setclock(&by_clock, CLOCK_MONOTONIC);
    pthread_cond_init(&e->added, &by_clock);
    pthread_condattr_destroy(&by_clock);
    pthread_cond_init(&e->completed, NULL);
    if (!pthread_create(&e->thread, NULL, run, e)) return e;
    pthread_cond_destroy(&e->completed);
    pthread_cond_destroy(&e->added);
    pthread_mutex_destroy(&e->lock);
    free(e);
    sn_fail(err, SN_ERR_MEMORY, "cannot create a thread for communication");
    return NULL;
}

void sn_comm_engine_delay(sn_comm_engine *e, double latency, double bandwidth) {
    e->latency = latency, e->bandwidth = bandwidth;
}

/* bytes: that each rank sends */
static bool add_job(sn_comm_engine *e, job add, double bytes, sn_error *err) {
    job *j = calloc(1, sizeof *j);
    if (!j) return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    *j = add;
    double now = sn_clock();
    j->begin = now, j->label = e->label;
    e->label = NULL;
    pthread_mutex_lock(&e->lock);
    if (e->bandwidth > 0) {
        if (e->free_at < now) e->free_at = now;
        e->free_at += e->latency + bytes / e->bandwidth;
        j->due = e->free_at;
    }
    if (!e->under_way++) e->times.begun = now;
    if (e->last) e->last->next = j;
    e->last = j;
    if (!e->first) e->first = j;
    e->times.bytes += bytes;
    e->called = true;
    pthread_cond_signal(&e->added);
    pthread_mutex_unlock(&e->lock);
    return true;
}

bool sn_comm_engine_start(sn_comm_engine *e, const void *key, float *data, size_t n,
                          sn_error *err) {
    double size = e->c->size, bytes = 2 * (size - 1) / size * (double)(n * sizeof *data);
    return add_job(e, (job){.key = key, .kind = SUM, .x = {data, n, n}}, bytes, err);
}

static double bytes_of_parts(const sn_comm_engine *e, sn_comm_shares x) {
    return (double)(e->c->size - 1) / e->c->size * (double)(x.n * sizeof *x.data);
}

bool sn_comm_engine_scatter(sn_comm_engine *e, const void *key, sn_comm_shares x, float *out,
                            sn_error *err) {
    return add_job(e, (job){.key = key, .kind = SCATTER, .x = x, .out = out}, bytes_of_parts(e, x),
                   err);
}

bool sn_comm_engine_gather(sn_comm_engine *e, const void *key, sn_comm_shares x, sn_error *err) {
    return add_job(e, (job){.key = key, .kind = GATHER, .x = x}, bytes_of_parts(e, x), err);
}

static void drop(sn_comm_engine *e, job *done) {
    job *before = NULL, *j = e->first;
    for (; j != done; j = j->next) before = j;
    if (before)
        before->next = j->next;
    else
        e->first = j->next;
    if (e->last == j) e->last = before;
    free(j);
}

static job *find(const sn_comm_engine *e, const void *key) {
    job *j = e->first;
    while (j && j->key != key) j = j->next;
    return j;
}

bool sn_comm_engine_carries(sn_comm_engine *e, const void *key) {
    pthread_mutex_lock(&e->lock);
    bool found = find(e, key) != NULL;
    pthread_mutex_unlock(&e->lock);
    return found;
}

bool sn_comm_engine_settle(sn_comm_engine *e, sn_error *err) {
    while (e->first) /* which only this thread adds and removes */
        if (!sn_comm_engine_wait(e, e->first->key, err)) return false;
    return true;
}

bool sn_comm_engine_wait(sn_comm_engine *e, const void *key, sn_error *err) {
    double begin = sn_clock();
    pthread_mutex_lock(&e->lock);
    job *j = find(e, key);
    e->awaited = e->called = j && !j->done;
    if (e->awaited) pthread_cond_signal(&e->added);
    while (j && !j->done && !e->failure.code) pthread_cond_wait(&e->completed, &e->lock);
    e->awaited = false;
    bool ok = j && j->done;
    if (ok && e->n_span < e->room_span)
        e->span[e->n_span++] = (sn_comm_span){j->label, j->begin, j->end};
    if (ok) drop(e, j);
    double now = sn_clock();
    e->times.waited += now - begin;
    sn_error why = e->failure;
    pthread_mutex_unlock(&e->lock);
    return ok || sn_fail(err, why.code ? why.code : SN_ERR_INTERNAL, "%s",
                         why.code ? why.message : "no such sum is under way");
}

void sn_comm_engine_label(sn_comm_engine *e, const char *label) {
    e->label = label;
}

void sn_comm_engine_record(sn_comm_engine *e, size_t n) {
    e->span = calloc(n + 1, sizeof *e->span);
    e->room_span = e->span ? n : 0;
}

size_t sn_comm_engine_spans(const sn_comm_engine *e, const sn_comm_span **list) {
    *list = e->span;
    return e->n_span;
}

sn_comm_times sn_comm_engine_times(const sn_comm_engine *e) {
    return e->times;
}

void sn_comm_engine_free(sn_comm_engine *e) {
    if (!e) return;
    pthread_mutex_lock(&e->lock);
    e->ending = true;
    pthread_cond_signal(&e->added);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);
    while (e->first) drop(e, e->first);
    for (int i = 0; i < WINDOW; i++) sn_comm_sum_free(&e->piece[i].sum);
    free(e->span);
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->added);
    pthread_cond_destroy(&e->completed);
    free(e);
}
