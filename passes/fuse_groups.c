/* fuse_groups.c: assigns primitives to kernels, operands first.
 *
 * A node joins the group of an operand if the level allows it, the shapes share the group's domain,
 * and no other operand depends on the group through a path outside it (which would be a cycle
 * between kernels). Otherwise it starts a new group. Nodes that cost nothing to recompute (index
 * arithmetic of masks, constants) belong to no group: every kernel that uses them recomputes
 * them. So do cheap ones of one stored value that only other kernels read. */
#include "passes/backend.h"
#include "passes/graph_util.h"
#include "passes/grouping.h"
#include "passes/kernels/costs.h"

#include <stdlib.h>
#include <string.h>

/* Whether n is in memory in any case: a leaf that is bound, or an argument of a body of kernels. */
static bool is_held(const sn_node *n) {
    return (sn_ops[n->op].flags & SN_OPF_EXTERNAL) || n->op == SN_OP_arg;
}

static void find_cheap(sn_grouping *g) {
    for (int i = 0; i < g->order.n; i++) {
        const sn_node *n = g->order.node[i];
        bool ok = !is_held(n) && (sn_is_leaf(n) || n->op == SN_OP_broadcast ||
                                  (sn_is_elementwise(n) && !sn_is_expensive(n)));
        for (int j = 0; j < n->n_in && ok; j++) ok = g->cheap[n->in[j]->id];
        bool index = n->op == SN_OP_iota; /* an epilogue has column indices only */
        for (int j = 0; j < n->n_in && ok; j++) index |= g->cheap[n->in[j]->id] == SN_CHEAP_INDEX;
        g->cheap[n->id] = !ok ? 0 : index ? SN_CHEAP_INDEX : SN_CHEAP;
    }
}

static void find_summed(sn_grouping *g) {
    enum { READ = SN_SUMMED + 1 };
    for (int i = 0; i < g->n_root; i++) {
        g->summed[g->root[i]->id] = READ;
        g->readers[g->root[i]->id]++;
    }
    for (int i = 0; i < g->order.n; i++) {
        const sn_node *n = g->order.node[i];
        const uint8_t how = !sn_reduces(n)        ? READ
                            : g->in_panels[n->id] ? SN_SUMMED_PANELS
                                                  : SN_SUMMED;
        for (int j = 0; j < n->n_in; j++) {
            uint8_t *read = &g->summed[n->in[j]->id];
            if (how > *read) *read = how;
            g->readers[n->in[j]->id]++;
        }
    }
    for (uint32_t i = 0; i < g->n_id; i++)
        if (g->summed[i] == READ) g->summed[i] = 0;
}

/* Follows n, from which blocks are selected, down to products. */
static void mark_selected(sn_grouping *g, const sn_node *n) {
    bool elementwise = sn_is_elementwise(n);
    if (sn_is_fixed(n) || g->selected[n->id]) return;
    g->selected[n->id] = elementwise || n->op == SN_OP_dot;
    for (int i = 0; i < n->n_in && (elementwise || n->op == SN_OP_slice); i++)
        mark_selected(g, n->in[i]);
}

/* ---- dependencies between groups ---- */

static int group_below(const sn_grouping *g, const sn_node *n) {
    return g->group_of[sn_below_views(n)->id];
}

static bool reaches(sn_grouping *g, int from, int target) {
    sn_group *f = &g->group[from];
    if (from == target) return true;
    if (f->stamp == g->stamp) return false;
    f->stamp = g->stamp;
    for (int i = 0; i < f->n_dep; i++)
        if (reaches(g, f->dep[i], target)) return true;
    return false;
}

/* Whether reading `operand` would make group `target` depend on itself. Members are read from
 * registers, even if broadcast along the row; any other view of a member needs the finished
 * tensor. */
