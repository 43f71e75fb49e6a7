/* move.c: rules of movement: computation moves before broadcasts; transposes and reshapes move
 * after elementwise ops (towards the results, where they meet and cancel); slices of
 * concatenations. */
#include "passes/graph_util.h"
#include "passes/match.h"
#include "passes/simplify/simplify.h"

#include <string.h>

static bool same_ints(const sn_attr *a, const sn_attr *b) {
    return a->n == b->n && (!a->n || !memcmp(a->v, b->v, sizeof *a->v * (size_t)a->n));
}

/* f(broadcast x, broadcast y) = broadcast f(x, y), over the axes along which no operand varies:
 * less work */
sn_node *sn_simplify_sink_broadcast(sn_node *n) {
    int rank = n->rank, first = rank;
    sn_dim small[SN_MAX_RANK];
    double v;
    bool any = false, less = false;
    if (!sn_is_elementwise(n) || n->n_in > 3) return NULL;
    for (int a = 0; a < rank; a++) small[a] = 1;
    for (int i = 0; i < n->n_in; i++) {
        if (sn_match_const(n->in[i], &v)) continue;
        if (n->in[i]->op != SN_OP_broadcast) return NULL;
        const sn_node *x = n->in[i]->in[0];
        any = true;
        if (rank - x->rank < first) first = rank - x->rank;
        for (int j = 0; j < x->rank; j++)
            if (x->shape[j] != 1) small[rank - x->rank + j] = x->shape[j];
    }
    for (int a = 0; a < rank; a++) less |= a < first || small[a] != n->shape[a];
    if (!any || !less) return NULL;
    sn_node *in[3];
    for (int i = 0; i < n->n_in; i++) {
        sn_node *x = sn_match_const(n->in[i], &v) ? sn_b_const(n->m, (sn_dtype)n->in[i]->dtype, v)
                                                  : n->in[i]->in[0];
        in[i] = sn_b_broadcast(x, rank - first, small + first);
    }
    sn_node *f = sn_node_new(n->m, (sn_op)n->op, n->n_in, in, n->n_attr, n->attr);
    return sn_b_broadcast_like(f, n);
}

/* A sum over leading axes (and ops on it) without the axes of size 1 that it left: later ops work
 * on the short shape, which is a parameter's (a bias and its moments). */
static bool drops_summed(const sn_node *r) {
    const sn_node *x = r->in[0];
    if (r->op != SN_OP_reshape || r->rank >= x->rank) return false;
    int more = x->rank - r->rank;
    for (int a = 0; a < x->rank; a++)
        if (x->shape[a] != (a < more ? 1 : r->shape[a - more])) return false;
    for (int depth = 0; depth < 4 && sn_is_elementwise(x) && x->n_in; depth++) x = x->in[0];
    return sn_reduces(x);
}

/* f(moved x, moved y, c) = moved f(x, y, c) for one transpose or reshape of all operands */
sn_node *sn_simplify_raise_view(sn_node *n) {
    const sn_node *view = NULL;
    double v;
    if (!sn_is_inline(n) || n->n_in > 3) return NULL;
    for (int i = 0; i < n->n_in; i++) {
        const sn_node *x = n->in[i];
        if (sn_match_const(x, &v)) continue;
        if ((x->op != SN_OP_transpose && x->op != SN_OP_reshape) || drops_summed(x)) return NULL;
        if (view && (x->op != view->op || !sn_shapes_equal(x->in[0], view->in[0]) ||
                     !same_ints(&x->attr[0], &view->attr[0])))
            return NULL;
        view = x;
    }
    if (!view) return NULL;
    sn_node *in[3];
    for (int i = 0; i < n->n_in; i++)
        in[i] =
            sn_match_const(n->in[i], &v)
                ? sn_b_broadcast_like(sn_b_const(n->m, (sn_dtype)n->in[i]->dtype, v), view->in[0])
                : n->in[i]->in[0];
    sn_node *f = sn_node_new(n->m, (sn_op)n->op, n->n_in, in, n->n_attr, n->attr);
    return sn_node_with(view, &f);
}

/* Whether b's shape is a's with axes of size 1 added or removed. */
static bool unit_reshape(int ra, const sn_dim *a, int rb, const sn_dim *b) {
    int i = 0, j = 0;
    for (;;) {
        while (i < ra && a[i] == 1) i++;
        while (j < rb && b[j] == 1) j++;
        if (i == ra || j == rb) return i == ra && j == rb;
        if (a[i++] != b[j++]) return false;
    }
}

