/* tile.c: see tile.h. */
#include "codegen/tile/tile.h"

void tile_add(em *e, em_val *acc, int n, em_val x, const em_val *y) {
    for (int i = 0; i < n; i++) acc[i] = acc[i] ? em_fma(e, x, y[i], acc[i]) : em_mul(e, x, y[i]);
}

static bool is_one(em_val stride) {
    return LLVMIsAConstantInt(stride) && LLVMConstIntGetSExtValue(stride) == 1;
}

em_val tile_load(em *e, sn_dtype t, em_val p, em_val stride, int n, em_val mask) {
    if (is_one(stride)) return em_load_mask(e, t, p, n, mask, NULL);
    em_val index = em_mul(e, em_iota(e, e->i64, n), em_splat(e, stride, n));
    return em_gather(e, t, p, index, mask);
}

void tile_store(em *e, sn_dtype t, em_val p, em_val stride, em_val v, em_val mask) {
    const int lanes = em_lanes_of(v);
    if (lanes == 1 || is_one(stride)) {
        em_store_mask(e, t, p, v, mask);
        return;
    }
    for (int lane = 0; lane < lanes; lane++) {
        em_branch br = {0};
        if (mask) br = em_if(e, em_extract(e, mask, lane));
        em_store(e, t, em_gep(e, p, t, em_mul(e, lane, stride)), em_extract(e, v, lane));
        if (mask) em_endif(e, &br);
    }
}

em_val tile_is_mine(em *e, em_val i, em_val n, em_val tid) {
    em_val round = em_mul(e, n, 2), step = em_rem(e, i, round);
    em_val back = em_sub(e, em_sub(e, round, 1), step);
    return em_cmp(e, EM_EQ, em_imin(e, step, back), tid);
}

em_val(tile_take)(em *e, em_val counts, em_val counter, em_val otherwise) {
    em_branch br = em_if(e, counts);
    em_val next = em_fetch_add(e, counter, 1);
    em_else(e, &br);
    em_endif(e, &br);
    return em_join(e, &br, next, otherwise);
}
