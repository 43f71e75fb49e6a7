/* layout.c: ways in which ranks hold a tensor, and the collectives between them. */
#include "passes/shard/shard.h"

#include <string.h>

sh_layout sh_whole_layout(void) {
    return (sh_layout){.kind = SH_WHOLE};
}

sh_layout sh_partial_layout(void) {
    return (sh_layout){.kind = SH_PARTIAL};
}

sh_layout sh_parts_layout(sharder *s, int axis, int n, const int64_t *size) {
    sh_part *part = sn_arena_alloc(s->m, sizeof *part * (size_t)(n + 1));
    for (int i = 0; i < n; i++) part[i].size = size[i];
    return (sh_layout){.kind = SH_SPLIT, .axis = axis, .n_part = n, .part = part};
}

sh_layout sh_split_layout(sharder *s, int axis, int64_t size) {
    return sh_parts_layout(s, axis, 1, &size);
}

sh_layout sh_on_axis(sh_layout l, int axis) {
    l.axis = axis;
    return l;
}

sh_layout sh_without_zeros(sharder *s, sh_layout l) {
    sh_part *part = sn_arena_alloc(s->m, sizeof *part * (size_t)(l.n_part + 1));
    for (int i = 0; i < l.n_part; i++)
        part[i] = (sh_part){.size = l.part[i].size, .reversed = l.part[i].reversed};
    l.part = part;
    return l;
}

sh_layout sh_zigzag_layout(sharder *s, int axis, int64_t size) {
    sh_part *part = sn_arena_alloc(s->m, 2 * sizeof *part);
    for (int i = 0; i < 2; i++) part[i] = (sh_part){.size = size / 2, .reversed = i == 1};
    return (sh_layout){.kind = SH_SPLIT, .axis = axis, .n_part = 2, .part = part};
}

bool sh_is_zigzag(const sh_layout *l) {
    return l->kind == SH_SPLIT && l->n_part == 2 && l->part[0].size == l->part[1].size &&
           !l->part[0].reversed && l->part[1].reversed;
}

bool sh_is_reversed(const sh_layout *l) {
    bool any = false;
    for (int i = 0; i < l->n_part; i++) any |= l->part[i].reversed;
    return any;
}

bool sh_is_one_part(const sh_layout *l) {
    return l->kind == SH_SPLIT && l->n_part == 1 && !sh_is_reversed(l);
}

sh_layout sh_forward(sharder *s, sh_layout l) {
    sh_part *part = sn_arena_alloc(s->m, sizeof *part * (size_t)(l.n_part + 1));
    for (int i = 0; i < l.n_part; i++)
        part[i] = (sh_part){.size = l.part[i].size, .zero = l.part[i].zero};
    l.part = part;
    return l;
}

static int64_t share_of(const sharder *s, int64_t size) {
    return (size + s->ranks - 1) / s->ranks;
}

int64_t sh_size(const sh_layout *l) {
    int64_t sum = 0;
    for (int i = 0; i < l->n_part; i++) sum += l->part[i].size;
    return sum;
}

int64_t sh_share(const sharder *s, const sh_layout *l) {
    int64_t sum = 0;
    for (int i = 0; i < l->n_part; i++) sum += share_of(s, l->part[i].size);
    return sum;
}

int64_t sh_held(const sharder *s, const sh_layout *l) {
    int64_t share = sh_share(s, l);
    return l->nested ? (share + l->nested - 1) / l->nested : share;
}

bool sh_is_padded(const sharder *s, const sh_layout *l) {
    return l->kind == SH_SPLIT && !l->nested && sh_size(l) % s->ranks != 0;
}

bool sh_divides(const sharder *s, sn_dim size, int64_t *elements) {
    int64_t n;
    if (!elements) elements = &n;
    return sn_dim_is_const(s->m, size, elements) && *elements > 0 && *elements % s->ranks == 0;
}

