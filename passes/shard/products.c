/* products.c: what a rank computes of products, look-ups and attention. */
#include "passes/shard/shard.h"

#include <string.h>

/* ---- linear maps ---- */

/* x [.., in], w [out, in]. Columns: w's rows are divided, and so is the result. Rows: `in` is
 * divided, and each rank has a term of the result. */
static bool shard_linear(sharder *s, sn_node *n, sh_local *out) {
    sn_node *x = n->in[0], *w = n->in[1], *b = n->n_in > 2 ? n->in[2] : NULL, *in[3];
    sh_local lx = sh_local_of(s, x), lw = sh_local_of(s, w);
    int last = x->rank - 1;
    if (sn_attr_get(n, SN_A_size)) return false;
    if (sh_is_split(&lx, last) || sh_is_split(&lw, 1)) {
        sh_layout l = sh_on_axis(sh_is_split(&lx, last) ? lx.at : lw.at, last),
                  of_w = sh_on_axis(l, 1);
        in[0] = sh_split(s, x, &l);
        in[1] = sh_split(s, w, &of_w);
        sh_local padded = {in[0], l};
        in[0] = sh_fill(s, &padded, 0);
        sh_local term = {sn_node_new(s->m, SN_OP_linear, 2, in, SN_NO_ATTRS), sh_partial_layout()};
        if (!b) return sh_done(out, term.n, term.at);
        return sh_done(out, sn_b_binary(SN_OP_add, sh_to_whole(s, &term), sh_whole(s, b)),
                       sh_whole_layout());
    }
    sh_layout l;
    if (sh_is_split(&lw, 0) && lx.at.kind != SH_SPLIT) {
        l = sh_on_axis(lw.at, last);
        in[0] = sh_whole(s, x), in[1] = lw.n;
        sh_layout of_b = sh_on_axis(l, 0);
        if (b) in[2] = sh_split(s, b, &of_b);
    } else if (lx.at.kind == SH_SPLIT) {
        l = lx.at;
        in[0] = lx.n, in[1] = sh_whole(s, w);
        if (b) in[2] = sh_whole(s, b);
    } else {
        return false;
    }
    return sh_done(out, sn_node_new(s->m, SN_OP_linear, n->n_in, in, SN_NO_ATTRS), l);
}

/* ---- dot ---- */

typedef struct side { /* an operand of dot */
    sn_node *x;
    sh_local at;
    const sn_attr *batch, *sum;
    int n_batch, n_sum;
} side;

static side side_of(sharder *s, const sn_node *n, int i) {
    side d = {.x = n->in[i],
              .at = sh_local_of(s, n->in[i]),
              .batch = sn_attr_get(n, i ? SN_A_batch_b : SN_A_batch_a),
              .sum = sn_attr_get(n, i ? SN_A_contract_b : SN_A_contract_a)};
    d.n_batch = d.batch ? d.batch->n : 0, d.n_sum = d.sum ? d.sum->n : 0;
    return d;
}

/* The place of an axis in a list; -1: it is not there. */
static int place_in(const sn_attr *list, int axis) {
    for (int i = 0; list && i < list->n; i++)
        if (list->v[i] == axis) return i;
    return -1;
}

/* The result's axis of a free axis. */
static int free_axis(const side *d, int axis, int first) {
    for (int a = 0; a < axis; a++) first += place_in(d->batch, a) < 0 && place_in(d->sum, a) < 0;
    return first;
}

static bool make_dot(sharder *s, const sn_node *n, sn_node *a, sn_node *b, sh_layout at,
                     sh_local *out) {
    sn_node *in[2] = {a, b};
    return sh_done(out, sn_node_new(s->m, SN_OP_dot, 2, in, n->n_attr, n->attr), at);
}

