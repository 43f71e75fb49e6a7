/* rules.c: what a rank computes of an operation from its share of the operands: elementwise
 * operations, those that move elements, reductions. */
#include "passes/shard/shard.h"

#include <math.h>
#include <string.h>

/* n of these operands, whose shapes may differ from the user's. */
static sn_node *with(sharder *s, const sn_node *n, int n_in, sn_node *const *in) {
    return sn_node_new(s->m, (sn_op)n->op, n_in, in, n->n_attr, n->attr);
}

static sh_kind kind_of(sharder *s, sn_node *n) {
    return sh_local_of(s, n).at.kind;
}

/* ---- elementwise ---- */

static bool is_one_number(const sn_node *n) {
    while (n->op == SN_OP_broadcast || n->op == SN_OP_reshape || n->op == SN_OP_cast) n = n->in[0];
    return n->op == SN_OP_const || n->op == SN_OP_dim_value;
}

/* A whole scalar as a term of a sum: the first rank's is the value. */
static sn_node *as_term(sharder *s, sn_node *x) {
    sn_node *rank = sn_b_dim(s->m, SN_I32, s->rank),
            *zero = sn_b_const(s->m, (sn_dtype)x->dtype, 0);
    return sn_b_select(sn_b_scalar(SN_OP_eq, rank, 0), x, zero);
}

/* Operations on terms of sums that give terms of the result. */
static bool on_terms(sharder *s, sn_node *n, sh_local *out) {
    sn_node *in[2] = {NULL, NULL};
    bool add = n->op == SN_OP_add || n->op == SN_OP_sub;
    int terms = 0;
    if (n->n_in > 2 || !sn_is_float(n)) return false;
    for (int i = 0; i < n->n_in; i++) {
        sh_local x = sh_local_of(s, n->in[i]);
        in[i] = x.n;
        terms += x.at.kind == SH_PARTIAL;
        if (x.at.kind == SH_SPLIT) return false;
    }
    bool factor = (n->op == SN_OP_mul && (is_one_number(n->in[0]) || is_one_number(n->in[1]))) ||
                  (n->op == SN_OP_div && is_one_number(n->in[1]));
    if (add && terms == 1 && !n->rank)
        for (int i = 0; i < 2; i++)
            if (kind_of(s, n->in[i]) == SH_WHOLE) in[i] = as_term(s, in[i]), terms++;
    if (!(add && terms == 2) && !(factor && terms == 1) && n->op != SN_OP_neg) return false;
    return sh_done(out, with(s, n, n->n_in, in), sh_partial_layout());
}

/* How all divided operands are divided, but for vectors of columns; false: in different ways. */
static bool common_layout(sharder *s, const sn_node *n, sh_layout *out) {
    bool found = false;
    for (int i = 0; i < n->n_in; i++) {
        sh_local x = sh_local_of(s, n->in[i]);
        if (x.at.kind != SH_SPLIT || n->in[i]->rank < n->rank) continue;
        if (found && !sh_merge(s, out, &x.at, out)) return false;
        if (!found) *out = x.at;
        found = true;
    }
    return found;
}

/* Whether zeros in all divided operands give zeros. */
static bool keeps_zeros(sharder *s, const sn_node *n) {
    bool all = true;
    for (int i = 0; i < n->n_in; i++) all &= kind_of(s, n->in[i]) == SH_SPLIT;
    if (n->op == SN_OP_add || n->op == SN_OP_sub) return all;
    return n->op == SN_OP_mul || n->op == SN_OP_neg || n->op == SN_OP_cast;
}

bool sh_elementwise(sharder *s, sn_node *n, sh_local *out) {
    sh_layout l = sh_whole_layout();
    sn_node **in = sn_arena_alloc(s->m, sizeof *in * (size_t)(n->n_in + 1));
    if (on_terms(s, n, out)) return true;
    if (!common_layout(s, n, &l)) /* divided in different ways: as the first one */
        for (int i = 0; i < n->n_in && l.kind != SH_SPLIT; i++) l = sh_local_of(s, n->in[i]).at;
    if (l.kind != SH_SPLIT) return false;
    for (int i = 0; i < n->n_in; i++) in[i] = sh_split(s, n->in[i], &l);
    return sh_done(out, with(s, n, n->n_in, in), keeps_zeros(s, n) ? l : sh_without_zeros(s, l));
}

