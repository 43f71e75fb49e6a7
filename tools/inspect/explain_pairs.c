/* explain_pairs.c: how often an entry, as it was defined, has a softmax before a product. */
#include "tools/inspect/explain.h"

#include <stdlib.h>

/* Whether the result is a softmax's weights if operand i is: it moves, chooses or casts elements. */
static bool passes_on(const sn_node *n) {
    return sn_ops[n->op].flags & SN_OPF_VIEW || n->op == SN_OP_cast || n->op == SN_OP_select ||
           n->op == SN_OP_dropout;
}

static bool multiplies(const sn_node *n) {
    return n->op == SN_OP_dot || n->op == SN_OP_matmul;
}

int explain_pairs(sn_module *m, const sn_entry *e) {
    sn_order order = sn_entry_topo(m, e);
    const size_t n_nodes = sn_module_node_count(m);
    uint32_t *from =
        calloc(n_nodes + 1, sizeof *from); /* of a node: the softmax that it has, plus 1 */
    bool *found = calloc(n_nodes + 1, sizeof *found);
    int pairs = 0;
    for (int i = 0; from && found && i < order.n; i++) {
        const sn_node *n = order.node[i];
        pairs += n->op == SN_OP_attention || n->op == SN_OP_mixed_attention ||
                 n->op == SN_OP_ring_attention;
        if (n->op == SN_OP_softmax) from[n->id] = n->id + 1;
        for (int k = 0; k < n->n_in; k++) {
            const uint32_t of = from[n->in[k]->id];
            if (of && passes_on(n)) from[n->id] = of;
            if (!of || !multiplies(n) || found[of]) continue;
            found[of] = true;
            pairs++;
        }
    }
    if (!from || !found) pairs = -1;
    free(from);
    free(found);
    return pairs;
}
