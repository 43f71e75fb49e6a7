/* walk.c: nodes in topological order: of roots, entries, regions. */
#include "ir/module_impl.h"

#include <stdlib.h>
#include <string.h>

static int by_id(const void *a, const void *b) {
    uint32_t x = (*(sn_node *const *)a)->id, y = (*(sn_node *const *)b)->id;
    return (x > y) - (x < y);
}

/* Appends n to the list that walks share, if it is not there. The error node is not part of any order. */
static void reach(sn_module *m, sn_node *n) {
    if (!n || n->id >= m->n_node || m->stamp[n->id] == m->epoch) return;
    m->stamp[n->id] = m->epoch;
    m->walk = sn_arena_grow(m, m->walk, sizeof(sn_node *), m->n_walk, &m->cap_walk);
    m->walk[m->n_walk++] = n;
}

sn_order sn_topo(sn_module *m, int n_root, sn_node *const *root) {
    uint32_t epoch = ++m->epoch, low = UINT32_MAX, high = 0;
    m->n_walk = 0;
    for (int i = 0; i < n_root; i++) reach(m, root[i]);
    for (int done = 0; done < m->n_walk; done++) { /* the list is also the queue */
        const sn_node *k = m->walk[done];
        if (k->id < low) low = k->id;
        if (k->id > high) high = k->id;
        for (int i = 0; i < k->n_in; i++) reach(m, k->in[i]);
    }
    /* Operands have smaller ids. A few nodes of many are sorted; many are collected by scanning
     * ids. */
    int n = m->n_walk;
    sn_node **out = sn_arena_alloc(m, sizeof *out * (size_t)n);
    if ((uint32_t)n < (high - low) / 16) {
        memcpy(out, m->walk, sizeof *out * (size_t)n);
        qsort(out, (size_t)n, sizeof *out, by_id);
    } else if (n) {
        n = 0;
        for (uint32_t id = low; id <= high; id++)
            if (m->stamp[id] == epoch) out[n++] = m->node[id];
    }
    return (sn_order){out, n};
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
