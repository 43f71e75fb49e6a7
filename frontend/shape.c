/* shape.c: operations of the DSL that move elements: reshape, transpose, slices, concatenation,
 * padding, updates. */
#include "frontend/front.h"

#include <string.h>

sn_tensor sn_reshape_at(sn_loc at, sn_tensor x, const sn_dim *list) {
    FRONT_ENTER("reshape", x);
    sn_module *m = x->m;
    sn_dim shape[SN_MAX_RANK + 2], known = 1;
    int rest = -1, n = 0;
    if (!list) return sn_module_fail(m, SN_ERR_USAGE, "reshape: the list of sizes is NULL");
    do { /* the list with 1 for the inferred size */
        bool unknown = list[n] == SN_REST;
        if (unknown && rest >= 0)
            return sn_module_fail(m, SN_ERR_USAGE, "reshape: SN_REST occurs twice");
        if (unknown) rest = n;
        shape[n] = unknown ? 1 : list[n];
    } while (n <= SN_MAX_RANK && list[n++] != SN_END);
    int rank = front_dims(m, "reshape", shape);
    if (rank < 0) return bad_;
    for (int i = 0; i < rank; i++) known = sn_dim_mul(m, known, shape[i]);
    sn_dim all = sn_dim_product(m, x->rank, x->shape);
    bool fits = rest < 0 ? known == all : sn_dim_div(m, all, known, &shape[rest < 0 ? 0 : rest]);
    if (fits) return sn_b_reshape(x, rank, shape);
    char t[SN_NODE_TEXT], a[64], b[64], s[128];
    sn_dim_print(m, all, a, sizeof a);
    sn_dim_print(m, known, b, sizeof b);
    sn_shape_print(m, rank, shape, s, sizeof s);
    return sn_module_fail(m, SN_ERR_SHAPE,
                          "reshape: %s has %s elements, but %s%s has %s. Hint: the numbers must be "
                          "equal for all sizes; SN_REST infers one size",
                          sn_node_text(x, t), a, s, rest >= 0 ? " (1 for SN_REST)" : "", b);
}

sn_tensor sn_transpose_at(sn_loc at, sn_tensor x, const int *perm) {
    FRONT_ENTER("transpose", x);
    int n = front_axes(x->m, "transpose", perm);
    char t[SN_NODE_TEXT];
    if (n < 0) return bad_;
    if (n != x->rank)
        return sn_module_fail(x->m, SN_ERR_SHAPE,
                              "transpose: %d axes are listed, but %s has %d; list each once", n,
                              sn_node_text(x, t), x->rank);
    int64_t p[SN_MAX_RANK] = {0};
    unsigned seen = 0;
    for (int i = 0; i < n; i++) {
        int a = front_axis(x->m, "transpose", x, perm[i], x->rank);
        if (a < 0) return bad_;
        if (seen & 1u << a)
            return sn_module_fail(x->m, SN_ERR_SHAPE,
                                  "transpose: axis %d is listed twice; list each axis of %s once",
                                  perm[i], sn_node_text(x, t));
        seen |= 1u << a;
        p[i] = a;
    }
    return sn_b_transpose(x, n, p);
}

sn_tensor sn_swap_at(sn_loc at, sn_tensor x, int i, int j) {
    FRONT_ENTER("transpose", x);
    int a = front_axis(x->m, "transpose", x, i, x->rank);
    int b = a < 0 ? -1 : front_axis(x->m, "transpose", x, j, x->rank);
    if (b < 0) return bad_;
    int64_t p[SN_MAX_RANK] = {0};
    for (int k = 0; k < x->rank; k++) p[k] = k == a ? b : k == b ? a : k;
    return sn_b_transpose(x, x->rank, p);
}

sn_tensor sn_broadcast_at(sn_loc at, sn_tensor x, const sn_dim *shape) {
    FRONT_ENTER("broadcast", x);
    int rank = front_dims(x->m, "broadcast", shape);
    return rank < 0 ? bad_ : sn_b_broadcast(x, rank, shape);
}