/* One operand, number k, is divided along an axis. */
static bool dot_by(sharder *s, const sn_node *n, const side d[2], int k, sh_local *out) {
    const side *mine = &d[k], *other = &d[1 - k];
    int axis = mine->at.at.axis, sum = place_in(mine->sum, axis),
        batch = place_in(mine->batch, axis);
    sn_node *in[2];
    sh_layout l = mine->at.at;
    in[k] = mine->at.n;
    if (sum >= 0) {
        sh_layout lo = sh_on_axis(l, (int)other->sum->v[sum]);
        in[1 - k] = sh_split(s, other->x, &lo);
        sh_local full[2];
        full[k] = mine->at, full[1 - k] = (sh_local){in[1 - k], lo};
        in[k] = sh_fill(s, &full[k], 0); /* neither factor may be infinite there */
        in[1 - k] = sh_fill(s, &full[1 - k], 0);
        return sn_is_float(n) && make_dot(s, n, in[0], in[1], sh_partial_layout(), out);
    }
    if (batch >= 0) {
        sh_layout lo = sh_on_axis(l, (int)other->batch->v[batch]);
        in[1 - k] = sh_split(s, other->x, &lo);
        return make_dot(s, n, in[0], in[1], sh_on_axis(l, batch), out);
    }
    int first = k ? d[0].x->rank - d[0].n_sum : d[0].n_batch;
    in[1 - k] = sh_whole(s, other->x);
    return make_dot(s, n, in[0], in[1], sh_on_axis(l, free_axis(mine, axis, first)), out);
}

/* Whether the operand's division goes on in the other one: neither has to be gathered. */
static bool goes_on(sharder *s, const side *mine, const side *other) {
    if (mine->at.at.kind != SH_SPLIT) return false;
    int axis = mine->at.at.axis, sum = place_in(mine->sum, axis),
        batch = place_in(mine->batch, axis);
    if (other->at.at.kind != SH_SPLIT) return true;
    sh_layout l = mine->at.at;
    if (sum < 0 && batch < 0) return false;
    l.axis = (int)(sum >= 0 ? other->sum : other->batch)->v[sum >= 0 ? sum : batch];
    return sh_merge(s, &l, &other->at.at, NULL);
}

static bool shard_dot(sharder *s, sn_node *n, sh_local *out) {
    side d[2] = {side_of(s, n, 0), side_of(s, n, 1)};
    for (int k = 0; k < 2; k++)
        if (goes_on(s, &d[k], &d[1 - k])) return dot_by(s, n, d, k, out);
    for (int k = 0; k < 2; k++)
        if (d[k].at.at.kind == SH_SPLIT) return dot_by(s, n, d, k, out);
    return false;
}

/* Divided along a leading axis that both have. */
static bool shard_matmul(sharder *s, sn_node *n, sh_local *out) {
    sn_node *x = n->in[0], *y = n->in[1], *in[2];
    sh_local lx = sh_local_of(s, x), ly = sh_local_of(s, y);
    sh_layout l = lx.at.kind == SH_SPLIT ? lx.at : ly.at;
    int a = l.axis;
    if (l.kind != SH_SPLIT || x->rank != y->rank || a >= x->rank - 2 || x->shape[a] != y->shape[a])
        return false;
    in[0] = sh_split(s, x, &l), in[1] = sh_split(s, y, &l);
    return sh_done(out, sn_node_new(s->m, SN_OP_matmul, 2, in, n->n_attr, n->attr), l);
}

/* ---- look-ups ---- */

/* Rows of a divided table: each rank looks up those that it has; the others are 0 there. */
static bool look_up(sharder *s, const sn_node *n, int axis, sh_local *out) {
    sh_local table = sh_local_of(s, n->in[0]);
    sn_node *ids = sh_whole(s, n->in[1]), *in[2] = {table.n};
    sn_dim shape[SN_MAX_RANK];
    if (!sh_is_one_part(&table.at) || !sn_is_float(n)) return false;
    int64_t share = sh_share(s, &table.at);
    sn_node *local = sn_b_binary(SN_OP_sub, ids, sh_first(s, share, ids));
    sn_node *below = sn_b_const(s->m, (sn_dtype)ids->dtype, -1);
    sn_node *here = sn_b_binary(SN_OP_and, sn_b_scalar(SN_OP_lt, local, (double)share),
                                sn_b_binary(SN_OP_lt, below, local));
    in[1] = sn_b_scalar(SN_OP_min, sn_b_scalar(SN_OP_max, local, 0), (double)(share - 1));
    sn_node *rows = sn_node_new(s->m, (sn_op)n->op, 2, in, n->n_attr, n->attr);
    for (int i = 0; i < n->rank; i++)
        shape[i] = i >= axis && i < axis + ids->rank ? n->shape[i] : 1;
    sn_node *mine = sn_b_reshape(here, n->rank, shape);
    return sh_done(out, sn_b_select(mine, rows, sn_b_const(s->m, (sn_dtype)n->dtype, 0)),
                   sh_partial_layout());
}

