/* lines.c: see lines.h. */
#include "codegen/rows/lines.h"

em_val sn_line_extent(em *e, const sn_kernel *k, const sn_view *v, int a) {
    return sn_kernel_dim(e, k, v->shape[a]);
}

em_val sn_line_offset(em *e, const sn_kernel *k, const sn_view *v, int skip, em_val flat) {
    em_val off = em_i64(e, 0);
    for (int a = v->rank - 1; a >= 0; a--) {
        if (a == skip) continue;
        em_val n = sn_line_extent(e, k, v, a);
        off = em_add(e, off, em_mul(e, em_rem(e, flat, n), sn_kernel_dim(e, k, v->stride[a])));
        flat = em_div(e, flat, n);
    }
    return off;
}

em_val sn_line_count(em *e, const sn_kernel *k, const sn_view *v, int skip) {
    em_val n = em_i64(e, 1);
    for (int a = 0; a < v->rank; a++)
        if (a != skip) n = em_mul(e, n, sn_line_extent(e, k, v, a));
    return n;
}
