/* choose.c: native code or a library for each product, as choice.h says (expand has chosen for
 * composites, and fuse has left such a product without what the library does not compute).
 *
 * Requires fused nodes. Keeps values. */
#include "passes/backend.h"
#include "passes/choice.h"
#include "passes/kernels/table.h"

static sn_node *rule(void *ctx, sn_node *n) {
    sn_passes *p = ctx;
    if (!sn_kernel_of(n)->contraction || sn_attr_get(n, SN_A_backend)) return n;
    const char *why = NULL;
    bool supported = p->o.library && p->o.library->supports(n, &why);
    if (!supported) {
        if (sn_backend_wanted(p)) sn_remark_add(p, "choose", n, false, "native code: %s", why);
        return n;
    }
    if (!sn_backend_wanted(p) && sn_choose(p, n) != SN_CHOOSE_LIBRARY) return n;
    sn_attr attr[16];
    int k = 0;
    for (; k < n->n_attr; k++) attr[k] = n->attr[k];
    attr[k++] = SN_STR(backend, p->o.library->name);
    return sn_node_new(n->m, (sn_op)n->op, n->n_in, n->in, k, attr);
}

int sn_pass_choose(sn_passes *p) {
    return sn_rewrite_module(p->m, rule, p);
}