static bool operand_depends(sn_grouping *g, const sn_node *operand, int target) {
    const sn_node *below = operand->op == SN_OP_broadcast ? operand->in[0] : operand;
    if (g->group_of[below->id] == target) return false;
    int h = group_below(g, operand);
    if (h < 0) return false;
    g->stamp++;
    return reaches(g, h, target);
}

static void add_dep(sn_grouping *g, int group, int on) {
    sn_group *k = &g->group[group];
    if (group == on || on < 0) return;
    for (int i = 0; i < k->n_dep; i++)
        if (k->dep[i] == on) return;
    k->dep = sn_arena_grow(g->m, k->dep, sizeof *k->dep, k->n_dep, &k->cap_dep);
    k->dep[k->n_dep++] = on;
}

/* ---- joining ---- */

static bool is_per_element(const sn_node *n) {
    return sn_is_elementwise(n) || n->op == SN_OP_random;
}

/* Whether the level lets node n join group k. Below the level where row reductions join, a group
 * that has one accepts no other operations. */
static bool level_allows(const sn_grouping *g, const sn_group *k, const sn_node *n,
                         uint32_t origin) {
    const sn_kernel_traits *kernel = &sn_kernels[k->kernel];
    int level = g->p->o.level;
    sn_holds what = sn_kernel_part(n);
    if (!sn_kernel_can_hold(kernel, what)) return false;
    if (origin && origin == k->origin) return true;
    if (k->kernel == SN_KERNEL_gemm && g->selected[n->id]) return true;
    bool closed = k->reductions && sn_kernel_can_hold(kernel, SN_HOLDS_ROWS) &&
                  !sn_kernel_holds(kernel, SN_HOLDS_ROWS, level);
    return sn_kernel_holds(kernel, what, level) && !closed;
}

static bool acyclic(sn_grouping *g, int group, const sn_node *n) {
    for (int i = 0; i < n->n_in; i++)
        if (operand_depends(g, n->in[i], group)) return false;
    return true;
}

static uint32_t origin_of(const sn_grouping *g, const sn_node *n) {
    return n->id < g->p->n_origin ? g->p->origin[n->id] : 0;
}

static void join(sn_grouping *g, int group, sn_node *n) {
    sn_group *k = &g->group[group];
    k->member = sn_arena_grow(g->m, k->member, sizeof *k->member, k->n_member, &k->cap_member);
    if (k->n_member == 0)
        k->origin = origin_of(g, n);
    else if (k->origin != origin_of(g, n))
        k->origin = 0;
    k->member[k->n_member++] = n;
    g->group_of[n->id] = group;
    k->reductions += sn_reduces(n);
    const sn_node *wide = sn_reduces(n) ? n->in[0] : n;
    if (k->rank && k->domain[k->rank - 1] == 1 && wide->rank == k->rank)
        k->domain[k->rank - 1] = wide->shape[k->rank - 1];
    for (int i = 0; i < n->n_in; i++) {
        add_dep(g, group, group_below(g, n->in[i]));
        k->indexed |= g->cheap[n->in[i]->id] == SN_CHEAP_INDEX;
    }
}

int sn_group_add(sn_grouping *g, sn_kernel_id kernel, sn_node *n) {
    g->group[g->n_group] = sn_group_for(g, kernel, kernel == SN_KERNEL_column ? n->in[0] : n);
    join(g, g->n_group, n);
    return g->n_group++;
}

static bool joins_product(const sn_grouping *g, const sn_group *k, const sn_node *n) {
    const sn_node *dot = k->member[0];
    if (sn_group_choice(g, dot) == SN_CHOOSE_LIBRARY)
        return k->n_member == 1 && g->p->o.library->epilogue(dot, n);
    return sn_group_joins(g, k, n);
}

