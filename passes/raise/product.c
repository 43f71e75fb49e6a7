/* product.c: canonical form of products: matmul becomes dot, a product with a bias becomes a linear
 * map, scores that are the sum of two products become one. */
#include "passes/graph_util.h"
#include "passes/match.h"
#include "passes/raise/attention.h"

/* matmul is dot with its operands broadcast to common leading axes */
sn_node *sn_raise_open_matmul(sn_node *n) {
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
sn_node *sn_raise_linear(sn_raiser *r, sn_node *n) {
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

/* Operand `side` of a product with the axes in this order: batch, free, summed. */
static sn_node *in_order(const sn_node *dot, int side) {
    const sn_attr *batch = ra_batch_of(dot, side), *over = ra_contract_of(dot, side);
    sn_node *x = dot->in[side];
    int64_t perm[SN_MAX_RANK];
    int n = 0;
    for (int i = 0; batch && i < batch->n; i++) perm[n++] = batch->v[i];
    for (int i = 0; i < x->rank; i++)
        if (!ra_is_listed(batch, i) && !ra_is_listed(over, i)) perm[n++] = i;
    perm[n++] = over->v[0];
    return sn_b_transpose(x, x->rank, perm);
}

/* n = c times a product of queries and keys that nothing else reads; NULL: it is none. */
static const sn_node *scores_of(const sn_raiser *r, sn_node *n, double *c) {
    const sn_node *dot = sn_match_scaled(n, c);
    const sn_attr *over = dot->op == SN_OP_dot ? ra_contract_of(dot, 0) : NULL;
    bool shared = sn_raise_uses(r, n) > 1 || sn_raise_uses(r, dot) > 1;
    return over && over->n == 1 && !shared && ra_is_square(dot) ? dot : NULL;
}

/* a q k^T + b r s^T = [a q, b r] [k, s]^T, or a ([q, r] [k, s]^T) if a = b: latent attention beside its rotated part. Attention has one
 * product; the copies are small beside the scores of one query for each key. */
sn_node *sn_raise_join_scores(sn_raiser *r, sn_node *n) {
    double c[2];
    const sn_node *dot[2];
    sn_node *in[2];
    if (!sn_raise_wants_attention(r)) return NULL;
    for (int i = 0; i < 2; i++)
        if (!(dot[i] = scores_of(r, n->in[i], &c[i])) || dot[i]->rank != n->rank) return NULL;
    const sn_attr *batch[2] = {ra_batch_of(dot[0], 0), ra_batch_of(dot[1], 0)};
    int n_batch = batch[0] ? batch[0]->n : 0;
    if (n_batch != (batch[1] ? batch[1]->n : 0)) return NULL;
    for (int side = 0; side < 2; side++) {
        sn_node *x[2] = {in_order(dot[0], side), in_order(dot[1], side)};
        if (x[0]->rank != x[1]->rank) return NULL;
        for (int a = 0; a < x[0]->rank - 1; a++)
            if (x[0]->shape[a] != x[1]->shape[a]) return NULL;
        for (int i = 0; i < 2 && !side; i++)
            if (c[0] != c[1] && c[i] != 1) x[i] = sn_b_scalar(SN_OP_mul, x[i], c[i]);
        in[side] = sn_b_concat(r->m, 2, x, x[0]->rank - 1);
    }
    int64_t first[SN_MAX_RANK], over[2] = {in[0]->rank - 1, in[1]->rank - 1};
    for (int i = 0; i < n_batch; i++) first[i] = i;
    sn_node *y =
        sn_node_new(r->m, SN_OP_dot, 2, in,
                    SN_ATTRS(SN_LIST(batch_a, n_batch, first), SN_LIST(batch_b, n_batch, first),
                             SN_LIST(contract_a, 1, &over[0]), SN_LIST(contract_b, 1, &over[1])));
    return c[0] == c[1] && c[0] != 1 ? sn_b_scalar(SN_OP_mul, y, c[0]) : y;
}
