/* grouping.c: see grouping.h. */
#include "passes/grouping.h"
#include "passes/graph_util.h"
#include "passes/kernels/costs.h"

#include <string.h>

bool sn_group_absorbs(const sn_grouping *g, const sn_node *n) {
    return n->id < g->n_id && g->cheap[n->id];
}

sn_candidate sn_group_choice(const sn_grouping *g, const sn_node *dot) {
    return g->selected[dot->id] ? SN_CHOOSE_FUSED : sn_choose(g->p, dot);
}

bool sn_group_packs(const sn_grouping *g, const sn_node *dot) {
    const sn_attr *batch = sn_attr_get(dot, SN_A_batch_b);
    if (sn_group_choice(g, dot) == SN_CHOOSE_LIBRARY) return false;
    return g->p->o.constant_params && (!batch || !batch->n) &&
           sn_kernels[SN_KERNEL_gemm].computes_in >> dot->dtype & 1 &&
           sn_static_shape(dot->in[1]) && sn_from_params_only(dot->in[1]);
}

sn_group sn_group_for(const sn_grouping *g, sn_kernel_id kernel, const sn_node *n) {
    sn_group k = {.kernel = kernel, .rank = n->rank};
    if (n->rank) memcpy(k.domain, n->shape, sizeof(sn_dim) * n->rank);
    if (kernel != SN_KERNEL_gemm) return k;
    k.fused = sn_group_choice(g, n) == SN_CHOOSE_FUSED;
    k.packed = sn_group_packs(g, n);
    return k;
}

/* Whether the epilogue of product k has the indices that n is made of. */
static bool has_indices(const sn_grouping *g, const sn_group *k, const sn_node *n) {
    if (n->op == SN_OP_iota) return !sn_kernel_refuses(k, SN_IN_EPILOGUE, n);
    for (int i = 0; i < n->n_in; i++)
        if (g->cheap[n->in[i]->id] == SN_CHEAP_INDEX && !has_indices(g, k, n->in[i])) return false;
    return true;
}

/* Whether the kernel that reduces n, rather than product k, computes it: k cannot hold the sums. */
static bool is_left(const sn_grouping *g, const sn_group *k, const sn_node *n) {
    if (sn_is_expensive(n) || !g->summed[n->id]) return false;
    return g->summed[n->id] == SN_SUMMED ||
           k->reductions + (int)g->readers[n->id] >
               sn_kernels[SN_KERNEL_gemm].epilogue.reductions ||
           sn_sum_refuses(k, n);
}

bool sn_group_joins(const sn_grouping *g, const sn_group *k, const sn_node *n) {
    return has_indices(g, k, n) && !sn_kernel_refuses(k, SN_IN_EPILOGUE, n) && !is_left(g, k, n);
}
