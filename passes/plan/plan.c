/* plan.c: from an entry's graph to kernel calls and loops over them: which tensor lives in which buffer,
 * which are only views, which copies are unavoidable, where results can be written in place. Memory
 * is assigned afterwards (memory.c). */
#include "passes/graph_util.h"
#include "passes/kernels/table.h"
#include "passes/plan/collectives.h"
#include "passes/plan/memory.h"
#include "passes/plan/planner.h"
#include "passes/plan/row_blocks.h"
#include "passes/plan/order.h"
#include "passes/plan/overwrite.h"
#include "passes/plan/product.h"
#include "passes/plan/remat.h"
#include "passes/view.h"

#include <string.h>

/* ---- leaves and results ---- */

static int leaf_buffer(sn_planner *p, sn_buffer_kind kind, sn_node *n) {
    const char *name = sn_attr_str(n, SN_A_name, "");
    int b = sn_planner_find_buffer(p, kind, name);
    return b >= 0 ? b : sn_planner_buffer(p, kind, n, name);
}

/* If the only reader of n is a transpose, n is stored in the transposed order directly. The last
 * axis must stay, because kernels write rows. */
static const int64_t *storage_order(const sn_planner *p, const sn_node *n) {
    if (p->users[n->id] != 1 || !p->user[n->id]) return NULL;
    const sn_node *t = p->user[n->id];
    if (t->op != SN_OP_transpose) return NULL;
    const sn_attr *perm = sn_attr_get(t, SN_A_perm);
    return perm->v[perm->n - 1] == perm->n - 1 ? perm->v : NULL;
}

static void fill(sn_planner *p, sn_view dst, double value, const char *why) {
    sn_node *k = sn_b_broadcast(sn_b_const(p->m, dst.dtype, value), dst.rank, dst.shape);
    sn_region *body = sn_region_new(p->m, 0, NULL, 1, &k);
    sn_step *s = sn_planner_step(
        p, sn_node_new(p->m, SN_OP_map_reduce, 0, NULL, SN_ATTRS(SN_REG(body, body))), 0, 1);
    s->out[0] = dst;
    s->why = why;
}

/* ---- one planning function per kind of node ---- */

static void plan_leaf(sn_planner *p, sn_node *n) {
    static const struct {
        sn_op op;
        sn_buffer_kind kind;
    } kinds[] = {
        {SN_OP_input, SN_BUF_INPUT}, {SN_OP_param, SN_BUF_PARAM}, {SN_OP_state, SN_BUF_STATE}};
    for (int i = 0; i < 3; i++)
        if (n->op == kinds[i].op) {
            int b = leaf_buffer(p, kinds[i].kind, n);
            sn_planner_set_view(
                p, n, sn_view_whole(p->m, b, (sn_dtype)n->dtype, n->rank, n->shape, NULL));
        }
}

static void plan_reshape(sn_planner *p, sn_node *n) {
    sn_view from = sn_planner_view(p, n->in[0]), v;
    if (!sn_view_reshape(p->m, &from, n->rank, n->shape, &v)) {
        sn_view packed = sn_planner_fresh(p, n->in[0], NULL);
        sn_planner_copy(p, from, packed,
                        "no strides express this reshape: reshape before transposing, or name the "
                        "axes in sn_einsum");
        sn_view_reshape(p->m, &packed, n->rank, n->shape, &v);
    }
    sn_planner_set_view(p, n, v);
}

static void plan_transpose(sn_planner *p, sn_node *n) {
    sn_view from = sn_planner_view(p, n->in[0]);
    sn_planner_set_view(p, n, sn_view_transpose(&from, sn_attr_get(n, SN_A_perm)->v));
}

static void plan_slice(sn_planner *p, sn_node *n) {
    sn_view from = sn_planner_view(p, n->in[0]);
    const sn_attr *step = sn_attr_get(n, SN_A_step);
    sn_planner_set_view(p, n,
                        sn_view_slice(p->m, &from, sn_attr_get(n, SN_A_start)->v,
                                      sn_attr_get(n, SN_A_size)->v, step ? step->v : NULL));
}

