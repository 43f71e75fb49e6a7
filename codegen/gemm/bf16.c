/* bf16.c: the compute type bf16 of a GEMM: words of 2 k (codegen/tile/bf16.c). */
#include "codegen/gemm/impl.h"

enum { PAIR = 2 };

static void store_halves(em *e, const gemm_plan *p, em_val v, em_val row, em_val k) {
    (void)p;
    em_store_raw(e, tile_bf16_words(e, v), em_gep_bytes(e, row, em_mul(e, k, 2)), 1);
}

static void take_a_halves(em *e, const gemm_plan *p, em_val from, em_val *a) {
    tile_bf16_terms(e, em_load_splat(e, SN_F32, from, p->lanes), a);
}

static void take_b_halves(em *e, const gemm_plan *p, em_val words, em_val *b) {
    (void)p;
    tile_bf16_terms(e, words, b);
}

static em_val add_halves(em *e, const gemm_plan *p, const em_val *a, const em_val *b, em_val acc) {
    (void)p;
    return tile_bf16_add(e, a, b, acc);
}

static const gemm_dot native = {"bf16",        PAIR,          1,          1,           false,
                                take_a_halves, take_b_halves, add_halves, store_halves},
                      fused = {"bf16 by FMA", PAIR,          2,          1,           false,
                               take_a_halves, take_b_halves, add_halves, store_halves};

const gemm_dot *gemm_bf16_dot(const sn_target *t) {
    return tile_bf16_is_native(t) ? &native : &fused;
}
