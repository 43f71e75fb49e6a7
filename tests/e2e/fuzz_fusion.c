/* fuzz_fusion [seed [count [bf16 | exact]]]: random attention, products, views and rotations in random spellings, as a
 * user writes them, compiled at every fusion level: values against the evaluator, and the same bits for 1, 2,
 * 3 and 7 threads; exact: before and after the passes, over finite fields. What failed is printed as text. */
#include "frontend/sinter.h"
#include "passes/passes.h"
#include "runtime/rng.h"
#include "tests/support/exact_check.h"
#include "tests/support/fuzz/fuzz.h"
#include "tests/support/jit_run.h"
#include "tests/support/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct draw {
    sn_module *m;
    fuzz_rng r;
    sn_dim B, T, S; /* batch, queries, keys */
    int64_t H, HK, D, E;
    int n_leaf;
} draw;

enum { MAX_LENGTH = 320, MAX_PAST = 3000 };
static bool exact;
static exact_counts counts;
#define ROOT(g) (exact ? 4 : sqrt((double)(g)->D)) /* fields have no root of 7 or 17 */

static int below(draw *g, int n) {
    return fuzz_below(&g->r, n);
}

static int64_t pick(draw *g, int n, const int64_t *list) {
    return list[below(g, n)];
}
#define PICK(g, ...)                                                                               \
    pick(g, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})

/* ---- leaves: "iN.…" holds integers in [0, N), "o…" ascending ones, "z…" zeros and -inf ---- */

static const char *leaf_name(draw *g, const char *kind) {
    static char name[32]; /* copied by the module at once */
    snprintf(name, sizeof name, "%s.%d", kind, g->n_leaf++);
    return name;
}

static void *leaf_data(void *ctx, const sn_node *leaf, const int64_t *symbol, size_t *bytes) {
    (void)ctx;
    const char *name = sn_attr_str(leaf, SN_A_name, "");
    sn_dtype t = (sn_dtype)leaf->dtype;
    size_t n = 1;
    for (int a = 0; a < leaf->rank; a++) n *= (size_t)sn_dim_eval(leaf->m, leaf->shape[a], symbol);
    *bytes = n * sn_dtype_size(t);
    void *data = calloc(1, *bytes + 1);
    sn_rng r = {.seed = leaf->hash, .stream = SN_STREAM_DATA};
    int top = *name == 'i' ? atoi(name + 1) : 2, ascending = 0;
    size_t row = leaf->rank ? (size_t)sn_dim_eval(leaf->m, leaf->shape[leaf->rank - 1], symbol) : 1;
    for (size_t i = 0; data && i < n; i++) {
        double z = sn_rng_normal(&r) * 0.7;
        int whole = (int)(sn_rng_uniform(&r) * top);
        if (whole == top) whole--;
        if (i % row == 0) ascending = 0;
        ascending += *name == 'o' && whole == 1 && i % 3 == 0;
        if (*name == 'w') z *= 0.15; /* sums of products stay near 1 */
        if (*name == 'z') z = whole ? 0 : -INFINITY;
        if (*name == 'o') whole = ascending;
        if (t == SN_F32)
            ((float *)data)[i] = (float)z;
        else if (t == SN_F64)
            ((double *)data)[i] = z;
        else if (t == SN_I64)
            ((int64_t *)data)[i] = whole;
        else if (t == SN_I32)
            ((int32_t *)data)[i] = whole;
        else
            ((uint8_t *)data)[i] = (uint8_t)whole;
    }
    return data;
}

#define INPUT(g, kind, type, ...) sn_input(g->m, leaf_name(g, kind), type, __VA_ARGS__)
#define PARAM(g, kind, type, ...) sn_param(g->m, leaf_name(g, kind), type, __VA_ARGS__)

/* ---- masks over [.., T, S] ---- */

typedef struct positions {
    sn_tensor q, k; /* of a random type, shaped to broadcast to [T, S] */
    sn_dtype t;
} positions;

static positions draw_positions(draw *g) {
    positions p = {.t = (sn_dtype)PICK(g, SN_I32, SN_I32, SN_I64)};
    switch (below(g, 3)) {
    case 0:
        p.q = sn_iota(g->m, p.t, 0, g->T, g->S), p.k = sn_iota(g->m, p.t, 1, g->T, g->S);
        break;
    case 1:
        p.q = sn_expand(sn_arange(g->m, p.t, g->T), 1), p.k = sn_arange(g->m, p.t, g->S);
        break;
    default:
        p.q = sn_reshape(sn_arange(g->m, p.t, g->T), g->T, 1);
        p.k = sn_broadcast(sn_arange(g->m, p.t, g->S), g->T, g->S);
    }
    if (below(g, 2)) /* the last query sees the last key */
        p.q = sn_add(p.q, sn_sub(sn_dim_tensor(g->m, p.t, g->S), sn_dim_tensor(g->m, p.t, g->T)));
    return p;
}

