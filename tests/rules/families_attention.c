/* families_attention.c: rotary positions, logarithms of sums, attention, recurrences. */
#include "tests/rules/families.h"
#include "passes/graph_util.h"
#include "passes/raise/raise.h"

#include <math.h>

/* ---- rotary positions ---- */

/* base^(-2i/d) for i < d/2, or the inverse. */
static sn_node *frequencies(int width, double base, bool over) {
    const sn_dim half = width / 2;
    sn_node *i = sn_b_iota(m, SN_F32, 1, &half, 0);
    if (!over && choose(2))
        return sn_b_unary(SN_OP_exp, sn_b_scalar(SN_OP_mul, i, -2 * log(base) / width));
    i = sn_b_scalar(SN_OP_mul, i, 2.0 / width);
    sn_node *f = sn_b_binary(SN_OP_pow, sn_b_broadcast_like(sn_b_const(m, SN_F32, base), i), i);
    return over ? f : sn_b_unary(SN_OP_recip, f);
}

/* Numbers of positions [T], or [B,T]. */
static sn_node *positions(int rank, const sn_dim *shape) {
    sn_node *p = sn_b_iota(m, SN_I32, rank, shape, rank - 1);
    if (rank > 1) {
        sn_node *b = sn_b_scalar(SN_OP_mul, sn_b_iota(m, SN_I32, rank, shape, 0), 5);
        p = sn_b_binary(SN_OP_add, p, b);
    }
    return choose(2) ? p : sn_b_scalar(SN_OP_add, p, 3);
}

static sn_node *rotated_by_hand(void) {
    const int width = 2 + 2 * choose(2), rank = 2 + choose(3);
    const bool items = rank > 2 && choose(2), over = choose(2);
    const sn_dim shape[] = {2, 1, 3, width}, *own = shape + 4 - rank;
    sn_dim size[4] = {0}, of_p[4], of_a[4];
    for (int a = 0; a < rank; a++) size[a] = own[a];
    if (rank == 3) size[0] = 2;
    sn_node *x = leaf("x", rank, size), *p;
    for (int a = 0; a < rank; a++) of_p[a] = a == rank - 2 || (items && !a) ? size[a] : 1;
    p = positions(items ? 2 : 1, items ? (sn_dim[]){2, 3} : (sn_dim[]){3});
    p = sn_b_cast(sn_b_reshape(p, rank, of_p), SN_F32);
    for (int a = 0; a < rank; a++) of_a[a] = a == rank - 1 ? width / 2 : of_p[a];
    sn_node *f = sn_b_broadcast(frequencies(width, choose(2) ? 10000 : 500, over), rank, of_a);
    p = sn_b_broadcast(p, rank, of_a);
    sn_node *pair = over ? sn_b_binary(SN_OP_div, p, f) : in_any_order(SN_OP_mul, p, f);
    sn_node *angle = sn_b_concat(m, 2, (sn_node *[]){pair, pair}, rank - 1);
    sn_node *low = sn_b_slice(x, rank - 1, 0, width / 2);
    sn_node *high = sn_b_slice(x, rank - 1, width / 2, width / 2);
    sn_node *half = sn_b_concat(m, 2, (sn_node *[]){sn_b_unary(SN_OP_neg, high), low}, rank - 1);
    sn_node *cos = sn_b_broadcast_like(sn_b_unary(SN_OP_cos, angle), x);
    sn_node *sin = sn_b_broadcast_like(sn_b_unary(SN_OP_sin, angle), x);
    return in_any_order(SN_OP_add, sn_b_binary(SN_OP_mul, x, cos),
                        in_any_order(SN_OP_mul, half, sin));
}

static sn_node *rope_of(sn_node *x) {
    const int rank = x->rank;
    const double scale = choose(2) ? 1 : 3;
    sn_node *p = positions(1, &x->shape[rank - 2]);
    return SN_NODE(
        m, rope, SN_ATTRS(SN_FLT(base, 500), SN_INT(interleaved, choose(2)), SN_FLT(scale, scale)),
        x, p);
}

