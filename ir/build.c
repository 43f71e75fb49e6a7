/* build.c: short constructors for passes and decompositions. Types must match; a mismatch becomes
 * the module's error. */
#include "ir/ir.h"

#include <string.h>

sn_node *sn_b_const(sn_module *m, sn_dtype t, double v) {
    return sn_node_new(m, SN_OP_const, 0, NULL, SN_ATTRS(SN_INT(dtype, t), SN_FLT(value, v)));
}

sn_node *sn_b_unary(sn_op op, sn_node *x) {
    return sn_node_new(x->m, op, 1, &x, SN_NO_ATTRS);
}

bool sn_b_common_shape(sn_module *m, const sn_node *x, const sn_node *y, int *rank, sn_dim *shape) {
    (void)m;
    int r = x->rank > y->rank ? x->rank : y->rank;
    for (int i = 0; i < r; i++) {
        sn_dim a = i < r - x->rank ? 1 : x->shape[i - (r - x->rank)];
        sn_dim b = i < r - y->rank ? 1 : y->shape[i - (r - y->rank)];
        if (a != b && a != 1 && b != 1) return false;
        shape[i] = a == 1 ? b : a;
    }
    *rank = r;
    return true;
}

sn_node *sn_b_broadcast(sn_node *x, int rank, const sn_dim *shape) {
    if (x->rank == rank && (!rank || !memcmp(x->shape, shape, sizeof(sn_dim) * (size_t)rank)))
        return x;
    return sn_node_new(x->m, SN_OP_broadcast, 1, &x, SN_ATTRS(SN_LIST(shape, rank, shape)));
}

sn_node *sn_b_broadcast_like(sn_node *x, const sn_node *like) {
    return sn_b_broadcast(x, like->rank, like->shape);
}

sn_node *sn_b_binary(sn_op op, sn_node *x, sn_node *y) {
    int rank;
    sn_dim shape[SN_MAX_RANK];
    if (sn_b_common_shape(x->m, x, y, &rank, shape)) {
        x = sn_b_broadcast(x, rank, shape);
        y = sn_b_broadcast(y, rank, shape);
    }
    return sn_node_new(x->m, op, 2, (sn_node *[]){x, y}, SN_NO_ATTRS);
}

sn_node *sn_b_scalar(sn_op op, sn_node *x, double y) {
    return sn_b_binary(op, x, sn_b_const(x->m, (sn_dtype)x->dtype, y));
}

sn_node *sn_b_select(sn_node *c, sn_node *x, sn_node *y) {
    sn_node *in[3] = {c, x, y};
    for (int i = 0; i < 3; i++) {
        int rank = in[i]->rank;
        sn_dim shape[SN_MAX_RANK];
        if (rank) memcpy(shape, in[i]->shape, sizeof(sn_dim) * (size_t)rank);
        for (int j = 0; j < 3; j++) {
            sn_node *grown = sn_b_broadcast(in[i], rank, shape);
            /* infer.c reports the error */
            if (!sn_b_common_shape(c->m, grown, in[j], &rank, shape)) break;
        }
        in[i] = sn_b_broadcast(in[i], rank, shape);
    }
    return sn_node_new(c->m, SN_OP_select, 3, in, SN_NO_ATTRS);
}

sn_node *sn_b_cast(sn_node *x, sn_dtype t) {
    if (x->dtype == t) return x;
    return sn_node_new(x->m, SN_OP_cast, 1, &x, SN_ATTRS(SN_INT(dtype, t)));
}

sn_node *sn_b_reshape(sn_node *x, int rank, const sn_dim *shape) {
    if (x->rank == rank && (!rank || !memcmp(x->shape, shape, sizeof(sn_dim) * (size_t)rank)))
        return x;
    return sn_node_new(x->m, SN_OP_reshape, 1, &x, SN_ATTRS(SN_LIST(shape, rank, shape)));
}

sn_node *sn_b_transpose(sn_node *x, int rank, const int64_t *perm) {
    return sn_node_new(x->m, SN_OP_transpose, 1, &x, SN_ATTRS(SN_LIST(perm, rank, perm)));
}