static sn_tensor draw_plain_mask(draw *g) {
    positions p = draw_positions(g);
    int64_t w = PICK(g, 1, 2, 5, 16, 33, 64, 100);
    sn_tensor d = sn_sub(p.q, p.k), bound;
    switch (below(g, 20)) {
    case 0:
        return sn_le(p.k, p.q);
    case 1:
        return sn_and(sn_ge(d, 0), sn_lt(d, w));
    case 2:
        return sn_or(sn_le(p.k, p.q), sn_lt(p.k, w));
    case 3:
        return sn_eq(sn_mod(d, w), 0);
    case 4:
        return sn_eq(sn_div(p.q, w), sn_div(p.k, w));
    case 5:
        return sn_le(sn_abs(d), w);
    case 6: /* neighbours in a picture w pixels wide */
        return sn_and(sn_le(sn_abs(sn_sub(sn_div(p.q, w), sn_div(p.k, w))), 2),
                      sn_le(sn_abs(sn_sub(sn_mod(p.q, w), sn_mod(p.k, w))), 2));
    case 7: /* GPT-3's bands and columns */
        return sn_and(
            sn_le(p.k, p.q),
            sn_or(sn_lt(d, w), sn_eq(sn_mod(p.k, w), sn_sub(w, sn_full(g->m, p.t, 1, 1)))));
    case 8: {
        sn_tensor block = INPUT(g, "i2", SN_BOOL, 64, 64);
        sn_tensor bq = sn_min(sn_max(sn_div(p.q, 32), 0), 63), bk = sn_min(sn_div(p.k, 32), 63);
        bq = sn_broadcast(bq, g->T, g->S), bk = sn_broadcast(bk, g->T, g->S);
        return sn_at(block, bq, bk);
    }
    case 9: {
        sn_tensor length = INPUT(g, "i99", SN_I32, g->B);
        bound = sn_reshape(length, g->B, 1, 1, 1);
        return sn_lt(sn_reshape(sn_arange(g->m, SN_I32, g->S), 1, 1, 1, g->S), bound);
    }
    case 10: {
        sn_tensor dq = INPUT(g, "o", SN_I32, g->B, g->T), dk = INPUT(g, "o", SN_I32, g->B, g->S);
        return sn_eq(sn_reshape(dq, g->B, 1, g->T, 1), sn_reshape(dk, g->B, 1, 1, g->S));
    }
    case 11:
        return sn_ne(INPUT(g, "i2", SN_BOOL, g->B, 1, 1, g->S), sn_lt(d, w));
    case 12:
        return INPUT(g, "i2", SN_BOOL, g->T, g->S);
    case 13:
        return sn_lt(sn_cast(p.k, SN_F32), sn_mul(sn_cast(p.q, SN_F32), 0.5));
    case 14:
        return sn_lt(sn_mul(p.k, p.k), sn_add(sn_mul(p.q, 3), 40));
    case 15:
        return sn_where(sn_lt(p.q, w), sn_le(p.k, p.q), sn_lt(sn_abs(d), w));
    case 16: /* dilated window */
        return sn_and(sn_eq(sn_mod(d, 3), 0), sn_lt(sn_abs(d), w));
    case 17:
        return sn_gt(sn_max(sn_min(p.k, w), p.q), sn_sub(p.k, 7));
    case 18:
        return sn_lt(sn_mod(sn_add(sn_mul(p.q, 7), sn_mul(p.k, 13)), 101), w);
    default:
        return sn_lt(p.k, 0); /* forbids everything */
    }
}

static sn_tensor draw_mask(draw *g, int depth) {
    int what = depth ? below(g, 8) : 0;
    if (what < 4) return draw_plain_mask(g);
    if (what == 4) return sn_not(draw_mask(g, depth - 1));
    sn_tensor a = draw_mask(g, depth - 1), b = draw_mask(g, depth - 1);
    return what == 5 ? sn_or(a, b) : what == 6 ? sn_and(a, b) : sn_xor(a, b);
}

/* ---- scores [B, H, T, S] ---- */

static sn_tensor hide(draw *g, sn_tensor s) {
    sn_tensor seen = draw_mask(g, 2);
    switch (below(g, 7)) {
    case 0:
        return sn_where(sn_not(seen), -INFINITY, s);
    case 5:
        return sn_min(sn_where(seen, INFINITY, -INFINITY), s);
    case 1:
        return sn_add(s, sn_where(seen, 0, -INFINITY));
    case 2:
        return sn_sub(s, sn_where(seen, 0, INFINITY));
    case 3:
        return sn_where(seen, s, sn_full(g->m, SN_F32, -INFINITY, 1));
    case 4:
        return sn_add(sn_log(sn_cast(seen, SN_F32)), s);
    default:
        return sn_mask_scores(s, seen);
    }
}

