/* rewrite.c: the basis of all passes: rebuilds a graph bottom-up with a rule; inlines and extracts
 * regions. */
#include "ir/module_impl.h"

#include <string.h>

/* Maps old nodes to new ones, indexed by the old id. */
typedef struct mapping {
    sn_node **to;
    uint32_t n;
} mapping;

static mapping map_new(sn_module *m) {
    uint32_t n = sn_module_node_count(m);
    return (mapping){sn_arena_alloc(m, sizeof(sn_node *) * n), n};
}

static sn_node *map_get(const mapping *map, sn_node *n) {
    return n->id < map->n && map->to[n->id] ? map->to[n->id] : n;
}

static sn_node *rebuild(const mapping *map, sn_node *n) {
    if (!n->n_in) return n;
    sn_node **in = sn_arena_alloc(n->m, sizeof *in * n->n_in);
    for (int i = 0; i < n->n_in; i++) in[i] = map_get(map, n->in[i]);
    return sn_node_with(n, in);
}

const sn_entry *sn_entries_find(const sn_entries *saved, const char *name) {
    for (int i = 0; i < saved->n; i++)
        if (!strcmp(saved->entry[i]->name, name)) return saved->entry[i];
    return NULL;
}

void sn_lineage_keep(sn_module *m, bool keep) {
    m->keep_lineage = keep;
}

void sn_lineage_add(const sn_node *from, const sn_node *to) {
    sn_module *m = from->m;
    if (!m->keep_lineage || from == to) return;
    m->lineage = sn_arena_grow(m, m->lineage, sizeof *m->lineage, m->n_lineage, &m->cap_lineage);
    m->lineage[m->n_lineage++] = (sn_lineage){from->id, to->id};
}

void sn_lineage_add_map(sn_module *m, sn_node *const *to, uint32_t n) {
    for (uint32_t id = 0; m->keep_lineage && id < n; id++)
        if (to[id]) sn_lineage_add(sn_module_node(m, id), to[id]);
}

int sn_lineage_list(const sn_module *m, const sn_lineage **list) {
    *list = m->lineage;
    return m->n_lineage;
}

/* For the nodes that exist now. */
static sn_node_map *open_map(sn_module *m) {
    uint32_t n = sn_module_node_count(m);
    sn_node_map *map = m->maps;
    if (map) m->maps = map->next;
    if (!map || map->cap < n) {
        map = sn_arena_alloc(m, sizeof *map);
        map->cap = 2 * n;
        map->to = sn_arena_alloc(m, sizeof(sn_node *) * map->cap);
    }
    return map;
}

static void close_map(sn_module *m, sn_node_map *map) {
    for (int i = 0; i < map->n_set; i++) map->to[map->set[i]] = NULL;
    map->n_set = 0;
    map->next = m->maps;
    m->maps = map;
}

static void put(sn_node_map *map, const sn_node *from, sn_node *to) {
    map->set = sn_arena_grow(to->m, map->set, sizeof *map->set, map->n_set, &map->cap_set);
    map->set[map->n_set++] = from->id;
    map->to[from->id] = to;
}

static mapping view(const sn_node_map *map) {
    return (mapping){map->to, map->cap};
}

uint8_t *sn_marks_open(sn_module *m) {
    sn_marks *marks = m->marks;
    if (marks) m->marks = marks->next;
    if (!marks || marks->cap < m->n_node) {
        size_t cap = 2 * (size_t)m->n_node;
        marks = sn_arena_alloc(m, sizeof *marks + cap);
        marks->cap = cap;
    }
    marks->n = m->n_node;
    return marks->of;
}

void sn_marks_close(sn_module *m, uint8_t *of) {
    sn_marks *marks = (sn_marks *)(void *)(of - offsetof(sn_marks, of));
    memset(of, 0, marks->n);
    marks->next = m->marks;
    m->marks = marks;
}

int sn_rewrite(sn_module *m, int n_root, sn_node **root, sn_rule rule, void *ctx) {
    sn_order order = sn_topo(m, n_root, root);
    sn_node_map *map = open_map(m);
    mapping of = view(map);
    int count = 0;
    for (int i = 0; i < order.n && !m->error.code; i++) {
        sn_node *old = order.node[i], *n = rebuild(&of, old);
        sn_loc loc = m->loc;
        m->loc = old->loc;
        sn_node *r = rule(ctx, n);
        m->loc = loc;
        count += r != n;
        put(map, old, r);
        sn_lineage_add(old, r);
    }
    for (int i = 0; i < n_root; i++) root[i] = map_get(&of, root[i]);
    close_map(m, map);
    return count;
}

