/* product.c: a term of a product of tiles, in the type of its factors. */
#include "codegen/tile/tile.h"

enum { MAX_VECTORS = 8 };

static void add_words(em *e, unsigned align, em_val *acc, int rows, int n, const em_val *left,
                      em_val right) {
    em_val x[2], y[MAX_VECTORS][2];
    const int lanes = em_lanes_of(acc[0]);
    for (int v = 0; v < n; v++) {
        em_val at = em_gep(e, right, SN_F32, v * lanes);
        tile_bf16_terms(e, em_load_raw(e, LLVMTypeOf(acc[0]), at, align), y[v]);
    }
    for (int i = 0; i < rows; i++) {
        tile_bf16_terms(e, em_load_splat(e, SN_F32, left[i], lanes), x);
        for (int v = 0; v < n; v++) acc[i * n + v] = tile_bf16_add(e, x, y[v], acc[i * n + v]);
    }
}

void tile_add_product(em *e, sn_dtype t, unsigned align, em_val *acc, int rows, int n,
                      const em_val *left, em_val right) {
    if (t == SN_BF16) {
        add_words(e, align, acc, rows, n, left, right);
        return;
    }
    em_val y[MAX_VECTORS];
    const int lanes = em_lanes_of(acc[0]);
    for (int v = 0; v < n; v++)
        y[v] = em_load_raw(e, LLVMTypeOf(acc[0]), em_gep(e, right, t, v * lanes), align);
    for (int i = 0; i < rows; i++)
        tile_add(e, acc + i * n, n, em_load_splat(e, t, left[i], lanes), y);
}
