/* ops_attention.c: attention and rotary positions as single operators, and what ONNX Runtime's optimiser makes of
 * transformers (com.microsoft). They become plain operations, which the compiler fuses again. */
#include "frontend/onnx/ops.h"

#include <math.h>
#include <string.h>

/* [B, T, heads d] as [B, heads, T, d]; what has four axes already stays. */
static sn_tensor split_heads(onnx_call *c, sn_tensor x, int64_t heads) {
    return sn_rank_of(x) == 4 ? x : sn_split_heads(x, heads);
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

typedef struct attention {
    sn_tensor q, k, v; /* [B, H, T, d] */
    sn_tensor bias;    /* added to the scores; or NULL */
    sn_tensor visible; /* bool; or NULL */
    double scale;      /* 0: 1 / sqrt(d) */
    double cap;        /* of the scores: cap tanh(s / cap); 0: none */
    bool causal;       /* key k is visible to query q if k <= q + past */
    sn_dim past;
} attention;

static sn_tensor attend(onnx_call *c, const attention *a) {
    const sn_dim width = sn_dim_of(a->q, 3), heads = sn_dim_of(a->q, 1);
    const double scale = a->scale != 0 ? a->scale : 1 / sqrt((double)width);
    sn_tensor k = repeat_heads(c, a->k, heads), v = repeat_heads(c, a->v, heads);
    sn_tensor s = sn_mul(sn_matmul(a->q, sn_swap(k, 2, 3)), scale);
    if (a->cap > 0) s = sn_mul(sn_tanh(sn_div(s, a->cap)), a->cap);
    if (a->bias && onnx_broadcasts(c, s, a->bias)) s = sn_add(s, a->bias);
    if (a->visible && onnx_broadcasts(c, s, a->visible))
        s = sn_where(a->visible, s, (double)-INFINITY);
    if (a->causal) {
        const sn_dim T = sn_dim_of(s, 2), S = sn_dim_of(s, 3);
        sn_tensor i = sn_iota(c->m, SN_I32, 0, T, S), j = sn_iota(c->m, SN_I32, 1, T, S);
        if (a->past) i = sn_add(i, sn_dim_tensor(c->m, SN_I32, a->past));
        s = sn_where(sn_le(j, i), s, (double)-INFINITY);
    }
    return sn_matmul(sn_softmax(s, -1), v);
}

/* x after the cached rows of input i, as output `out`. */
static sn_tensor append(onnx_call *c, int i, sn_tensor x, int out) {
    sn_tensor past = onnx_in_or_null(c, i);
    if (past) x = sn_concat(2, past, x);
    if (out < c->node->out.n) onnx_set(c, out, x);
    return x;
}

bool onnx_attention(onnx_call *c) {
    const int64_t heads = onnx_int(c, "q_num_heads", 0), kv = onnx_int(c, "kv_num_heads", heads);
    sn_tensor mask = onnx_in_or_null(c, 3), past = onnx_in_or_null(c, 4);
    const bool flat = sn_rank_of(onnx_in(c, 0)) == 3;
    if (c->node->out.n > 3 && *ONNX_AT(c->node->out, const char *, 3))
        return onnx_fail(c, "its output of scores is not supported");
    if (onnx_given(c, 6)) return onnx_fail(c, "nonpad_kv_seqlen is not supported");
    if (flat && (heads < 1 || kv < 1)) return onnx_fail(c, "its numbers of heads are missing");
    attention a = {.q = split_heads(c, onnx_in(c, 0), heads),
                   .scale = onnx_float(c, "scale", 0),
                   .cap = onnx_float(c, "softcap", 0),
                   .causal = onnx_int(c, "is_causal", 0),
                   .past = past ? sn_dim_of(past, 2) : 0};
    if (a.cap > 0 && (mask || a.causal))
        return onnx_fail(c, "softcap with a mask is not supported");
    a.k = append(c, 4, split_heads(c, onnx_in(c, 1), kv), 1);
    a.v = append(c, 5, split_heads(c, onnx_in(c, 2), kv), 2);
    if (mask && sn_dtype_of(mask) == SN_BOOL)
        a.visible = mask;
    else
        a.bias = mask;
    sn_tensor y = attend(c, &a);
    return onnx_set(c, 0, flat ? sn_merge_heads(y) : y);
}

/* x [B, H, T, d], its first `width` columns rotated by tables [.., T, width / 2]. */
static sn_tensor rotate(onnx_call *c, sn_tensor x, sn_tensor cosine, sn_tensor sine, sn_dim width,
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

/* A table [positions, w] at positions [B, T], or a table [B, T, w]: [B, 1, T, w]. */
static sn_tensor rows_at(onnx_call *c, sn_tensor table, sn_tensor at) {
    return sn_expand(at ? sn_gather(table, 0, at) : table, 1);
}

bool onnx_rotary(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0), at = onnx_in_or_null(c, 3);
    const bool flat = sn_rank_of(x) == 3;
    const int64_t heads = onnx_int(c, "num_heads", 0),
                  width = onnx_int(c, "rotary_embedding_dim", 0);
    if (flat && heads < 1) return onnx_fail(c, "num_heads is missing");
    x = split_heads(c, x, heads);
    sn_tensor y = rotate(c, x, rows_at(c, onnx_in(c, 1), at), rows_at(c, onnx_in(c, 2), at),
                         width ? width : sn_dim_of(x, 3), onnx_int(c, "interleaved", 0));
    return onnx_set(c, 0, flat ? sn_merge_heads(y) : y);
}

/* com.microsoft: its positions come second: [B, T], or [1], the first one. */
bool onnx_ms_rotary(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0), at = onnx_in(c, 1), cosine = onnx_in(c, 2);
    const bool flat = sn_rank_of(x) == 3;
    const int64_t heads = onnx_int(c, "num_heads", 0),
                  width = onnx_int(c, "rotary_embedding_dim", 0);
    const sn_dim all = width ? width : sn_dim_mul(c->m, sn_dim_of(cosine, 1), 2);
    if (flat && heads < 1 && sn_rank_of(x) == 3 && sn_dim_of(x, 2) < 0)
        return onnx_fail(c, "num_heads is missing");
    if (flat) x = sn_split_heads(x, heads ? heads : sn_dim_quot(c->m, sn_dim_of(x, 2), all));
    if (sn_rank_of(at) == 1)
        at = sn_expand(sn_add(sn_arange(c->m, sn_dtype_of(at), sn_dim_of(x, 2)), at), 0);
    sn_tensor y = rotate(c, x, rows_at(c, cosine, at), rows_at(c, onnx_in(c, 3), at), all,
                         onnx_int(c, "interleaved", 0));
    return onnx_set(c, 0, flat ? sn_merge_heads(y) : y);
}

