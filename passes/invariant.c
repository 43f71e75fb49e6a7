/* invariant.c: the kernels' attribute `invariant`: what must not change the bits of their results
 * (sn_options.invariant). Decisions before, such as a norm in a product's prologue, read the option.
 *
 * Requires fused nodes. Keeps values. Terminates: each node is looked at once. */
#include "passes/graph_util.h"
#include "passes/kernels/table.h"
#include "passes/passes.h"

#include <string.h>

static sn_node *rule(void *ctx, sn_node *n) {
    const sn_passes *p = ctx;
    bool kernel =
        sn_ops[n->op].kind == SN_FUSED || sn_kernel_of(n) == &sn_kernels[SN_KERNEL_recurrence];
    if (!kernel) return n;
    sn_attr attr[SN_ATTR_COUNT];
    memcpy(attr, n->attr, sizeof *attr * n->n_attr);
    attr[n->n_attr] = SN_INT(invariant, p->o.invariant);
    return sn_node_new(n->m, (sn_op)n->op, n->n_in, n->in, n->n_attr + 1, attr);
}

int sn_pass_invariant(sn_passes *p) {
    return p->o.invariant ? sn_rewrite_module(p->m, rule, p) : 0;
}
