/* int8_rows.c: see int8_rows.h. */
#include "passes/int8_rows.h"
#include "passes/graph_util.h"

sn_int8_rows sn_int8_rows_of(sn_node *x) {
    return (sn_int8_rows){SN_NODE(x->m, quantise_rows, SN_ATTRS(SN_INT(index, 0)), x),
                          SN_NODE(x->m, quantise_rows, SN_ATTRS(SN_INT(index, 1)), x)};
}

/* Passes rebuild what composites expand to, so the rows are not remembered: equal nodes are one. */
sn_node *sn_int8_rows_source(const sn_node *q, sn_node **scale) {
    const sn_node *y = q->op == SN_OP_cast && q->dtype == SN_I8 ? q->in[0] : NULL;
    if (!y || y->op != SN_OP_round || y->in[0]->op != SN_OP_mul) return NULL;
    for (int i = 0; i < 2; i++) {
        sn_node *x = y->in[0]->in[i];
        if (!x->rank || x->dtype != SN_F32 || !sn_shapes_equal(x, q)) continue;
        const sn_int8_rows rows = sn_int8_rows_of(x);
        *scale = rows.scale->decomposition;
        if (rows.q->decomposition == q) return x;
    }
    return NULL;
}

static bool is_widened(const sn_node *n) {
    return n->op == SN_OP_cast && n->dtype == SN_I32 && n->in[0]->dtype == SN_I8;
}

bool sn_is_int8_product(const sn_passes *p, const sn_node *dot) {
    const sn_attr *batch = sn_attr_get(dot, SN_A_batch_b);
    const sn_attr *contract = sn_attr_get(dot, SN_A_contract_b);
    if (dot->op != SN_OP_dot || dot->dtype != SN_I32 || (batch && batch->n) || !contract ||
        contract->n != 1 || !p->o.constant_params)
        return false;
    const sn_node *w = dot->in[1];
    if ((w->rank != 2 && contract->v[0] != w->rank - 1) || !sn_static_shape(w) ||
        !sn_from_params_only(w))
        return false;
    bool several = w->op == SN_OP_reshape && w->in[0]->rank == 2 &&
                   w->in[0]->shape[1] == w->shape[w->rank - 1];
    return is_widened(dot->in[0]) && is_widened(several ? w->in[0] : w);
}
