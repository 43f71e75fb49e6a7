/* remark.c: remarks of passes about nodes, and the entries that they concern. */
#include "passes/graph_util.h"
#include "passes/passes.h"

#include <stdarg.h>

enum { LAST_BIT = 63 };

uint64_t sn_entry_bit(int entry) {
    return (uint64_t)1 << (entry < LAST_BIT ? entry : LAST_BIT);
}

static void find_entries(sn_passes *p) {
    p->n_entries_of = sn_module_node_count(p->m);
    p->entries_of = sn_arena_alloc(p->m, sizeof *p->entries_of * p->n_entries_of);
    for (int k = 0; k < sn_entry_count(p->m); k++) {
        sn_entry *e = sn_entry_at(p->m, k);
        const int n = sn_entry_roots(e, true, NULL, false);
        sn_node **root = sn_arena_alloc(p->m, sizeof *root * (size_t)(n + 1));
        sn_entry_roots(e, true, root, false);
        sn_order order = sn_topo(p->m, n, root);
        for (int i = 0; i < order.n; i++) p->entries_of[order.node[i]->id] |= sn_entry_bit(k);
    }
}

/* A node that no entry reads yet is of the entries of its operands. */
uint64_t sn_entries_of(sn_passes *p, const sn_node *n) {
    if (!p->n_entries_of) find_entries(p);
    while (n->id >= p->n_entries_of || !p->entries_of[n->id]) {
        if (!n->n_in) return ~(uint64_t)0;
        n = n->in[0];
    }
    return p->entries_of[n->id];
}

void sn_remark_add(sn_passes *p, const char *pass, const sn_node *n, bool missed, const char *fmt,
                   ...) {
    char text[1000]; /* with names of files and what to write instead */
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    p->remark = sn_arena_grow(p->m, p->remark, sizeof *p->remark, p->n_remark, &p->cap_remark);
    p->remark[p->n_remark++] =
        (sn_remark){pass, n, missed, sn_arena_str(p->m, text), sn_entries_of(p, n)};
}
