/* arena.c: memory of a module: chunks that never move, interned strings, hash tables. Out of memory is
 * an error of the module. */
#include "ir/module_impl.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>

static const size_t first_chunk = (size_t)1 << 20, largest_chunk = (size_t)64 << 20,
                    limit = (size_t)16 << 30, /* maximum per module */
    /* address space that uses no memory until it is touched */
    reserve_chunk = (size_t)256 << 10;
/* Chunks from this size on are in huge pages: else page faults take a third of the time of a compilation. */
static const size_t huge = (size_t)4 << 20;

/* False: out of memory. */
static bool add_chunk(sn_chunk **list, size_t size) {
    sn_chunk *c = mmap(NULL, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (c == MAP_FAILED) return false;
#ifdef MADV_HUGEPAGE
    if (size >= huge) madvise(c, size, MADV_HUGEPAGE); /* a hint */
#endif
    *c = (sn_chunk){*list, size, sizeof *c};
    *list = c;
    return true;
}

sn_module *sn_arena_begin(void) {
    sn_chunk *c = NULL, *reserve = NULL;
    if (!add_chunk(&c, first_chunk) || !add_chunk(&reserve, reserve_chunk)) {
        if (c) munmap(c, c->size);
        return NULL;
    }
    sn_module *m = (sn_module *)(c + 1);
    m->reserve = reserve;
    c->used += sizeof *m;
    m->chunk = c;
    m->mapped = c->size;
    return m;
}

void sn_arena_end(sn_module *m) {
    if (m->reserve) munmap(m->reserve, m->reserve->size);
    for (sn_chunk *c = m->chunk, *next; c; c = next) {
        next = c->next;
        munmap(c, c->size);
    }
}

/* Makes room for `bytes`: a chunk twice as large as the last one, or as large as needed. */
static void make_room(sn_module *m, size_t bytes) {
    size_t page = (size_t)1 << 16, size = 2 * m->chunk->size;
    size_t need = (bytes + sizeof(sn_chunk) + 16 + page - 1) & ~(page - 1);
    if (size > largest_chunk) size = largest_chunk;
    if (size < need) size = need;
    bool over = bytes > limit || m->mapped + need > limit;
    if (!over && (add_chunk(&m->chunk, size) || add_chunk(&m->chunk, need))) {
        m->mapped += m->chunk->size;
        return;
    }
    sn_module_fail(m, SN_ERR_MEMORY,
                   over ? "a module may use at most %zu MiB, but this graph needs more"
                        : "out of memory: the graph has %zu MiB and needs more",
                   (over ? limit : m->mapped) >> 20);
    if (m->guard) longjmp(*m->guard, 1);
    /* A user's call outside of sn_module_try: the reserve has room, and no other call follows. */
    if (!m->reserve || bytes > m->reserve->size - sizeof(sn_chunk) - 16) abort();
    m->reserve->next = m->chunk;
    m->chunk = m->reserve;
    m->reserve = NULL;
}

void *sn_arena_alloc(sn_module *m, size_t bytes) {
    size_t at = (m->chunk->used + 15) & ~(size_t)15;
    if (bytes > m->chunk->size - at || at > m->chunk->size) {
        make_room(m, bytes);
        at = (m->chunk->used + 15) & ~(size_t)15;
    }
    m->chunk->used = at + bytes;
    return (char *)m->chunk + at; /* fresh pages are zero */
}

bool sn_module_try(sn_module *m, void (*fn)(void *ctx), void *ctx) {
    jmp_buf here, *const outer = m->guard;
    m->guard = &here;
    if (setjmp(here)) {
        m->guard = outer;
        m->composite = NULL; /* it was on the stack */
        return false;
    }
    fn(ctx);
    m->guard = outer;
    return true;
}

void *sn_arena_copy(sn_module *m, const void *p, size_t bytes) {
    void *q = sn_arena_alloc(m, bytes);
    if (bytes) memcpy(q, p, bytes);
    return q;
}

void *sn_arena_resize(sn_module *m, void *old, size_t used, size_t capacity, size_t item) {
    void *p = sn_arena_alloc(m, capacity * item);
    if (used) memcpy(p, old, used * item);
    return p;
}

void *sn_arena_grow(sn_module *m, void *list, size_t item, int n, int *cap) {
    if (n < *cap) return list;
    int more = *cap ? 2 * *cap : 16;
    list = sn_arena_resize(m, list, (size_t)n, (size_t)more, item);
    *cap = more; /* only now: out of memory leaves by longjmp, and the list stays as it was */
    return list;
}

/* ---- hash tables: same() compares a stored item with the lookup key ---- */

void **sn_table_find(sn_table *t, uint64_t hash, sn_same_fn same, const void *key) {
    for (uint32_t i = (uint32_t)hash & (t->size - 1);; i = (i + 1) & (t->size - 1))
        if (!t->slot[i] || same(t->slot[i], key)) return &t->slot[i];
}

void sn_table_reserve(sn_module *m, sn_table *t, sn_hash_fn hash_of) {
    if (t->size && t->used * 2 < t->size) return;
    sn_table old = *t;
    t->size = old.size ? old.size * 2 : 256;
    t->slot = sn_arena_alloc(m, t->size * sizeof *t->slot);
    for (uint32_t i = 0; i < old.size; i++) {
        if (!old.slot[i]) continue;
        uint32_t j = (uint32_t)hash_of(old.slot[i]) & (t->size - 1);
        while (t->slot[j]) j = (j + 1) & (t->size - 1);
        t->slot[j] = old.slot[i];
    }
}

static uint64_t hash_str(const void *s) {
    return XXH3_64bits(s, strlen(s));
}

static bool same_str(const void *item, const void *key) {
    return !strcmp(item, key);
}

const char *sn_arena_str(sn_module *m, const char *s) {
    sn_table_reserve(m, &m->strings, hash_str);
    void **slot = sn_table_find(&m->strings, hash_str(s), same_str, s);
    if (!*slot) {
        *slot = sn_arena_copy(m, s, strlen(s) + 1);
        m->strings.used++;
    }
    return *slot;
}

const char *sn_arena_printf(sn_module *m, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *s = sn_arena_alloc(m, (size_t)n + 1);
    va_start(ap, fmt);
    vsnprintf(s, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return s;
}
