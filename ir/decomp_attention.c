/* decomp_attention.c: attention and its fused form, decomposed into products, regions and softmax.
 *
 * softmax(mask(score(scale q k^T))) v. Grouped heads share a K/V head: queries [B, H, Tq, d] are
 * viewed as [B, Hk, (H/Hk) Tq, d], the same memory, so no key is repeated.
 *
 * A key with weight 0 contributes nothing, whatever its value. A plain product would give 0 * NaN =
 * NaN. So where a region can hide keys, values that are not finite are replaced by 0, and a row
 * that does see such a key becomes NaN as a whole. This costs one product with a single column and
 * no intermediate larger than the weights.
 *
 * With the attribute `weights` there is no softmax: scores are weights, 0 where a key is hidden, and
 * rows are divided by 1, their sum, or max(|sum|, 1); a row whose sum is 0 is 0. With the attribute
 * `sink` each row's sum has one more term, which has no value.
 *
 * Heads may mix: their scores, before the regions, and their weights. There are then as many heads of
 * keys and values as of queries, and values are multiplied as they are.
 *
 * The log-sum-exp of the rows is a composite of its own, over the same scores.
 *
 * The gradient is that of this decomposition. It is computed once over placeholder nodes, so that
 * the walk stays inside attention. A hidden key contributes nothing to any gradient, even where the
 * derivative of its score is not finite: see pull_through_score. */
#include "ir/decomp_impl.h"
#include "ir/ring.h"

#include <math.h>
#include <string.h>

typedef struct attention {
    decomp *c;
    sn_node *q, *k, *v;
    sn_dim batch, heads, key_heads, group, tq, tk;
    int first, n_captured; /* captured tensors: the first operand, how many */
    sn_node *mix[2];       /* [H, H] of the scores, of the weights; NULL: none */
    sn_node *sink;         /* [B, H, Tq, 1]; NULL: none */
    sn_node *seed;         /* dropout's seed and step; NULL: none */
    sn_node *raw;          /* arguments of the score region; set by make_scores */
} attention;

/* k or v from integers and the factors of their rows. */
static sn_node *scaled_rows(const decomp *c, int i) {
    sn_node *x = sn_b_cast(c->in[i], c->type);
    return sn_b_binary(SN_OP_mul, x, sn_b_cast(c->in[i + 2], c->type));
}

static bool read_sink(attention *a, int i) {
    const decomp *c = a->c;
    const sn_node *z = c->in[i];
    if (!sn_dc_float(c, i)) return false;
    if (z->rank != 3 || z->shape[0] != a->batch || z->shape[1] != a->heads || z->shape[2] != a->tq)
        return sn_dc_fail(c, "the sink must be [B, H, Tq]");
    if (sn_dc_int(c, SN_A_weights, SN_WEIGHTS_SOFTMAX) == SN_WEIGHTS_PLAIN)
        return sn_dc_fail(c, "a sink needs weights that are divided by their sum");
    sn_dim row[4] = {a->batch, a->heads, a->tq, 1};
    a->sink = sn_b_reshape(sn_dc_operand(c, i), 4, row);
    return true;
}

/* The matrices that follow v. */
static bool read_mixes(attention *a) {
    decomp *c = a->c;
    int64_t which = sn_dc_int(c, SN_A_mix, 0);
    for (int i = 0; i < 2; i++) {
        if (!(which >> i & 1)) continue;
        const sn_node *w = c->in[a->first];
        if (!sn_dc_float(c, a->first)) return false;
        if (w->rank != 2 || w->shape[0] != a->heads || w->shape[1] != a->heads ||
            a->key_heads != a->heads)
            return sn_dc_fail(c, "what mixes heads must be [H, H], for H heads of q, k and v");
        a->mix[i] = sn_dc_operand(c, a->first++);
    }
    return true;
}

static bool read_operands(attention *a, decomp *c) {
    bool scales = sn_dc_int(c, SN_A_row_scales, 0) != 0;
    int64_t mixes = sn_dc_int(c, SN_A_mix, 0);
    *a = (attention){.c = c, .first = scales ? 5 : 3};
    a->n_captured = c->n_in - a->first - (int)(mixes & 1) - (int)(mixes >> 1 & 1);
    if (a->n_captured < 0)
        return sn_dc_fail(c, "factors of k and v, or a matrix that mixes heads, are missing");
    if (sn_dc_attr(c, SN_A_rate)) {
        if (!a->n_captured--) return sn_dc_fail(c, "dropout needs a seed and a step");
        a->seed = c->in[c->n_in - 1];
    }
    bool sinks = sn_dc_int(c, SN_A_sink, 0) != 0;
    if (sinks && !a->n_captured--) return sn_dc_fail(c, "the sink is missing");
    for (int i = 0; i < 3; i++) {
        if ((!scales || !i) && !sn_dc_float(c, i)) return false;
        if (c->in[i]->rank != 4)
            return sn_dc_fail(c, "q must be [B, H, Tq, d], k [B, Hk, Tk, d], v [B, Hk, Tk, dv]");
    }
    a->q = sn_dc_operand(c, 0);
    a->k = scales ? scaled_rows(c, 1) : sn_dc_operand(c, 1);
    a->v = scales ? scaled_rows(c, 2) : sn_dc_operand(c, 2);
    const sn_dim *q = a->q->shape, *k = a->k->shape, *v = a->v->shape;
    a->batch = q[0], a->heads = q[1], a->tq = q[2];
    a->key_heads = k[1], a->tk = k[2];
    if (k[0] != q[0] || v[0] != q[0]) return sn_dc_fail(c, "the batch sizes of q, k and v differ");
    if (k[3] != q[3]) return sn_dc_fail(c, "queries and keys have different widths");
    if (v[1] != k[1] || v[2] != k[2])
        return sn_dc_fail(c, "keys and values differ in number, or in the number of heads");
    if (!sn_dim_div(c->m, a->heads, a->key_heads, &a->group))
        return sn_dc_fail(c,
                          "the number of query heads is not a multiple of the number of K/V heads");
    return read_mixes(a) && (!sinks || read_sink(a, a->first + a->n_captured));
}

