/* order.c: see order.h. Products, and kernels whose results are much smaller than their operands,
 * are ordered by depth: gradients of weights and their sums follow the gradient they depend on,
 * layer by layer during the backward part, which frees their operands; then updates, as early as
 * their readers allow. An exchange between neighbours (collective_permute) starts as soon as the
 * products that it waits for are done. */
#include "passes/plan/order.h"
#include "passes/graph_util.h"
#include "passes/kernels/costs.h"
#include "passes/kernels/table.h"
#include "passes/plan/in_place.h"

#include <stdlib.h>
#include <string.h>

static bool is_state(const sn_node *n, const char *name) {
    return n->op == SN_OP_state && !strcmp(sn_attr_str(n, SN_A_name, ""), name);
}

/* ---- order ---- */

typedef struct list {
    sn_node **node;
    int n, cap;
} list;

static void append(sn_module *m, list *l, sn_node *n) {
    l->node = sn_arena_grow(m, l->node, sizeof *l->node, l->n, &l->cap);
    l->node[l->n++] = n;
}

enum { NEW, OPEN, DONE };

typedef struct walk {
    sn_module *m;
    list *after; /* by id: nodes that must run before this one although they are not operands */
    uint8_t *state;
    uint32_t *seen, stamp; /* by id: visited in the current query */
    sn_node **waiting;     /* buffer for a query's nodes */
    list done;
} walk;

/* Whether x depends on a node that has been started, which then cannot wait for x. */
static bool needs_open(walk *w, sn_node *x) {
    int n = 0;
    w->stamp++;
    w->waiting[n++] = x;
    while (n) {
        const sn_node *y = w->waiting[--n];
        if (w->state[y->id] == OPEN) return true;
        for (int i = 0; i < y->n_in; i++) {
            sn_node *z = y->in[i];
            if (w->state[z->id] == DONE || w->seen[z->id] == w->stamp) continue;
            w->seen[z->id] = w->stamp;
            w->waiting[n++] = z;
        }
    }
    return false;
}

/* A node on the current path. Explicit, because graphs are deeper than the stack. */
typedef struct frame {
    sn_node *n;
    int next;
} frame;

static void visit(walk *w, sn_node *root, frame *stack) {
    int depth = 0;
    if (w->state[root->id] != NEW) return;
    w->state[root->id] = OPEN;
    stack[depth++] = (frame){root, 0};
    while (depth) {
        frame *f = &stack[depth - 1];
        const list *after = &w->after[f->n->id];
        if (f->next == f->n->n_in + after->n) {
            w->state[f->n->id] = DONE;
            append(w->m, &w->done, f->n);
            depth--;
            continue;
        }
        int i = f->next++;
        sn_node *x = i < f->n->n_in ? f->n->in[i] : after->node[i - f->n->n_in];
        if (w->state[x->id] != NEW || (i >= f->n->n_in && needs_open(w, x))) continue;
        w->state[x->id] = OPEN;
        stack[depth++] = (frame){x, 0};
    }
}

static int64_t max_elements(const sn_node *n) {
    int64_t sum = 0;
    for (int i = 0; i < n->n_result; i++) {
        const sn_node *t = n->n_result > 1 ? n->result_type[i] : n;
        int64_t count = sn_dim_hi(n->m, sn_dim_product(n->m, t->rank, t->shape));
        sum = count > INT64_MAX - sum ? INT64_MAX : sum + count;
    }
    return sum;
}

/* An operation over ranks that takes time: not own_part, for which nothing is sent. */
static bool is_collective(const sn_node *n) {
    return (sn_ops[n->op].flags & SN_OPF_COLLECTIVE) && n->op != SN_OP_own_part;
}

/* A product, or what contains some. */
static bool is_product(const sn_node *n) {
    return sn_kernel_of(n)->contraction || n->op == SN_OP_row_blocked || n->op == SN_OP_scan;
}

