/* attention.c: attention with score and mask callbacks, which become scalar regions of one node;
 * boolean masks; heads [PH22 A4, A5]. */
#include "frontend/front.h"

#include <math.h>

enum { MAX_ARG = 5 + SN_MAX_CAPTURED };

/* Where there is .past, it is the last captured tensor, which callbacks do not see: what it holds for
 * batch b. */
static sn_tensor take_past(const sn_attention_args *a, int n_captured, sn_tensor *captured,
                           sn_tensor b) {
    if (!a->past) return NULL;
    sn_tensor past = captured[n_captured - 1];
    captured[n_captured - 1] = NULL;
    return sn_at(past, b);
}

/* The indices of one score as region arguments from `first` on: b, h, q, k, captured. */
static sn_score_ctx make_context(const sn_attention_args *a, int first, int n_captured,
                                 sn_node **arg, sn_tensor *captured) {
    sn_module *m = a->q->m;
    sn_dim ranks = sn_dim_const(m, a->mesh ? a->ranks : 1);
    for (int i = 0; i < 4; i++) arg[first + i] = sn_arg(m, first + i, SN_I32, 0, NULL);
    for (int i = 0; i < n_captured; i++) {
        sn_tensor c = a->captured[i];
        captured[i] = arg[first + 4 + i] =
            sn_arg(m, first + 4 + i, (sn_dtype)c->dtype, c->rank, c->shape);
    }
    return (sn_score_ctx){.m = m,
                          .b = arg[first],
                          .h = arg[first + 1],
                          .q = arg[first + 2],
                          .k = arg[first + 3],
                          .n_q = sn_dim_mul(m, a->q->shape[2], ranks),
                          .n_k = sn_dim_mul(m, a->k->shape[2], ranks),
                          .past = take_past(a, n_captured, captured, arg[first]),
                          .captured = captured,
                          .user = a->user};
}

/* The result of a callback, checked: a scalar of type t. NULL: an error was recorded. */
static sn_tensor call_back(sn_module *m, const char *what, sn_score_fn fn, const sn_score_ctx *c,
                           sn_dtype t) {
    char text[SN_NODE_TEXT] = "NULL";
    sn_module_set_callback(m, what);
    sn_tensor r = fn(c);
    sn_module_set_callback(m, NULL);
    if (sn_module_error(m)->code) return NULL;
    if (r && r->m == m && r->rank == 0 && r->dtype == t) return r;
    if (r) sn_node_text(r, text);
    sn_module_fail(m, SN_ERR_SHAPE,
                   "attention: the %s callback returned %s; it must return a %s "
                   "scalar made from its context%s",
                   what, text, sn_dtype_name(t),
                   c->score ? "" : " (c->score exists in score callbacks only)");
    return NULL;
}

/* visible: k <= q + past, and q + past - k < window; q and k are i32; past NULL: Tk - Tq. NULL:
 * always visible. */
static sn_tensor causal_rule(sn_loc at, sn_tensor q, sn_tensor k, sn_dim Tq, sn_dim Tk,
                             sn_tensor past, int64_t window) {
    sn_operand before = past ? sn_operand_tensor(past) : sn_operand_dim(sn_dim_sub(q->m, Tk, Tq));
    sn_tensor last = sn_add_at(at, sn_operand_tensor(q), before);
    /* a single query is the last one: no key is in its future */
    sn_tensor seen =
        Tq == 1 && !past ? NULL : sn_le_at(at, sn_operand_tensor(k), sn_operand_tensor(last));
    if (window <= 0) return seen;
    sn_tensor back = sn_sub_at(at, sn_operand_tensor(last), sn_operand_tensor(k));
    sn_tensor near = sn_lt_at(at, sn_operand_tensor(back), sn_operand_number((double)window));
    return seen ? sn_and_at(at, sn_operand_tensor(seen), sn_operand_tensor(near)) : near;
}

sn_tensor sn_query_key_distance_at(sn_loc at, const sn_score_ctx *c) {
    if (!c) return NULL;
    sn_operand before =
        c->past ? sn_operand_tensor(c->past) : sn_operand_dim(sn_dim_sub(c->m, c->n_k, c->n_q));
    sn_tensor last = sn_add_at(at, sn_operand_tensor(c->q), before);
    return sn_sub_at(at, sn_operand_tensor(last), sn_operand_tensor(c->k));
}

