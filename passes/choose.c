/* choose.c: own code or oneDNN for each kernel.
 *
 * Requires fused nodes. Keeps values. `auto` takes our own kernels, whose results do not depend on
 * the number of threads; `onednn` takes the primitive wherever there is one for the kernel. */
#include "passes/graph_util.h"
#include "passes/passes.h"

#include <string.h>

static bool has_primitive(const sn_node *n) {
    return n->op == SN_OP_gemm && n->dtype == SN_F32 && !sn_attr_get(n, SN_A_epilogue) &&
           !sn_attr_get(n, SN_A_packed);
}

static sn_node *rule(void *ctx, sn_node *n) {
    (void)ctx;
    if (!has_primitive(n) || sn_attr_get(n, SN_A_backend)) return n;
    sn_attr attr[16];
    int k = 0;
    for (; k < n->n_attr; k++) attr[k] = n->attr[k];
    attr[k++] = SN_STR(backend, "onednn");
    return sn_node_new(n->m, (sn_op)n->op, n->n_in, n->in, k, attr);
}

int sn_pass_choose(sn_passes *p) {
    if (strcmp(p->o.backend, "onednn")) return 0;
    return sn_rewrite_module(p->m, rule, p);
}
