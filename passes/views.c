/* views.c: elementwise operations and sums along rows are computed in the order of memory, and in
 * one shape where they follow each other, so that views do not part them into kernels:
 *     f(moved x, moved y)         ->  moved f(x, y)                where x and y lie in memory so
 *     f(reshaped g(x), y)         ->  reshaped f(g(x), reshaped' y)
 *     reshaped f(x)               ->  f(reshaped x)                if nobody else reads f(x)
 * The first rule (`unpermute`) moves transposes that all operands share towards the results, of all
 * operations that read each other's results in place or of none. The other two (`join`) choose the
 * shape with more axes, such as rows of heads, which sums along rows need. A view moves to another
 * operand only where strides express it. Operations in the epilogue of a product stay in its shape.
 * Rows stay longer than a cache line.
 *
 * Requires primitives. Keeps values. Terminates: each rule walks over the graph once. */
#include "passes/absorb.h"
#include "passes/graph_util.h"
#include "passes/holds.h"
#include "passes/passes.h"
#include "passes/view.h"

#include <string.h>

enum { LINE = 64 /* bytes */, DEEPEST = 32, MAX_IN = 4, MAX_ROUNDS = 8 };

/* The number that n repeats; NULL: it is something else. */
static sn_node *number(const sn_node *n) {
    while (n->op == SN_OP_broadcast || n->op == SN_OP_reshape) n = n->in[0];
    return n->rank ? NULL : (sn_node *)n;
}

/* Weights are left alone: fuse.c packs them as quantise.c wrote them. */
static bool is_small_elementwise(const sn_node *n) {
    return sn_is_elementwise(n) && n->n_in && n->n_in <= MAX_IN && !sn_from_params_only(n);
}

static bool is_computed(const sn_node *n) {
    return is_small_elementwise(n) || sn_reduces_rows(n) ||
           (sn_spreads_row(n) && (is_small_elementwise(n->in[0]) || sn_reduces_rows(n->in[0])));
}

/* Not a part of another tensor, or repeated. */
static bool is_whole(const sn_node *n) {
    return n->op != SN_OP_slice && n->op != SN_OP_broadcast;
}

/* ---- the order of memory ---- */

typedef struct axis_order {
    int64_t axis[SN_MAX_RANK]; /* those of size 1 first, the last one last */
    bool moved;                /* another order than that of the shape */
} axis_order;

/* The order in which n's axes lie in memory; false: unknown, or its rows are not contiguous. */
static bool order_of(const sn_node *n, axis_order *o) {
    sn_view v;
    int count = 0;
    const int last = n->rank - 1;
    if (last < 0 || sn_below_moves(n)->op == SN_OP_broadcast || !sn_view_over(n, NULL, &v) ||
        (n->shape[last] != 1 && v.stride[last] != 1))
        return false;
    o->moved = false;
    for (int a = 0; a < last; a++)
        if (n->shape[a] == 1) o->axis[count++] = a;
    for (int a = 0, first = count; a < last; a++) {
        int at = count;
        if (n->shape[a] == 1) continue;
        if (!v.stride[a]) return false;
        for (; at > first && sn_dim_le(n->m, v.stride[o->axis[at - 1]], v.stride[a]); at--)
            o->axis[at] = o->axis[at - 1];
        if (at > first && !sn_dim_le(n->m, v.stride[a], v.stride[o->axis[at - 1]])) return false;
        o->moved |= at < count;
        o->axis[at] = a;
        count++;
    }
    o->axis[last] = last;
    return true;
}

/* n, with its axes in this order, which is that of memory. */
static sn_node *in_order(sn_node *n, const axis_order *o) {
    sn_dim shape[SN_MAX_RANK];
    if (!is_whole(sn_below_moves(n))) return sn_b_transpose(n, n->rank, o->axis);
    for (int a = 0; a < n->rank; a++) shape[a] = n->shape[o->axis[a]];
    return sn_b_reshape(sn_below_moves(n), n->rank, shape);
}

static bool repeats_vector(const sn_node *x) {
    return x->op == SN_OP_broadcast && x->in[0]->rank == 1 && x->rank &&
           x->in[0]->shape[0] == x->shape[x->rank - 1];
}

/* Whether all operands of n have one order that is not that of its shape. */
static bool shared_order(const sn_node *n, axis_order *o) {
    bool any = false;
    for (int i = 0; i < n->n_in; i++) {
        const sn_node *x = n->in[i];
        axis_order other;
        if (number(x) || repeats_vector(x)) continue;
        if (!order_of(sn_spreads_row(x) ? x->in[0] : x, &other) || !other.moved ||
            (any && memcmp(o->axis, other.axis, sizeof *o->axis * (size_t)x->rank)))
            return false;
        *o = other;
        any = true;
    }
    return any;
}