sn_tensor sn_expand_at(sn_loc at, sn_tensor x, int axis) {
    FRONT_ENTER("expand", x);
    int a = front_axis(x->m, "expand", x, axis, x->rank + 1);
    if (a < 0) return bad_;
    if (x->rank == SN_MAX_RANK)
        return sn_module_fail(x->m, SN_ERR_SHAPE, "expand: more than %d axes", SN_MAX_RANK);
    sn_dim shape[SN_MAX_RANK] = {0};
    for (int i = 0, j = 0; i <= x->rank; i++) shape[i] = i == a ? 1 : x->shape[j++];
    return sn_b_reshape(x, x->rank + 1, shape);
}

sn_tensor sn_squeeze_at(sn_loc at, sn_tensor x, int axis) {
    FRONT_ENTER("squeeze", x);
    int a = front_axis(x->m, "squeeze", x, axis, x->rank);
    char t[SN_NODE_TEXT];
    if (a < 0) return bad_;
    if (x->shape[a] != 1)
        return sn_module_fail(x->m, SN_ERR_SHAPE, "squeeze: the size of axis %d of %s is not 1",
                              axis, sn_node_text(x, t));
    sn_dim shape[SN_MAX_RANK] = {0};
    for (int i = 0, j = 0; i < x->rank; i++)
        if (i != a) shape[j++] = x->shape[i];
    return sn_b_reshape(x, x->rank - 1, shape);
}

sn_tensor sn_slice_at(sn_loc at, sn_tensor x, int axis, sn_dim start, sn_dim size, int64_t step) {
    FRONT_ENTER("slice", x);
    int a = front_axis(x->m, "slice", x, axis, x->rank);
    if (a < 0) return bad_;
    if (step == 1) return sn_b_slice(x, a, start, size);
    sn_dim from[SN_MAX_RANK] = {0}, count[SN_MAX_RANK] = {0};
    int64_t by[SN_MAX_RANK] = {0};
    for (int i = 0; i < x->rank; i++) {
        from[i] = i == a ? start : 0;
        count[i] = i == a ? size : x->shape[i];
        by[i] = i == a ? step : 1;
    }
    return SN_NODE(x->m, slice,
                   SN_ATTRS(SN_LIST(start, x->rank, from), SN_LIST(size, x->rank, count),
                            SN_LIST(step, x->rank, by)),
                   x);
}

sn_tensor sn_index_at(sn_loc at, sn_tensor x, int axis, sn_dim i) {
    return sn_squeeze_at(at, sn_slice_at(at, x, axis, i, 1, 1), axis);
}

void sn_split_at(sn_loc at, sn_tensor x, int axis, int n, sn_tensor *part) {
    sn_tensor bad;
    for (int i = 0; part && i < n; i++) part[i] = x ? sn_module_error_node(x->m) : NULL;
    if (!front_enter(at, "split", 1, 1, &x, &bad)) return;
    int a = front_axis(x->m, "split", x, axis, x->rank);
    sn_dim size;
    char t[SN_NODE_TEXT];
    if (a < 0) return;
    if (!part) {
        sn_module_fail(x->m, SN_ERR_USAGE, "split: the list for the parts is NULL");
        return;
    }
    if (n < 1 || !sn_dim_div(x->m, x->shape[a], n, &size)) {
        sn_module_fail(x->m, SN_ERR_SHAPE,
                       "split: axis %d of %s cannot be split into %d equal parts", axis,
                       sn_node_text(x, t), n);
        return;
    }
    for (int i = 0; i < n; i++) part[i] = sn_b_slice(x, a, sn_dim_mul(x->m, size, i), size);
}