static sn_tensor draw_step(draw *g, sn_tensor s) {
    positions p = draw_positions(g);
    sn_tensor d = sn_sub(p.q, p.k);
    switch (below(g, 16)) {
    case 0:
        return sn_mul(5, sn_tanh(sn_div(s, 5)));
    case 1: {
        sn_tensor b = PARAM(g, "b", SN_F32, g->H, MAX_LENGTH, MAX_LENGTH);
        return sn_add(s, sn_slice(sn_slice(b, 1, 0, g->T), 2, 0, g->S));
    }
    case 2:
        return sn_add(INPUT(g, "b", SN_F32, g->T, g->S), s);
    case 3: {
        sn_tensor slope = PARAM(g, "b", SN_F32, g->H);
        return sn_sub(s, sn_mul(sn_reshape(slope, g->H, 1, 1), sn_cast(sn_abs(d), SN_F32)));
    }
    case 4: {
        sn_tensor table = PARAM(g, "b", SN_F32, 16, g->H);
        sn_tensor at = sn_broadcast(sn_min(sn_max(d, 0), 15), g->T, g->S);
        return sn_add(s, sn_transpose(sn_embedding(table, at), 2, 0, 1));
    }
    case 5: {
        sn_tensor table = PARAM(g, "b", SN_F32, g->H, 64);
        sn_tensor at = sn_broadcast(sn_mod(sn_add(d, 3000), 64), g->T, g->S);
        return sn_add(sn_gather(table, 1, at), s);
    }
    case 6:
        return sn_add(s, INPUT(g, "b", SN_F32, g->B, 1, 1, g->S));
    case 7:
        return sn_mul(s, INPUT(g, "b", SN_F32, g->B, g->H, g->T, 1));
    case 8:
        return sn_add(s, INPUT(g, "z", SN_F32, g->T, g->S));
    case 9:
        return sn_add(s, sn_where(draw_mask(g, 1), 0, -30));
    case 10:
        return sn_relu(s);
    case 11:
        return sn_neg(sn_mul(s, s));
    default:
        return hide(g, s);
    }
}

static sn_tensor draw_softmax(draw *g, sn_tensor s, bool may_be_empty) {
    sn_tensor e, most;
    switch (may_be_empty ? 0 : below(g, 6)) {
    case 0:
        return sn_softmax(s, -1);
    case 1:
        e = sn_exp(sn_sub(s, sn_amax_keep(s, -1)));
        return sn_div(e, sn_sum_keep(e, -1));
    case 2:
        e = sn_exp(s);
        return sn_mul(e, sn_recip(sn_sum_keep(e, -1)));
    case 3:
        return sn_exp(sn_log_softmax(s, -1));
    case 4:
        e = sn_exp2(sn_mul(s, M_LOG2E));
        return sn_div(e, sn_sum_keep(e, -1));
    default:
        most = sn_expand(sn_logsumexp(s, -1), -1);
        return sn_exp(sn_sub(s, most));
    }
}

/* A tensor of heads [B, H, n, D] in one of the ways that models have it. */
static sn_tensor draw_heads(draw *g, int64_t heads, sn_dim n, int64_t d) {
    sn_tensor x;
    switch (below(g, 5)) {
    case 0:
        return INPUT(g, "x", SN_F32, g->B, heads, n, d);
    case 1:
        return sn_split_heads(INPUT(g, "x", SN_F32, g->B, n, heads * d), heads);
    case 2:
        return sn_swap(INPUT(g, "x", SN_F32, g->B, heads, d, n), 2, 3);
    case 3:
        x = INPUT(g, "x", SN_F32, g->B, n, 24);
        x = sn_linear(x, PARAM(g, "w", SN_F32, heads * d, 24), PARAM(g, "w", SN_F32, heads * d));
        return sn_split_heads(x, heads);
    default: /* a part of a packed product */
        x = sn_linear(INPUT(g, "x", SN_F32, g->B, n, 24), PARAM(g, "w", SN_F32, 2 * heads * d, 24),
                      NULL);
        x = sn_reshape(x, g->B, n, 2, heads, d);
        return sn_transpose(sn_index(x, 2, below(g, 2)), 0, 2, 1, 3);
    }
}

static sn_tensor spread_heads(draw *g, sn_tensor x, sn_dim n, int64_t d) {
    int64_t G = g->H / g->HK;
    if (G == 1) return x;
    switch (below(g, 2)) {
    case 0:
        x = sn_broadcast(sn_expand(x, 2), g->B, g->HK, G, n, d);
        return sn_reshape(x, g->B, g->H, n, d);
    default:
        x = sn_expand(sn_transpose(x, 0, 2, 1, 3), 3);
        x = sn_reshape(sn_broadcast(x, g->B, n, g->HK, G, d), g->B, n, g->H, d);
        return sn_transpose(x, 0, 2, 1, 3);
    }
}

/* Rotary positions, of positions that are counted, moved or given. */
static sn_tensor rotate(draw *g, sn_tensor x, sn_dim n) {
    sn_tensor pos = sn_arange(g->m, SN_I32, n);
    switch (below(g, 4)) {
    case 0:
        pos = sn_add(pos, 7);
        break;
    case 1:
        pos = INPUT(g, "i99", SN_I32, g->B, n);
        break;
    default:
        break;
    }
    return sn_rope(x, pos, .halves = below(g, 2));
}

