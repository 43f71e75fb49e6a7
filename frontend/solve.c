/* solve.c: systems of a triangular matrix. The op solves those of a unit lower one and of its transpose; the
 * others are these after a transposition, and with rows divided by their diagonal. */
#include "frontend/front.h"

#include <string.h>

static sn_tensor fail(sn_tensor a, sn_tensor b, const char *why) {
    char s[SN_NODE_TEXT], t[SN_NODE_TEXT];
    return sn_module_fail(a->m, SN_ERR_SHAPE, "solve_triangular: %s and %s: %s", sn_node_text(a, s),
                          sn_node_text(b, t), why);
}

/* a [.., T, T]: its diagonal as a column, [.., T, 1]. */
static sn_tensor diagonal(sn_tensor a) {
    const sn_dim *T = a->shape + a->rank - 1, shape[2] = {*T, *T};
    sn_node *row = sn_b_iota(a->m, SN_I32, 2, shape, 0),
            *col = sn_b_iota(a->m, SN_I32, 2, shape, 1);
    sn_node *zero = sn_b_const(a->m, (sn_dtype)a->dtype, 0);
    sn_node *only = sn_b_select(sn_b_binary(SN_OP_eq, row, col), a, zero);
    return sn_b_reduce(SN_OP_reduce_sum, only, 1, &(int64_t){a->rank - 1});
}

/* x with the leading axes of both operands, all but the last two. False: they differ. */
static bool spread(sn_tensor *x, sn_tensor *y) {
    sn_tensor in[2] = {*x, *y};
    const int rank = in[in[1]->rank > in[0]->rank]->rank;
    sn_dim shape[2][SN_MAX_RANK];
    for (int i = 0; i < 2; i++) {
        const int missing = rank - in[i]->rank;
        for (int a = 0; a < rank; a++) shape[i][a] = a < missing ? 1 : in[i]->shape[a - missing];
    }
    for (int a = 0; a < rank - 2; a++) {
        const sn_dim p = shape[0][a], q = shape[1][a];
        if (p != q && p != 1 && q != 1) return false;
        shape[0][a] = shape[1][a] = p == 1 ? q : p;
    }
    *x = sn_b_broadcast(*x, rank, shape[0]);
    *y = sn_b_broadcast(*y, rank, shape[1]);
    return true;
}

sn_tensor sn_solve_triangular_at(sn_loc at, sn_tensor a, sn_triangular_options o) {
    FRONT_ENTER("solve_triangular", a, o.b);
    sn_tensor b = o.b;
    const sn_dtype t = (sn_dtype)b->dtype;
    if (a->dtype != b->dtype || !sn_dtype_is_float(t))
        return fail(a, b, "both need the same float type. Hint: sn_cast one of them");
    if (a->rank < 2 || b->rank < 2)
        return fail(a, b,
                    "both need at least two axes. Hint: sn_expand a vector, sn_expand(b, -1)");
    if (a->shape[a->rank - 1] != a->shape[a->rank - 2] ||
        a->shape[a->rank - 1] != b->shape[b->rank - 2])
        return fail(a, b, "the matrix must be [.., T, T], the right side [.., T, n]");
    const sn_dtype wide = t == SN_F64 ? SN_F64 : SN_F32;
    a = sn_b_cast(a, wide), b = sn_b_cast(b, wide);
    if (!spread(&a, &b)) return fail(o.b, a, "the leading axes do not broadcast");
    sn_tensor d = o.unit ? NULL : diagonal(a);
    if (o.upper) a = sn_swap_at(at, a, -1, -2);
    const bool transposed = o.upper != o.transposed;
    if (d) { /* rows of a lower matrix: (d (1 + L)) x = b, ((1 + L)^T d) x = b */
        a = sn_b_binary(SN_OP_div, a, d);
        if (!transposed) b = sn_b_binary(SN_OP_div, b, d);
    }
    sn_tensor x = SN_NODE(a->m, solve_triangular, SN_ATTRS(SN_INT(transposed, transposed)), a, b);
    if (d && transposed) x = sn_b_binary(SN_OP_div, x, d);
    return sn_b_cast(x, t);
}