static void plan_broadcast(sn_planner *p, sn_node *n) {
    if (!p->view[n->in[0]->id]) return; /* constants: only inside bodies */
    sn_view from = sn_planner_view(p, n->in[0]);
    sn_planner_set_view(p, n, sn_view_broadcast(&from, n->rank, n->shape));
}

static void plan_result(sn_planner *p, sn_node *n) {
    sn_view *all = p->view[n->in[0]->id];
    sn_planner_set_view(p, n, all[sn_attr_int(n, SN_A_index, 0)]);
}

/* The place of operand i in the memory of a concat. */
static sn_view concat_part(sn_planner *p, const sn_node *n, const sn_view *whole, int i) {
    int64_t axis = sn_attr_int(n, SN_A_axis, 0);
    sn_dim start[SN_MAX_RANK] = {0};
    for (int k = 0; k < i; k++) start[axis] = sn_dim_add(p->m, start[axis], n->in[k]->shape[axis]);
    return sn_view_slice(p->m, whole, start, n->in[i]->shape, NULL);
}

static bool place_in_concat(sn_planner *p, const sn_node *n, sn_view *out);

/* Where a concat is stored: in another one, or by itself. */
static sn_view concat_view(sn_planner *p, const sn_node *n) {
    sn_view whole;
    if (p->view[n->id]) return sn_planner_view(p, n);
    if (!place_in_concat(p, n, &whole)) whole = sn_planner_fresh(p, n, storage_order(p, n));
    sn_planner_set_view(p, n, whole);
    return whole;
}

static void plan_concat(sn_planner *p, sn_node *n) {
    sn_view whole = concat_view(p, n);
    for (int i = 0; i < n->n_in; i++) {
        sn_view to = concat_part(p, n, &whole, i), from = sn_planner_view(p, n->in[i]);
        if (from.buffer != to.buffer || !sn_view_matches(&from, &to))
            sn_planner_copy(p, from, to,
                            "a part of a concat that is an input, or is read elsewhere too");
    }
}

/* If n is read only by views that end in a concat, n's place in it; between exchanges its last reader
 * may be the concat. False: it is not. */
static bool place_in_concat(sn_planner *p, const sn_node *n, sn_view *out) {
    const sn_node *chain[SN_MAX_RANK], *c = n;
    int n_chain = 0, which = -1;
    while (c->op != SN_OP_concat || c == n) {
        bool step = c == n || c->op == SN_OP_transpose || c->op == SN_OP_reshape;
        bool alone = p->users[c->id] == 1 || (p->exchanges && c == n);
        if (!step || n_chain == SN_MAX_RANK || !alone || !p->user[c->id]) return false;
        chain[n_chain++] = c;
        c = p->user[c->id];
    }
    for (int i = 0; i < c->n_in; i++)
        if (c->in[i] == chain[n_chain - 1]) which = i;
    if (which < 0 || c->dtype != n->dtype) return false;
    sn_view whole = concat_view(p, c), v = concat_part(p, c, &whole, which);
    while (--n_chain > 0) { /* from the concat back to n */
        const sn_node *x = chain[n_chain];
        sn_view before;
        if (x->op == SN_OP_transpose) {
            int64_t back[SN_MAX_RANK];
            for (int a = 0; a < x->rank; a++) back[sn_attr_get(x, SN_A_perm)->v[a]] = a;
            before = sn_view_transpose(&v, back);
        } else if (!sn_view_reshape(p->m, &v, x->in[0]->rank, x->in[0]->shape, &before)) {
            return false;
        }
        v = before;
    }
    *out = v;
    return v.rank && v.stride[v.rank - 1] == 1;
}

static void plan_pad(sn_planner *p, sn_node *n) {
    sn_view whole = sn_planner_fresh(p, n, NULL);
    fill(p, whole, sn_attr_flt(n, SN_A_value, 0), "the constant around what is padded");
    sn_planner_copy(p, sn_planner_view(p, n->in[0]),
                    sn_view_slice(p->m, &whole, sn_attr_get(n, SN_A_low)->v, n->in[0]->shape, NULL),
                    "into the padded tensor");
    sn_planner_set_view(p, n, whole);
}

