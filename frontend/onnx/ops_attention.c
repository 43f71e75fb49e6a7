/* ops_attention.c: attention, linear attention and rotary positions as single operators. */
#include "frontend/onnx/load.h"
#include "frontend/onnx/ops.h"

#include <math.h>
#include <string.h>

sn_tensor onnx_split_heads(onnx_call *c, sn_tensor x, int64_t heads) {
    return sn_rank_of(x) == 4 ? x : sn_split_heads(x, heads);
}

/* ---- softmax(scale q k^T, with scores and masks) v ---- */

/* A table that scores or masks read, whose axes broadcast to those of the scores, [B, H, T, S]. */
typedef struct table {
    int captured;  /* its place among the captured tensors */
    unsigned axes; /* of the scores, that it has */
} table;

typedef struct callbacks {
    const onnx_attention *a;
    table bias, visible, first, keys;
} callbacks;

/* x as a captured tensor, without its axes of size 1; the sizes of the others are those of the scores. */
static table capture(sn_attention_args *args, const onnx_attention *a, sn_tensor x) {
    onnx_call *c = a->c;
    const sn_dim all[] = {sn_dim_of(a->q, 0), sn_dim_of(a->q, 1), sn_dim_of(a->q, 2),
                          sn_dim_of(a->k, 2)};
    sn_dim shape[5];
    const int rank = sn_rank_of(x);
    table t = {0, 0};
    int n = 0;
    for (int i = 0; i < rank && rank <= 4; i++) {
        const sn_dim d = sn_dim_of(x, i);
        const int axis = 4 - rank + i;
        if (d == 1 && !(i == rank - 1 && !n)) continue;
        if (d != 1 && !onnx_equal(c, d, all[axis]) && !onnx_again(c))
            onnx_fail(c, "axis %d of a mask or bias does not fit the scores", axis);
        t.axes |= 1u << axis;
        shape[n++] = d;
    }
    if (!n) shape[n++] = 1, t.axes = 8;
    shape[n] = SN_END;
    while (args->captured[t.captured]) t.captured++;
    args->captured[t.captured] = n == rank ? x : sn_reshape_at(c->at, x, shape);
    return t;
}

static sn_tensor element(onnx_call *c, const sn_score_ctx *s, table t) {
    const sn_tensor all[] = {s->b, s->h, s->q, s->k};
    sn_tensor x = s->captured[t.captured], at[5] = {NULL};
    int n = 0;
    for (int i = 0; i < 4; i++)
        if (t.axes & 1u << i) {
            at[n] = sn_dim_of(x, n) == 1 ? sn_mul(all[i], 0) : all[i];
            n++;
        }
    return sn_at_at(c->at, x, at);
}

static sn_tensor change_score(const sn_score_ctx *s) {
    const callbacks *b = s->user;
    const onnx_attention *a = b->a;
    onnx_call *c = a->c;
    sn_tensor y = s->score;
    if (a->cap > 0) y = sn_mul(sn_tanh(sn_div(y, a->cap)), a->cap);
    return a->bias ? sn_add(y, sn_cast(element(c, s, b->bias), sn_dtype_of(y))) : y;
}

static sn_tensor both(onnx_call *c, sn_tensor x, sn_tensor y) {
    return x ? sn_and(x, y) : y;
}

static sn_tensor is_visible(const sn_score_ctx *s) {
    const callbacks *b = s->user;
    const onnx_attention *a = b->a;
    onnx_call *c = a->c;
    sn_tensor see = a->visible ? element(c, s, b->visible) : NULL, at = s->q;
    if (a->first)
        at = sn_add(at, element(c, s, b->first));
    else if (a->past)
        at = sn_add_at(c->at, sn_operand_tensor(at), sn_operand_dim(a->past));
    if (a->causal) see = both(c, see, sn_le(s->k, at));
    if (a->left >= 0) see = both(c, see, sn_le(sn_sub(at, s->k), (double)a->left));
    if (a->right >= 0) see = both(c, see, sn_le(sn_sub(s->k, at), (double)a->right));
    if (a->keys) see = both(c, see, sn_lt(s->k, element(c, s, b->keys)));
    return see;
}