void sh_shape(const sharder *s, const sn_node *n, const sh_layout *l, sn_dim shape[SN_MAX_RANK]) {
    for (int i = 0; i < n->rank; i++) shape[i] = n->shape[i];
    if (l->kind == SH_SPLIT) shape[l->axis] = sn_dim_const(s->m, sh_held(s, l));
}

/* Walks both lists; a boundary of one list may fall into a part of zeros of the other only. */
bool sh_merge(sharder *s, const sh_layout *a, const sh_layout *b, sh_layout *out) {
    if (a->kind != SH_SPLIT || b->kind != SH_SPLIT || a->axis != b->axis ||
        a->nested != b->nested || sh_size(a) != sh_size(b))
        return false;
    sh_part *part = sn_arena_alloc(s->m, sizeof *part * (size_t)(a->n_part + b->n_part + 1));
    int n = 0;
    int64_t left[2] = {0, 0};
    const sh_layout *l[2] = {a, b};
    for (int at[2] = {-1, -1};;) {
        for (int k = 0; k < 2; k++)
            while (!left[k] && ++at[k] < l[k]->n_part) left[k] = l[k]->part[at[k]].size;
        if (at[0] >= a->n_part || at[1] >= b->n_part) break;
        const sh_part *x = &a->part[at[0]], *y = &b->part[at[1]];
        int64_t step = left[0] < left[1] ? left[0] : left[1];
        if ((step < x->size && !x->zero) || (step < y->size && !y->zero)) return false;
        if (step % s->ranks && (a->n_part > 1 || b->n_part > 1)) return false;
        if (x->reversed != y->reversed && !x->zero && !y->zero) return false;
        part[n++] = (sh_part){step, x->zero && y->zero, x->zero ? y->reversed : x->reversed};
        left[0] -= step, left[1] -= step;
    }
    if (out)
        *out = (sh_layout){
            .kind = SH_SPLIT, .axis = a->axis, .n_part = n, .part = part, .nested = a->nested};
    return true;
}

/* ---- collectives ---- */

static sn_node *collective(sharder *s, sn_op op, sn_node *x) {
    sn_attr attr[] = {SN_INT(axis, 0), SN_STR(mesh, s->mesh), SN_INT(ranks, s->ranks)};
    bool sum = op == SN_OP_all_reduce;
    return sn_node_new(s->m, op, 1, &x, sum ? 2 : 3, sum ? attr + 1 : attr);
}

/* The axis becomes the first one; back: the reverse. */
static sn_node *move_axis(sn_node *x, int axis, bool back) {
    int64_t perm[SN_MAX_RANK];
    for (int i = 0; i < x->rank; i++) {
        if (back)
            perm[i] = i < axis ? i + 1 : i == axis ? 0 : i;
        else
            perm[i] = !i ? axis : i <= axis ? i - 1 : i;
    }
    return axis ? sn_b_transpose(x, x->rank, perm) : x;
}

sn_node *sh_gather(sharder *s, sn_node *x) {
    sn_dim shape[SN_MAX_RANK + 1] = {1};
    for (int i = 0; i < x->rank; i++) shape[i + 1] = x->shape[i];
    sn_dtype t = (sn_dtype)x->dtype;
    if (!sn_is_float(x)) /* exact for flags and small numbers; integers up to 2^53 */
        x = sn_b_cast(x, t == SN_I32 || t == SN_I64 ? SN_F64 : SN_F32);
    sn_node *all = collective(s, SN_OP_all_gather, sn_b_reshape(x, x->rank + 1, shape));
    return sn_b_cast(all, t);
}

/* Shares of all ranks, [ranks, share, ..], in the order of a part. */
static sn_node *in_order(sharder *s, sn_node *shares, const sh_part *p) {
    if (!p->reversed) return shares;
    sn_node **each = sn_arena_alloc(s->m, sizeof *each * (size_t)s->ranks);
    for (int64_t r = 0; r < s->ranks; r++)
        each[s->ranks - 1 - r] = sn_b_slice(shares, 0, sn_dim_const(s->m, r), 1);
    return sn_b_concat(s->m, (int)s->ranks, each, 0);
}

