/* fused_recurrence.c: what makes the rows that a linear recurrence reads becomes part of its kernel:
 * elementwise operations, such as gates and scaled copies, and norms, which are sums along a row. The
 * views between them and the recurrence, which split heads and bring the sequence to the front, move
 * below them, to tensors in memory:
 *     recurrence(S, moved f(x), moved g(x, y)) = fused_recurrence(S, moved x, moved y)
 *
 * A value is computed in the kernel if nothing but recurrences needs it, and it does not belong to the
 * epilogue of a product, which has it in registers. Several recurrences, or blocks of columns of one,
 * each compute it: a value stays in memory if recomputing it for the second and later readers costs more
 * than SN_COST_STORE_LOAD. A single number for each row is loaded, which is faster than computing it,
 * unless it is made of a sum along the row.
 *
 * Requires primitives. Keeps values. Terminates: each recurrence is looked at once. */
#include "passes/absorb.h"
#include "passes/graph_util.h"
#include "passes/holds.h"
#include "passes/kernels/costs.h"
#include "passes/passes.h"
#include "passes/view.h"

#include <string.h>

enum { BITS = 64 };

typedef struct finder {
    sn_module *m;
    sn_order order;
    int n_root;
    sn_node *const *root;
    sn_node **recurrence; /* [n_recurrence] those that are not fused_recurrence */
    int n_recurrence, n_word;
    bool *stored; /* by id: must be in memory, or belongs to another kernel */
    uint64_t
        *readers; /* by id: [n_word] bits of the recurrences that read it, through other values */
} finder;

/* ---- which values ---- */

static int blocks_of(const finder *f, const sn_node *n) {
    const sn_node *start = n->in[SN_REC_START];
    int64_t V,
        columns = sn_kernel_of(n)->prologue.row_bytes / (int64_t)sn_dtype_size((sn_dtype)n->dtype);
    bool known = sn_dim_is_const(f->m, start->shape[start->rank - 1], &V);
    return !known || sn_attr_int(n, SN_A_gradient, 0) ? 1 : (int)((V + columns - 1) / columns);
}

static uint64_t *readers_of(const finder *f, const sn_node *n) {
    return f->readers + (size_t)n->id * (size_t)f->n_word;
}

static int number_of(const finder *f, const sn_node *recurrence) {
    for (int i = 0; i < f->n_recurrence; i++)
        if (f->recurrence[i] == recurrence) return i;
    return -1;
}

/* How many operands of a recurrence, from Q on, its prologue may make: not a gradient's last carry. */
static int n_rows(const sn_node *n) {
    return n->n_in - 1 - (int)sn_attr_int(n, SN_A_gradient, 0);
}

/* Users come after what they read. */
static void find_readers(finder *f) {
    for (int i = 0; i < f->n_root; i++) f->stored[f->root[i]->id] = true;
    for (int at = f->order.n; at-- > 0;) {
        const sn_node *n = f->order.node[at];
        const int which = n->op == SN_OP_recurrence ? number_of(f, n) : -1;
        const bool passes = sn_moves(n) || (sn_is_row_work(n) && !f->stored[n->id]);
        for (int i = 0; i < n->n_in; i++) {
            const sn_node *x = n->in[i];
            if (which >= 0 && i != SN_REC_START && i <= n_rows(n)) {
                readers_of(f, x)[which / BITS] |= 1ull << which % BITS;
                continue;
            }
            f->stored[x->id] |= !passes || f->stored[n->id];
            for (int w = 0; w < f->n_word && passes; w++)
                readers_of(f, x)[w] |= readers_of(f, n)[w];
        }
    }
}

static int times_computed(const finder *f, const sn_node *n) {
    int times = 0;
    for (int i = 0; i < f->n_recurrence; i++)
        if (readers_of(f, n)[i / BITS] >> i % BITS & 1) times += blocks_of(f, f->recurrence[i]);
    return times;
}

/* Whether n is one number for each row of a recurrence that reads it. */
static bool is_of_rows(const finder *f, const sn_node *n) {
    for (int i = 0; i < f->n_recurrence; i++) {
        const sn_node *q = f->recurrence[i]->in[SN_REC_Q];
        if (readers_of(f, n)[i / BITS] >> i % BITS & 1)
            return sn_dim_product(f->m, n->rank, n->shape) ==
                   sn_dim_product(f->m, q->rank - 1, q->shape);
    }
    return false;
}

