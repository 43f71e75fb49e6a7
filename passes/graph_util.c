/* graph_util.c: predicates on nodes that several passes use. */
#include "passes/graph_util.h"

#include <string.h>

sn_node *sn_node_from(sn_node *n, sn_node *const *to) {
    if (!n->n_in) return n;
    sn_node **in = sn_arena_alloc(n->m, sizeof *in * n->n_in);
    for (int i = 0; i < n->n_in; i++) in[i] = to[n->in[i]->id];
    return sn_node_with(n, in);
}

bool sn_is_view(const sn_node *n) {
    return (sn_ops[n->op].flags & SN_OPF_VIEW) || n->op == SN_OP_result;
}

bool sn_moves(const sn_node *n) {
    return n->op == SN_OP_transpose || n->op == SN_OP_reshape;
}

sn_node *sn_below_views(const sn_node *n) {
    while (sn_is_view(n)) n = n->in[0];
    return (sn_node *)n;
}

sn_node *sn_below_moves(const sn_node *n) {
    while (sn_moves(n)) n = n->in[0];
    return (sn_node *)n;
}

sn_node *sn_below_reshapes(const sn_node *n) {
    while (n->op == SN_OP_reshape) n = n->in[0];
    return (sn_node *)n;
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

bool sn_reduces(const sn_node *n) {
    return n->op == SN_OP_reduce_sum || n->op == SN_OP_reduce_max || n->op == SN_OP_reduce_min;
}

bool sn_reduces_rows(const sn_node *n) {
    const sn_attr *axes = sn_reduces(n) ? sn_attr_get(n, SN_A_axes) : NULL;
    return axes && axes->n == 1 && axes->v[0] == n->rank - 1;
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

/* Stores the nodes of bindings from root[at] on, or writes them back; NULL: neither. Returns where the
 * next ones begin. */
static int bound_roots(int n, sn_binding *bound, sn_node **root, int at, bool store) {
    for (int i = 0; i < n && root; i++) {
        if (store)
            bound[i].node = root[at + i];
        else
            root[at + i] = bound[i].node;
    }
    return at + n;
}

int sn_module_roots(sn_module *m, sn_node **root, int *n_live, bool store) {
    int n = 0;
    for (int l = 0; l < 3; l++) {
        if (l == 2) *n_live = n;
        for (int i = 0; i < sn_entry_count(m); i++) {
            sn_entry *e = sn_entry_at(m, i);
            sn_binding *list[] = {e->output, e->assign, e->tap};
            n = bound_roots((int[]){e->n_output, e->n_assign, e->n_tap}[l], list[l], root, n,
                            store);
        }
    }
    return n;
}

static int entry_roots(sn_entry *e, bool taps, sn_node **root, bool store) {
    int n = bound_roots(e->n_output, e->output, root, 0, store);
    n = bound_roots(e->n_assign, e->assign, root, n, store);
    return taps ? bound_roots(e->n_tap, e->tap, root, n, store) : n;
}

sn_node **sn_entry_roots(sn_module *m, sn_entry *e, bool taps, int *n) {
    *n = entry_roots(e, taps, NULL, false);
    sn_node **root = sn_arena_alloc(m, sizeof *root * (size_t)(*n + 1));
    entry_roots(e, taps, root, false);
    return root;
}

void sn_entry_set_roots(sn_entry *e, bool taps, sn_node **root) {
    entry_roots(e, taps, root, true);
}

void sn_entry_become(sn_entry *e, bool taps, sn_node *const *made) {
    sn_binding *list[] = {e->output, e->assign, e->tap};
    const int n[] = {e->n_output, e->n_assign, taps ? e->n_tap : 0};
    for (int l = 0; l < 3; l++)
        for (int i = 0; i < n[l]; i++) list[l][i].node = made[list[l][i].node->id];
}

bool sn_is_inline(const sn_node *n) {
    return sn_is_elementwise(n) || sn_ops[n->op].flags & SN_OPF_INLINE;
}

bool sn_depends_on(sn_module *m, sn_node *n, const sn_node *on) {
    sn_order order = sn_topo(m, 1, &n);
    for (int i = 0; i < order.n; i++)
        if (order.node[i] == on) return true;
    return false;
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

static bool selects_multiples(const sn_node *n, int columns) {
    int64_t size;
    return n->op == SN_OP_take_blocks && sn_dim_is_const(n->m, n->shape[n->rank - 1], &size) &&
           size % columns == 0;
}

bool sn_selects_panels(const sn_node *n) {
    return selects_multiples(n, sn_panel_columns((sn_dtype)n->dtype) / 2);
}

bool sn_selects_whole_panels(const sn_node *n) {
    return selects_multiples(n, sn_panel_columns((sn_dtype)n->dtype));
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

int sn_by_depth(const void *a, const void *b) {
    const sn_node *x = *(sn_node *const *)a, *y = *(sn_node *const *)b;
    if (x->depth != y->depth) return x->depth < y->depth ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static sn_node *replace_node(void *ctx, sn_node *n) {
    sn_node *const *pair = ctx;
    return n == pair[0] ? pair[1] : n;
}

int sn_rewrite_node(sn_module *m, int n_root, sn_node **root, sn_node *from, sn_node *to) {
    return sn_rewrite(m, n_root, root, replace_node, (sn_node *[]){from, to});
}