static const sn_region *mask_region(sn_loc at, const sn_attention_args *a, int n_captured) {
    sn_module *m = a->q->m;
    sn_node *arg[MAX_ARG];
    sn_tensor captured[SN_MAX_CAPTURED] = {NULL}; /* entries beyond the captured tensors are NULL */
    sn_score_ctx c = make_context(a, 0, n_captured, arg, captured);
    sn_tensor seen = a->causal ? causal_rule(at, c.q, c.k, c.n_q, c.n_k, c.past, a->window) : NULL;
    if (a->mask) {
        sn_tensor allowed = call_back(m, "mask", a->mask, &c, SN_BOOL);
        sn_module_set_loc(m, at);
        if (!allowed) return NULL;
        seen = seen ? sn_b_binary(SN_OP_and, seen, allowed) : allowed;
    }
    return seen ? sn_region_new(m, 4 + n_captured, arg, 1, &seen) : NULL;
}

static const sn_region *score_region(sn_loc at, const sn_attention_args *a, int n_captured) {
    sn_module *m = a->q->m;
    sn_node *arg[MAX_ARG];
    sn_tensor captured[SN_MAX_CAPTURED] = {NULL}; /* entries beyond the captured tensors are NULL */
    sn_score_ctx c = make_context(a, 1, n_captured, arg, captured);
    sn_dtype t = a->q->dtype == SN_F64 ? SN_F64 : SN_F32; /* scores of 16-bit types are f32 */
    c.score = arg[0] = sn_arg(m, 0, t, 0, NULL);
    sn_tensor s = a->score ? call_back(m, "score", a->score, &c, t) : arg[0];
    if (s && a->weight) {
        c.score = s;
        s = call_back(m, "weight", a->weight, &c, t);
    }
    sn_module_set_loc(m, at);
    return s && s != arg[0] ? sn_region_new(m, 5 + n_captured, arg, 1, &s) : NULL;
}

/* Tables that a callback reads at h must have a row for every head; otherwise the index would be
 * clamped to another head's row. `first`: the region's argument b. */
static bool check_heads(const sn_attention_args *a, const sn_region *r, int first, int n_captured) {
    sn_module *m = a->q->m;
    int64_t heads, rows;
    if (!r || !sn_dim_is_const(m, a->q->shape[1], &heads)) return true;
    sn_order order = sn_region_topo(m, r);
    for (int i = 0; i < order.n; i++) {
        const sn_node *n = order.node[i];
        for (int k = 1; n->op == SN_OP_gather_nd && k < n->n_in; k++) {
            char text[SN_NODE_TEXT];
            sn_tensor table = n->in[0];
            if (n->in[k] != r->arg[first + 1] || !sn_dim_is_const(m, table->shape[k - 1], &rows) ||
                rows >= heads)
                continue;
            for (int c = 0; c < n_captured; c++)
                if (table == r->arg[first + 4 + c]) table = a->captured[c];
            sn_module_set_loc(m, n->loc);
            sn_module_fail(m, SN_ERR_SHAPE,
                           "attention: a callback reads %s at head h, but axis %d has %lld rows "
                           "for %lld heads",
                           sn_node_text(table, text), k - 1, (long long)rows, (long long)heads);
            return false;
        }
    }
    return true;
}

static sn_tensor fail_attention(const sn_attention_args *a, const char *why) {
    char q[SN_NODE_TEXT], k[SN_NODE_TEXT], v[SN_NODE_TEXT];
    return sn_module_fail(a->q->m, SN_ERR_SHAPE,
                          "attention: q %s, k %s, v %s: %s. Hint: q [B, H, Tq, d], k [B, Hk, Tk, "
                          "d], v [B, Hk, Tk, dv]; sn_split_heads makes them",
                          sn_node_text(a->q, q), sn_node_text(a->k, k), sn_node_text(a->v, v), why);
}

