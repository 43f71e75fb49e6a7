/* hoist.c: what depends on parameters only is computed once, when weights are loaded.
 *
 * Requires fused nodes. Each such kernel moves to the entry "@prepare" and is read back as a
 * parameter "@prepared.N". Keeps values as long as parameters do not change between calls
 * (p->o.constant_params). Terminates: one walk. */
#include "passes/graph_util.h"
#include "passes/passes.h"

#include <string.h>

typedef struct hoister {
    sn_passes *p;
    sn_module *m;
    uint8_t *fixed;  /* by old id: depends on parameters and constants only, and on at least one
                        parameter */
    uint8_t *closed; /* by old id: depends on no input, state or run-time dimension */
    sn_node **moved; /* by old id: the parameter that replaces it */
    uint32_t n_id;
    sn_entry *prepare;
    int count;
} hoister;

static bool needs_run(sn_module *m, const sn_node *n);

/* A slice that starts at P, or a region in which a run-time dimension occurs. */
static bool attr_needs_run(sn_module *m, const sn_attr *a) {
    sn_attr_kind kind = sn_attr_table[a->key].kind;
    if (kind == SN_AK_DIM) return !sn_dim_is_const(m, a->i, NULL);
    if (kind == SN_AK_DIMS)
        for (int i = 0; i < a->n; i++)
            if (!sn_dim_is_const(m, a->v[i], NULL)) return true;
    if (kind != SN_AK_REGION) return false;
    sn_order order = sn_region_topo(m, a->r);
    for (int i = 0; i < order.n; i++)
        if (needs_run(m, order.node[i])) return true;
    return false;
}

static bool needs_run(sn_module *m, const sn_node *n) {
    if (n->op == SN_OP_input || n->op == SN_OP_state || n->op == SN_OP_dim_value) return true;
    if (!sn_static_shape(n)) return true;
    for (int i = 0; i < n->n_attr; i++)
        if (attr_needs_run(m, &n->attr[i])) return true;
    return false;
}

static void classify(hoister *h, const sn_node *n) {
    bool closed = !needs_run(h->m, n);
    bool fixed = n->op == SN_OP_param;
    for (int i = 0; i < n->n_in; i++) {
        closed &= h->closed[n->in[i]->id];
        fixed |= h->fixed[n->in[i]->id];
    }
    h->closed[n->id] = closed;
    h->fixed[n->id] = closed && fixed;
}

/* The kernel below n's views, if it can run at load time; NULL otherwise. */
static sn_node *hoistable(const hoister *h, sn_node *n) {
    while (sn_is_view(n) && n->op != SN_OP_result) n = n->in[0];
    if (n->id >= h->n_id || !h->fixed[n->id] || sn_is_leaf(n)) return NULL;
    return n->n_result == 1 ? n : NULL;
}

static sn_node *prepared(hoister *h, sn_node *n) {
    if (!h->moved[n->id]) {
        const char *name = sn_arena_printf(h->m, "@prepared.%d", h->count++);
        if (!h->prepare) h->prepare = sn_entry_add(h->m, "@prepare");
        sn_entry_output(h->m, h->prepare, name, n);
        h->moved[n->id] = sn_node_new(h->m, SN_OP_param, 0, NULL,
                                      SN_ATTRS(SN_STR(name, name), SN_INT(dtype, n->dtype),
                                               SN_LIST(shape, n->rank, n->shape)));
    }
    return h->moved[n->id];
}

typedef struct walk {
    hoister *h;
    sn_node **made;
} walk;

static sn_node *visit(void *ctx, sn_node *n) {
    walk *w = ctx;
    hoister *h = w->h;
    if (n->id < h->n_id && w->made[n->id]) return w->made[n->id];
    sn_node *r = n, *kernel = hoistable(h, n);
    if (kernel == n) {
        r = prepared(h, n);
    } else if (n->n_in) {
        sn_node **in = sn_arena_alloc(h->m, sizeof *in * n->n_in);
        for (int i = 0; i < n->n_in; i++) in[i] = visit(w, n->in[i]);
        r = sn_node_with(n, in);
    }
    if (n->id < h->n_id) w->made[n->id] = r;
    return r;
}

int sn_pass_hoist(sn_passes *p) {
    if (!p->o.constant_params) return 0;
    sn_module *m = p->m;
    hoister h = {.p = p, .m = m, .n_id = sn_module_node_count(m)};
    h.fixed = sn_arena_alloc(m, h.n_id);
    h.closed = sn_arena_alloc(m, h.n_id);
    h.moved = sn_arena_alloc(m, sizeof *h.moved * h.n_id);
    for (uint32_t id = 0; id < h.n_id; id++) classify(&h, sn_module_node(m, id));
    int n_entry = sn_entry_count(m);
    walk w = {&h, sn_arena_alloc(m, sizeof(sn_node *) * h.n_id)};
    for (int i = 0; i < n_entry; i++) sn_entry_map(sn_entry_at(m, i), visit, &w);
    return h.count;
}
