/* row_sums.c: splits r = reduce(x [.., N]) of a product's result x into p = reduce over panels of
 * columns [.., N / P, 1], which the product's epilogue computes while x is in registers, and r =
 * reduce(p). See row_sums.h.
 *
 * Panels are the same for any number of threads and any tile, so results are, too. The split is
 * tried, and undone where grouping shows that the first stage could not join the product. */
#include "passes/row_sums.h"
#include "passes/graph_util.h"

#include <string.h>

enum { ROUNDS = 4 }; /* maximum number of undo rounds; each leaves fewer */

typedef struct splitter {
    sn_passes *p;
    sn_grouping *base;
    uint8_t *along;     /* by id: broadcast along rows again */
    uint8_t *split;     /* by id of a reduction: to be split */
    sn_node **made;     /* by id */
    sn_node **partial;  /* by id of a reduction: its first stage */
    sn_binding *before; /* outputs, then assignments */
} splitter;

/* ---- the cost model ---- */

static bool is_wide(const sn_node *n) {
    return n->rank && n->shape[n->rank - 1] != 1;
}

/* The node whose elements are broadcast along rows. */
static void find_along(splitter *s) {
    const sn_order *order = &s->base->order;
    for (int k = order->n; k-- > 0;) {
        const sn_node *n = order->node[k];
        bool spread = n->op == SN_OP_broadcast && is_wide(n);
        if (!spread && !(s->along[n->id] && (sn_is_elementwise(n) || n->op == SN_OP_broadcast)))
            continue;
        for (int i = 0; i < n->n_in; i++)
            if (!is_wide(n->in[i])) s->along[n->in[i]->id] = 1;
    }
}

/* Whether x, which only reductions read, would be computed inside a product. */
static bool leads_to_product(const splitter *s, const sn_node *x) {
    const sn_grouping *g = s->base;
    int h = g->group_of[x->id];
    if (h >= 0 && g->group[h].kernel == SN_KERNEL_gemm) return true;
    if (!sn_is_elementwise(x) || !g->summed[x->id]) return false;
    for (int i = 0; i < x->n_in; i++) {
        h = g->group_of[x->in[i]->id];
        if (h >= 0 && g->group[h].kernel == SN_KERNEL_gemm && sn_shapes_equal(x->in[i], x))
            return true;
    }
    return false;
}

/* Sums of squares of weights' gradients, for clipping: the alternative reads the gradients again.
 * Products of 768 x 768 to 768 x 3072 with the sums of their squares take 5 to 6 % less time at K =
 * 256, the same as without sums, and 0 to 17 % less at K = 64 (two threads). A result that is
 * broadcast along the rows again (the mean of a norm) is left to the kernel that does so, which has
 * the row in L1 anyway. */
static bool pays(const splitter *s, const sn_node *n) {
    return sn_panel_sum_of(n) && !s->along[n->id] && !sn_panel_sum(n) &&
           leads_to_product(s, n->in[0]);
}

static int choose(splitter *s) {
    int count = 0;
    find_along(s);
    for (int k = 0; k < s->base->order.n; k++) {
        const sn_node *n = s->base->order.node[k];
        count += s->split[n->id] = pays(s, n);
    }
    return count;
}

/* ---- two stages ---- */

/* Panels of one row are far apart, rows of one panel are contiguous: an epilogue has the latter at
 * hand. */
static sn_node *split(splitter *s, const sn_node *n, sn_node *x) {
    int64_t last = x->rank, perm[SN_MAX_RANK] = {last - 1}, first = 0;
    sn_node *part = s->partial[n->id] = sn_over_panels((sn_op)n->op, x);
    for (int64_t a = 0; a < last - 1; a++) perm[a + 1] = a;
    perm[last] = last;
    sn_node *transposed = sn_b_transpose(part, part->rank, perm);
    return sn_b_reshape(sn_b_reduce((sn_op)n->op, transposed, 1, &first), n->rank, n->shape);
}

static sn_node *rebuild(splitter *s, sn_node *n) {
    sn_node **in = sn_arena_alloc(n->m, sizeof *in * (size_t)(n->n_in + 1));
    for (int i = 0; i < n->n_in; i++) in[i] = s->made[n->in[i]->id];
    sn_module_set_loc(n->m, n->loc);
    if (s->split[n->id]) return split(s, n, in[0]);
    return n->n_in ? sn_node_with(n, in) : n;
}

