/* windows.c: a slice of a concatenation, or of a sum of padded tensors, reads the parts where they are,
 * at an index that is computed: causal convolutions and token shifts, whose input begins with the past,
 * and their gradients. Otherwise the parts would be copied to make a whole.
 *
 *     slice(concat(a, b), i)  ->  select(t + i < n, a[t + i], b[t + i - n])
 *     slice(pad(x, n), i)     ->  select(n <= t + i < n + size, x[t + i - n], 0)
 *
 * Along an axis that is not the last one, so that the index is one of a row. Requires composites to be
 * expanded, and slices that lie inside one part to be slices of that part (simplify). Keeps values.
 * Terminates: a slice becomes look-ups and slices of smaller parts. */
#include "passes/graph_util.h"
#include "passes/match.h"
#include "passes/passes.h"

#include <string.h>

enum { DEEPEST = 16, MAX_PARTS = 4, SHORT_ROW = 8 };

typedef struct window {
    sn_module *m;
    int axis, rank;
    sn_dim shape[SN_MAX_RANK]; /* of the slice */
} window;

/* ---- what can be read so ---- */

static bool has_parts(const sn_node *x, int axis) {
    if (x->op == SN_OP_concat) return sn_attr_int(x, SN_A_axis, 0) == axis && x->n_in <= MAX_PARTS;
    if (x->op != SN_OP_pad || sn_attr_flt(x, SN_A_value, 0) != 0) return false;
    const sn_attr *low = sn_attr_get(x, SN_A_low), *high = sn_attr_get(x, SN_A_high);
    for (int a = 0; a < x->rank; a++)
        if (a != axis && (low->v[a] || high->v[a])) return false;
    return true;
}

/* A concatenation, a tensor padded with zeros, or a sum of such. */
static bool is_joined(const sn_node *x, int axis, int depth) {
    if (has_parts(x, axis)) return true;
    return x->op == SN_OP_add && depth < DEEPEST && is_joined(x->in[0], axis, depth + 1) &&
           is_joined(x->in[1], axis, depth + 1);
}

static bool is_constant(const sn_node *x) {
    double v;
    return sn_match_const(x, &v);
}

/* Whether all parts have elements: a look-up in none would read something else. */
static bool never_empty(const sn_node *x, int axis) {
    if (x->op == SN_OP_add) return never_empty(x->in[0], axis) && never_empty(x->in[1], axis);
    for (int i = 0; i < x->n_in; i++)
        if (!is_constant(x->in[i]) && sn_dim_lo(x->m, x->in[i]->shape[axis]) < 1) return false;
    return true;
}

/* ---- reading ---- */

/* t + by as i64 along axis `axis` of `rank` axes, the others of size 1 */
static sn_node *index_of(const window *w, int rank, int axis, sn_dim by) {
    sn_dim shape[SN_MAX_RANK];
    for (int a = 0; a < rank; a++) shape[a] = a == axis ? w->shape[w->axis] : 1;
    sn_node *t = sn_b_iota(w->m, SN_I64, rank, shape, axis);
    return by ? sn_b_binary(SN_OP_add, t, sn_b_dim(w->m, SN_I64, by)) : t;
}

static sn_node *filled(const window *w, const sn_node *x) {
    double v = 0;
    sn_match_const(x, &v);
    return sn_b_broadcast(sn_b_const(w->m, (sn_dtype)x->dtype, v), w->rank, w->shape);
}

/* x without its axis varying, if it is broadcast along it; NULL: it is not. */
static sn_node *fixed_along(const window *w, sn_node *x) {
    if (x->op != SN_OP_broadcast) return NULL;
    sn_node *y = x->in[0];
    int a = w->axis - (x->rank - y->rank);
    return a < 0 || y->shape[a] == 1 ? sn_b_broadcast(y, w->rank, w->shape) : NULL;
}

/* x[t + by], or any element where there is none. */
static sn_node *look_up(const window *w, sn_node *x, sn_dim by) {
    sn_node *same = fixed_along(w, x);
    if (same) return same;
    if (x->op == SN_OP_mul) /* by what is the same everywhere: multiplied after the look-up */
        for (int i = 0; i < 2; i++)
            if ((same = fixed_along(w, x->in[i])))
                return sn_b_binary(SN_OP_mul, look_up(w, x->in[1 - i], by), same);
    sn_node *i = index_of(w, 1, 0, by),
            *last = sn_b_dim(w->m, SN_I64, sn_dim_sub(w->m, x->shape[w->axis], 1));
    i = sn_b_binary(SN_OP_max, sn_b_binary(SN_OP_min, i, last), sn_b_const(w->m, SN_I64, 0));
    sn_node *in[] = {x, i};
    return sn_node_new(w->m, SN_OP_gather, 2, in, SN_ATTRS(SN_INT(axis, w->axis)));
}

