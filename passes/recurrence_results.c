/* recurrence_results.c: what is made of the rows of a recurrence's results, elementwise and with sums along
 * a row, becomes part of the kernel of the recurrence, as its epilogue:
 *     f(moved z, y) = moved epilogue(z, moved' y)      .., z, .. = recurrence(S, ..)
 * These are the gradients of gates and of norms. The results z that nobody else reads are not stored.
 * The views between z and f move behind f; their inverse brings y to the rows of z, where strides
 * express that.
 *
 * Rows are those of K elements in a gradient, in which a kernel has the whole row of an element. A value
 * that is made of results is fused only if it is stored anyway. What does not depend on results is read
 * from memory, or computed again if nothing else needs it there.
 *
 * Requires that prologues are known. Keeps values. Terminates: each recurrence is looked at once, and
 * every iteration excludes a value. */
#include "passes/absorb.h"
#include "passes/graph_util.h"
#include "passes/kernels/costs.h"
#include "passes/holds.h"
#include "passes/passes.h"
#include "passes/view.h"

#include <string.h>

typedef struct maker {
    sn_module *m;
    sn_order order;
    int n_root;
    sn_node **root;
    uint32_t n_id;    /* of nodes in the entry */
    bool *stored;     /* by id: must be in memory */
    bool *of_product; /* by id: a product or part of its epilogue */
    sn_node *r;
    bool *after;    /* by id: depends on r */
    bool *excluded; /* by id: is not computed by r's kernel */
    sn_node **made; /* by id: the same value in the rows of r; NULL: it is not computed there */
    const sn_views **views; /* by id, of what is made: those below it */
    sn_group kernel;
    sn_node *source[SN_REC_SOURCES];
    int n_source;
} maker;

/* ---- views ---- */

static bool is_result_of(const sn_node *n, const sn_node *r) {
    return n->op == SN_OP_result && n->in[0] == r;
}

static sn_dim width(const sn_node *n) {
    return n->rank ? n->shape[n->rank - 1] : 1;
}

/* Whether two views move elements alike; rows of one may have one element. */
static bool same_view(const sn_node *a, const sn_node *b) {
    if (a->op != b->op || a->rank != b->rank) return false;
    if (a->op == SN_OP_transpose)
        return !memcmp(sn_attr_get(a, SN_A_perm)->v, sn_attr_get(b, SN_A_perm)->v,
                       sizeof(int64_t) * a->rank);
    if (memcmp(a->shape, b->shape, sizeof *a->shape * (size_t)(a->rank - 1))) return false;
    return width(a) == width(b) || width(a) == 1 || width(b) == 1;
}

static bool same_views(const sn_views *v, const sn_views *w) {
    for (; v && w && same_view(v->view, w->view); w = w->next) v = v->next;
    return !v && !w;
}

/* y, which is where the views lead, in the rows of r. */
static sn_node *to_rows(const sn_views *v, sn_node *y) {
    for (; v; v = v->next) y = sn_view_undo(v->view, y);
    return y;
}

/* y, which is in the rows of r, where the views lead. */
static sn_node *from_rows(const sn_views *v, sn_node *y) {
    return v ? sn_view_apply(v->view, from_rows(v->next, y)) : y;
}

static bool keeps_rows(const maker *k, const sn_node *n) {
    return sn_views_keep_rows(k->views[n->id]);
}

/* ---- values ---- */

/* False: it is one too many. */
static bool add_source(maker *k, sn_node *y) {
    for (int i = 0; i < k->n_source; i++)
        if (k->source[i] == y) return true;
    if (k->n_source == SN_REC_SOURCES) return false;
    k->source[k->n_source++] = y;
    return true;
}

/* A tensor in memory, whose rows are those of `row` or numbers for them; NULL: it is not, or is one too
 * many. */
static sn_node *source(maker *k, sn_node *y, const sn_node *row) {
    sn_view v, w;
    if (y->dtype != row->dtype || y->rank != row->rank ||
        (width(y) != 1 && width(y) != width(row)) ||
        memcmp(y->shape, row->shape, sizeof *y->shape * (size_t)(y->rank - 1)) ||
        !sn_view_over(y, NULL, &v))
        return NULL;
    for (int i = 0; i < k->n_source; i++) {
        sn_node *x = k->source[i];
        if (x == y || (sn_below_moves(x) == sn_below_moves(y) && x->rank == y->rank &&
                       sn_view_over(x, NULL, &w) && sn_view_matches(&v, &w)))
            return x;
    }
    return add_source(k, y) ? y : NULL;
}