/* Queries, keys and values of one input, by three products or one. */
static void draw_packed(draw *g, sn_tensor *q, sn_tensor *k, sn_tensor *v) {
    int64_t in = PICK(g, 24, 33, 64), kd = g->HK * g->D, qd = g->H * g->D;
    sn_tensor x = INPUT(g, "x", SN_F32, g->B, g->T, in), part[3];
    if (below(g, 2)) x = sn_rms_norm(x, PARAM(g, "p", SN_F32, in), 1e-5);
    if (g->H == g->HK && below(g, 2)) {
        x = sn_linear(x, PARAM(g, "w", SN_F32, 3 * qd, in), PARAM(g, "w", SN_F32, 3 * qd));
        sn_split(x, 2, 3, part);
    } else {
        part[0] = sn_linear(x, PARAM(g, "w", SN_F32, qd, in), NULL);
        part[1] = sn_linear(x, PARAM(g, "w", SN_F32, kd, in), NULL);
        part[2] = sn_linear(x, PARAM(g, "w", SN_F32, kd, in), NULL);
    }
    *q = sn_split_heads(part[0], g->H);
    *k = sn_split_heads(part[1], g->HK);
    *v = sn_split_heads(part[2], g->HK);
}

static sn_tensor draw_attention(draw *g) {
    g->HK = PICK(g, 1, 1, 2, 3);
    g->H = g->HK * PICK(g, 1, 1, 2, 4, 5);
    g->D = PICK(g, 1, 2, 3, 7, 8, 16, 17, 31, 32, 33, 48, 64, 65, 80, 96, 128, 257);
    g->E = below(g, 3) ? g->D : PICK(g, 1, 5, 16, 40, 64, 129);
    sn_tensor q, k, v, s;
    if (g->S == g->T && below(g, 2)) {
        g->E = g->D;
        draw_packed(g, &q, &k, &v);
    } else {
        q = draw_heads(g, g->H, g->T, g->D);
        k = draw_heads(g, g->HK, g->S, g->D);
        v = draw_heads(g, g->HK, g->S, g->E);
    }
    if (g->D % 2 == 0 && below(g, 3) == 0) q = rotate(g, q, g->T), k = rotate(g, k, g->S);
    k = spread_heads(g, k, g->S, g->D);
    v = spread_heads(g, v, g->S, g->E);
    double root = ROOT(g);
    int where = below(g, 4);
    if (where == 0) q = sn_div(q, root);
    if (where == 1) k = sn_mul(k, 1 / root);
    bool transposed = below(g, 4) == 0;
    if (transposed)
        s = sn_swap(sn_einsum("bhqd,bhkd->bhkq", q, k), 2, 3);
    else
        s = below(g, 2) ? sn_matmul(q, sn_swap(k, 2, 3)) : sn_einsum("bhqd,bhkd->bhqk", q, k);
    if (where >= 2) s = sn_mul(s, 1 / root);
    bool empty = false;
    for (int i = below(g, 4); i > 0; i--) {
        sn_tensor t = draw_step(g, s);
        empty = true;
        s = t;
    }
    if (!empty && below(g, 5) == 0) { /* divided last */
        s = sn_exp(sn_sub(s, sn_amax_keep(s, -1)));
        return sn_div(sn_matmul(s, v), sn_sum_keep(s, -1));
    }
    s = draw_softmax(g, s, empty);
    if (below(g, 8) == 0) s = sn_dropout(s, INPUT(g, "i99", SN_I64, 2), 0.25);
    sn_tensor y;
    if (below(g, 4) == 0)
        y = sn_swap(sn_einsum("bhke,bhqk->bheq", v, s), 2, 3);
    else
        y = below(g, 2) ? sn_matmul(s, v) : sn_einsum("bhqk,bhke->bhqe", s, v);
    if (below(g, 2)) return y;
    y = sn_merge_heads(y);
    if (below(g, 2)) return y;
    sn_tensor w = PARAM(g, "w", SN_F32, 20, g->H * g->E);
    return sn_add(sn_linear(y, w, NULL), INPUT(g, "x", SN_F32, g->B, g->T, 20));
}

static sn_tensor recent(const sn_score_ctx *c) {
    const int64_t *window = c->user;
    return sn_lt(sn_query_key_distance(c), *window);
}