/* Where t + by < limit: x, else y. NULL: no element is such. */
static sn_node *before(const window *w, sn_dim by, sn_dim limit, sn_node *x, sn_node *y) {
    if (!x || !y) return x ? x : y;
    sn_node *end = sn_b_dim(w->m, SN_I64, limit);
    return sn_b_select(sn_b_binary(SN_OP_lt, index_of(w, w->rank, w->axis, by), end), x, y);
}

/* x[t + by] where there is such an element. */
static sn_node *in_part(const window *w, sn_node *x, sn_dim by) {
    sn_dim end = sn_dim_add(w->m, by, w->shape[w->axis]);
    bool inside = sn_dim_le(w->m, 0, by) && sn_dim_le(w->m, end, x->shape[w->axis]);
    return inside ? sn_b_slice(x, w->axis, by, w->shape[w->axis]) : look_up(w, x, by);
}

/* Element t + by of parts one after another; NULL: a part of zeros, like those of `whole`. */
static sn_node *from_parts(const window *w, int n, sn_node *const *part, const sn_dim *size,
                           const sn_node *whole, sn_dim by) {
    sn_dim start = whole->shape[w->axis], last = sn_dim_add(w->m, by, w->shape[w->axis]);
    sn_node *y = NULL;
    for (int i = n - 1; i >= 0; i--) {
        sn_dim end = start;
        start = sn_dim_sub(w->m, end, size[i]);
        if (!size[i] || sn_dim_le(w->m, end, by) || sn_dim_le(w->m, last, start)) continue;
        bool constant = !part[i] || is_constant(part[i]);
        sn_node *x = constant ? filled(w, part[i] ? part[i] : whole)
                              : in_part(w, part[i], sn_dim_sub(w->m, by, start));
        y = before(w, by, end, x, y);
    }
    return y;
}

/* x[t + by] of what is_joined. */
static sn_node *joined_at(const window *w, sn_node *x, sn_dim by) {
    sn_node *part[MAX_PARTS] = {NULL};
    sn_dim size[MAX_PARTS];
    if (x->op == SN_OP_add)
        return sn_b_binary(SN_OP_add, joined_at(w, x->in[0], by), joined_at(w, x->in[1], by));
    if (x->op == SN_OP_pad) {
        part[1] = x->in[0];
        size[0] = sn_attr_get(x, SN_A_low)->v[w->axis];
        size[1] = x->in[0]->shape[w->axis];
        size[2] = sn_attr_get(x, SN_A_high)->v[w->axis];
        return from_parts(w, 3, part, size, x, by);
    }
    for (int i = 0; i < x->n_in; i++) {
        part[i] = x->in[i];
        size[i] = x->in[i]->shape[w->axis];
    }
    return from_parts(w, x->n_in, part, size, x, by);
}

/* The only axis along which n is a part of its operand; -1: not such a slice. */
static int cut_axis(const sn_node *n) {
    const sn_attr *start = sn_attr_get(n, SN_A_start), *step = sn_attr_get(n, SN_A_step);
    int axis = -1;
    for (int a = 0; a < n->rank; a++) {
        if (step && step->v[a] != 1) return -1;
        if (!start->v[a] && n->shape[a] == n->in[0]->shape[a]) continue;
        if (axis >= 0) return -1;
        axis = a;
    }
    return axis;
}

static sn_node *rule(void *ctx, sn_node *n) {
    int64_t row;
    int axis = n->op == SN_OP_slice ? cut_axis(n) : -1;
    (void)ctx;
    if (axis < 0 || axis == n->rank - 1 || !is_joined(n->in[0], axis, 0) ||
        !never_empty(n->in[0], axis) ||
        (sn_dim_is_const(n->m, n->shape[n->rank - 1], &row) && row < SHORT_ROW))
        return n;
    window w = {.m = n->m, .axis = axis, .rank = n->rank};
    memcpy(w.shape, n->shape, sizeof *w.shape * (size_t)n->rank);
    sn_loc loc = sn_module_loc(n->m);
    sn_module_set_loc(n->m, n->loc);
    sn_node *y = joined_at(&w, n->in[0], sn_attr_get(n, SN_A_start)->v[axis]);
    sn_module_set_loc(n->m, loc);
    return y;
}

int sn_pass_windows(sn_passes *p) {
    return sn_rewrite_module(p->m, rule, p);
}
