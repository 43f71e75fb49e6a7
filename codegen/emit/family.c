/* family.c: a kernel's emission, and its run-time sizes. */
#include "codegen/emit/family.h"
#include "codegen/emit/elem.h"

int sn_kernel_invariant(const sn_kernel *k) {
    return (int)sn_attr_int(k->step->node, SN_A_invariant, 0);
}

bool sn_kernel_keeps_chunks(const sn_kernel *k) {
    return sn_kernel_invariant(k) & SN_INVARIANT_CHUNK;
}

/* LLVM contracts products and sums to multiply-adds as the code around them suggests, which is another in
 * kernels for few elements and for many. */
void sn_kernel_emit(em *e, const sn_kernel *k) {
    LLVMFastMathFlags old = em_fast(e, sn_kernel_keeps_chunks(k) ? 0 : e->fmf);
    k->family->emit(e, k);
    em_fast(e, old);
}

int sn_kernel_dim_slot(const sn_kernel *k, sn_dim d) {
    for (int i = 0; i < k->n_dim; i++)
        if (k->dim[i] == d) return i;
    return -1;
}

em_size sn_kernel_size(const sn_kernel *k, sn_dim d) {
    int64_t v;
    if (sn_dim_is_const(k->m, d, &v)) return EM_SIZE_CONST(v);
    return EM_SIZE_DIM(sn_kernel_dim_slot(k, d));
}

em_val sn_kernel_dim(em *e, const sn_kernel *k, sn_dim d) {
    int64_t v;
    if (sn_dim_is_const(k->m, d, &v)) return em_i64(e, v);
    int slot = sn_kernel_dim_slot(k, d);
    if (slot < 0) {
        sn_fail(&e->err, SN_ERR_INTERNAL, "%s: a run-time size was not declared", k->name);
        return em_i64(e, 1);
    }
    return em_dim(e, slot);
}

em_val sn_kernel_leaf(em *e, const sn_kernel *k, const sn_node *n) {
    sn_dtype t = (sn_dtype)n->dtype;
    if (n->op == SN_OP_const) return sn_emit_const(e, t, sn_attr_flt(n, SN_A_value, 0));
    return sn_emit_integer(e, t, sn_kernel_dim(e, k, sn_attr_int(n, SN_A_dim, 0)));
}
