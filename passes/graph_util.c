/* graph_util.c: small questions about nodes that several passes ask. */
#include "passes/graph_util.h"

#include <string.h>

bool sn_shapes_equal(const sn_node *a, const sn_node *b) {
    return a->rank == b->rank &&
           (!a->rank || !memcmp(a->shape, b->shape, sizeof(sn_dim) * a->rank));
}

bool sn_is_view(const sn_node *n) {
    return (sn_ops[n->op].flags & SN_OPF_VIEW) || n->op == SN_OP_result;
}

bool sn_reads_far(const sn_node *n, int i) {
    return i == 0 && (sn_ops[n->op].flags & SN_OPF_RANDOM_ACCESS);
}

bool sn_is_leaf(const sn_node *n) {
    return n->n_in == 0;
}

/* Depth first from the decomposition down to the composite's operands; decompositions are small. */
static bool find_op(const sn_node *top, const sn_node *n, sn_op op) {
    for (int i = 0; i < top->n_in; i++)
        if (top->in[i] == n) return false;
    if (n->op == op) return true;
    if (n->decomposition && find_op(n, n->decomposition, op)) return true;
    for (int i = 0; i < n->n_in; i++)
        if (find_op(top, n->in[i], op)) return true;
    return false;
}

bool sn_contains_op(sn_module *m, sn_node *root, sn_op op) {
    (void)m;
    return root->op == op || (root->decomposition && find_op(root, root->decomposition, op));
}

bool sn_reduces(const sn_node *n, bool *last_axis) {
    if (n->op != SN_OP_reduce_sum && n->op != SN_OP_reduce_max && n->op != SN_OP_reduce_min)
        return false;
    const sn_attr *axes = sn_attr_get(n, SN_A_axes);
    *last_axis = axes->n == 1 && axes->v[0] == n->rank - 1;
    return true;
}

void sn_entry_map(sn_entry *e, sn_node *(*f)(void *, sn_node *), void *ctx) {
    for (int i = 0; i < e->n_output; i++) e->output[i].node = f(ctx, e->output[i].node);
    for (int i = 0; i < e->n_assign; i++) e->assign[i].node = f(ctx, e->assign[i].node);
}

int sn_module_roots(sn_module *m, sn_node **root, int *n_live, bool store) {
    int n = 0;
    for (int l = 0; l < 3; l++) {
        if (l == 2) *n_live = n;
        for (int e = 0; e < sn_entry_count(m); e++) {
            sn_entry *entry = sn_entry_at(m, e);
            sn_binding *list[] = {entry->output, entry->assign, entry->tap};
            int size[] = {entry->n_output, entry->n_assign, entry->n_tap};
            for (int i = 0; i < size[l]; i++, n++) {
                if (store)
                    list[l][i].node = root[n];
                else if (root)
                    root[n] = list[l][i].node;
            }
        }
    }
    return n;
}

bool sn_from_params_only(const sn_node *n) {
    return n->leaves == SN_LEAF_PARAM;
}

bool sn_is_fixed(const sn_node *n) {
    return !(n->leaves & SN_LEAF_OTHER);
}

bool sn_static_shape(const sn_node *n) {
    for (int i = 0; i < n->rank; i++)
        if (!sn_dim_is_const(n->m, n->shape[i], NULL)) return false;
    return true;
}

/* ---- the element of index arithmetic at index i of the last axis; false: it is of another kind ---- */

static bool index_at(const sn_node *n, double i, double *value);

static bool const_at(const sn_node *n, double i, double *value) {
    (void)i;
    *value = sn_attr_flt(n, SN_A_value, 0);
    return true;
}

static bool iota_at(const sn_node *n, double i, double *value) {
    *value = i;
    return sn_attr_int(n, SN_A_axis, 0) == n->rank - 1;
}

static bool broadcast_at(const sn_node *n, double i, double *value) {
    const sn_node *x = n->in[0];
    return (x->rank == 0 || x->shape[x->rank - 1] != 1) && index_at(x, i, value);
}

static bool elem_at(const sn_node *n, double i, double *value) {
    double x[3] = {0};
    if (n->n_in > 3 || sn_dtype_is_float((sn_dtype)n->dtype)) return false;
    for (int j = 0; j < n->n_in; j++)
        if (!index_at(n->in[j], i, &x[j])) return false;
    *value = sn_elem_ref((sn_op)n->op, true, x[0], x[1], x[2]);
    return true;
}

static bool index_at(const sn_node *n, double i, double *value) {
    static bool (*const at[SN_OP_COUNT])(const sn_node *n, double i, double *value) = {
#define ELEM(name, ...) [SN_OP_##name] = elem_at,
#include "ir/ops.def"
        [SN_OP_const] = const_at,
        [SN_OP_iota] = iota_at,
        [SN_OP_broadcast] = broadcast_at,
    };
    return at[n->op] && at[n->op](n, i, value);
}

int64_t sn_swap_distance(const sn_node *n) {
    enum { WIDEST = 4096 };
    int64_t width;
    double v;
    if (n->op != SN_OP_gather) return 0;
    const sn_node *x = n->in[0], *index = n->in[1];
    if (sn_attr_int(n, SN_A_axis, 0) != x->rank - 1 || index->rank != 1 ||
        index->shape[0] != x->shape[x->rank - 1] ||
        !sn_dim_is_const(n->m, index->shape[0], &width) || width < 2 || width > WIDEST ||
        !index_at(index, 0, &v) || !(v >= 1 && v < (double)width))
        return 0;
    int64_t h = (int64_t)v;
    if (width % (2 * h)) return 0;
    for (int64_t i = 0; i < width; i++)
        if (!index_at(index, (double)i, &v) || v != (double)(i / h % 2 ? i - h : i + h)) return 0;
    return h;
}
