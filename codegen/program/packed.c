/* packed.c: weights as kernels read them, in the disk cache. The memory of all parameters that a
 * session packs, converts or quantises is written to a file by a thread; the next session of the
 * same files, compiled in the same way, maps that file instead of preparing the weights again.
 *
 * The key covers what the bytes depend on: the files (sn_weights_identity), the names, types and
 * places of the parameters, and the code that prepares them with the version of the code generator
 * and the target. Whatever fails, the weights are prepared as if there was no cache. */
#include "codegen/jit/cache.h"
#include "codegen/program/session.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* Packing less takes no time that anybody notices. */
static const size_t least_bytes = (size_t)64 << 20;

bool sn_packed_is_wanted(const sn_session *s, size_t bytes) {
    const sn_program *p = s->p;
    return p->packed_limit > 0 && !p->n_trained && sn_weights_identity(s->weights) &&
           bytes >= least_bytes && bytes <= (size_t)p->packed_limit;
}

/* False: out of memory. */
static bool make_key(const sn_session *s, sn_cache_key *key) {
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f) return false;
    /* 1: of the conversions in runtime/files/, whose sources sn_cache_make_key does not cover */
    fprintf(f, "form 1, files %016llx\n", (unsigned long long)sn_weights_identity(s->weights));
    for (int i = 0; i < s->n_param; i++) {
        const bound *b = &s->param[i];
        const sn_share *share = &b->from.share;
        if (share->ranks) fprintf(f, "rank %d of %d:", (int)share->rank, (int)share->ranks);
        if (b->owned) fprintf(f, "%s %d %zu from %d", b->name, b->dtype, b->bytes, b->from.dtype);
        fputc('\n', f);
    }
    for (int i = 0; i < s->p->n_entry; i++) {
        const sn_compiled_entry *c = &s->p->entry[i];
        const sn_plan *plan = c->code.plan;
        if (!sn_compiled_prepares(c)) continue;
        fprintf(f, "%s", c->code.symbol);
        for (int k = 0; k < plan->n_buffer; k++)
            if (plan->buffer[k].name) fprintf(f, " %s", plan->buffer[k].name);
        for (int k = 0; k < plan->entry->n_output; k++)
            fprintf(f, " > %s", plan->entry->output[k].name);
        fputc('\n', f);
    }
    bool ok = fclose(f) == 0;
    if (ok) *key = sn_cache_make_key(&s->p->target, text, size);
    free(text);
    return ok;
}

static sn_cache *open_cache(const sn_session *s) {
    sn_error ignored = {0};
    sn_cache *c = sn_cache_open(s->p->cache_dir, 0, &ignored);
    sn_cache_limit_weights(c, 2 * s->p->packed_limit);
    return c;
}

const void *sn_packed_map(sn_session *s, size_t bytes) {
    sn_cache_key key;
    if (!sn_packed_is_wanted(s, bytes) || !make_key(s, &key)) return NULL;
    sn_cache *c = open_cache(s);
    s->packed.data = sn_cache_map_weights(c, key, bytes, (int)s->threads.n);
    s->packed.bytes = bytes;
    sn_cache_close(c);
    return s->packed.data;
}

/* Writing needs memory and processors, which the first tokens need, too: they go first. */
static void *store(void *arg) {
    const sn_session *s = arg;
#ifdef SCHED_IDLE
    sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){0}); /* on Linux: of this thread only */
#endif
    sn_cache_key key;
    const sn_object o = {s->packed.source, s->packed.bytes};
    sn_cache *c = make_key(s, &key) ? open_cache(s) : NULL;
    sn_cache_put(c, SN_CACHE_WEIGHTS, key, &o);
    sn_cache_close(c);
    return NULL;
}

void sn_packed_store(sn_session *s, void *data, size_t bytes) {
    if (!sn_packed_is_wanted(s, bytes)) return;
    s->packed.source = data;
    s->packed.bytes = bytes;
    s->packed.storing = pthread_create(&s->packed.thread, NULL, store, s) == 0;
}

void sn_packed_close(sn_session *s) {
    if (s->packed.storing) pthread_join(s->packed.thread, NULL);
    sn_cache_unmap_weights(s->packed.data, s->packed.bytes);
}