/* Rows of a whole table at divided indices. */
static bool at_own_indices(sharder *s, const sn_node *n, int axis, sh_local *out) {
    sh_local ids = sh_local_of(s, n->in[1]);
    sn_node *in[2] = {sh_whole(s, n->in[0]), ids.n};
    if (ids.at.kind != SH_SPLIT) return false;
    return sh_done(out, sn_node_new(s->m, (sn_op)n->op, 2, in, n->n_attr, n->attr),
                   sh_on_axis(ids.at, axis + ids.at.axis));
}

static bool shard_gather(sharder *s, sn_node *n, sh_local *out) {
    sh_local x = sh_local_of(s, n->in[0]);
    int axis = (int)sn_attr_int(n, SN_A_axis, 0); /* 0 of an embedding */
    sn_node *in[2] = {x.n};
    if (x.at.kind != SH_SPLIT) return at_own_indices(s, n, axis, out);
    if (x.at.axis == axis) return look_up(s, n, axis, out);
    in[1] = sh_whole(s, n->in[1]);
    if (x.at.axis > axis) x.at.axis += n->in[1]->rank - 1;
    return sh_done(out, sn_node_new(s->m, (sn_op)n->op, 2, in, n->n_attr, n->attr), x.at);
}

/* Each rank adds the rows of its indices. */
static bool add_own_rows(sharder *s, const sn_node *n, int axis, sh_local *out) {
    sh_local x = sh_local_of(s, n->in[0]);
    sh_layout of_ids = sh_on_axis(x.at, x.at.axis - axis);
    sn_node *in[2] = {sh_fill(s, &x, 0), sh_split(s, n->in[1], &of_ids)};
    return sn_is_float(n) &&
           sh_done(out, sn_node_new(s->m, SN_OP_scatter_add, 2, in, n->n_attr, n->attr),
                   sh_partial_layout());
}

/* x [.., ids' axes, ..] added to zeros of {shape}. */
static bool shard_scatter_add(sharder *s, sn_node *n, sh_local *out) {
    sh_local x = sh_local_of(s, n->in[0]);
    int axis = (int)sn_attr_int(n, SN_A_axis, 0), rank = n->in[1]->rank, a = x.at.axis;
    sn_dim shape[SN_MAX_RANK];
    sn_node *in[2] = {x.n};
    if (x.at.kind != SH_SPLIT || sn_attr_get(n, SN_A_combine)) return false;
    if (a >= axis && a < axis + rank) return add_own_rows(s, n, axis, out);
    sh_layout l = sh_on_axis(x.at, a < axis ? a : a - rank + 1);
    sh_shape(s, n, &l, shape);
    in[1] = sh_whole(s, n->in[1]);
    return sh_done(out,
                   sn_node_new(s->m, SN_OP_scatter_add, 2, in,
                               SN_ATTRS(SN_LIST(shape, n->rank, shape), SN_INT(axis, axis))),
                   l);
}

/* ---- attention ---- */

static bool shard_attention(sharder *s, sn_node *n, sh_local *out) {
    return sh_attention_heads(s, n, out) || sh_attention_rows(s, n, out);
}

static bool shard_attention_grad(sharder *s, sn_node *n, sh_local *out) {
    return sh_attention_grad_heads(s, n, out) || sh_attention_grad_rows(s, n, out);
}

/* ---- the table ---- */

static sh_rule *const rules[SN_OP_COUNT] = {
    [SN_OP_linear] = shard_linear,
    [SN_OP_dot] = shard_dot,
    [SN_OP_matmul] = shard_matmul,
    [SN_OP_embedding] = shard_gather,
    [SN_OP_gather] = shard_gather,
    [SN_OP_scatter_add] = shard_scatter_add,
    [SN_OP_attention] = shard_attention,
    [SN_OP_attention_grad] = shard_attention_grad,
    [SN_OP_ring_attention] = sh_attention_heads,
};

sh_rule *sh_product_rule(sn_op op) {
    return rules[op];
}
