/* walk.c: nodes in topological order: of roots, entries, regions. */
#include "ir/module_impl.h"

#include <stdlib.h>
#include <string.h>

static int by_id(const void *a, const void *b) {
    uint32_t x = (*(sn_node *const *)a)->id, y = (*(sn_node *const *)b)->id;
    return (x > y) - (x < y);
}

sn_order sn_topo(sn_module *m, int n_root, sn_node *const *root) {
    uint32_t epoch = ++m->epoch, low = UINT32_MAX, high = 0;
    size_t n = 0, done = 0, cap = 64 + (size_t)n_root;
    sn_node **out = sn_arena_alloc(m, sizeof *out * cap);
    for (int i = 0; i < n_root; i++) {
        /* the error node is not part of any order */
        if (!root[i] || root[i]->id >= m->n_node || m->stamp[root[i]->id] == epoch) continue;
        m->stamp[root[i]->id] = epoch;
        out[n++] = root[i];
    }
    while (done < n) { /* the list is also the queue */
        const sn_node *k = out[done++];
        if (k->id < low) low = k->id;
        if (k->id > high) high = k->id;
        if (n + k->n_in > cap) {
            cap = 2 * cap + k->n_in;
            sn_node **grown = sn_arena_alloc(m, sizeof *out * cap);
            memcpy(grown, out, sizeof *out * n);
            out = grown;
        }
        for (int i = 0; i < k->n_in; i++) {
            if (m->stamp[k->in[i]->id] == epoch) continue;
            m->stamp[k->in[i]->id] = epoch;
            out[n++] = k->in[i];
        }
    }
    /* Operands have smaller ids. A few nodes of many are sorted; many are collected by scanning
     * ids. */
    if (n < (high - low) / 16) {
        qsort(out, n, sizeof *out, by_id);
    } else if (n) {
        n = 0;
        for (uint32_t id = low; id <= high; id++)
            if (m->stamp[id] == epoch) out[n++] = m->node[id];
    }
    return (sn_order){out, (int)n};
}

sn_order sn_entry_topo(sn_module *m, const sn_entry *e) {
    int n = e->n_output + e->n_assign;
    sn_node **root = sn_arena_alloc(m, sizeof *root * (size_t)(n + 1));
    for (int i = 0; i < e->n_output; i++) root[i] = e->output[i].node;
    for (int i = 0; i < e->n_assign; i++) root[e->n_output + i] = e->assign[i].node;
    return sn_topo(m, n, root);
}

sn_order sn_region_topo(sn_module *m, const sn_region *r) {
    return sn_topo(m, r->n_out, r->out);
}
