/* merge.c: merges products that share their left operand: queries, keys and values; gate and up.
 *
 * Requires nothing; runs best after raise. Keeps values. Linear maps of one tensor, whose weights
 * depend on parameters only, become one linear map with the concatenated weights; each original map
 * becomes a slice of the result, a view; in each entry by itself, because an entry should not
 * compute what only others need. The concatenated weights are computed once (hoist.c); if parameters change
 * between calls, nothing is merged. Maps from which blocks are selected (experts) are merged with
 * each other only, or not at all if their blocks are not whole panels. The maps of a feed-forward
 * part, whose activation would not be in an epilogue that has other columns, too, are merged with
 * each other only; with weights "stored", so are maps of each storage. Gates of what the others make
 * are not merged: computed after it, they have the gate in their epilogue. Terminates: one walk of
 * each entry. */
#include "passes/graph_util.h"
#include "passes/match.h"
#include "passes/file_blocks.h"

#include <string.h>

enum {
    MAX_MEMBER = 64,
    /* columns: larger maps gain nothing, and their weights may be shared with a table */
    MAX_WIDTH = 16384
};

/* x w^T + b, however it is spelled; w [out, in] */
typedef struct product {
    sn_node *node, *x, *w, *b;
    int group; /* -1: not merged */
    sn_dim at; /* first column in the group's result */
} product;

/* BY_PANELS: the product's kernel computes the blocks that are selected, with others' beside it.
 * BY_ROWS: a grouped product computes them (grouped.c), alone. */
enum { BY_PANELS = 1, BY_ROWS = 2 };

typedef struct merger {
    const sn_passes *p;
    sn_module *m;
    product *product;
    int n_product, n_group;
    int *product_of;   /* by old id: 1 + index of the product */
    uint8_t *selected; /* by old id: what selects blocks of it */
    sn_node **made;    /* by old id */
} merger;

/* The weight of a dot as [out, in]; NULL: not a linear map of its left operand. */
static sn_node *weight_of(const sn_node *dot) {
    const sn_attr *batch = sn_attr_get(dot, SN_A_batch_a);
    const sn_attr *ca = sn_attr_get(dot, SN_A_contract_a), *cb = sn_attr_get(dot, SN_A_contract_b);
    sn_node *w = dot->in[1];
    if ((batch && batch->n) || !ca || ca->n != 1 || w->rank != 2) return NULL;
    if (ca->v[0] != dot->in[0]->rank - 1) return NULL;
    return cb->v[0] == 1 ? w : sn_b_transpose(w, 2, (const int64_t[]){1, 0});
}

static bool read_product(const merger *g, sn_node *n, product *p) {
    int64_t width, depth;
    *p = (product){.node = n, .group = -1};
    if (n->op != SN_OP_linear && n->op != SN_OP_dot) return false;
    p->x = n->in[0];
    p->w = n->op == SN_OP_dot ? weight_of(n) : n->in[1];
    p->b = n->op == SN_OP_linear && n->n_in > 2 ? n->in[2] : NULL;
    return p->w && sn_match_float(n) && p->x->dtype == n->dtype && p->w->dtype == n->dtype &&
           (!p->b || (p->b->dtype == n->dtype && sn_is_fixed(p->b))) && sn_is_fixed(p->w) &&
           !sn_is_fixed(p->x) && sn_dim_is_const(n->m, p->w->shape[0], &width) &&
           sn_dim_is_const(n->m, p->w->shape[1], &depth) &&
           (width <= MAX_WIDTH || g->selected[n->id]);
}

/* Marks the linear maps below n, from which blocks are selected. */
static void mark_selected(merger *g, const sn_node *n, uint8_t by) {
    if (g->selected[n->id] >= by) return;
    g->selected[n->id] = by;
    for (int i = 0; i < n->n_in && sn_is_inline(n); i++) mark_selected(g, n->in[i], by);
}

/* ---- gates ---- */

typedef struct gate_search {
    const product *p;
    uint32_t *flows, *seen[2]; /* by old id: number of the search that marked the node */
    uint32_t number;
    int visits;
    bool sibling, itself; /* found: another product of the same tensor, through a mixer; p */
} gate_search;

/* Element by element, each once: what a product's epilogue may hold. */
static bool is_light(const sn_node *n) {
    return sn_is_inline(n) || n->op == SN_OP_reshape || n->op == SN_OP_transpose;
}

/* Takes queries, keys and values, or what is like them. */
static bool is_mixer(const sn_node *n) {
    bool product = n->op == SN_OP_dot || n->op == SN_OP_matmul;
    return n->op == SN_OP_attention || n->op == SN_OP_mixed_attention ||
           n->op == SN_OP_recurrence || n->op == SN_OP_scan ||
           (product && !sn_is_fixed(n->in[0]) && !sn_is_fixed(n->in[1]));
}