/* What is wrong with the options themselves; NULL: nothing. */
static const char *bad_option(const sn_attention_args *a) {
    if (!(a->scale >= 0 && a->scale < INFINITY))
        return "the scale is not a positive number (0: 1 / sqrt d; for other factors use a score "
               "callback)";
    if (a->lse && a->weight) return "weights that are not a softmax have no log-sum-exp";
    if (a->lse && a->sink) return "with a sink there is no .lse: compute attention without it";
    if ((a->mix_scores || a->mix_weights) &&
        (a->weight || a->sink || a->dropout != 0 || a->lse || a->mesh))
        return ".mix_scores and .mix_weights go with neither .weight, .sink, .dropout, .lse nor "
               ".mesh";
    if (a->mesh && a->ranks < 1) return "rows are divided among ranks, but .ranks is not positive";
    if (a->mesh && (a->past || a->weight || a->sink || a->dropout != 0 || a->lse))
        return ".past, .weight, .sink, .dropout and .lse need rows that are not divided among "
               "ranks";
    if (a->piece < 0) return "a piece of keys has at least one byte";
    if (a->divide && !a->weight) return "a divisor needs .weight: softmax divides by its sum";
    if ((unsigned)a->divide > SN_DIVIDE_BY_ABS_SUM) return "the divisor is unknown";
    if (a->sink && a->weight && !a->divide)
        return "a sink needs .divide: without it nothing is divided by the sum of the weights";
    if (a->window < 0) return "the window is negative";
    if (a->window && !a->causal)
        return "a window needs .causal; for other windows use a mask callback";
    if (a->dropout != 0 && !(a->dropout > 0 && a->dropout < 1))
        return "the dropout rate is not in [0, 1)";
    if (a->dropout != 0 && !a->rng) return "dropout needs .rng, i64[2]: seed and step";
    return NULL;
}

/* Adds .past to the captured tensors. */
static bool capture_past(sn_attention_args *a, int *n) {
    if (*n == SN_MAX_CAPTURED || !a->causal || a->past->rank != 1 || a->past->dtype != SN_I32 ||
        (a->q->rank == 4 && a->past->shape[0] != a->q->shape[0]))
        return sn_module_fail(a->q->m, SN_ERR_USAGE,
                              "attention: .past needs .causal, i32 [B], and at most %d captured "
                              "tensors",
                              SN_MAX_CAPTURED - 1) == NULL;
    a->captured[(*n)++] = a->past;
    return true;
}

/* .sink as [B, H, Tq]; NULL: an error was recorded. */
static sn_tensor sink_of(const sn_attention_args *a) {
    sn_tensor z = a->sink;
    sn_module *m = z->m;
    sn_dim full[3] = {a->q->shape[0], a->q->shape[1], a->q->shape[2]}, heads[3] = {1, 1, 1};
    bool fits = sn_dtype_is_float((sn_dtype)z->dtype) && (z->rank == 1 || z->rank == 3);
    if (fits && z->rank == 1) {
        heads[1] = z->shape[0];
        z = sn_b_reshape(z, 3, heads);
    }
    for (int i = 0; fits && i < 3; i++) fits = z->shape[i] == 1 || z->shape[i] == full[i];
    if (fits) return sn_b_broadcast(sn_b_cast(z, a->q->dtype == SN_F64 ? SN_F64 : SN_F32), 3, full);
    char q[SN_NODE_TEXT], t[SN_NODE_TEXT];
    sn_module_fail(
        m, SN_ERR_SHAPE,
        "attention: the sink %s does not fit q %s. Hint: floats [H] or [B, H, Tq], where "
        "axes may be 1",
        sn_node_text(a->sink, t), sn_node_text(a->q, q));
    return NULL;
}

/* How many ranks before its own a query may see, of zigzag halves: the mask hides others. -1: all, and
 * later ones. */
static int64_t ranks_behind(const sn_attention_args *a) {
    int64_t rows, all = (a->zigzag ? 2 * a->ranks : a->ranks) - 1;
    if (!a->causal || a->q->shape[2] != a->k->shape[2]) return -1;
    if (!a->window || !sn_dim_is_const(a->q->m, a->q->shape[2], &rows) || rows < 2) return all;
    if (a->zigzag) rows /= 2;
    int64_t far = (a->window - 1) / rows + ((a->window - 1) % rows != 0);
    return far < all ? far : all;
}

