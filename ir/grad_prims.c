/* grad_prims.c: gradients of the structural primitives, one function each. All are linear except
 * maxima: each applies the transposed map to the cotangent. */
#include "ir/grad_impl.h"

#include <string.h>

static sn_node *zeros(const sn_node *like, int rank, const sn_dim *shape) {
    return sn_b_broadcast(sn_b_const(like->m, (sn_dtype)like->dtype, 0), rank, shape);
}

/* ---- views ---- */

bool grad_broadcast(grad *c) {
    const sn_node *x = c->n->in[0];
    int64_t axes[SN_MAX_RANK];
    int n = 0, missing = c->n->rank - x->rank;
    for (int i = 0; i < c->n->rank; i++)
        if (i < missing || (x->shape[i - missing] == 1 && c->n->shape[i] != 1)) axes[n++] = i;
    sn_node *d = n ? sn_b_reduce(SN_OP_reduce_sum, c->g, n, axes) : c->g;
    sn_gr_give(c, 0, sn_b_reshape(d, x->rank, x->shape));
    return true;
}

bool grad_reshape(grad *c) {
    sn_gr_give(c, 0, sn_b_reshape(c->g, c->n->in[0]->rank, c->n->in[0]->shape));
    return true;
}

/* The product g with exchanged factors, if `perm` exchanges the free axes of its factors; otherwise
 * NULL. The cotangent of a weight that was used transposed then has the weight's layout, and g
 * itself is not needed. */
static sn_node *exchange_factors(const sn_node *g, int rank, const int64_t *perm) {
    static const sn_attr_key key[2][2] = {{SN_A_batch_a, SN_A_batch_b},
                                          {SN_A_contract_a, SN_A_contract_b}};
    if (g->op != SN_OP_dot) return NULL;
    const sn_attr *list[2][2];
    for (int i = 0; i < 4; i++) list[i / 2][i % 2] = sn_attr_get(g, key[i / 2][i % 2]);
    int n_batch = list[0][0] ? list[0][0]->n : 0, n_sum = list[1][0] ? list[1][0]->n : 0;
    int n_left = g->in[0]->rank - n_batch - n_sum, n_right = rank - n_batch - n_left;
    for (int i = 0; i < rank; i++) {
        int from = i < n_batch ? i : i < n_batch + n_right ? i + n_left : i - n_right;
        if (perm[i] != from) return NULL;
    }
    sn_attr attr[4];
    int n_attr = 0;
    for (int i = 0; i < 4; i++)
        if (list[i / 2][i % 2]) {
            attr[n_attr] = *list[i / 2][i % 2];
            attr[n_attr++].key = key[i / 2][1 - i % 2];
        }
    return sn_node_new(g->m, SN_OP_dot, 2, (sn_node *[]){g->in[1], g->in[0]}, n_attr, attr);
}

bool grad_transpose(grad *c) {
    const sn_attr *perm = sn_attr_get(c->n, SN_A_perm);
    int64_t back[SN_MAX_RANK];
    for (int i = 0; i < perm->n; i++) back[perm->v[i]] = i;
    sn_node *swapped = exchange_factors(c->g, perm->n, back);
    sn_gr_give(c, 0, swapped ? swapped : sn_b_transpose(c->g, perm->n, back));
    return true;
}

/* ---- movement ---- */

/* places g at start, start + step, … on the axis, among `extent` zeros */
static sn_node *spread(sn_node *g, int axis, sn_dim start, int64_t step, sn_dim extent) {
    sn_module *m = g->m;
    sn_dim shape[SN_MAX_RANK];
    memcpy(shape, g->shape, sizeof *shape * g->rank);
    shape[axis] = extent;
    sn_node *i = sn_b_iota(m, SN_I32, 1, &g->shape[axis], 0);
    i = OP2(add, OPC(mul, i, (double)step), sn_b_dim(m, SN_I32, start));
    return SN_NODE(m, scatter_add, SN_ATTRS(SN_LIST(shape, g->rank, shape), SN_INT(axis, axis)), g,
                   i);
}