#define KEPT "what is updated has other readers, or is an input: nothing may be written there"

static bool assigned(const sn_planner *p, const char *state) {
    for (int i = 0; i < p->entry->n_assign; i++)
        if (!strcmp(p->entry->assign[i].name, state)) return true;
    return false;
}

/* Whether x's memory may be overwritten: x has no other reader, and is a temporary or a state that
 * is assigned anyway. */
static bool may_overwrite(const sn_planner *p, const sn_node *x) {
    const sn_view *v = p->view[x->id];
    const sn_buffer *b = &p->plan->buffer[v->buffer];
    if (p->users[x->id] != 1 || sn_is_view(x)) return false;
    return b->kind == SN_BUF_TEMP || (b->kind == SN_BUF_STATE && assigned(p, b->name));
}

static void plan_update_slice(sn_planner *p, sn_node *n) {
    sn_view x = sn_planner_view(p, n->in[0]), whole = x;
    if (!may_overwrite(p, n->in[0])) {
        whole = sn_planner_fresh(p, n, NULL);
        sn_planner_copy(p, x, whole, KEPT);
    }
    sn_planner_copy(
        p, sn_planner_view(p, n->in[1]),
        sn_view_slice(p->m, &whole, sn_attr_get(n, SN_A_start)->v, n->in[1]->shape, NULL),
        "the update, into its place");
    sn_planner_set_view(p, n, whole);
}

/* Like update_slice; the step reads the update and the positions, and writes into x. */
static void plan_update_rows(sn_planner *p, sn_node *n) {
    sn_view x = sn_planner_view(p, n->in[0]), y = sn_planner_view(p, n->in[1]),
            ids = sn_planner_view(p, n->in[2]);
    sn_view whole = x;
    if (!may_overwrite(p, n->in[0])) {
        whole = sn_planner_fresh(p, n, NULL);
        sn_planner_copy(p, x, whole, KEPT);
    }
    sn_step *s = sn_planner_step(p, n, 2, 1);
    s->in[0] = y;
    s->in[1] = ids;
    s->out[0] = whole;
    sn_planner_set_view(p, n, whole);
}

#define CONTIGUOUS "the kernel needs contiguous rows"
#define MATRIX                                                                                     \
    "a product needs rows or columns that are contiguous: leave transpositions to sn_einsum"

/* Gives operand i of the step (the last one of the plan) a contiguous copy of this view, with the
 * axes stored in this order (NULL: unchanged), made by a step inserted before it. */
static void copy_operand(sn_planner *p, sn_step *s, int i, sn_view from, const int64_t *order,
                         const char *why) {
    sn_step kernel = *s;
    p->plan->n_step--;
    int b = sn_planner_buffer(p, p->local ? SN_BUF_LOCAL : SN_BUF_TEMP, kernel.node, NULL);
    sn_view packed = sn_view_whole(p->m, b, from.dtype, from.rank, from.shape, order);
    p->plan->buffer[b].dtype = from.dtype;
    p->plan->buffer[b].count = sn_dim_product(p->m, from.rank, from.shape);
    sn_planner_copy(p, from, packed, why);
    kernel.in[i] = packed;
    *sn_planner_step(p, kernel.node, 0, 0) = kernel;
}

static void copy_factor(sn_planner *p, sn_step *s, int i) {
    int64_t order[SN_MAX_RANK];
    sn_product_order(p->m, s, i, order);
    copy_operand(p, s, i, s->in[i], order, MATRIX);
}

static sn_step *last_step(const sn_planner *p) {
    return &p->plan->step[p->plan->n_step - 1];
}

/* Products need matrices: an operand that cannot be walked as one is copied, and a result that was
 * to be stored transposed is not. */
