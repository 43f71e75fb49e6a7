/* table.c: the table of kernels, and what follows from a row. */
#include "passes/kernels/table.h"

const sn_kernel_traits sn_kernels[SN_KERNEL_COUNT] = {
    [SN_KERNEL_NONE] = {.name = "none", .region = SN_NO_REGION},
#define KERNEL(id, ...) [SN_KERNEL_##id] = {.name = #id, __VA_ARGS__},
#include "passes/kernels/kernels.def"
};

static const sn_kernel_id by_op[SN_OP_COUNT] = {
#define COMPUTES(op, id) [SN_OP_##op] = SN_KERNEL_##id,
#include "passes/kernels/kernels.def"
};

const sn_kernel_traits *sn_kernel_of(const sn_node *n) {
    return &sn_kernels[by_op[n->op]];
}

/* Does the body reduce over axes before the last one? */
static bool reduces_columns(const sn_node *n) {
    const sn_region *body = sn_attr_region(n, SN_A_body);
    sn_order order = sn_region_topo(n->m, body);
    for (int i = 0; i < order.n; i++) {
        const sn_attr *axes = sn_attr_get(order.node[i], SN_A_axes);
        if (axes && axes->n && axes->v[axes->n - 1] != order.node[i]->rank - 1) return true;
    }
    return false;
}

sn_kernel_id sn_kernel_variant(const sn_node *n) {
    sn_kernel_id k = by_op[n->op];
    return k == SN_KERNEL_map_reduce && reduces_columns(n) ? SN_KERNEL_column : k;
}

bool sn_kernel_can_hold(const sn_kernel_traits *k, sn_holds what) {
    return k->holds[what] != SN_LEVEL_NONE;
}

bool sn_kernel_holds(const sn_kernel_traits *k, sn_holds what, int level) {
    return sn_kernel_can_hold(k, what) && sn_level_reaches(level, k->holds[what]);
}

sn_holds sn_kernel_part(const sn_node *n) {
    if (sn_is_elementwise(n)) return SN_HOLDS_ELEMENTWISE;
    if (n->op == SN_OP_random) return SN_HOLDS_RANDOM;
    return sn_swap_distance(n) ? SN_HOLDS_COLUMN_SWAP : SN_HOLDS_ROWS;
}

sn_dtype sn_epilogue_type(const sn_node *dot) {
    return dot->dtype == SN_I32 ? SN_F32 : (sn_dtype)dot->dtype;
}

bool sn_epilogue_precision(sn_dtype product, const sn_node *n) {
    bool wide = n->dtype == SN_F64;
    for (int i = 0; i < n->n_in; i++) wide |= n->in[i]->dtype == SN_F64;
    return !wide || product == SN_F64;
}

int sn_kernel_prologue_operand(const sn_node *n) {
    if (!sn_kernel_of(n)->contraction) return 0;
    bool group = sn_attr_int(n, SN_A_group, 0) > 0;
    return 2 + group + (group && sn_attr_int(n, SN_A_super, 0) > 0) +
           (sn_attr_int(n, SN_A_blocks, 0) > 0);
}

int sn_kernel_region_operand(const sn_node *n) {
    return sn_kernel_prologue_operand(n) + (int)sn_attr_int(n, SN_A_n_pro, 0);
}

int sn_kernel_region_arg(const sn_node *n, int operand) {
    int first = sn_kernel_region_operand(n);
    return operand < first ? -1 : operand - first + sn_kernel_of(n)->contraction;
}
