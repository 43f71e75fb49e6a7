/* infer_collective.c: types and shapes of operations between ranks. */
#include "ir/infer_impl.h"

/* The number of ranks; 0: wrong. */
static int64_t mesh_size(infer_ctx *c) {
    const sn_attr *mesh = sn_infer_need(c, SN_A_mesh),
                  *ranks = mesh ? sn_infer_need(c, SN_A_ranks) : NULL;
    if (!ranks) return 0;
    if (ranks->i < 1)
        sn_infer_fail(c, "%lld ranks: there must be at least one", (long long)ranks->i);
    if (!sn_dtype_is_float((sn_dtype)c->in[0]->dtype)) return sn_infer_fail(c, "needs floats");
    return ranks->i < 1 ? 0 : ranks->i;
}

bool infer_all_reduce(infer_ctx *c) {
    return mesh_size(c) && sn_infer_like(c, c->in[0], (sn_dtype)c->in[0]->dtype);
}

/* Elements of a rank's part. */
static int64_t part_of(int64_t size, int64_t ranks) {
    return (size + ranks - 1) / ranks;
}

bool infer_collective_permute(infer_ctx *c) {
    int64_t n = mesh_size(c);
    const sn_attr *shift = n ? sn_infer_need(c, SN_A_shift) : NULL;
    if (!shift) return false;
    if (shift->i <= -n || shift->i >= n)
        return sn_infer_fail(c, "a shift by %lld among %lld ranks", (long long)shift->i,
                             (long long)n);
    return sn_infer_like(c, c->in[0], (sn_dtype)c->in[0]->dtype);
}

bool infer_collective_root(infer_ctx *c) {
    int64_t n = mesh_size(c);
    const sn_attr *root = n ? sn_infer_need(c, SN_A_root) : NULL;
    if (root && (root->i < 0 || root->i >= n))
        return sn_infer_fail(c, "there is no rank %lld among %lld", (long long)root->i,
                             (long long)n);
    return root && sn_infer_like(c, c->in[0], (sn_dtype)c->in[0]->dtype);
}

bool infer_all_gather(infer_ctx *c) {
    int64_t n = mesh_size(c), part;
    if (!n || !infer_like0(c)) return false;
    sn_dim *size = &c->out.shape[sn_infer_attr(c, SN_A_axis)->i];
    const sn_attr *extent = sn_infer_attr(c, SN_A_extent);
    if (!extent) {
        *size = sn_dim_mul(c->m, *size, sn_dim_const(c->m, n));
        return true;
    }
    if (extent->i < 1 || !sn_dim_is_const(c->m, *size, &part) || part != part_of(extent->i, n))
        return sn_infer_fail(c, "%lld elements are not those of %lld such parts",
                             (long long)extent->i, (long long)n);
    *size = sn_dim_const(c->m, extent->i);
    return true;
}

/* The axis is divided among the ranks. */
static bool divide_axis(infer_ctx *c, int64_t *ranks, int64_t *size) {
    *ranks = mesh_size(c);
    if (!*ranks || !infer_like0(c)) return false;
    sn_dim d = c->out.shape[sn_infer_attr(c, SN_A_axis)->i];
    return sn_dim_is_const(c->m, d, size) || *ranks == 1 ||
           sn_infer_fail(c, "the size of the axis must be a constant");
}

bool infer_all_to_all(infer_ctx *c) {
    int64_t n, size;
    if (!divide_axis(c, &n, &size)) return false;
    return n == 1 || size % n == 0 ||
           sn_infer_fail(c, "%lld elements cannot be divided among %lld ranks", (long long)size,
                         (long long)n);
}

bool infer_reduce_scatter(infer_ctx *c) {
    int64_t n, size;
    if (!divide_axis(c, &n, &size)) return false;
    if (n > 1) c->out.shape[sn_infer_attr(c, SN_A_axis)->i] = sn_dim_const(c->m, part_of(size, n));
    return true;
}

/* The sizes of the parts add up to the axis, and each can be divided; one part alone need not. */
bool infer_shard(infer_ctx *c) {
    const sn_attr *mesh = sn_infer_need(c, SN_A_mesh),
                  *ranks = mesh ? sn_infer_need(c, SN_A_ranks) : NULL;
    const sn_attr *parts = ranks ? sn_infer_attr(c, SN_A_parts) : NULL;
    int64_t size, sum = 0;
    if (!ranks || !infer_like0(c)) return false;
    if (ranks->i < 1)
        return sn_infer_fail(c, "%lld ranks: there must be at least one", (long long)ranks->i);
    if (!sn_dim_is_const(c->m, c->out.shape[sn_infer_attr(c, SN_A_axis)->i], &size))
        return sn_infer_fail(c, "the size of a divided axis must be a constant");
    if (sn_infer_attr(c, SN_A_zigzag) ? parts || size % (2 * ranks->i) : !parts && size < ranks->i)
        return sn_infer_fail(c, "%lld elements cannot be divided among %lld ranks%s",
                             (long long)size, (long long)ranks->i,
                             sn_infer_attr(c, SN_A_zigzag) ? ", two halves each" : "");
    for (int i = 0; parts && i < parts->n; sum += parts->v[i++])
        if (parts->v[i] < 1 || parts->v[i] % ranks->i)
            return sn_infer_fail(c, "a part of %lld elements cannot be divided among %lld ranks",
                                 (long long)parts->v[i], (long long)ranks->i);
    return !parts || sum == size ||
           sn_infer_fail(c, "the parts have %lld elements, the axis %lld", (long long)sum,
                         (long long)size);
}