/* Keeps values in memory that cost too much. Returns whether there are any. */
static bool find_costly(finder *f) {
    const size_t count = sn_module_node_count(f->m);
    int *cost = sn_arena_alloc(f->m, sizeof *cost * count);
    bool *of_sums = sn_arena_alloc(f->m, count), any = false;
    for (int at = 0; at < f->order.n; at++) {
        const sn_node *n = f->order.node[at];
        if (f->stored[n->id] || !sn_is_row_work(n)) continue;
        bool of_row = n->rank && n->shape[n->rank - 1] != 1 && n->op != SN_OP_broadcast;
        cost[n->id] = sn_cost_of(n, of_row);
        of_sums[n->id] = n->op == SN_OP_reduce_sum;
        for (int i = 0; i < n->n_in; i++) {
            const sn_node *x = sn_below_moves(n->in[i]);
            cost[n->id] += cost[x->id];
            of_sums[n->id] |= of_sums[x->id];
        }
        bool worth = !is_of_rows(f, n) || (of_sums[n->id] && !sn_is_expensive(n));
        if (worth && cost[n->id] * (times_computed(f, n) - 1) <= SN_COST_STORE_LOAD) continue;
        any = f->stored[n->id] = true;
        of_sums[n->id] = false;
        cost[n->id] = 0;
    }
    return any;
}

/* What is made of elements that are picked by index, such as shifted rows of a convolution, element by element, stays
 * in memory where that ends: a kernel of its own picks them, which a prologue cannot do. */
static void store_picked(finder *f) {
    const size_t count = sn_module_node_count(f->m);
    int *uses = sn_arena_alloc(f->m, sizeof *uses * count);
    bool *picked = sn_arena_alloc(f->m, count), *goes_on = sn_arena_alloc(f->m, count);
    for (int i = 0; i < f->order.n; i++) {
        const sn_node *n = f->order.node[i];
        bool elementwise = sn_is_elementwise(n) && sn_is_row_work(n);
        picked[n->id] = sn_reads_far(n, 0);
        for (int k = 0; k < n->n_in; k++) {
            uses[n->in[k]->id]++;
            goes_on[n->in[k]->id] = elementwise;
            picked[n->id] |= elementwise && picked[n->in[k]->id];
        }
    }
    for (int i = 0; i < f->order.n; i++) {
        const sn_node *n = f->order.node[i];
        if (sn_is_elementwise(n) && picked[n->id])
            f->stored[n->id] |= uses[n->id] != 1 || !goes_on[n->id];
    }
}

static void analyse(finder *f) {
    const size_t n = sn_module_node_count(f->m);
    f->order = sn_topo(f->m, f->n_root, f->root);
    f->recurrence = sn_arena_alloc(f->m, sizeof *f->recurrence * (size_t)f->order.n);
    for (int i = 0; i < f->order.n; i++)
        if (f->order.node[i]->op == SN_OP_recurrence)
            f->recurrence[f->n_recurrence++] = f->order.node[i];
    f->n_word = (f->n_recurrence + BITS - 1) / BITS;
    f->readers = sn_arena_alloc(f->m, sizeof *f->readers * n * (size_t)f->n_word);
    f->stored = sn_find_in_products(f->m, f->order, f->n_root, f->root);
    store_picked(f);
    find_readers(f);
    if (find_costly(f)) find_readers(f); /* what only they need */
}

/* ---- the prologue of a recurrence ---- */

typedef struct builder {
    const finder *f;
    sn_group kernel;
    int n_source;
    bool full;
    const sn_node **absorbed; /* [kernel.n_member] */
    sn_node *source[SN_REC_SOURCES + SN_MAX_REC_IN];
} builder;

/* x, which has the shape of what the views move, or one element for each of its rows, moved by them. */
static sn_node *moved(const sn_views *v, sn_node *x) {
    for (; v; v = v->next) x = sn_view_apply(v->view, x);
    return x;
}

static sn_node *source(builder *b, sn_node *x, const sn_views *v) {
    x = moved(v, x);
    for (int i = 0; i < b->n_source; i++)
        if (b->source[i] == x) return x;
    if (b->n_source == SN_REC_SOURCES)
        b->full = true;
    else
        b->source[b->n_source++] = x;
    return x;
}

