/* infer_product.c: types and shapes of products and of look-ups by index. */
#include "ir/infer_impl.h"

#include <string.h>

static bool axis_list(infer_ctx *c, const sn_attr *l, const sn_node *x, unsigned *seen) {
    for (int i = 0; l && i < l->n; i++) {
        if (!sn_infer_axis(c, l->v[i], x->rank)) return false;
        if (*seen & 1u << l->v[i])
            return sn_infer_fail(c, "axis %lld is listed twice", (long long)l->v[i]);
        *seen |= 1u << l->v[i];
    }
    return true;
}

static bool same_sizes(infer_ctx *c, const sn_attr *la, const sn_attr *lb, const char *what) {
    if ((la ? la->n : 0) != (lb ? lb->n : 0))
        return sn_infer_fail(c, "the numbers of %s axes differ", what);
    for (int i = 0; la && i < la->n; i++) {
        sn_dim p = c->in[0]->shape[la->v[i]], q = c->in[1]->shape[lb->v[i]];
        char s[64], t[64];
        if (p != q)
            return sn_infer_fail(c, "%s axes %lld and %lld have sizes %s and %s", what,
                                 (long long)la->v[i], (long long)lb->v[i], sn_infer_dim(c, p, s),
                                 sn_infer_dim(c, q, t));
    }
    return true;
}

bool sn_infer_compute(infer_ctx *c, sn_dtype t) {
    const sn_attr *compute = sn_infer_attr(c, SN_A_compute);
    return !compute || (compute->i == SN_BF16 && t == SN_F32) ||
           sn_infer_fail(c, "only factors of f32 are multiplied in another type, bf16");
}

bool infer_dot(infer_ctx *c) {
    const sn_attr *ba = sn_infer_attr(c, SN_A_batch_a), *bb = sn_infer_attr(c, SN_A_batch_b);
    const sn_attr *ca = sn_infer_attr(c, SN_A_contract_a), *cb = sn_infer_attr(c, SN_A_contract_b);
    const sn_node *x = c->in[0], *y = c->in[1];
    unsigned seen_a = 0, seen_b = 0;
    if (x->dtype != y->dtype) return sn_infer_fail(c, "element types differ; cast one of them");
    if (x->dtype == SN_BOOL) return sn_infer_fail(c, "needs numbers, not bool; cast first");
    if (!sn_infer_compute(c, (sn_dtype)x->dtype)) return false;
    if (!axis_list(c, ba, x, &seen_a) || !axis_list(c, bb, y, &seen_b) ||
        !axis_list(c, ca, x, &seen_a) || !axis_list(c, cb, y, &seen_b) ||
        !same_sizes(c, ba, bb, "batch") || !same_sizes(c, ca, cb, "contracted"))
        return false;
    sn_dim s[3 * SN_MAX_RANK];
    int n = 0;
    for (int i = 0; ba && i < ba->n; i++) s[n++] = x->shape[ba->v[i]];
    for (int i = 0; i < x->rank; i++)
        if (!(seen_a & 1u << i)) s[n++] = x->shape[i];
    for (int i = 0; i < y->rank; i++)
        if (!(seen_b & 1u << i)) s[n++] = y->shape[i];
    c->out.dtype = (sn_dtype)x->dtype;
    return sn_infer_shape(c, n, s);
}

bool infer_gather(infer_ctx *c) {
    const sn_attr *axis = sn_infer_need(c, SN_A_axis);
    const sn_node *x = c->in[0], *y = c->in[1];
    if (!axis || !sn_infer_axis(c, axis->i, x->rank)) return false;
    if (!sn_infer_int((sn_dtype)y->dtype)) return sn_infer_fail(c, "indices must be integers");
    sn_dim s[2 * SN_MAX_RANK];
    int n = 0;
    for (int i = 0; i < axis->i; i++) s[n++] = x->shape[i];
    for (int i = 0; i < y->rank; i++) s[n++] = y->shape[i];
    for (int i = (int)axis->i + 1; i < x->rank; i++) s[n++] = x->shape[i];
    c->out.dtype = (sn_dtype)x->dtype;
    return sn_infer_shape(c, n, s);
}

/* x has the shape that gather would return: {shape} with {axis} replaced by y's shape. */
bool infer_scatter_add(infer_ctx *c) {
    const sn_attr *axis = sn_infer_need(c, SN_A_axis), *shape = sn_infer_need(c, SN_A_shape);
    const sn_node *x = c->in[0], *y = c->in[1];
    if (!axis || !shape || !sn_infer_shape(c, shape->n, shape->v) ||
        !sn_infer_axis(c, axis->i, shape->n))
        return false;
    if (!sn_infer_int((sn_dtype)y->dtype)) return sn_infer_fail(c, "indices must be integers");
    if (x->rank != shape->n - 1 + y->rank)
        return sn_infer_fail(c, "the rank of the rows does not match");
    for (int i = 0; i < x->rank; i++) {
        sn_dim want = i < axis->i             ? shape->v[i]
                      : i < axis->i + y->rank ? y->shape[i - axis->i]
                                              : shape->v[i - y->rank + 1];
        if (x->shape[i] != want) return sn_infer_fail(c, "axis %d of the rows does not match", i);
    }
    c->out.dtype = (sn_dtype)x->dtype;
    bool ordered = x->dtype != SN_BOOL && x->dtype != SN_U8;
    return ordered || !sn_attr_find(c->n_attr, c->attr, SN_A_combine) ||
           sn_infer_fail(c, "rows of %s can only be added", sn_dtype_name(c->out.dtype));
}