/* broadcast x with axes of size 1 added or removed = broadcast (x with those axes) */
sn_node *sn_simplify_reshape_broadcast(sn_node *n) {
    sn_node *b = n->in[0];
    if (b->op != SN_OP_broadcast || !unit_reshape(b->rank, b->shape, n->rank, n->shape))
        return NULL;
    const sn_node *x = b->in[0];
    sn_dim shape[SN_MAX_RANK];
    int i = 0;
    for (int j = 0; j < n->rank; j++) { /* axis j of n is the next axis of b whose size is not 1 */
        shape[j] = 1;
        if (n->shape[j] == 1) continue;
        while (b->shape[i] == 1) i++;
        int k = i++ - (b->rank - x->rank);
        shape[j] = k < 0 ? 1 : x->shape[k];
    }
    return sn_b_broadcast_like(sn_b_reshape(b->in[0], n->rank, shape), n);
}

/* (broadcast x) transposed = broadcast (x transposed) */
sn_node *sn_simplify_transpose_broadcast(sn_node *n) {
    sn_node *b = n->in[0];
    if (b->op != SN_OP_broadcast) return NULL;
    const sn_node *x = b->in[0];
    sn_dim shape[SN_MAX_RANK];
    for (int a = 0; a < n->rank; a++) {
        int k = a - (b->rank - x->rank);
        shape[a] = k < 0 ? 1 : x->shape[k];
    }
    sn_node *t = sn_b_reshape(b->in[0], n->rank, shape);
    return sn_b_broadcast_like(sn_node_with(n, &t), n);
}

/* broadcast (x with leading axes of size 1) = broadcast x */
sn_node *sn_simplify_broadcast_reshape(sn_node *n) {
    sn_node *r = n->in[0];
    if (r->op != SN_OP_reshape || r->in[0]->rank >= r->rank) return NULL;
    int more = r->rank - r->in[0]->rank;
    for (int a = 0; a < r->rank; a++)
        if (r->shape[a] != (a < more ? 1 : r->in[0]->shape[a - more])) return NULL;
    return sn_b_broadcast_like(r->in[0], n);
}

/* Axes moved among axes of size 1 only: the same elements in the same order, a reshape. */
sn_node *sn_simplify_transpose_units(sn_node *n) {
    const sn_attr *perm = sn_attr_get(n, SN_A_perm);
    int64_t last = -1;
    for (int i = 0; i < n->rank; i++) {
        if (n->shape[i] == 1) continue;
        if (perm->v[i] < last) return NULL;
        last = perm->v[i];
    }
    return sn_b_reshape(n->in[0], n->rank, n->shape);
}

static bool unit_step(const sn_node *slice) {
    const sn_attr *step = sn_attr_get(slice, SN_A_step);
    for (int i = 0; step && i < step->n; i++)
        if (step->v[i] != 1) return false;
    return true;
}

/* a slice of a slice is one slice */
sn_node *sn_simplify_slice_slice(sn_node *n) {
    sn_node *x = n->in[0];
    if (x->op != SN_OP_slice || !unit_step(n) || !unit_step(x)) return NULL;
    const sn_attr *outer = sn_attr_get(n, SN_A_start), *inner = sn_attr_get(x, SN_A_start);
    sn_dim start[SN_MAX_RANK];
    for (int i = 0; i < n->rank; i++) start[i] = sn_dim_add(n->m, outer->v[i], inner->v[i]);
    return SN_NODE(n->m, slice,
                   SN_ATTRS(SN_LIST(start, n->rank, start), SN_LIST(size, n->rank, n->shape)),
                   x->in[0]);
}

/* a slice that lies inside one operand of a concat is a slice of that operand */
sn_node *sn_simplify_slice_concat(sn_node *n) {
    sn_node *x = n->in[0];
    if (x->op != SN_OP_concat || !unit_step(n)) return NULL;
    int axis = (int)sn_attr_int(x, SN_A_axis, 0);
    const sn_attr *start = sn_attr_get(n, SN_A_start);
    sn_dim from[SN_MAX_RANK], at = 0, end = sn_dim_add(n->m, start->v[axis], n->shape[axis]);
    memcpy(from, start->v, sizeof *from * (size_t)n->rank);
    for (int i = 0; i < x->n_in; i++) {
        sn_dim next = sn_dim_add(n->m, at, x->in[i]->shape[axis]);
        if (sn_dim_le(n->m, at, start->v[axis]) && sn_dim_le(n->m, end, next)) {
            from[axis] = sn_dim_sub(n->m, start->v[axis], at);
            return SN_NODE(
                n->m, slice,
                SN_ATTRS(SN_LIST(start, n->rank, from), SN_LIST(size, n->rank, n->shape)),
                x->in[i]);
        }
        at = next;
    }
    return NULL;
}

/* parts without elements are left out of a concat */
sn_node *sn_simplify_concat_empty(sn_node *n) {
    int axis = (int)sn_attr_int(n, SN_A_axis, 0), k = 0;
    sn_node **part = sn_arena_alloc(n->m, sizeof *part * n->n_in);
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i]->shape[axis] != 0) part[k++] = n->in[i];
    return k && k < n->n_in ? sn_b_concat(n->m, k, part, axis) : NULL;
}

