/* graph_util.c: predicates on nodes that several passes use. */
#include "passes/graph_util.h"

#include <string.h>

sn_node *sn_node_from(sn_node *n, sn_node *const *to) {
    if (!n->n_in) return n;
    sn_node **in = sn_arena_alloc(n->m, sizeof *in * n->n_in);
    for (int i = 0; i < n->n_in; i++) in[i] = to[n->in[i]->id];
    return sn_node_with(n, in);
}

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

const char *sn_name_with_place(const sn_node *n) {
    const char *slash = n->loc.file ? strrchr(n->loc.file, '/') : NULL;
    const char *file = slash ? slash + 1 : n->loc.file;
    if (!file) return sn_arena_printf(n->m, "`%s`", sn_ops[n->op].name);
    return sn_arena_printf(n->m, "`%s` (%s:%d)", sn_ops[n->op].name, file, n->loc.line);
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

bool sn_selects_panels(const sn_node *n) {
    int64_t size;
    return n->op == SN_OP_take_blocks && sn_dim_is_const(n->m, n->shape[n->rank - 1], &size) &&
           size % (sn_panel_columns((sn_dtype)n->dtype) / 2) == 0;
}

sn_node *sn_param_as(const sn_node *n, const char *name, sn_dtype t, const sn_dim *shape) {
    sn_attr *attr = sn_arena_alloc(n->m, sizeof *attr * (size_t)(n->n_attr + 1));
    for (int i = 0; i < n->n_attr; i++) {
        attr[i] = n->attr[i];
        if (attr[i].key == SN_A_name) attr[i].s = name;
        if (attr[i].key == SN_A_dtype) attr[i].i = t;
        if (attr[i].key == SN_A_shape) attr[i].v = shape;
    }
    return sn_node_new(n->m, (sn_op)n->op, 0, NULL, n->n_attr, attr);
}