/* A region's arguments: scalars of these types, then the captured tensors. */
static bool check_region(const attention *a, const sn_region *r, const char *what, int n_index,
                         sn_dtype result) {
    const decomp *c = a->c;
    int first = result == SN_BOOL ? 0 : 1; /* the score precedes the indices */
    if (r->n_arg != first + n_index + a->n_captured || r->n_out != 1)
        return sn_dc_fail(c,
                          "the %s region has %d arguments; it takes %s b, h, q, k and %d captured",
                          what, r->n_arg, first ? "score," : "", a->n_captured);
    if (first && (r->arg[0]->rank || !sn_dtype_is_float((sn_dtype)r->arg[0]->dtype)))
        return sn_dc_fail(c, "argument 0 of the score region must be a scalar float");
    for (int i = first; i < first + n_index; i++)
        if (r->arg[i]->rank || r->arg[i]->dtype != SN_I32)
            return sn_dc_fail(c, "argument %d of the %s region must be a scalar i32", i, what);
    for (int i = 0; i < a->n_captured; i++) {
        const sn_node *arg = r->arg[first + n_index + i], *in = c->in[a->first + i];
        if (arg->dtype != in->dtype || arg->rank != in->rank ||
            (in->rank && memcmp(arg->shape, in->shape, sizeof(sn_dim) * in->rank)))
            return sn_dc_fail(
                c, "captured tensor %d and the %s region's argument have different types", i, what);
    }
    if (r->out[0]->dtype != result || r->out[0]->rank)
        return sn_dc_fail(c, "the result of the %s region must be a scalar %s", what,
                          sn_dtype_name(result));
    return true;
}

/* The region's results at every (b, h, q, k); score: its first argument, NULL for a mask. */
static void map_region(const attention *a, const sn_region *r, sn_node *score, sn_node **results) {
    sn_module *m = a->c->m;
    sn_dim shape[4] = {a->batch, a->heads, a->tq, a->tk};
    sn_node **arg = sn_arena_alloc(m, sizeof *arg * (size_t)r->n_arg);
    int n = 0;
    if (score) arg[n++] = score;
    for (int i = 0; i < 4; i++) arg[n++] = sn_b_iota(m, SN_I32, 4, shape, i);
    for (int i = 0; i < a->n_captured; i++) arg[n++] = a->c->in[a->first + i];
    sn_region_map(r, arg, 4, shape, results);
}

static const sn_region *region_of(const decomp *c, sn_attr_key key) {
    const sn_attr *attr = sn_dc_attr(c, key);
    return attr ? attr->r : NULL;
}

/* The product of x and y [.., K] or, contract_y 2, [.., K, N], in the type {compute}. */
static sn_node *product(const decomp *c, sn_node *x, sn_node *y, int64_t contract_y) {
    sn_node *dot = sn_dc_dot(x, y, 2, 3, contract_y);
    if (!sn_dc_attr(c, SN_A_compute) || c->m->error.code) return dot;
    sn_attr attr[8];
    int n = 0;
    for (; n < dot->n_attr; n++) attr[n] = dot->attr[n];
    attr[n++] = *sn_dc_attr(c, SN_A_compute);
    return sn_node_new(c->m, SN_OP_dot, 2, dot->in, n, attr);
}

/* w [H, H] times the heads of x [B, H, Tq, Tk]; w NULL: x */
static sn_node *mix_heads(sn_node *w, sn_node *x) {
    if (!w) return x;
    return sn_b_transpose(sn_dc_dot(w, x, 0, 1, 1), 4, (const int64_t[]){1, 0, 2, 3});
}

/* Scores [B, H, Tq, Tk] before heads mix and regions apply; *scale: what q k was multiplied with. */
static sn_node *plain_scores(const attention *a, double *by) {
    decomp *c = a->c;
    int64_t width;
    const sn_attr *scale = sn_dc_attr(c, SN_A_scale);
    if (!scale && !sn_dc_number(c, "the width of the heads", a->q->shape[3], &width)) return NULL;
    *by = scale ? scale->f : 1 / sqrt((double)width);
    sn_dim rows = sn_dim_mul(c->m, a->group, a->tq);
    sn_dim grouped[4] = {a->batch, a->key_heads, rows, a->q->shape[3]};
    sn_dim full[4] = {a->batch, a->heads, a->tq, a->tk};
    sn_node *s = product(c, sn_b_reshape(a->q, 4, grouped), a->k, 3);
    return sn_b_scalar(SN_OP_mul, sn_b_reshape(s, 4, full), *by);
}