static sn_node *operand_in_order(sn_node *x, const axis_order *o) {
    sn_dim shape[SN_MAX_RANK];
    sn_node *y = number(x);
    if (!y && sn_spreads_row(x)) y = in_order(x->in[0], o);
    if (!y && repeats_vector(x)) y = x->in[0];
    for (int a = 0; a < x->rank; a++) shape[a] = x->shape[o->axis[a]];
    return y ? sn_b_broadcast(y, x->rank, shape) : in_order(x, o);
}

/* A walk over the nodes of an entry, operands first. */
typedef struct mover {
    sn_order order;
    sn_node **made; /* by id: what a node becomes */
    int *group;  /* by id: another node of its group, which moves as a whole; its first: itself */
    bool *moved; /* by id */
    bool *stays; /* by id of a group's first node */
} mover;

static int group_of(const mover *w, int id) {
    while (w->group[id] != id) id = w->group[id] = w->group[w->group[id]];
    return id;
}

/* The operand that n reads where it is computed; NULL: in memory. */
static const sn_node *in_place(const sn_node *x) {
    if (sn_spreads_row(x)) x = x->in[0];
    return is_small_elementwise(x) || sn_reduces_rows(x) ? x : NULL;
}

static void find_groups(mover *w) {
    for (int i = 0; i < w->order.n; i++) {
        const sn_node *n = w->order.node[i];
        w->group[n->id] = (int)n->id;
        for (int k = 0; k < n->n_in && in_place(n); k++) {
            const sn_node *x = in_place(n->in[k]);
            if (x) w->group[group_of(w, (int)x->id)] = group_of(w, (int)n->id);
        }
    }
}

/* A view of whole rows in the order of memory is one reshape. */
static sn_node *one_view(sn_node *n) {
    sn_node *x = sn_below_moves(n);
    sn_view v;
    bool plain = is_whole(x) && sn_view_over(n, NULL, &v) && sn_view_contiguous(n->m, &v);
    return plain ? sn_b_reshape(x, n->rank, n->shape) : n;
}

static sn_node *unpermuted(sn_node *n, const axis_order *o) {
    sn_node *in[MAX_IN];
    int64_t back[SN_MAX_RANK];
    for (int i = 0; i < n->n_in; i++) in[i] = operand_in_order(n->in[i], o);
    for (int a = 0; a < n->rank; a++) back[o->axis[a]] = a;
    return sn_b_transpose(sn_node_with(n, in), n->rank, back);
}

static void move_all(mover *w) {
    for (int i = 0; i < w->order.n; i++) {
        sn_node *old = w->order.node[i], *n = sn_node_from(old, w->made);
        sn_loc loc = sn_module_loc(n->m);
        axis_order o;
        sn_module_set_loc(n->m, old->loc);
        w->moved[old->id] =
            in_place(old) == old && !w->stays[group_of(w, (int)old->id)] && shared_order(n, &o);
        if (w->moved[old->id])
            n = unpermuted(n, &o);
        else if (sn_moves(n))
            n = one_view(n);
        sn_module_set_loc(n->m, loc);
        w->made[old->id] = n;
    }
}

/* Groups whose members have not all moved stay. Returns whether there are any. */
static bool keep_together(mover *w) {
    bool any = false;
    for (int i = 0; i < w->order.n; i++) {
        const sn_node *n = w->order.node[i];
        for (int k = 0; k < n->n_in && in_place(n) == n; k++) {
            const sn_node *x = in_place(n->in[k]);
            if (!x || w->moved[x->id] == w->moved[n->id]) continue;
            any = w->stays[group_of(w, (int)n->id)] = true;
        }
    }
    return any;
}

static int unpermute(sn_module *m, int n_root, sn_node **root) {
    const uint32_t n_id = sn_module_node_count(m);
    mover w = {.order = sn_topo(m, n_root, root)};
    int count = 0, rounds = 0;
    w.made = sn_arena_alloc(m, sizeof *w.made * n_id);
    w.group = sn_arena_alloc(m, sizeof *w.group * n_id);
    w.moved = sn_arena_alloc(m, n_id);
    w.stays = sn_arena_alloc(m, n_id);
    find_groups(&w);
    do {
        move_all(&w);
        if (sn_module_error(m)->code) return 0;
    } while (keep_together(&w) && ++rounds < MAX_ROUNDS);
    for (int i = 0; i < w.order.n; i++) count += w.made[w.order.node[i]->id] != w.order.node[i];
    for (int i = 0; i < n_root; i++) root[i] = w.made[root[i]->id];
    sn_lineage_add_map(m, w.made, n_id);
    return count;
}

