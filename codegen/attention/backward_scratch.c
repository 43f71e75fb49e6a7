/* backward_scratch.c: the scratch memory of the backward kernel: dk and dv of a head, sums of relative biases. */
#include "codegen/attention/backward.h"

/* Row k of dk or dv of a head, behind the scratch of the forward plan and packed K and V. */
em_val att_dkv_row(em *e, const att_backward *b, em_val tk, bool of_v, em_val k) {
    const att_plan *p = &b->p;
    em_val index = em_mul(e, k, of_v ? b->dv : b->d);
    if (of_v) index = em_add(e, index, em_mul(e, tk, b->d));
    return em_gep(e, att_packed_end(e, p, tk), p->t, index);
}

em_val att_relative_sums(em *e, const att_backward *b) {
    em_val tk = em_size_value(e, b->p.a->tk);
    return att_dkv_row(e, b, tk, true, tk);
}