static void fit_product(sn_planner *p, sn_node *n) {
    int bad;
    for (int guard = 0;
         guard < 2 * SN_MAX_RANK + n->n_in && (bad = sn_product_views(p->m, last_step(p))) >= 0;
         guard++) {
        sn_step *s = last_step(p);
        if (bad < 2)
            copy_factor(p, s, bad);
        else if (bad < sn_kernel_prologue_operand(n))
            copy_operand(p, s, bad, s->in[bad], NULL, CONTIGUOUS);
        /* broadcast over the result (or the left factor, for the prologue): repeated axes are in
         * the way, too */
        else if (bad < s->n_in) {
            bool left = bad < sn_kernel_region_operand(n);
            const sn_view *a = &s->in[0];
            sn_view wide = left ? sn_view_broadcast(&s->in[bad], a->rank, a->shape)
                                : sn_product_broadcast(p->m, s, bad);
            copy_operand(p, s, bad, wide, NULL, "the epilogue reads a tensor that repeats");
        } else {
            const sn_node *type = n->n_result > 1 ? n->result_type[bad - s->n_in] : n;
            s->out[bad - s->n_in] =
                sn_view_whole(p->m, s->out[bad - s->n_in].buffer, (sn_dtype)type->dtype, type->rank,
                              type->shape, NULL);
            p->view[n->id][bad - s->n_in] = s->out[bad - s->n_in];
        }
    }
    if (bad >= 0)
        sn_module_fail(p->m, SN_ERR_INTERNAL, "a product has too many batch axes for its kernel");
    bool primitive = bad < 0 && sn_attr_get(n, SN_A_backend);
    for (int guard = 0; guard < 4 && primitive && (bad = sn_product_unfit(last_step(p))) >= 0;
         guard++)
        copy_operand(p, last_step(p), bad, last_step(p)->in[bad], NULL,
                     "the library has no kernel for this layout");
}

static void plan_single_iteration(sn_planner *p, int i);

/* Result i of n as its readers see it; NULL: there are none. */
static const sn_node *reader_of(const sn_planner *p, const sn_node *n, int i) {
    if (n->n_result == 1) return n;
    for (uint32_t id = n->id + 1; id < p->n_id; id++) {
        const sn_node *r = sn_module_node(p->m, id);
        if (r->op == SN_OP_result && r->in[0] == n && p->users[r->id] &&
            sn_attr_int(r, SN_A_index, 0) == i)
            return r;
    }
    return NULL;
}

/* Whether anybody reads result i of n or a later one. */
static bool is_read_from(const sn_planner *p, const sn_node *n, int i) {
    while (i < n->n_result && !reader_of(p, n, i)) i++;
    return i < n->n_result;
}

/* The order of axes in which results of a running sum are stored: that of the sequence x if its rows are
 * in memory along axis 0. */
static const int64_t *order_of_sequence(const sn_view *x, const int64_t *otherwise,
                                        int64_t *order) {
    if (x->stride[0] != 1 || x->shape[x->rank - 1] == 1) return otherwise;
    for (int a = 0; a < x->rank; a++) order[a] = (a + 1) % x->rank;
    return order;
}

