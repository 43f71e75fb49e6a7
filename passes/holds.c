/* holds.c: see holds.h. A kernel has a rule for each op that it can compute in a place. An op without a
 * rule is one that its emitter does not know. */
#include "passes/holds.h"
#include "passes/graph_util.h"

#include <string.h>

/* ---- panels ---- */

static bool fits_panels(const sn_node *x, int64_t *panels) {
    int64_t n;
    if (!(sn_kernels[SN_KERNEL_gemm].computes_in >> x->dtype & 1) || x->rank < 1 ||
        x->rank >= SN_MAX_RANK || !sn_dim_is_const(x->m, x->shape[x->rank - 1], &n))
        return false;
    int64_t columns = sn_panel_columns((sn_dtype)x->dtype);
    *panels = n / columns;
    return n > 0 && n % columns == 0;
}

/* Whether n splits rows into panels: a reshape from [.., N] to [.., N / P, P]. */
static bool splits_panels(const sn_node *n) {
    int64_t panels;
    const sn_node *x = n->op == SN_OP_reshape ? n->in[0] : NULL;
    if (!x || n->rank != x->rank + 1 || !fits_panels(x, &panels)) return false;
    for (int i = 0; i < x->rank - 1; i++)
        if (n->shape[i] != x->shape[i]) return false;
    return n->shape[x->rank - 1] == panels &&
           n->shape[x->rank] == sn_panel_columns((sn_dtype)x->dtype);
}

const sn_node *sn_panel_sum(const sn_node *n) {
    bool sums = sn_reduces_rows(n) && splits_panels(n->in[0]);
    return sums ? n->in[0]->in[0] : NULL;
}

sn_node *sn_over_panels(sn_op op, sn_node *x) {
    sn_dim shape[SN_MAX_RANK];
    int64_t panels = 0, last = x->rank;
    fits_panels(x, &panels);
    memcpy(shape, x->shape, sizeof *shape * x->rank);
    shape[last - 1] = panels;
    shape[last] = sn_panel_columns((sn_dtype)x->dtype);
    return sn_b_reduce(op, sn_b_reshape(x, x->rank + 1, shape), 1, &last);
}

sn_node *sn_panel_sum_of(const sn_node *n) {
    int64_t panels;
    bool fits = sn_reduces_rows(n) && fits_panels(n->in[0], &panels);
    return fits ? sn_over_panels((sn_op)n->op, n->in[0]) : NULL;
}

static bool fills_half_panels(sn_dtype t, int64_t distance) {
    return distance % (sn_panel_columns(t) / 2) == 0;
}

static bool is_in_panel(sn_dtype t, int64_t distance) {
    return sn_panel_columns(t) % (2 * distance) == 0;
}

bool sn_panels_swap(sn_dtype t, int64_t distance) {
    return is_in_panel(t, distance) || fills_half_panels(t, distance);
}

bool sn_group_pairs(const sn_group *k, int64_t distance) {
    const sn_node *dot = k->member[0];
    if (k->pair) return k->pair == distance && k->domain[k->rank - 1] == dot->shape[dot->rank - 1];
    return k->packed && !k->reductions && !k->swap &&
           fills_half_panels((sn_dtype)dot->dtype, distance);
}

/* ---- epilogues of products ---- */

static int count_columns(const sn_node *dot) {
    const sn_attr *batch = sn_attr_get(dot, SN_A_batch_b);
    const sn_attr *contract = sn_attr_get(dot, SN_A_contract_b);
    return dot->in[1]->rank - (batch ? batch->n : 0) - (contract ? contract->n : 0);
}

/* Of a product with a vector the last axis of the result is one of rows. */
static const char *check_columns(const sn_group *k) {
    if (!k->fused) return "the product is chosen without what follows it";
    return count_columns(k->member[0]) > 0 ? NULL : "the product has no columns";
}

static const char *is_precise(const sn_group *k, const sn_node *n) {
    return sn_epilogue_precision(sn_epilogue_type(k->member[0]), n)
               ? NULL
               : "it is in f64, and the product is not";
}

static const char *on_results(const sn_group *k, const sn_node *n) {
    if (!k->fused) return "the product is chosen without what follows it";
    if (n->rank != k->rank || (k->rank && memcmp(n->shape, k->domain, sizeof(sn_dim) * n->rank)))
        return "its shape is not that of the product's results";
    return is_precise(k, n);
}

static const char *counts_columns(const sn_group *k, const sn_node *n) {
    return n->rank - 1 - sn_attr_int(n, SN_A_axis, 0) < count_columns(k->member[0])
               ? NULL
               : "it is an index of rows, and an epilogue has those of columns";
}