static sn_node *take(maker *k, sn_node *y, const sn_node *at);

/* An elementwise operation, or what spreads numbers, in the rows of r. */
static sn_node *again(maker *k, sn_node *n, const sn_node *at) {
    sn_node *x[SN_MAX_RANK], *row = k->made[at->id];
    if (sn_kernel_refuses(&k->kernel, SN_IN_EPILOGUE, n)) return NULL;
    k->kernel.n_member++;
    for (int i = 0; i < n->n_in; i++)
        if (!(x[i] = take(k, n->in[i], at))) return NULL;
    if (n->op != SN_OP_broadcast)
        return sn_node_new(n->m, (sn_op)n->op, n->n_in, x, n->n_attr, n->attr);
    return sn_b_broadcast(x[0], row->rank, row->shape);
}

/* Operand y of a value that is in the views of `at`, in the rows of r; NULL: it cannot be. */
static sn_node *take(maker *k, sn_node *y, const sn_node *at) {
    sn_node *row = k->made[at->id];
    if (k->made[y->id])
        return same_views(k->views[y->id], k->views[at->id]) ? k->made[y->id] : NULL;
    if (k->after[y->id] || y->op == SN_OP_const) return NULL;
    sn_dim shape[SN_MAX_RANK];
    memcpy(shape, row->shape, sizeof *shape * row->rank);
    if (sn_spreads_constant(y)) {
        if (width(y) == 1) shape[row->rank - 1] = 1;
        return sn_b_broadcast(y->in[0], row->rank, shape);
    }
    if (k->of_product[y->id] && !k->stored[y->id]) return NULL;
    if (width(y) != width(at) && !keeps_rows(k, at)) return NULL;
    bool elementwise = sn_is_elementwise(y) || sn_spreads_row(y);
    if (width(y) == 1 && sn_is_expensive(y)) elementwise = false;
    if (sn_is_row_work(y) && elementwise && !k->stored[y->id] && width(y) == width(at) &&
        (y->op != SN_OP_broadcast || keeps_rows(k, at)))
        return again(k, y, at);
    return source(k, to_rows(k->views[at->id], y), row);
}

/* Numbers that a row is spread from have no row of their own to be compared with. */
static sn_node *spread_row(maker *k, sn_node *n) {
    sn_node *x = n->in[0], *row = k->made[x->id];
    const sn_node *carry = k->r->in[k->r->n_in - 1];
    sn_dim shape[SN_MAX_RANK], K = carry->shape[carry->rank - 2];
    if (!row || width(n) != K || !keeps_rows(k, x)) return NULL;
    memcpy(shape, row->shape, sizeof *shape * row->rank);
    shape[row->rank - 1] = K;
    return sn_b_broadcast(row, row->rank, shape);
}

static sn_node *sum_row(maker *k, sn_node *n) {
    sn_node *row = k->made[n->in[0]->id];
    if (!row || !keeps_rows(k, n->in[0]) || sn_kernel_refuses(&k->kernel, SN_IN_EPILOGUE, n))
        return NULL;
    k->kernel.reductions++;
    int64_t last = row->rank - 1;
    return sn_b_reduce(SN_OP_reduce_sum, row, 1, &last);
}

/* n, which depends on r, in its rows; NULL: it is not computed there. */
static sn_node *make(maker *k, sn_node *n) {
    const maker before = *k;
    sn_node *y = NULL;
    k->views[n->id] = k->views[n->in[0]->id];
    if (n->op == SN_OP_broadcast) {
        y = spread_row(k, n);
    } else if (n->op == SN_OP_reduce_sum) {
        y = sum_row(k, n);
    } else {
        int at = 0;
        while (at < n->n_in && !k->made[n->in[at]->id]) at++;
        if (at < n->n_in) k->views[n->id] = k->views[n->in[at]->id];
        if (at < n->n_in && sn_shapes_equal(n, n->in[at])) y = again(k, n, n->in[at]);
    }
    if (!y) *k = before;
    return y;
}

/* How many of r's operands are rows, from number 1 on; the last one of a gradient is a carry. */
static int n_rows(const maker *k) {
    return k->r->n_in - 2;
}

