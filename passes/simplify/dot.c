/* dot.c: rules of products: transposes become the product's axes, scales move behind it. */
#include "passes/graph_util.h"
#include "passes/match.h"
#include "passes/simplify/simplify.h"

static const sn_attr_key batch_key[2] = {SN_A_batch_a, SN_A_batch_b};
static const sn_attr_key contract_key[2] = {SN_A_contract_a, SN_A_contract_b};

static bool is_listed(const sn_attr *a, int64_t axis) {
    for (int i = 0; a && i < a->n; i++)
        if (a->v[i] == axis) return true;
    return false;
}

/* dot of (x transposed) = dot of x with other axes, transposed if x's free axes are in another
 * order */
static sn_node *dot_transposed(sn_node *n, int side) {
    sn_node *t = n->in[side];
    if (t->op != SN_OP_transpose) return NULL;
    const sn_attr *perm = sn_attr_get(t, SN_A_perm);
    const sn_attr *batch = sn_attr_get(n, batch_key[side]);
    const sn_attr *contract = sn_attr_get(n, contract_key[side]);
    int64_t nb[SN_MAX_RANK], nc[SN_MAX_RANK], order[SN_MAX_RANK];
    int n_batch = batch ? batch->n : 0, n_contract = contract ? contract->n : 0, n_free = 0;
    for (int i = 0; i < n_batch; i++) nb[i] = perm->v[batch->v[i]];
    for (int i = 0; i < n_contract; i++) nc[i] = perm->v[contract->v[i]];
    for (int i = 0; i < t->rank; i++)
        if (!is_listed(batch, i) && !is_listed(contract, i)) order[n_free++] = perm->v[i];

    /* the free axes of the new product are in the order of x; the position of each old one */
    int first = side ? n->rank - n_free : n_batch;
    int64_t back[SN_MAX_RANK];
    bool moved = false;
    for (int i = 0; i < n->rank; i++) back[i] = i;
    for (int i = 0; i < n_free; i++) {
        int place = 0;
        for (int j = 0; j < n_free; j++) place += order[j] < order[i];
        back[first + i] = first + place;
        moved |= place != i;
    }
    sn_attr attr[4];
    int n_attr = 0;
    for (int i = 0; i < n->n_attr && n_attr < 4; i++) {
        if (n->attr[i].key == batch_key[side])
            attr[n_attr++] = (sn_attr){.key = batch_key[side], .n = n_batch, .v = nb};
        else if (n->attr[i].key == contract_key[side])
            attr[n_attr++] = (sn_attr){.key = contract_key[side], .n = n_contract, .v = nc};
        else
            attr[n_attr++] = n->attr[i];
    }
    sn_node *in[2] = {n->in[0], n->in[1]};
    in[side] = t->in[0];
    sn_node *d = sn_node_new(n->m, SN_OP_dot, 2, in, n_attr, attr);
    return moved ? sn_b_transpose(d, d->rank, back) : d;
}

sn_node *sn_simplify_dot_transpose(sn_node *n) {
    sn_node *r = dot_transposed(n, 0);
    return r ? r : dot_transposed(n, 1);
}

/* n = c times the result, even if the scale is below views; NULL: no scale */
static sn_node *strip_scale(sn_node *n, double *c, int depth) {
    sn_node *x = sn_match_scaled(n, c);
    if (x != n) return x;
    if (!depth || (n->op != SN_OP_transpose && n->op != SN_OP_reshape && n->op != SN_OP_slice))
        return NULL;
    x = strip_scale(n->in[0], c, depth - 1);
    return x ? sn_node_with(n, &x) : NULL;
}

/* dot(c x, y) = c dot(x, y), unless c x is a weight */
sn_node *sn_simplify_dot_scale(sn_node *n) {
    double c;
    for (int i = 0; i < 2; i++) {
        sn_node *in[2] = {n->in[0], n->in[1]};
        if (sn_is_fixed(in[i]) || !(in[i] = strip_scale(in[i], &c, 4))) continue;
        sn_node *d = sn_node_with(n, in);
        return c == -1 ? sn_b_unary(SN_OP_neg, d) : sn_b_scalar(SN_OP_mul, d, c);
    }
    return NULL;
}

/* dot(x, y padded with zeros where it is summed) = dot(x without these elements, y) */
sn_node *sn_simplify_dot_padded(sn_node *n) {
    for (int side = 0; side < 2; side++) {
        const sn_node *pad = n->in[side];
        const sn_attr *over = sn_attr_get(n, contract_key[side]),
                      *of_other = sn_attr_get(n, contract_key[1 - side]);
        if (pad->op != SN_OP_pad || sn_attr_flt(pad, SN_A_value, 0) != 0 || !over) continue;
        const sn_attr *low = sn_attr_get(pad, SN_A_low);
        sn_node *in[2] = {n->in[0], n->in[1]};
        bool summed = true;
        for (int a = 0; a < pad->rank; a++)
            summed &= pad->shape[a] == pad->in[0]->shape[a] || is_listed(over, a);
        if (!summed) continue;
        in[side] = pad->in[0];
        for (int i = 0; i < over->n; i++) {
            sn_dim size = pad->in[0]->shape[over->v[i]];
            if (size == pad->shape[over->v[i]]) continue;
            in[1 - side] = sn_b_slice(in[1 - side], (int)of_other->v[i], low->v[over->v[i]], size);
        }
        return sn_node_with(n, in);
    }
    return NULL;
}