/* A few queries behind many keys that are remembered. */
static sn_tensor draw_decoding(draw *g) {
    static const int64_t windows[] = {3, 70, 1000};
    sn_dim T = below(g, 2) ? sn_symbol(g->m, "N", 0, 6) : PICK(g, 1, 1, 2, 3, 4, 5);
    sn_dim P = sn_symbol(g->m, "P", 0, MAX_PAST), S = sn_dim_add(g->m, P, T);
    bool plain = below(g, 2);
    g->HK = PICK(g, 1, 1, 2, 3);
    g->H = g->HK * PICK(g, 1, 2, 4, 5, 9);
    g->D = PICK(g, 4, 16, 31, 32, 64, 80, 128);
    g->E = below(g, 3) ? g->D : PICK(g, 5, 16, 64, 96);
    g->B = 1;
    sn_tensor q = draw_heads(g, g->H, T, g->D), k = draw_heads(g, g->HK, T, g->D);
    sn_tensor v = draw_heads(g, g->HK, T, g->E);
    if (g->D % 2 == 0 && below(g, 2)) {
        sn_tensor pos = sn_add(sn_arange(g->m, SN_I32, T), sn_dim_tensor(g->m, SN_I32, P));
        bool halves = below(g, 2);
        q = sn_rope(q, pos, .halves = halves), k = sn_rope(k, pos, .halves = halves);
    }
    k = sn_kv_cache(k, "keys", P, MAX_PAST + 6);
    v = sn_kv_cache(v, "values", P, MAX_PAST + 6);
    if (!plain)
        return below(g, 2) ? sn_attention(q, k, v, .causal = true)
                           : sn_attention(q, k, v, .causal = true, .mask = recent,
                                          .user = &windows[below(g, 3)]);
    g->T = T, g->S = S;
    k = spread_heads(g, k, S, g->D), v = spread_heads(g, v, S, g->E);
    sn_tensor s = sn_div(sn_einsum("bhqd,bhkd->bhqk", q, k), ROOT(g));
    s = sn_mask_scores(s, sn_window_mask(g->m, T, S, below(g, 2) ? 0 : 90));
    return sn_matmul(sn_softmax(s, -1), v);
}

/* ---- products ---- */

static sn_tensor draw_operand(draw *g, sn_dim M, int64_t N) {
    switch (below(g, 8)) {
    case 0:
        return PARAM(g, "p", SN_F32, N);
    case 1:
        return INPUT(g, "x", SN_F32, M, 1);
    case 2:
        return INPUT(g, "x", SN_F32, 1, N);
    case 3:
        return sn_swap(INPUT(g, "x", SN_F32, N, M), 0, 1);
    case 4:
        return sn_scalar(g->m, SN_F32, 0.3);
    case 5:
        return sn_expand(sn_cast(sn_arange(g->m, SN_I32, M), SN_F32), 1);
    case 6:
        return sn_embedding(PARAM(g, "p", SN_F32, 7, N), INPUT(g, "i7", SN_I32, M));
    default:
        return INPUT(g, "x", SN_F32, M, N);
    }
}

static sn_tensor draw_epilogue(draw *g, sn_tensor y, sn_dim M, int64_t N, int depth) {
    for (; depth > 0; depth--) switch (below(g, 14)) {
        case 0:
            y = sn_gelu(y);
            break;
        case 1:
            y = sn_gelu_tanh(y);
            break;
        case 2:
            y = sn_silu(y);
            break;
        case 3:
            y = sn_relu(y);
            break;
        case 4:
            y = sn_mul(y, sn_sigmoid(y)); /* its own product twice */
            break;
        case 5:
            y = sn_sub(draw_operand(g, M, N), y);
            break;
        case 6:
            y = sn_mul(y, draw_operand(g, M, N));
            break;
        case 7:
            y = sn_where(sn_gt(y, draw_operand(g, M, N)), y, sn_mul(y, 0.1));
            break;
        case 8:
            y = sn_max(y, draw_operand(g, M, N));
            break;
        case 9:
            y = sn_tanh(y);
            break;
        case 10: {
            char name[16];
            snprintf(name, sizeof name, "mid%d", g->n_leaf++);
            sn_output(name, y);
            break;
        }
        default:
            y = sn_add(y, draw_operand(g, M, N));
        }
    return y;
}

static sn_tensor draw_prologue(draw *g, sn_tensor x, int64_t K) {
    switch (below(g, 7)) {
    case 0:
        return sn_layer_norm(x, PARAM(g, "p", SN_F32, K), PARAM(g, "p", SN_F32, K), 1e-5);
    case 1:
        return sn_rms_norm(x, PARAM(g, "p", SN_F32, K), 1e-5);
    case 2:
        return sn_layer_norm(x, NULL, NULL, 1e-5);
    case 3:
        return sn_gelu(x);
    default:
        return x;
    }
}

static const int64_t sizes[] = {1,   1,   2,  3,  7,  8,   15,  16,  17,  31,  32,  33,
                                45,  47,  48, 61, 64, 65,  96,  97,  127, 128, 129, 160,
                                251, 257, 8,  24, 64, 384, 511, 512, 521, 768, 0};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