/* ---- elements that move ---- */

static bool shard_broadcast(sharder *s, sn_node *n, sh_local *out) {
    sh_local x = sh_local_of(s, n->in[0]);
    sn_dim shape[SN_MAX_RANK];
    if (x.at.kind != SH_SPLIT) return false;
    sh_layout l = sh_on_axis(x.at, x.at.axis + n->rank - n->in[0]->rank);
    sh_shape(s, n, &l, shape);
    return sh_done(out, sn_b_broadcast(x.n, n->rank, shape), l);
}

static bool shard_transpose(sharder *s, sn_node *n, sh_local *out) {
    sh_local x = sh_local_of(s, n->in[0]);
    const sn_attr *perm = sn_attr_get(n, SN_A_perm);
    for (int i = 0; x.at.kind == SH_SPLIT && i < n->rank; i++)
        if (perm->v[i] == x.at.axis) {
            x.at.axis = i;
            break;
        }
    return sh_done(out, with(s, n, 1, &x.n), x.at);
}

/* Axes [from, to) of the old shape are axes [first, last) of the new one. */
typedef struct group {
    int from, to, first, last;
} group;

/* The smallest group of axes with equal products that contains old axis `axis`. */
static bool find_group(sn_module *m, const sn_node *x, const sn_node *y, int axis, group *g) {
    *g = (group){0};
    while (g->to <= axis) {
        g->from = g->to, g->first = g->last;
        if (g->to >= x->rank || g->last >= y->rank) return false;
        sn_dim p = x->shape[g->to++], q = y->shape[g->last++];
        while (p != q) {
            if (g->last < y->rank && (g->to >= x->rank || sn_dim_lo(m, q) <= sn_dim_lo(m, p)) &&
                sn_dim_hi(m, q) <= sn_dim_hi(m, p))
                q = sn_dim_mul(m, q, y->shape[g->last++]);
            else if (g->to < x->rank)
                p = sn_dim_mul(m, p, x->shape[g->to++]);
            else
                return false;
        }
        while (g->to < x->rank && x->shape[g->to] == 1) g->to++;
        while (g->last < y->rank && y->shape[g->last] == 1) g->last++;
    }
    return true;
}

static bool product(sn_module *m, const sn_dim *shape, int from, int to, int64_t *out) {
    return sn_dim_is_const(m, sn_dim_product(m, to - from, shape + from), out);
}

/* The parts of x's axis in the order of elements of the group, and from them the parts of a new axis
 * which are repeated along all axes before it. */
static bool regroup(sharder *s, const sn_node *x, const sn_node *y, const sh_layout *l, group g,
                    sh_layout *out) {
    int64_t before, after, outer, inner, size;
    if (!product(s->m, x->shape, g.from, l->axis, &before) ||
        !product(s->m, x->shape, l->axis + 1, g.to, &after) || before > 1024)
        return false;
    int n = l->n_part * (int)before;
    for (int j = g.first; j < g.last; j++) {
        if (!product(s->m, y->shape, g.first, j, &outer) ||
            !product(s->m, y->shape, j + 1, g.last, &inner) ||
            !sn_dim_is_const(s->m, y->shape[j], &size))
            return false;
        if (size == 1 || n % outer) continue;
        int each = n / (int)outer;
        sh_part *part = sn_arena_alloc(s->m, sizeof *part * (size_t)(each + 1));
        bool fits = true;
        for (int64_t i = 0; fits && i < n; i++) {
            sh_part p = l->part[i % l->n_part];
            fits = p.size * after % (inner * s->ranks) == 0;
            p.size = p.size * after / inner;
            fits &= i < each ||
                    (p.size == part[i % each].size && p.reversed == part[i % each].reversed);
            p.zero &= i < each || part[i % each].zero;
            part[i % each] = p;
        }
        *out = (sh_layout){.kind = SH_SPLIT, .axis = j, .n_part = each, .part = part};
        if (fits && sh_size(out) == size) return true;
    }
    return false;
}