/* ---- one shape ---- */

typedef struct joiner {
    sn_module *m;
    int *readers;     /* by id */
    bool *of_product; /* by id: a product or part of its epilogue */
    bool *stored;   /* by id: read by others than elementwise operations and sums, through views */
    sn_node **made; /* by id: what a node becomes */
} joiner;

/* Whether axes of `fine` side by side make those of n. */
static bool splits(sn_node *n, int rank, const sn_dim *fine) {
    int64_t row;
    int i = 0;
    if (!rank || !n->rank) return false;
    for (int a = 0; a < n->rank; a++) {
        sn_dim size = 1;
        if (n->shape[a] == 1) continue;
        for (; size != n->shape[a]; i++) {
            if (i == rank) return false;
            size = sn_dim_mul(n->m, size, fine[i]);
        }
    }
    for (; i < rank; i++)
        if (fine[i] != 1) return false;
    if (fine[rank - 1] == n->shape[n->rank - 1]) return true;
    return sn_dim_is_const(n->m, fine[rank - 1], &row) &&
           row * (int64_t)sn_dtype_size((sn_dtype)n->dtype) % LINE == 0;
}

/* Whether x's rows are those of this shape. */
static bool same_rows(const sn_node *x, int rank, const sn_dim *shape) {
    return x->shape[x->rank - 1] == shape[rank - 1] &&
           sn_dim_product(x->m, x->rank - 1, x->shape) == sn_dim_product(x->m, rank - 1, shape);
}

static sn_node *reshaped(sn_node *x, int rank, const sn_dim *shape) {
    sn_dim rows[SN_MAX_RANK];
    sn_view v;
    if (number(x)) return sn_b_broadcast(number(x), rank, shape);
    while (x->op == SN_OP_reshape) x = x->in[0];
    if (sn_spreads_row(x) && same_rows(x, rank, shape)) {
        memcpy(rows, shape, sizeof *rows * (size_t)rank);
        rows[rank - 1] = 1;
        sn_node *y = reshaped(x->in[0], rank, rows);
        return y ? sn_b_broadcast(y, rank, shape) : NULL;
    }
    sn_node *y = sn_b_reshape(x, rank, shape);
    return sn_view_over(y, NULL, &v) ? y : NULL;
}

/* n in another shape, computed there if nobody else reads it; NULL: it would be a copy, or part the
 * reader from a kernel that has n in registers. */
static sn_node *pulled(joiner *j, sn_node *n, int rank, const sn_dim *shape, int depth) {
    sn_node *in[MAX_IN], *made = j->made[n->id];
    if (made->op == SN_OP_reshape) made = made->in[0];
    if (made->rank == rank && !memcmp(made->shape, shape, sizeof *shape * (size_t)rank))
        return made;
    if (n->op == SN_OP_reshape && j->readers[n->id] == 1)
        return pulled(j, n->in[0], rank, shape, depth);
    if (made != j->made[n->id] || !is_small_elementwise(n) || j->readers[n->id] != 1 ||
        j->of_product[n->id] || depth == DEEPEST) {
        bool in_registers = made == j->made[n->id] && is_computed(made) && !j->stored[n->id];
        return in_registers ? NULL : reshaped(made, rank, shape);
    }
    for (int i = 0; i < n->n_in; i++)
        if (!(in[i] = pulled(j, n->in[i], rank, shape, depth + 1))) return NULL;
    return sn_node_new(n->m, (sn_op)n->op, n->n_in, in, n->n_attr, n->attr);
}

/* The operand of n that is computed in another shape, in which n could be, too. */
static sn_node *finer_operand(joiner *j, sn_node *n) {
    sn_node *best = NULL;
    for (int i = 0; i < n->n_in; i++) {
        const sn_node *x = j->made[n->in[i]->id];
        if (j->of_product[n->in[i]->id]) return NULL;
        if (x->op != SN_OP_reshape) continue;
        sn_node *y = x->in[0];
        if (is_computed(y) && splits(n, y->rank, y->shape) && (!best || y->rank > best->rank))
            best = y;
    }
    return best;
}