static sn_node *rope_of_leaf(void) {
    return rope_of(leaf("x", 3, (sn_dim[]){1 + choose(2), 2, 4}));
}

static sn_node *rope_times(void) {
    sn_node *y = rope_of_leaf(), *c = sn_b_const(m, SN_F32, choose(2) ? 0.5 : -3);
    return in_any_order(SN_OP_mul, y, sn_b_broadcast_like(c, y));
}

static sn_node *minus_rope(void) {
    return sn_b_unary(SN_OP_neg, rope_of_leaf());
}

static sn_node *rope_of_multiple(void) {
    sn_node *x = sn_b_scalar(SN_OP_mul, leaf("x", 3, (sn_dim[]){2, 3, 4}), choose(2) ? 0.5 : -3);
    switch (choose(4)) {
    case 0:
        return rope_of(x);
    case 1:
        return rope_of(sn_b_transpose(x, 3, (int64_t[]){1, 0, 2}));
    case 2:
        return rope_of(sn_b_reshape(x, 2, (sn_dim[]){6, 4}));
    default:
        return rope_of(sn_b_slice(x, choose(3), 0, 2));
    }
}

static sn_node *columns(void) {
    sn_node *x = leaf("x", 2, (sn_dim[]){2, 8}), *part[3];
    const int first = choose(3), size = 2 + 2 * choose(2), after = choose(3), skip = choose(2);
    int n = 0;
    if (skip + first + size + after > 8) return NULL;
    if (first) part[n++] = sn_b_slice(x, 1, skip, first);
    part[n++] = rope_of(sn_b_slice(x, 1, skip + first, size));
    if (after) part[n++] = sn_b_slice(x, 1, skip + first + size, after);
    return sn_b_concat(m, n, part, 1);
}

/* ---- logarithms of sums ---- */

static sn_node *log_of_sum(void) {
    const int64_t axis = choose(2);
    sn_node *z = leaf("x", 2, (sn_dim[]){2, 3}), *e;
    switch (choose(3)) {
    case 0:
        e = sn_b_unary(SN_OP_exp, z);
        break;
    case 1:
        e = sn_b_transpose(sn_b_unary(SN_OP_exp, z), 2, (int64_t[]){1, 0});
        break;
    default:
        e = sn_b_reshape(sn_b_unary(SN_OP_exp, z), 2, (sn_dim[]){3, 2});
    }
    return sn_b_unary(SN_OP_log, sn_b_reduce(SN_OP_reduce_sum, e, 1, &axis));
}

/* softmax(x), or its product with values, times sigmoid(logsumexp(x) - z) */
static sn_node *gated(void) {
    const int axis = 1;
    sn_node *x = leaf("x", 2, (sn_dim[]){2, 3}), *z = leaf("z", 2, (sn_dim[]){2, 1});
    sn_node *y = sn_b_softmax(x, NULL, axis), *l = sn_raise_on_axis(SN_OP_logsumexp, x, axis);
    switch (choose(4)) {
    case 0:
        break;
    case 1:
        l = sn_b_binary(SN_OP_sub, l, z);
        break;
    case 2:
        l = in_any_order(SN_OP_add, l, z);
        break;
    default:
        l = sn_b_binary(SN_OP_sub, z, l); /* no sink */
    }
    sn_node *gate = sn_b_unary(SN_OP_sigmoid, l);
    if (choose(2)) y = dot(y, leaf("v", 2, (sn_dim[]){3, 2}), 0, 0, 0, 1, 1, 0);
    if (choose(2)) y = sn_b_scalar(SN_OP_mul, y, 3);
    return in_any_order(SN_OP_mul, y, sn_b_broadcast_like(gate, y));
}

/* ---- attention ---- */

