/* fuzz_cover.c: see fuzz_cover.h. The compiler calls __sanitizer_cov_trace_pc at each block of code. A pair of blocks is
 * new if its place in a table is empty; collisions hide a few. */
#include "tests/long/fuzz_cover.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_KEPT = 512, MAX_SIZE = 1 << 16 };

static unsigned char seen[1 << 20];
static uintptr_t before;
static bool is_new;
static long reached;
static sn_mapping kept[MAX_KEPT];
static size_t n_kept;

#ifdef __clang__
#define UNTRACED __attribute__((no_sanitize("coverage")))
#else
#define UNTRACED __attribute__((no_sanitize_coverage))
#endif

void __sanitizer_cov_trace_pc(void);

UNTRACED void __sanitizer_cov_trace_pc(void) {
    const uintptr_t here = (uintptr_t)__builtin_return_address(0);
    unsigned char *place = &seen[(here ^ before * 31) % sizeof seen];
    before = here;
    if (*place) return;
    *place = 1, is_new = true, reached++;
}

void fuzz_cover_begin(void) {
    before = 0, is_new = false;
}

void fuzz_cover_end(const void *data, size_t size) {
    if (!is_new || !size || size > MAX_SIZE) return;
    unsigned char *copy = malloc(size);
    if (!copy) return;
    memcpy(copy, data, size);
    sn_mapping *to = &kept[n_kept++ % MAX_KEPT]; /* in place of the oldest one */
    free((void *)(uintptr_t)to->data);
    *to = (sn_mapping){copy, size};
}

const sn_mapping *fuzz_cover_kept(uint64_t random) {
    return n_kept ? &kept[random % (n_kept < MAX_KEPT ? n_kept : MAX_KEPT)] : NULL;
}

void fuzz_cover_clear(void) {
    for (size_t i = 0; i < MAX_KEPT; i++)
        free((void *)(uintptr_t)kept[i].data), kept[i] = (sn_mapping){0};
    memset(seen, 0, sizeof seen);
    n_kept = 0, reached = 0;
}

long fuzz_cover_reached(void) {
    return reached;
}