/* a concat of adjoining slices of one tensor is one slice */
sn_node *sn_simplify_concat_slices(sn_node *n) {
    int axis = (int)sn_attr_int(n, SN_A_axis, 0);
    sn_node *x = n->in[0]->op == SN_OP_slice ? n->in[0]->in[0] : NULL;
    sn_dim at = 0;
    if (!x) return NULL;
    const sn_attr *first = sn_attr_get(n->in[0], SN_A_start);
    for (int i = 0; i < n->n_in; i++) {
        const sn_node *s = n->in[i];
        if (s->op != SN_OP_slice || s->in[0] != x || !unit_step(s)) return NULL;
        const sn_attr *start = sn_attr_get(s, SN_A_start);
        for (int a = 0; a < n->rank; a++) {
            sn_dim want = a == axis && i ? at : first->v[a];
            if (start->v[a] != want) return NULL;
        }
        at = sn_dim_add(n->m, start->v[axis], s->shape[axis]);
    }
    return SN_NODE(n->m, slice,
                   SN_ATTRS(SN_LIST(start, n->rank, first->v), SN_LIST(size, n->rank, n->shape)),
                   x);
}

/* x padded with zeros along one axis: the axis; -1: something else. */
static int padded_axis(const sn_node *n) {
    if (n->op != SN_OP_pad || sn_attr_flt(n, SN_A_value, 0) != 0) return -1;
    const sn_attr *low = sn_attr_get(n, SN_A_low), *high = sn_attr_get(n, SN_A_high);
    int axis = -1;
    for (int a = 0; a < n->rank; a++) {
        if (!low->v[a] && !high->v[a]) continue;
        if (axis >= 0) return -1;
        axis = a;
    }
    return axis;
}

/* Appends x, or the operands of the concat along the axis that x is. */
static int joined(sn_node *x, int axis, sn_node **part, int n, int max_parts) {
    bool join = x->op == SN_OP_concat && sn_attr_int(x, SN_A_axis, 0) == axis;
    int count = join ? x->n_in : 1;
    for (int i = 0; i < count && n < max_parts; i++) part[n++] = join ? x->in[i] : x;
    return n;
}

/* a sum of tensors that are padded with zeros and side by side is a concat (the gradient of a split
 * tensor) */
sn_node *sn_simplify_add_pads(sn_node *n) {
    enum { MAX_PARTS = 32 };
    sn_node *x = n->in[0], *y = n->in[1], *part[MAX_PARTS];
    int axis = padded_axis(x);
    if (axis < 0 || axis != padded_axis(y)) return NULL;
    sn_module *m = n->m;
    for (int order = 0; order < 2; order++) {
        sn_node *first = order ? y : x, *then = order ? x : y;
        sn_dim at = sn_attr_get(first, SN_A_low)->v[axis];
        sn_dim next = sn_dim_add(m, at, first->in[0]->shape[axis]);
        if (next != sn_attr_get(then, SN_A_low)->v[axis]) continue;
        int k = joined(first->in[0], axis, part, 0, MAX_PARTS);
        k = joined(then->in[0], axis, part, k, MAX_PARTS);
        if (k == MAX_PARTS) return NULL;
        sn_node *all = sn_b_concat(m, k, part, axis);
        sn_dim low[SN_MAX_RANK] = {0}, high[SN_MAX_RANK] = {0};
        low[axis] = at;
        high[axis] = sn_attr_get(then, SN_A_high)->v[axis];
        if (!low[axis] && !high[axis]) return all;
        return SN_NODE(
            m, pad,
            SN_ATTRS(SN_LIST(low, n->rank, low), SN_LIST(high, n->rank, high), SN_FLT(value, 0)),
            all);
    }
    return NULL;
}

/* an index along an axis of size 1 is 0; along another axis it does not vary with the others */
sn_node *sn_simplify_shrink_iota(sn_node *n) {
    int axis = (int)sn_attr_int(n, SN_A_axis, 0);
    sn_dim d = n->shape[axis];
    if (d == 1) return sn_b_broadcast_like(sn_b_const(n->m, (sn_dtype)n->dtype, 0), n);
    sn_dim shape[SN_MAX_RANK];
    bool smaller = false;
    for (int i = 0; i < n->rank; i++) {
        shape[i] = i == axis ? d : 1;
        smaller |= shape[i] != n->shape[i] || i < axis;
    }
    if (!smaller) return NULL;
    sn_node *x = sn_b_iota(n->m, (sn_dtype)n->dtype, n->rank - axis, shape + axis, 0);
    return sn_b_broadcast_like(x, n);
}