/* Whether n is a product or a collective, which takes time that others can use, or its result is so
 * much smaller than an operand that it should run early. */
static bool comes_by_depth(const sn_node *n) {
    if (is_product(n) || is_collective(n)) return true;
    int64_t largest = 0;
    for (int i = 0; n->op == SN_OP_map_reduce && i < n->n_in; i++) {
        int64_t count = max_elements(n->in[i]);
        if (count > largest) largest = count;
    }
    return max_elements(n) <= largest / SN_SMALL_FRACTION;
}

/* ---- what comes last ---- */

enum { AXES = 8 /* of a mesh, at most, that are told apart */ };

/* The mesh axis of a collective as a bit. axis: [AXES] those found so far. */
static uint8_t bit_of_axis(const sn_node *n, const char **axis) {
    const char *name = sn_attr_str(n, SN_A_mesh, "");
    int i = 0;
    while (i < AXES - 1 && axis[i] && strcmp(axis[i], name)) i++;
    axis[i] = name;
    return (uint8_t)(1 << i);
}

/* By id: the axes of collectives that a node waits for with no product in between. A parameter that
 * is gathered does not count: that can be done long before. */
static const uint8_t *find_waits(sn_module *m, sn_order order) {
    uint8_t *waits = sn_arena_alloc(m, sn_module_node_count(m));
    const char *axis[AXES] = {NULL};
    for (int i = 0; i < order.n; i++) {
        const sn_node *n = order.node[i];
        for (int k = 0; k < n->n_in && !is_product(n); k++) {
            const sn_node *x = n->in[k];
            waits[n->id] |= waits[x->id];
            if (is_collective(x) && sn_below_views(x->in[0])->n_in)
                waits[n->id] |= bit_of_axis(x, axis);
        }
        if (is_collective(n) && !(waits[n->id] & bit_of_axis(n, axis))) waits[n->id] = 0;
    }
    return waits;
}

/* By id: nodes that wait for a collective and lead to no product and to no collective over another
 * axis, such as a norm of gradients, sums of its parts, and updates. They come last, so that
 * collectives have time. */
static const uint8_t *find_last(sn_module *m, sn_order order) {
    uint8_t *last = sn_arena_alloc(m, sn_module_node_count(m));
    uint8_t *leads = sn_arena_alloc(m, sn_module_node_count(m));
    const uint8_t *waits = find_waits(m, order);
    for (int i = order.n - 1; i >= 0; i--) {
        const sn_node *n = order.node[i];
        bool goal = is_product(n) || (is_collective(n) && !waits[n->id]) || leads[n->id];
        for (int k = 0; k < n->n_in; k++) leads[n->in[k]->id] |= goal;
        last[n->id] = waits[n->id] && !goal;
    }
    return last;
}

/* Whether x needs no product or other collective that has not been placed yet. */
static bool is_ready(walk *w, sn_node *x) {
    int n = 0;
    w->stamp++;
    w->waiting[n++] = x;
    while (n) {
        const sn_node *y = w->waiting[--n];
        if (y != x && (comes_by_depth(y) || w->state[y->id] == OPEN)) return false;
        for (int i = 0; i < y->n_in; i++) {
            sn_node *z = y->in[i];
            if (w->state[z->id] == DONE || w->seen[z->id] == w->stamp) continue;
            w->seen[z->id] = w->stamp;
            w->waiting[n++] = z;
        }
    }
    return true;
}

/* Starts the exchanges that are ready. list: [n] by depth; before *first all have been started. */
static void visit_exchanges(walk *w, sn_node *const *list, int n, int *first, frame *stack) {
    enum { AHEAD = 16 };
    while (*first < n && w->state[list[*first]->id] == DONE) ++*first;
    for (int i = *first; i < n && i < *first + AHEAD; i++)
        if (w->state[list[i]->id] == NEW && is_ready(w, list[i])) visit(w, list[i], stack);
}

