/* products.c: what a rank computes of products, look-ups and attention. */
#include "passes/shard/shard.h"

#include <string.h>

static bool done(sh_local *out, sn_node *n, sh_layout at) {
    *out = (sh_local){n, at};
    return true;
}

static bool is_split(sh_local x, int axis) {
    return x.at.kind == SH_SPLIT && x.at.axis == axis;
}

/* ---- linear maps ---- */

/* x [.., in], w [out, in]. Columns: w's rows are divided, and so is the result. Rows: `in` is
 * divided, and each rank has a term of the result. */
static bool shard_linear(sharder *s, sn_node *n, sh_local *out) {
    sn_node *x = n->in[0], *w = n->in[1], *b = n->n_in > 2 ? n->in[2] : NULL, *in[3];
    sh_local lx = sh_local_of(s, x), lw = sh_local_of(s, w);
    int last = x->rank - 1;
    if (sn_attr_get(n, SN_A_size)) return false;
    if (is_split(lx, last) || is_split(lw, 1)) {
        sh_layout l = sh_on_axis(is_split(lx, last) ? lx.at : lw.at, last), of_w = sh_on_axis(l, 1);
        in[0] = sh_split(s, x, &l);
        in[1] = sh_split(s, w, &of_w);
        sh_local padded = {in[0], l};
        in[0] = sh_fill(s, &padded, 0);
        sh_local term = {sn_node_new(s->m, SN_OP_linear, 2, in, SN_NO_ATTRS), sh_partial_layout()};
        if (!b) return done(out, term.n, term.at);
        return done(out, sn_b_binary(SN_OP_add, sh_to_whole(s, &term), sh_whole(s, b)),
                    sh_whole_layout());
    }
    sh_layout l;
    if (is_split(lw, 0) && lx.at.kind != SH_SPLIT) {
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
    return done(out, sn_node_new(s->m, SN_OP_linear, n->n_in, in, SN_NO_ATTRS), l);
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
    return done(out, sn_node_new(s->m, SN_OP_dot, 2, in, n->n_attr, n->attr), at);
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
    return done(out, sn_node_new(s->m, SN_OP_matmul, 2, in, n->n_attr, n->attr), l);
}

/* ---- look-ups ---- */

/* Rows of a divided table: each rank looks up those that it has; the others are 0 there. */
static bool look_up(sharder *s, const sn_node *n, int axis, sh_local *out) {
    sh_local table = sh_local_of(s, n->in[0]);
    sn_node *ids = sh_whole(s, n->in[1]), *in[2] = {table.n};
    sn_dim shape[SN_MAX_RANK];
    if (table.at.n_part != 1 || !sn_is_float(n)) return false;
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
    return done(out, sn_b_select(mine, rows, sn_b_const(s->m, (sn_dtype)n->dtype, 0)),
                sh_partial_layout());
}

static bool shard_gather(sharder *s, sn_node *n, sh_local *out) {
    sh_local x = sh_local_of(s, n->in[0]);
    int axis = (int)sn_attr_int(n, SN_A_axis, 0); /* 0 of an embedding */
    sn_node *in[2] = {x.n};
    if (x.at.kind != SH_SPLIT) return false;
    if (x.at.axis == axis) return look_up(s, n, axis, out);
    in[1] = sh_whole(s, n->in[1]);
    if (x.at.axis > axis) x.at.axis += n->in[1]->rank - 1;
    return done(out, sn_node_new(s->m, (sn_op)n->op, 2, in, n->n_attr, n->attr), x.at);
}

/* x [.., ids' axes, ..] added to zeros of {shape}. */
static bool shard_scatter_add(sharder *s, sn_node *n, sh_local *out) {
    sh_local x = sh_local_of(s, n->in[0]);
    int axis = (int)sn_attr_int(n, SN_A_axis, 0), rank = n->in[1]->rank, a = x.at.axis;
    sn_dim shape[SN_MAX_RANK];
    sn_node *in[2] = {x.n};
    if (x.at.kind != SH_SPLIT || (a >= axis && a < axis + rank)) return false;
    sh_layout l = sh_on_axis(x.at, a < axis ? a : a - rank + 1);
    sh_shape(s, n, &l, shape);
    in[1] = sh_whole(s, n->in[1]);
    return done(out,
                sn_node_new(s->m, SN_OP_scatter_add, 2, in,
                            SN_ATTRS(SN_LIST(shape, n->rank, shape), SN_INT(axis, axis))),
                l);
}

/* ---- attention: heads ---- */

enum { HEADS = 1 };

typedef struct heads {
    sh_layout q, kv;
    bool taken;   /* kv: a rank takes the only head of keys and values that its queries need */
    sn_dim first; /* that head */
} heads;

static bool is_by_heads(sh_local x) {
    return x.at.kind == SH_WHOLE || is_split(x, HEADS);
}

/* How queries and K/V are divided; false: they cannot be. */
static bool divide_heads(sharder *s, const sn_node *q, const sn_node *k, heads *h) {
    int64_t n, n_kv;
    *h = (heads){0};
    if (!sh_divides(s, q->shape[HEADS], &n) || !sn_dim_is_const(s->m, k->shape[HEADS], &n_kv))
        return false;
    h->q = sh_split_layout(s, HEADS, n);
    h->kv = sh_split_layout(s, HEADS, n_kv);
    h->taken = n_kv % s->ranks != 0;
    if (!h->taken) return true;
    if (s->ranks % n_kv) return false;
    h->first = sn_module_rank(s->m, s->mesh, s->ranks, s->ranks / n_kv);
    return true;
}

static sn_node *kv_of(sharder *s, sn_node *x, const heads *h) {
    if (!h->taken) return sh_split(s, x, &h->kv);
    return sn_b_slice(sh_whole(s, x), HEADS, h->first, 1);
}

enum { SCORE_HEAD = 2, MASK_HEAD = 1, AFTER_HEAD = 3, MOST_CAPTURED = 16 };

/* Captured tensors of which a rank has the part of its heads. */
typedef struct captured {
    int n;
    sn_node *local[MOST_CAPTURED]; /* NULL: it is whole */
    int axis[MOST_CAPTURED];       /* of the heads */
} captured;

/* Whether the region reads the tensor at its own head only. head: its argument's number. */
static bool reads_own_head(sharder *s, const sn_region *r, int head, int number, int axis) {
    if (!r) return true;
    const sn_node *tensor = r->arg[head + AFTER_HEAD + number];
    sn_order order = sn_region_topo(s->m, r);
    for (int i = 0; i < order.n; i++) {
        const sn_node *n = order.node[i];
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k] == tensor &&
                (n->op != SN_OP_gather_nd || k || n->in[1 + axis] != r->arg[head]))
                return false;
    }
    return true;
}

