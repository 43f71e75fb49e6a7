/* heads.c: attention whose heads are divided among ranks. */
#include "passes/shard/shard.h"

/* ---- attention: heads ---- */

enum { HEADS = 1 };

typedef struct heads {
    sh_layout q, kv;
    bool taken;   /* kv: a rank takes the only head of keys and values that its queries need */
    sn_dim first; /* that head */
} heads;

static bool is_by_heads(sh_local x) {
    return x.at.kind == SH_WHOLE || sh_is_split(&x, HEADS);
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

enum { SCORE_HEAD = 2, MASK_HEAD = 1, AFTER_HEAD = 3, MAX_CAPTURED = 16 };

/* Captured tensors that are divided by heads. */
typedef struct captured {
    int n;
    sn_node *local[MAX_CAPTURED]; /* NULL: it is whole */
    int axis[MAX_CAPTURED];       /* of the heads */
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
    for (int i = 0; i < c.n && i < MAX_CAPTURED; i++) {
        sh_local x = sh_local_of(s, n->in[first + i]);
        if (!sh_is_one_part(&x.at) || sh_size(&x.at) != n_heads ||
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
    for (int i = 0; n->op == SN_OP_gather_nd && i < o->c->n && i < MAX_CAPTURED; i++) {
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
    for (int i = 0; i < c->n && i < MAX_CAPTURED; i++) {
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
        sn_node *part = i >= first && i - first < MAX_CAPTURED ? c->local[i - first] : NULL;
        in[i] = part               ? part
                : i >= first       ? sh_whole(s, n->in[i])
                : i == 1 || i == 2 ? kv_of(s, n->in[i], h)
                                   : sh_split(s, n->in[i], &h->q);
    }
    *local = local_attention(s, n, h, c, in);
    return true;
}

bool sh_attention_heads(sharder *s, sn_node *n, sh_local *out) {
    heads h;
    captured c;
    sn_node *y;
    return attend(s, n, 3, &h, &c, &y) && sh_done(out, y, h.q);
}

bool sh_attention_grad_heads(sharder *s, sn_node *n, sh_local *out) {
    enum { CAPTURED = 5 };
    heads h;
    captured c;
    sn_node *y;
    int64_t index = sn_attr_int(n, SN_A_index, 0);
    if (!attend(s, n, CAPTURED, &h, &c, &y)) return false;
    if (index == 0) return sh_done(out, y, h.q);
    if (index > 2 && c.local[index - 3])
        return sh_done(out, y, sh_local_of(s, n->in[2 + index]).at);
    if (index > 2) return sh_done(out, y, sh_partial_layout()); /* a captured tensor */
    if (!h.taken) return sh_done(out, y, h.kv);
    sn_dim low[4] = {0}, high[4] = {0};
    low[HEADS] = h.first;
    high[HEADS] = sn_dim_sub(s->m, n->shape[HEADS], sn_dim_add(s->m, h.first, 1));
    y = SN_NODE(s->m, pad, SN_ATTRS(SN_FLT(value, 0), SN_LIST(low, 4, low), SN_LIST(high, 4, high)),
                y);
    return sh_done(out, y, sh_partial_layout());
}
