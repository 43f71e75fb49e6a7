/* memory.c: allocation of large blocks, in huge pages where the system gives them. */
#include "runtime/memory.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { LINE = 64, HUGE_PAGE = 2 << 20, LARGE = 4 << 20 };

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
