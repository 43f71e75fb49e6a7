/* blocks.c: elementwise operations on selected blocks of linear maps (the gate and the values of
 * experts) move before the selection: f(take(x), take(y)) becomes take(f(x, y)). So do biases of the
 * blocks, looked up by the same index, and the product with a number for each row (a router's
 * weight), where each row has one block.
 *
 * Requires composites, before merge. Keeps values. Only if the weights never change: then the
 * product computes the selected blocks only (fuse_groups.c), with these operations as its epilogue,
 * and merge.c can join gate and values. Terminates: one walk; a selection moves towards the results. */
#include "passes/graph_util.h"
#include "passes/holds.h"
#include "passes/match.h"
#include "passes/passes.h"

#include <string.h>

/* Is n elementwise work on linear maps of constant weights? */
static bool is_product(const sn_node *n) {
    if (n->op == SN_OP_linear) return sn_from_params_only(n->in[1]) && !sn_is_fixed(n->in[0]);
    if (!sn_is_inline(n)) return false;
    bool any = false;
    for (int i = 0; i < n->n_in; i++) {
        if (sn_is_fixed(n->in[i])) continue;
        if (!is_product(n->in[i])) return false;
        any = true;
    }
    return any;
}

/* The blocks of `all` that `take` selects. */
static sn_node *take_of(sn_node *all, const sn_node *take) {
    return sn_node_new(all->m, SN_OP_take_blocks, 2, (sn_node *[]){all, take->in[1]}, take->n_attr,
                       take->attr);
}

/* A row of a matrix that never changes for each block that `take` selects; what it adds to all blocks.
 * NULL: x is something else. */
static sn_node *bias_of_all(sn_node *x, const sn_node *take) {
    sn_node *all = take->in[0];
    int64_t blocks = sn_attr_int(take, SN_A_blocks, 1), rows;
    if (x->op != SN_OP_gather || sn_attr_int(x, SN_A_axis, 0) || x->in[0]->rank != 2 ||
        x->in[1] != take->in[1] || !sn_from_params_only(x->in[0]) ||
        !sn_dim_is_const(x->m, x->in[0]->shape[0], &rows) || rows != blocks)
        return NULL;
    sn_node *columns = sn_b_reshape(x->in[0], 1, &all->shape[all->rank - 1]);
    return sn_b_broadcast_like(columns, all);
}

/* f of selected blocks of the same rows, their biases, and constants. */
static sn_node *selected_last(sn_node *n) {
    const sn_node *take = NULL;
    sn_node *in[4];
    for (int i = 0; i < n->n_in; i++) {
        const sn_node *x = n->in[i];
        if (!sn_selects_panels(x)) continue;
        if (!is_product(x->in[0]) ||
            (take && (x->in[1] != take->in[1] || !sn_shapes_equal(x->in[0], take->in[0]))))
            return n;
        take = x;
    }
    if (!take) return n;
    for (int i = 0; i < n->n_in; i++) {
        sn_node *x = n->in[i], *c = sn_match_below(x);
        sn_node *bias = bias_of_all(x, take);
        bool constant = c->op == SN_OP_const;
        if (!sn_selects_panels(x) && !constant && !bias) return n;
        in[i] = bias ? bias : constant ? sn_b_broadcast_like(c, take->in[0]) : x->in[0];
    }
    sn_node *all = sn_node_new(n->m, (sn_op)n->op, n->n_in, in, n->n_attr, n->attr);
    return take_of(all, take);
}

/* take(x) z, where each row has one block and z is a number for each row */
static sn_node *weighted(sn_node *n) {
    for (int i = 0; i < 2 && n->op == SN_OP_mul; i++) {
        const sn_node *take = n->in[i], *z = n->in[1 - i];
        sn_dim shape[SN_MAX_RANK];
        while (take->op == SN_OP_reshape) take = take->in[0];
        if (!sn_selects_whole_panels(take) || !is_product(take->in[0]) || !sn_spreads_row(z) ||
            take->shape[take->rank - 1] != n->shape[n->rank - 1])
            continue;
        const sn_node *all = take->in[0];
        const int last = all->rank - 1;
        memcpy(shape, all->shape, sizeof *shape * (size_t)all->rank);
        shape[last] = 1;
        if (sn_dim_product(n->m, z->rank, z->in[0]->shape) != sn_dim_product(n->m, last, shape))
            continue;
        sn_node *row =
            sn_b_broadcast(sn_b_reshape(z->in[0], all->rank, shape), all->rank, all->shape);
        sn_node *y = take_of(sn_b_binary(SN_OP_mul, take->in[0], row), take);
        return sn_b_reshape(y, n->rank, n->shape);
    }
    return n;
}

static sn_node *rule(void *ctx, sn_node *n) {
    (void)ctx;
    if (!sn_is_inline(n)) return n;
    sn_node *y = selected_last(n);
    return y != n ? y : weighted(n);
}

int sn_pass_blocks(sn_passes *p) {
    return p->o.constant_params ? sn_rewrite_module(p->m, rule, p) : 0;
}
