/* row_work.c: operations on rows of tensors that a recurrence's kernel can compute. */
#include "passes/row_work.h"

#include "passes/graph_util.h"
#include "passes/holds.h"

#include <string.h>

static bool is_number(const sn_node *n) {
    return sn_dtype_is_float((sn_dtype)n->dtype) || n->dtype == SN_BOOL;
}

bool sn_spreads_row(const sn_node *n) {
    const sn_node *x = n->op == SN_OP_broadcast ? n->in[0] : NULL;
    if (!x || x->rank != n->rank || !n->rank || x->shape[n->rank - 1] != 1) return false;
    return !memcmp(x->shape, n->shape, sizeof *n->shape * (size_t)(n->rank - 1));
}

bool sn_spreads_constant(const sn_node *n) {
    return n->op == SN_OP_broadcast && n->in[0]->op == SN_OP_const;
}

bool sn_sums_row(const sn_node *n) {
    bool last;
    return n->op == SN_OP_reduce_sum && sn_reduces(n, &last) && last && !sn_panel_sum(n);
}

bool sn_is_row_work(const sn_node *n) {
    if (n->op == SN_OP_broadcast) return sn_spreads_row(n) || sn_spreads_constant(n);
    if (!is_number(n) || sn_dtype_size((sn_dtype)n->dtype) == 2) return false;
    for (int i = 0; i < n->n_in; i++)
        if (!is_number(n->in[i])) return false;
    return sn_sums_row(n) || (sn_is_elementwise(n) && n->n_in);
}

bool sn_follows_product(const sn_node *n, const bool *in_product, const bool *summed) {
    if (n->op == SN_OP_dot) return true;
    if (!sn_is_elementwise(n) || !n->n_in) return false;
    if (summed[n->id] && !(sn_ops[n->op].flags & SN_OPF_EXPENSIVE)) return false;
    for (int i = 0; i < n->n_in; i++)
        if (sn_shapes_equal(n, n->in[i]) && in_product[n->in[i]->id]) return true;
    return false;
}
