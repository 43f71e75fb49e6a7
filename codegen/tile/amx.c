/* amx.c: AMX's registers, eight tiles of up to 16 rows of 16 words. tdpbf16ps adds to each element of a tile c
 * the product of a row of a and a column of b, which are words of 2 bf16 along K: the products of the even k
 * are summed from 0 on in order, those of the odd k too, then both sums are added. */
#include "codegen/tile/tile.h"

enum { CONFIG_WORDS = 16 };

void tile_amx_configure(em *e, int rows, em_val words) {
    const int64_t tile = 64 | 64 << 16, height = rows * 0x0101;
    const int64_t fixed[CONFIG_WORDS] = {
        [0] = 1, [4] = tile, [5] = tile, [7] = tile, [12] = height << 16 | height, [13] = height};
    em_val v = em_zero(em_vec(e->i32, CONFIG_WORDS)), memory = em_stack(e, SN_I32, CONFIG_WORDS);
    for (int i = 0; i < CONFIG_WORDS; i++)
        if (fixed[i]) v = em_insert(e, v, em_i32(e, (int32_t)fixed[i]), i);
    em_val bytes = em_mul(e, words, em_i32(e, 4 | 4 << 16));
    em_val rows_of_b = em_mul(e, words, em_i32(e, 0x01010000));
    v = em_insert(e, v, bytes, 6);
    v = em_insert(e, v, em_add(e, rows_of_b, em_i32(e, (int32_t)height)), 13);
    em_store_raw(e, v, memory, 64);
    em_intrinsic(e, "llvm.x86.ldtilecfg", NULL, 0, &memory, 1);
}

void tile_amx_release(em *e) {
    em_intrinsic(e, "llvm.x86.tilerelease", NULL, 0, NULL, 0);
}

static em_val number(em *e, int tile) {
    return LLVMConstInt(LLVMInt8TypeInContext(e->ctx), (unsigned)tile, 0);
}

void tile_amx_zero(em *e, int tile) {
    em_val c = number(e, tile);
    em_intrinsic(e, "llvm.x86.tilezero", NULL, 0, &c, 1);
}

void tile_amx_load(em *e, int tile, em_val at, em_val stride) {
    em_intrinsic(e, "llvm.x86.tileloadd64", NULL, 0, (em_val[]){number(e, tile), at, stride}, 3);
}

void tile_amx_store(em *e, int tile, em_val at, em_val stride) {
    em_intrinsic(e, "llvm.x86.tilestored64", NULL, 0, (em_val[]){number(e, tile), at, stride}, 3);
}

void tile_amx_add(em *e, int c, int a, int b) {
    em_val tiles[] = {number(e, c), number(e, a), number(e, b)};
    em_intrinsic(e, "llvm.x86.tdpbf16ps", NULL, 0, tiles, 3);
}
