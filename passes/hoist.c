/* hoist.c: computes what depends on parameters only once, when a session opens.
 *
 * Requires fused nodes. Each such kernel moves to an entry "@prepare.K" and its result is read as a
 * parameter "@prepared.N". Kernels that need the same intermediate results share an entry; all
 * others get separate entries, so that weights can be prepared one at a time and their temporaries
 * freed in between. Keeps values as long as parameters do not change between calls
 * (p->o.constant_params). Terminates: two loops. */
#include "passes/graph_util.h"
#include "passes/passes.h"

#include <string.h>

typedef struct hoister {
    sn_passes *p;
    sn_module *m;
    uint8_t *fixed;  /* by old id: depends on parameters and constants only, and on at least one
                        parameter */
    uint8_t *closed; /* by old id: does not depend on inputs, states or run-time dimensions */
    sn_node **moved; /* by old id: the parameter that replaces it */
    uint32_t n_id;
    sn_node **kernel;  /* [count] moved kernels, in order */
    const char **name; /* [count] names of the parameters that replace them */
    int count;
} hoister;

static bool needs_run(sn_module *m, const sn_node *n);

/* A slice whose start depends on P, or a region that contains a run-time dimension. */
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
    if (!sn_static_shape(n) || (sn_ops[n->op].flags & SN_OPF_COLLECTIVE)) return true;
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

/* The kernel below n's views, if it can run when weights are loaded; NULL otherwise. */
static sn_node *hoistable(const hoister *h, sn_node *n) {
    while (sn_is_view(n) && n->op != SN_OP_result) n = n->in[0];
    if (n->id >= h->n_id || !h->fixed[n->id] || sn_is_leaf(n)) return NULL;
    return n->n_result == 1 ? n : NULL;
}

static sn_node *prepared(hoister *h, sn_node *n) {
    if (!h->moved[n->id]) {
        const char *name = sn_arena_printf(h->m, SN_PREPARED "%d", h->count);
        h->kernel[h->count] = n;
        h->name[h->count++] = name;
        h->moved[n->id] = sn_node_new(h->m, SN_OP_param, 0, NULL,
                                      SN_ATTRS(SN_STR(name, name), SN_INT(dtype, n->dtype),
                                               SN_LIST(shape, n->rank, n->shape)));
    }
    return h->moved[n->id];
}

/* Decides which nodes stay in the entries, and what each becomes. Operands have lower ids than
 * their users, so two loops over ids replace a recursion, which deep graphs could overflow. */
typedef struct walk {
    hoister *h;
    bool *kept;     /* by old id */
    sn_node **made; /* by old id */
} walk;

static sn_node *keep(void *ctx, sn_node *n) {
    walk *w = ctx;
    w->kept[n->id] = true;
    return n;
}

/* From users to operands: a kernel that moves gives no reason to keep what lies below it. */
static void keep_operands(walk *w) {
    for (uint32_t id = w->h->n_id; id-- > 0;) {
        sn_node *n = sn_module_node(w->h->m, id);
        if (!w->kept[id] || hoistable(w->h, n) == n) continue;
        for (int i = 0; i < n->n_in; i++) w->kept[n->in[i]->id] = true;
    }
}

static void rebuild(walk *w) {
    for (uint32_t id = 0; id < w->h->n_id; id++) {
        sn_node *n = sn_module_node(w->h->m, id);
        if (!w->kept[id]) continue;
        bool ahead = hoistable(w->h, n) == n;
        w->made[id] = ahead ? prepared(w->h, n) : sn_node_from(n, w->made);
    }
}

/* ---- entries ---- */

static int find(int *parent, int i) {
    while (parent[i] != i) i = parent[i] = parent[parent[i]];
    return i;
}

/* what the kernels need; each node belongs to the first kernel that needs it */
typedef struct reach {
    int *owner;  /* by id: 1 + that kernel */
    int *parent; /* [count] union-find: leads to the first kernel of the group */
    sn_node **open;
    int n_open;
} reach;

static void need(reach *r, sn_node *n, int by) {
    if (r->owner[n->id]) {
        int a = find(r->parent, r->owner[n->id] - 1), b = find(r->parent, by);
        r->parent[a > b ? a : b] = a > b ? b : a;
        return;
    }
    r->owner[n->id] = by + 1;
    r->open[r->n_open++] = n;
}

/* Unites kernels that need a common result. */
static void group_kernels(const hoister *h, reach *r) {
    for (int i = 0; i < h->count; i++) {
        r->parent[i] = i;
        need(r, h->kernel[i], i);
        while (r->n_open) {
            const sn_node *n = r->open[--r->n_open];
            for (int k = 0; k < n->n_in; k++) {
                sn_node *x = sn_below_views(n->in[k]);
                if (!sn_is_leaf(x)) need(r, x, i);
            }
        }
    }
}

static void add_entries(hoister *h) {
    int n = 0;
    sn_entry **entry = sn_arena_alloc(h->m, sizeof *entry * (size_t)(h->count + 1));
    reach r = {.owner = sn_arena_alloc(h->m, sizeof *r.owner * h->n_id),
               .parent = sn_arena_alloc(h->m, sizeof *r.parent * (size_t)(h->count + 1)),
               .open = sn_arena_alloc(h->m, sizeof(sn_node *) * h->n_id)};
    group_kernels(h, &r);
    for (int i = 0; i < h->count; i++) {
        int first = find(r.parent, i);
        if (!entry[first])
            entry[first] = sn_entry_add(h->m, sn_arena_printf(h->m, SN_PREPARE ".%d", n++));
        sn_entry_output(h->m, entry[first], h->name[i], h->kernel[i]);
    }
}

int sn_pass_hoist(sn_passes *p) {
    if (!p->o.constant_params) return 0;
    sn_module *m = p->m;
    hoister h = {.p = p, .m = m, .n_id = sn_module_node_count(m)};
    h.fixed = sn_arena_alloc(m, h.n_id);
    h.closed = sn_arena_alloc(m, h.n_id);
    h.moved = sn_arena_alloc(m, sizeof *h.moved * h.n_id);
    for (uint32_t id = 0; id < h.n_id; id++) classify(&h, sn_module_node(m, id));
    h.kernel = sn_arena_alloc(m, sizeof *h.kernel * h.n_id);
    h.name = sn_arena_alloc(m, sizeof *h.name * h.n_id);
    int n_entry = sn_entry_count(m);
    walk w = {&h, sn_arena_alloc(m, h.n_id * sizeof(bool)),
              sn_arena_alloc(m, sizeof(sn_node *) * h.n_id)};
    for (int i = 0; i < n_entry; i++) sn_entry_map(sn_entry_at(m, i), keep, &w);
    keep_operands(&w);
    rebuild(&w);
    for (int i = 0; i < n_entry; i++) sn_entry_become(sn_entry_at(m, i), false, w.made);
    sn_lineage_add_map(m, w.made, h.n_id);
    add_entries(&h);
    return h.count;
}