/* g at `start` in zeros of x's shape: a pad if g provably lies inside */
static sn_node *place(sn_node *g, const sn_node *x, const sn_dim *start) {
    sn_module *m = g->m;
    sn_dim high[SN_MAX_RANK] = {0};
    bool inside = true;
    for (int i = 0; i < x->rank; i++) {
        high[i] = sn_dim_sub(m, x->shape[i], sn_dim_add(m, start[i], g->shape[i]));
        inside &= sn_dim_lo(m, high[i]) >= 0 && sn_dim_lo(m, start[i]) >= 0;
    }
    if (!inside)
        return SN_NODE(m, update_slice, SN_ATTRS(SN_LIST(start, x->rank, start)),
                       zeros(g, x->rank, x->shape), g);
    return SN_NODE(
        m, pad,
        SN_ATTRS(SN_LIST(low, x->rank, start), SN_LIST(high, x->rank, high), SN_FLT(value, 0)), g);
}

bool grad_slice(grad *c) {
    const sn_node *x = c->n->in[0];
    const sn_attr *start = sn_attr_get(c->n, SN_A_start), *step = sn_attr_get(c->n, SN_A_step);
    sn_node *g = c->g;
    sn_dim low[SN_MAX_RANK] = {0};
    for (int i = 0; i < x->rank; i++) {
        bool dense = !step || step->v[i] == 1 || g->shape[i] == 1;
        low[i] = dense ? start->v[i] : 0;
        if (!dense) g = spread(g, i, start->v[i], step->v[i], x->shape[i]);
    }
    sn_gr_give(c, 0, place(g, x, low));
    return true;
}

bool grad_concat(grad *c) {
    int axis = (int)sn_attr_int(c->n, SN_A_axis, 0);
    sn_dim at = 0;
    for (int i = 0; i < c->n->n_in; i++) {
        sn_dim size = c->n->in[i]->shape[axis];
        if (sn_gr_needs(c, i)) sn_gr_give(c, i, sn_b_slice(c->g, axis, at, size));
        at = sn_dim_add(c->n->m, at, size);
    }
    return true;
}

/* The part of g at `start` with y's shape. */
static sn_node *part_of(sn_node *g, const sn_dim *start, const sn_node *y) {
    return SN_NODE(g->m, slice,
                   SN_ATTRS(SN_LIST(start, y->rank, start), SN_LIST(size, y->rank, y->shape)), g);
}

bool grad_pad(grad *c) {
    sn_gr_give(c, 0, part_of(c->g, sn_attr_get(c->n, SN_A_low)->v, c->n->in[0]));
    return true;
}

bool grad_update_slice(grad *c) {
    const sn_node *y = c->n->in[1];
    const sn_attr *start = sn_attr_get(c->n, SN_A_start);
    if (sn_gr_needs(c, 0))
        sn_gr_give(c, 0,
                   sn_node_new(c->n->m, SN_OP_update_slice, 2,
                               (sn_node *[]){c->g, zeros(c->g, y->rank, y->shape)},
                               SN_ATTRS(SN_LIST(start, y->rank, start->v))));
    if (sn_gr_needs(c, 1)) sn_gr_give(c, 1, part_of(c->g, start->v, y));
    return true;
}

/* ---- reductions ---- */

bool grad_reduce_sum(grad *c) {
    sn_gr_give(c, 0, sn_b_broadcast_like(c->g, c->n->in[0]));
    return true;
}

/* Elements equal to the extremum share the gradient. */
static bool share_extremum(grad *c) {
    sn_node *x = c->n->in[0];
    const sn_attr *axes = sn_attr_get(c->n, SN_A_axes);
    sn_node *hit = OP2(eq, x, c->n);
    sn_node *count =
        sn_b_reduce(SN_OP_reduce_sum, sn_b_cast(hit, (sn_dtype)c->g->dtype), axes->n, axes->v);
    sn_gr_give(c, 0, sn_b_select(hit, OP2(div, c->g, count), sn_gr_fill(x, 0)));
    return true;
}