static void plan_kernel(sn_planner *p, sn_node *n) {
    /* an exchange does not read what it has waited for, which may be overwritten meanwhile */
    int n_in = n->op == SN_OP_collective_permute ? 1 : n->n_in;
    sn_step *s = sn_planner_step(p, n, n_in, n->n_result);
    const sn_kernel_traits *kernel = sn_kernel_of(n);
    for (int i = 0; i < n_in; i++) s->in[i] = sn_planner_view(p, n->in[i]);
    for (int i = 0; i < n->n_result; i++) {
        const sn_node *type = n->n_result > 1 ? n->result_type[i] : n;
        const sn_node *reader = reader_of(p, n, i);
        if (kernel->optional_result && i >= kernel->optional_result && !is_read_from(p, n, i)) {
            s->n_out = i;
            break;
        }
        bool whole = !reader || kernel->contiguous;
        if (kernel->writes_into_concat && reader && place_in_concat(p, reader, &s->out[i]))
            continue;
        const int64_t *axes = NULL;
        const char *target =
            p->inside ? NULL : sn_inplace_target(p->entry, p->order, p->at, i, &axes);
        const int64_t *order = whole ? NULL : storage_order(p, reader);
        int64_t along[SN_MAX_RANK];
        if (reader && kernel->follows_sequence && type->rank == s->in[1].rank)
            order = order_of_sequence(&s->in[1], order, along);
        s->out[i] =
            target ? sn_planner_state(p, type, target, axes) : sn_planner_fresh(p, type, order);
    }
    p->view[n->id] =
        sn_arena_alloc(p->m, sizeof *s->out * n->n_result); /* the step's may be reordered */
    memcpy(p->view[n->id], s->out, sizeof *s->out * n->n_result);
    for (int i = 0; i < n_in; i++) {
        sn_view v = last_step(p)->in[i];
        bool rows = i < 32 && kernel->unit_rows >> i & 1;
        if ((rows && v.stride[v.rank - 1] != 1) ||
            (kernel->contiguous && !sn_view_contiguous(p->m, &v)))
            copy_operand(p, last_step(p), i, v, NULL, CONTIGUOUS);
    }
    /* the host adds to the operand of a sum */
    if (n->op == SN_OP_reduce_scatter && !may_overwrite(p, n->in[0]))
        copy_operand(p, last_step(p), 0, last_step(p)->in[0], NULL,
                     "a sum over ranks is computed in place, and its operand is read elsewhere");
    if (kernel->contraction) fit_product(p, n);
    for (int i = 0; n->op == SN_OP_map_reduce && i < n->n_in; i++)
        if (last_step(p)->when == SN_ALWAYS) plan_single_iteration(p, i);
    if (n->op == SN_OP_pack_b && !sn_pack_view(p->m, s)) {
        copy_factor(p, last_step(p), 0);
        sn_pack_view(p->m, last_step(p));
    }
}

/* ---- row blocks ---- */

static void plan_node(sn_planner *p, sn_node *n);

/* Adds up the partial sums x that the steps from `first` on compute in each iteration. */
static sn_view sum_over_rows(sn_planner *p, int first, const sn_node *x) {
    sn_view part = sn_planner_view(p, x), sum;
    for (int i = first; i < p->plan->n_step; i++) {
        sn_node *n = p->plan->step[i].node;
        if (!sn_kernel_of(n)->contraction || n->n_result > 1 || sn_attr_get(n, SN_A_epilogue) ||
            p->plan->step[i].out[0].buffer != part.buffer)
            continue;
        sn_step *t = sn_planner_step(p, sn_row_blocks_add_product(n), n->n_in + 1, 1);
        sn_step *s = &p->plan->step[i];
        memcpy(t->in, s->in, sizeof *t->in * n->n_in);
        t->in[n->n_in] = t->out[0] = s->out[0];
        s->when = SN_IF_FIRST;
        t->when = SN_IF_LATER;
        return part;
    }
    sum = sn_planner_fresh(p, x, NULL);
    sn_planner_copy(p, part, sum, "the sum of the loop's first rows");
    last_step(p)->when = SN_IF_FIRST;
    sn_step *t = sn_planner_step(p, sn_row_blocks_add(p->m, &sum), 2, 1);
    t->in[0] = t->out[0] = sum;
    t->in[1] = part;
    t->when = SN_IF_LATER;
    return sum;
}

/* An operand of the loop. Inside, the rows' dim is the length of an iteration, so no stride may be
 * that: such a tensor (a transposed one) is copied. */
static sn_view loop_operand(sn_planner *p, sn_node *x, sn_dim rows) {
    sn_view v = sn_planner_view(p, x);
    bool transposed = false;
    for (int a = 0; a < v.rank; a++) transposed |= v.stride[a] == rows;
    if (!transposed) return v;
    sn_view plain = sn_planner_fresh(p, x, NULL);
    sn_planner_copy(p, v, plain, "a loop over rows needs them contiguous");
    return plain;
}