/* What n depends on, down to the product's left operand. */
static void search_below(gate_search *s, const sn_node *n, bool through) {
    enum { MAX_VISITS = 1000 };
    if (n->id <= s->p->x->id || s->seen[through][n->id] == s->number) return;
    s->seen[through][n->id] = s->number;
    s->itself |= n == s->p->node || ++s->visits > MAX_VISITS;
    bool product = n->op == SN_OP_linear || n->op == SN_OP_dot;
    if (product && n->in[0] == s->p->x) {
        s->sibling |= through;
        return;
    }
    for (int i = 0; i < n->n_in; i++) search_below(s, n->in[i], through || is_mixer(n));
}

/* Whether the product's result meets, element by element, what other products of the same tensor make
 * by attention, a recurrence or the like, which does not need it. */
static bool is_gate(gate_search *s, const sn_order *order, int at, const product *p) {
    uint32_t flow = ++s->number;
    s->p = p;
    s->flows[p->node->id] = flow;
    for (int i = at + 1; i < order->n; i++) {
        const sn_node *n = order->node[i];
        bool flows = false;
        for (int k = 0; k < n->n_in; k++) flows |= s->flows[n->in[k]->id] == flow;
        if (!flows || !is_light(n)) continue;
        s->flows[n->id] = flow;
        for (int k = 0; k < n->n_in; k++) {
            if (s->flows[n->in[k]->id] == flow) continue;
            s->sibling = s->itself = false;
            s->number++, s->visits = 0;
            search_below(s, n->in[k], false);
            if (s->sibling && !s->itself) return true;
        }
    }
    return false;
}

/* Whether all that is made of the product, or of parts of it, is elementwise work whose results other
 * products with fixed weights read: the hidden values of a feed-forward part, or what they are multiplied
 * with. */
static bool is_hidden(gate_search *s, const sn_order *order, int at, const product *p) {
    uint32_t flow = ++s->number;
    bool works = false;
    s->flows[p->node->id] = flow;
    for (int i = at + 1; i < order->n; i++) {
        const sn_node *n = order->node[i];
        bool flows = false;
        for (int k = 0; k < n->n_in; k++) flows |= s->flows[n->in[k]->id] == flow;
        if (!flows) continue;
        bool product = n->op == SN_OP_linear || n->op == SN_OP_dot;
        if (product && sn_is_fixed(n->in[1])) continue;
        if (!sn_is_inline(n) && n->op != SN_OP_slice) return false;
        s->flows[n->id] = flow;
        works |= n->op != SN_OP_slice;
    }
    return works;
}

/* Products of different uses are not merged. */
typedef enum use { PLAIN, SELECTED, HIDDEN, ALONE } use;

static use use_of(const merger *g, gate_search *s, const sn_order *order, int at,
                  const product *p) {
    if (g->selected[p->node->id] == BY_ROWS) return ALONE;
    if (g->selected[p->node->id]) return SELECTED;
    if (is_gate(s, order, at, p)) return ALONE;
    return is_hidden(s, order, at, p) ? HIDDEN : PLAIN;
}

/* Groups products with the same left operand, use and storage, in the order in which they were
 * written. */
static void find_groups(merger *g, const sn_order *order) {
    struct group {
        int count, next; /* next: 1 + another one with the same left operand */
        use use;
        sn_dim width;
        sn_storage form;
    } *group = sn_arena_alloc(g->m, sizeof *group * (size_t)(order->n + 1));
    int *first = /* by id of the left operand: 1 + its first group */
        sn_arena_alloc(g->m, sizeof *first * (size_t)sn_module_node_count(g->m));
    g->product = sn_arena_alloc(g->m, sizeof *g->product * (size_t)(order->n + 1));
    gate_search search = {.number = 0};
    uint32_t **marks[] = {&search.flows, &search.seen[0], &search.seen[1]};
    for (int i = 0; i < 3; i++)
        *marks[i] = sn_arena_alloc(g->m, sizeof **marks[i] * (size_t)sn_module_node_count(g->m));
    for (int i = 0; i < order->n; i++) {
        product p;
        if (!read_product(g, order->node[i], &p)) continue;
        use use = use_of(g, &search, order, i, &p);
        if (use == ALONE) continue;
        sn_storage form = sn_file_storage(g->p, p.w);
        int *at = &first[p.x->id];
        while (*at && !(sn_storage_equal(group[*at - 1].form, form) && group[*at - 1].use == use))
            at = &group[*at - 1].next;
        if (!*at) {
            *at = ++g->n_group;
            group[*at - 1].form = form;
            group[*at - 1].use = use;
        }
        struct group *k = &group[*at - 1];
        if (k->count == MAX_MEMBER) continue;
        k->count++;
        p.group = *at - 1;
        p.at = k->width;
        k->width = sn_dim_add(g->m, k->width, p.w->shape[0]);
        g->product[g->n_product++] = p;
        g->product_of[p.node->id] = g->n_product;
    }
    for (int i = 0; i < g->n_product; i++)
        if (group[g->product[i].group].count < 2) g->product[i].group = -1;
}