/* Scores [B, H, Tq, Tk] after both regions: -inf where the key is hidden. NULL: an error. */
static sn_node *make_scores(attention *a) {
    decomp *c = a->c;
    const sn_region *score = region_of(c, SN_A_score), *mask = region_of(c, SN_A_mask);
    sn_dtype score_type = score && score->n_arg ? (sn_dtype)score->arg[0]->dtype : c->type;
    if (score && !check_region(a, score, "score", 4, score_type)) return NULL;
    if (mask && !check_region(a, mask, "mask", 4, SN_BOOL)) return NULL;
    double scale;
    sn_node *s = plain_scores(a, &scale);
    if (!s) return NULL;
    s = mix_heads(a->mix[0], s);
    if (score) {
        a->raw = sn_b_cast(s, score_type);
        map_region(a, score, a->raw, &s);
        s = sn_b_cast(s, c->type);
    }
    if (mask) {
        sn_node *seen;
        map_region(a, mask, NULL, &seen);
        s = sn_b_select(seen, s, sn_b_const(c->m, c->type, -INFINITY));
    }
    return c->m->error.code ? NULL : s;
}

/* Weights [B, Hk, rows, Tk] times values; see the comment at the top of the file. */
static sn_node *weigh_values(const decomp *c, sn_node *p, sn_node *v) {
    int64_t width_axis = 3;
    sn_dtype t = (sn_dtype)v->dtype;
    sn_node *zero = sn_b_const(v->m, t, 0);
    sn_node *finite = sn_b_scalar(SN_OP_lt, sn_b_unary(SN_OP_abs, v), INFINITY);
    sn_node *bad =
        sn_b_reduce(SN_OP_reduce_max, sn_b_cast(sn_b_unary(SN_OP_not, finite), t), 1, &width_axis);
    sn_node *sees_bad = sn_b_scalar(SN_OP_ne, sn_dc_dot(p, bad, 2, 3, 2), 0);
    sn_node *y = product(c, p, sn_b_select(finite, v, zero), 2);
    return sn_b_select(sees_bad, sn_b_const(v->m, t, NAN), y);
}

/* What the sum of a row's weights is divided by, over the keys: [B, H, Tq, 1]. */
static sn_node *divisor_of(const attention *a, sn_node *sum) {
    sn_node *one = sn_b_const(sum->m, (sn_dtype)sum->dtype, 1);
    switch (sn_dc_int(a->c, SN_A_weights, SN_WEIGHTS_SOFTMAX)) {
    case SN_WEIGHTS_SUM:
        return sum;
    case SN_WEIGHTS_ABS_SUM:
        return sn_b_binary(SN_OP_max, sn_b_unary(SN_OP_abs, sum), one);
    default:
        return sn_b_broadcast_like(one, sum);
    }
}

static sn_node *sum_of_weights(const attention *a, sn_node *p) {
    int64_t keys = 3;
    sn_node *sum = sn_b_reduce(SN_OP_reduce_sum, p, 1, &keys);
    return a->sink ? sn_b_binary(SN_OP_add, sum, a->sink) : sum;
}

/* 1 / n, 0 where n is 0 */
static sn_node *reciprocal(sn_node *n) {
    sn_node *zero = sn_b_scalar(SN_OP_eq, n, 0), *t = sn_b_const(n->m, (sn_dtype)n->dtype, 1);
    sn_node *safe = sn_b_select(zero, t, n);
    return sn_b_select(zero, sn_b_const(n->m, (sn_dtype)n->dtype, 0),
                       sn_b_binary(SN_OP_div, t, safe));
}

/* The weights before they are divided: the scores, 0 where a key is hidden. */
static sn_node *plain_weights(sn_node *scores) {
    sn_node *hidden = sn_b_scalar(SN_OP_eq, scores, -INFINITY);
    return sn_b_select(hidden, sn_b_const(scores->m, (sn_dtype)scores->dtype, 0), scores);
}

static sn_node *weights_of(const attention *a, sn_node *scores) {
    if (!sn_dc_int(a->c, SN_A_weights, SN_WEIGHTS_SOFTMAX)) return sn_b_softmax(scores, a->sink, 3);
    sn_node *p = plain_weights(scores);
    sn_node *factor = reciprocal(divisor_of(a, sum_of_weights(a, p)));
    return sn_b_binary(SN_OP_mul, p, sn_b_broadcast_like(factor, p));
}

/* Weights [B, H, Tq, Tk], some of them dropped, times values: [B, H, Tq, dv] */
static sn_node *apply_weights(const attention *a, sn_node *p) {
    const decomp *c = a->c;
    sn_dim rows = sn_dim_mul(c->m, a->group, a->tq);
    sn_dim grouped[4] = {a->batch, a->key_heads, rows, a->tk};
    sn_dim full[4] = {a->batch, a->heads, a->tq, a->v->shape[3]};
    if (a->seed)
        p = SN_NODE(c->m, dropout,
                    SN_ATTRS(SN_INT(stream, sn_dc_int(c, SN_A_stream, 0)),
                             SN_FLT(rate, sn_dc_flt(c, SN_A_rate, 0))),
                    p, a->seed);
    p = sn_b_reshape(mix_heads(a->mix[1], p), 4, grouped);
    bool mixes = a->mix[0] || a->mix[1];
    bool hides = !mixes && (region_of(c, SN_A_score) || region_of(c, SN_A_mask) || a->seed);
    sn_node *y = hides ? weigh_values(c, p, a->v) : product(c, p, a->v, 2);
    return c->m->error.code ? y : sn_b_reshape(y, 4, full);
}