static void plan_row_blocked(sn_planner *p, sn_node *n) {
    const sn_region *body = sn_attr_region(n, SN_A_body);
    sn_dim rows = sn_attr_get(n, SN_A_dim)->i;
    sn_order order = sn_region_topo(p->m, body);
    sn_view *result = sn_arena_alloc(p->m, sizeof *result * (size_t)(n->n_result + 1));
    /* another row_blocked node may have the same body, whose views are those of its own operands */
    for (int i = 0; i < order.n; i++) p->view[order.node[i]->id] = NULL;
    for (int i = 0; i < body->n_arg; i++)
        sn_planner_set_view(p, body->arg[i], loop_operand(p, n->in[i], rows));
    int first = p->plan->n_step, first_buffer = p->plan->n_buffer;
    p->inside = true;
    for (int i = 0; i < order.n; i++)
        if (order.node[i]->op != SN_OP_arg) plan_node(p, order.node[i]);
    for (int i = 0; i < n->n_result; i++) {
        const sn_node *x = body->out[i];
        bool of_rows = x->rank && x->shape[0] == rows;
        result[i] = of_rows ? sn_planner_view(p, x) : sum_over_rows(p, first, x);
    }
    p->inside = false;
    sn_row_blocks_fold(p, n, first, first_buffer, result);
    p->view[n->id] = result;
}

static sn_step *find_step(const sn_planner *p, const sn_node *n) {
    for (int i = 0; i < p->plan->n_step; i++)
        if (p->plan->step[i].node == n) return &p->plan->step[i];
    return NULL;
}

/* The last step, a product, makes reductions along rows over panels: stores these separately, rows
 * of one panel together, and completes them. */
static void end_row_sums(sn_planner *p) {
    int at = p->plan->n_step - 1;
    const sn_region *epi = sn_attr_region(last_step(p)->node, SN_A_epilogue);
    for (int o = 0; o < epi->n_out; o++) {
        sn_step *product = &p->plan->step[at], *end;
        if (!sn_product_sums(product, o)) continue;
        const sn_node *sums = epi->out[o];
        sn_view to = product->out[o], panels = sn_planner_fresh(p, sums, NULL);
        sn_dim rows = sums->shape[0], count = sums->shape[1];
        panels.rank = to.rank = 2;
        panels.shape[0] = rows, panels.shape[1] = count;
        panels.stride[0] = 1, panels.stride[1] = rows;
        product->out[o] = panels;
        end = sn_planner_step(p, sn_row_blocks_end_sums(sums, (sn_op)sums->op), 1, 1);
        product = &p->plan->step[at];
        end->in[0] = sn_view_transpose(&panels, (const int64_t[]){1, 0});
        end->out[0] = sn_view_transpose(&to, (const int64_t[]){1, 0});
        end->when = product->when;
        end->rows = product->rows;
        end->block_rows = product->block_rows;
    }
}

/* The last step, a kernel, is the only reader of its operand i, a sum over rows. If there is a
 * single iteration, the sum is not stored: the product runs now, with the kernel as its
 * epilogue. */
static void plan_single_iteration(sn_planner *p, int i) {
    sn_node *n = last_step(p)->node, *x = n->in[i];
    if (x->op != SN_OP_result || x->in[0]->op != SN_OP_row_blocked || p->users[x->id] != 1) return;
    const sn_step loop = *find_step(p, x->in[0]);
    int index = (int)sn_attr_int(x, SN_A_index, 0);
    sn_step *product = sn_row_blocks_product(&loop, index);
    sn_node *all = product ? sn_row_blocks_epilogue(product->node, n, i) : NULL;
    if (!all) return;
    sn_buffer *sum = &p->plan->buffer[loop.out[index].buffer];
    sum->rows = sn_attr_get(x->in[0], SN_A_dim)->i;
    sum->row_limit = sn_attr_int(x->in[0], SN_A_rows, 1);
    sn_step *s = last_step(p), *t;
    product->rows = s->rows = sum->rows;
    product->block_rows = s->block_rows = sum->row_limit;
    s->when = SN_IF_SEVERAL;
    t = sn_planner_step(p, all, all->n_in, n->n_result);
    s = t - 1;
    for (int k = 0; k < 2; k++) {
        t->in[k] = product->in[k];
        t->in[k].buffer = sn_view_of(&loop, product->in[k].buffer)->buffer;
        t->in[k].row_stride = 0;
    }
    for (int k = 0, at = 2; k < n->n_in; k++)
        if (k != i) t->in[at++] = sn_view_broadcast(&s->in[k], 2, product->node->shape);
    memcpy(t->out, s->out, sizeof *t->out * n->n_result);
    t->when = SN_IF_SINGLE;
    t->rows = s->rows;
    t->block_rows = s->block_rows;
    end_row_sums(p);
}