static void make_all(maker *k) {
    const sn_recurrence r = sn_recurrence_of(k->r);
    memset(k->made, 0, sizeof *k->made * k->n_id);
    k->kernel = (sn_group){.kernel = SN_KERNEL_recurrence, .type = (sn_dtype)k->r->dtype};
    k->n_source = 0;
    for (int i = 1; i <= n_rows(k); i++) add_source(k, k->r->in[i]);
    for (int i = 0; i < k->order.n; i++) {
        sn_node *n = k->order.node[i];
        if (!k->after[n->id] || n == k->r) continue;
        if (is_result_of(n, k->r)) {
            if (sn_recurrence_is_of_keys(&r, true, (int)sn_attr_int(n, SN_A_index, 0)))
                k->made[n->id] = n;
        } else if (sn_moves(n)) {
            sn_views *v = sn_arena_alloc(k->m, sizeof *v);
            *v = (sn_views){n, k->views[n->in[0]->id]};
            k->views[n->id] = v;
            k->made[n->id] = k->made[n->in[0]->id];
        } else if (sn_is_row_work(n) && !k->excluded[n->id]) {
            k->made[n->id] = make(k, n);
        }
    }
}

/* ---- results ---- */

/* What the new recurrence gives: nodes of the entry, the first and those after the carry. */
typedef struct results {
    int n, made; /* `made`: of them by the epilogue */
    sn_node *node[SN_REC_RESULTS];
} results;

static void add_result(results *all, sn_node *n) {
    for (int i = 0; i < all->n; i++)
        if (all->node[i] == n) return;
    all->node[all->n++] = n;
}

/* Whether n is part of the kernel, or a view of what is. */
static bool is_inside(const maker *k, const sn_node *n) {
    return k->made[n->id] || n == k->r;
}

/* Value x is read outside. False: the kernel must not compute it. */
static bool give_result(maker *k, results *all, sn_node *x) {
    x = sn_below_moves(x);
    if (is_result_of(x, k->r)) {
        if (sn_attr_int(x, SN_A_index, 0) > SN_REC_DSTART) add_result(all, x);
        return true;
    }
    const bool may = k->stored[x->id] || width(k->made[x->id]) == 1;
    if (x->dtype == k->r->dtype && may && all->made < SN_REC_MADE) {
        const int before = all->n;
        add_result(all, x);
        all->made += all->n > before;
        return true;
    }
    k->excluded[x->id] = true;
    return false;
}

/* The results that are read outside. False: something has been excluded. */
static bool find_results(maker *k, results *all) {
    *all = (results){.n = 0};
    add_result(all, sn_b_result(k->r, SN_REC_DV));
    for (int i = 0; i < k->n_root; i++)
        if (k->after[k->root[i]->id] && is_inside(k, k->root[i]) &&
            !give_result(k, all, k->root[i]))
            return false;
    for (int at = 0; at < k->order.n; at++) {
        const sn_node *n = k->order.node[at];
        if (is_inside(k, n) || is_result_of(n, k->r)) continue;
        for (int i = 0; i < n->n_in; i++)
            if (k->made[n->in[i]->id] && !give_result(k, all, n->in[i])) return false;
    }
    return true;
}

/* ---- the new recurrence ---- */

static const sn_region *prologue_of(maker *k) {
    const sn_region *r = sn_attr_region(k->r, SN_A_prologue);
    const int n_row = r ? r->n_out : n_rows(k);
    sn_node *row[SN_MAX_REC_IN];
    memcpy(row, k->r->in + 1, sizeof *row * (size_t)(r ? 0 : n_row));
    if (r) sn_region_inline(r, k->r->in + 1, row);
    return sn_region_extract(k->m, k->n_source, k->source, n_row, row);
}

static const sn_region *epilogue_of(maker *k, const results *all) {
    sn_node *cut[SN_MAX_RESULTS + SN_REC_SOURCES], *out[SN_REC_RESULTS + 1];
    const int n = k->r->n_result;
    int n_out = 0;
    for (int i = 0; i < n; i++) cut[i] = sn_b_result(k->r, i);
    memcpy(cut + n, k->source, sizeof *cut * (size_t)k->n_source);
    for (int i = 0; i < all->n; i++) {
        sn_node *x = all->node[i];
        out[n_out++] = is_result_of(x, k->r) ? x : k->made[x->id];
        if (n_out == 1) out[n_out++] = cut[1];
    }
    return sn_region_extract(k->m, n + k->n_source, cut, n_out, out);
}