static void rebuild_entry(splitter *s, sn_entry *e) {
    for (int k = 0; k < s->base->order.n; k++) {
        sn_node *n = s->base->order.node[k];
        s->made[n->id] = rebuild(s, n);
    }
    for (int i = 0; i < e->n_output; i++) e->output[i].node = s->made[s->before[i].node->id];
    for (int i = 0; i < e->n_assign; i++)
        e->assign[i].node = s->made[s->before[e->n_output + i].node->id];
}

/* ---- verification ---- */

/* Members of group k with other readers; a view that splits a row into panels for a member does not
 * count. */
static int count_results(const sn_grouping *g, int k) {
    uint8_t *read = sn_arena_alloc(g->m, g->n_id), *cut = sn_arena_alloc(g->m, g->n_id);
    int count = 0;
    for (int i = 0; i < g->group[k].n_member; i++)
        if (sn_panel_sum(g->group[k].member[i])) cut[g->group[k].member[i]->in[0]->id] = 1;
    for (int i = 0; i < g->entry->n_output; i++) read[g->entry->output[i].node->id] = 1;
    for (int i = 0; i < g->entry->n_assign; i++) read[g->entry->assign[i].node->id] = 1;
    for (int i = 0; i < g->order.n; i++) {
        const sn_node *n = g->order.node[i];
        bool inside = cut[n->id] || g->group_of[n->id] == k;
        for (int j = 0; j < n->n_in && !inside; j++) read[n->in[j]->id] = 1;
    }
    for (int i = 0; i < g->group[k].n_member; i++) count += read[g->group[k].member[i]->id];
    return count;
}

/* Whether the first stage is in the product's group. */
static bool joined(const sn_grouping *g, const sn_node *partial) {
    int k = g->group_of[partial->id], sums = 0;
    if (k < 0 || g->group[k].kernel != SN_KERNEL_gemm) return false;
    for (int i = 0; i < g->group[k].n_member; i++)
        sums += sn_panel_sum(g->group[k].member[i]) != NULL;
    const sn_kernel_traits *gemm = &sn_kernels[SN_KERNEL_gemm];
    return sums <= gemm->epilogue.reductions && count_results(g, k) <= gemm->epilogue.results;
}

static int take_back(splitter *s, const sn_grouping *g) {
    int count = 0;
    for (int k = 0; k < s->base->order.n; k++) {
        const sn_node *n = s->base->order.node[k];
        if (!s->split[n->id] || joined(g, s->partial[n->id])) continue;
        s->split[n->id] = 0;
        count++;
    }
    return count;
}

static sn_grouping *group_split(splitter *s, sn_entry *e) {
    sn_module *m = s->base->m;
    size_t n = s->base->n_id;
    s->along = sn_arena_alloc(m, n);
    s->split = sn_arena_alloc(m, n);
    if (!choose(s)) return s->base;
    s->made = sn_arena_alloc(m, sizeof *s->made * n);
    s->partial = sn_arena_alloc(m, sizeof *s->partial * n);
    s->before = sn_arena_alloc(m, sizeof *s->before * (size_t)(e->n_output + e->n_assign + 1));
    for (int i = 0; i < e->n_output; i++) s->before[i] = e->output[i];
    for (int i = 0; i < e->n_assign; i++) s->before[e->n_output + i] = e->assign[i];
    for (int round = 0; round < ROUNDS && !sn_module_error(m)->code; round++) {
        rebuild_entry(s, e);
        sn_grouping *g = sn_group_entry(s->p, e);
        if (!take_back(s, g)) return g;
    }
    memset(s->split, 0, n);
    rebuild_entry(s, e);
    return sn_group_entry(s->p, e);
}

sn_grouping *sn_group_row_sums(sn_passes *p, sn_entry *e) {
    splitter s = {.p = p, .base = sn_group_entry(p, e)};
    const sn_kernel_traits *gemm = &sn_kernels[SN_KERNEL_gemm];
    if (!sn_kernel_holds(gemm, SN_HOLDS_PANEL_REDUCTION, p->o.level) || !s.base->n_group)
        return s.base;
    double begin = sn_stage_begin();
    sn_grouping *g = group_split(&s, e);
    sn_stage_end(SN_STAGE_row_sums, begin, -1);
    return g;
}