/* [B] as a table beside the scores. */
static sn_tensor by_batch(onnx_call *c, sn_tensor x) {
    return sn_reshape(sn_cast(x, SN_I32), SN_REST, 1, 1, 1);
}

sn_tensor onnx_attend(const onnx_attention *from) {
    onnx_attention left = *from, *a = &left; /* what args does not say */
    onnx_call *c = a->c;
    callbacks b = {.a = a};
    sn_attention_args args = {.q = a->q, .k = a->k, .v = a->v, .user = &b, .sink = a->sink};
    const sn_dim more = sn_dim_sub(c->m, sn_dim_of(a->k, 2), sn_dim_of(a->q, 2));
    args.scale = a->scale;
    if (a->scale < 0) args.q = sn_neg(a->q), args.scale = -a->scale;
    if (a->causal && !a->first && a->past == more) args.causal = true, a->causal = false;
    if (a->bias) b.bias = capture(&args, a, a->bias);
    if (a->visible) b.visible = capture(&args, a, a->visible);
    if (a->first) b.first = capture(&args, a, by_batch(c, a->first));
    if (a->keys) b.keys = capture(&args, a, by_batch(c, a->keys));
    if (a->cap > 0 || a->bias) args.score = change_score;
    if (a->visible || a->causal || a->left >= 0 || a->right >= 0 || a->keys) args.mask = is_visible;
    return onnx_again(c) ? NULL : sn_attention_at(c->at, &args);
}

sn_tensor onnx_append(onnx_call *c, int i, sn_tensor x, int out) {
    sn_tensor past = onnx_in_or_null(c, i);
    if (past) x = onnx_after_past(c, 2, past, x);
    if (out < c->node->out.n) onnx_set(c, out, x);
    return x;
}

/* Each of the heads of keys and values serves equally many heads of queries. */
static sn_tensor repeat_heads(onnx_call *c, sn_tensor x, sn_dim heads) {
    const sn_dim groups = sn_dim_of(x, 1), rows = sn_dim_of(x, 2), width = sn_dim_of(x, 3),
                 n = sn_dim_of(x, 0);
    if (groups == heads) return x;
    const sn_dim each = sn_dim_quot(c->m, heads, groups);
    return sn_reshape(sn_broadcast(sn_expand(x, 2), n, groups, each, rows, width), n, heads, rows,
                      width);
}

static double scale_of(onnx_call *c, double scale, sn_dim width) {
    if (scale == 0 && width < 1) onnx_fail(c, "the width of its heads is not a number");
    return scale != 0 ? scale : 1 / sqrt((double)width);
}

static sn_tensor products(onnx_call *c, const onnx_attention *a) {
    sn_tensor k = repeat_heads(c, a->k, sn_dim_of(a->q, 1));
    return sn_mul(sn_matmul(a->q, sn_swap(k, 2, 3)), scale_of(c, a->scale, sn_dim_of(a->q, 3)));
}