static bool shard_reshape(sharder *s, sn_node *n, sh_local *out) {
    sh_local x = sh_local_of(s, n->in[0]);
    const sn_node *old = n->in[0];
    sn_dim shape[SN_MAX_RANK];
    group g;
    sh_layout l = x.at;
    if (x.at.kind == SH_SPLIT) {
        if (!find_group(s->m, old, n, x.at.axis, &g)) return false;
        int same = -1; /* the only new axis, of the same size */
        for (int j = g.first; j < g.last; j++)
            if (n->shape[j] == old->shape[x.at.axis]) same = same < 0 ? j : -2;
        sn_dim all = sn_dim_product(s->m, g.to - g.from, old->shape + g.from);
        if (same >= 0 && all == old->shape[x.at.axis])
            l = sh_on_axis(x.at, same);
        else if (sh_is_padded(s, &x.at) || !regroup(s, old, n, &x.at, g, &l))
            return false;
    }
    sh_shape(s, n, &l, shape);
    return sh_done(out, sn_b_reshape(x.n, n->rank, shape), l);
}

/* The parts of [start, start + size); false: a part would be cut. *local: where they begin in the
 * share. */
static bool cut(sharder *s, const sh_layout *l, int64_t start, int64_t size, sh_layout *out,
                int64_t *local) {
    sh_part *part = sn_arena_alloc(s->m, sizeof *part * (size_t)(l->n_part + 1));
    int n = 0;
    int64_t at = 0, end = start + size;
    if (start % s->ranks || size % s->ranks || sh_is_padded(s, l)) return false;
    for (int i = 0; i < l->n_part; at += l->part[i++].size) {
        int64_t from = at > start ? at : start, to = at + l->part[i].size;
        if (to > end) to = end;
        if (from >= to) continue;
        if (to - from < l->part[i].size && !l->part[i].zero) return false;
        part[n++] = (sh_part){to - from, l->part[i].zero, l->part[i].reversed};
    }
    *out = (sh_layout){.kind = SH_SPLIT, .axis = l->axis, .n_part = n, .part = part};
    *local = start / s->ranks;
    return true;
}

static bool shard_slice(sharder *s, sn_node *n, sh_local *out) {
    sh_local x = sh_local_of(s, n->in[0]);
    const sn_attr *start = sn_attr_get(n, SN_A_start), *size = sn_attr_get(n, SN_A_size),
                  *step = sn_attr_get(n, SN_A_step);
    int a = x.at.axis;
    int64_t first, count, local = 0;
    sn_dim at[SN_MAX_RANK], shape[SN_MAX_RANK];
    sh_layout l = x.at;
    if (x.at.kind != SH_SPLIT || (step && step->v[a] != 1)) return false;
    bool all = size->v[a] == n->in[0]->shape[a];
    if (!all &&
        (!sn_dim_is_const(s->m, start->v[a], &first) ||
         !sn_dim_is_const(s->m, size->v[a], &count) || !cut(s, &x.at, first, count, &l, &local)))
        return false;
    memcpy(at, start->v, sizeof *at * n->rank);
    sh_shape(s, n, &l, shape);
    at[a] = sn_dim_const(s->m, local);
    sn_attr attr[3] = {SN_LIST(start, n->rank, at), SN_LIST(size, n->rank, shape)};
    if (step) attr[2] = *step;
    return sh_done(out, sn_node_new(s->m, SN_OP_slice, 1, &x.n, step ? 3 : 2, attr), l);
}