/* The parts of captured tensors, operands from `first` on, that are divided by heads. */
static captured find_captured(sharder *s, const sn_node *n, int first, int64_t n_heads) {
    captured c = {.n = n->n_in - first};
    const sn_region *score = sn_attr_region(n, SN_A_score), *mask = sn_attr_region(n, SN_A_mask);
    for (int i = 0; i < c.n && i < MOST_CAPTURED; i++) {
        sh_local x = sh_local_of(s, n->in[first + i]);
        if (x.at.kind != SH_SPLIT || x.at.n_part != 1 || sh_size(&x.at) != n_heads ||
            !reads_own_head(s, score, SCORE_HEAD, i, x.at.axis) ||
            !reads_own_head(s, mask, MASK_HEAD, i, x.at.axis))
            continue;
        c.local[i] = x.n;
        c.axis[i] = x.at.axis;
    }
    return c;
}

/* Reads of divided tensors count heads from this rank's first. */
typedef struct own_head {
    sn_node **arg;
    const captured *c;
    int head;

} own_head;

static sn_node *read_own(void *ctx, sn_node *n) {
    const own_head *o = ctx;
    for (int i = 0; n->op == SN_OP_gather_nd && i < o->c->n && i < MOST_CAPTURED; i++) {
        if (!o->c->local[i] || n->in[0] != o->arg[o->head + AFTER_HEAD + i]) continue;
        sn_node *in[SN_MAX_RANK + 1];
        for (int k = 0; k < n->n_in; k++) in[k] = n->in[k];
        in[1 + o->c->axis[i]] = o->arg[o->head];
        return sn_node_with(n, in);
    }
    return n;
}

/* The region with head numbers of the whole. head: which argument is the head. */
static const sn_region *place_heads(sharder *s, const sn_region *r, int head, int64_t share,
                                    const captured *c) {
    sn_node **a = sn_arena_alloc(s->m, sizeof *a * (size_t)r->n_arg),
            **out = sn_arena_alloc(s->m, sizeof *out * (size_t)r->n_out);
    for (int i = 0; i < r->n_arg; i++) a[i] = r->arg[i];
    for (int i = 0; i < c->n && i < MOST_CAPTURED; i++) {
        const sn_node *x = c->local[i];
        int at = head + AFTER_HEAD + i;
        if (x) a[at] = sn_arg(s->m, at, (sn_dtype)x->dtype, x->rank, x->shape);
    }
    own_head rule = {a, c, head};
    sn_node *first = sh_first(s, share, a[head]), *local = a[head];
    a[head] = sn_b_binary(SN_OP_add, local, first);
    sn_region_inline(r, a, out);
    a[head] = local;
    sn_rewrite(s->m, r->n_out, out, read_own, &rule);
    return sn_region_new(s->m, r->n_arg, a, r->n_out, out);
}