/* A product of the last two axes along all others; x's summed axis is cx, y's is cy. */
static sn_node *product(sn_node *x, sn_node *y, int64_t cx, int64_t cy) {
    static const int64_t lead[] = {0, 1, 2, 3};
    const int n = x->rank - 2;
    return SN_NODE(m, dot,
                   SN_ATTRS(SN_LIST(batch_a, n, lead), SN_LIST(batch_b, n, lead),
                            SN_LIST(contract_a, 1, &cx), SN_LIST(contract_b, 1, &cy)),
                   x, y);
}

typedef struct shape_of_attention {
    int lead; /* axes before the last two: none, heads, batch and heads */
    int keys; /* axis of the keys in the scores */
    sn_dim n_q, n_k;
    sn_dim lead_size[2];
} shape_of_attention;

static shape_of_attention choose_shape(int leads) {
    shape_of_attention s = {
        .lead = choose(leads), .n_q = 1 + choose(2), .n_k = 2, .lead_size = {2, 2}};
    s.keys = s.lead + choose(2);
    return s;
}

/* A tensor [lead.., rows, width]; heads of a batch may share it. */
static sn_node *operand(const shape_of_attention *s, const char *name, sn_dim rows, sn_dim width,
                        bool shared) {
    sn_dim shape[4];
    for (int a = 0; a < s->lead; a++) shape[a] = s->lead_size[a];
    shape[s->lead] = rows, shape[s->lead + 1] = width;
    if (!shared || !s->lead) return leaf(name, s->lead + 2, shape);
    sn_dim one[4];
    for (int a = 0; a < s->lead + 2; a++) one[a] = a == s->lead - 1 ? 1 : shape[a];
    return sn_b_broadcast(leaf(name, s->lead + 2, one), s->lead + 2, shape);
}

/* Queries times keys; the axis of keys is s->keys. */
static sn_node *scores(const shape_of_attention *s, const char *names, bool shared) {
    const char q[2] = {names[0], 0}, k[2] = {names[1], 0};
    sn_node *x = operand(s, q, s->n_q, 2, false), *y = operand(s, k, s->n_k, 2, shared);
    const int width = s->lead + 1;
    return s->keys == s->lead ? product(y, x, width, width) : product(x, y, width, width);
}

static sn_node *shown_keys(const shape_of_attention *s, sn_node *x) {
    const sn_dim *last = x->shape + s->lead;
    sn_node *k = sn_b_iota(m, SN_I32, 2, last, s->keys - s->lead);
    sn_node *q = sn_b_iota(m, SN_I32, 2, last, s->lead + 1 - s->keys);
    return sn_b_binary(SN_OP_le, k, q);
}

/* Between the scores and the softmax: a scale, a cap, a bias, a mask. */
static sn_node *changed_scores(const shape_of_attention *s, sn_node *x) {
    if (choose(2)) x = sn_b_scalar(SN_OP_mul, x, 0.5);
    switch (choose(4)) {
    case 0:
        return x;
    case 1:
        return sn_b_select(shown_keys(s, x), x, sn_b_const(m, SN_F32, -INFINITY));
    case 2:
        return sn_b_binary(SN_OP_add, x,
                           sn_b_broadcast_like(leaf("bias", 2, x->shape + s->lead), x));
    default:
        return sn_b_scalar(SN_OP_mul, sn_b_unary(SN_OP_tanh, sn_b_scalar(SN_OP_mul, x, 0.25)), 4);
    }
}

/* Weights times values, on either side, perhaps with the weights transposed. */
static sn_node *of_values(const shape_of_attention *s, sn_node *w, bool shared) {
    int keys = s->keys;
    sn_node *v = operand(s, "v", s->n_k, 2, shared);
    if (choose(2)) {
        int64_t order[4] = {0, 1, 2, 3};
        order[s->lead] = s->lead + 1, order[s->lead + 1] = s->lead;
        w = sn_b_transpose(w, s->lead + 2, order);
        keys = 2 * s->lead + 1 - keys;
    }
    return choose(2) ? product(w, v, keys, s->lead) : product(v, w, s->lead, keys);
}