/* [M, K] with [N, K] or transposed; the right one a parameter or an input. */
static sn_tensor draw_one_product(draw *g, sn_tensor x, int64_t K, int64_t N) {
    bool param = below(g, 3);
    const char *name = leaf_name(g, "w");
    bool rows = below(g, 2);
    sn_tensor w =
        param  ? rows ? sn_param(g->m, name, SN_F32, N, K) : sn_param(g->m, name, SN_F32, K, N)
         : rows ? sn_input(g->m, name, SN_F32, N, K)
               : sn_input(g->m, name, SN_F32, K, N);
    if (rows) return below(g, 2) ? sn_linear(x, w, NULL) : sn_matmul(x, sn_swap(w, 0, 1));
    return below(g, 2) ? sn_matmul(x, w) : sn_einsum("mk,kn->mn", x, w);
}

static sn_tensor draw_product(draw *g) {
    sn_dim M = below(g, 4) ? g->T : pick(g, N_SIZES, sizes);
    int64_t K = pick(g, N_SIZES, sizes), N = pick(g, N_SIZES, sizes);
    sn_tensor x =
        below(g, 3) ? INPUT(g, "x", SN_F32, M, K) : sn_swap(INPUT(g, "x", SN_F32, K, M), 0, 1);
    sn_tensor residual = x;
    x = draw_prologue(g, x, K);
    sn_tensor y = draw_one_product(g, x, K, N), z;
    switch (below(g, 8)) {
    case 0: /* two products of the same operand */
        z = draw_one_product(g, x, K, N);
        y = sn_mul(sn_silu(y), draw_epilogue(g, z, M, N, below(g, 2)));
        break;
    case 1: /* two products of different operands */
        z = draw_one_product(g, INPUT(g, "x", SN_F32, M, 13), 13, N);
        y = sn_add(y, z);
        break;
    case 2:
        y = sn_linear(y, PARAM(g, "w", SN_F32, K, N), NULL);
        sn_output("before", residual);
        y = sn_add(y, residual);
        sn_output("after", y);
        return sn_layer_norm(y, NULL, NULL, 1e-5);
    default:
        break;
    }
    y = draw_epilogue(g, y, M, N, below(g, 5));
    switch (below(g, 12)) {
    case 0:
        return sn_sum(y, 1);
    case 1:
        return sn_softmax(y, 1);
    case 2:
        sn_output("y1", sn_sum(sn_square(y), 1));
        return y;
    case 3:
        sn_output("y1", sn_amax(y, 1));
        return sn_swap(y, 0, 1);
    case 4:
        return sn_rms_norm(y, NULL, 1e-5);
    case 5:
        return sn_mean(y, 0);
    case 6:
        return sn_cast(y, SN_F64);
    default:
        return y;
    }
}

static sn_tensor draw_batched(draw *g) {
    static const char *const spec[] = {"bmk,bkn->bmn", "bmk,bnk->bmn", "bkm,bkn->bmn",
                                       "bkm,bnk->bmn", "bmk,bkn->bnm", "mbk,bkn->mbn",
                                       "bmk,kbn->mbn", "bmk,nkb->bmn"};
    int64_t K = pick(g, N_SIZES, sizes), N = pick(g, N_SIZES, sizes);
    const char *s = spec[below(g, 8)];
    sn_dim shape[2][4];
    for (int o = 0; o < 2; o++) {
        const char *p = o ? strchr(s, ',') + 1 : s;
        for (int i = 0; i < 3; i++)
            shape[o][i] = p[i] == 'b' ? g->B : p[i] == 'm' ? g->T : p[i] == 'k' ? K : N;
        shape[o][3] = SN_END;
    }
    sn_tensor x = sn_input_at(SN_HERE, g->m, leaf_name(g, "x"), SN_F32, shape[0]);
    sn_tensor w = sn_input_at(SN_HERE, g->m, leaf_name(g, "x"), SN_F32, shape[1]);
    sn_tensor y = sn_einsum(s, x, w);
    if (below(g, 2)) y = sn_gelu(sn_mul(y, 0.3));
    if (below(g, 3) == 0) y = sn_add(y, sn_full(g->m, SN_F32, 1, 1));
    return below(g, 4) ? y : sn_softmax(y, -1);
}

/* ---- views between elementwise work: x [B, T, H D], in one of these forms ---- */

typedef enum form { FLAT, SPLIT, HEADS, ROWS, FORMS } form;
typedef struct formed {
    sn_tensor x;
    form as;
} formed;

static sn_tensor in_form(draw *g, formed f, form to) {
    sn_tensor x = f.as == HEADS ? sn_transpose(f.x, 0, 2, 1, 3) : f.x;
    if (f.as == to) return f.x;
    if (to == FLAT) return sn_reshape(x, g->B, g->T, g->H * g->D);
    sn_tensor y = sn_reshape(x, g->B, g->T, g->H, g->D);
    if (to == ROWS) return sn_reshape(y, SN_REST, g->D);
    return to == HEADS ? sn_transpose(y, 0, 2, 1, 3) : y;
}

