/* int8_rows.c: see int8_rows.h. For each row x
 *
 *   m = max(max |x|, 1e-30)    q = round(x (127 / m))    scale = m (1 / 127)
 *
 * A row with NaN or infinity has a scale of that kind, so its products show it. Everything that
 * recognises quantised rows (kernels that store them, products that make them while packing) gets
 * this spelling, and only from here. */
#include "passes/int8_rows.h"
#include "passes/graph_util.h"

sn_node *sn_int8_rows_source(const sn_node *q) {
    const sn_node *y = q->op == SN_OP_cast && q->dtype == SN_I8 ? q->in[0] : NULL;
    if (!y || y->op != SN_OP_round || y->in[0]->op != SN_OP_mul) return NULL;
    for (int i = 0; i < 2; i++) {
        sn_node *x = y->in[0]->in[i];
        bool rows = x->rank > 0 && x->dtype == SN_F32 && sn_shapes_equal(x, q);
        if (rows && sn_int8_rows_of(x).q == q) return x; /* equal nodes are one */
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
    if (contract->v[0] != w->rank - 1 || !sn_static_shape(w) || !sn_from_params_only(w))
        return false;
    bool several = w->op == SN_OP_reshape && w->in[0]->rank == 2 &&
                   w->in[0]->shape[1] == w->shape[w->rank - 1];
    return is_widened(dot->in[0]) && is_widened(several ? w->in[0] : w);
}

sn_int8_rows sn_int8_rows_of(sn_node *x) {
    int64_t last = x->rank - 1;
    sn_node *max = sn_b_reduce(SN_OP_reduce_max, sn_b_unary(SN_OP_abs, x), 1, &last);
    max = sn_b_scalar(SN_OP_max, max, 1e-30);
    sn_node *steps = sn_b_binary(SN_OP_div, sn_b_const(x->m, SN_F32, 127), max);
    sn_node *q = sn_b_unary(SN_OP_round, sn_b_binary(SN_OP_mul, x, steps));
    return (sn_int8_rows){sn_b_cast(q, SN_I8), sn_b_scalar(SN_OP_mul, max, 1 / 127.0)};
}