static bool shard_pad(sharder *s, sn_node *n, sh_local *out) {
    sh_local x = sh_local_of(s, n->in[0]);
    int a = x.at.axis;
    const sn_attr *low = sn_attr_get(n, SN_A_low), *high = sn_attr_get(n, SN_A_high);
    int64_t more[2];
    if (x.at.kind != SH_SPLIT) return false;
    if (!sn_dim_is_const(s->m, low->v[a], &more[0]) || !sn_dim_is_const(s->m, high->v[a], &more[1]))
        return false;
    if (more[0] || more[1])
        if (sn_attr_flt(n, SN_A_value, 0) != 0 || sh_is_padded(s, &x.at)) return false;
    sh_part *part = sn_arena_alloc(s->m, sizeof *part * (size_t)(x.at.n_part + 2));
    sn_dim around[2][SN_MAX_RANK];
    int k = 0;
    for (int side = 0; side < 2; side++) {
        if (more[side] < 0 || more[side] % s->ranks) return false;
        memcpy(around[side], side ? high->v : low->v, sizeof(sn_dim) * n->rank);
        around[side][a] = sn_dim_const(s->m, more[side] / s->ranks);
        if (side)
            for (int i = 0; i < x.at.n_part; i++) part[k++] = x.at.part[i];
        if (more[side]) part[k++] = (sh_part){more[side], .zero = true};
    }
    sn_attr attr[3] = {sn_attr_get(n, SN_A_value) ? *sn_attr_get(n, SN_A_value) : SN_FLT(value, 0),
                       SN_LIST(low, n->rank, around[0]), SN_LIST(high, n->rank, around[1])};
    return sh_done(out, sn_node_new(s->m, SN_OP_pad, 1, &x.n, 3, attr),
                   (sh_layout){.kind = SH_SPLIT, .axis = a, .n_part = k, .part = part});
}

/* Along the divided axis the parts of all operands follow each other. */
static bool join(sharder *s, sn_node *n, int axis, sn_node **in, sh_layout *out) {
    int total = 0;
    for (int i = 0; i < n->n_in; i++) total += sh_local_of(s, n->in[i]).at.n_part + 1;
    sh_part *part = sn_arena_alloc(s->m, sizeof *part * (size_t)(total + 1));
    *out = (sh_layout){.kind = SH_SPLIT, .axis = axis, .n_part = 0, .part = part};
    for (int i = 0; i < n->n_in; i++) {
        sh_local x = sh_local_of(s, n->in[i]);
        int64_t size;
        if (x.at.kind != SH_SPLIT || x.at.axis != axis) {
            if (!sh_divides(s, n->in[i]->shape[axis], &size)) return false;
            x.at = sh_split_layout(s, axis, size);
        }
        if (sh_is_padded(s, &x.at)) return false;
        in[i] = sh_split(s, n->in[i], &x.at);
        for (int k = 0; k < x.at.n_part; k++) part[out->n_part++] = x.at.part[k];
    }
    return true;
}

static bool shard_concat(sharder *s, sn_node *n, sh_local *out) {
    int axis = (int)sn_attr_int(n, SN_A_axis, 0);
    sh_layout l = sh_whole_layout(), same;
    sn_node **in = sn_arena_alloc(s->m, sizeof *in * (size_t)(n->n_in + 1));
    for (int i = 0; i < n->n_in && l.kind != SH_SPLIT; i++) l = sh_local_of(s, n->in[i]).at;
    if (l.kind != SH_SPLIT) return false;
    if (l.axis == axis) return join(s, n, axis, in, &l) && sh_done(out, with(s, n, n->n_in, in), l);
    same = l; /* the sizes of this axis are equal */
    for (int i = 0; i < n->n_in; i++) in[i] = sh_split(s, n->in[i], &same);
    return sh_done(out, with(s, n, n->n_in, in), l);
}

/* Rows written into x, along axes that are not divided. */
static bool update(sharder *s, sn_node *n, bool whole_axis, sh_local *out) {
    sh_local x = sh_local_of(s, n->in[0]), y = sh_local_of(s, n->in[1]);
    sh_layout l = x.at.kind == SH_SPLIT ? x.at : y.at;
    sn_node *in[3];
    if (l.kind != SH_SPLIT || !whole_axis) return false;
    for (int i = 0; i < 2; i++) in[i] = sh_split(s, n->in[i], &l);
    if (n->n_in > 2) in[2] = sh_whole(s, n->in[2]);
    return sh_done(out, with(s, n, n->n_in, in), l);
}