static formed draw_formed(draw *g, const formed *of, int n) {
    formed a = of[n - 1 - below(g, n < 3 ? n : 3)], b = of[below(g, n)];
    formed y = {.as = (form)below(g, FORMS)};
    sn_tensor x = in_form(g, a, y.as), other = in_form(g, b, y.as);
    int64_t width = y.as == FLAT ? g->H * g->D : g->D;
    switch (below(g, 8)) {
    case 0:
        y.x = sn_tanh(x);
        break;
    case 1:
        y.x = sn_mul(x, sn_sigmoid(other));
        break;
    case 2:
        y.x = sn_where(sn_gt(x, 0.1), other, x);
        break;
    case 3:
        y.x = sn_mul(x, sn_rsqrt(sn_add(sn_mean_keep(sn_square(x), -1), 0.1)));
        break;
    case 4:
        y.x = sn_mul(x, sn_sigmoid(sn_sum_keep(sn_mul(x, other), -1)));
        break;
    case 5:
        y.x = sn_mul(x, PARAM(g, "p", SN_F32, width));
        break;
    case 6:
        y.x = sn_tanh(sn_cumsum(x, below(g, y.as == ROWS ? 2 : 3)));
        break;
    default:
        y = (formed){
            sn_linear(in_form(g, a, FLAT), PARAM(g, "w", SN_F32, g->H * g->D, g->H * g->D), NULL),
            FLAT};
    }
    return y;
}

/* Two results, or one and gradients. */
static sn_tensor draw_views(draw *g) {
    formed f[16];
    sn_tensor leaf[2], grad[2];
    int n = 2, all = 6 + below(g, 11);
    g->H = PICK(g, 1, 2, 3), g->D = PICK(g, 1, 3, 8, 16, 16, 32);
    f[0] = (formed){leaf[0] = INPUT(g, "x", SN_F32, g->B, g->T, g->H * g->D), FLAT};
    f[1] = (formed){leaf[1] = INPUT(g, "x", SN_F32, g->B, g->H, g->T, g->D), HEADS};
    for (; n < all; n++) f[n] = draw_formed(g, f, n);
    if (below(g, 2)) {
        sn_output("between", f[2 + below(g, n - 2)].x);
    } else {
        sn_grad(sn_sum_all(sn_square(f[n - 1].x)), 2, leaf, grad);
        sn_output("grad0", grad[0]);
        sn_output("grad1", grad[1]);
    }
    return f[n - 1].x;
}

/* Part of the columns of each head is rotated; values beside them have heads of their own. */
static sn_tensor draw_rotary(draw *g) {
    int64_t D = PICK(g, 8, 16, 24, 48, 64), n = PICK(g, 2, 4, 8, 16), H = PICK(g, 1, 2, 3),
            more = PICK(g, 5, 8, 16);
    int64_t first = n > D / 2 ? 0 : n * below(g, (int)(D / n)), at = below(g, 2) * more,
            half = n > D / 2 ? D / 2 * 2 : n;
    sn_tensor x = INPUT(g, "x", SN_F32, g->B, g->T, 24);
    x = sn_linear(x, PARAM(g, "w", SN_F32, H * D + more, 24), PARAM(g, "w", SN_F32, H * D + more));
    sn_output("more", sn_slice(x, 2, at ? 0 : H * D, more));
    x = sn_split_heads(sn_slice(x, 2, at, H * D), H);
    sn_tensor y =
        sn_rope(sn_slice(x, 3, first, half), sn_arange(g->m, SN_I32, g->T), .halves = below(g, 2));
    if (below(g, 2)) y = sn_mul(y, 0.3);
    if (first) y = sn_concat(3, sn_slice(x, 3, 0, first), y);
    if (first + half < D) y = sn_concat(3, y, sn_slice(x, 3, first + half, D - first - half));
    return below(g, 2) ? sn_merge_heads(y) : y;
}

/* ---- checks ---- */

static const char *folder, *compute; /* compute: as in sn_options */

static void symbol_values(draw *g, sn_module *m, int64_t *value, bool first) {
    static const int64_t lengths[] = {1,  2,  3,  5,  8,   13,  16,  17,  31,  32,  33,  48, 63,
                                      64, 65, 70, 96, 100, 127, 128, 129, 150, 200, 257, 300};
    for (int i = 0; i < sn_symbol_count(m); i++) {
        const sn_symbol *s = sn_symbol_at(m, i);
        value[i] = !strcmp(s->name, "B") ? 1 + below(g, 2) : pick(g, 25, lengths);
        if (!first && below(g, 6) == 0) value[i] = 0;
        if (!first && below(g, 4) == 0) value[i] = 1;
        if (*s->name == 'N') value[i] %= 7;
        if (*s->name == 'P') value[i] *= PICK(g, 0, 1, 1, 10);
        if (value[i] < s->lo) value[i] = s->lo;
        if (value[i] > s->hi) value[i] = s->hi;
    }
}