sn_node *sn_b_slice(sn_node *x, int axis, sn_dim start, sn_dim size) {
    sn_dim from[SN_MAX_RANK] = {0}, count[SN_MAX_RANK] = {0};
    for (int i = 0; i < x->rank; i++) count[i] = x->shape[i];
    if (axis >= 0 && axis < x->rank) {
        from[axis] = start;
        count[axis] = size;
    }
    return sn_node_new(x->m, SN_OP_slice, 1, &x,
                       SN_ATTRS(SN_LIST(start, x->rank, from), SN_LIST(size, x->rank, count)));
}

sn_node *sn_b_concat(sn_module *m, int n, sn_node *const *x, int axis) {
    return sn_node_new(m, SN_OP_concat, n, x, SN_ATTRS(SN_INT(axis, axis)));
}

sn_node *sn_b_reduce(sn_op op, sn_node *x, int n_axes, const int64_t *axes) {
    return sn_node_new(x->m, op, 1, &x, SN_ATTRS(SN_LIST(axes, n_axes, axes)));
}

sn_node *sn_b_column(sn_node *x) {
    sn_dim shape[SN_MAX_RANK + 1];
    if (x->rank) memcpy(shape, x->shape, sizeof *shape * x->rank);
    shape[x->rank] = 1;
    return sn_b_reshape(x, x->rank + 1, shape);
}

sn_node *sn_b_mean(sn_node *x, int n_axes, const int64_t *axes) {
    sn_dim count = 1;
    for (int i = 0; i < n_axes; i++) count = sn_dim_mul(x->m, count, x->shape[axes[i]]);
    sn_node *n = sn_b_dim(x->m, (sn_dtype)x->dtype, count);
    return sn_b_binary(SN_OP_div, sn_b_reduce(SN_OP_reduce_sum, x, n_axes, axes), n);
}

sn_node *sn_b_mean_last(sn_node *x) {
    int64_t last = x->rank - 1;
    return sn_b_mean(x, 1, &last);
}

sn_node *sn_b_softmax(sn_node *x, sn_node *sink, int axis) {
    return sn_node_new(x->m, SN_OP_softmax, sink ? 2 : 1, (sn_node *[]){x, sink},
                       SN_ATTRS(SN_INT(axis, axis)));
}

sn_node *sn_b_iota(sn_module *m, sn_dtype t, int rank, const sn_dim *shape, int axis) {
    return sn_node_new(m, SN_OP_iota, 0, NULL,
                       SN_ATTRS(SN_INT(dtype, t), SN_LIST(shape, rank, shape), SN_INT(axis, axis)));
}

sn_node *sn_b_dim(sn_module *m, sn_dtype t, sn_dim d) {
    int64_t v;
    if (sn_dim_is_const(m, d, &v)) return sn_b_const(m, t, (double)v);
    return sn_node_new(m, SN_OP_dim_value, 0, NULL, SN_ATTRS(SN_INT(dtype, t), SN_INT(dim, d)));
}

sn_node *sn_b_result(sn_node *n, int index) {
    if (n->n_result == 1) return n;
    return sn_node_new(n->m, SN_OP_result, 1, &n, SN_ATTRS(SN_INT(index, index)));
}

sn_node *sn_b_attention_lse(sn_node *attention) {
    sn_node **in = sn_arena_alloc(attention->m, sizeof *in * (size_t)(attention->n_in + 1));
    in[0] = attention;
    for (int i = 0; i < attention->n_in; i++) in[1 + i] = attention->in[i];
    return sn_node_new(attention->m, SN_OP_attention_lse, attention->n_in + 1, in,
                       attention->n_attr, attention->attr);
}

sn_node *sn_arg(sn_module *m, int index, sn_dtype t, int rank, const sn_dim *shape) {
    return sn_node_new(
        m, SN_OP_arg, 0, NULL,
        SN_ATTRS(SN_INT(index, index), SN_INT(dtype, t), SN_LIST(shape, rank, shape)));
}
