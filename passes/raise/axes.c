/* axes.c: which axes of a product's operands and result correspond. */
#include "passes/raise/attention.h"

bool ra_is_listed(const sn_attr *a, int64_t axis) {
    for (int i = 0; a && i < a->n; i++)
        if (a->v[i] == axis) return true;
    return false;
}

const sn_attr *ra_batch_of(const sn_node *dot, int side) {
    return sn_attr_get(dot, side ? SN_A_batch_b : SN_A_batch_a);
}

const sn_attr *ra_contract_of(const sn_node *dot, int side) {
    return sn_attr_get(dot, side ? SN_A_contract_b : SN_A_contract_a);
}

static bool is_free(const sn_node *dot, int side, int axis) {
    return !ra_is_listed(ra_batch_of(dot, side), axis) &&
           !ra_is_listed(ra_contract_of(dot, side), axis);
}

void ra_result_axis(const sn_node *dot, int i, int operand_axis[2]) {
    const sn_attr *a = ra_batch_of(dot, 0), *b = ra_batch_of(dot, 1);
    int n = a ? a->n : 0;
    operand_axis[0] = operand_axis[1] = -1;
    if (i < n) {
        operand_axis[0] = (int)a->v[i];
        operand_axis[1] = (int)b->v[i];
        return;
    }
    i -= n;
    for (int side = 0; side < 2; side++)
        for (int x = 0; x < dot->in[side]->rank; x++)
            if (is_free(dot, side, x) && i-- == 0) {
                operand_axis[side] = x;
                return;
            }
}

bool ra_repeats(const sn_node *n, int axis) {
    if (n->op != SN_OP_broadcast || n->shape[axis] == 1) return false;
    int i = axis - (n->rank - n->in[0]->rank);
    return i < 0 || n->in[0]->shape[i] == 1;
}

bool ra_goes_with(const sn_node *n, const sn_node *dot, int side) {
    int from[2];
    for (int i = 0; i < dot->rank; i++) {
        ra_result_axis(dot, i, from);
        if (n->shape[i] != 1 && from[side] != i) return false;
    }
    return true;
}

bool ra_is_square(const sn_node *n) {
    bool grows[2] = {false, false};
    for (int i = 0, from[2]; i < n->rank; i++) {
        ra_result_axis(n, i, from);
        if (sn_dim_is_const(n->m, n->shape[i], NULL)) continue;
        grows[0] |= from[1] < 0;
        grows[1] |= from[0] < 0;
    }
    return grows[0] && grows[1];
}
