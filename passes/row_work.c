/* row_work.c: operations on rows of tensors that a recurrence's kernel can compute. */
#include "passes/row_work.h"

#include "passes/graph_util.h"
#include "passes/holds.h"

bool sn_is_row_work(const sn_node *n) {
    const sn_group any = {.kernel = SN_KERNEL_recurrence, .type = SN_BOOL};
    return n->n_in && !sn_kernel_refuses(&any, SN_IN_PROLOGUE, n);
}

bool sn_follows_product(const sn_node *n, const bool *in_product, const bool *summed) {
    if (n->op == SN_OP_dot) return true;
    if (!sn_is_elementwise(n) || !n->n_in) return false;
    if (summed[n->id] && !(sn_ops[n->op].flags & SN_OPF_EXPENSIVE)) return false;
    for (int i = 0; i < n->n_in; i++)
        if (sn_shapes_equal(n, n->in[i]) && in_product[n->in[i]->id]) return true;
    return false;
}