/* How many results group k has if n joins it and nothing else does: members that others read. */
static int count_results(const sn_grouping *g, const sn_group *k, const sn_node *n) {
    int count = 1;
    for (int i = 0; i < k->n_member; i++) {
        const sn_node *x = k->member[i];
        int others = (int)g->readers[x->id] - (n->in[0] == x);
        for (int j = 0; j < k->n_member; j++)
            for (int a = 0; a < k->member[j]->n_in; a++) others -= k->member[j]->in[a] == x;
        count += others > 0;
    }
    return count;
}

/* A reduction over panels of columns belongs to a product if its operand does; one along rows, which
 * the product makes over panels first, if there are few. */
static int product_below(sn_grouping *g, const sn_node *n) {
    const sn_kernel_traits *gemm = &sn_kernels[SN_KERNEL_gemm];
    const bool rows = g->in_panels[n->id];
    const sn_node *x = rows ? n->in[0] : sn_panel_sum(n);
    int h = x ? g->group_of[x->id] : -1;
    if (h < 0) return -1;
    const sn_group *k = &g->group[h];
    if (k->kernel != SN_KERNEL_gemm || sn_sum_refuses(k, x) ||
        !sn_kernel_holds(gemm, SN_HOLDS_PANEL_REDUCTION, g->p->o.level))
        return -1;
    bool few = k->reductions < gemm->epilogue.reductions &&
               count_results(g, k, n) <= gemm->epilogue.results;
    return few || !rows ? h : -1;
}

/* The operand's group if n may join it: directly, or through a broadcast along the row (of a
 * reduction's result). */
static int candidate(sn_grouping *g, const sn_node *n, const sn_node *operand, uint32_t origin) {
    const sn_node *below = operand;
    if (below->op == SN_OP_broadcast && below->in[0]->rank == n->rank) below = below->in[0];
    int h = g->group_of[below->id];
    if (h < 0) return -1;
    const sn_group *k = &g->group[h];
    if (!level_allows(g, k, n, origin)) return -1;
    bool joins =
        k->kernel == SN_KERNEL_gemm ? joins_product(g, k, n) : !sn_kernel_refuses(k, SN_IN_BODY, n);
    return joins && acyclic(g, h, n) ? h : -1;
}

/* Whether n, a swap of columns or a selection of blocks, joins the product that it reads. */
static bool moves_columns(sn_grouping *g, const sn_node *n) {
    int h = n->n_in ? g->group_of[n->in[0]->id] : -1;
    sn_group *k = h >= 0 ? &g->group[h] : NULL;
    if (!k || k->kernel != SN_KERNEL_gemm) return false;
    if (n->op == SN_OP_take_blocks) /* at every level */
        return !sn_kernel_refuses(k, SN_IN_EPILOGUE, n) && acyclic(g, h, n);
    int64_t distance = sn_swap_distance(n);
    if (!distance || !level_allows(g, k, n, origin_of(g, n)) || !joins_product(g, k, n))
        return false;
    *(sn_group_pairs(k, distance) ? &k->pair : &k->swap) = distance;
    return true;
}

static void merge_operands(sn_grouping *g, const sn_node *n, uint32_t origin);
static void take_summand(sn_grouping *g, const sn_node *n);

/* A half of a product that is combined with the other half: the kernel's result has that shape. */
static void place_half(sn_grouping *g, sn_node *n) {
    int h = g->group_of[n->in[0]->id];
    if (h < 0 || g->group[h].member[0] != g->half_of[n->id]) return;
    sn_group *k = &g->group[h];
    join(g, h, n);
    k->domain[k->rank - 1] = n->shape[n->rank - 1];
    sn_dim_is_const(g->m, n->shape[n->rank - 1], &k->pair);
}

