/* product.c: canonical form of products: matmul becomes dot, a product with a bias becomes a linear
 * map. */
#include "passes/graph_util.h"
#include "passes/match.h"
#include "passes/raise/raise.h"

/* matmul is dot with its operands broadcast to common leading axes */
static sn_node *open_matmul(sn_raiser *r, sn_node *n) {
    (void)r;
    return n->decomposition;
}

/* Whether n is one matrix, without batch axes, to the right of x [.., in]: then as [out, in]. */
static sn_node *weight_of(const sn_node *dot) {
    const sn_attr *batch = sn_attr_get(dot, SN_A_batch_a);
    const sn_attr *ca = sn_attr_get(dot, SN_A_contract_a), *cb = sn_attr_get(dot, SN_A_contract_b);
    const sn_node *x = dot->in[0];
    sn_node *w = dot->in[1];
    if (batch && batch->n) return NULL;
    if (!ca || ca->n != 1 || ca->v[0] != x->rank - 1 || w->rank != 2) return NULL;
    return cb->v[0] == 1 ? w : sn_b_transpose(w, 2, (const int64_t[]){1, 0});
}

/* x W^T + b = linear(x, W, b): below the highest level, a bias joins its product only as part of
 * one composite */
static sn_node *raise_linear(sn_raiser *r, sn_node *n) {
    for (int i = 0; i < 2; i++) {
        sn_node *y = n->in[i], *bias = sn_match_vector(n->in[1 - i]);
        if (!bias || sn_raise_uses(r, y) > 1 || !sn_match_float(n)) continue;
        sn_node *w = NULL;
        if (y->op == SN_OP_linear && y->n_in == 2) w = y->in[1];
        if (y->op == SN_OP_dot) w = weight_of(y);
        if (!w || w->dtype != n->dtype || y->in[0]->dtype != n->dtype) continue;
        return sn_node_new(n->m, SN_OP_linear, 3, (sn_node *[]){y->in[0], w, bias}, SN_NO_ATTRS);
    }
    return NULL;
}

const sn_raising sn_raise_product[] = {
    {SN_OP_matmul, open_matmul},
    {SN_OP_add, raise_linear},
    {SN_OP_COUNT, NULL},
};