bool grad_reduce_max(grad *c) {
    return share_extremum(c);
}

bool grad_reduce_min(grad *c) {
    return share_extremum(c);
}

sn_node *sn_gr_reverse(sn_node *x, int axis) {
    sn_node *i = sn_b_iota(x->m, SN_I32, 1, &x->shape[axis], 0);
    sn_node *last = sn_b_dim(x->m, SN_I32, sn_dim_sub(x->m, x->shape[axis], 1));
    return SN_NODE(x->m, gather, SN_ATTRS(SN_INT(axis, axis)), x, OP2(sub, last, i));
}

/* The sum from each element to the end; not a difference of sums, which would cancel. */
bool grad_cumsum(grad *c) {
    int axis = (int)sn_attr_int(c->n, SN_A_axis, 0);
    sn_node *sum =
        SN_NODE(c->n->m, cumsum, SN_ATTRS(SN_INT(axis, axis)), sn_gr_reverse(c->g, axis));
    sn_gr_give(c, 0, sn_gr_reverse(sum, axis));
    return true;
}

/* ---- products and indices ---- */

/* One operand of a dot: its axes by role. */
typedef struct side {
    sn_node *x;
    int n_batch, n_sum, n_free;
    const int64_t *batch, *sum;
    int64_t free[SN_MAX_RANK];
} side;

static bool in_list(int axis, int n, const int64_t *list) {
    for (int i = 0; i < n; i++)
        if (list[i] == axis) return true;
    return false;
}

static side side_of(const sn_node *n, int i) {
    const sn_attr *batch = sn_attr_get(n, i ? SN_A_batch_b : SN_A_batch_a);
    const sn_attr *sum = sn_attr_get(n, i ? SN_A_contract_b : SN_A_contract_a);
    side s = {.x = n->in[i]};
    if (batch) s.n_batch = batch->n, s.batch = batch->v;
    if (sum) s.n_sum = sum->n, s.sum = sum->v;
    for (int a = 0; a < s.x->rank; a++)
        if (!in_list(a, s.n_batch, s.batch) && !in_list(a, s.n_sum, s.sum)) s.free[s.n_free++] = a;
    return s;
}

/* Which axis of `mine` is summed with the k-th smallest summed axis of `other`. */
static int64_t partner(const side *mine, const side *other, int k) {
    for (int i = 0; i < other->n_sum; i++) {
        int smaller = 0;
        for (int j = 0; j < other->n_sum; j++) smaller += other->sum[j] < other->sum[i];
        if (smaller == k) return mine->sum[i];
    }
    return 0;
}

/* Cotangent of `mine`: the product of g with the other operand over its free axes, which start at
 * `first` in g. Of the two orders of the factors it takes the one that gives mine's axes in order,
 * if there is one, which avoids a transpose. */
static sn_node *dot_back(const sn_node *n, sn_node *g, const side *mine, const side *other,
                         int first) {
    int64_t batch[SN_MAX_RANK], sum[SN_MAX_RANK], perm[SN_MAX_RANK] = {0};
    int nb = mine->n_batch, rank = mine->x->rank;
    for (int i = 0; i < nb; i++) batch[i] = i;
    for (int i = 0; i < other->n_free; i++) sum[i] = first + i;
    bool g_first = true, identity = false;
    for (int order = 0; order < 2 && !identity; order++) {
        g_first = order == 0;
        int at = 0;
        for (int i = 0; i < nb; i++) perm[mine->batch[i]] = at++;
        for (int part = 0; part < 2; part++) {
            bool free_axes = (part == 0) == g_first;
            int count = free_axes ? mine->n_free : mine->n_sum;
            for (int k = 0; k < count; k++)
                perm[free_axes ? mine->free[k] : partner(mine, other, k)] = at++;
        }
        identity = true;
        for (int i = 0; i < rank; i++) identity &= perm[i] == i;
    }
    const sn_attr *compute = sn_attr_get(n, SN_A_compute);
    sn_attr lists[5] = {SN_LIST(batch_a, nb, g_first ? batch : other->batch),
                        SN_LIST(batch_b, nb, g_first ? other->batch : batch),
                        SN_LIST(contract_a, other->n_free, g_first ? sum : other->free),
                        SN_LIST(contract_b, other->n_free, g_first ? other->free : sum)};
    if (compute) lists[4] = *compute;
    sn_node *in[2] = {g_first ? g : other->x, g_first ? other->x : g};
    sn_node *d = sn_node_new(g->m, SN_OP_dot, 2, in, compute ? 5 : 4, lists);
    return identity || g->m->error.code ? d : sn_b_transpose(d, rank, perm);
}