/* n, moved by the views, in terms of tensors in memory. */
static sn_node *take(builder *b, sn_node *n, const sn_views *v) {
    sn_node *x[SN_MAX_RANK];
    const bool sums = n->op == SN_OP_reduce_sum;
    if (sn_moves(n)) return take(b, n->in[0], &(sn_views){n, v});
    if (n->op == SN_OP_const && !v) return n;
    if (sn_spreads_constant(n)) {
        const sn_node *like = moved(v, n);
        return sn_b_broadcast(n->in[0], like->rank, like->shape);
    }
    if (!n->n_in || b->f->stored[n->id] || sn_kernel_refuses(&b->kernel, SN_IN_PROLOGUE, n) ||
        ((sums || n->op == SN_OP_broadcast) && !sn_views_keep_rows(v)))
        return source(b, n, v);
    b->absorbed[b->kernel.n_member++] = n;
    b->kernel.reductions += sums;
    if (n->op == SN_OP_broadcast) {
        const sn_node *like = moved(v, n);
        return sn_b_broadcast(take(b, n->in[0], v), like->rank, like->shape);
    }
    if (sums) {
        x[0] = take(b, n->in[0], v);
        int64_t last = x[0]->rank - 1;
        return sn_b_reduce(SN_OP_reduce_sum, x[0], 1, &last);
    }
    for (int i = 0; i < n->n_in; i++) x[i] = take(b, n->in[i], v);
    return sn_node_new(n->m, (sn_op)n->op, n->n_in, x, n->n_attr, n->attr);
}

/* Whether a source from number `first` on would be a copy that repeats elements: no strides express
 * it, as where columns that other columns repeat become one axis with them. */
static bool are_repeated(const builder *b, int first) {
    sn_view v;
    for (int i = first; i < b->n_source; i++) {
        const sn_node *x = b->source[i];
        x = sn_below_moves(x);
        if (x->op == SN_OP_broadcast && !sn_view_over(b->source[i], NULL, &v)) return true;
    }
    return false;
}

/* The row of operand x, after which `left` follow. One that needs too much is in memory. */
static sn_node *take_row(builder *b, sn_node *x, int left) {
    builder before = *b;
    sn_node *row = take(b, x, NULL);
    if (!b->full && b->n_source + left <= SN_REC_SOURCES && !are_repeated(b, before.n_source))
        return row;
    *b = before;
    return source(b, x, NULL);
}

/* The recurrence n with its prologue; n: nothing belongs to it. */
static sn_node *build(const finder *f, sn_node *n) {
    const int n_row = n_rows(n);
    builder b = {.f = f, .kernel = {.kernel = SN_KERNEL_recurrence, .type = (sn_dtype)n->dtype}};
    b.absorbed = sn_arena_alloc(n->m, sizeof *b.absorbed * (size_t)sn_kernel_of(n)->max_nodes);
    sn_node *row[SN_MAX_REC_IN], *in[2 + SN_REC_SOURCES] = {n->in[SN_REC_START]};
    sn_attr attr[SN_ATTR_COUNT];
    sn_loc loc = sn_module_loc(n->m);
    sn_module_set_loc(n->m, n->loc);
    for (int i = 0; i < n_row; i++) row[i] = take_row(&b, n->in[1 + i], n_row - 1 - i);
    if (!b.kernel.n_member) {
        sn_module_set_loc(n->m, loc);
        return n;
    }
    memcpy(in + 1, b.source, sizeof *in * (size_t)b.n_source);
    if (n_row < n->n_in - 1) in[1 + b.n_source] = n->in[n->n_in - 1];
    sn_region *rows = sn_region_extract(n->m, b.n_source, b.source, n_row, row);
    memcpy(attr, n->attr, sizeof *attr * n->n_attr);
    attr[n->n_attr] = SN_REG(prologue, rows);
    sn_node *r = sn_node_new(n->m, SN_OP_fused_recurrence, b.n_source + n->n_in - n_row, in,
                             n->n_attr + 1, attr);
    sn_module_set_loc(n->m, loc);
    for (int i = 0; i < b.kernel.n_member; i++) sn_lineage_add(b.absorbed[i], r);
    return r;
}

/* ---- the pass ---- */

static bool takes(const sn_node *n) {
    return n->op == SN_OP_recurrence;
}

static bool absorb(sn_module *m, sn_node *n, int n_root, sn_node **root) {
    finder f = {.m = m, .n_root = n_root, .root = root};
    analyse(&f);
    sn_node *fused = build(&f, n);
    if (fused == n || sn_module_error(m)->code) return false;
    sn_rewrite_node(m, n_root, root, n, fused);
    return true;
}

int sn_pass_fused_recurrence(sn_passes *p) {
    return sn_absorb_each(p, takes, absorb);
}
