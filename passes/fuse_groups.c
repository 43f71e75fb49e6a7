/* fuse_groups.c: assigns primitives to kernels, operands first.
 *
 * A node joins the group of an operand if the level allows it, the shapes share the group's domain,
 * and no other operand depends on the group through a path outside it (which would be a cycle
 * between kernels). Otherwise it starts a new group. Nodes that cost nothing to recompute (index
 * arithmetic of masks, constants) belong to no group: every kernel that uses them recomputes
 * them. So do cheap ones of one stored value that only other kernels read. */
#include "passes/backend.h"
#include "passes/fuse_groups.h"
#include "passes/choice.h"
#include "passes/fuse_halves.h"
#include "passes/graph_util.h"
#include "passes/kernels/table.h"
#include "passes/row_sums.h"

#include <stdlib.h>
#include <string.h>

enum { CHEAP = 1, CHEAP_INDEX = 2 };

/* Whether n is in memory in any case: a leaf that is bound, or an argument of a body of kernels. */
static bool is_held(const sn_node *n) {
    return (sn_ops[n->op].flags & SN_OPF_EXTERNAL) || n->op == SN_OP_arg;
}

static bool costly(const sn_node *n) {
    return sn_ops[n->op].flags & SN_OPF_EXPENSIVE;
}

static void find_cheap(sn_grouping *g) {
    for (int i = 0; i < g->order.n; i++) {
        const sn_node *n = g->order.node[i];
        bool ok = !is_held(n) && (sn_is_leaf(n) || n->op == SN_OP_broadcast ||
                                  (sn_is_elementwise(n) && !costly(n)));
        for (int j = 0; j < n->n_in && ok; j++) ok = g->cheap[n->in[j]->id];
        bool index = n->op == SN_OP_iota; /* an epilogue has column indices only */
        for (int j = 0; j < n->n_in && ok; j++) index |= g->cheap[n->in[j]->id] == CHEAP_INDEX;
        g->cheap[n->id] = !ok ? 0 : index ? CHEAP_INDEX : CHEAP;
    }
}

static void find_summed(sn_grouping *g) {
    enum { UNREAD, SUMMED, READ };
    bool last;
    for (int i = 0; i < g->entry->n_output; i++) g->summed[g->entry->output[i].node->id] = READ;
    for (int i = 0; i < g->entry->n_assign; i++) g->summed[g->entry->assign[i].node->id] = READ;
    for (int i = 0; i < g->order.n; i++) {
        const sn_node *n = g->order.node[i];
        bool sums = sn_reduces(n, &last);
        for (int j = 0; j < n->n_in; j++) {
            uint8_t *how = &g->summed[n->in[j]->id];
            *how = sums && *how != READ ? SUMMED : READ;
            g->readers[n->in[j]->id]++;
        }
    }
    for (uint32_t i = 0; i < g->n_id; i++) g->summed[i] = g->summed[i] == SUMMED;
}

/* Follows n, from which blocks are selected, down to products. */
static void mark_selected(sn_grouping *g, const sn_node *n) {
    bool elementwise = sn_is_elementwise(n);
    if (sn_is_fixed(n) || g->selected[n->id]) return;
    g->selected[n->id] = elementwise || n->op == SN_OP_dot;
    for (int i = 0; i < n->n_in && (elementwise || n->op == SN_OP_slice); i++)
        mark_selected(g, n->in[i]);
}