static bool indices_ok(infer_ctx *c, int first, int rank) {
    if (c->n_in - first != rank) return sn_infer_fail(c, "needs %d indices, one per axis", rank);
    for (int i = first; i < c->n_in; i++) {
        if (!sn_infer_int((sn_dtype)c->in[i]->dtype))
            return sn_infer_fail(c, "indices must be integers");
        if (!sn_shapes_equal(c->in[i], c->in[first]))
            return sn_infer_fail(c, "the indices' shapes differ");
    }
    return true;
}

bool infer_gather_nd(infer_ctx *c) {
    const sn_node *x = c->in[0];
    if (x->rank < 1) return sn_infer_fail(c, "a scalar has no elements to index");
    return indices_ok(c, 1, x->rank) && sn_infer_like(c, c->in[1], (sn_dtype)x->dtype);
}

bool infer_scatter_nd_add(infer_ctx *c) {
    const sn_attr *shape = sn_infer_need(c, SN_A_shape);
    if (!shape || !sn_infer_shape(c, shape->n, shape->v)) return false;
    if (shape->n < 1) return sn_infer_fail(c, "a scalar has no elements to index");
    c->out.dtype = (sn_dtype)c->in[0]->dtype;
    if (!indices_ok(c, 1, shape->n)) return false;
    return sn_shapes_equal(c->in[0], c->in[1]) || sn_infer_fail(c, "needs one element per index");
}

bool infer_take_blocks(infer_ctx *c) {
    const sn_attr *blocks = sn_infer_need(c, SN_A_blocks);
    const sn_node *x = c->in[0], *y = c->in[1];
    int last = x->rank - 1;
    int64_t columns;
    if (!blocks) return false;
    if (last < 0 || y->rank != x->rank) return sn_infer_fail(c, "needs indices of the same rank");
    if (!sn_infer_int((sn_dtype)y->dtype)) return sn_infer_fail(c, "indices must be integers");
    for (int i = 0; i < last; i++)
        if (x->shape[i] != y->shape[i])
            return sn_infer_fail(c, "axis %d of the indices does not match", i);
    if (blocks->i < 1 || !sn_dim_is_const(c->m, x->shape[last], &columns) || columns % blocks->i)
        return sn_infer_fail(c, "the last axis is not a multiple of %lld blocks",
                             (long long)blocks->i);
    sn_dim s[SN_MAX_RANK + 1];
    for (int i = 0; i <= last; i++) s[i] = y->shape[i];
    s[last + 1] = columns / blocks->i;
    c->out.dtype = (sn_dtype)x->dtype;
    return sn_infer_shape(c, last + 2, s);
}

bool infer_solve_triangular(infer_ctx *c) {
    const sn_node *x = c->in[0], *y = c->in[1];
    const int n = y->rank - 2;
    if (x->dtype != y->dtype || (x->dtype != SN_F32 && x->dtype != SN_F64))
        return sn_infer_fail(c, "needs a matrix and a right side of f32 or of f64");
    bool fits = n >= 0 && x->rank == y->rank && x->shape[n] == x->shape[n + 1];
    for (int i = 0; fits && i <= n; i++) fits = x->shape[i] == y->shape[i];
    if (!fits) return sn_infer_fail(c, "needs a matrix [.., T, T] and a right side [.., T, n]");
    return sn_infer_like(c, y, (sn_dtype)y->dtype);
}

/* Factors of floats, f32 with narrower ones; z [M, J] integers, J a number, M the rows of operand `once`. */
static bool grouped_ok(infer_ctx *c, int once) {
    const sn_node *x = c->in[0], *y = c->in[1], *z = c->in[2];
    const bool same = x->dtype == y->dtype, wide = x->dtype == SN_F64 || y->dtype == SN_F64;
    const bool sums_f32 = !wide && (!same || sn_infer_attr(c, SN_A_compute));
    c->out.dtype = sums_f32 ? SN_F32 : (sn_dtype)x->dtype;
    return x->rank == 2 && z->rank == 2 && sn_infer_int((sn_dtype)z->dtype) && (same || !wide) &&
           sn_dim_is_const(c->m, z->shape[1], NULL) && z->shape[0] == c->in[once]->shape[0] &&
           sn_dtype_is_float((sn_dtype)x->dtype) && sn_dtype_is_float((sn_dtype)y->dtype);
}

bool infer_grouped_dot(infer_ctx *c) {
    const sn_node *x = c->in[0], *w = c->in[1], *z = c->in[2];
    if (!grouped_ok(c, 0) || w->rank != 3 || x->shape[1] != w->shape[2] ||
        !sn_dim_is_const(c->m, w->shape[0], NULL))
        return sn_infer_fail(c, "needs floats [M, k], [E, n, k] and integers [M, J]");
    return sn_infer_compute(c, c->out.dtype) &&
           sn_infer_shape(
               c, 2, (const sn_dim[]){sn_dim_mul(c->m, z->shape[0], z->shape[1]), w->shape[1]});
}

bool infer_ragged_dot(infer_ctx *c) {
    const sn_attr *blocks = sn_infer_need(c, SN_A_blocks);
    const sn_node *x = c->in[0], *y = c->in[1], *z = c->in[2];
    if (!blocks || y->rank != 2 || !grouped_ok(c, 1) || blocks->i < 0 ||
        x->shape[0] != sn_dim_mul(c->m, z->shape[0], z->shape[1]))
        return sn_infer_fail(c, "needs floats [M J, n], [M, k] and integers [M, J]");
    return sn_infer_compute(c, c->out.dtype) &&
           sn_infer_shape(c, 3, (const sn_dim[]){blocks->i, x->shape[1], y->shape[1]});
}
