/* sim.c: a communicator whose ranks are threads of this process. An operation is complete for a rank
 * when all ranks have started it and this rank has copied what it gets; its memory belongs to the
 * last rank that is done with it. */
#include "runtime/comm/comm.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct world world;

typedef enum kind { ALL_TO_ALL, ALL_GATHER, ALL_REDUCE, BROADCAST } kind;

/* Operation number `number` of every rank; gathers are counted apart from others. */
typedef struct operation {
    struct operation *next;
    bool gather;
    long number;
    int started, copied, done;
    struct side {
        const char *send;
        char *receive;
        sn_comm_parts from, to;
    } side[]; /* [size] */
} operation;

struct world {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int size, open;
    operation *list;
    const char **host;
};

typedef struct rank {
    sn_comm comm;
    world *w;
    long number[2]; /* of operations that this rank has started: gathers, others */
} rank;

struct sn_comm_request {
    operation *o;
    kind kind;
    void *data;
    size_t n; /* bytes; ALL_REDUCE: floats */
    int root;
    bool copied;
};

static operation *operation_of(rank *me, kind k) {
    world *w = me->w;
    bool gather = k == ALL_GATHER;
    long number = me->number[gather]++;
    for (operation *o = w->list; o; o = o->next)
        if (o->number == number && o->gather == gather) return o;
    operation *o = calloc(1, sizeof *o + (size_t)w->size * sizeof o->side[0]);
    if (!o) return NULL;
    o->number = number, o->gather = gather, o->next = w->list;
    w->list = o;
    return o;
}

static sn_comm_request *start(sn_comm *c, sn_comm_request r, struct side side, sn_error *err) {
    rank *me = (rank *)c;
    sn_comm_request *out = malloc(sizeof *out);
    pthread_mutex_lock(&me->w->lock);
    r.o = out ? operation_of(me, r.kind) : NULL;
    if (r.o) {
        r.o->side[c->rank] = side;
        r.o->started++;
        *out = r;
        pthread_cond_broadcast(&me->w->changed);
    }
    pthread_mutex_unlock(&me->w->lock);
    if (r.o) return out;
    free(out);
    sn_fail(err, SN_ERR_MEMORY, "out of memory");
    return NULL;
}

static size_t sum_others(const sn_comm *c, const size_t *bytes) {
    size_t sum = 0;
    for (int r = 0; r < c->size; r++) sum += r == c->rank ? 0 : bytes[r];
    return sum;
}

static sn_comm_request *all_to_all(sn_comm *c, const void *send, sn_comm_parts from, void *receive,
                                   sn_comm_parts to, sn_error *err) {
    c->sent += sum_others(c, from.bytes);
    return start(c, (sn_comm_request){.kind = ALL_TO_ALL},
                 (struct side){.send = send, .receive = receive, .from = from, .to = to}, err);
}

static sn_comm_request *all_gather(sn_comm *c, void *data, sn_comm_parts parts, sn_error *err) {
    c->sent += parts.bytes[c->rank] * (size_t)(c->size - 1);
    return start(c, (sn_comm_request){.kind = ALL_GATHER, .data = data},
                 (struct side){.send = data, .receive = data, .from = parts, .to = parts}, err);
}

static sn_comm_request *all_reduce(sn_comm *c, float *data, size_t n, sn_error *err) {
    float *copy = malloc(n * sizeof *copy + 1);
    if (!copy) {
        sn_fail(err, SN_ERR_MEMORY, "out of memory");
        return NULL;
    }
    memcpy(copy, data, n * sizeof *copy);
    c->sent += 2 * n * sizeof *copy * (size_t)(c->size - 1) / (size_t)c->size;
    return start(c, (sn_comm_request){.kind = ALL_REDUCE, .data = data, .n = n},
                 (struct side){.receive = (char *)copy}, err);
}

static sn_comm_request *broadcast(sn_comm *c, void *data, size_t bytes, int root, sn_error *err) {
    if (c->rank == root) c->sent += bytes * (size_t)(c->size - 1);
    return start(c, (sn_comm_request){.kind = BROADCAST, .data = data, .n = bytes, .root = root},
                 (struct side){.send = data}, err);
}

/* Copies what this rank gets; all ranks have started the operation. */
static void copy(const sn_comm *c, const sn_comm_request *r) {
    const struct side *side = r->o->side, *mine = &side[c->rank];
    for (int k = 0; k < c->size; k++) {
        if (r->kind == ALL_TO_ALL && mine->to.bytes[k])
            memcpy(mine->receive + mine->to.at[k], side[k].send + side[k].from.at[c->rank],
                   mine->to.bytes[k]);
        if (r->kind == ALL_GATHER && k != c->rank && mine->to.bytes[k])
            memcpy(mine->receive + mine->to.at[k], side[k].send + side[k].from.at[k],
                   mine->to.bytes[k]);
    }
    if (r->kind == BROADCAST && c->rank != r->root) memcpy(r->data, side[r->root].send, r->n);
    float *sum = r->data;
    for (size_t i = 0; r->kind == ALL_REDUCE && i < r->n; i++) {
        sum[i] = 0;
        for (int k = 0; k < c->size; k++) sum[i] += ((const float *)(void *)side[k].receive)[i];
    }
}