static sn_node *new_recurrence(maker *k, const results *all) {
    const sn_node *r = k->r;
    sn_node *in[2 + SN_REC_SOURCES] = {r->in[0]};
    sn_attr attr[SN_ATTR_COUNT];
    int n_attr = 0;
    for (int i = 0; i < r->n_attr; i++)
        if (r->attr[i].key != SN_A_prologue) attr[n_attr++] = r->attr[i];
    attr[n_attr++] = SN_REG(prologue, prologue_of(k));
    attr[n_attr++] = SN_REG(epilogue, epilogue_of(k, all));
    memcpy(in + 1, k->source, sizeof *in * (size_t)k->n_source);
    in[1 + k->n_source] = r->in[r->n_in - 1];
    return sn_node_new(k->m, SN_OP_fused_recurrence, 2 + k->n_source, in, n_attr, attr);
}

/* Replaces the values that `all` are by results of y, and the carry. */
static void put(maker *k, const results *all, sn_node *y) {
    sn_node **to = sn_arena_alloc(k->m, sizeof *to * k->n_id);
    for (int i = 0; i < all->n; i++) {
        sn_node *x = all->node[i], *z = sn_b_result(y, i + (i > 0));
        if (x->id < k->n_id) to[x->id] = is_result_of(x, k->r) ? z : from_rows(k->views[x->id], z);
    }
    for (int i = 0; i < k->order.n; i++) {
        sn_node *n = k->order.node[i];
        if (to[n->id]) continue;
        if (is_result_of(n, k->r) && sn_attr_int(n, SN_A_index, 0) == 1)
            to[n->id] = sn_b_result(y, 1);
        else if (is_inside(k, n) && !sn_moves(n))
            to[n->id] = n; /* nobody reads it any more */
        else
            to[n->id] = sn_node_from(n, to);
        if (k->made[n->id] && !sn_moves(n)) sn_lineage_add(n, y);
    }
    for (int i = 0; i < k->n_root; i++) k->root[i] = to[k->root[i]->id];
}

/* ---- the pass ---- */

static void analyse(maker *k) {
    k->order = sn_topo(k->m, k->n_root, k->root);
    k->n_id = sn_module_node_count(k->m);
    k->stored = sn_arena_alloc(k->m, k->n_id);
    k->of_product = sn_find_in_products(k->m, k->order, k->n_root, k->root);
    k->after = sn_arena_alloc(k->m, k->n_id);
    k->excluded = sn_arena_alloc(k->m, k->n_id);
    k->made = sn_arena_alloc(k->m, sizeof *k->made * k->n_id);
    k->views = sn_arena_alloc(k->m, sizeof *k->views * k->n_id);
    for (int i = 0; i < k->n_root; i++) k->stored[k->root[i]->id] = true;
    for (int at = k->order.n; at-- > 0;) {
        const sn_node *n = k->order.node[at];
        const bool others = sn_moves(n) ? k->stored[n->id] : !sn_is_row_work(n);
        for (int i = 0; i < n->n_in; i++) k->stored[n->in[i]->id] |= others;
    }
    for (int at = 0; at < k->order.n; at++) { /* operands come before their users */
        const sn_node *n = k->order.node[at];
        k->after[n->id] = n == k->r;
        for (int i = 0; i < n->n_in; i++) k->after[n->id] |= k->after[n->in[i]->id];
    }
}

/* Gradients without an epilogue; what is rebuilt later has one. */
static bool takes(const sn_node *n) {
    return sn_kernel_of(n) == &sn_kernels[SN_KERNEL_recurrence] &&
           sn_attr_int(n, SN_A_gradient, 0) && !sn_attr_get(n, SN_A_epilogue);
}

static bool absorb(sn_module *m, sn_node *r, int n_root, sn_node **root) {
    maker k = {.m = m, .r = r, .n_root = n_root, .root = root};
    results all;
    sn_loc loc = sn_module_loc(m);
    sn_module_set_loc(m, r->loc);
    analyse(&k);
    do make_all(&k);
    while (!find_results(&k, &all) && !sn_module_error(m)->code);
    bool any = all.made && !sn_module_error(m)->code;
    sn_node *y = any ? new_recurrence(&k, &all) : r;
    any = any && !sn_module_error(m)->code;
    if (any) put(&k, &all, y);
    sn_module_set_loc(m, loc);
    return any;
}

int sn_pass_recurrence_results(sn_passes *p) {
    return sn_absorb_each(p, takes, absorb);
}