static sn_node *join_parts(sharder *s, sn_node *x, const sh_layout *l) {
    sn_dim shape[SN_MAX_RANK];
    sn_node *all = sh_gather(s, x); /* [ranks, share, ..] */
    sn_node **part = sn_arena_alloc(s->m, sizeof *part * (size_t)l->n_part);
    for (int i = 0; i < x->rank; i++) shape[i] = x->shape[i];
    int64_t at = 0;
    for (int i = 0; i < l->n_part; i++) {
        int64_t share = share_of(s, l->part[i].size);
        part[i] = sn_b_slice(all, 1, sn_dim_const(s->m, at), sn_dim_const(s->m, share));
        part[i] = in_order(s, part[i], &l->part[i]);
        shape[0] = sn_dim_const(s->m, share * s->ranks);
        part[i] = sn_b_reshape(part[i], x->rank, shape);
        at += share;
    }
    sn_node *joined = l->n_part == 1 ? part[0] : sn_b_concat(s->m, l->n_part, part, 0);
    return sh_is_padded(s, l) ? sn_b_slice(joined, 0, 0, sn_dim_const(s->m, sh_size(l))) : joined;
}

sn_node *sh_to_whole(sharder *s, const sh_local *x) {
    if (x->at.kind == SH_WHOLE) return x->n;
    if (x->at.kind == SH_PARTIAL) return collective(s, SN_OP_all_reduce, x->n);
    return move_axis(join_parts(s, move_axis(x->n, x->at.axis, false), &x->at), x->at.axis, true);
}

/* ---- this rank's share ---- */

static sn_dim first_of(sharder *s, int64_t share) {
    return sn_dim_mul(s->m, s->rank, sn_dim_const(s->m, share));
}

/* The same of a part. */
static sn_dim first_in(sharder *s, const sh_part *p, int64_t share) {
    if (!p->reversed) return first_of(s, share);
    return sn_dim_sub(s->m, sn_dim_const(s->m, (s->ranks - 1) * share), first_of(s, share));
}

sn_node *sh_first(sharder *s, int64_t share, const sn_node *like) {
    return sn_b_dim(s->m, (sn_dtype)like->dtype, first_of(s, share));
}

/* Sums into a share of the rows, as the gradient of a divided table needs them: those of other ranks go
 * to one more row, which is dropped. */
static sn_node *scatter_share(sharder *s, const sn_node *x, const sh_layout *l) {
    int64_t share = sh_share(s, l);
    sn_dim shape[SN_MAX_RANK];
    sn_node *ids = x->in[1], *local = sn_b_binary(SN_OP_sub, ids, sh_first(s, share, ids));
    sn_node *below = sn_b_const(s->m, (sn_dtype)ids->dtype, -1),
            *rest = sn_b_const(s->m, (sn_dtype)ids->dtype, (double)share);
    sn_node *here = sn_b_binary(SN_OP_and, sn_b_binary(SN_OP_lt, local, rest),
                                sn_b_binary(SN_OP_lt, below, local));
    sn_node *in[2] = {x->in[0], sn_b_select(here, local, rest)};
    memcpy(shape, x->shape, sizeof *shape * x->rank);
    shape[l->axis] = sn_dim_const(s->m, share + 1);
    sn_node *rows = sn_node_new(s->m, SN_OP_scatter_add, 2, in,
                                SN_ATTRS(SN_LIST(shape, x->rank, shape), SN_INT(axis, l->axis)));
    return sn_b_slice(rows, l->axis, 0, sn_dim_const(s->m, share));
}