static sn_node *softmax(const shape_of_attention *s, sn_node *x, bool sink) {
    sn_dim one[4];
    for (int a = 0; a < x->rank; a++) one[a] = a == s->keys ? 1 : x->shape[a];
    return sn_b_softmax(x, sink ? leaf("sink", x->rank, one) : NULL, s->keys);
}

static sn_node *chain(void) {
    const shape_of_attention s = choose_shape(3);
    const bool shared = s.lead && choose(2);
    sn_node *x = changed_scores(&s, scores(&s, "qk", shared));
    return of_values(&s, softmax(&s, x, choose(2)), shared);
}

/* Weights other than a softmax: of scores, hidden or not. */
static sn_node *plain_weights(const shape_of_attention *s) {
    sn_node *x = scores(s, "qk", false);
    static const sn_op f[] = {SN_OP_sigmoid, SN_OP_exp, SN_OP_tanh};
    x = sn_b_unary(f[choose(3)], sn_b_scalar(SN_OP_mul, x, 0.5));
    return sn_b_binary(SN_OP_mul, x, sn_b_cast(sn_b_broadcast_like(shown_keys(s, x), x), SN_F32));
}

static sn_node *divided(void) {
    const shape_of_attention s = choose_shape(2);
    sn_node *w = plain_weights(&s),
            *y = product(w, operand(&s, "v", s.n_k, 2, false), s.keys, s.lead);
    const int64_t axis = s.keys;
    sn_node *sum = sn_b_reduce(SN_OP_reduce_sum, w, 1, &axis);
    sn_dim one[4];
    if (choose(2)) sum = sn_b_scalar(SN_OP_add, sum, 2);
    if (choose(2)) sum = sn_b_scalar(SN_OP_max, sn_b_unary(SN_OP_abs, sum), 1);
    for (int a = 0; a < y->rank; a++) one[a] = a == y->rank - 1 ? 1 : y->shape[a];
    sum = sn_b_reshape(sum, y->rank, one);
    y = in_any_order(SN_OP_mul, y, sn_b_broadcast_like(sn_b_unary(SN_OP_recip, sum), y));
    return choose(2) ? y : sn_b_scalar(SN_OP_mul, y, 3);
}

static sn_tensor weight_of(const sn_score_ctx *c) {
    return sn_sigmoid(c->score);
}

static sn_tensor score_of(const sn_score_ctx *c) {
    return sn_mul(sn_tanh(sn_mul(c->score, 0.5)), 3);
}

/* The operation as a program writes it, with functions of scores. */
static sn_node *written(bool plain, sn_tensor *lse) {
    const sn_dim B = 1 + choose(2), Hk = 1 + choose(2);
    const sn_dim q[] = {B, 2, 1 + choose(2), 2}, k[] = {B, Hk, 2, 2};
    sn_attention_args a = {.q = leaf("q", 4, q),
                           .k = leaf("k", 4, k),
                           .v = leaf("v", 4, k),
                           .causal = choose(2),
                           .scale = choose(2) ? 3 : 0};
    if (plain)
        a.weight = weight_of;
    else if (choose(2))
        a.score = score_of;
    if (!plain && !lse && choose(2)) a.sink = leaf("sink", 1, (sn_dim[]){2});
    a.lse = lse;
    return sn_attention_at(SN_HERE, &a);
}

static sn_node *attention_as_written(void) {
    return written(choose(2), NULL);
}

static sn_node *mixed_as_written(void) {
    const sn_dim shape[] = {2, 2, 2, 2}, square[] = {2, 2};
    const int which = choose(3);
    return sn_attention_at(
        SN_HERE, &(sn_attention_args){.q = leaf("q", 4, shape),
                                      .k = leaf("k", 4, shape),
                                      .v = leaf("v", 4, shape),
                                      .causal = choose(2),
                                      .score = choose(2) ? score_of : NULL,
                                      .mix_scores = which != 1 ? leaf("a", 2, square) : NULL,
                                      .mix_weights = which != 0 ? leaf("b", 2, square) : NULL});
}