/* Collects (with `store`: writes back) every root of an entry. */
static int entry_roots(sn_entry *entry, sn_node **root, bool store) {
    sn_binding *lists[] = {entry->output, entry->assign, entry->tap};
    int sizes[] = {entry->n_output, entry->n_assign, entry->n_tap}, n = 0;
    for (int l = 0; l < 3; l++)
        for (int i = 0; i < sizes[l]; i++, n++) {
            if (store)
                lists[l][i].node = root[n];
            else if (root)
                root[n] = lists[l][i].node;
        }
    return n;
}

/* The same for the module. */
static int each_root(sn_module *m, sn_node **root, bool store) {
    int n = 0;
    for (int e = 0; e < m->n_entry; e++)
        n += entry_roots(m->entry[e], root ? root + n : NULL, store);
    return n;
}

int sn_rewrite_module(sn_module *m, sn_rule rule, void *ctx) {
    int n = each_root(m, NULL, false), n_replaced = 2 * m->n_replaced;
    sn_node **root = sn_arena_alloc(m, sizeof *root * (size_t)(n + n_replaced + 1));
    each_root(m, root, false);
    if (n_replaced) memcpy(root + n, m->replaced, sizeof *root * (size_t)n_replaced);
    int count = sn_rewrite(m, n + n_replaced, root, rule, ctx);
    each_root(m, root, true);
    if (n_replaced) memcpy(m->replaced, root + n, sizeof *root * (size_t)n_replaced);
    return count;
}

void sn_replace(sn_node *from, sn_node *to) {
    sn_module *m = from->m;
    if (from == to) return;
    if ((m->n_replaced & (m->n_replaced - 1)) == 0) { /* full at every power of two */
        size_t room = m->n_replaced ? 4 * (size_t)m->n_replaced : 2;
        sn_node **grown = sn_arena_alloc(m, sizeof *grown * room);
        if (m->n_replaced) memcpy(grown, m->replaced, sizeof *grown * 2 * (size_t)m->n_replaced);
        m->replaced = grown;
    }
    m->replaced[2 * m->n_replaced] = from;
    m->replaced[2 * m->n_replaced++ + 1] = to;
}

/* Whether the entry computes a replacement already, as an entry with a gradient does. */
static bool has_replaced(const mapping *is_new, sn_order order) {
    for (int i = 0; i < order.n; i++)
        if (is_new->to[order.node[i]->id]) return true;
    return false;
}

/* What becomes of nodes: replacements, which are rebuilt from replacements themselves. */
typedef struct replacing {
    mapping map, by; /* the result; the recorded replacement */
    bool *open;      /* on the stack */
    sn_node **stack;
    int top, cap;
} replacing;

static void push(replacing *r, sn_node *n) {
    r->stack = sn_arena_grow(n->m, r->stack, sizeof *r->stack, r->top, &r->cap);
    r->stack[r->top++] = n;
    r->open[n->id] = true;
}

static bool is_missing(const replacing *r, const sn_node *n) {
    return n->id < r->map.n && !r->map.to[n->id] && !r->open[n->id];
}

/* What must be known before n; NULL: nothing. A node that is part of its own replacement stays there. */
static sn_node *next_missing(const replacing *r, const sn_node *n) {
    sn_node *by = r->by.to[n->id];
    if (by && is_missing(r, by)) return by;
    for (int i = 0; i < n->n_in && !by; i++)
        if (is_missing(r, n->in[i])) return n->in[i];
    return NULL;
}

static void replace_below(replacing *r, sn_node *root) {
    if (is_missing(r, root)) push(r, root);
    while (r->top) {
        sn_node *n = r->stack[r->top - 1], *missing = next_missing(r, n), *by = r->by.to[n->id];
        if (missing) {
            push(r, missing);
            continue;
        }
        r->map.to[n->id] = by ? map_get(&r->map, by) : rebuild(&r->map, n);
        r->open[n->id] = false;
        r->top--;
    }
}

