/* grad.c: sn_grad, and the parameters that a loss depends on. */
#include "frontend/front.h"
#include "passes/raise/gradient.h"

#include <string.h>

int sn_grad_at(sn_loc at, sn_tensor loss, int n, const sn_tensor *wrt, sn_tensor *out) {
    sn_tensor bad = loss ? sn_module_error_node(loss->m) : NULL;
    for (int i = 0; out && i < n; i++) out[i] = bad;
    if (n < 1 || !front_enter(at, "sn_grad", 1, 1, &loss, &bad)) return 0;
    if (!front_list(loss->m, "sn_grad", n, wrt)) return 0;
    if (out) return sn_loss_gradient(loss, n, wrt, out);
    sn_module_fail(loss->m, SN_ERR_USAGE, "sn_grad: the list of gradients is NULL");
    return 0;
}

int sn_params_of(sn_tensor x, int max, sn_tensor *out) {
    int n = 0;
    if (!x || sn_module_error(x->m)->code) return 0;
    sn_order order = sn_topo(x->m, 1, &x);
    for (int i = 0; i < order.n; i++)
        if (order.node[i]->op == SN_OP_param && n++ < max && out) out[n - 1] = order.node[i];
    return n;
}

static sn_node *as_input(void *ctx, sn_node *n) {
    (void)ctx;
    return n->op == SN_OP_param ? sn_node_new(n->m, SN_OP_input, 0, NULL, n->n_attr, n->attr) : n;
}

int sn_params_to_inputs(sn_module *m, int max, const char **names) {
    int n = 0;
    if (!m || sn_module_error(m)->code) return 0;
    bool *seen = sn_arena_alloc(m, sn_module_node_count(m));
    memset(seen, 0, sn_module_node_count(m));
    for (int k = 0; k < sn_entry_count(m); k++) {
        const sn_order order = sn_entry_topo(m, sn_entry_at(m, k));
        for (int i = 0; i < order.n; i++) {
            const sn_node *x = order.node[i];
            if (x->op != SN_OP_param || seen[x->id]) continue;
            seen[x->id] = true;
            if (n++ < max && names) names[n - 1] = sn_attr_str(x, SN_A_name, "");
        }
    }
    sn_rewrite_module(m, as_input, NULL);
    return n;
}