static sn_node *join_elementwise(joiner *j, sn_node *n) {
    sn_node *in[MAX_IN], *like = finer_operand(j, n);
    if (!like) return NULL;
    for (int i = 0; i < n->n_in; i++)
        if (!(in[i] = pulled(j, n->in[i], like->rank, like->shape, 0))) return NULL;
    sn_node *y = sn_node_new(n->m, (sn_op)n->op, n->n_in, in, n->n_attr, n->attr);
    return sn_b_reshape(y, n->rank, n->shape);
}

/* n, a sum along rows or what repeats one, of an operand that is computed in another shape. */
static sn_node *join_rows(joiner *j, sn_node *n) {
    sn_node *x = j->made[n->in[0]->id];
    sn_dim shape[SN_MAX_RANK];
    if (x->op != SN_OP_reshape || j->of_product[n->in[0]->id]) return NULL;
    sn_node *y = x->in[0];
    if (!is_computed(y) || !y->rank || !same_rows(y, x->rank, x->shape)) return NULL;
    int64_t last = y->rank - 1;
    memcpy(shape, y->shape, sizeof *shape * (size_t)y->rank);
    shape[last] = n->shape[n->rank - 1];
    y = n->op == SN_OP_broadcast ? sn_b_broadcast(y, y->rank, shape)
                                 : sn_b_reduce((sn_op)n->op, y, 1, &last);
    return sn_b_reshape(y, n->rank, n->shape);
}

static sn_node *join_reshape(joiner *j, sn_node *n) {
    sn_node *x = n->in[0], *made = j->made[x->id];
    if (made->op == SN_OP_reshape) return sn_b_reshape(made->in[0], n->rank, n->shape);
    if (j->stored[n->id] || !is_small_elementwise(x) || j->readers[x->id] != 1 ||
        j->of_product[x->id] || !splits(x, n->rank, n->shape))
        return NULL;
    return pulled(j, x, n->rank, n->shape, 0);
}

static sn_node *join(joiner *j, sn_node *n) {
    sn_node *y = NULL;
    if (n->op == SN_OP_reshape)
        y = join_reshape(j, n);
    else if (is_small_elementwise(n))
        y = join_elementwise(j, n);
    else if (sn_reduces_rows(n) || sn_spreads_row(n))
        y = join_rows(j, n);
    return y ? y : sn_node_from(n, j->made);
}

static void analyse(joiner *j, sn_order order, int n_root, sn_node *const *root) {
    for (int i = 0; i < n_root; i++) {
        j->readers[root[i]->id]++;
        j->stored[root[i]->id] = true;
    }
    for (int i = 0; i < order.n; i++) {
        const sn_node *n = order.node[i];
        for (int k = 0; k < n->n_in; k++) j->readers[n->in[k]->id]++;
    }
    for (int i = order.n; i-- > 0;) { /* users come after what they read */
        const sn_node *n = order.node[i];
        const bool others =
            sn_is_view(n) ? j->stored[n->id] : !is_small_elementwise(n) && !sn_reduces_rows(n);
        for (int k = 0; k < n->n_in; k++) j->stored[n->in[k]->id] |= others;
    }
}

/* Applies the last two rules to the roots of an entry. Returns how many nodes changed. */
static int join_shapes(sn_module *m, int n_root, sn_node **root) {
    const uint32_t n_id = sn_module_node_count(m);
    joiner j = {.m = m};
    sn_order order = sn_topo(m, n_root, root);
    int count = 0;
    j.readers = sn_arena_alloc(m, sizeof *j.readers * n_id);
    j.of_product = sn_find_in_products(m, order, n_root, root);
    j.stored = sn_arena_alloc(m, n_id);
    j.made = sn_arena_alloc(m, sizeof *j.made * n_id);
    analyse(&j, order, n_root, root);
    for (int i = 0; i < order.n && !sn_module_error(m)->code; i++) {
        sn_node *n = order.node[i];
        sn_loc loc = sn_module_loc(m);
        sn_module_set_loc(m, n->loc);
        j.made[n->id] = join(&j, n);
        sn_module_set_loc(m, loc);
        count += j.made[n->id] != n;
    }
    for (int i = 0; i < n_root && !sn_module_error(m)->code; i++) root[i] = j.made[root[i]->id];
    sn_lineage_add_map(m, j.made, n_id);
    return count;
}

/* Each entry by itself, as its kernels are. */
int sn_pass_views(sn_passes *p) {
    int count = 0;
    for (int i = 0; i < sn_entry_count(p->m); i++) {
        sn_entry *e = sn_entry_at(p->m, i);
        int n;
        sn_node **root = sn_entry_roots(p->m, e, false, &n);
        count += unpermute(p->m, n, root);
        count += join_shapes(p->m, n, root);
        sn_entry_set_roots(e, false, root);
    }
    return count;
}