/* The scores as an output: 0 the products, 1 capped, 2 with masks, 3 the weights. */
static sn_tensor scores(onnx_call *c, const onnx_attention *a, int64_t mode) {
    const sn_dtype type = sn_dtype_of(a->q);
    sn_tensor s = products(c, a), see = NULL;
    if (mode >= 1 && a->cap > 0) s = sn_mul(sn_tanh(sn_div(s, a->cap)), a->cap);
    if (mode < 2) return s;
    if (a->bias) s = sn_add(s, sn_cast(a->bias, type));
    const sn_dim T = sn_dim_of(s, 2), S = sn_dim_of(s, 3);
    sn_tensor i = sn_iota(c->m, SN_I32, 0, T, S), j = sn_iota(c->m, SN_I32, 1, T, S);
    if (a->first)
        i = sn_add(by_batch(c, a->first), i);
    else if (a->past)
        i = sn_add(i, sn_dim_tensor(c->m, SN_I32, a->past));
    if (a->visible) see = a->visible;
    if (a->causal) see = both(c, see, sn_le(j, i));
    if (a->left >= 0) see = both(c, see, sn_le(sn_sub(i, j), (double)a->left));
    if (a->right >= 0) see = both(c, see, sn_le(sn_sub(j, i), (double)a->right));
    if (a->keys) see = both(c, see, sn_lt(j, by_batch(c, a->keys)));
    if (see) s = sn_where(see, s, (double)-INFINITY);
    if (mode == 2) return s;
    sn_tensor none = sn_eq(sn_amax_keep(s, -1), (double)-INFINITY);
    return sn_where(none, 0, sn_softmax(s, -1));
}

/* A mask whose last axis is shorter than the keys, with what hides the others. */
static sn_tensor pad_mask(onnx_call *c, sn_tensor mask, sn_dim keys) {
    const sn_dim n = sn_dim_of(mask, -1);
    if (n == 1 || n == keys || n < 0 || keys < n) return mask;
    if (sn_dtype_of(mask) != SN_BOOL) return sn_pad(mask, -1, 0, keys - n, (double)-INFINITY);
    return sn_ne(sn_pad(sn_cast(mask, SN_I32), -1, 0, keys - n, 0), 0);
}

bool onnx_attention_op(onnx_call *c) {
    const int64_t heads = onnx_int(c, "q_num_heads", 0), kv = onnx_int(c, "kv_num_heads", heads);
    sn_tensor mask = onnx_in_or_null(c, 3), past = onnx_in_or_null(c, 4);
    const bool flat = sn_rank_of(onnx_in(c, 0)) == 3;
    if (flat && (heads < 1 || kv < 1)) return onnx_fail(c, "its numbers of heads are missing");
    onnx_attention a = {.c = c,
                        .q = onnx_split_heads(c, onnx_in(c, 0), heads),
                        .scale = onnx_float(c, "scale", 0),
                        .cap = onnx_float(c, "softcap", 0),
                        .causal = onnx_int(c, "is_causal", 0),
                        .left = onnx_int(c, "left_window_size", -1),
                        .right = onnx_int(c, "right_window_size", -1),
                        .keys = onnx_in_or_null(c, 6),
                        .past = past ? sn_dim_of(past, 2) : 0};
    a.k = onnx_append(c, 4, onnx_split_heads(c, onnx_in(c, 1), kv), 1);
    a.v = onnx_append(c, 5, onnx_split_heads(c, onnx_in(c, 2), kv), 2);
    if (a.keys) /* the last of these is the key of the last query */
        a.first = sn_sub(sn_cast(a.keys, SN_I32), sn_dim_tensor(c->m, SN_I32, sn_dim_of(a.q, 2)));
    if (mask) mask = pad_mask(c, mask, sn_dim_of(a.k, 2));
    if (mask && sn_dtype_of(mask) == SN_BOOL)
        a.visible = mask;
    else
        a.bias = mask;
    sn_tensor y = onnx_attend(&a);
    if (c->node->out.n > 3 && *ONNX_AT(c->node->out, const char *, 3) &&
        !onnx_set(c, 3, scores(c, &a, onnx_int(c, "qk_matmul_output_mode", 0))))
        return false;
    return y && onnx_set(c, 0, flat ? sn_merge_heads(y) : y);
}

/* ai.onnx.preview: the user's functions of the scores and of the weights are graphs. */
static bool modify(onnx_call *c, const char *name, sn_tensor *x) {
    const onnx_attribute *f = onnx_attr(c, name);
    onnx_value *out[ONNX_OUT_MAX] = {NULL}, *in = onnx_tensor_value(c->im, NULL, *x);
    if (!f) return true;
    if (!f->graph || f->graph->input.n != 1 || f->graph->output.n != 1)
        return onnx_fail(c, "%s needs one input and one output", name);
    if (!c->im->run_graph(c, f->graph, 1, &in, out)) return false;
    *x = sn_cast(onnx_tensor_of(c, out[0]), sn_dtype_of(*x));
    return true;
}