/* What the entry assigns: first what is gathered from the ranks, in the order of the assignments, which
 * is the one in which the next run needs it; then the rest by depth. */
static sn_node *const *order_assigned(sn_module *m, const sn_entry *e) {
    sn_node **list = sn_arena_alloc(m, sizeof *list * (size_t)(e->n_assign + 1));
    int n = 0, gathers = 0;
    for (int rest = 0; rest < 2; rest++) {
        for (int a = 0; a < e->n_assign; a++)
            if ((sn_below_views(e->assign[a].node)->op != SN_OP_all_gather) == rest)
                list[n++] = e->assign[a].node;
        if (!rest) gathers = n;
    }
    qsort(list + gathers, (size_t)(n - gathers), sizeof *list, sn_by_depth);
    return list;
}

sn_order sn_plan_order(sn_module *m, const sn_entry *e) {
    sn_order order = sn_entry_topo(m, e);
    bool exchanges = false;
    for (int i = 0; i < order.n; i++) exchanges |= order.node[i]->op == SN_OP_collective_permute;
    if ((!e->n_assign && !exchanges) || sn_module_error(m)->code) return order;
    size_t n = sn_module_node_count(m);
    walk w = {.m = m};
    w.after = sn_arena_alloc(m, sizeof *w.after * n);
    w.state = sn_arena_alloc(m, n);
    w.seen = sn_arena_alloc(m, sizeof *w.seen * n);
    w.waiting = sn_arena_alloc(m, sizeof *w.waiting * (size_t)(order.n + 1));
    /* by state: its writer waits for its readers */
    sn_node **leaf = sn_arena_alloc(m, sizeof *leaf * (size_t)(e->n_assign + 1));
    for (int i = 0; i < order.n; i++)
        for (int a = 0; order.node[i]->op == SN_OP_state && a < e->n_assign; a++)
            if (is_state(order.node[i], e->assign[a].name)) leaf[a] = order.node[i];
    sn_node **writer = sn_arena_alloc(m, sizeof *writer * n); /* by id of the state's leaf */
    for (int a = 0; a < e->n_assign; a++)
        if (leaf[a] && sn_below_views(e->assign[a].node)->n_in)
            writer[leaf[a]->id] = sn_below_views(e->assign[a].node);
    for (int i = 0; i < order.n; i++) {
        sn_node *r = order.node[i];
        for (int j = 0; j < r->n_in && !sn_is_view(r); j++) {
            sn_node *s = sn_below_views(r->in[j]), *k = writer[s->id];
            if (k && k != r) append(m, &w.after[k->id], r);
        }
    }
    frame *stack = sn_arena_alloc(m, sizeof *stack * (size_t)(order.n + 1));
    sn_node **early = sn_arena_alloc(m, sizeof *early * (size_t)(order.n + 1));
    sn_node **exchange = sn_arena_alloc(m, sizeof *exchange * (size_t)(order.n + 1));
    int n_early = 0, n_exchange = 0, first = 0;
    const uint8_t *last = find_last(m, order);
    for (int i = 0; i < order.n; i++)
        if (comes_by_depth(order.node[i]) && !last[order.node[i]->id])
            early[n_early++] = order.node[i];
    qsort(early, (size_t)n_early, sizeof *early, sn_by_depth);
    for (int i = 0; i < n_early; i++)
        if (early[i]->op == SN_OP_collective_permute) exchange[n_exchange++] = early[i];
    for (int i = 0; i < n_early; i++) {
        visit_exchanges(&w, exchange, n_exchange, &first, stack);
        visit(&w, early[i], stack);
    }
    sn_node *const *root = order_assigned(m, e);
    /* with collectives, updates in the order in which these were started: the first are complete */
    bool waits = false;
    for (int i = 0; i < order.n; i++) waits |= is_collective(order.node[i]);
    for (int a = 0; waits && a < e->n_assign; a++) visit(&w, root[a], stack);
    for (int i = 0; i < e->n_output; i++) visit(&w, e->output[i].node, stack);
    for (int a = 0; a < e->n_assign; a++) visit(&w, root[a], stack);
    return (sn_order){w.done.node, w.done.n};
}