int sn_replace_module(sn_module *m) {
    int count = 0;
    if (!m->n_replaced) return 0;
    replacing r = {.map = map_new(m), .by = map_new(m)};
    mapping is_new = map_new(m);
    r.open = sn_arena_alloc(m, r.map.n); /* zero */
    for (int i = m->n_replaced - 1; i >= 0; i--) {
        sn_node *to = m->replaced[2 * i + 1];
        r.by.to[m->replaced[2 * i]->id] = to;
        if (to->op == SN_OP_result) to = to->in[0]; /* the gradient may read another one */
        is_new.to[to->id] = to;
    }
    for (int e = 0; e < m->n_entry; e++) {
        int n = entry_roots(m->entry[e], NULL, false);
        sn_node **root = sn_arena_alloc(m, sizeof *root * (size_t)(n + 1));
        entry_roots(m->entry[e], root, false);
        sn_order order = sn_topo(m, n, root);
        if (!has_replaced(&is_new, order)) continue;
        for (int i = 0; i < order.n && !m->error.code; i++) {
            replace_below(&r, order.node[i]);
            count += map_get(&r.map, order.node[i]) != order.node[i];
        }
        for (int i = 0; i < n; i++) root[i] = map_get(&r.map, root[i]);
        entry_roots(m->entry[e], root, true);
    }
    sn_lineage_add_map(m, r.map.to, r.map.n);
    m->n_replaced = 0;
    return count;
}

/* ---- regions ---- */

void sn_region_inline(const sn_region *r, sn_node *const *arg, sn_node **results) {
    sn_module *m = r->out[0]->m;
    sn_order order = sn_region_topo(m, r);
    sn_node_map *map = open_map(m);
    mapping of = view(map);
    for (int i = 0; i < r->n_arg; i++) put(map, r->arg[i], arg[i]);
    for (int i = 0; i < order.n; i++)
        if (!map->to[order.node[i]->id]) put(map, order.node[i], rebuild(&of, order.node[i]));
    for (int i = 0; i < r->n_out; i++) results[i] = map_get(&of, r->out[i]);
    close_map(m, map);
}

void sn_region_map(const sn_region *r, sn_node *const *arg, int rank, const sn_dim *shape,
                   sn_node **results) {
    sn_module *m = r->out[0]->m;
    sn_order order = sn_region_topo(m, r);
    sn_node_map *map = open_map(m);
    mapping of = view(map);
    for (int i = 0; i < r->n_arg; i++)
        put(map, r->arg[i], r->arg[i]->rank ? arg[i] : sn_b_broadcast(arg[i], rank, shape));
    for (int i = 0; i < order.n; i++) {
        sn_node *n = order.node[i];
        if (map->to[n->id]) continue;
        sn_node *made = rebuild(&of, n);
        if (!n->n_in && !n->rank) made = sn_b_broadcast(n, rank, shape); /* const, dim_value */
        put(map, n, made);
    }
    for (int i = 0; i < r->n_out; i++) results[i] = map_get(&of, r->out[i]);
    close_map(m, map);
}

sn_region *sn_region_extract(sn_module *m, int n_cut, sn_node *const *cut, int n_out,
                             sn_node *const *out) {
    /* Walks from the outputs, but not beyond the cut: nodes above it may not be part of the
     * region. */
    sn_node_map *map = open_map(m);
    mapping of = view(map);
    sn_node **arg = sn_arena_alloc(m, sizeof *arg * (size_t)(n_cut + 1)), **stack = NULL;
    for (int i = 0; i < n_cut; i++) {
        arg[i] = sn_arg(m, i, (sn_dtype)cut[i]->dtype, cut[i]->rank, cut[i]->shape);
        put(map, cut[i], arg[i]);
    }
    int top = 0, cap = 0;
    for (int i = n_out; i-- > 0;) {
        stack = sn_arena_grow(m, stack, sizeof *stack, top, &cap);
        stack[top++] = out[i];
    }
    while (top) {
        sn_node *n = stack[top - 1], *missing = NULL;
        if (map->to[n->id]) {
            top--;
            continue;
        }
        for (int i = 0; i < n->n_in && !missing; i++)
            if (!map->to[n->in[i]->id]) missing = n->in[i];
        if (missing) {
            stack = sn_arena_grow(m, stack, sizeof *stack, top, &cap);
            stack[top++] = missing;
        } else {
            put(map, n, rebuild(&of, n));
            top--;
        }
    }
    sn_node **results = sn_arena_alloc(m, sizeof *results * (size_t)n_out);
    for (int i = 0; i < n_out; i++) results[i] = map_get(&of, out[i]);
    close_map(m, map);
    return sn_region_new(m, n_cut, arg, n_out, results);
}