/* Whether the matrices that mix heads fit; otherwise an error was recorded. */
static bool check_mixes(const sn_attention_args *a) {
    const sn_tensor mix[2] = {a->mix_scores, a->mix_weights};
    for (int i = 0; i < 2; i++) {
        const sn_node *w = mix[i], *q = a->q;
        if (!w ||
            (sn_dtype_is_float((sn_dtype)w->dtype) && w->rank == 2 && w->shape[0] == q->shape[1] &&
             w->shape[1] == q->shape[1] && a->k->shape[1] == q->shape[1]))
            continue;
        char text[2][SN_NODE_TEXT];
        sn_module_fail(
            q->m, SN_ERR_SHAPE,
            "attention: .%s %s does not fit q %s. Hint: floats [H, H], and as many heads "
            "of k and v as of q",
            i ? "mix_weights" : "mix_scores", sn_node_text(w, text[0]), sn_node_text(q, text[1]));
        return false;
    }
    return true;
}

static sn_tensor make_attention(sn_loc at, const sn_attention_args *given) {
    sn_attention_args args = *given, *a = &args;
    sn_tensor in[7 + SN_MAX_CAPTURED] = {a->q, a->k, a->v}, bad;
    int n = 0, drops = a->dropout != 0, sinks = a->sink != NULL, first = 3;
    if (a->mix_scores) in[first++] = a->mix_scores;
    if (a->mix_weights) in[first++] = a->mix_weights;
    while (n < SN_MAX_CAPTURED && a->captured[n]) n++;
    if (a->past && a->q && !sn_module_error(a->q->m)->code && !capture_past(a, &n))
        return sn_module_error_node(a->q->m);
    for (int i = 0; i < n; i++) in[first + i] = a->captured[i];
    if (sinks) in[first + n] = a->sink;
    if (drops) in[first + n + sinks] = a->rng;
    if (!front_enter(at, "attention", first + n + sinks + drops, first + n, in, &bad)) return bad;
    sn_module *m = a->q->m;
    const char *option = bad_option(a);
    if (option) return sn_module_fail(m, SN_ERR_USAGE, "attention: %s", option);
    const sn_node *q = a->q, *k = a->k, *v = a->v;
    sn_dim group;
    int64_t d = 0;
    if (q->rank != 4 || k->rank != 4 || v->rank != 4) return fail_attention(a, "each needs 4 axes");
    if (q->dtype != k->dtype || q->dtype != v->dtype || !sn_dtype_is_float((sn_dtype)q->dtype))
        return fail_attention(a, "one float type for all");
    if (q->shape[0] != k->shape[0] || q->shape[0] != v->shape[0])
        return fail_attention(a, "the batch sizes differ");
    if (k->shape[1] != v->shape[1] || k->shape[2] != v->shape[2])
        return fail_attention(a, "keys and values differ in number, or in the number of heads");
    if (q->shape[3] != k->shape[3]) return fail_attention(a, "the widths of q and k differ");
    if (!sn_dim_div(m, q->shape[1], k->shape[1], &group))
        return fail_attention(a,
                              "the number of K/V heads does not divide the number of query heads");
    if (!(a->scale > 0) && (!sn_dim_is_const(m, q->shape[3], &d) || d < 1))
        return fail_attention(a, "q's width is symbolic: give .scale");
    double scale = a->scale > 0 ? a->scale : 1 / sqrt((double)d);
    if (!check_mixes(a)) return sn_module_error_node(m);
    if (sinks && !(in[first + n] = sink_of(a))) return sn_module_error_node(m);
    sn_attr attr[11] = {SN_FLT(scale, scale)};
    int n_attr = 1;
    if (a->weight) attr[n_attr++] = SN_INT(weights, SN_WEIGHTS_PLAIN + (int)a->divide);
    const sn_region *score = a->score || a->weight ? score_region(at, a, n) : NULL;
    const sn_region *mask = a->causal || a->mask ? mask_region(at, a, n) : NULL;
    if (sn_module_error(m)->code || !check_heads(a, score, 1, n) || !check_heads(a, mask, 0, n))
        return bad;
    if (score) attr[n_attr++] = SN_REG(score, score);
    if (mask) attr[n_attr++] = SN_REG(mask, mask);
    if (sinks) attr[n_attr++] = SN_INT(sink, 1);
    if (drops) {
        attr[n_attr++] = SN_FLT(rate, a->dropout);
        attr[n_attr++] = SN_INT(stream, front_stream(m));
    }
    if (first > 3) {
        attr[n_attr++] = SN_INT(mix, (a->mix_scores ? 1 : 0) + (a->mix_weights ? 2 : 0));
        return sn_node_new(m, SN_OP_mixed_attention, first + n, in, n_attr, attr);
    }
    if (!a->mesh || a->ranks == 1)
        return sn_node_new(m, SN_OP_attention, 3 + n + sinks + drops, in, n_attr, attr);
    int64_t behind = ranks_behind(a);
    attr[n_attr++] = SN_STR(mesh, sn_arena_str(m, a->mesh));
    attr[n_attr++] = SN_INT(ranks, a->ranks);
    if (behind >= 0) attr[n_attr++] = SN_INT(behind, behind);
    if (a->zigzag) attr[n_attr++] = SN_INT(zigzag, 1);
    if (a->piece) attr[n_attr++] = SN_INT(piece, a->piece);
    return sn_node_new(m, SN_OP_ring_attention, 3 + n, in, n_attr, attr);
}

