/* grouped.c: products in which every row needs one matrix of several become grouped products, which
 * compute the chosen ones only: take_blocks(x W^T) of the maps of experts, and sum(x gather(W)),
 * where each row looks up a matrix of its own.
 *
 * Requires primitives; the end of expand. Keeps values. A product whose weights never change and whose
 * blocks are whole panels stays: its kernel selects panels, with an epilogue (fuse_groups.c).
 * Terminates: each rewrite removes a take_blocks or a gather above a product. */
#include "passes/grouped.h"
#include "passes/graph_util.h"
#include "passes/match.h"
#include "passes/passes.h"

static bool is_axis(const sn_node *n, sn_attr_key key, int64_t axis) {
    const sn_attr *a = sn_attr_get(n, key);
    return a && a->n == 1 && a->v[0] == axis;
}

static sn_node *reshape2(sn_node *x, sn_dim rows, sn_dim columns) {
    return sn_b_reshape(x, 2, (const sn_dim[]){rows, columns});
}

static sn_node *grouped_dot(sn_node *x, sn_node *w, sn_node *index) {
    return sn_node_new(x->m, SN_OP_grouped_dot, 3, (sn_node *[]){x, w, index}, SN_NO_ATTRS);
}

/* A product of x [.., k] and W [E n, k] or, *of_rows false, [k, E n], without more operands. */
static bool is_map(const sn_node *n, bool *of_rows) {
    const sn_attr *batch = sn_attr_get(n, SN_A_batch_a);
    *of_rows = n->op == SN_OP_linear || (n->op == SN_OP_dot && is_axis(n, SN_A_contract_b, 1));
    if (n->op == SN_OP_linear) return n->n_in == 2 && n->in[1]->rank == 2;
    return n->op == SN_OP_dot && !(batch && batch->n) && n->in[1]->rank == 2 &&
           is_axis(n, SN_A_contract_a, n->in[0]->rank - 1);
}

/* take_blocks of such a product */
static sn_node *selected(sn_passes *p, sn_node *take) {
    sn_node *dot = take->in[0], *index = take->in[1];
    int64_t blocks = sn_attr_int(take, SN_A_blocks, 1), size, count;
    bool of_rows;
    if (!is_map(dot, &of_rows) || !sn_match_float(dot) ||
        !sn_dim_is_const(take->m, take->shape[take->rank - 1], &size) ||
        !sn_dim_is_const(take->m, index->shape[index->rank - 1], &count))
        return take;
    sn_node *x = dot->in[0], *w = dot->in[1];
    bool fixed = p->o.constant_params && sn_from_params_only(w);
    if (fixed && sn_selects_whole_panels(take)) return take;
    if (x->dtype != w->dtype || x->dtype != dot->dtype) return take;
    sn_dim k = x->shape[x->rank - 1], rows = sn_dim_product(take->m, x->rank - 1, x->shape);
    sn_node *blocks_of_w =
        of_rows ? sn_b_reshape(w, 3, (const sn_dim[]){blocks, size, k})
                : sn_b_transpose(sn_b_reshape(w, 3, (const sn_dim[]){k, blocks, size}), 3,
                                 (const int64_t[]){1, 2, 0});
    sn_node *y = grouped_dot(reshape2(x, rows, k), blocks_of_w, reshape2(index, rows, count));
    return sn_b_reshape(y, take->rank, take->shape);
}

/* Whether w looks up a matrix of a table [E, n, k] for each row of x [batch, k], or several of them, a
 * constant number: [batch, n, k] or [batch, J, n, k]. */
static bool is_table(const sn_node *w, const sn_node *x, int n_batch) {
    if (w->op != SN_OP_gather || w->in[0]->rank != 3 || sn_attr_int(w, SN_A_axis, 0) != 0 ||
        x->rank != n_batch + 1 || x->dtype != w->dtype)
        return false;
    const sn_node *index = w->in[1];
    bool one = index->rank == n_batch, several = index->rank == n_batch + 1;
    return sn_dim_is_const(w->m, w->in[0]->shape[0], NULL) &&
           (one || (several && sn_dim_is_const(w->m, index->shape[n_batch], NULL)));
}

static bool counts_up(const sn_attr *list, int n) {
    for (int i = 0; i < n; i++)
        if (list->v[i] != i) return false;
    return true;
}

sn_node *sn_group_lookup(sn_node *dot) {
    const sn_attr *ba = sn_attr_get(dot, SN_A_batch_a), *bb = sn_attr_get(dot, SN_A_batch_b);
    const sn_attr *cb = sn_attr_get(dot, SN_A_contract_b);
    int n = ba ? ba->n : 0;
    if (!n || !bb || !counts_up(ba, n) || !counts_up(bb, n) || !cb || cb->n != 1) return dot;
    bool left = is_table(dot->in[0], dot->in[1], n); /* either operand is the table */
    sn_node *w = dot->in[left ? 0 : 1], *x = dot->in[left ? 1 : 0];
    const sn_attr *cw = sn_attr_get(dot, left ? SN_A_contract_a : SN_A_contract_b);
    if (!is_table(w, x, n) || !sn_match_float(dot)) return dot;
    sn_node *table = w->in[0], *index = w->in[1];
    int first = index->rank; /* of the matrices' axes */
    if (cw->v[0] < first) return dot;
    if (cw->v[0] == first) table = sn_b_transpose(table, 3, (const int64_t[]){0, 2, 1});
    sn_dim rows = sn_dim_product(dot->m, n, x->shape), each = first > n ? index->shape[n] : 1;
    sn_node *y = grouped_dot(reshape2(x, rows, x->shape[n]), table, reshape2(index, rows, each));
    return sn_b_reshape(y, dot->rank, dot->shape);
}

static sn_node *rule(void *ctx, sn_node *n) {
    if (n->op == SN_OP_take_blocks) return selected(ctx, n);
    return n->op == SN_OP_dot ? sn_group_lookup(n) : n;
}

int sn_group_products(sn_passes *p) {
    return sn_rewrite_module(p->m, rule, p);
}
