/* graph_util.c: small questions about nodes that several passes ask. */
#include "passes/graph_util.h"

#include <string.h>

bool sn_shapes_equal(const sn_node *a, const sn_node *b) {
    return a->rank == b->rank &&
           (!a->rank || !memcmp(a->shape, b->shape, sizeof(sn_dim) * a->rank));
}

bool sn_is_view(const sn_node *n) {
    return (sn_ops[n->op].flags & SN_OPF_VIEW) || n->op == SN_OP_result;
}

bool sn_is_leaf(const sn_node *n) {
    return n->n_in == 0;
}

/* Depth first from the meaning down to the composite's operands; meanings are small. */
static bool find_op(const sn_node *top, const sn_node *n, sn_op op) {
    for (int i = 0; i < top->n_in; i++)
        if (top->in[i] == n) return false;
    if (n->op == op) return true;
    if (n->meaning && find_op(n, n->meaning, op)) return true;
    for (int i = 0; i < n->n_in; i++)
        if (find_op(top, n->in[i], op)) return true;
    return false;
}

bool sn_contains_op(sn_module *m, sn_node *root, sn_op op) {
    (void)m;
    return root->op == op || (root->meaning && find_op(root, root->meaning, op));
}

bool sn_reduces(const sn_node *n, bool *last_axis) {
    if (n->op != SN_OP_reduce_sum && n->op != SN_OP_reduce_max && n->op != SN_OP_reduce_min)
        return false;
    const sn_attr *axes = sn_attr_get(n, SN_A_axes);
    *last_axis = axes->n == 1 && axes->v[0] == n->rank - 1;
    return true;
}

void sn_entry_map(sn_entry *e, sn_node *(*f)(void *, sn_node *), void *ctx) {
    for (int i = 0; i < e->n_output; i++) e->output[i].node = f(ctx, e->output[i].node);
    for (int i = 0; i < e->n_assign; i++) e->assign[i].node = f(ctx, e->assign[i].node);
}