/* The share of an operation that can make it directly; NULL: it cannot. */
static sn_node *direct_share(sharder *s, const sn_node *x, const sh_layout *l) {
    sn_dim shape[SN_MAX_RANK];
    sh_shape(s, x, l, shape);
    if (x->op == SN_OP_broadcast) {
        int from = l->axis - (x->rank - x->in[0]->rank);
        if (from < 0 || x->in[0]->shape[from] == 1) return sn_b_broadcast(x->in[0], x->rank, shape);
    }
    int axis = (int)sn_attr_int(x, SN_A_axis, 0);
    bool adds = x->op == SN_OP_scatter_add && !sn_attr_get(x, SN_A_combine);
    if (adds && axis == l->axis && sh_is_one_part(l)) return scatter_share(s, x, l);
    if (x->op != SN_OP_iota) return NULL;
    if (axis == l->axis && !sh_is_one_part(l)) return NULL;
    sn_node *i = sn_b_iota(s->m, (sn_dtype)x->dtype, x->rank, shape, axis);
    return axis == l->axis ? sn_b_binary(SN_OP_add, i, sh_first(s, sh_share(s, l), i)) : i;
}

static sn_node *pad_axis(sharder *s, sn_node *x, int axis, int64_t more) {
    sn_dim low[SN_MAX_RANK] = {0}, high[SN_MAX_RANK] = {0};
    high[axis] = sn_dim_const(s->m, more);
    return SN_NODE(
        s->m, pad,
        SN_ATTRS(SN_LIST(low, x->rank, low), SN_LIST(high, x->rank, high), SN_FLT(value, 0)), x);
}

/* What is computed of a state before it is known that it is divided as its next value is. */
static sn_node *guess(sharder *s, sn_node *x, const sh_layout *l) {
    s->guessed = sn_attr_str(x, SN_A_name, sn_ops[x->op].name);
    return sn_b_slice(x, l->axis, 0, sn_dim_const(s->m, sh_held(s, l)));
}

static sn_node *own_share(sharder *s, sn_node *x, const sh_layout *l) {
    sn_node *direct = direct_share(s, x, l);
    if (direct) return direct;
    if (l->nested) return guess(s, x, l);
    sn_node **part = sn_arena_alloc(s->m, sizeof *part * (size_t)l->n_part);
    if (sh_is_padded(s, l)) x = pad_axis(s, x, l->axis, sh_share(s, l) * s->ranks - sh_size(l));
    int64_t at = 0;
    for (int i = 0; i < l->n_part; at += l->part[i++].size) {
        int64_t share = share_of(s, l->part[i].size);
        sn_dim from = sn_dim_add(s->m, sn_dim_const(s->m, at), first_in(s, &l->part[i], share));
        part[i] = sn_b_slice(x, l->axis, from, sn_dim_const(s->m, share));
    }
    return l->n_part == 1 ? part[0] : sn_b_concat(s->m, l->n_part, part, l->axis);
}

sn_node *sh_to_split(sharder *s, const sh_local *x, const sh_layout *l) {
    if (sh_merge(s, &x->at, l, NULL)) return x->n;
    return own_share(s, sh_to_whole(s, x), l);
}

sn_node *sh_fill(sharder *s, const sh_local *x, double value) {
    if (!sh_is_padded(s, &x->at)) return x->n;
    sn_node *i = sn_b_iota(s->m, SN_I32, x->n->rank, x->n->shape, x->at.axis);
    i = sn_b_binary(SN_OP_add, i, sh_first(s, sh_share(s, &x->at), i));
    sn_node *inside = sn_b_scalar(SN_OP_lt, i, (double)sh_size(&x->at));
    return sn_b_select(inside, x->n, sn_b_const(s->m, (sn_dtype)x->n->dtype, value));
}

/* ---- of the user's nodes ---- */

sh_local sh_local_of(sharder *s, sn_node *n) {
    if (n->id >= s->n_of) return (sh_local){n, sh_whole_layout()}; /* the error node */
    if (!s->of[n->id].n) {
        sn_module_set_loc(s->m, n->loc);
        sh_local made = s->compute(s, n);
        s->of[n->id] = made;
    }
    return s->of[n->id];
}

sn_node *sh_whole(sharder *s, sn_node *n) {
    sh_local x = sh_local_of(s, n);
    return sh_to_whole(s, &x);
}

sn_node *sh_split(sharder *s, sn_node *n, const sh_layout *l) {
    sh_local x = sh_local_of(s, n);
    return sh_to_split(s, &x, l);
}