bool onnx_flex_attention(onnx_call *c) {
    const sn_dtype type = sn_dtype_of(onnx_in(c, 0));
    sn_dtype wide = type == SN_F64 ? SN_F64 : SN_F32;
    onnx_attention a = {.c = c,
                        .q = onnx_in(c, 0),
                        .k = onnx_in(c, 1),
                        .v = onnx_in(c, 2),
                        .scale = onnx_float(c, "scale", 0)};
    if (onnx_attr(c, "softmax_precision") &&
        !onnx_dtype(onnx_int(c, "softmax_precision", 0), &wide))
        return onnx_fail(c, "its softmax_precision is not supported");
    if (sn_rank_of(a.q) != 4 || sn_rank_of(a.k) != 4 || sn_rank_of(a.v) != 4)
        return onnx_fail(c, "its inputs need four axes");
    sn_tensor s = sn_cast(products(c, &a), wide);
    if (!modify(c, "score_mod", &s)) return false;
    s = sn_softmax(s, -1);
    if (!modify(c, "prob_mod", &s)) return false;
    sn_tensor v = repeat_heads(c, a.v, sn_dim_of(a.q, 1));
    return onnx_set(c, 0, sn_cast(sn_matmul(s, sn_cast(v, wide)), type));
}

/* ---- linear attention ---- */

/* The sequences of the recurrence, [B, T, ..]: q [.., Hk, G, dk], k [.., Hk, dk], v [.., Hk, dv], and perhaps
 * what is left of the state, [.., Hk, 1 or dk], and the rate, [.., Hk, 1]. */
typedef struct recurrence {
    onnx_call *c;
    bool decays, corrects;
} recurrence;

static void step(sn_scan_step *s) {
    const recurrence *r = s->user;
    onnx_call *c = r->c;
    const sn_tensor *more = s->x + 3;
    sn_tensor state = s->carry[0], v = s->x[2];
    if (r->decays) state = sn_mul(state, sn_expand(*more++, -1));
    if (r->corrects) {
        sn_tensor found = sn_squeeze(sn_matmul(sn_expand(s->x[1], -2), state), -2);
        v = sn_mul(*more, sn_sub(v, found));
    }
    s->next[0] = sn_add(state, sn_mul(sn_expand(s->x[1], -1), sn_expand(v, -2)));
    s->y[0] = sn_matmul(s->x[0], s->next[0]);
}

