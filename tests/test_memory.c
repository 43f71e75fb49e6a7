/* test_memory.c: large blocks and pools of blocks: aligned, apart from each other, of the size
 * asked for. */
#include "runtime/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MB = 1 << 20, BLOCKS = 40 };

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

/* Blocks of all kinds in one pool: in a chunk, at its end, alone. */
static void pool_blocks_are_apart(void **state) {
    (void)state;
    sn_memory_pool pool = {0};
    unsigned char *block[BLOCKS];
    size_t size[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        size[i] = i % 10 == 9 ? 33 * MB : (size_t)i % 4 * 2 * MB + (size_t)i * 17;
        block[i] = sn_memory_pool_alloc(&pool, size[i]);
        assert_non_null(block[i]);
        assert_int_equal((uintptr_t)block[i] % 64, 0);
        memset(block[i], i + 1, size[i]);
    }
    for (int i = 0; i < BLOCKS; i++) assert_true(whole(block[i], size[i], (unsigned char)(i + 1)));
    assert_true(pool.n_chunk < BLOCKS / 2);
    assert_null(sn_memory_pool_alloc(&pool, SIZE_MAX));
    sn_memory_pool_free(&pool);
    assert_int_equal(pool.n_chunk, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(blocks_are_aligned),
                                       cmocka_unit_test(pool_blocks_are_apart)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