sn_tensor sn_concat_at(sn_loc at, int axis, const sn_tensor *x) {
    int n = front_tensors(x);
    sn_tensor bad;
    if (!front_enter(at, "concat", n, n, x, &bad)) return bad;
    int a = front_axis(x[0]->m, "concat", x[0], axis, x[0]->rank);
    char s[SN_NODE_TEXT], t[SN_NODE_TEXT];
    if (a < 0) return bad;
    for (int i = 1; i < n; i++) {
        bool fits = x[i]->rank == x[0]->rank && x[i]->dtype == x[0]->dtype;
        for (int k = 0; fits && k < x[0]->rank; k++)
            fits = k == a || x[i]->shape[k] == x[0]->shape[k];
        if (!fits)
            return sn_module_fail(x[0]->m, SN_ERR_SHAPE,
                                  "concat: operand %d is %s, but operand 1 %s; types and all sizes "
                                  "except axis %d must be equal",
                                  i + 1, sn_node_text(x[i], s), sn_node_text(x[0], t), axis);
    }
    return n == 1 ? x[0] : sn_b_concat(x[0]->m, n, x, a);
}

sn_tensor sn_stack_at(sn_loc at, int axis, const sn_tensor *x) {
    int n = front_tensors(x);
    sn_tensor bad;
    if (!front_enter(at, "stack", n, n, x, &bad)) return bad;
    sn_tensor *y = sn_arena_alloc(x[0]->m, sizeof *y * (size_t)(n + 1));
    for (int i = 0; i < n; i++) y[i] = sn_expand_at(at, x[i], axis);
    return sn_concat_at(at, axis, y);
}

sn_tensor sn_pad_at(sn_loc at, sn_tensor x, int axis, sn_dim low, sn_dim high, double value) {
    FRONT_ENTER("pad", x);
    int a = front_axis(x->m, "pad", x, axis, x->rank);
    if (a < 0) return bad_;
    sn_dim before[SN_MAX_RANK] = {0}, after[SN_MAX_RANK] = {0};
    before[a] = low;
    after[a] = high;
    return SN_NODE(x->m, pad,
                   SN_ATTRS(SN_FLT(value, value), SN_LIST(low, x->rank, before),
                            SN_LIST(high, x->rank, after)),
                   x);
}

sn_tensor sn_update_rows_at(sn_loc at, sn_tensor x, int axis, sn_tensor y, sn_tensor ids) {
    FRONT_ENTER("update_rows", x, y, ids);
    int a = front_axis(x->m, "update_rows", x, axis, x->rank);
    char s[SN_NODE_TEXT], t[SN_NODE_TEXT];
    if (a < 0) return bad_;
    bool fits = x->dtype == y->dtype && x->rank == y->rank && a > 0 && front_is_integer(ids) &&
                ids->rank == 1;
    for (int i = 1; fits && i < x->rank; i++) fits = i == a || x->shape[i] == y->shape[i];
    if (!fits)
        return sn_module_fail(x->m, SN_ERR_SHAPE,
                              "update_rows: %s into %s; types, ranks and the axes besides the "
                              "first and axis %d must be equal, with an integer per row",
                              sn_node_text(y, s), sn_node_text(x, t), a);
    return SN_NODE(x->m, update_rows, SN_ATTRS(SN_INT(axis, a)), x, y, ids);
}

sn_tensor sn_update_at(sn_loc at, sn_tensor x, sn_tensor y, const sn_dim *start) {
    FRONT_ENTER("update_slice", x, y);
    int n = front_dims(x->m, "update_slice", start);
    char s[SN_NODE_TEXT], t[SN_NODE_TEXT];
    if (n < 0) return bad_;
    if (x->dtype != y->dtype || x->rank != y->rank || n != x->rank)
        return sn_module_fail(x->m, SN_ERR_SHAPE,
                              "update_slice: %s into %s with %d starts; types and ranks must be "
                              "equal, with one start per axis",
                              sn_node_text(y, s), sn_node_text(x, t), n);
    return SN_NODE(x->m, update_slice, SN_ATTRS(SN_LIST(start, n, start)), x, y);
}