bool onnx_linear_attention(onnx_call *c) {
    const char *rule = onnx_text(c, "update_rule", "gated_delta");
    const int64_t heads = onnx_int(c, "q_num_heads", 0), kv = onnx_int(c, "kv_num_heads", 0);
    sn_tensor q = onnx_in(c, 0), k = onnx_in(c, 1), v = onnx_in(c, 2), state, decay, beta;
    recurrence r = {c, strstr(rule, "gated") != NULL, strstr(rule, "delta") != NULL};
    if (heads < 1 || kv < 1 || heads % kv)
        return onnx_fail(c, "q_num_heads is not a multiple of kv_num_heads");
    if (strcmp(rule, "linear") != 0 && !r.decays && !r.corrects)
        return onnx_fail(c, "update_rule '%s' is not known", rule);
    if (sn_rank_of(q) != 3 || sn_rank_of(k) != 3 || sn_rank_of(v) != 3)
        return onnx_fail(c, "its inputs need three axes");
    const sn_dtype type = sn_dtype_of(q);
    const sn_dim n = sn_dim_of(q, 0), T = sn_dim_of(q, 1),
                 dk = sn_dim_quot(c->m, sn_dim_of(q, 2), heads),
                 dv = sn_dim_quot(c->m, sn_dim_of(v, 2), kv);
    state = onnx_in_or_null(c, 3);
    const sn_dtype kept = state ? sn_dtype_of(state) : type;
    q = sn_mul(sn_cast(q, SN_F32), scale_of(c, onnx_float(c, "scale", 0), dk));
    sn_scan_args a = {
        .carry = {state ? sn_cast(state, SN_F32) : sn_full(c->m, SN_F32, 0, n, kv, dk, dv)},
        .x = {sn_reshape(q, n, T, kv, heads / kv, dk), sn_reshape(sn_cast(k, SN_F32), n, T, kv, dk),
              sn_reshape(sn_cast(v, SN_F32), n, T, kv, dv)},
        .axis = 1,
        .body = step,
        .user = &r};
    int more = 3;
    if (r.decays) {
        decay = sn_exp(sn_cast(onnx_in(c, 4), SN_F32));
        a.x[more++] = sn_reshape(decay, n, T, kv, sn_dim_quot(c->m, sn_dim_of(decay, 2), kv));
    }
    if (r.corrects) {
        beta = sn_cast(onnx_in(c, 5), SN_F32);
        a.x[more] = sn_broadcast(sn_expand(beta, 3), n, T, kv, 1);
    }
    sn_scanned y = sn_scan_at(c->at, &a);
    sn_tensor out = sn_cast(sn_reshape(y.y[0], n, T, sn_dim_mul(c->m, heads, dv)), type);
    return onnx_set(c, 0, out) && (c->node->out.n < 2 || onnx_set(c, 1, sn_cast(y.carry[0], kept)));
}

/* ---- rotary positions ---- */

sn_tensor onnx_rotate(onnx_call *c, sn_tensor x, sn_tensor cosine, sn_tensor sine, sn_dim width,
                      bool pairs) {
    const sn_dim d = sn_dim_of(x, 3), n = sn_dim_of(x, 0), h = sn_dim_of(x, 1),
                 rows = sn_dim_of(x, 2);
    const sn_dim half = sn_dim_quot(c->m, width, 2);
    sn_tensor rest = d == width ? NULL : sn_slice(x, 3, width, sn_dim_sub(c->m, d, width)), a, b;
    if (rest) x = sn_slice(x, 3, 0, width);
    if (pairs) {
        x = sn_reshape(x, n, h, rows, half, 2);
        a = sn_index(x, 4, 0), b = sn_index(x, 4, 1);
    } else
        a = sn_slice(x, 3, 0, half), b = sn_slice(x, 3, half, half);
    sn_tensor p = sn_sub(sn_mul(a, cosine), sn_mul(b, sine));
    sn_tensor q = sn_add(sn_mul(b, cosine), sn_mul(a, sine));
    sn_tensor y = pairs ? sn_reshape(sn_stack(4, p, q), n, h, rows, width) : sn_concat(3, p, q);
    return rest ? sn_concat(3, y, rest) : y;
}

sn_tensor onnx_rows_at(onnx_call *c, sn_tensor table, sn_tensor at) {
    return sn_expand(at ? sn_gather(table, 0, at) : table, 1);
}

bool onnx_rotary(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0), at = onnx_in_or_null(c, 3);
    const bool flat = sn_rank_of(x) == 3;
    const int64_t heads = onnx_int(c, "num_heads", 0),
                  width = onnx_int(c, "rotary_embedding_dim", 0);
    if (flat && heads < 1) return onnx_fail(c, "num_heads is missing");
    x = onnx_split_heads(c, x, heads);
    sn_tensor y =
        onnx_rotate(c, x, onnx_rows_at(c, onnx_in(c, 1), at), onnx_rows_at(c, onnx_in(c, 2), at),
                    width ? width : sn_dim_of(x, 3), onnx_int(c, "interleaved", 0));
    return onnx_set(c, 0, flat ? sn_merge_heads(y) : y);
}