bool decomp_attention(decomp *c) {
    attention a;
    sn_node *scores;
    if (!read_operands(&a, c) || !(scores = make_scores(&a))) return false;
    return sn_dc_done(c, apply_weights(&a, weights_of(&a, scores)));
}

bool decomp_mixed_attention(decomp *c) {
    if (!sn_dc_int(c, SN_A_mix, 0)) return sn_dc_fail(c, "no heads mix");
    return decomp_attention(c);
}

bool decomp_attention_lse(decomp *c) {
    attention a;
    sn_node *scores;
    decomp of = *c;
    of.n_in--, of.in++;
    if (sn_dc_int(c, SN_A_weights, SN_WEIGHTS_SOFTMAX) || sn_dc_int(c, SN_A_sink, 0))
        return sn_dc_fail(c, "only a softmax without a sink has a log-sum-exp");
    if (!read_operands(&a, &of) || !(scores = make_scores(&a))) return false;
    c->out[0] = SN_NODE(c->m, logsumexp, SN_ATTRS(SN_INT(axis, 3)), scores);
    c->n_out = 1;
    return !c->m->error.code;
}

/* [B, H, 2, Tq]: the largest score m of each query, and the log of the sum of e^(score - m). */
static sn_node *log_sum_exp(const attention *a, sn_node *scores) {
    decomp *c = a->c;
    int64_t keys = 3;
    sn_dim row[4] = {a->batch, a->heads, 1, a->tq};
    if (a->sink) scores = sn_b_concat(c->m, 2, (sn_node *[]){scores, a->sink}, 3);
    sn_node *top = sn_b_reduce(SN_OP_reduce_max, scores, 1, &keys), *part[2];
    sn_node *none = sn_b_scalar(SN_OP_eq, top, -INFINITY);
    sn_node *m = sn_b_select(none, sn_b_const(c->m, (sn_dtype)top->dtype, 0), top);
    sn_node *shifted = sn_b_binary(SN_OP_sub, scores, sn_b_broadcast_like(m, scores));
    part[0] = sn_b_reshape(top, 4, row);
    part[1] = sn_b_reshape(SN_NODE(c->m, logsumexp, SN_ATTRS(SN_INT(axis, 3)), shifted), 4, row);
    return sn_b_concat(c->m, 2, part, 2);
}

/* The same without softmax: 1 / the divisor, and the divisor's derivative by the sum. */
static sn_node *row_factors(const attention *a, sn_node *scores) {
    decomp *c = a->c;
    sn_dim row[4] = {a->batch, a->heads, 1, a->tq};
    sn_node *sum = sum_of_weights(a, plain_weights(scores)), *part[2];
    sn_node *zero = sn_b_const(c->m, (sn_dtype)sum->dtype, 0);
    sn_node *one = sn_b_const(c->m, (sn_dtype)sum->dtype, 1), *slope = zero;
    int64_t kind = sn_dc_int(c, SN_A_weights, SN_WEIGHTS_SOFTMAX);
    if (kind == SN_WEIGHTS_SUM) slope = one;
    if (kind == SN_WEIGHTS_ABS_SUM) {
        sn_node *sign = sn_b_select(sn_b_scalar(SN_OP_lt, sum, 0), sn_b_unary(SN_OP_neg, one), one);
        slope = sn_b_select(sn_b_binary(SN_OP_lt, one, sn_b_unary(SN_OP_abs, sum)), sign, zero);
    }
    part[0] = sn_b_reshape(reciprocal(divisor_of(a, sum)), 4, row);
    part[1] = sn_b_reshape(sn_b_broadcast_like(slope, sum), 4, row);
    return sn_b_concat(c->m, 2, part, 2);
}

bool decomp_flash(decomp *c) {
    attention a;
    sn_node *scores;
    if (c->n_in < 3) return sn_dc_fail(c, "q, k and v are needed");
    if (!read_operands(&a, c) || !(scores = make_scores(&a))) return false;
    if (!sn_dc_done(c, apply_weights(&a, weights_of(&a, scores)))) return false;
    c->out[1] = sn_dc_int(c, SN_A_weights, SN_WEIGHTS_SOFTMAX) ? row_factors(&a, scores)
                                                               : log_sum_exp(&a, scores);
    c->n_out = 2;
    return !c->m->error.code;
}

bool decomp_flash_mixed(decomp *c) {
    return decomp_flash(c);
}

/* ---- gradients ---- */

/* The region with the captured floats that it reads as additional results. */
static const sn_region *with_reads(const sn_region *score) {
    sn_module *m = score->out[0]->m;
    sn_order order = sn_region_topo(m, score);
    sn_node **out = sn_arena_alloc(m, sizeof *out * (size_t)(order.n + 1));
    int n = 0;
    out[n++] = score->out[0];
    for (int i = 0; i < order.n; i++) {
        sn_node *r = order.node[i];
        if (sn_dtype_is_float((sn_dtype)r->dtype) && sn_score_read_of(r) >= 0) out[n++] = r;
    }
    return sn_region_new(m, score->n_arg, score->arg, n, out);
}