sn_tensor sn_attention_at(sn_loc at, const sn_attention_args *args) {
    if (!args) return NULL;
    sn_tensor y = make_attention(at, args);
    if (args->lse) *args->lse = y && !sn_module_error(y->m)->code ? sn_b_attention_lse(y) : y;
    return y;
}

/* ---- heads ---- */

sn_tensor sn_split_heads_at(sn_loc at, sn_tensor x, int64_t heads) {
    FRONT_ENTER("split_heads", x);
    sn_dim d;
    char t[SN_NODE_TEXT];
    if (x->rank != 3 || heads < 1 || !sn_dim_div(x->m, x->shape[2], heads, &d))
        return sn_module_fail(
            x->m, SN_ERR_SHAPE,
            "split_heads: %s cannot be split into %lld equal heads; expected [B, T, heads d]",
            sn_node_text(x, t), (long long)heads);
    sn_dim shape[4] = {x->shape[0], x->shape[1], heads, d};
    return sn_b_transpose(sn_b_reshape(x, 4, shape), 4, (const int64_t[]){0, 2, 1, 3});
}

sn_tensor sn_merge_heads_at(sn_loc at, sn_tensor x) {
    FRONT_ENTER("merge_heads", x);
    char t[SN_NODE_TEXT];
    if (x->rank != 4)
        return sn_module_fail(x->m, SN_ERR_SHAPE, "merge_heads: %s is not [B, H, T, D]",
                              sn_node_text(x, t));
    sn_dim shape[3] = {x->shape[0], x->shape[2], sn_dim_mul(x->m, x->shape[1], x->shape[3])};
    return sn_b_reshape(sn_b_transpose(x, 4, (const int64_t[]){0, 2, 1, 3}), 3, shape);
}

sn_tensor sn_kv_cache_at(sn_loc at, sn_tensor x, const char *name, sn_dim past, int64_t capacity) {
    FRONT_ENTER("kv_cache", x);
    char t[SN_NODE_TEXT];
    int axis = x->rank - 2;
    if (axis < 0)
        return sn_module_fail(x->m, SN_ERR_SHAPE, "kv_cache: %s is not [.., T, d]",
                              sn_node_text(x, t));
    sn_dim shape[SN_MAX_RANK + 1], start[SN_MAX_RANK + 1] = {0}, T = x->shape[axis];
    for (int i = 0; i < x->rank; i++) shape[i] = i == axis ? capacity : x->shape[i];
    for (int i = 0; i < x->rank; i++)
        if (!sn_dim_is_const(x->m, shape[i], NULL))
            return sn_module_fail(
                x->m, SN_ERR_SHAPE,
                "kv_cache: axis %d of %s must be a number: the size of a state is fixed", i,
                sn_node_text(x, t));
    shape[x->rank] = start[x->rank] = SN_END;
    start[axis] = past;
    sn_tensor state = sn_state_at(at, x->m, name, (sn_dtype)x->dtype, shape);
    if (front_assigned(state))
        return sn_module_fail(x->m, SN_ERR_USAGE,
                              "kv_cache: this entry already has a cache '%s'. Hint: layers that "
                              "share weights still need separate caches with different names",
                              name);
    sn_tensor next = sn_update_at(at, state, x, start);
    sn_assign_at(at, state, next);
    return sn_slice_at(at, next, axis, 0, sn_dim_add(x->m, past, T), 1);
}