const char *sn_sum_refuses(const sn_group *k, const sn_node *x) {
    const char *why = check_columns(k);
    if (why) return why;
    if (!x || x->dtype != sn_epilogue_type(k->member[0]))
        return "it does not reduce panels of the product's columns";
    return k->pair ? "the product's columns are in pairs" : NULL;
}

static const char *sums_panels(const sn_group *k, const sn_node *n) {
    return sn_sum_refuses(k, sn_panel_sum(n));
}

static const char *splits_rows(const sn_group *k, const sn_node *n) {
    (void)k;
    return splits_panels(n) ? NULL : "it does not split rows into panels";
}

static const char *swaps_columns(const sn_group *k, const sn_node *n) {
    int64_t distance = sn_swap_distance(n);
    if (!distance) return "it looks elements up in memory";
    const char *why = on_results(k, n);
    if (!why) why = check_columns(k);
    if (why || sn_group_pairs(k, distance)) return why;
    bool fits = is_in_panel((sn_dtype)k->member[0]->dtype, distance) && !k->pair &&
                (!k->swap || k->swap == distance);
    return fits ? NULL : "the columns that it swaps are not in registers at once";
}

/* Whether n, a slice of the product's rows, is one half of them. */
static bool is_half(const sn_node *dot, const sn_node *n) {
    const sn_attr *start = sn_attr_get(n, SN_A_start), *step = sn_attr_get(n, SN_A_step);
    const sn_node *x = n->in[0];
    int last = n->rank - 1;
    int64_t from, size, all;
    if (!start || last < 0 || count_columns(dot) != 1 ||
        !sn_dim_is_const(n->m, start->v[last], &from) ||
        !sn_dim_is_const(n->m, n->shape[last], &size) ||
        !sn_dim_is_const(n->m, dot->shape[dot->rank - 1], &all) || 2 * size != all ||
        (from && from != size))
        return false;
    for (int a = 0; a < last; a++)
        if (start->v[a] != 0 || n->shape[a] != x->shape[a]) return false;
    for (int a = 0; step && a < step->n; a++)
        if (step->v[a] != 1) return false;
    return true;
}

static const char *takes_half(const sn_group *k, const sn_node *n) {
    if (!k->fused) return "the product is chosen without what follows it";
    if (!k->packed) return "its weights are not constants in panels";
    return is_half(k->member[0], n) ? NULL : "the product is of more than these two maps";
}

/* A product in panels computes the blocks of columns that n selects, and no others, if each block is
 * whole panels. */
static const char *selects_blocks(const sn_group *k, const sn_node *n) {
    const sn_node *dot = k->member[0], *x = n->in[0];
    int64_t size, panel = sn_panel_columns((sn_dtype)dot->dtype) / (k->pair ? 2 : 1);
    const bool halves = k->pair && k->domain[k->rank - 1] == dot->shape[dot->rank - 1];
    if (!k->packed || count_columns(dot) != 1) return "its weights are not a matrix in panels";
    if (k->swap || k->indexed || halves) return "the epilogue depends on where columns are";
    if (x->dtype != sn_epilogue_type(dot) || x->rank != dot->rank ||
        x->shape[dot->rank - 1] != k->domain[k->rank - 1])
        return "it does not select the product's columns";
    return sn_dim_is_const(n->m, n->shape[n->rank - 1], &size) && size % panel == 0
               ? NULL
               : "its blocks are not whole panels";
}

sn_refusal *const sn_in_epilogue[SN_N_RULES] = {
    [SN_ELEMENTWISE] = on_results,       [SN_OP_arg] = is_precise,
    [SN_OP_const] = is_precise,          [SN_OP_dim_value] = is_precise,
    [SN_OP_broadcast] = is_precise,      [SN_OP_iota] = counts_columns,
    [SN_OP_reduce_sum] = sums_panels,    [SN_OP_reduce_max] = sums_panels,
    [SN_OP_reduce_min] = sums_panels,    [SN_OP_reshape] = splits_rows,
    [SN_OP_gather] = swaps_columns,      [SN_OP_slice] = takes_half,
    [SN_OP_take_blocks] = selects_blocks};

/* ---- prologues of products: whole rows [.., K], and numbers for rows [.., 1], of the product's type ---- */

/* The results of reductions along a row stay in registers. */
static const char *is_one_more(const sn_group *k) {
    return k->reductions < sn_kernels[k->kernel].prologue.reductions ? NULL
                                                                     : "it has too many sums";
}