static sn_module *draw_module(draw *g, uint64_t seed) {
    *g = (draw){.m = sn_module_new("fuzz"), .r = {seed}};
    if (!g->m) abort();
    g->B = sn_symbol(g->m, "B", 0, 4);
    g->T = sn_symbol(g->m, "T", 0, MAX_LENGTH);
    g->S = below(g, 2) ? g->T : sn_symbol(g->m, "S", 0, MAX_LENGTH);
    sn_entry_begin(g->m, "f");
    static sn_tensor (*const kind[8])(draw *) = {draw_attention, draw_attention, draw_batched,
                                                 draw_product,   draw_product,   draw_decoding,
                                                 draw_views,     draw_rotary};
    sn_output("y", kind[seed % 8](g));
    return g->m;
}

/* The text of the graph with weights in fewer bits: what is compiled and evaluated then. */
static char *narrowed(char *text, const char *weights) {
    sn_module *m = sn_parse(text, "text", false, NULL);
    sn_passes run;
    sn_pass_options o = {.level = 4,
                         .backend = "native",
                         .weights = weights,
                         .only = "simplify,raise,merge,rotate,quantise"};
    if (!m || !sn_passes_run(&run, m, &o)) abort();
    free(text);
    text = module_text(m);
    sn_module_free(m);
    return text;
}

/* Small sizes, since e^x of an element takes a microsecond. */
static bool check_exact(draw *g, const char *text, char *why) {
    enum { LEVELS = 1 << 0 | 1 << 3 | 1 << 4 };
    int64_t symbol[16] = {0};
    sn_module *m = sn_parse(text, "text", false, NULL);
    if (!m) abort();
    for (int i = 0; i < sn_symbol_count(m); i++) {
        const sn_symbol *s = sn_symbol_at(m, i);
        symbol[i] = s->lo > 1 ? s->lo : 1 + below(g, s->hi < 6 ? (int)s->hi : 6);
    }
    bool ok = exact_check(m, "f", symbol, LEVELS, leaf_data, NULL, &counts, why, JIT_WHY);
    sn_module_free(m);
    return ok;
}

static bool check(uint64_t seed, char *why) {
    int64_t symbol[2][16] = {{0}};
    draw g;
    sn_module *m = draw_module(&g, seed);
    bool ok = !sn_module_error(m)->code;
    if (!ok) snprintf(why, JIT_WHY, "generator: %s", sn_module_error(m)->message);
    for (int i = 0; i < 2; i++) symbol_values(&g, m, symbol[i], i == 0);
    static const char *const weights[] = {"bf16", "int8", "int4"};
    char *text = module_text(m);
    ok = ok && (!exact || check_exact(&g, text, why));
    if (ok && !exact && seed % 8 == 4) text = narrowed(text, weights[below(&g, 3)]);
    for (int level = 0; ok && !exact && level <= 4; level++) {
        sn_options o = {.level = level,
                        .threads = 1 + level % 2,
                        .compute = compute,
                        .cache_dir = folder,
                        .backend = "native"};
        jit_run r;
        sn_module *copy = sn_parse(text, "text", false, NULL);
        if (!copy) abort();
        ok = jit_open(&r, copy, &o, leaf_data, NULL);
        r.loose = true;
        r.allow_nan = true; /* means of nothing */
        for (int i = 0; ok && i < 2; i++)
            ok = jit_check(&r, "f", symbol[i], compute ? 0.03 : 1e-4, 100);
        if (!ok) snprintf(why, JIT_WHY, "level %d: %.1000s", level, r.why);
        jit_close(&r);
        if (ok && level == 4) {
            char other[JIT_WHY] = "";
            ok = jit_same_bits(copy, &o, symbol[0], leaf_data, NULL, other);
            if (!ok) snprintf(why, JIT_WHY, "bits: %.1000s", other);
        }
        sn_module_free(copy);
    }
    if (!ok) {
        fprintf(stderr, "seed %llu: %s\n", (unsigned long long)seed, why);
        for (int k = 0; k < 2; k++)
            for (int i = 0; i < sn_symbol_count(m); i++)
                fprintf(stderr, "%s=%lld ", sn_symbol_at(m, i)->name, (long long)symbol[k][i]);
        fprintf(stderr, "\n%s\n", text);
    }
    free(text);
    sn_module_free(m);
    return ok;
}

int main(int argc, char **argv) {
    char where[] = "/tmp/sn_fuzz_XXXXXX", why[JIT_WHY];
    if (!(folder = mkdtemp(where))) return 1;
    uint64_t seed = fuzz_seed(argc > 1 ? argv[1] : NULL);
    if (argc > 3 && !(exact = !strcmp(argv[3], "exact"))) compute = argv[3];
    long count = argc > 2 ? strtol(argv[2], NULL, 0) : 100, failures = 0;
    for (long i = 0; i < count && failures < 10; i++) failures += !check(seed + (uint64_t)i, why);
    fuzz_remove_kernels(folder);
    printf("%ld graphs, %ld failed%s\n", count, failures, exact_told(&counts));
    return failures != 0 || !exact_decides(&counts);
}