/* ---- masks ---- */

sn_tensor sn_window_mask_at(sn_loc at, sn_module *m, sn_dim Tq, sn_dim Tk, int64_t window) {
    if (!front_enter_module(at, m)) return m ? sn_module_error_node(m) : NULL;
    sn_tensor q = sn_b_iota(m, SN_I32, 2, (const sn_dim[]){Tq, 1}, 0);
    sn_tensor k = sn_b_iota(m, SN_I32, 2, (const sn_dim[]){1, Tk}, 1);
    sn_tensor seen = causal_rule(at, q, k, Tq, Tk, NULL, window);
    return seen ? seen : sn_full_at(at, m, SN_BOOL, 1, SN_DIMS(Tq, Tk));
}

sn_tensor sn_strict_mask_at(sn_loc at, sn_module *m, sn_dim Tq, sn_dim Tk) {
    if (!front_enter_module(at, m)) return m ? sn_module_error_node(m) : NULL;
    sn_tensor q = sn_b_iota(m, SN_I32, 2, (const sn_dim[]){Tq, 1}, 0);
    sn_tensor k = sn_b_iota(m, SN_I32, 2, (const sn_dim[]){1, Tk}, 1);
    q = sn_b_binary(SN_OP_add, q, sn_b_dim(m, SN_I32, sn_dim_sub(m, Tk, Tq)));
    return sn_b_binary(SN_OP_lt, k, q);
}

sn_tensor sn_length_mask_at(sn_loc at, sn_tensor lengths, sn_dim Tk) {
    FRONT_ENTER("length_mask", lengths);
    char t[SN_NODE_TEXT];
    if (lengths->rank != 1 || !front_is_integer(lengths))
        return sn_module_fail(lengths->m, SN_ERR_SHAPE, "length_mask: %s is not integers [B]",
                              sn_node_text(lengths, t));
    sn_tensor k =
        sn_b_iota(lengths->m, (sn_dtype)lengths->dtype, 4, (const sn_dim[]){1, 1, 1, Tk}, 3);
    sn_tensor n = sn_b_reshape(lengths, 4, (const sn_dim[]){lengths->shape[0], 1, 1, 1});
    return sn_b_binary(SN_OP_lt, k, n);
}

sn_tensor sn_document_mask_at(sn_loc at, sn_tensor ids) {
    FRONT_ENTER("document_mask", ids);
    char t[SN_NODE_TEXT];
    if (ids->rank != 2)
        return sn_module_fail(ids->m, SN_ERR_SHAPE, "document_mask: %s is not [B, T]",
                              sn_node_text(ids, t));
    sn_dim B = ids->shape[0], T = ids->shape[1];
    return sn_b_binary(SN_OP_eq, sn_b_reshape(ids, 4, (const sn_dim[]){B, 1, T, 1}),
                       sn_b_reshape(ids, 4, (const sn_dim[]){B, 1, 1, T}));
}

sn_tensor sn_mask_scores_at(sn_loc at, sn_tensor x, sn_tensor mask) {
    FRONT_ENTER("mask_scores", x, mask);
    char t[SN_NODE_TEXT];
    if (mask->dtype != SN_BOOL)
        return sn_module_fail(
            x->m, SN_ERR_SHAPE,
            "mask_scores: the mask %s is not bool. Hint: sn_ne(mask, 0) if 0 hides; "
            "sn_add a mask of zeros and -inf to the scores",
            sn_node_text(mask, t));
    return sn_where_at(at, mask, sn_operand_tensor(x), sn_operand_number(-INFINITY));
}