/* Whether the derivative of the score can be infinite or NaN for finite q and k: it reads a
 * captured float, or applies an op that is not finite everywhere. */
static bool derivative_may_be_bad(const sn_region *score, int n_captured) {
    sn_module *m = score->out[0]->m;
    int64_t *all = sn_arena_alloc(m, sizeof *all * (size_t)(n_captured + 1));
    int n = 0;
    sn_score_grad d;
    for (int i = 0; i < n_captured; i++)
        if (sn_dtype_is_float((sn_dtype)score->arg[score->n_arg - n_captured + i]->dtype))
            all[n++] = i;
    if (!sn_score_gradient(m, score, n, all, &d)) return false;
    sn_node **out = sn_arena_alloc(m, sizeof *out * (size_t)(d.n_read + 1));
    out[0] = d.region->out[1];
    for (int i = 0; i < d.n_read; i++) out[1 + i] = d.region->out[d.read[i].value];
    sn_order order =
        sn_region_topo(m, sn_region_new(m, d.region->n_arg, d.region->arg, d.n_read + 1, out));
    for (int i = 0; i < order.n; i++) {
        const sn_node *x = order.node[i];
        if (!sn_dtype_is_float((sn_dtype)x->dtype)) continue;
        int read = sn_score_read_of(x); /* the cotangent is an argument, too */
        bool tame = sn_ops[x->op].kind == SN_PRIM || (sn_ops[x->op].flags & SN_OPF_FINITE);
        if (!tame || (read >= 0 && read < n_captured)) return true;
    }
    return false;
}

/* sn_pullback of attention with a score region, in two steps: from the result y to v, to the
 * region's score and to the captured elements that it reads; then, for visible keys, from there to
 * the wanted operands. In a single step, a derivative that is not finite would turn the zero
 * cotangent of a hidden score into NaN. `operands`: attention over placeholders. */
static void pull_through_score(decomp *operands, sn_node *y, sn_node *g, int n, sn_node *const *wrt,
                               sn_node **d) {
    attention a;
    sn_node *scores;
    sn_module *m = operands->m;
    if (!read_operands(&a, operands) || !(scores = make_scores(&a))) return;
    const sn_region *r = with_reads(region_of(operands, SN_A_score));
    size_t n_from = (size_t)r->n_out + 2; /* the score, the reads, v, the sink */
    sn_node **from = sn_arena_alloc(m, 2 * n_from * sizeof *from), **flow = from + n_from;
    sn_node **part = sn_arena_alloc(m, sizeof *part * (size_t)n);
    map_region(&a, r, a.raw, from);
    from[0] = a.raw;
    from[r->n_out] = a.v;
    from[r->n_out + 1] = a.sink ? operands->in[a.first + a.n_captured] : a.v;
    sn_pullback(y, g, (int)n_from - !a.sink, from, flow);
    sn_node *seen = sn_b_scalar(SN_OP_ne, scores, -INFINITY);
    for (int j = 0; j < n; j++) {
        d[j] = wrt[j] == a.v ? flow[r->n_out] : NULL;
        if (a.sink && wrt[j] == from[r->n_out + 1]) d[j] = flow[r->n_out + 1];
    }
    for (int i = 0; i < r->n_out && !m->error.code; i++) {
        if (!flow[i]) continue;
        sn_node *zero = sn_b_const(m, (sn_dtype)flow[i]->dtype, 0);
        sn_pullback(from[i], sn_b_select(seen, flow[i], zero), n, wrt, part);
        for (int j = 0; j < n; j++)
            if (part[j]) d[j] = d[j] ? sn_b_binary(SN_OP_add, d[j], part[j]) : part[j];
    }
}

/* What the gradient gets besides attention's operands: `more` operands from the fourth on. */
typedef struct given {
    int more;
    sn_node *result, *g;  /* and its cotangent */
    sn_node *lse, *d_lse; /* over more keys than these, and its cotangent; NULL: not given */
} given;

enum { RESULT, COTANGENT, LSE, D_LSE, GIVEN };

static bool check_rows(decomp *c, const sn_node *x, const char *what, const sn_dim *q,
                       sn_dim width) {
    bool fits = sn_dtype_is_float((sn_dtype)x->dtype) && x->rank == 4 && x->shape[3] == width;
    for (int i = 0; fits && i < 3; i++) fits = x->shape[i] == q[i];
    return fits || sn_dc_fail(c, "%s does not have the shape of attention's", what);
}

/* Rows whose log-sum-exp over these and other keys is given, as a function of the operands that has
 * the gradient of attention if result and log-sum-exp are constants: with p = e^(s - lse),
 *   y = (p v, sum p),   g = (cotangent, d_lse - rowsum(result cotangent)). */