/* The log-sum-exp, whose attention has its settled form. */
static sn_node *lse_as_written(void) {
    sn_tensor lse = NULL;
    written(false, &lse);
    if (!lse || lse->op != SN_OP_attention_lse) return NULL;
    sn_node *settled = sn_raise_settle_attention(lse->in[0]);
    sn_node *in[SN_MAX_RANK + 8];
    for (int i = 0; i < lse->n_in; i++) in[i] = lse->in[i];
    if (settled) in[0] = settled;
    return sn_node_with(lse, in);
}

static sn_node *scaled_weights(void) {
    sn_node *y = written(true, NULL), *c = sn_b_const(m, SN_F32, choose(2) ? 0.5 : -3);
    return in_any_order(SN_OP_mul, y, sn_b_broadcast_like(c, y));
}

static sn_node *minus_weights(void) {
    return sn_b_unary(SN_OP_neg, written(true, NULL));
}

/* The sum over h of w[g,h] x[.., h, ..], for x [B,H,Tq,Tk]. */
static sn_node *mixed_heads(sn_node *w, sn_node *x) {
    if (choose(2)) {
        sn_node *y = dot(w, x, 0, 0, 0, 1, 1, 1); /* [g, B, Tq, Tk] */
        return sn_b_transpose(y, 4, (int64_t[]){1, 0, 2, 3});
    }
    sn_node *last = sn_b_transpose(x, 4, (int64_t[]){0, 2, 3, 1});
    sn_node *y = SN_NODE(m, linear, SN_NO_ATTRS, last, w);
    return sn_b_transpose(y, 4, (int64_t[]){0, 3, 1, 2});
}

static sn_node *mixing_chain(void) {
    const shape_of_attention s = {
        .lead = 2, .n_q = 1 + choose(2), .n_k = 2, .lead_size = {2, 2}, .keys = 3};
    sn_node *x = scores(&s, "qk", false);
    const int which = choose(3);
    if (choose(2)) x = sn_b_scalar(SN_OP_mul, x, 0.5);
    if (which != 1) x = mixed_heads(leaf("a", 2, (sn_dim[]){2, 2}), x);
    if (choose(2)) x = sn_b_select(shown_keys(&s, x), x, sn_b_const(m, SN_F32, -INFINITY));
    x = softmax(&s, x, false);
    if (which != 0) x = mixed_heads(leaf("b", 2, (sn_dim[]){2, 2}), x);
    return product(x, operand(&s, "v", s.n_k, 2, false), 3, 2);
}

/* Differential attention: a sum of softmaxes, each times a number of its row or none. */
static sn_node *sum_of_softmaxes(void) {
    const shape_of_attention s = choose_shape(3);
    sn_node *w[2];
    for (int i = 0; i < 2; i++) {
        w[i] = softmax(&s, scores(&s, i ? "rs" : "qk", false), false);
        sn_dim one[4];
        for (int a = 0; a < w[i]->rank; a++) one[a] = a == s.keys ? 1 : w[i]->shape[a];
        switch (i ? choose(3) : 0) {
        case 0:
            break;
        case 1:
            w[i] = sn_b_scalar(SN_OP_mul, w[i], 0.5);
            break;
        default:
            w[i] = in_any_order(SN_OP_mul, w[i],
                                sn_b_broadcast_like(leaf("gate", w[i]->rank, one), w[i]));
        }
    }
    sn_node *sum = choose(2) ? sn_b_binary(SN_OP_sub, w[0], w[1])
                             : in_any_order(SN_OP_add, w[0], sn_b_unary(SN_OP_neg, w[1]));
    sn_node *v = operand(&s, "v", s.n_k, 2, false);
    return choose(2) ? product(sum, v, s.keys, s.lead) : product(v, sum, s.lead, s.keys);
}

