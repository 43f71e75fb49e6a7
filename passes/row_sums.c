/* row_sums.c: which sums r = reduce(x [.., N]) along the rows of a product's result x are worth two
 * stages: p = reduce over panels of columns [.., N / P, 1], which the product's epilogue computes while
 * x is in registers, and r = reduce(p).
 *
 * Panels are the same for any number of threads and any tile, so results are, too. */
#include "passes/graph_util.h"
#include "passes/grouping.h"

static bool is_wide(const sn_node *n) {
    return n->rank && n->shape[n->rank - 1] != 1;
}

/* By id: nodes whose elements are broadcast along rows again. */
static const uint8_t *find_along(const sn_grouping *g) {
    uint8_t *along = sn_arena_alloc(g->m, g->n_id);
    for (int k = g->order.n; k-- > 0;) {
        const sn_node *n = g->order.node[k];
        bool spread = n->op == SN_OP_broadcast && is_wide(n);
        if (!spread && !(along[n->id] && (sn_is_elementwise(n) || n->op == SN_OP_broadcast)))
            continue;
        for (int i = 0; i < n->n_in; i++)
            if (!is_wide(n->in[i])) along[n->in[i]->id] = 1;
    }
    return along;
}

/* Sums of squares of weights' gradients, for clipping: the alternative reads the gradients again.
 * Products of 768 x 768 to 768 x 3072 with the sums of their squares take 5 to 6 % less time at K =
 * 256, the same as without sums, and 0 to 17 % less at K = 64 (two threads). A result that is
 * broadcast along the rows again (the mean of a norm) is left to the kernel that does so, which has
 * the row in L1 anyway. */
const uint8_t *sn_row_sums_find(const sn_grouping *g) {
    uint8_t *pays = sn_arena_alloc(g->m, g->n_id);
    if (!sn_kernel_holds(&sn_kernels[SN_KERNEL_gemm], SN_HOLDS_PANEL_REDUCTION, g->p->o.level))
        return pays;
    double begin = sn_stage_begin();
    const uint8_t *along = find_along(g);
    for (int k = 0; k < g->order.n; k++) {
        const sn_node *n = g->order.node[k];
        pays[n->id] = !along[n->id] && !sn_panel_sum(n) && sn_panel_sum_of(n);
    }
    sn_stage_end(SN_STAGE_row_sums, begin, -1);
    return pays;
}
