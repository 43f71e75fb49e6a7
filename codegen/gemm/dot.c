/* dot.c: the types in which products are computed. */
#include "codegen/gemm/impl.h"

void gemm_take_a(em *e, const gemm_plan *p, em_val from, em_val *a) {
    for (int t = 0; t < p->dot->a_words; t++)
        a[t] = em_load_splat(e, p->t, em_gep(e, from, p->t, t), p->lanes);
}

void gemm_take_b(em *e, const gemm_plan *p, em_val words, em_val *b) {
    (void)e, (void)p;
    b[0] = words;
}

static em_val multiply_floats(em *e, const gemm_plan *p, const em_val *a, const em_val *b,
                              em_val acc) {
    (void)p;
    tile_add(e, &acc, 1, a[0], b);
    return acc;
}

static const gemm_dot floats = {"float",         1,   1, 1, false, gemm_take_a, gemm_take_b,
                                multiply_floats, NULL};

const gemm_dot *gemm_dot_of(const sn_gemm *g, const sn_target *t) {
    return g->int8 ? gemm_int8_dot(t) : g->bf16 ? gemm_bf16_dot(t) : &floats;
}