static void plan_node(sn_planner *p, sn_node *n) {
    static void (*const table[SN_OP_COUNT])(sn_planner *, sn_node *) = {
        [SN_OP_input] = plan_leaf,
        [SN_OP_param] = plan_leaf,
        [SN_OP_state] = plan_leaf,
        [SN_OP_const] = plan_leaf,
        [SN_OP_iota] = plan_leaf,
        [SN_OP_dim_value] = plan_leaf,
        [SN_OP_reshape] = plan_reshape,
        [SN_OP_transpose] = plan_transpose,
        [SN_OP_slice] = plan_slice,
        [SN_OP_broadcast] = plan_broadcast,
        [SN_OP_result] = plan_result,
        [SN_OP_concat] = plan_concat,
        [SN_OP_pad] = plan_pad,
        [SN_OP_update_slice] = plan_update_slice,
        [SN_OP_update_rows] = plan_update_rows,
        [SN_OP_row_blocked] = plan_row_blocked,
        [SN_OP_scan] = sn_planner_scan,
    };
    sn_module_set_loc(p->m, n->loc); /* of the copies that this creates */
    (table[n->op] ? table[n->op] : plan_kernel)(p, n);
}

/* ---- roots ---- */

/* The output's tensor becomes the caller's buffer if it is a whole temporary that no other output
 * uses. */
static void plan_output(sn_planner *p, const sn_binding *o) {
    sn_view v = sn_planner_view(p, o->node);
    sn_buffer *b = &p->plan->buffer[v.buffer];
    bool whole = b->kind == SN_BUF_TEMP && v.offset == 0 && sn_view_contiguous(p->m, &v) &&
                 sn_dim_product(p->m, v.rank, v.shape) == b->count;
    if (whole) {
        b->kind = SN_BUF_OUTPUT;
        b->name = o->name;
        return;
    }
    int out = sn_planner_buffer(p, SN_BUF_OUTPUT, o->node, o->name);
    sn_planner_copy(p, v, sn_view_whole(p->m, out, v.dtype, v.rank, v.shape, NULL),
                    "an output that is a view, or has other readers");
}

/* ---- assignments: all sources are read before any state is written ---- */

static int state_of(sn_planner *p, const sn_binding *a) {
    int b = sn_planner_find_buffer(p, SN_BUF_STATE, a->name);
    return b >= 0 ? b : sn_planner_buffer(p, SN_BUF_STATE, a->node, a->name);
}

/* Whether the new value is already in place. */
static bool in_place(sn_planner *p, const sn_binding *a) {
    sn_view v = sn_planner_view(p, a->node);
    return v.buffer == state_of(p, a) && v.offset == 0 && sn_view_contiguous(p->m, &v) &&
           sn_dim_product(p->m, v.rank, v.shape) == p->plan->buffer[v.buffer].count;
}

static bool will_be_written(sn_planner *p, int buffer) {
    for (int i = 0; i < p->entry->n_assign; i++)
        if (state_of(p, &p->entry->assign[i]) == buffer && !in_place(p, &p->entry->assign[i]))
            return true;
    return false;
}

static void plan_assigns(sn_planner *p) {
    int n = p->entry->n_assign;
    sn_view *from = sn_arena_alloc(p->m, sizeof *from * (size_t)(n + 1));
    for (int i = 0; i < n; i++) {
        const sn_binding *a = &p->entry->assign[i];
        from[i] = sn_planner_view(p, a->node);
        if (in_place(p, a) || !will_be_written(p, from[i].buffer)) continue;
        sn_view kept = sn_planner_fresh(p, a->node, NULL);
        sn_planner_copy(p, from[i], kept, "its state is assigned before another reads it");
        from[i] = kept;
    }
    for (int i = 0; i < n; i++) {
        const sn_binding *a = &p->entry->assign[i];
        const sn_node *t = a->node;
        if (in_place(p, a)) continue;
        sn_planner_copy(
            p, from[i],
            sn_view_whole(p->m, state_of(p, a), (sn_dtype)t->dtype, t->rank, t->shape, NULL),
            "into a state");
    }
}