bool grad_dot(grad *c) {
    side a = side_of(c->n, 0), b = side_of(c->n, 1);
    if (sn_gr_needs(c, 0)) sn_gr_give(c, 0, dot_back(c->n, c->g, &a, &b, a.n_batch + a.n_free));
    if (sn_gr_needs(c, 1)) sn_gr_give(c, 1, dot_back(c->n, c->g, &b, &a, a.n_batch));
    return true;
}

/* What a square matrix has below its diagonal, zeros elsewhere. */
static sn_node *below_diagonal(sn_node *x) {
    const sn_dim *size = x->shape + x->rank - 2;
    sn_node *row = sn_b_iota(x->m, SN_I32, 2, size, 0), *col = sn_b_iota(x->m, SN_I32, 2, size, 1);
    return sn_b_select(OP2(lt, col, row), x, sn_gr_fill(x, 0));
}

/* X = M^-1 y: y gets h = M^-T g, M gets -h X^T; of the transpose of M, x's own matrix, that is transposed. */
bool grad_solve_triangular(grad *c) {
    const bool transposed = sn_attr_int(c->n, SN_A_transposed, 0) != 0;
    sn_node *h = SN_NODE(c->n->m, solve_triangular, SN_ATTRS(SN_INT(transposed, !transposed)),
                         c->n->in[0], c->g);
    const int64_t columns[] = {h->rank - 1};
    int64_t batch[SN_MAX_RANK];
    for (int i = 0; i < h->rank - 2; i++) batch[i] = i;
    if (sn_gr_needs(c, 1)) sn_gr_give(c, 1, h);
    if (!sn_gr_needs(c, 0)) return true;
    sn_node *d =
        SN_NODE(c->n->m, dot,
                SN_ATTRS(SN_LIST(batch_a, h->rank - 2, batch), SN_LIST(batch_b, h->rank - 2, batch),
                         SN_LIST(contract_a, 1, columns), SN_LIST(contract_b, 1, columns)),
                transposed ? c->n : h, transposed ? h : c->n);
    sn_gr_give(c, 0, below_diagonal(OP1(neg, d)));
    return true;
}

bool grad_gather(grad *c) {
    const sn_node *x = c->n->in[0];
    sn_gr_give(c, 0,
               SN_NODE(c->n->m, scatter_add,
                       SN_ATTRS(SN_LIST(shape, x->rank, x->shape),
                                SN_INT(axis, sn_attr_int(c->n, SN_A_axis, 0))),
                       c->g, c->n->in[1]));
    return true;
}

/* For each row of a scatter what x, of its result's shape, has at the row's index. */
static sn_node *at_rows(const sn_node *scatter, sn_node *x) {
    return SN_NODE(x->m, gather, SN_ATTRS(SN_INT(axis, sn_attr_int(scatter, SN_A_axis, 0))), x,
                   scatter->in[1]);
}

/* The same scatter of other rows. */
static sn_node *scattered(const sn_node *scatter, sn_node *rows, int64_t combine) {
    sn_attr attr[3] = {SN_LIST(shape, scatter->rank, scatter->shape),
                       SN_INT(axis, sn_attr_int(scatter, SN_A_axis, 0)), SN_INT(combine, combine)};
    return sn_node_new(scatter->m, SN_OP_scatter_add, 2, (sn_node *[]){rows, scatter->in[1]},
                       combine ? 3 : 2, attr);
}