static int divided_axis(sharder *s, const sn_node *n) {
    sh_local x = sh_local_of(s, n->in[0]), y = sh_local_of(s, n->in[1]);
    return x.at.kind == SH_SPLIT ? x.at.axis : y.at.axis;
}

static bool shard_update_slice(sharder *s, sn_node *n, sh_local *out) {
    int a = divided_axis(s, n);
    bool whole = n->in[0]->shape[a] == n->in[1]->shape[a];
    return update(s, n, whole && !sn_attr_get(n, SN_A_start)->v[a], out);
}

static bool shard_update_rows(sharder *s, sn_node *n, sh_local *out) {
    int a = divided_axis(s, n);
    return update(s, n, a && a != sn_attr_int(n, SN_A_axis, 0), out);
}

/* ---- reductions ---- */

static bool has_axis(const sn_node *n, int axis) {
    const sn_attr *axes = sn_attr_get(n, SN_A_axes);
    for (int i = 0; i < axes->n; i++)
        if (axes->v[i] == axis) return true;
    return false;
}

static double neutral(sn_op op) {
    return op == SN_OP_reduce_max ? -INFINITY : op == SN_OP_reduce_min ? INFINITY : 0;
}

/* The padded operand of a reduction. A square is filled before it is taken: its sum then rounds as that of
 * parts of the share, which are filled (nested.c). */
static sn_node *fill_terms(sharder *s, sn_node *x, const sh_local *at, double value) {
    if (x->op != SN_OP_mul || x->in[0] != x->in[1] || value != 0) return sh_fill(s, at, value);
    sh_local factor = sh_local_of(s, x->in[0]);
    if (!sh_is_padded(s, &factor.at)) return sh_fill(s, at, value);
    sn_node *full = sh_fill(s, &factor, 0);
    return sn_b_binary(SN_OP_mul, full, full);
}

static bool shard_reduce(sharder *s, sn_node *n, sh_local *out) {
    sh_local x = sh_local_of(s, n->in[0]);
    bool sum = n->op == SN_OP_reduce_sum;
    if (x.at.kind == SH_PARTIAL && sum) return sh_done(out, with(s, n, 1, &x.n), x.at);
    if (x.at.kind != SH_SPLIT) return false;
    if (!has_axis(n, x.at.axis)) return sh_done(out, with(s, n, 1, &x.n), x.at);
    if (!sn_is_float(n)) return false;
    sn_node *full = fill_terms(s, n->in[0], &x, neutral((sn_op)n->op)),
            *part = with(s, n, 1, &full);
    if (sum) return sh_done(out, part, sh_partial_layout());
    int64_t first = 0;
    sn_node *all = sn_b_reduce((sn_op)n->op, sh_gather(s, part), 1, &first);
    return sh_done(out, sn_b_reshape(all, n->rank, n->shape), sh_whole_layout());
}

/* ---- composites that work along one axis ---- */

/* The same operation on a share of rows. */
static bool on_rows(sharder *s, sn_node *n, int row_axis, sh_local *out) {
    sh_layout l;
    sn_node **in = sn_arena_alloc(s->m, sizeof *in * (size_t)(n->n_in + 1));
    if (!common_layout(s, n, &l) || l.axis == row_axis) return false;
    for (int i = 0; i < n->n_in; i++)
        in[i] = n->in[i]->rank == n->rank ? sh_split(s, n->in[i], &l) : sh_whole(s, n->in[i]);
    return sh_done(out, with(s, n, n->n_in, in), l);
}

static bool shard_along_axis(sharder *s, sn_node *n, sh_local *out) {
    return on_rows(s, n, (int)sn_attr_int(n, SN_A_axis, n->in[0]->rank - 1), out);
}

static bool shard_last_axis(sharder *s, sn_node *n, sh_local *out) {
    return n->rank > 1 && on_rows(s, n, n->rank - 1, out);
}