/* ---- states written in place ---- */

/* Whether x is y with its axes in this order; NULL: as they are. */
static bool is_moved(const sn_node *x, const sn_node *y, const int64_t *order) {
    if (!order) return x == y;
    if (x->op != SN_OP_transpose || x->in[0] != y) return false;
    return !memcmp(sn_attr_get(x, SN_A_perm)->v, order, sizeof *order * (size_t)x->rank);
}

/* Whether the kernel reads operand i, a state, before it writes result o there: element by element, each
 * at the index that it writes; or its row of the table says so. order: in which the state has the result's axes, and
 * the operand those of the state; NULL: in the same. */
static bool reads_in_place(const sn_node *n, int i, int o, const int64_t *order) {
    const sn_kernel_traits *kernel = sn_kernel_of(n);
    const sn_region *r = kernel->region == SN_NO_REGION ? NULL : sn_attr_region(n, kernel->region);
    int arg = sn_kernel_region_arg(n, i);
    int64_t back[SN_MAX_RANK];
    for (int a = 0; order && a < n->in[i]->rank; a++) back[order[a]] = a;
    const sn_node *state = sn_below_views(n->in[i]);
    if (!is_moved(n->in[i], state, order ? back : NULL) ||
        !sn_shapes_equal(n->in[i], n->n_result > 1 ? n->result_type[o] : n))
        return false;
    if (o && kernel->in_place.result == o) return kernel->in_place.operand == i;
    if (kernel->carries_in_place || n->op == SN_OP_scan) {
        sn_scan s = sn_scan_of(n);
        return i == o && o < s.n_carry - s.n_again;
    }
    return r && arg >= 0 && sn_reads_before(r, arg, o);
}

static bool reads_elsewhere(const sn_node *n, const char *state, int o, const int64_t *order) {
    for (int i = 0; i < n->n_in; i++)
        if (is_state(sn_below_views(n->in[i]), state) && !reads_in_place(n, i, o, order))
            return true;
    return false;
}

/* The assignment that uses result i of n directly, or with its axes in another order, which kernels that say
 * themselves what they overwrite can write; NULL: none. */
static const sn_binding *consumer(const sn_entry *e, const sn_node *n, int i,
                                  const int64_t **axes) {
    for (int a = 0; a < e->n_assign; a++) {
        const sn_node *v = e->assign[a].node;
        const bool moved = v->op == SN_OP_transpose && i && sn_kernel_of(n)->in_place.result == i;
        *axes = moved ? sn_attr_get(v, SN_A_perm)->v : NULL;
        if (moved) v = v->in[0];
        bool it = n->n_result == 1 ? v == n
                                   : v->op == SN_OP_result && v->in[0] == n &&
                                         sn_attr_int(v, SN_A_index, 0) == i;
        if (it) return &e->assign[a];
    }
    return NULL;
}

const char *sn_inplace_target(const sn_entry *e, sn_order order, int at, int i,
                              const int64_t **axes) {
    sn_node *n = order.node[at];
    const sn_binding *a = consumer(e, n, i, axes);
    if (!a || reads_elsewhere(n, a->name, i, *axes)) return NULL;
    for (int k = at + 1; k < order.n; k++) {
        if (sn_is_view(order.node[k])) continue;
        for (int j = 0; j < order.node[k]->n_in; j++)
            if (is_state(sn_below_views(order.node[k]->in[j]), a->name)) return NULL;
    }
    for (int o = 0; o < e->n_output; o++)
        if (is_state(sn_below_views(e->output[o].node), a->name)) return NULL;
    for (int o = 0; o < e->n_assign; o++)
        if (is_state(sn_below_views(e->assign[o].node), a->name)) return NULL;
    return a->name;
}