/* Of what the rows say yes to: their number, for each row. */
static sn_node *count_of(const sn_node *scatter, sn_node *yes) {
    sn_node *one = sn_b_cast(yes, (sn_dtype)scatter->dtype);
    return at_rows(scatter, scattered(scatter, one, 0));
}

/* Equal maxima share the gradient. Of a product: the product of the other factors, also if some are 0. */
bool grad_scatter_add(grad *c) {
    sn_node *x = c->n->in[0], *g = at_rows(c->n, c->g), *zero = sn_gr_fill(x, 0);
    int64_t combine = sn_attr_int(c->n, SN_A_combine, 0);
    if (combine == 1) {
        sn_node *hit = OP2(eq, x, at_rows(c->n, c->n));
        g = sn_b_select(hit, OP2(div, g, count_of(c->n, hit)), zero);
    } else if (combine == 2) {
        sn_node *is_zero = OP2(eq, x, zero), *factor = sn_b_select(is_zero, sn_gr_fill(x, 1), x);
        sn_node *n = count_of(c->n, is_zero), *others = at_rows(c->n, scattered(c->n, factor, 2));
        sn_node *only = OP2(eq, n, sn_b_select(is_zero, sn_gr_fill(x, 1), zero));
        g = sn_b_select(only, OP2(mul, g, OP2(div, others, factor)), zero);
    }
    sn_gr_give(c, 0, g);
    return true;
}

/* `op` of g at the same indices */
static sn_node *indexed(grad *c, sn_op op, int n_attr, const sn_attr *attr) {
    sn_node *in[SN_MAX_RANK + 1] = {c->g};
    for (int i = 1; i < c->n->n_in; i++) in[i] = c->n->in[i];
    return sn_node_new(c->n->m, op, c->n->n_in, in, n_attr, attr);
}

bool grad_gather_nd(grad *c) {
    const sn_node *x = c->n->in[0];
    sn_gr_give(c, 0, indexed(c, SN_OP_scatter_nd_add, SN_ATTRS(SN_LIST(shape, x->rank, x->shape))));
    return true;
}

bool grad_scatter_nd_add(grad *c) {
    sn_gr_give(c, 0, indexed(c, SN_OP_gather_nd, SN_NO_ATTRS));
    return true;
}

/* ---- grouped products ---- */

/* With the arithmetic of the product `like`. */
static sn_node *grouped_dot(const sn_node *like, sn_node *x, sn_node *w, sn_node *z) {
    const sn_attr *compute = sn_attr_get(like, SN_A_compute);
    return sn_node_new(x->m, SN_OP_grouped_dot, 3, (sn_node *[]){x, w, z}, compute != NULL,
                       compute);
}

static sn_node *ragged_dot(const sn_node *like, sn_node *x, sn_node *y, sn_node *z,
                           int64_t blocks) {
    const sn_attr *compute = sn_attr_get(like, SN_A_compute);
    sn_attr attr[2] = {SN_INT(blocks, blocks)};
    if (compute) attr[1] = *compute;
    return sn_node_new(x->m, SN_OP_ragged_dot, 3, (sn_node *[]){x, y, z}, compute ? 2 : 1, attr);
}

/* Of the rows: row r gets the sum over j of the transpose of w[z[r, j]] times row r J + j of g. */
static sn_node *rows_back(const sn_node *like, sn_node *g, sn_node *w, sn_node *z) {
    sn_dim one[2] = {g->shape[0], 1}, pairs[3] = {z->shape[0], z->shape[1], w->shape[2]};
    sn_node *transposed = sn_b_transpose(w, 3, (const int64_t[]){0, 2, 1});
    sn_node *each = grouped_dot(like, g, transposed, sn_b_reshape(z, 2, one));
    if (z->shape[1] == 1) return each;
    int64_t j = 1;
    sn_node *sum = sn_b_reduce(SN_OP_reduce_sum, sn_b_reshape(each, 3, pairs), 1, &j);
    return sn_b_reshape(sum, 2, (const sn_dim[]){pairs[0], pairs[2]});
}