/* Input i, a mask of keys: lengths [B], or 1 where a key is visible, [B, S] or [B, T, S]: bool. */
static bool key_mask(onnx_call *c, int i, sn_dim keys, sn_tensor *out) {
    sn_tensor mask = onnx_in_or_null(c, i);
    *out = NULL;
    if (!mask) return true;
    const int rank = sn_rank_of(mask);
    if (rank == 1)
        *out = sn_length_mask(mask, keys);
    else if (rank == 2)
        *out = sn_expand(sn_expand(sn_ne(mask, 0), 1), 1);
    else if (rank == 3)
        *out = sn_expand(sn_ne(mask, 0), 1);
    return *out || onnx_fail(c, "a mask with %d axes is not supported", rank);
}

bool onnx_ms_attention(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0), w = onnx_in(c, 1), bias = onnx_in_or_null(c, 2),
              past = onnx_in_or_null(c, 4);
    sn_tensor part[3];
    const int64_t heads = onnx_int(c, "num_heads", 0);
    if (onnx_attr(c, "qkv_hidden_sizes") || onnx_int(c, "do_rotary", 0) || heads < 1)
        return onnx_fail(c, "qkv_hidden_sizes and do_rotary are not supported");
    sn_tensor y = sn_linear(x, sn_swap(w, 0, 1), bias);
    sn_split(y, -1, 3, part);
    attention a = {.scale = onnx_float(c, "scale", 0),
                   .causal = onnx_int(c, "unidirectional", 0),
                   .bias = onnx_in_or_null(c, 5),
                   .past = past ? sn_dim_of(past, 3) : 0};
    for (int i = 0; i < 3; i++) part[i] = sn_split_heads(part[i], heads);
    for (int i = 0; past && i < 2; i++)
        part[i + 1] = sn_concat(2, sn_index(past, 0, i), part[i + 1]);
    a.q = part[0], a.k = part[1], a.v = part[2];
    if (!key_mask(c, 3, sn_dim_of(a.k, 2), &a.visible)) return false;
    if (c->node->out.n > 1 && !onnx_set(c, 1, sn_stack(0, a.k, a.v))) return false;
    return onnx_set(c, 0, sn_merge_heads(attend(c, &a)));
}