static bool shard_statistic(sharder *s, sn_node *n, sh_local *out) {
    sh_local x = sh_local_of(s, n->in[0]);
    if (x.at.kind != SH_SPLIT || has_axis(n, x.at.axis)) return false;
    return sh_done(out, with(s, n, 1, &x.n), x.at);
}

/* x [.., T, d], positions [T] or [B, T]: heads may be divided, or T. */
static bool shard_rope(sharder *s, sn_node *n, sh_local *out) {
    sh_local x = sh_local_of(s, n->in[0]);
    sn_node *in[3] = {x.n};
    int axis = (int)sn_attr_int(n, SN_A_axis, n->rank - 2), a = x.at.axis;
    if (x.at.kind != SH_SPLIT || !a || a == n->rank - 1) return false;
    sh_layout of_positions = sh_on_axis(x.at, n->in[1]->rank - 1);
    for (int i = 1; i < n->n_in; i++)
        in[i] = i == 1 && a == axis ? sh_split(s, n->in[i], &of_positions) : sh_whole(s, n->in[i]);
    return sh_done(out, with(s, n, n->n_in, in), x.at);
}

/* x [.., V], targets [..]: all but V may be divided. */
static bool shard_cross_entropy(sharder *s, sn_node *n, sh_local *out) {
    sh_layout l;
    sn_node *in[2];
    if (!common_layout(s, n, &l) || l.axis == n->rank) return false;
    for (int i = 0; i < 2; i++) in[i] = sh_split(s, n->in[i], &l);
    return sh_done(out, with(s, n, 2, in), l);
}

/* Sums over the ranks of another axis, divisions by another axis: element by element. */
static bool shard_other_axis(sharder *s, sn_node *n, sh_local *out) {
    sh_local x = sh_local_of(s, n->in[0]);
    if (x.at.kind != SH_SPLIT) return false;
    if (n->op == SN_OP_shard && sn_attr_int(n, SN_A_axis, 0) == x.at.axis) return false;
    return sh_done(out, with(s, n, 1, &x.n), x.at);
}

/* ---- the table ---- */

static sh_rule *const rules[SN_OP_COUNT] = {
    [SN_OP_broadcast] = shard_broadcast,
    [SN_OP_reshape] = shard_reshape,
    [SN_OP_transpose] = shard_transpose,
    [SN_OP_slice] = shard_slice,
    [SN_OP_concat] = shard_concat,
    [SN_OP_pad] = shard_pad,
    [SN_OP_update_slice] = shard_update_slice,
    [SN_OP_update_rows] = shard_update_rows,
    [SN_OP_reduce_sum] = shard_reduce,
    [SN_OP_reduce_max] = shard_reduce,
    [SN_OP_reduce_min] = shard_reduce,
    [SN_OP_all_reduce] = shard_other_axis,
    [SN_OP_shard] = shard_other_axis,
    [SN_OP_cumsum] = shard_along_axis,
    [SN_OP_argmax] = shard_along_axis,
    [SN_OP_argsort] = shard_along_axis,
    [SN_OP_relu] = sh_elementwise,
    [SN_OP_silu] = sh_elementwise,
    [SN_OP_softplus] = sh_elementwise,
    [SN_OP_mean] = shard_statistic,
    [SN_OP_variance] = shard_statistic,
    [SN_OP_softmax] = shard_along_axis,
    [SN_OP_softmax_grad] = shard_along_axis,
    [SN_OP_log_softmax] = shard_along_axis,
    [SN_OP_logsumexp] = shard_along_axis,
    [SN_OP_layer_norm] = shard_last_axis,
    [SN_OP_layer_norm_grad] = shard_last_axis,
    [SN_OP_rms_norm] = shard_last_axis,
    [SN_OP_rope] = shard_rope,
    [SN_OP_cross_entropy] = shard_cross_entropy,
};

sh_rule *sh_rule_of(sn_op op) {
    if (sn_ops[op].kind == SN_ELEM) return sh_elementwise;
    return rules[op];
}
