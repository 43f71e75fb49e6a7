/* choose.c: own code or oneDNN for each product, as choice.h says (expand chose for composites
 * already, and fuse left such a product without what a primitive does not compute).
 *
 * Requires fused nodes. Keeps values. */
#include "passes/choice.h"
#include "passes/kernels/table.h"
#include "passes/primitive.h"

static sn_node *rule(void *ctx, sn_node *n) {
    sn_passes *p = ctx;
    if (!sn_kernel_of(n)->contraction || sn_attr_get(n, SN_A_backend)) return n;
    bool asked = sn_primitive_wanted(p), fits = sn_primitive_gemm(n);
    if (!asked && (!fits || sn_choose(p, n) != SN_CHOOSE_PRIMITIVE)) return n;
    if (!fits) {
        sn_remark_add(p, "choose", n, false,
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
    return sn_rewrite_module(p->m, rule, p);
}
