/* collective.c: operations over the ranks of a mesh axis. */
#include "frontend/front.h"

static sn_tensor collective(sn_loc at, sn_op op, sn_tensor x, const char *mesh, int64_t ranks,
                            int axis) {
    FRONT_ENTER(sn_ops[op].name, x);
    if (!mesh || ranks < 1)
        return sn_module_fail(x->m, SN_ERR_USAGE, "sn_%s: %s", sn_ops[op].name,
                              mesh ? "there must be at least one rank" : "the mesh axis is NULL");
    sn_attr attr[3];
    int n = 0;
    if (op != SN_OP_all_reduce) {
        int a = front_axis(x->m, sn_ops[op].name, x, axis, x->rank);
        if (a < 0) return bad_;
        attr[n++] = SN_INT(axis, a);
    }
    attr[n++] = SN_STR(mesh, sn_arena_str(x->m, mesh));
    attr[n++] = SN_INT(ranks, ranks);
    return sn_node_new(x->m, op, 1, &x, n, attr);
}

sn_tensor sn_collective_permute_at(sn_loc at, sn_tensor x, int64_t shift, bool wrap,
                                   const char *mesh, int64_t ranks) {
    FRONT_ENTER("collective_permute", x);
    if (!mesh || ranks < 1 || shift <= -ranks || shift >= ranks)
        return sn_module_fail(x->m, SN_ERR_USAGE, "sn_collective_permute: %s",
                              !mesh       ? "the mesh axis is NULL"
                              : ranks < 1 ? "there must be at least one rank"
                                          : "the shift is not between -ranks and ranks");
    sn_attr attr[] = {SN_STR(mesh, sn_arena_str(x->m, mesh)), SN_INT(ranks, ranks)};
    return sn_b_permute(x, shift, wrap, 2, attr, 0, NULL);
}

static sn_tensor with_root(sn_loc at, sn_op op, sn_tensor x, int64_t root, const char *mesh,
                           int64_t ranks) {
    FRONT_ENTER(sn_ops[op].name, x);
    if (!mesh || ranks < 1 || root < 0 || root >= ranks)
        return sn_module_fail(x->m, SN_ERR_USAGE, "sn_%s: %s", sn_ops[op].name,
                              !mesh       ? "the mesh axis is NULL"
                              : ranks < 1 ? "there must be at least one rank"
                                          : "the root is not one of the ranks");
    return sn_node_new(
        x->m, op, 1, &x,
        SN_ATTRS(SN_INT(root, root), SN_STR(mesh, sn_arena_str(x->m, mesh)), SN_INT(ranks, ranks)));
}

sn_tensor sn_collective_broadcast_at(sn_loc at, sn_tensor x, int64_t root, const char *mesh,
                                     int64_t ranks) {
    return with_root(at, SN_OP_collective_broadcast, x, root, mesh, ranks);
}

sn_tensor sn_collective_reduce_at(sn_loc at, sn_tensor x, int64_t root, const char *mesh,
                                  int64_t ranks) {
    return with_root(at, SN_OP_collective_reduce, x, root, mesh, ranks);
}

sn_tensor sn_mesh_rank_at(sn_loc at, sn_module *m, const char *mesh, int64_t ranks) {
    if (!front_enter_module(at, m)) return m ? sn_module_error_node(m) : NULL;
    if (!mesh || ranks < 1)
        return sn_module_fail(m, SN_ERR_USAGE, "sn_mesh_rank: %s",
                              mesh ? "there must be at least one rank" : "the mesh axis is NULL");
    return sn_b_own_rank(m, sn_arena_str(m, mesh), ranks);
}

sn_tensor sn_mesh_positions_at(sn_loc at, sn_module *m, sn_dim T, bool zigzag, const char *mesh,
                               int64_t ranks) {
    sn_tensor rank = sn_mesh_rank_at(at, m, mesh, ranks), i;
    sn_dim half = T;
    if (!rank || sn_module_error(m)->code) return rank;
    if (zigzag && !sn_dim_div(m, T, sn_dim_const(m, 2), &half))
        return sn_module_fail(m, SN_ERR_SHAPE,
                              "sn_mesh_positions: zigzag needs an even number of rows");
    sn_tensor rows = sn_b_dim(m, SN_I32, half);
    i = sn_b_iota(m, SN_I32, 1, &T, 0);
    sn_tensor first = sn_b_binary(SN_OP_add, i, sn_b_binary(SN_OP_mul, rank, rows));
    if (!zigzag) return first;
    /* the half of rank 2 R - 1 - r: row `half` here is its row 0 */
    sn_tensor last = sn_b_binary(SN_OP_sub, sn_b_const(m, SN_I32, 2 * (double)ranks - 2), rank);
    last = sn_b_binary(SN_OP_add, i, sn_b_binary(SN_OP_mul, last, rows));
    return sn_b_select(sn_b_binary(SN_OP_lt, i, rows), first, last);
}

sn_tensor sn_all_reduce_at(sn_loc at, sn_tensor x, const char *mesh, int64_t ranks) {
    return collective(at, SN_OP_all_reduce, x, mesh, ranks, 0);
}

sn_tensor sn_all_gather_at(sn_loc at, sn_tensor x, int axis, const char *mesh, int64_t ranks) {
    return collective(at, SN_OP_all_gather, x, mesh, ranks, axis);
}

sn_tensor sn_reduce_scatter_at(sn_loc at, sn_tensor x, int axis, const char *mesh, int64_t ranks) {
    return collective(at, SN_OP_reduce_scatter, x, mesh, ranks, axis);
}

sn_tensor sn_all_to_all_at(sn_loc at, sn_tensor x, int axis, const char *mesh, int64_t ranks) {
    return collective(at, SN_OP_all_to_all, x, mesh, ranks, axis);
}