static bool rows_of_more_keys(decomp *operands, sn_node *const *x, sn_node **y, sn_node **g) {
    attention a;
    sn_node *scores, *part[2];
    sn_module *m = operands->m;
    int64_t width = 3;
    if (!read_operands(&a, operands) || !(scores = make_scores(&a))) return false;
    sn_node *none = sn_b_scalar(SN_OP_eq, x[LSE], -INFINITY);
    sn_node *top = sn_b_select(none, sn_b_const(m, (sn_dtype)x[LSE]->dtype, 0), x[LSE]);
    sn_node *p = sn_b_unary(SN_OP_exp, sn_b_binary(SN_OP_sub, scores, top));
    part[0] = apply_weights(&a, p);
    part[1] = sum_of_weights(&a, p);
    *y = sn_b_concat(m, 2, part, 3);
    sn_node *product = sn_b_binary(SN_OP_mul, x[RESULT], x[COTANGENT]);
    part[0] = x[COTANGENT];
    part[1] = sn_b_binary(SN_OP_sub, x[D_LSE], sn_b_reduce(SN_OP_reduce_sum, product, 1, &width));
    *g = sn_b_concat(m, 2, part, 3);
    return !m->error.code;
}

/* A region that pulls cotangents back through attention of these types: many calls share one, and making
 * it visits all of the module. */
typedef struct pulled {
    const struct pulled *next;
    sn_node *y; /* attention of arguments */
    sn_node *given[GIVEN];
    int n, which[SN_MAX_RESULTS];
    const sn_region *region;
} pulled;

static const sn_region *find_pulled(const pulled *key) {
    const pulled *p = key->y->m->pulled;
    for (; p; p = p->next)
        if (p->y == key->y && p->n == key->n && !memcmp(p->given, key->given, sizeof p->given) &&
            !memcmp(p->which, key->which, sizeof p->which))
            return p->region;
    return NULL;
}

/* Makes the region for key->y, attention of `operands`, whose arguments and given tensors are arguments. */
static const sn_region *pull_region(decomp *c, decomp *operands, bool lse, pulled *key) {
    int n_arg = operands->n_in;
    sn_node *const *arg = operands->in, *y = key->y->decomposition, *g = key->given[COTANGENT];
    sn_node *wrt[SN_MAX_RESULTS], *d[SN_MAX_RESULTS];
    const sn_region *score = region_of(c, SN_A_score);
    int more_in = (sn_dc_attr(c, SN_A_rate) != NULL) + (sn_dc_attr(c, SN_A_sink) != NULL);
    for (int i = 0; i < key->n; i++) wrt[i] = arg[key->which[i]];
    if (lse && !rows_of_more_keys(operands, key->given, &y, &g)) return NULL;
    if (score && derivative_may_be_bad(score, n_arg - 3 - more_in))
        pull_through_score(operands, y, g, key->n, wrt, d);
    else
        sn_pullback(y, g, key->n, wrt, d);
    for (int i = 0; i < key->n; i++)
        if (!d[i]) d[i] = sn_b_broadcast_like(sn_b_const(c->m, (sn_dtype)wrt[i]->dtype, 0), wrt[i]);
    if (c->m->error.code) return NULL;
    key->region = sn_region_new(c->m, n_arg + (lse ? GIVEN : LSE), arg, key->n, d);
    if (c->m->error.code) return NULL;
    pulled *kept = sn_arena_alloc(c->m, sizeof *kept);
    *kept = *key;
    kept->next = c->m->pulled;
    c->m->pulled = kept;
    return key->region;
}

/* The cotangents of operands which[0 .. n - 1] of attention (not counting seed and step, counting
 * captured tensors). */
static bool pull_back(decomp *c, const given *with, int n, const int *which, sn_node **out) {
    int n_arg = c->n_in - with->more, n_attr = 0, n_given = with->lse ? GIVEN : LSE;
    sn_node **arg = sn_arena_alloc(c->m, sizeof *arg * (size_t)(2 * (n_arg + GIVEN)));
    sn_node **real = arg + n_arg + GIVEN;
    sn_node *const extra[GIVEN] = {with->result, with->g, with->lse, with->d_lse};
    sn_attr *attr = sn_arena_alloc(c->m, sizeof *attr * (size_t)(c->n_attr + 1));
    for (int i = 0; i < c->n_attr; i++)
        if (c->attr[i].key != SN_A_index && c->attr[i].key != SN_A_wrt &&
            c->attr[i].key != SN_A_lse)
            attr[n_attr++] = c->attr[i];
    for (int i = 0; i < n_arg + n_given; i++) {
        real[i] = i >= n_arg ? sn_b_cast(extra[i - n_arg], c->type)
                  : i < 3    ? sn_dc_operand(c, i)
                             : c->in[i + with->more];
        arg[i] = sn_arg(c->m, i, (sn_dtype)real[i]->dtype, real[i]->rank, real[i]->shape);
    }
    sn_op op = sn_dc_attr(c, SN_A_mix) ? SN_OP_mixed_attention : SN_OP_attention;
    sn_node *y = sn_node_new(c->m, op, n_arg, arg, n_attr, attr);
    if (c->m->error.code) return false;
    sn_dim width = y->shape[3];
    if (!check_rows(c, with->result, "the result", y->shape, width) ||
        !check_rows(c, with->g, "the cotangent", y->shape, width) ||
        (with->lse && (!check_rows(c, with->lse, "the log-sum-exp", y->shape, 1) ||
                       !check_rows(c, with->d_lse, "its cotangent", y->shape, 1))))
        return false;
    pulled key = {.y = y, .n = n};
    memcpy(key.given, arg + n_arg, sizeof *arg * (size_t)n_given);
    memcpy(key.which, which, sizeof *which * (size_t)n);
    decomp operands = {c->m, SN_OP_attention, n_arg, arg, n_attr, attr, NULL, 0, c->type};
    const sn_region *r = find_pulled(&key);
    if (!r) r = pull_region(c, &operands, with->lse != NULL, &key);
    if (!r) return false;
    sn_region_inline(r, real, out);
    for (int i = 0; i < n; i++) /* of its operand's type */
        if (which[i] < 3) out[i] = sn_b_cast(out[i], (sn_dtype)c->in[which[i]]->dtype);
    return !c->m->error.code;
}

