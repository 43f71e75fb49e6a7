/* dot.c: products of floats in their own type, and what other types of products share. */
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

const gemm_dot gemm_floats = {"float",         1,   1, 1, false, gemm_take_a, gemm_take_b,
                              multiply_floats, NULL};
