/* view.c: strided views: the algebra of transpose, slice, broadcast and reshape on strides. */
#include "passes/view.h"

#include <string.h>

sn_view sn_view_whole(sn_module *m, int buffer, sn_dtype t, int rank, const sn_dim *shape,
                      const int64_t *order) {
    sn_view v = {.buffer = buffer, .dtype = t, .rank = rank};
    sn_dim stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        int axis = order ? (int)order[i] : i;
        v.shape[axis] = shape[axis];
        v.stride[axis] = stride;
        stride = sn_dim_mul(m, stride, shape[axis]);
    }
    return v;
}

bool sn_view_contiguous(sn_module *m, const sn_view *v) {
    sn_dim stride = 1;
    for (int i = v->rank - 1; i >= 0; i--) {
        if (v->shape[i] != 1 && v->stride[i] != stride) return false;
        stride = sn_dim_mul(m, stride, v->shape[i]);
    }
    return true;
}

bool sn_view_matches(const sn_view *a, const sn_view *b) {
    bool same = a->dtype == b->dtype && a->rank == b->rank && a->offset == b->offset;
    for (int i = 0; same && i < a->rank; i++)
        same = a->shape[i] == b->shape[i] && a->stride[i] == b->stride[i];
    return same;
}

sn_view sn_view_transpose(const sn_view *v, const int64_t *perm) {
    sn_view r = *v;
    for (int i = 0; i < v->rank; i++) {
        r.shape[i] = v->shape[perm[i]];
        r.stride[i] = v->stride[perm[i]];
    }
    return r;
}

sn_view sn_view_slice(sn_module *m, const sn_view *v, const sn_dim *start, const sn_dim *size,
                      const int64_t *step) {
    sn_view r = *v;
    for (int i = 0; i < v->rank; i++) {
        r.offset = sn_dim_add(m, r.offset, sn_dim_mul(m, start[i], v->stride[i]));
        r.shape[i] = size[i];
        if (step) r.stride[i] = sn_dim_mul(m, v->stride[i], step[i]);
    }
    return r;
}

sn_view sn_view_broadcast(const sn_view *v, int rank, const sn_dim *shape) {
    sn_view r = *v;
    int shift = rank - v->rank;
    r.rank = rank;
    for (int i = 0; i < rank; i++) {
        bool same = i >= shift && v->shape[i - shift] == shape[i];
        r.shape[i] = shape[i];
        r.stride[i] = same ? v->stride[i - shift] : 0;
    }
    return r;
}

/* Splits both shapes into the shortest runs of axes with equal products; a run of the old axes must
 * be one strided sequence. */
bool sn_view_reshape(sn_module *m, const sn_view *v, int rank, const sn_dim *shape, sn_view *out) {
    *out = *v;
    out->rank = rank;
    memcpy(out->shape, shape, sizeof(sn_dim) * (size_t)rank);
    if (sn_view_contiguous(m, v)) {
        sn_view whole = sn_view_whole(m, v->buffer, v->dtype, rank, shape, NULL);
        whole.offset = v->offset;
        *out = whole;
        return true;
    }
    int i = v->rank - 1, j = rank - 1; /* both from the innermost axis outwards */
    while (j >= 0) {
        if (shape[j] == 1) {
            out->stride[j--] = 0;
            continue;
        }
        while (i >= 0 && v->shape[i] == 1) i--;
        if (i < 0) return false;
        sn_dim inner = v->stride[i], have = v->shape[i],
               next = sn_dim_mul(m, v->stride[i], v->shape[i]);
        sn_dim want = 1, q;
        i--;
        for (;;) { /* extend `want` by new axes and `have` by old ones until they are equal */
            if (want == have) break;
            if (j >= 0 &&
                (shape[j] == 1 || sn_dim_div(m, have, sn_dim_mul(m, want, shape[j]), &q))) {
                out->stride[j] = shape[j] == 1 ? 0 : sn_dim_mul(m, inner, want);
                want = sn_dim_mul(m, want, shape[j--]);
                continue;
            }
            while (i >= 0 && v->shape[i] == 1) i--;
            if (i < 0 || v->stride[i] != next) return false;
            have = sn_dim_mul(m, have, v->shape[i]);
            next = sn_dim_mul(m, v->stride[i], v->shape[i]);
            i--;
        }
    }
    return true;
}

bool sn_view_over(const sn_node *n, const sn_node *base, sn_view *out) {
    const bool moves = n->op == SN_OP_transpose || n->op == SN_OP_slice ||
                       n->op == SN_OP_broadcast || n->op == SN_OP_reshape;
    sn_view v;
    if (n == base || (!base && !moves)) {
        *out = sn_view_whole(n->m, 0, (sn_dtype)n->dtype, n->rank, n->shape, NULL);
        return true;
    }
    if (!moves || !sn_view_over(n->in[0], base, &v)) return false;
    const sn_attr *step = sn_attr_get(n, SN_A_step);
    if (n->op == SN_OP_reshape) return sn_view_reshape(n->m, &v, n->rank, n->shape, out);
    if (n->op == SN_OP_transpose)
        *out = sn_view_transpose(&v, sn_attr_get(n, SN_A_perm)->v);
    else if (n->op == SN_OP_slice)
        *out =
            sn_view_slice(n->m, &v, sn_attr_get(n, SN_A_start)->v, n->shape, step ? step->v : NULL);
    else
        *out = sn_view_broadcast(&v, n->rank, n->shape);
    return true;
}