static sn_node *local_attention(sharder *s, const sn_node *n, const heads *h, const captured *c,
                                sn_node **in) {
    sn_attr *attr = sn_arena_alloc(s->m, sizeof *attr * (size_t)(n->n_attr + 1));
    int64_t share = sh_share(s, &h->q);
    for (int i = 0; i < n->n_attr; i++) {
        attr[i] = n->attr[i];
        if (attr[i].key == SN_A_score) attr[i].r = place_heads(s, attr[i].r, SCORE_HEAD, share, c);
        if (attr[i].key == SN_A_mask) attr[i].r = place_heads(s, attr[i].r, MASK_HEAD, share, c);
    }
    return sn_node_new(s->m, (sn_op)n->op, n->n_in, in, n->n_attr, attr);
}

/* The heads of attention or its gradient are divided; captured tensors, from operand `first` on, are
 * whole, or divided by heads. With dropout every rank would need its own part of the random
 * numbers. */
static bool attend(sharder *s, sn_node *n, int first, heads *h, captured *c, sn_node **local) {
    sn_node **in = sn_arena_alloc(s->m, sizeof *in * (size_t)(n->n_in + 1));
    bool any = false;
    if (sn_attr_get(n, SN_A_rate) || sn_attr_get(n, SN_A_sink) || n->in[0]->rank != 4) return false;
    for (int i = 0; i < 3; i++) {
        sh_local x = sh_local_of(s, n->in[i]);
        any |= x.at.kind == SH_SPLIT;
        if (!is_by_heads(x)) return false;
    }
    if (!any || !divide_heads(s, n->in[0], n->in[1], h)) return false;
    *c = find_captured(s, n, first, sh_size(&h->q));
    for (int i = 0; i < n->n_in; i++) {
        sn_node *part = i >= first && i - first < MOST_CAPTURED ? c->local[i - first] : NULL;
        in[i] = part               ? part
                : i >= first       ? sh_whole(s, n->in[i])
                : i == 1 || i == 2 ? kv_of(s, n->in[i], h)
                                   : sh_split(s, n->in[i], &h->q);
    }
    *local = local_attention(s, n, h, c, in);
    return true;
}

static bool shard_attention(sharder *s, sn_node *n, sh_local *out) {
    heads h;
    captured c;
    sn_node *y;
    return attend(s, n, 3, &h, &c, &y) && done(out, y, h.q);
}

static bool shard_attention_grad(sharder *s, sn_node *n, sh_local *out) {
    enum { CAPTURED = 5 };
    heads h;
    captured c;
    sn_node *y;
    int64_t index = sn_attr_int(n, SN_A_index, 0);
    if (!attend(s, n, CAPTURED, &h, &c, &y)) return false;
    if (index == 0) return done(out, y, h.q);
    if (index > 2 && c.local[index - 3]) return done(out, y, sh_local_of(s, n->in[2 + index]).at);
    if (index > 2) return done(out, y, sh_partial_layout()); /* a captured tensor */
    if (!h.taken) return done(out, y, h.kv);
    sn_dim low[4] = {0}, high[4] = {0};
    low[HEADS] = h.first;
    high[HEADS] = sn_dim_sub(s->m, n->shape[HEADS], sn_dim_add(s->m, h.first, 1));
    y = SN_NODE(s->m, pad, SN_ATTRS(SN_FLT(value, 0), SN_LIST(low, 4, low), SN_LIST(high, 4, high)),
                y);
    return done(out, y, sh_partial_layout());
}

/* ---- the table ---- */

static sh_rule *const rules[SN_OP_COUNT] = {
    [SN_OP_linear] = shard_linear,       [SN_OP_dot] = shard_dot,
    [SN_OP_matmul] = shard_matmul,       [SN_OP_embedding] = shard_gather,
    [SN_OP_gather] = shard_gather,       [SN_OP_scatter_add] = shard_scatter_add,
    [SN_OP_attention] = shard_attention, [SN_OP_attention_grad] = shard_attention_grad,
};

sh_rule *sh_product_rule(sn_op op) {
    return rules[op];
}
