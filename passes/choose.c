/* choose.c: own code or oneDNN for each product (expand chose for composites already).
 *
 * Requires fused nodes. Keeps values. `auto` takes our own kernels, whose results do not depend on
 * the number of threads; `onednn` takes the primitive wherever there is one for the kernel. */
#include "passes/passes.h"
#include "passes/primitive.h"

static sn_node *rule(void *ctx, sn_node *n) {
    if (n->op != SN_OP_gemm || sn_attr_get(n, SN_A_backend)) return n;
    if (!sn_primitive_gemm(n)) {
        sn_remark_add(ctx, "choose", n, false,
                      "own code: the primitive takes f32, one result, at most a bias");
        return n;
    }
    sn_attr attr[16];
    int k = 0;
    for (; k < n->n_attr; k++) attr[k] = n->attr[k];
    attr[k++] = SN_STR(backend, "onednn");
    return sn_node_new(n->m, (sn_op)n->op, n->n_in, n->in, k, attr);
}

int sn_pass_choose(sn_passes *p) {
    return sn_primitive_wanted(p) ? sn_rewrite_module(p->m, rule, p) : 0;
}
