/* backward_scratch.c: the scratch memory of the backward kernel: dk and dv of a head, sums of relative biases. */
#include "codegen/attention/backward.h"

/* Row k of dk or dv of a head, behind the scratch of the forward plan and packed K and V. */
em_val att_dkv_row(em *e, const att_backward *b, em_val tk, bool of_v, em_val k) {
    const att_plan *p = &b->p;
    em_val base = att_packed_row(e, p, tk, ATT_K_ROWS, em_i64(e, 0));
    em_val index = em_mul(e, k, of_v ? b->dv : b->d);
    em_val packed = att_behind_copies(e, p, tk, ATT_COPIES, em_i64(e, 63));
    if (p->pack) index = em_add(e, index, em_and(e, packed, -64));
    if (of_v) index = em_add(e, index, em_mul(e, tk, b->d));
    return em_gep(e, base, p->t, index);
}

em_val att_relative_sums(em *e, const att_backward *b) {
    em_val tk = em_size_value(e, b->p.a->tk);
    return att_dkv_row(e, b, tk, true, tk);
}