/* Parts of one softmax, of queries and keys of both. */
static sn_node *cut_softmax(void) {
    const shape_of_attention s = {.lead = 2, .n_q = 2, .n_k = 2, .lead_size = {2, 2}, .keys = 3};
    sn_node *w = softmax(&s, scores(&s, "qk", false), false);
    const int axis = choose(3);
    sn_node *a = sn_b_slice(w, axis, 0, 1), *b = sn_b_slice(w, axis, 1, 1);
    sn_node *sum = choose(2) ? sn_b_binary(SN_OP_sub, a, b) : a;
    sn_dim v[4] = {2, 2, 2, 2};
    if (axis < 2) v[axis] = 1;
    return product(sum, leaf("v", 4, v), 3, 2);
}

static sn_node *difference_of(void) {
    return choose(2) ? sum_of_softmaxes() : cut_softmax();
}

/* ---- loops ---- */

enum { LENGTH = 3 };

/* The matrix that the body adds, a column times a row, in the orientation of the carry. */
static sn_node *outer(sn_node *col, sn_node *row) {
    const sn_dim up[] = {1, 2, 1}, flat[] = {1, 1, 2};
    if (choose(2)) return product(sn_b_reshape(col, 3, up), sn_b_reshape(row, 3, flat), 2, 1);
    const sn_dim both[] = {1, 2, 2};
    return sn_b_binary(SN_OP_mul, sn_b_broadcast(sn_b_reshape(col, 3, up), 3, both),
                       sn_b_broadcast(sn_b_reshape(row, 3, flat), 3, both));
}

/* x [1,2] along an axis of the carry, in its shape. */
static sn_node *along(sn_node *x, int axis) {
    const sn_dim up[] = {1, 2, 1}, flat[] = {1, 1, 2}, both[] = {1, 2, 2};
    return sn_b_broadcast(sn_b_reshape(x, 3, axis == 1 ? up : flat), 3, both);
}

/* The vector x times the matrix S, over the axis. */
static sn_node *times_matrix(sn_node *x, sn_node *S, int64_t axis) {
    const sn_dim shape[] = {1, 2}, row[] = {1, 1, 2};
    if (choose(2))
        return sn_b_reshape(
            sn_b_reduce(SN_OP_reduce_sum, sn_b_binary(SN_OP_mul, S, along(x, (int)axis)), 1, &axis),
            2, shape);
    return sn_b_reshape(product(sn_b_reshape(x, 3, row), S, 2, axis), 2, shape);
}

/* x: q, k, v, g, and a for the delta rule. user: the axis of the carry that q and k belong to, and what the body reads. */
typedef struct loop {
    int inner;
    bool delta, before, output;
} loop;

static void step(sn_scan_step *s) {
    const loop *l = s->user;
    const int inner = l->inner;
    sn_node *S = s->carry[0], *q = s->x[0], *k = s->x[1], *v = s->x[2];
    sn_node *kept = in_any_order(SN_OP_mul, S, along(sn_b_unary(SN_OP_exp, s->x[3]), inner));
    if (l->delta) {
        sn_node *miss = sn_b_binary(SN_OP_sub, v, times_matrix(s->x[4], kept, inner));
        v = miss;
    }
    sn_node *more = inner == 1 ? along(k, 1) : along(k, 2);
    more = l->delta     ? sn_b_binary(SN_OP_mul, more, along(v, 3 - inner))
           : inner == 1 ? outer(k, v)
                        : outer(v, k);
    s->next[0] = in_any_order(SN_OP_add, kept, more);
    if (l->output) s->y[0] = times_matrix(q, l->before ? S : s->next[0], inner);
}

static sn_scanned recurrence(bool output) {
    const loop l = {.inner = 1 + choose(2),
                    .delta = choose(2),
                    .before = output && choose(2),
                    .output = output};
    const sn_dim shape[] = {LENGTH, 1, 2};
    return sn_scan(.carry = {leaf("S", 3, (sn_dim[]){1, 2, 2})},
                   .x = {leaf("q", 3, shape), leaf("k", 3, shape), leaf("v", 3, shape),
                         leaf("g", 3, shape), l.delta ? leaf("a", 3, shape) : NULL},
                   .axis = 0, .reverse = choose(2), .body = step, .user = &l);
}

