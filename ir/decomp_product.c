/* decomp_product.c: linear maps and matrix products in terms of dot. */
#include "ir/decomp_impl.h"

#include <string.h>

/* Floats, or 8-bit integers widened to i32 (passes/quantise.c). */
static bool multiplies(const decomp *c) {
    if (c->in[0]->dtype == SN_I32 && c->in[1]->dtype == SN_I32) return true;
    return sn_dc_float(c, 0) && sn_dc_float(c, 1);
}

bool decomp_linear(decomp *c) {
    if (!multiplies(c) || !sn_dc_rank(c, 0, 1)) return false;
    sn_node *x = sn_dc_operand(c, 0), *w = sn_dc_operand(c, 1);
    if (w->rank != 2 || w->shape[1] != x->shape[x->rank - 1])
        return sn_dc_fail(c, "the weight must be [out, in] for x [.., in]");
    if (!sn_dc_vector(c, 2, w->shape[0])) return false;
    const sn_attr *size = sn_dc_attr(c, SN_A_size);
    sn_dim shape[SN_MAX_RANK + 1] = {0};
    int n = size ? size->n : 1;
    if (size &&
        (n < 1 || x->rank - 1 + n > SN_MAX_RANK || sn_dim_product(c->m, n, size->v) != w->shape[0]))
        return sn_dc_fail(c, "attribute 'size' must be the axes of W's out");
    if (size) {
        memcpy(shape, size->v, sizeof *shape * (size_t)n);
        shape[n] = w->shape[1];
        w = sn_b_reshape(w, n + 1, shape);
    }
    sn_node *y = sn_dc_dot(x, w, 0, x->rank - 1, n);
    if (c->n_in > 2) {
        sn_node *b = sn_dc_operand(c, 2);
        y = sn_b_binary(SN_OP_add, y, size ? sn_b_reshape(b, n, shape) : b);
    }
    return sn_dc_done(c, y);
}

/* NumPy's common shape of the leading axes (all but the last two). */
static bool common_batch(const decomp *c, const sn_node *x, const sn_node *y, int *n,
                         sn_dim *batch) {
    int nx = x->rank - 2, ny = y->rank - 2;
    *n = nx > ny ? nx : ny;
    for (int i = 0; i < *n; i++) {
        sn_dim a = i < *n - nx ? 1 : x->shape[i - (*n - nx)];
        sn_dim b = i < *n - ny ? 1 : y->shape[i - (*n - ny)];
        if (a != b && a != 1 && b != 1) return sn_dc_fail(c, "the leading axes do not broadcast");
        batch[i] = a == 1 ? b : a;
    }
    return true;
}

/* x broadcast to the leading axes `batch` */
static sn_node *with_batch(sn_node *x, int n, const sn_dim *batch) {
    sn_dim shape[SN_MAX_RANK];
    memcpy(shape, batch, sizeof *shape * (size_t)n);
    memcpy(shape + n, x->shape + x->rank - 2, 2 * sizeof *shape);
    return sn_b_broadcast(x, n + 2, shape);
}

/* [K] as [1, K] (row) or [K, 1] */
static sn_node *as_matrix(sn_node *x, bool row) {
    sn_dim shape[2] = {row ? 1 : x->shape[0], row ? x->shape[0] : 1};
    return x->rank == 1 ? sn_b_reshape(x, 2, shape) : x;
}

bool decomp_matmul(decomp *c) {
    if (!sn_dc_rank(c, 0, 1) || !sn_dc_rank(c, 1, 1)) return false;
    bool vector_x = c->in[0]->rank == 1, vector_y = c->in[1]->rank == 1;
    sn_node *x = as_matrix(sn_dc_operand(c, 0), true), *y = as_matrix(sn_dc_operand(c, 1), false);
    if (x->dtype != y->dtype) return sn_dc_fail(c, "element types differ; cast one of them");
    if (x->shape[x->rank - 1] != y->shape[y->rank - 2])
        return sn_dc_fail(c, "x [.., m, k] needs y [.., k, n] with the same k");
    int n;
    sn_dim batch[SN_MAX_RANK];
    sn_node *r;
    if (y->rank == 2) { /* one matrix for all of x: no batch axes, the rows of x are free axes */
        r = sn_dc_dot(x, y, 0, x->rank - 1, 0);
    } else {
        if (!common_batch(c, x, y, &n, batch)) return false;
        r = sn_dc_dot(with_batch(x, n, batch), with_batch(y, n, batch), n, n + 1, n);
    }
    if (c->m->error.code) return false;
    sn_dim shape[SN_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < r->rank; i++)
        if (!(vector_x && i == r->rank - 2) && !(vector_y && i == r->rank - 1))
            shape[rank++] = r->shape[i];
    return sn_dc_done(c, sn_b_reshape(r, rank, shape));
}
