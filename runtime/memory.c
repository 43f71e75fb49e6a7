/* memory.c: allocation of large blocks, in huge pages where the system gives them. */
#include "runtime/memory.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { LINE = 64, HUGE_PAGE = 2 << 20, LARGE = 4 << 20, CHUNK = 64 << 20 };

void *sn_memory_alloc(size_t bytes) {
    size_t unit = bytes >= LARGE ? HUGE_PAGE : LINE; /* the block's end too lies in a huge page */
    if (bytes > (size_t)-1 - unit) return NULL;
    size_t rounded = (bytes + unit) / unit * unit;
    void *p = NULL;
    if (posix_memalign(&p, unit, rounded) != 0) return NULL;
#ifdef MADV_HUGEPAGE
    if (unit == HUGE_PAGE) madvise(p, rounded, MADV_HUGEPAGE); /* a hint */
#endif
    return p;
}

static void *add_chunk(sn_memory_pool *p, size_t bytes) {
    void **grown = realloc(p->chunk, sizeof *grown * (p->n_chunk + 1));
    if (!grown) return NULL;
    p->chunk = grown;
    void *block = sn_memory_alloc(bytes);
    if (block) p->chunk[p->n_chunk++] = block;
    return block;
}

void *sn_memory_pool_alloc(sn_memory_pool *p, size_t bytes) {
    if (bytes >= CHUNK / 2) return add_chunk(p, bytes);
    size_t rounded = (bytes + LINE) / LINE * LINE;
    if (rounded > p->left) {
        char *chunk = add_chunk(p, CHUNK);
        if (!chunk) return NULL;
        p->at = chunk;
        p->left = CHUNK;
    }
    void *block = p->at;
    p->at += rounded;
    p->left -= rounded;
    return block;
}

void sn_memory_pool_free(sn_memory_pool *p) {
    for (size_t i = 0; i < p->n_chunk; i++) free(p->chunk[i]);
    free(p->chunk);
    *p = (sn_memory_pool){0};
}