bool sn_group_absorbs(const sn_grouping *g, const sn_node *n) {
    return n->id < g->n_id && g->cheap[n->id];
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

/* compares rank and shape of n's domain with the group's: equal, or equal except for a last axis of
 * size 1 on one side */
static bool fits_domain(const sn_group *k, const sn_node *n) {
    if (k->rank != n->rank || n->rank == 0) return k->rank == n->rank;
    for (int i = 0; i < n->rank - 1; i++)
        if (k->domain[i] != n->shape[i]) return false;
    sn_dim a = k->domain[n->rank - 1], b = n->shape[n->rank - 1];
    return a == b || a == 1 || b == 1;
}

static bool is_per_element(const sn_node *n) {
    return sn_is_elementwise(n) || n->op == SN_OP_random;
}

/* The row of the kernel that the group becomes in the table of kernels. */
static const sn_kernel_traits *kernel_of(const sn_group *k) {
    static const sn_kernel_id kernel[] = {[SN_GROUP_MAP_REDUCE] = SN_KERNEL_map_reduce,
                                          [SN_GROUP_COLUMN] = SN_KERNEL_column,
                                          [SN_GROUP_GEMM] = SN_KERNEL_gemm,
                                          [SN_GROUP_SINGLE] = SN_KERNEL_NONE};
    return &sn_kernels[kernel[k->kind]];
}

/* Whether the level lets node n join group k. Below the level where row reductions join, a group
 * that has one accepts no other operations. */
static bool level_allows(const sn_grouping *g, const sn_group *k, const sn_node *n,
                         uint32_t origin) {
    const sn_kernel_traits *kernel = kernel_of(k);
    int level = g->p->o.level;
    sn_holds what = sn_kernel_part(n);
    if (k->n_member >= kernel->max_nodes || !sn_kernel_can_hold(kernel, what)) return false;
    if (origin && origin == k->origin) return true;
    if (k->kind == SN_GROUP_GEMM && g->selected[n->id]) return true;
    bool closed = k->reduces && sn_kernel_can_hold(kernel, SN_HOLDS_ROWS) &&
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
    bool last;
    k->reduces |= sn_reduces(n, &last);
    const sn_node *wide = sn_reduces(n, &last) ? n->in[0] : n;
    if (k->rank && k->domain[k->rank - 1] == 1 && wide->rank == k->rank)
        k->domain[k->rank - 1] = wide->shape[k->rank - 1];
    for (int i = 0; i < n->n_in; i++) add_dep(g, group, group_below(g, n->in[i]));
}

static int new_group(sn_grouping *g, sn_group_kind kind, sn_node *n) {
    sn_group *k = &g->group[g->n_group];
    const sn_node *shape = kind == SN_GROUP_COLUMN ? n->in[0] : n;
    *k = (sn_group){.kind = kind, .rank = shape->rank};
    if (shape->rank) memcpy(k->domain, shape->shape, sizeof(sn_dim) * shape->rank);
    join(g, g->n_group, n);
    return g->n_group++;
}

sn_candidate sn_group_choice(const sn_grouping *g, const sn_node *dot) {
    return g->selected[dot->id] ? SN_CHOOSE_FUSED : sn_choose(g->p, dot);
}

bool sn_group_packs(const sn_grouping *g, const sn_node *dot) {
    const sn_attr *batch = sn_attr_get(dot, SN_A_batch_b);
    if (sn_group_choice(g, dot) == SN_CHOOSE_LIBRARY) return false;
    return g->p->o.constant_params && (!batch || !batch->n) &&
           sn_kernels[SN_KERNEL_gemm].computes_in >> dot->dtype & 1 &&
           sn_static_shape(dot->in[1]) && sn_from_params_only(dot->in[1]);
}

/* Whether it is index arithmetic over the product's column axes. */
static bool is_of_columns(const sn_node *n, int n_columns) {
    if (n->op == SN_OP_iota) return n->rank - 1 - sn_attr_int(n, SN_A_axis, 0) < n_columns;
    for (int i = 0; i < n->n_in; i++)
        if (!is_of_columns(n->in[i], n_columns)) return false;
    return true;
}

static int count_columns(const sn_node *dot) {
    const sn_attr *batch = sn_attr_get(dot, SN_A_batch_b);
    const sn_attr *contract = sn_attr_get(dot, SN_A_contract_b);
    return dot->in[1]->rank - (batch ? batch->n : 0) - (contract ? contract->n : 0);
}

/* Without columns, as of a product with a vector, the last axis of the result is one of rows. */
static bool ends_in_columns(const sn_node *dot) {
    return count_columns(dot) > 0;
}

/* An epilogue works on the product's tile in the product's precision: no random numbers, column
 * indices only, f64 with f64 only. What is only reduced afterwards is left to the reducing kernel;
 * otherwise a square of the product would be stored, too. */
bool sn_group_epilogue_may(const sn_grouping *g, const sn_node *dot, const sn_node *n) {
    if (g->summed[n->id] && !costly(n)) return false;
    for (int i = 0; i < n->n_in; i++)
        if (g->cheap[n->in[i]->id] == CHEAP_INDEX && !is_of_columns(n->in[i], count_columns(dot)))
            return false;
    return sn_epilogue_precision(sn_epilogue_type(dot), n);
}

/* The same for the product's group, whose domain is the shape of its result. */
static bool epilogue_may(const sn_grouping *g, const sn_group *k, const sn_node *n) {
    const sn_node *dot = k->member[0];
    sn_candidate choice = sn_group_choice(g, dot);
    if (choice == SN_CHOOSE_UNFUSED) return false;
    if (choice == SN_CHOOSE_LIBRARY) return k->n_member == 1 && g->p->o.library->epilogue(dot, n);
    if (n->rank != k->rank) return false;
    for (int i = 0; i < k->rank; i++)
        if (n->shape[i] != k->domain[i]) return false;
    return sn_group_epilogue_may(g, dot, n);
}

/* A reduction over panels of columns belongs to a product if its operand does. */
static int product_of_panels(sn_grouping *g, const sn_node *n) {
    const sn_node *x = sn_panel_sum(n);
    int h = x ? g->group_of[x->id] : -1;
    if (h < 0 || !sn_kernel_holds(kernel_of(&g->group[h]), SN_HOLDS_PANEL_REDUCTION, g->p->o.level))
        return -1;
    const sn_node *dot = g->group[h].member[0];
    bool fits = ends_in_columns(dot) && sn_group_choice(g, dot) == SN_CHOOSE_FUSED &&
                x->dtype == sn_epilogue_type(dot) && !g->group[h].pair &&
                g->group[h].n_member < kernel_of(&g->group[h])->max_nodes;
    return fits ? h : -1;
}

/* The operand's group if n may join it: directly, or through a broadcast along the row (of a
 * reduction's result). */
static int candidate(sn_grouping *g, const sn_node *n, const sn_node *operand, uint32_t origin) {
    const sn_node *below = operand;
    if (below->op == SN_OP_broadcast && below->in[0]->rank == n->rank) below = below->in[0];
    int h = g->group_of[below->id];
    if (h < 0) return -1;
    sn_group *k = &g->group[h];
    bool last, row = sn_reduces(n, &last);
    const sn_node *wide = row ? n->in[0] : n;
    if (!fits_domain(k, wide) || !level_allows(g, k, n, origin)) return -1;
    if (k->kind == SN_GROUP_GEMM && !epilogue_may(g, k, n)) return -1;
    return acyclic(g, h, n) ? h : -1;
}

/* Whether the product's panels can hold columns at this distance side by side, and all of its group
 * can be computed for both. */
static bool may_pair(const sn_grouping *g, const sn_group *k, int64_t distance) {
    const sn_node *dot = k->member[0];
    if (k->pair) return k->pair == distance && k->domain[k->rank - 1] == dot->shape[dot->rank - 1];
    return sn_group_packs(g, dot) && !k->reduces && !k->swap &&
           distance % (sn_panel_columns((sn_dtype)dot->dtype) / 2) == 0;
}

/* Whether n swaps columns of a product, or of a value of its epilogue, that are available there:
 * columns of one panel, or columns that can be paired. */
static bool takes_swap(sn_grouping *g, const sn_node *n) {
    int h = n->n_in ? g->group_of[n->in[0]->id] : -1;
    int64_t distance = h >= 0 && g->group[h].kind == SN_GROUP_GEMM ? sn_swap_distance(n) : 0;
    if (!distance) return false;
    sn_group *k = &g->group[h];
    if (!level_allows(g, k, n, origin_of(g, n)) || !epilogue_may(g, k, n)) return false;
    if (!ends_in_columns(k->member[0])) return false;
    if (may_pair(g, k, distance)) {
        k->pair = distance;
        return true;
    }
    bool in_panel = sn_panel_columns((sn_dtype)k->member[0]->dtype) % (2 * distance) == 0;
    if (!in_panel || k->pair || (k->swap && k->swap != distance)) return false;
    k->swap = distance;
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

/* At every level, a product whose panels are packed computes the blocks of columns that n selects,
 * and no others, if each block is whole panels. */
static bool takes_blocks(sn_grouping *g, const sn_node *n) {
    int h = n->op == SN_OP_take_blocks ? g->group_of[n->in[0]->id] : -1;
    if (h < 0 || g->group[h].kind != SN_GROUP_GEMM) return false;
    const sn_group *k = &g->group[h];
    const sn_node *dot = k->member[0];
    int64_t size, panel = sn_panel_columns((sn_dtype)dot->dtype) / (k->pair ? 2 : 1);
    if (!sn_group_packs(g, dot) || k->swap || count_columns(dot) != 1 ||
        n->in[0]->dtype != sn_epilogue_type(dot) || n->in[0]->rank != dot->rank ||
        n->in[0]->shape[dot->rank - 1] != k->domain[k->rank - 1] ||
        !sn_dim_is_const(g->m, n->shape[n->rank - 1], &size) || size % panel)
        return false;
    if (k->pair && k->domain[k->rank - 1] == dot->shape[dot->rank - 1]) return false;
    for (int i = 0; i < k->n_member; i++)
        for (int j = 0; j < k->member[i]->n_in; j++)
            if (g->cheap[k->member[i]->in[j]->id] == CHEAP_INDEX) return false;
    return acyclic(g, h, n);
}

static void place(sn_grouping *g, sn_node *n) {
    bool last, reduces = sn_reduces(n, &last);
    if (n->op == SN_OP_dot) {
        new_group(g, SN_GROUP_GEMM, n);
        return;
    }
    int product = product_of_panels(g, n);
    if (product >= 0) {
        join(g, product, n);
        return;
    }
    if (reduces && !last) {
        int column = new_group(g, SN_GROUP_COLUMN, n);
        if (sn_kernel_holds(kernel_of(&g->group[column]), SN_HOLDS_OPERAND, g->p->o.level))
            take_summand(g, n);
        return;
    }
    if (takes_swap(g, n) || takes_blocks(g, n)) {
        join(g, g->group_of[n->in[0]->id], n);
        return;
    }
    if (sn_reads_far(n, 0)) { /* random access: starts a kernel, others may join */
        new_group(g, SN_GROUP_MAP_REDUCE, n);
        return;
    }
    if (!reduces && !is_per_element(n)) {
        new_group(g, SN_GROUP_SINGLE, n);
        return;
    }
    int best = -1;
    uint32_t origin = origin_of(g, n);
    for (int i = 0; i < n->n_in; i++) {
        int h = candidate(g, n, n->in[i], origin);
        if (h < 0) continue;
        bool gemm = g->group[h].kind == SN_GROUP_GEMM;
        bool best_gemm = best >= 0 && g->group[best].kind == SN_GROUP_GEMM;
        if (best < 0 || (gemm && !best_gemm) || (gemm == best_gemm && h > best)) best = h;
    }
    if (best < 0)
        new_group(g, SN_GROUP_MAP_REDUCE, n);
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
    if (from->kind != SN_GROUP_MAP_REDUCE || to->rank != from->rank ||
        to->n_member + from->n_member > kernel_of(to)->max_nodes)
        return false;
    for (int i = 0; i < to->rank; i++)
        if (to->domain[i] != from->domain[i]) return false;
    for (int i = 0; i < from->n_member; i++) {
        const sn_node *n = from->member[i];
        bool last,
            rows = to->kind == SN_GROUP_MAP_REDUCE && (sn_reads_far(n, 0) || sn_reduces(n, &last));
        if (!(is_per_element(n) || rows) || !level_allows(g, to, n, origin)) return false;
        if (to->kind == SN_GROUP_GEMM && !epilogue_may(g, to, n)) return false;
    }
    return to->kind == SN_GROUP_MAP_REDUCE || to->kind == SN_GROUP_GEMM;
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
    int first = to->kind == SN_GROUP_GEMM;
    qsort(all + first, (size_t)(n - first), sizeof *all, by_id);
    to->member = all;
    to->n_member = to->cap_member = n;
    for (int i = 0; i < from->n_member; i++) g->group_of[from->member[i]->id] = k;
    for (int i = 0; i < from->n_dep; i++) add_dep(g, k, from->dep[i]);
    for (int i = 0; i < to->n_dep; i++)
        if (to->dep[i] == h) to->dep[i] = to->dep[--to->n_dep];
    /* groups that depended on h now depend on k: h stays as an empty intermediate group */
    *from = (sn_group){.kind = SN_GROUP_MAP_REDUCE, .rank = -1};
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
    if (h < 0 || g->group[h].kind != SN_GROUP_MAP_REDUCE || g->group[h].n_member != 1 ||
        !is_per_element(x) || costly(x) || !g->summed[x->id] || g->readers[x->id] != 1)
        return;
    merge_into(g, g->group_of[n->id], h);
}

/* A cheap node that is needed in memory (an output, a product's operand, an index table) gets a
 * kernel, too. */
static bool needs_memory(const sn_grouping *g, const sn_node *user) {
    int h = g->group_of[user->id];
    if (sn_is_view(user)) return user->op != SN_OP_broadcast;
    return h < 0 ? !g->cheap[user->id]
                 : g->group[h].kind == SN_GROUP_SINGLE || g->group[h].kind == SN_GROUP_GEMM;
}

static void settle_cheap(sn_grouping *g) {
    uint8_t *needed = sn_arena_alloc(g->m, g->n_id);
    for (int i = 0; i < g->entry->n_output; i++)
        needed[sn_below_views(g->entry->output[i].node)->id] = 1;
    for (int i = 0; i < g->entry->n_assign; i++)
        needed[sn_below_views(g->entry->assign[i].node)->id] = 1;
    for (int i = 0; i < g->order.n; i++) {
        const sn_node *n = g->order.node[i];
        if (n->n_in && sn_reads_far(n, 0)) needed[sn_below_views(n->in[0])->id] = 1;
        if (g->cheap[n->id] || !needs_memory(g, n)) continue;
        int h = g->group_of[n->id];
        bool gemm = h >= 0 && g->group[h].kind == SN_GROUP_GEMM;
        if (gemm && n != g->group[h].member[0] && n->op != SN_OP_take_blocks)
            continue; /* epilogue members recompute them */
        for (int j = 0; j < n->n_in; j++) needed[sn_below_views(n->in[j])->id] = 1;
    }
    for (int i = 0; i < g->order.n; i++) {
        sn_node *n = g->order.node[i];
        if (needed[n->id] && g->cheap[n->id] && g->group_of[n->id] < 0 && !sn_is_view(n))
            new_group(g, SN_GROUP_MAP_REDUCE, n);
    }
}

/* ---- what is not worth storing ---- */

enum { STORED = 1, BOUND = 2 /* somebody needs it in memory */ };

/* Who reads values of groups: by id. */
static uint8_t *find_uses(const sn_grouping *g) {
    uint8_t *use = sn_arena_alloc(g->m, g->n_id);
    for (int i = 0; i < g->entry->n_output; i++)
        use[sn_below_views(g->entry->output[i].node)->id] = STORED | BOUND;
    for (int i = 0; i < g->entry->n_assign; i++)
        use[sn_below_views(g->entry->assign[i].node)->id] = STORED | BOUND;
    for (int i = 0; i < g->order.n; i++) {
        const sn_node *n = g->order.node[i];
        int h = g->group_of[n->id];
        for (int j = 0; j < n->n_in && !sn_is_view(n); j++) {
            const sn_node *x = sn_below_views(n->in[j]);
            if (h >= 0 && h == g->group_of[x->id]) continue;
            bool plain = x == n->in[j] && h >= 0 && g->group[h].kind == SN_GROUP_MAP_REDUCE &&
                         !sn_reads_far(n, j);
            use[x->id] |= plain ? STORED : STORED | BOUND;
        }
    }
    return use;
}

/* The only operand of n that is not cheap; NULL: there are several. */
static const sn_node *only_operand(const sn_grouping *g, const sn_node *n) {
    const sn_node *x = NULL;
    for (int i = 0; i < n->n_in; i++) {
        if (g->cheap[n->in[i]->id] || n->in[i] == x) continue;
        if (x) return NULL;
        x = n->in[i];
    }
    return x;
}

static void leave(sn_grouping *g, const sn_node *n) {
    sn_group *k = &g->group[g->group_of[n->id]];
    int count = 0;
    for (int i = 0; i < k->n_member; i++)
        if (k->member[i] != n) k->member[count++] = k->member[i];
    k->n_member = count;
    g->group_of[n->id] = -1;
    g->cheap[n->id] = CHEAP;
}

/* A cheap operation on a value that is stored anyway, such as 1 - sigmoid x, whose result only other
 * kernels need: each computes it again, and reads the value instead. */
static void leave_to_readers(sn_grouping *g) {
    const uint8_t *use = find_uses(g);
    for (int i = 0; i < g->order.n; i++) {
        const sn_node *n = g->order.node[i];
        int k = g->group_of[n->id];
        if (k < 0 || g->group[k].kind != SN_GROUP_MAP_REDUCE || !sn_is_elementwise(n) ||
            costly(n) || use[n->id] != STORED)
            continue;
        const sn_node *x = only_operand(g, n);
        if (x && g->group_of[x->id] == k && use[x->id] & STORED && sn_shapes_equal(x, n) &&
            x->dtype == n->dtype)
            leave(g, n);
    }
}

sn_grouping *sn_group_entry(sn_passes *p, const sn_entry *e) {
    sn_module *m = p->m;
    sn_grouping *g = sn_arena_alloc(m, sizeof *g);
    *g = (sn_grouping){.p = p, .m = m, .entry = e, .n_id = sn_module_node_count(m)};
    g->order = sn_entry_topo(m, e);
    g->group = sn_arena_alloc(m, sizeof *g->group * (size_t)(2 * g->order.n + 1));
    g->group_of = sn_arena_alloc(m, sizeof *g->group_of * g->n_id);
    g->cheap = sn_arena_alloc(m, g->n_id);
    g->summed = sn_arena_alloc(m, g->n_id);
    g->readers = sn_arena_alloc(m, sizeof *g->readers * g->n_id);
    for (uint32_t i = 0; i < g->n_id; i++) g->group_of[i] = -1;
    g->selected = sn_arena_alloc(m, g->n_id);
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
    leave_to_readers(g);
    settle_cheap(g);
    return g;
}