/* The members' weights concatenated, [sum of out, in]; if all are stored as [in, out], concatenated
 * in that layout. */
static sn_node *join_weights(const merger *g, int n, const product *const *p) {
    sn_node *w[MAX_MEMBER] = {NULL};
    bool transposed = true;
    const int64_t swap[] = {1, 0};
    for (int i = 0; i < n; i++) transposed &= p[i]->w->op == SN_OP_transpose;
    for (int i = 0; i < n; i++) w[i] = transposed ? p[i]->w->in[0] : p[i]->w;
    sn_node *all = sn_b_concat(g->m, n, w, transposed ? 1 : 0);
    return transposed ? sn_b_transpose(all, 2, swap) : all;
}

/* The concatenated biases, 0 where a member has none; NULL if no member has one. */
static sn_node *join_biases(const merger *g, int n, const product *const *p) {
    sn_node *b[MAX_MEMBER] = {NULL};
    bool any = false;
    for (int i = 0; i < n; i++) {
        any |= p[i]->b != NULL;
        b[i] = p[i]->b ? p[i]->b
                       : sn_b_broadcast(sn_b_const(g->m, (sn_dtype)p[i]->w->dtype, 0), 1,
                                        p[i]->w->shape);
    }
    return any ? sn_b_concat(g->m, n, b, 0) : NULL;
}

/* Member p as a slice of its group's product of x. */
static sn_node *merged(const merger *g, const product *p, sn_node *x) {
    const product *member[MAX_MEMBER] = {NULL};
    int n = 0;
    for (int i = 0; i < g->n_product; i++)
        if (g->product[i].group == p->group) member[n++] = &g->product[i];
    sn_node *in[3] = {x, join_weights(g, n, member), join_biases(g, n, member)};
    sn_node *y = sn_node_new(g->m, SN_OP_linear, in[2] ? 3 : 2, in, SN_NO_ATTRS);
    return sn_b_slice(y, y->rank - 1, p->at, p->w->shape[0]);
}

static int merge_entry(sn_passes *p, sn_entry *e) {
    sn_module *m = p->m;
    int n_root, count = 0;
    sn_node **root = sn_entry_roots(m, e, true, &n_root);
    sn_order live = sn_entry_topo(m, e), order = sn_topo(m, n_root, root);
    uint32_t n_old = sn_module_node_count(m);
    merger g = {.p = p, .m = m};
    g.product_of = sn_arena_alloc(m, sizeof *g.product_of * n_old);
    g.made = sn_arena_alloc(m, sizeof *g.made * n_old);
    g.selected = sn_arena_alloc(m, sizeof *g.selected * n_old);
    for (int i = 0; i < live.n; i++)
        if (live.node[i]->op == SN_OP_take_blocks)
            mark_selected(&g, live.node[i]->in[0],
                          sn_selects_panels(live.node[i]) ? BY_PANELS : BY_ROWS);
    find_groups(&g, &live);
    sn_loc loc = sn_module_loc(m);
    for (int i = 0; i < order.n && !sn_module_error(m)->code; i++) {
        sn_node *old = order.node[i];
        const product *k = g.product_of[old->id] ? &g.product[g.product_of[old->id] - 1] : NULL;
        sn_module_set_loc(m, old->loc);
        if (k && k->group >= 0) {
            g.made[old->id] = merged(&g, k, g.made[k->x->id]);
            count++;
            continue;
        }
        g.made[old->id] = sn_node_from(old, g.made);
    }
    sn_module_set_loc(m, loc);
    if (sn_module_error(m)->code || !count) return count;
    sn_entry_become(e, true, g.made);
    sn_lineage_add_map(m, g.made, n_old);
    return count;
}

int sn_pass_merge(sn_passes *p) {
    int count = 0;
    for (int e = 0; e < sn_entry_count(p->m) && p->o.constant_params; e++)
        count += merge_entry(p, sn_entry_at(p->m, e));
    return count;
}
