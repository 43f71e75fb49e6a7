/* column_swap.c: gathers that swap columns. */
#include "passes/kernels/table.h"

/* The element of index arithmetic at index i of the last axis; false: it is of another kind. */
static bool index_at(const sn_node *n, double i, double *value);

static bool const_at(const sn_node *n, double i, double *value) {
    (void)i;
    *value = sn_attr_flt(n, SN_A_value, 0);
    return true;
}

static bool iota_at(const sn_node *n, double i, double *value) {
    *value = i;
    return sn_attr_int(n, SN_A_axis, 0) == n->rank - 1;
}

static bool broadcast_at(const sn_node *n, double i, double *value) {
    const sn_node *x = n->in[0];
    return (x->rank == 0 || x->shape[x->rank - 1] != 1) && index_at(x, i, value);
}

static bool elem_at(const sn_node *n, double i, double *value) {
    double x[3] = {0};
    if (n->n_in > 3 || sn_dtype_is_float((sn_dtype)n->dtype)) return false;
    for (int j = 0; j < n->n_in; j++)
        if (!index_at(n->in[j], i, &x[j])) return false;
    *value = sn_elem_ref((sn_op)n->op, true, x[0], x[1], x[2]);
    return true;
}

static bool index_at(const sn_node *n, double i, double *value) {
    static bool (*const at[SN_OP_COUNT])(const sn_node *n, double i, double *value) = {
#define ELEM(name, ...) [SN_OP_##name] = elem_at,
#include "ir/ops.def"
        [SN_OP_const] = const_at,
        [SN_OP_iota] = iota_at,
        [SN_OP_broadcast] = broadcast_at,
    };
    return at[n->op] && at[n->op](n, i, value);
}

int64_t sn_swap_distance(const sn_node *n) {
    enum { WIDEST = 4096 };
    int64_t width;
    double v;
    if (n->op != SN_OP_gather) return 0;
    const sn_node *x = n->in[0], *index = n->in[1];
    if (sn_attr_int(n, SN_A_axis, 0) != x->rank - 1 || index->rank != 1 ||
        index->shape[0] != x->shape[x->rank - 1] ||
        !sn_dim_is_const(n->m, index->shape[0], &width) || width < 2 || width > WIDEST ||
        !index_at(index, 0, &v) || !(v >= 1 && v < (double)width))
        return 0;
    int64_t h = (int64_t)v;
    if (width % (2 * h)) return 0;
    for (int64_t i = 0; i < width; i++)
        if (!index_at(index, (double)i, &v) || v != (double)(i / h % 2 ? i - h : i + h)) return 0;
    return h;
}