bool grad_grouped_dot(grad *c) {
    sn_node *x = c->n->in[0], *w = c->n->in[1], *z = c->n->in[2];
    int64_t blocks = 0;
    sn_dim_is_const(x->m, w->shape[0], &blocks);
    if (sn_gr_needs(c, 0)) sn_gr_give(c, 0, rows_back(c->n, c->g, w, z));
    if (sn_gr_needs(c, 1)) sn_gr_give(c, 1, ragged_dot(c->n, c->g, x, z, blocks));
    return true;
}

bool grad_ragged_dot(grad *c) {
    sn_node *x = c->n->in[0], *y = c->n->in[1], *z = c->n->in[2];
    if (sn_gr_needs(c, 0)) sn_gr_give(c, 0, grouped_dot(c->n, y, c->g, z));
    if (sn_gr_needs(c, 1)) sn_gr_give(c, 1, rows_back(c->n, x, c->g, z));
    return true;
}

/* Selected blocks of a linear map: the cotangents of its operands need these blocks only, and the
 * map itself gets none. */
static bool back_through_map(grad *c) {
    sn_node *map = c->n->in[0], *z = c->n->in[1], *g = c->g;
    int64_t blocks = sn_attr_int(c->n, SN_A_blocks, 1), count;
    int last = z->rank - 1;
    if (map->op != SN_OP_linear || map->n_in != 2 || map->in[1]->rank != 2 ||
        map->in[0]->dtype != g->dtype || map->in[1]->dtype != g->dtype ||
        !sn_dim_is_const(z->m, z->shape[last], &count))
        return false;
    sn_node *x = map->in[0], *w = map->in[1];
    sn_dim rows = sn_dim_product(z->m, last, z->shape), k = w->shape[1], n = g->shape[last + 1];
    sn_dim all = sn_dim_mul(z->m, rows, z->shape[last]);
    z = sn_b_reshape(z, 2, (const sn_dim[]){rows, count});
    sn_node *each = sn_b_reshape(c->g, 2, (const sn_dim[]){all, n});
    if (sn_gr_wants(c, x)) {
        sn_node *w3 = sn_b_reshape(w, 3, (const sn_dim[]){blocks, n, k});
        sn_gr_give_node(c, x, sn_b_reshape(rows_back(map, each, w3, z), x->rank, x->shape));
    }
    if (sn_gr_wants(c, w)) {
        sn_node *x2 = sn_b_reshape(x, 2, (const sn_dim[]){rows, k});
        sn_gr_give_node(c, w, sn_b_reshape(ragged_dot(map, each, x2, z, blocks), 2, w->shape));
    }
    return true;
}

/* A product with the matrix that is 1 where index j of a row is block e: [.., e, j] [.., j, d]. */
bool grad_take_blocks(grad *c) {
    if (back_through_map(c)) return true;
    const sn_node *x = c->n->in[0], *g = c->g;
    sn_node *index = c->n->in[1];
    int lead = x->rank - 1;
    int64_t batch[SN_MAX_RANK], left = lead + 1, right = lead;
    sn_dim shape[SN_MAX_RANK + 1];
    for (int i = 0; i < lead; i++) batch[i] = i, shape[i] = x->shape[i];
    shape[lead] = sn_attr_int(c->n, SN_A_blocks, 1);
    shape[lead + 1] = index->shape[lead];
    sn_node *number = sn_b_iota(x->m, (sn_dtype)index->dtype, lead + 2, shape, lead);
    shape[lead] = 1;
    sn_node *chosen = sn_b_binary(SN_OP_eq, sn_b_reshape(index, lead + 2, shape), number);
    sn_node *one = sn_b_cast(chosen, (sn_dtype)g->dtype);
    sn_node *d = SN_NODE(x->m, dot,
                         SN_ATTRS(SN_LIST(batch_a, lead, batch), SN_LIST(batch_b, lead, batch),
                                  SN_LIST(contract_a, 1, &left), SN_LIST(contract_b, 1, &right)),
                         one, c->g);
    sn_gr_give(c, 0, sn_b_reshape(d, x->rank, x->shape));
    return true;
}