static const char *on_rows(const sn_group *k, const sn_node *n) {
    return n->dtype == k->member[0]->dtype && n->rank <= k->rank ? NULL
                                                                 : "its type is not the product's";
}

static const char *reduces_row(const sn_group *k, const sn_node *n) {
    const sn_node *x = n->in[0];
    if (!sn_reduces_rows(n) || n->rank != k->rank || n->shape[n->rank - 1] != 1 ||
        x->rank != k->rank || memcmp(x->shape, k->domain, sizeof(sn_dim) * x->rank))
        return "it does not reduce whole rows";
    const char *why = is_one_more(k);
    return why ? why : on_rows(k, n);
}

sn_refusal *const sn_in_prologue[SN_N_RULES] = {
    [SN_ELEMENTWISE] = on_rows,       [SN_OP_arg] = on_rows,
    [SN_OP_const] = on_rows,          [SN_OP_broadcast] = on_rows,
    [SN_OP_reduce_sum] = reduces_row, [SN_OP_reduce_max] = reduces_row};

/* ---- elementwise and row kernels ---- */

static const char *anywhere(const sn_group *k, const sn_node *n) {
    (void)k;
    (void)n;
    return NULL;
}

/* Of the domain's shape, or with one element for each of its rows. */
static const char *in_domain(const sn_group *k, const sn_node *n) {
    const char *other = "its shape is not that of the kernel's domain";
    if (k->rank != n->rank) return other;
    if (!n->rank) return NULL;
    for (int i = 0; i < n->rank - 1; i++)
        if (k->domain[i] != n->shape[i]) return other;
    sn_dim a = k->domain[n->rank - 1], b = n->shape[n->rank - 1];
    return a == b || a == 1 || b == 1 ? NULL : other;
}

static const char *reduces_domain(const sn_group *k, const sn_node *n) {
    return in_domain(k, n->in[0]);
}

#define BODY                                                                                       \
    [SN_OP_arg] = anywhere, [SN_OP_const] = anywhere, [SN_OP_dim_value] = anywhere,                \
    [SN_OP_iota] = anywhere, [SN_OP_broadcast] = anywhere, [SN_OP_random] = in_domain,             \
    [SN_OP_gather] = in_domain, [SN_OP_gather_nd] = in_domain, [SN_OP_take_blocks] = in_domain

sn_refusal *const sn_in_rows[SN_N_RULES] = {[SN_ELEMENTWISE] = in_domain,
                                            BODY,
                                            [SN_OP_reduce_sum] = reduces_domain,
                                            [SN_OP_reduce_max] = reduces_domain,
                                            [SN_OP_reduce_min] = reduces_domain};

sn_refusal *const sn_in_columns[SN_N_RULES] = {[SN_ELEMENTWISE] = in_domain, BODY};

/* ---- rows that a recurrence reads, and rows of its results ---- */

bool sn_spreads_row(const sn_node *n) {
    const sn_node *x = n->op == SN_OP_broadcast ? n->in[0] : NULL;
    if (!x || x->rank != n->rank || !n->rank || x->shape[n->rank - 1] != 1) return false;
    return !memcmp(x->shape, n->shape, sizeof *n->shape * (size_t)(n->rank - 1));
}

bool sn_spreads_constant(const sn_node *n) {
    return n->op == SN_OP_broadcast && n->in[0]->op == SN_OP_const;
}

static bool is_number(const sn_node *n) {
    return sn_dtype_is_float((sn_dtype)n->dtype) || n->dtype == SN_BOOL;
}

static const char *on_numbers(const sn_group *k, const sn_node *n) {
    bool fits = is_number(n) && sn_dtype_size((sn_dtype)n->dtype) != 2;
    for (int i = 0; i < n->n_in; i++) fits &= is_number(n->in[i]);
    if (!fits) return "it has integers, or is rounded to 16 bits";
    return k->type == SN_BOOL || sn_epilogue_precision(k->type, n)
               ? NULL
               : "it is in f64, and the recurrence is not";
}

static const char *sums_row(const sn_group *k, const sn_node *n) {
    const char *why = is_one_more(k);
    if (!sn_reduces_rows(n) || sn_panel_sum(n)) return "it does not sum rows";
    return why ? why : on_numbers(k, n);
}

static const char *spreads(const sn_group *k, const sn_node *n) {
    (void)k;
    return sn_spreads_row(n) || sn_spreads_constant(n) ? NULL : "it does not spread a number";
}

