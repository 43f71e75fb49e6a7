/* test_memory.c: large blocks and mappings: alignment, size, zeroing. */
#include "runtime/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include <cmocka.h>

enum { MB = 1 << 20 };

static bool whole(const unsigned char *p, size_t n, unsigned char value) {
    for (size_t i = 0; i < n; i++)
        if (p[i] != value) return false;
    return true;
}

static void blocks_are_aligned(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4 * MB - 1, 4 * MB, 5 * MB + 3, 70 * MB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *p = sn_memory_alloc(sizes[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % (sizes[i] >= 4 * MB ? 2 * MB : 64), 0);
        memset(p, 7, sizes[i]);
        free(p);
    }
    assert_null(sn_memory_alloc(SIZE_MAX));
    assert_null(sn_memory_alloc(SIZE_MAX - 100));
}

static size_t anonymous(void) {
    size_t kilobytes = 0;
    char line[256];
    FILE *f = fopen("/proc/self/status", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, "RssAnon:", 8)) kilobytes = strtoul(line + 8, NULL, 10);
    fclose(f);
    return kilobytes * 1024;
}

static void mappings_are_zero(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 4096, 4097, 4 * MB, 5 * MB + 3};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *p = sn_memory_map(sizes[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % (2 * MB), 0);
        assert_true(whole(p, sizes[i], 0));
        memset(p, 7, sizes[i]);
        sn_memory_zero(p, sizes[i]);
        assert_true(whole(p, sizes[i], 0));
        if (sizes[i] > 100) { /* neither starts nor ends at a page boundary */
            memset(p, 7, sizes[i]);
            sn_memory_zero(p + 50, sizes[i] - 100);
            assert_true(whole(p, 50, 7) && whole(p + 50, sizes[i] - 100, 0) &&
                        whole(p + sizes[i] - 50, 50, 7));
        }
        sn_memory_unmap(p, sizes[i]);
    }
    sn_memory_unmap(NULL, 0);
    assert_null(sn_memory_map(SIZE_MAX));
}

/* Memory is used from the first write on, and returned by zero and drop. */
static void pages_come_and_go(void **state) {
    (void)state;
    enum { SIZE = 64 * MB, SOME = 16 * MB }; /* a sanitizer notes 8 MB of its own */
    unsigned char *p = sn_memory_map(SIZE), *q = sn_memory_alloc(SIZE);
    size_t before = anonymous();
    assert_true(p && q);
    sn_memory_zero(p, SIZE);
    assert_true(anonymous() < before + SOME);
    memset(p, 1, SIZE);
    memset(q, 1, SIZE);
    assert_true(anonymous() > before + 2 * SIZE - SOME);
    sn_memory_zero(p, SIZE);
    sn_memory_drop(q + 1, SIZE - 1);
    assert_true(anonymous() < before + SOME);
    assert_int_equal(q[0], 1);
    sn_memory_unmap(p, SIZE);
    free(q);
}

static long faults(void) {
    struct rusage u;
    assert_int_equal(getrusage(RUSAGE_SELF, &u), 0);
    return u.ru_minflt;
}

/* How many page faults it takes to read or write every page. */
static long faults_of(volatile unsigned char *p, size_t bytes, bool write) {
    long before = faults();
    for (size_t at = 0; at < bytes; at += 4096)
        if (write)
            p[at] = 1;
        else
            (void)p[at];
    return faults() - before;
}

/* Populated pages cost no faults, where the system can do that. */
static void pages_are_populated(void **state) {
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    enum { SIZE = MB, SOME = 4 + SIZE / 8 / 4096 }; /* an eighth is shadow memory */
#else
    enum { SIZE = MB, SOME = 4 };
#endif
    FILE *f = tmpfile();
    assert_non_null(f);
    for (int i = 0; i < SIZE; i++) putc(i, f);
    assert_int_equal(fflush(f), 0);
    unsigned char *p = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, fileno(f), 0);
    assert_true(p != MAP_FAILED);
    sn_memory_populate_file(p, SIZE);
    const long left = faults_of(p, SIZE, false);
    munmap(p, SIZE);
    fclose(f);
    unsigned char *fresh = sn_memory_map(SIZE);
    assert_non_null(fresh);
    sn_memory_populate(fresh, SIZE);
    const long written = faults_of(fresh, SIZE, true);
    sn_memory_unmap(fresh, SIZE);
    struct utsname u;
    int major, minor;
    assert_true(!uname(&u) && sscanf(u.release, "%d.%d", &major, &minor) == 2);
    if (major * 100 + minor < 514) skip();
    assert_true(left < SOME && written < SOME);
}

static bool has_huge_pages(void) {
    char text[100] = "";
    FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
    bool some = f && fgets(text, sizeof text, f) && !strstr(text, "[never]");
    if (f) fclose(f);
    return some;
}

/* Blocks of the heap lie in huge pages, if it was not used for large ones before: this test is the first. */
static void the_heap_has_huge_pages(void **state) {
    (void)state;
    enum { BLOCK = 7 * MB };
    sn_memory_huge_heap(16 * MB);
    sn_memory_huge_heap(16 * MB);
    unsigned char *p = malloc(BLOCK);
    assert_non_null(p);
    const long cost = faults_of(p, BLOCK, true);
    free(p);
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__)
    if (!has_huge_pages()) skip();
    assert_true(cost < BLOCK / 4096 / 4); /* the system's memory may be in pieces */
#else
    assert_true(!has_huge_pages() || cost > 0);
#endif
}

/* A sparse mapping takes one page for each place that is written, until it is collapsed; its contents stay. */
static void sparse_pages_collapse(void **state) {
    (void)state;
    enum { SIZE = 7 * MB, STEP = MB / 4 };
    unsigned char *p = sn_memory_map_sparse(SIZE);
    assert_non_null(p);
    for (size_t at = 0; at < SIZE / 2; at += STEP) {
        assert_in_range(faults_of(p + at, 1, true), 1, 2); /* one may be of shadow memory */
        p[at] = (unsigned char)(1 + at / STEP);
    }
    sn_memory_collapse(p, SIZE);
    const long cost = faults_of(p + 4 * MB, 2 * MB, true); /* nothing was there */
    for (size_t at = 0; at < 4 * MB; at++)
        assert_int_equal(p[at], at % STEP || at >= SIZE / 2 ? 0 : 1 + at / STEP);
    sn_memory_unmap(p, SIZE);
    if (!has_huge_pages()) skip();
    assert_in_range(cost, 1, 2 * MB / 4096 / 4); /* the system's memory may be in pieces */
}

static void room_is_known(void **state) {
    (void)state;
    assert_true(sn_memory_available() > MB);
    assert_true(sn_memory_space() > MB);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_heap_has_huge_pages),
                                       cmocka_unit_test(blocks_are_aligned),
                                       cmocka_unit_test(mappings_are_zero),
                                       cmocka_unit_test(pages_come_and_go),
                                       cmocka_unit_test(pages_are_populated),
                                       cmocka_unit_test(sparse_pages_collapse),
                                       cmocka_unit_test(room_is_known)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
