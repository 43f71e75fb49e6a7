/* NAME_weights_verify finds a flipped bit in the block of 64 KiB that holds it, and only there. NAME_populate maps all
 * pages. */
#include "story.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

static int failed;
static void check(int ok, const char *what, int64_t at) {
    if (ok) return;
    printf("FAILED: %s at %lld\n", what, (long long)at);
    failed = 1;
}
static int kind(int code) {
    return STORY_ERROR_KIND(code);
}

/* Page faults while the mapped weights are read; -1: this system cannot map all pages at once. */
static long count_faults(int populate) {
    enum { POPULATE_READ = 22 };
    struct rusage before, after;
    story m;
    if (story_open(&m, "story.weights")) return -2;
    if (populate && madvise((void *)m.weights, 4096, POPULATE_READ)) return -1;
    if (populate) story_populate(&m);
    getrusage(RUSAGE_SELF, &before);
    for (int64_t i = 0; i < m.bytes; i += 4096) (void)((const volatile char *)m.weights)[i];
    getrusage(RUSAGE_SELF, &after);
    story_close(&m);
    story_populate(&m); /* closed: nothing */
    return after.ru_minflt - before.ru_minflt;
}

int main(void) {
    enum { HEAD = 4096, BLOCK = 65536 };
    const int64_t size = STORY_WEIGHT_BYTES,
                  at[] = {40, 48, 4095, HEAD, HEAD + BLOCK - 1, HEAD + BLOCK, size / 2};
    char *data = aligned_alloc(64, (size_t)size);
    FILE *f = fopen("story.weights", "rb");
    story m;
    if (!data || !f || fread(data, 1, (size_t)size, f) != (size_t)size ||
        story_init(&m, data, size))
        return 1;
    fclose(f);
    check(story_abi_version() == STORY_ABI_VERSION, "the ABI's number", story_abi_version());
    check(!story_verify(&m), "verify", 0);
    for (int64_t k = 0; k < size; k += 50000) {
        int64_t rest = size - k < 50000 ? size - k : 50000;
        check(!story_weights_verify(&m, k, rest), "a part", k);
    }
    check(!story_weights_verify(&m, size, 0) && !story_weights_verify(&m, 0, 0), "nothing", size);
    check(kind(story_weights_verify(&m, 0, size + 1)) == STORY_ERROR_RANGE, "too long", size);
    check(kind(story_weights_verify(&m, -1, 1)) == STORY_ERROR_RANGE, "before", -1);
    check(kind(story_weights_verify(&m, 1, -1)) == STORY_ERROR_RANGE, "negative", -1);
    check(kind(story_weights_verify(&m, INT64_MAX, INT64_MAX)) == STORY_ERROR_RANGE, "huge",
          INT64_MAX);
    check(kind(story_weights_verify(NULL, 0, 0)) == STORY_ERROR_ARGUMENT, "NULL", 0);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        int64_t k = at[i], begin = k < HEAD ? 0 : HEAD + (k - HEAD) / BLOCK * BLOCK,
                end = begin + BLOCK;
        data[k] ^= 4;
        check(kind(story_verify(&m)) == STORY_ERROR_DAMAGED, "verify sees", k);
        check(kind(story_weights_verify(&m, k, 1)) == STORY_ERROR_DAMAGED, "the block", k);
        /* the first page belongs to every part */
        int elsewhere = k < HEAD ? STORY_ERROR_DAMAGED : 0;
        check(kind(story_weights_verify(&m, begin, 0)) == elsewhere, "nothing of it", k);
        check(kind(story_weights_verify(&m, end, size - end)) == elsewhere, "behind it", k);
        check(kind(story_weights_verify(&m, 0, begin)) == elsewhere, "before it", k);
        data[k] ^= 4;
    }
    for (int64_t k = size - 4096; k < size; k += 1001) { /* the checksums */
        data[k] ^= 1;
        check(kind(story_weights_verify(&m, 0, 1)) == STORY_ERROR_DAMAGED, "a checksum", k);
        data[k] ^= 1;
    }
    check(!story_verify(&m), "verify again", 0);
    const long faults = count_faults(0), rest = count_faults(1);
    check(faults > 0, "faults without populate", faults); /* few, if the file is in large pages */
    check(rest == -1 || (rest >= 0 && rest < faults), "faults with populate", rest);
    story_populate(NULL);
    story_populate(&m); /* in memory: nothing */
    free(data);
    return failed;
}