static void count_users(sn_planner *p, sn_order order) {
    for (int i = 0; i < order.n; i++) {
        p->exchanges |= order.node[i]->op == SN_OP_collective_permute;
        for (int j = 0; j < order.node[i]->n_in; j++) {
            const sn_node *x = order.node[i]->in[j];
            p->users[x->id]++;
            p->user[x->id] = order.node[i];
        }
    }
    for (int i = 0; i < p->entry->n_output; i++) p->users[p->entry->output[i].node->id]++;
    for (int i = 0; i < p->entry->n_assign; i++) p->users[p->entry->assign[i].node->id]++;
}

/* In the order in which the model declares them, which is the order of their numbers: an artefact's
 * functions take them in this order, whatever the passes do. */
static void collect_inputs(sn_planner *p, sn_order order) {
    p->plan->input = sn_arena_alloc(p->m, sizeof *p->plan->input * (size_t)(order.n + 1));
    for (int i = 0; i < order.n; i++) {
        sn_node *x = order.node[i];
        if (x->op != SN_OP_input) continue;
        int at = p->plan->n_input++;
        for (; at > 0 && p->plan->input[at - 1].node->id > x->id; at--)
            p->plan->input[at] = p->plan->input[at - 1];
        p->plan->input[at] = (sn_binding){sn_attr_str(x, SN_A_name, ""), x};
    }
}

/* ---- the stages ---- */

static bool plan_order(sn_planner *p) {
    p->order = sn_plan_order(p->m, p->entry);
    return true;
}

static bool plan_calls(sn_planner *p) {
    const sn_entry *e = p->entry;
    size_t n = sn_module_node_count(p->m);
    p->n_id = (uint32_t)n;
    p->view = sn_arena_alloc(p->m, sizeof *p->view * n);
    p->users = sn_arena_alloc(p->m, sizeof *p->users * n);
    p->user = sn_arena_alloc(p->m, sizeof *p->user * n);
    count_users(p, p->order);
    collect_inputs(p, p->order);
    for (p->at = 0; p->at < p->order.n; p->at++) plan_node(p, p->order.node[p->at]);
    /* Outputs first: one of them may be a state's value at the start. */
    for (int i = 0; i < e->n_output; i++) plan_output(p, &e->output[i]);
    plan_assigns(p);
    return !sn_module_error(p->m)->code;
}

static bool plan_remat(sn_planner *p) {
    return !p->budget || sn_plan_remat(p->plan, p->budget);
}

static bool plan_collectives(sn_planner *p) {
    if (p->exchanges || sn_debug_get()->overwrite) sn_plan_overwrite(p->plan);
    sn_plan_collectives(p->plan);
    return true;
}

static bool plan_memory(sn_planner *p) {
    p->plan->pack_slots |= p->exchanges;
    sn_plan_memory(p->plan);
    return true;
}

typedef struct plan_stage {
    sn_stage_id id;
    bool (*run)(sn_planner *p);
} plan_stage;

static const plan_stage stages[] = {
#define STAGE_MODEL(name)
#define STAGE_PROGRAM(name)
#define STAGE_PASS(name)
#define STAGE_PLAN(name) {SN_STAGE_##name, plan_##name},
#define STAGE(kind, name, ...) STAGE_##kind(name)
#define PASS(...)
#define PART(...)
#include "passes/stages.def"
};

sn_plan *sn_plan_make(sn_module *m, const sn_entry *e, const sn_budget *budget) {
    sn_planner p = {
        .m = m, .entry = e, .budget = budget, .plan = sn_arena_alloc(m, sizeof *p.plan)};
    p.node = plan_node;
    p.plan->m = m;
    p.plan->entry = e;
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        double begin = sn_stage_begin();
        if (!stages[i].run(&p)) return NULL;
        sn_stage_end(stages[i].id, begin, -1);
    }
    return p.plan;
}