bool decomp_attention_grad(decomp *c) {
    if (sn_dc_attr(c, SN_A_ranks)) return ring_attention_grad(c);
    bool lse = sn_dc_int(c, SN_A_lse, 0) != 0;
    int which = (int)sn_dc_int(c, SN_A_index, 0), more = lse ? GIVEN : LSE;
    if (c->n_in < 3 + more) return sn_dc_fail(c, "the log-sum-exp and its cotangent are missing");
    if (which < 0 || which >= c->n_in - more ||
        !sn_dtype_is_float((sn_dtype)c->in[which < 3 ? which : which + more]->dtype))
        return sn_dc_fail(c, "attention has no float operand %d", which);
    given with = {more, c->in[3], c->in[4], lse ? c->in[5] : NULL, lse ? c->in[6] : NULL};
    c->n_out = 1;
    return pull_back(c, &with, 1, &which, c->out);
}

bool decomp_mixed_attention_grad(decomp *c) {
    if (!sn_dc_int(c, SN_A_mix, 0) || region_of(c, SN_A_score))
        return sn_dc_fail(c, "no heads mix, or there is a score region");
    return decomp_attention_grad(c);
}

static sn_node *transposed(sn_node *w) {
    return w ? sn_b_transpose(w, 2, (const int64_t[]){1, 0}) : NULL;
}

/* x [B, H, Tq, ..] of each of P parts of the queries, 0 elsewhere: [P, B, H, Tq, ..]. The parts are of
 * equal size in multiples of SN_MIXED_PART_ROWS. */
static sn_node *of_parts(decomp *c, sn_node *x) {
    sn_dim n = sn_dim_const(c->m, sn_dc_int(c, SN_A_query_parts, 1));
    sn_dim shape[5] = {n, x->shape[0], x->shape[1], x->shape[2], x->shape[3]};
    sn_dim all = sn_dim_mul(c->m, n, sn_dim_const(c->m, SN_MIXED_PART_ROWS));
    sn_dim rounded = sn_dim_add(c->m, x->shape[2], sn_dim_add(c->m, all, sn_dim_const(c->m, -1)));
    sn_node *size =
        sn_b_binary(SN_OP_div, sn_b_dim(c->m, SN_I64, rounded), sn_b_dim(c->m, SN_I64, all));
    size = sn_b_scalar(SN_OP_mul, size, SN_MIXED_PART_ROWS);
    sn_node *part = sn_b_iota(c->m, SN_I64, 5, shape, 0);
    sn_node *query = sn_b_iota(c->m, SN_I64, 5, shape, 3);
    query = sn_b_binary(SN_OP_div, query, sn_b_broadcast_like(size, query));
    return sn_b_select(sn_b_binary(SN_OP_eq, part, query), sn_b_broadcast(x, 5, shape),
                       sn_b_const(c->m, (sn_dtype)x->dtype, 0));
}

/* y [B, H, Tq, ..] once for each part of x. */
static sn_node *for_parts(sn_node *x, sn_node *y) {
    return sn_b_broadcast(
        y, 5, (sn_dim[]){x->shape[0], y->shape[0], y->shape[1], y->shape[2], y->shape[3]});
}

/* [P, B, Tk, H, ..]: x^T y of the parts of the queries. */
static sn_node *products_of_parts(decomp *c, sn_node *x, sn_node *y) {
    x = of_parts(c, x);
    x = sn_dc_dot(x, for_parts(x, y), 3, 3, 3);
    return sn_b_transpose(x, 5, (const int64_t[]){0, 1, 3, 2, 4});
}

/* [P, B, H, H]: for each pair of heads of x and y [B, H, Tq, Tk] the sums over the parts' queries and all
 * keys. */
static sn_node *sums_of_pairs(decomp *c, sn_node *x, sn_node *y) {
    static const int64_t batch[2] = {0, 1}, sum[2] = {3, 4};
    x = of_parts(c, x);
    return SN_NODE(c->m, dot,
                   SN_ATTRS(SN_LIST(batch_a, 2, batch), SN_LIST(batch_b, 2, batch),
                            SN_LIST(contract_a, 2, sum), SN_LIST(contract_b, 2, sum)),
                   x, for_parts(x, y));
}

