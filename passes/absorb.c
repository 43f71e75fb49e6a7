/* absorb.c: see absorb.h. */
#include "passes/absorb.h"

#include "passes/graph_util.h"
#include "passes/kernels/costs.h"
#include "passes/holds.h"

#include <string.h>

/* ---- views ---- */

bool sn_views_keep_rows(const sn_views *v) {
    for (; v; v = v->next) {
        const sn_node *n = v->view, *x = n->in[0];
        const int last = n->rank - 1;
        if (last < 0 || !x->rank || n->shape[last] != x->shape[x->rank - 1] ||
            (n->op == SN_OP_transpose && sn_attr_get(n, SN_A_perm)->v[last] != last))
            return false;
    }
    return true;
}

/* x, which has the shape `from` but for the length of its rows, in the shape `to` but for the same. */
static sn_node *reshaped(sn_node *x, const sn_node *from, const sn_node *to) {
    sn_dim shape[SN_MAX_RANK];
    memcpy(shape, to->shape, sizeof *shape * to->rank);
    if (x->rank && to->rank && x->shape[x->rank - 1] != from->shape[x->rank - 1])
        shape[to->rank - 1] = x->shape[x->rank - 1];
    return sn_b_reshape(x, to->rank, shape);
}

sn_node *sn_view_apply(const sn_node *view, sn_node *x) {
    if (view->op == SN_OP_transpose) return sn_node_with(view, &x);
    return reshaped(x, view->in[0], view);
}

sn_node *sn_view_undo(const sn_node *view, sn_node *x) {
    int64_t back[SN_MAX_RANK];
    if (view->op == SN_OP_reshape) return reshaped(x, view, view->in[0]);
    for (int a = 0; a < view->rank; a++) back[sn_attr_get(view, SN_A_perm)->v[a]] = a;
    return sn_b_transpose(x, view->rank, back);
}

/* ---- nodes ---- */

bool sn_is_row_work(const sn_node *n) {
    const sn_group any = {.kernel = SN_KERNEL_recurrence, .type = SN_BOOL};
    return n->n_in && !sn_kernel_refuses(&any, SN_IN_PROLOGUE, n);
}

static bool follows_product(const sn_node *n, const bool *in_product, bool summed) {
    if (n->op == SN_OP_dot) return true;
    if (!sn_is_elementwise(n) || (summed && !sn_is_expensive(n))) return false;
    for (int i = 0; i < n->n_in; i++)
        if (sn_shapes_equal(n, n->in[i]) && in_product[n->in[i]->id]) return true;
    return false;
}

bool *sn_find_in_products(sn_module *m, sn_order order, int n_root, sn_node *const *root) {
    const size_t n = sn_module_node_count(m);
    bool *summed = sn_arena_alloc(m, n), *read = sn_arena_alloc(m, n);
    bool *in_product = sn_arena_alloc(m, n);
    for (int i = 0; i < n_root; i++) read[root[i]->id] = true;
    for (int i = 0; i < order.n; i++) {
        const sn_node *x = order.node[i];
        for (int k = 0; k < x->n_in; k++) (sn_reduces(x) ? summed : read)[x->in[k]->id] = true;
    }
    for (int i = 0; i < order.n; i++) { /* operands come before their users */
        const uint32_t id = order.node[i]->id;
        in_product[id] = follows_product(order.node[i], in_product, summed[id] && !read[id]);
    }
    return in_product;
}

/* ---- all recurrences ---- */

static int find_taken(sn_order order, bool (*takes)(const sn_node *n), sn_node **found) {
    int n = 0;
    for (int i = 0; i < order.n; i++)
        if (takes(order.node[i])) found[n++] = order.node[i];
    return n;
}

static int absorb_entry(sn_module *m, sn_entry *e, bool (*takes)(const sn_node *n),
                        sn_absorb_fn *absorb) {
    int n_root, count = 0;
    sn_node **root = sn_entry_roots(m, e, false, &n_root);
    sn_order order = sn_topo(m, n_root, root);
    sn_node **found = sn_arena_alloc(m, sizeof *found * (size_t)(order.n + 1));
    for (int at = find_taken(order, takes, found); at-- > 0 && !sn_module_error(m)->code;) {
        if (!absorb(m, found[at], n_root, root)) continue;
        find_taken(sn_topo(m, n_root, root), takes, found);
        count++;
    }
    sn_entry_set_roots(e, false, root);
    return count;
}

int sn_absorb_each(sn_passes *p, bool (*takes)(const sn_node *n), sn_absorb_fn *absorb) {
    int count = 0;
    if (!sn_kernel_holds(&sn_kernels[SN_KERNEL_recurrence], SN_HOLDS_ROW_PROLOGUE, p->o.level))
        return 0;
    for (int i = 0; i < sn_entry_count(p->m); i++)
        count += absorb_entry(p->m, sn_entry_at(p->m, i), takes, absorb);
    return count;
}
