/* region.c: regions, which are interned as nodes are. */
#include "ir/module_impl.h"

#include <string.h>

uint64_t sn_region_hash(const void *p) {
    const sn_region *r = p;
    uint64_t h = (uint64_t)r->n_arg;
    for (int i = 0; i < r->n_arg; i++) h = sn_hash_word(r->arg[i]->hash, h);
    for (int i = 0; i < r->n_out; i++) h = sn_hash_word(r->out[i]->hash, h);
    return h;
}

static bool same_region(const void *item, const void *key) {
    const sn_region *a = item, *b = key;
    return a->n_arg == b->n_arg && a->n_out == b->n_out &&
           (!a->n_arg || !memcmp(a->arg, b->arg, sizeof *a->arg * (size_t)a->n_arg)) &&
           !memcmp(a->out, b->out, sizeof *a->out * (size_t)a->n_out);
}

/* What a region may contain besides its arguments: nodes that depend on nothing outside. */
static bool closed_leaf(const sn_node *n) {
    return n->op == SN_OP_const || n->op == SN_OP_iota || n->op == SN_OP_dim_value || n->n_in > 0 ||
           sn_ops[n->op].kind == SN_FUSED; /* a kernel that writes constants */
}

sn_region *sn_region_new(sn_module *m, int n_arg, sn_node *const *arg, int n_out,
                         sn_node *const *out) {
    static const sn_region none;
    if (m->error.code || n_out < 1) return (sn_region *)&none;
    sn_region key = {n_arg, n_out, arg, out};
    sn_order order = sn_region_topo(m, &key);
    for (int i = 0; i < order.n; i++) {
        const sn_node *k = order.node[i];
        bool ok = closed_leaf(k);
        for (int j = 0; j < n_arg && !ok; j++) ok = arg[j] == k;
        if (!ok) {
            const char *name = sn_attr_str(k, SN_A_name, NULL);
            sn_module_fail(
                m, SN_ERR_USAGE,
                "a region may only use its arguments, not %s%s%s%s; pass the tensor as captured",
                sn_ops[k->op].name, name ? " \"" : "", name ? name : "", name ? "\"" : "");
            return (sn_region *)&none;
        }
    }
    sn_table_reserve(m, &m->regions, sn_region_hash);
    void **slot = sn_table_find(&m->regions, sn_region_hash(&key), same_region, &key);
    if (!*slot) {
        sn_region *r = sn_arena_alloc(m, sizeof *r);
        *r = (sn_region){n_arg, n_out, sn_arena_copy(m, arg, sizeof *arg * (size_t)n_arg),
                         sn_arena_copy(m, out, sizeof *out * (size_t)n_out)};
        *slot = r;
        m->regions.used++;
    }
    return *slot;
}