/* codegen/attention/mixed_grad.c says what is computed. */
bool decomp_flash_mixed_grad(decomp *c) {
    enum { MORE = 2, COTANGENT_OF = 4 };
    attention a;
    double scale;
    int64_t keys = 3;
    decomp of = *c;
    if (c->n_in < 4 + MORE || region_of(c, SN_A_score))
        return sn_dc_fail(c, "operands are missing, or there is a score region");
    sn_node **in = sn_arena_alloc(c->m, sizeof *in * (size_t)c->n_in);
    of.n_in = c->n_in - MORE, of.in = in;
    for (int i = 0; i < of.n_in; i++) in[i] = c->in[i < 3 ? i : i + MORE];
    sn_node *raw, *scores, *g = sn_dc_operand(c, COTANGENT_OF);
    if (!read_operands(&a, &of) || !(raw = plain_scores(&a, &scale)) || !(scores = make_scores(&a)))
        return false;
    sn_node *p = sn_b_softmax(scores, NULL, 3), *da = sn_dc_dot(g, a.v, 2, 3, 3);
    sn_node *dp = mix_heads(transposed(a.mix[1]), da);
    sn_node *delta = sn_b_reduce(SN_OP_reduce_sum, sn_b_binary(SN_OP_mul, p, dp), 1, &keys);
    sn_node *ds = sn_b_binary(SN_OP_mul, p, sn_b_binary(SN_OP_sub, dp, delta));
    sn_node *dqk = mix_heads(transposed(a.mix[0]), ds);
    c->out[0] = sn_b_scalar(SN_OP_mul, sn_dc_dot(dqk, a.k, 2, 3, 2), scale);
    c->out[0] = sn_b_cast(c->out[0], (sn_dtype)c->in[0]->dtype);
    c->out[1] = sn_b_scalar(SN_OP_mul, products_of_parts(c, dqk, a.q), scale);
    c->out[2] = products_of_parts(c, mix_heads(a.mix[1], p), g);
    c->n_out = 3;
    if (a.mix[0]) c->out[c->n_out++] = sums_of_pairs(c, ds, raw);
    if (a.mix[1]) c->out[c->n_out++] = sums_of_pairs(c, da, p);
    return !c->m->error.code;
}

/* For a captured tensor: the sum over everything, stored as the first batch and head. */
static sn_node *as_parts(decomp *c, sn_node *d, const sn_region *score, int captured) {
    sn_dim part[2] = {c->in[0]->shape[0], c->in[0]->shape[1]}, one[SN_MAX_RANK] = {1, 1};
    sn_dim full[SN_MAX_RANK] = {1, 1};
    int axis[2];
    if (d->rank + 2 > SN_MAX_RANK) {
        sn_dc_fail(c, "captured tensor %d has too many axes", captured);
        return d;
    }
    sn_score_axes(score, captured, part, axis);
    int rank = d->rank + 2;
    for (int i = 2; i < rank; i++) one[i] = full[i] = d->shape[i - 2];
    for (int i = 0; i < 2; i++)
        if (axis[i] < 0) full[i] = part[i];
    d = sn_b_broadcast(sn_b_reshape(sn_b_cast(d, c->type), rank, one), rank, full);
    for (int i = 0; i < 2; i++) {
        if (full[i] == 1) continue;
        sn_node *at = sn_b_iota(c->m, SN_I32, rank, full, i);
        d = sn_b_select(sn_b_scalar(SN_OP_eq, at, 0), d, sn_b_const(c->m, (sn_dtype)d->dtype, 0));
    }
    return d;
}

/* Part i of rows [B, H, parts, Tq] as [B, H, Tq, 1]. */
static sn_node *part_of_rows(sn_node *rows, int i) {
    sn_dim shape[4] = {rows->shape[0], rows->shape[1], rows->shape[3], 1};
    sn_node *part = sn_b_slice(rows, 2, sn_dim_const(rows->m, i), sn_dim_const(rows->m, 1));
    return sn_b_reshape(part, 4, shape);
}

bool decomp_flash_grad(decomp *c) {
    enum { MORE = 3 };
    int which[SN_MAX_RESULTS] = {0, 1, 2}, n = 3;
    const sn_attr *wrt = sn_dc_attr(c, SN_A_wrt);
    const sn_region *score = region_of(c, SN_A_score);
    if (c->n_in < 3 + MORE) return sn_dc_fail(c, "operands are missing");
    for (int i = 0; wrt && i < wrt->n; i++) {
        if (n == SN_MAX_RESULTS || wrt->v[i] < 0 || wrt->v[i] >= c->n_in - 3 - MORE || !score)
            return sn_dc_fail(c, "captured tensor %lld has no gradient", (long long)wrt->v[i]);
        which[n++] = 3 + (int)wrt->v[i];
    }
    given with = {.more = MORE, .result = c->in[3], .g = c->in[5]};
    if (sn_dc_int(c, SN_A_lse, 0)) {
        sn_node *rows = c->in[4];
        if (rows->rank != 4 || rows->shape[2] != 3)
            return sn_dc_fail(c, "the log-sum-exp and its cotangent must be [B, H, 3, Tq]");
        with.lse = sn_b_binary(SN_OP_add, part_of_rows(rows, 0), part_of_rows(rows, 1));
        with.d_lse = part_of_rows(rows, 2);
    }
    if (!pull_back(c, &with, n, which, c->out)) return false;
    for (int i = 3; i < n; i++) c->out[i] = as_parts(c, c->out[i], score, which[i] - 3);
    c->n_out = n;
    return !c->m->error.code;
}