sn_refusal *const sn_in_recurrence[SN_N_RULES] = {[SN_ELEMENTWISE] = on_numbers,
                                                  [SN_OP_arg] = anywhere,
                                                  [SN_OP_const] = anywhere,
                                                  [SN_OP_broadcast] = spreads,
                                                  [SN_OP_reduce_sum] = sums_row};

/* ---- bodies of loops. Types that are rounded between operations are not ---- */

static const char *is_computed(const sn_group *k, const sn_node *n) {
    bool other = n->dtype == SN_I32 || n->dtype == SN_I64 || n->dtype == SN_BOOL;
    if (n->dtype == SN_F32 || n->dtype == SN_F64) other = k->type == SN_BOOL || k->type == n->dtype;
    return other ? NULL
                 : "its type is not that of the other numbers, f32 or f64. Instead: sn_cast it "
                   "before the loop";
}

sn_refusal *const sn_in_scan[SN_N_RULES] = {
    [SN_ELEMENTWISE] = is_computed,   [SN_OP_arg] = is_computed,
    [SN_OP_const] = is_computed,      [SN_OP_dim_value] = is_computed,
    [SN_OP_broadcast] = is_computed,  [SN_OP_reshape] = is_computed,
    [SN_OP_transpose] = is_computed,  [SN_OP_dot] = is_computed,
    [SN_OP_reduce_sum] = is_computed, [SN_OP_reduce_max] = is_computed,
    [SN_OP_reduce_min] = is_computed};

static const char *in_one_type(const sn_group *k, const sn_node *n) {
    return n->dtype == k->type || n->dtype == SN_BOOL ? NULL : "it has another type";
}

static const char *on_elements(const sn_group *k, const sn_node *n) {
    return n->rank == k->rank ? in_one_type(k, n) : "it has another shape";
}

static const char *spreads_constant(const sn_group *k, const sn_node *n) {
    return sn_spreads_constant(n) ? in_one_type(k, n) : "it does not spread a constant";
}

sn_refusal *const sn_in_running[SN_N_RULES] = {[SN_ELEMENTWISE] = on_elements,
                                               [SN_OP_arg] = in_one_type,
                                               [SN_OP_const] = in_one_type,
                                               [SN_OP_broadcast] = spreads_constant};

/* ---- matrices that are packed: elements, and numbers of each group, which is a row ---- */

static const char *on_groups(const sn_group *k, const sn_node *n) {
    return n->dtype == SN_F64 ? "it is in f64" : in_domain(k, n);
}

static const char *reduces_group(const sn_group *k, const sn_node *n) {
    if (!sn_reduces_rows(n) || n->dtype != SN_F32) return "it does not reduce groups";
    const char *why = is_one_more(k);
    return why ? why : in_domain(k, n);
}

sn_refusal *const sn_in_groups[SN_N_RULES] = {
    [SN_ELEMENTWISE] = on_groups,       [SN_OP_arg] = anywhere,
    [SN_OP_const] = anywhere,           [SN_OP_broadcast] = anywhere,
    [SN_OP_reduce_max] = reduces_group, [SN_OP_reduce_min] = reduces_group};

/* ---- scores: scalars, and elements of tensors ---- */

static const char *is_scalar(const sn_group *k, const sn_node *n) {
    (void)k;
    return n->rank ? "it is a tensor" : NULL;
}

sn_refusal *const sn_in_score[SN_N_RULES] = {
    [SN_ELEMENTWISE] = is_scalar,  [SN_OP_arg] = anywhere,        [SN_OP_const] = is_scalar,
    [SN_OP_dim_value] = is_scalar, [SN_OP_broadcast] = is_scalar, [SN_OP_gather_nd] = is_scalar};

/* ---- all kernels ---- */

static sn_refusal *rule_of(sn_kernel_id kernel, sn_kernel_place at, sn_op op) {
    sn_refusal *const *rules = sn_kernels[kernel].computes[at];
    return rules ? rules[sn_ops[op].kind == SN_ELEM ? SN_ELEMENTWISE : (int)op] : NULL;
}

bool sn_kernel_knows(sn_kernel_id kernel, sn_kernel_place at, sn_op op) {
    return rule_of(kernel, at, op) != NULL;
}

const char *sn_kernel_refuses(const sn_group *k, sn_kernel_place at, const sn_node *n) {
    const int max_nodes = sn_kernels[k->kernel].max_nodes;
    sn_refusal *rule = rule_of(k->kernel, at, (sn_op)n->op);
    if (!rule) return "its kernel has no such operation";
    return max_nodes && k->n_member >= max_nodes ? "its kernel is full" : rule(k, n);
}