static void place(sn_grouping *g, sn_node *n) {
    const bool reduces = sn_reduces(n);
    if (n->op == SN_OP_dot) {
        sn_group_add(g, SN_KERNEL_gemm, n);
        return;
    }
    int product = product_below(g, n);
    if (product >= 0) {
        join(g, product, n);
        return;
    }
    if (reduces && !sn_reduces_rows(n)) {
        sn_group_add(g, SN_KERNEL_column, n);
        if (sn_kernel_holds(&sn_kernels[SN_KERNEL_column], SN_HOLDS_OPERAND, g->p->o.level))
            take_summand(g, n);
        return;
    }
    if (moves_columns(g, n)) {
        join(g, g->group_of[n->in[0]->id], n);
        return;
    }
    if (sn_reads_far(n, 0)) { /* random access: starts a kernel, others may join */
        sn_group_add(g, SN_KERNEL_map_reduce, n);
        return;
    }
    if (!reduces && !is_per_element(n)) {
        sn_group_add(g, SN_KERNEL_NONE, n);
        return;
    }
    int best = -1;
    uint32_t origin = origin_of(g, n);
    for (int i = 0; i < n->n_in; i++) {
        int h = candidate(g, n, n->in[i], origin);
        if (h < 0) continue;
        bool gemm = g->group[h].kernel == SN_KERNEL_gemm;
        bool best_gemm = best >= 0 && g->group[best].kernel == SN_KERNEL_gemm;
        if (best < 0 || (gemm && !best_gemm) || (gemm == best_gemm && h > best)) best = h;
    }
    if (best < 0)
        sn_group_add(g, SN_KERNEL_map_reduce, n);
    else {
        join(g, best, n);
        merge_operands(g, n, origin);
    }
}

/* ---- merging ---- */

/* Whether everything in group h can be computed in group k, which n has joined; n's operand in h is
 * to be read there. */
static bool merge_allowed(const sn_grouping *g, int k, int h, uint32_t origin) {
    const sn_group *to = &g->group[k], *from = &g->group[h];
    if (from->kernel != SN_KERNEL_map_reduce || to->rank != from->rank ||
        to->n_member + from->n_member > sn_kernels[to->kernel].max_nodes)
        return false;
    for (int i = 0; i < to->rank; i++)
        if (to->domain[i] != from->domain[i]) return false;
    for (int i = 0; i < from->n_member; i++) {
        const sn_node *n = from->member[i];
        bool joins = to->kernel == SN_KERNEL_gemm ? is_per_element(n) && joins_product(g, to, n)
                                                  : !sn_kernel_refuses(to, SN_IN_BODY, n);
        if (!joins || !level_allows(g, to, n, origin)) return false;
    }
    return true;
}

/* Whether h and k depend on each other through a third group. Merged, they would depend on
 * themselves. */
static bool merge_acyclic(sn_grouping *g, int k, int h) {
    g->stamp++;
    if (reaches(g, h, k)) return false;
    for (int i = 0; i < g->group[k].n_dep; i++) {
        if (g->group[k].dep[i] == h) continue;
        g->stamp++;
        if (reaches(g, g->group[k].dep[i], h)) return false;
    }
    return true;
}

/* Whether k reads h's members from registers only: at the same index, or broadcast along the row.
 * The factors of a product must be in memory. */
static bool reads_in_place(const sn_grouping *g, int k, int h) {
    const sn_group *to = &g->group[k];
    for (int i = 0; i < to->n_member; i++)
        for (int j = 0; j < to->member[i]->n_in; j++) {
            const sn_node *x = to->member[i]->in[j];
            if (g->group_of[sn_below_views(x)->id] != h) continue;
            if (x->op == SN_OP_broadcast) x = x->in[0];
            if (g->group_of[x->id] != h || to->member[i]->op == SN_OP_dot ||
                sn_reads_far(to->member[i], j))
                return false;
        }
    return true;
}

static int by_id(const void *a, const void *b) {
    const sn_node *x = *(sn_node *const *)a, *y = *(sn_node *const *)b;
    return (x->id > y->id) - (x->id < y->id);
}

