/* memory.c: allocates large blocks, in huge pages where available; determines the available
 * memory. */
#include "runtime/memory.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

enum { LINE = 64, HUGE_PAGE = 2 << 20, LARGE = 4 << 20 };

void *sn_memory_alloc(size_t bytes) {
    /* the end of the block is in a huge page, too */
    size_t unit = bytes >= LARGE ? HUGE_PAGE : LINE;
    if (bytes > (size_t)-1 - unit) return NULL;
    size_t rounded = (bytes + unit) / unit * unit;
    void *p = NULL;
    if (posix_memalign(&p, unit, rounded) != 0) return NULL;
#ifdef MADV_HUGEPAGE
    if (unit == HUGE_PAGE) madvise(p, rounded, MADV_HUGEPAGE); /* a hint */
#endif
    return p;
}

static uintptr_t page_size(void) {
    return (uintptr_t)sysconf(_SC_PAGESIZE);
}

static size_t mapped_size(size_t bytes) { /* whole pages, at least one */
    size_t page = page_size();
    return (bytes + (bytes == 0) + page - 1) / page * page;
}

/* Maps more than needed and unmaps what precedes the first huge page and follows the end. */
static char *map_aligned(size_t bytes) {
    if (bytes > (size_t)-1 / 2) return NULL;
    size_t size = mapped_size(bytes), all = size + HUGE_PAGE;
    char *p =
        mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return NULL;
    size_t before = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE, behind = HUGE_PAGE - before;
    if (before) munmap(p, before);
    if (behind) munmap(p + before + size, behind);
    return p + before;
}

void *sn_memory_map(size_t bytes) {
    char *p = map_aligned(bytes);
#ifdef MADV_HUGEPAGE
    if (p && bytes >= HUGE_PAGE) madvise(p, mapped_size(bytes), MADV_HUGEPAGE); /* a hint */
#endif
    return p;
}

void *sn_memory_map_sparse(size_t bytes) {
    char *p = map_aligned(bytes);
#ifdef MADV_NOHUGEPAGE
    if (p) madvise(p, mapped_size(bytes), MADV_NOHUGEPAGE); /* a hint */
#endif
    return p;
}

void sn_memory_collapse(void *p, size_t bytes) {
#ifdef MADV_HUGEPAGE
    enum { COLLAPSE = 25 /* Linux 6.1 */ };
    madvise(p, bytes, MADV_HUGEPAGE);
    if (bytes >= HUGE_PAGE) madvise(p, HUGE_PAGE, COLLAPSE);
#endif
}

void sn_memory_unmap(void *p, size_t bytes) {
    if (p) munmap(p, mapped_size(bytes));
}

/* The whole pages inside a block: returns their size in bytes. */
static size_t inner_pages(char *p, size_t bytes, char **first) {
    uintptr_t page = page_size(), begin = ((uintptr_t)p + page - 1) / page * page,
              end = ((uintptr_t)p + bytes) / page * page;
    *first = p + (begin - (uintptr_t)p);
    return end > begin ? end - begin : 0;
}

void *sn_memory_guarded(size_t bytes) {
    size_t size = mapped_size(bytes), page = page_size();
    char *p = bytes > (size_t)-1 / 2 ? MAP_FAILED
                                     : mmap(NULL, size + page, PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    if (!mprotect(p + size, page, PROT_NONE)) return p + size - bytes;
    munmap(p, size + page);
    return NULL;
}

void sn_memory_release_guarded(void *p, size_t bytes) {
    size_t size = mapped_size(bytes);
    if (p) munmap((char *)p + bytes - size, size + page_size());
}

void sn_memory_zero(void *p, size_t bytes) {
    char *begin = p, *first;
    size_t whole = inner_pages(p, bytes, &first);
    if (!whole || madvise(first, whole, MADV_DONTNEED) != 0) {
        memset(p, 0, bytes);
        return;
    }
    memset(begin, 0, (size_t)(first - begin));
    memset(first + whole, 0, (size_t)(begin + bytes - first) - whole);
}

void sn_memory_drop(void *p, size_t bytes) {
    char *first;
    size_t whole = inner_pages(p, bytes, &first);
    if (whole) madvise(first, whole, MADV_DONTNEED);
}

/* ---- pages before their first use ---- */

static bool is_resident(const char *page) {
    unsigned char in;
    return !mincore((void *)(uintptr_t)page, 1, &in) && in & 1;
}

void sn_memory_populate_file(const void *mapped, size_t bytes) {
    enum { MAX_BYTES = 1 << 30, POPULATE_READ = 22 /* Linux 5.14 */ };
    if (bytes > MAX_BYTES) bytes = MAX_BYTES;
    for (size_t at = 0; at < bytes; at += HUGE_PAGE) {
        char *piece = (char *)(uintptr_t)mapped + at;
        size_t size = bytes - at < HUGE_PAGE ? bytes - at : HUGE_PAGE;
        if (is_resident(piece)) madvise(piece, size, POPULATE_READ);
    }
}

void sn_memory_populate(void *p, size_t bytes) {
    enum { POPULATE_WRITE = 23 /* Linux 5.14 */ };
    madvise(p, bytes, POPULATE_WRITE);
}

void sn_memory_huge_heap(size_t bytes) {
#if defined(__GLIBC__) && defined(MADV_HUGEPAGE)
    static char *before; /* what precedes the first huge page stays, and is not touched */
    if (before) return;
    mallopt(M_MMAP_THRESHOLD, (int)(bytes + LARGE)); /* else a block has a mapping of its own */
    mallopt(M_TRIM_THRESHOLD, INT_MAX);              /* else its pages go when it is freed */
    char *p = malloc(2 * LINE + HUGE_PAGE + bytes);
    if (!p) return;
    size_t gap = 2 * LINE + HUGE_PAGE - ((uintptr_t)p + 2 * LINE) % HUGE_PAGE;
    madvise(p + gap, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
    before = realloc(p, gap - LINE); /* the rest is free */
#else
    (void)bytes;
#endif
}

/* ---- available memory ---- */

/* Adds up the values in kB of those names that occur in the file. False: none does. */
static bool read_kilobytes(const char *path, const char *const *name, size_t *bytes) {
    char line[256];
    bool found = false;
    FILE *f = fopen(path, "re");
    *bytes = 0;
    while (f && fgets(line, sizeof line, f))
        for (const char *const *n = name; *n; n++) {
            size_t length = strlen(*n);
            if (strncmp(line, *n, length) || line[length] != ':') continue;
            *bytes += (size_t)strtoull(line + length + 1, NULL, 10) * 1024;
            found = true;
        }
    if (f) fclose(f);
    return found;
}

size_t sn_memory_available(void) {
    size_t bytes;
    static const char *const available[] = {"MemAvailable", "SwapFree", NULL};
    return read_kilobytes("/proc/meminfo", available, &bytes) ? bytes : SIZE_MAX;
}

static size_t room(int limit, const char *used) {
    struct rlimit r;
    size_t bytes;
    const char *const name[] = {used, NULL};
    if (getrlimit(limit, &r) != 0 || r.rlim_cur == RLIM_INFINITY ||
        !read_kilobytes("/proc/self/status", name, &bytes))
        return SIZE_MAX;
    return r.rlim_cur > bytes ? r.rlim_cur - bytes : 0;
}

size_t sn_memory_space(void) {
    size_t all = room(RLIMIT_AS, "VmSize"), data = room(RLIMIT_DATA, "VmData");
    return all < data ? all : data;
}