static void drop(world *w, operation *o, bool reduced) {
    operation **at = &w->list;
    while (*at != o) at = &(*at)->next;
    *at = o->next;
    for (int r = 0; reduced && r < w->size; r++) free(o->side[r].receive);
    free(o);
}

/* A rank is done when all have copied: until then its buffers are read. */
static bool test(sn_comm *c, sn_comm_request **request, bool wait, sn_error *err) {
    (void)err;
    rank *me = (rank *)c;
    world *w = me->w;
    sn_comm_request *r = *request;
    if (!r) return true;
    operation *o = r->o;
    pthread_mutex_lock(&w->lock);
    while (wait && o->started < w->size) pthread_cond_wait(&w->changed, &w->lock);
    if (o->started == w->size && !r->copied) {
        pthread_mutex_unlock(&w->lock);
        copy(c, r);
        pthread_mutex_lock(&w->lock);
        r->copied = true;
        o->copied++;
        pthread_cond_broadcast(&w->changed);
    }
    while (wait && o->copied < w->size) pthread_cond_wait(&w->changed, &w->lock);
    if (o->copied == w->size) {
        if (++o->done == w->size) drop(w, o, r->kind == ALL_REDUCE);
        free(r);
        *request = NULL;
    }
    pthread_mutex_unlock(&w->lock);
    return true;
}

/* The first rank of each color makes the communicators of all its ranks and gives them theirs. */
static sn_comm *split(sn_comm *c, int color, sn_error *err) {
    size_t n = (size_t)c->size, bytes = n * sizeof(sn_comm *);
    int *colors = calloc(n, sizeof *colors), members = 0, first = -1;
    sn_comm **all = calloc(n, bytes), **made = calloc(n, sizeof *made), *mine = NULL;
    bool ok = (colors && all && made) || sn_fail(err, SN_ERR_MEMORY, "out of memory");
    if (ok) colors[c->rank] = color;
    ok = ok && sn_comm_gather(c, colors, sizeof *colors, err);
    for (int r = 0; ok && r < c->size; r++) {
        if (colors[r] != color) continue;
        if (first < 0) first = r;
        members++;
    }
    if (ok && first == c->rank) {
        sn_comm **row = all + (size_t)c->rank * n;
        ok = sn_comm_simulate(members, made, err);
        for (int r = 0, k = 0; ok && r < c->size; r++)
            if (colors[r] == color) row[r] = made[k++];
    }
    if (colors && all && made) ok = sn_comm_gather(c, all, bytes, err) && ok;
    if (ok) mine = all[(size_t)first * n + (size_t)c->rank];
    free(colors), free(all), free(made);
    return mine || !ok ? mine : (sn_fail(err, SN_ERR_MEMORY, "out of memory"), NULL);
}

static void end_process(sn_comm *c, int code) {
    (void)c;
    _Exit(code);
}

static void free_world(world *w) {
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->changed);
    free(w->host);
    free(w);
}

static void close_rank(sn_comm *c) {
    rank *me = (rank *)c;
    world *w = me->w;
    pthread_mutex_lock(&w->lock);
    bool last = --w->open == 0;
    pthread_mutex_unlock(&w->lock);
    if (last) free_world(w);
    free(me);
}

static const sn_comm_ops ops = {all_to_all, all_gather, all_reduce,  broadcast,
                                test,       split,      end_process, close_rank};

bool sn_comm_simulate(int n, sn_comm **out, sn_error *err) {
    world *w = calloc(1, sizeof *w);
    const char **host = calloc((size_t)n, sizeof *host);
    if (!w || !host) {
        free(w), free(host);
        return sn_fail(err, SN_ERR_MEMORY, "out of memory");
    }
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    w->size = w->open = n;
    w->host = host;
    bool ok = true;
    for (int r = 0; r < n; r++) {
        host[r] = "simulated";
        rank *k = calloc(1, sizeof *k);
        out[r] = k ? &k->comm : NULL;
        ok = ok && k;
        if (k) *k = (rank){{&ops, r, n, host, r, n, "simulated", 0}, w, {0, 0}};
    }
    if (ok) return true;
    for (int r = 0; r < n; r++) free(out[r]);
    free_world(w);
    return sn_fail(err, SN_ERR_MEMORY, "out of memory");
}