static void merge_into(sn_grouping *g, int k, int h) {
    sn_group *to = &g->group[k], *from = &g->group[h];
    int n = to->n_member + from->n_member;
    sn_node **all = sn_arena_alloc(g->m, sizeof *all * (size_t)n);
    memcpy(all, to->member, sizeof *all * (size_t)to->n_member);
    memcpy(all + to->n_member, from->member, sizeof *all * (size_t)from->n_member);
    /* the product stays first */
    int first = to->kernel == SN_KERNEL_gemm;
    qsort(all + first, (size_t)(n - first), sizeof *all, by_id);
    to->member = all;
    to->n_member = to->cap_member = n;
    for (int i = 0; i < from->n_member; i++) g->group_of[from->member[i]->id] = k;
    for (int i = 0; i < from->n_dep; i++) add_dep(g, k, from->dep[i]);
    to->indexed |= from->indexed;
    for (int i = 0; i < to->n_dep; i++)
        if (to->dep[i] == h) to->dep[i] = to->dep[--to->n_dep];
    /* groups that depended on h now depend on k: h stays as an empty intermediate group */
    *from = (sn_group){.kernel = SN_KERNEL_map_reduce, .rank = -1};
    add_dep(g, h, k);
}

/* n's other operands may have a separate group (the two halves of a sum): one kernel computes
 * all. */
static void merge_operands(sn_grouping *g, const sn_node *n, uint32_t origin) {
    int k = g->group_of[n->id];
    for (int i = 0; i < n->n_in; i++) {
        int h = g->group_of[n->in[i]->id];
        if (h >= 0 && h != k && merge_allowed(g, k, h, origin) && merge_acyclic(g, k, h) &&
            reads_in_place(g, k, h))
            merge_into(g, k, h);
    }
}

/* What is only summed by n, along columns, is computed during the summation. */
static void take_summand(sn_grouping *g, const sn_node *n) {
    const sn_node *x = n->in[0];
    int h = g->group_of[x->id];
    if (h < 0 || g->group[h].kernel != SN_KERNEL_map_reduce || g->group[h].n_member != 1 ||
        sn_kernel_refuses(&g->group[g->group_of[n->id]], SN_IN_BODY, x) || sn_is_expensive(x) ||
        !g->summed[x->id] || g->readers[x->id] != 1)
        return;
    merge_into(g, g->group_of[n->id], h);
}

sn_grouping *sn_group_entry(sn_passes *p, sn_entry *e, bool row_sums) {
    sn_module *m = p->m;
    sn_grouping *g = sn_arena_alloc(m, sizeof *g);
    *g = (sn_grouping){.p = p, .m = m, .n_id = sn_module_node_count(m)};
    g->root = sn_entry_roots(m, e, false, &g->n_root);
    g->order = sn_entry_topo(m, e);
    g->group = sn_arena_alloc(m, sizeof *g->group * (size_t)(2 * g->order.n + 1));
    g->group_of = sn_arena_alloc(m, sizeof *g->group_of * g->n_id);
    g->cheap = sn_arena_alloc(m, g->n_id);
    g->summed = sn_arena_alloc(m, g->n_id);
    g->readers = sn_arena_alloc(m, sizeof *g->readers * g->n_id);
    for (uint32_t i = 0; i < g->n_id; i++) g->group_of[i] = -1;
    g->selected = sn_arena_alloc(m, g->n_id);
    g->in_panels = row_sums ? sn_row_sums_find(g) : sn_arena_alloc(m, g->n_id);
    find_cheap(g);
    find_summed(g);
    for (int i = 0; i < g->order.n; i++)
        if (sn_selects_panels(g->order.node[i])) mark_selected(g, g->order.node[i]->in[0]);
    g->half_of = sn_halves_find(g);
    for (int i = 0; i < g->order.n; i++) {
        sn_node *n = g->order.node[i];
        if (g->half_of[n->id])
            place_half(g, n);
        else if (!sn_is_leaf(n) && !sn_is_view(n) && !g->cheap[n->id])
            place(g, n);
    }
    return g;
}