bool onnx_ms_multi_head(onnx_call *c) {
    sn_tensor q = onnx_in(c, 0), bias = onnx_in_or_null(c, 3), past = onnx_in_or_null(c, 6);
    const int64_t heads = onnx_int(c, "num_heads", 0);
    if (!onnx_given(c, 1) || !onnx_given(c, 2) || sn_rank_of(q) != 3 || heads < 1)
        return onnx_fail(c, "packed queries, keys and values are not supported");
    sn_tensor part[3] = {q, onnx_in(c, 1), onnx_in(c, 2)};
    sn_dim at = 0;
    for (int i = 0; i < 3; i++) {
        if (sn_rank_of(part[i]) != 3) continue; /* keys of a cache, without bias */
        const sn_dim n = sn_dim_of(part[i], 2);
        if (bias) part[i] = sn_add(part[i], sn_slice(bias, 0, at, n));
        at = sn_dim_add(c->m, at, n);
        part[i] = sn_split_heads(part[i], heads);
    }
    attention a = {.q = part[0],
                   .scale = onnx_float(c, "scale", 0),
                   .causal = onnx_int(c, "unidirectional", 0),
                   .bias = onnx_in_or_null(c, 5),
                   .past = past ? sn_dim_of(past, 2) : 0};
    a.k = append(c, 6, part[1], 1);
    a.v = append(c, 7, part[2], 2);
    return key_mask(c, 4, sn_dim_of(a.k, 2), &a.visible) &&
           onnx_set(c, 0, sn_merge_heads(attend(c, &a)));
}

/* Layer norm, or with the flag RMS norm, of x + skip + bias; the sum is output 3. */
bool onnx_ms_skip_norm(onnx_call *c) {
    const bool rms = c->row->flag;
    sn_tensor bias = onnx_in_or_null(c, rms ? 3 : 4), sum = sn_add(onnx_in(c, 0), onnx_in(c, 1));
    const double eps = onnx_float(c, "epsilon", 1e-12);
    if (bias) sum = sn_add(sum, bias);
    sn_tensor y = rms ? sn_rms_norm(sum, onnx_in(c, 2), eps)
                      : sn_layer_norm(sum, onnx_in(c, 2), onnx_in_or_null(c, 3), eps);
    return onnx_set(c, 0, y) && (c->node->out.n < 4 || onnx_set(c, 3, sum));
}

bool onnx_ms_embed_norm(onnx_call *c) {
    sn_tensor ids = onnx_in(c, 0), segments = onnx_in_or_null(c, 1), mask = onnx_in_or_null(c, 7);
    sn_tensor at = onnx_in_or_null(c, 8), x = sn_gather(onnx_in(c, 2), 0, ids);
    if (!at) at = sn_arange(c->m, SN_I32, sn_dim_of(ids, 1));
    x = sn_add(x, sn_gather(onnx_in(c, 3), 0, at));
    if (segments) x = sn_add(x, sn_gather(onnx_in(c, 4), 0, segments));
    sn_tensor y = sn_layer_norm(x, onnx_in(c, 5), onnx_in(c, 6), onnx_float(c, "epsilon", 1e-12));
    if (mask && c->node->out.n > 1 && !onnx_set(c, 1, sn_sum(sn_cast(mask, SN_I32), 1)))
        return false;
    return onnx_set(c, 0, y) && (c->node->out.n < 3 || onnx_set(c, 2, x));
}