static sn_node *loop_with_output(void) {
    const sn_scanned r = recurrence(true);
    return choose(2) ? r.y[0] : r.carry[0];
}

static sn_node *loop_alone(void) {
    return recurrence(false).carry[0];
}

/* The carry attends to itself in each element, whose queries differ. */
static void attention_step(sn_scan_step *s) {
    const shape_of_attention *a = s->user;
    sn_node *k = s->carry[0], *q = sn_b_binary(SN_OP_add, k, s->x[0]);
    sn_node *x = product(q, k, a->lead + 1, a->lead + 1);
    if (choose(2)) x = sn_b_scalar(SN_OP_mul, x, 0.5);
    if (choose(2)) x = sn_b_select(shown_keys(a, x), x, sn_b_const(m, SN_F32, -INFINITY));
    s->next[0] = product(softmax(a, x, false), k, a->keys, a->lead);
}

static sn_node *loop_of_attention(void) {
    const int lead = choose(3);
    const shape_of_attention a = {
        .lead = lead, .keys = lead + 1, .n_q = 2, .n_k = 2, .lead_size = {2, 2}};
    sn_dim x[5] = {LENGTH, 2, 2, 2, 2};
    return sn_scan(.carry = {operand(&a, "S", 2, 2, false)}, .x = {leaf("x", lead + 3, x)},
                   .axis = 0, .body = attention_step, .user = &a)
        .carry[0];
}

/* ---- the table ---- */

const family attention_families[] = {
    {"rope", SN_OP_add, rotated_by_hand, SN_CLAIM_ROUNDS_FINITE, BY_CUT},
    {"scaled_rope", SN_OP_mul, rope_times, SN_CLAIM_ROUNDS_FINITE, BY_CUT},
    {"scaled_rope", SN_OP_neg, minus_rope, SN_CLAIM_ROUNDS_FINITE, BY_CUT},
    {"rope_of_scaled", SN_OP_rope, rope_of_multiple, SN_CLAIM_ROUNDS_FINITE, BY_CUT},
    {"rope_of_columns", SN_OP_concat, columns, SN_CLAIM_ROUNDS_FINITE, BY_CUT},
    {"logsumexp", SN_OP_log, log_of_sum, SN_CLAIM_ROUNDS_FINITE, BY_SUM},
    {"gate_by_logsumexp", SN_OP_mul, gated, SN_CLAIM_ROUNDS_FINITE, BY_SUM},
    {"mixed", SN_OP_dot, mixing_chain, SN_CLAIM_ROUNDS_FINITE, BY_SUM},
    {"attention", SN_OP_dot, chain, SN_CLAIM_ROUNDS_FINITE, BY_SUM},
    {"divide_attention", SN_OP_mul, divided, SN_CLAIM_ROUNDS_FINITE, BY_SUM},
    {"scale_weights", SN_OP_mul, scaled_weights, SN_CLAIM_ROUNDS_FINITE, BY_SUM},
    {"scale_weights", SN_OP_neg, minus_weights, SN_CLAIM_ROUNDS_FINITE, BY_SUM},
    {"settle_attention", SN_OP_attention, attention_as_written, SN_CLAIM_ROUNDS_FINITE, BY_SUM},
    {"settle_attention", SN_OP_mixed_attention, mixed_as_written, SN_CLAIM_ROUNDS_FINITE, BY_SUM},
    {"settle_lse", SN_OP_attention_lse, lse_as_written, SN_CLAIM_ROUNDS_FINITE, BY_SUM},
    {"difference", SN_OP_dot, difference_of, SN_CLAIM_ROUNDS_FINITE, BY_SUM},
    {"body", SN_OP_scan, loop_of_attention, SN_CLAIM_ROUNDS_FINITE, BY_STEP},
    {"result", SN_OP_result, loop_with_output, SN_CLAIM_ROUNDS_FINITE, BY_STEP},
    {"scan", SN_OP_scan, loop_alone, SN_CLAIM_ROUNDS_FINITE, BY_STEP},
};
const int n_attention_families = sizeof attention_families / sizeof *attention_families;
