/* read_ahead.c: a thread that reads groups of tensors into two blocks of memory in turn. */
#include "codegen/program/read_ahead.h"
#include "runtime/memory.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct slot {
    char *data;
    size_t size;
} slot;

struct sn_read_ahead {
    const sn_weights *w;
    const sn_read_group *group;
    int n;
    slot slot[2]; /* of the thread */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int in_use, complete; /* first group still in use; groups that are read */
    bool stop;
};

size_t sn_read_group_room(const sn_read_group *g) {
    size_t sum = 0;
    for (int i = 0; i < g->n; i++) sum += sn_weights_read_room(g->extent[i].bytes);
    return sum;
}

/* Memory for `bytes` bytes; what the group before needed beyond that is given back. */
static bool fit(slot *s, size_t bytes) {
    if (bytes <= s->size) {
        sn_memory_drop(s->data + bytes, s->size - bytes);
        return true;
    }
    sn_memory_unmap(s->data, s->size);
    s->data = sn_memory_map(bytes);
    s->size = s->data ? bytes : 0;
    return s->data;
}

static void read_group(sn_read_ahead *r, int i) {
    const sn_read_group *g = &r->group[i];
    slot *s = &r->slot[i % 2];
    size_t at = 0;
    if (!fit(s, sn_read_group_room(g))) return;
    for (int k = 0; k < g->n; k++) {
        sn_extent *x = &g->extent[k];
        x->read = sn_weights_read(r->w, x->data, x->bytes, s->data + at);
        at += sn_weights_read_room(x->bytes);
    }
}

static void *read_all(void *arg) {
    sn_read_ahead *r = arg;
    pthread_mutex_lock(&r->lock);
    while (!r->stop && r->complete < r->n) {
        if (r->complete > r->in_use + 1) { /* both blocks are in use or read */
            pthread_cond_wait(&r->changed, &r->lock);
            continue;
        }
        pthread_mutex_unlock(&r->lock);
        read_group(r, r->complete);
        pthread_mutex_lock(&r->lock);
        r->complete++;
        pthread_cond_signal(&r->changed);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

sn_read_ahead *sn_read_ahead_start(const sn_weights *w, const sn_read_group *group, int n) {
    sn_read_ahead *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->w = w;
    r->group = group;
    r->n = n;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    if (pthread_create(&r->thread, NULL, read_all, r) == 0) return r;
    free(r);
    return NULL;
}

void sn_read_ahead_wait(sn_read_ahead *r, int i) {
    pthread_mutex_lock(&r->lock);
    r->in_use = i;
    pthread_cond_signal(&r->changed);
    while (r->complete <= i) pthread_cond_wait(&r->changed, &r->lock);
    pthread_mutex_unlock(&r->lock);
}

void sn_read_ahead_stop(sn_read_ahead *r) {
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->lock);
    pthread_join(r->thread, NULL);
    for (int i = 0; i < 2; i++) sn_memory_unmap(r->slot[i].data, r->slot[i].size);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    free(r);
}
