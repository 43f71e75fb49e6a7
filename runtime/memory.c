/* memory.c: allocation of large blocks, in huge pages where the system gives them. */
#include "runtime/memory.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { LINE = 64, HUGE_PAGE = 2 << 20, LARGE = 4 << 20, CHUNK = 16 << 20 };

void *sn_memory_alloc(size_t bytes) {
    if (bytes > (size_t)-1 - LINE) return NULL;
    size_t rounded = (bytes + LINE) / LINE * LINE;
    void *p = NULL;
    if (posix_memalign(&p, rounded >= LARGE ? HUGE_PAGE : LINE, rounded) != 0) return NULL;
#ifdef MADV_HUGEPAGE
    if (rounded >= LARGE) madvise(p, rounded / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE); /* a hint */
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
    if (bytes >= CHUNK / 4) return add_chunk(p, bytes);
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
