/* ops_ms.c: com.microsoft: what ONNX Runtime's optimiser makes of transformers. */
#include "frontend/onnx/ops.h"

#include <math.h>
#include <string.h>

/* com.microsoft: its positions come second: [B, T], or [1], the first one. */
bool onnx_ms_rotary(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0), at = onnx_in(c, 1), cosine = onnx_in(c, 2);
    const bool flat = sn_rank_of(x) == 3;
    const int64_t heads = onnx_int(c, "num_heads", 0),
                  width = onnx_int(c, "rotary_embedding_dim", 0);
    const sn_dim all = width ? width : sn_dim_mul(c->m, sn_dim_of(cosine, 1), 2);
    if (flat && heads < 1 && sn_dim_of(x, 2) < 0) return onnx_fail(c, "num_heads is missing");
    if (flat) x = sn_split_heads(x, heads ? heads : sn_dim_quot(c->m, sn_dim_of(x, 2), all));
    if (sn_rank_of(at) == 1)
        at = sn_expand(sn_add(sn_arange(c->m, sn_dtype_of(at), sn_dim_of(x, 2)), at), 0);
    sn_tensor y = onnx_rotate(c, x, onnx_rows_at(c, cosine, at), onnx_rows_at(c, onnx_in(c, 3), at),
                              all, onnx_int(c, "interleaved", 0));
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

/* Attention of x w + bias, which y is: queries, keys and values beside each other. */
static bool attend_packed(onnx_call *c, sn_tensor y, int mask, int past_at, int bias) {
    sn_tensor past = onnx_in_or_null(c, past_at), part[3];
    const int64_t heads = onnx_int(c, "num_heads", 0);
    if (heads < 1) return onnx_fail(c, "num_heads is missing");
    const bool shares = onnx_int(c, "past_present_share_buffer", 0);
    if (shares || onnx_attr(c, "qkv_hidden_sizes") || onnx_int(c, "do_rotary", 0))
        return onnx_fail(c, "qkv_hidden_sizes, do_rotary and shared buffers are not supported");
    sn_split(y, -1, 3, part);
    for (int i = 0; i < 3; i++) part[i] = sn_split_heads(part[i], heads);
    for (int i = 0; past && i < 2; i++)
        part[i + 1] = sn_concat(2, sn_index(past, 0, i), part[i + 1]);
    onnx_attention a = {.c = c,
                        .q = part[0],
                        .k = part[1],
                        .v = part[2],
                        .scale = onnx_float(c, "scale", 0),
                        .causal = onnx_int(c, "unidirectional", 0),
                        .bias = bias ? onnx_in_or_null(c, bias) : NULL,
                        .left = -1,
                        .right = -1,
                        .past = past ? sn_dim_of(past, 3) : 0};
    if (!key_mask(c, mask, sn_dim_of(a.k, 2), &a.visible)) return false;
    if (c->node->out.n > 1 && !onnx_set(c, 1, sn_stack(0, a.k, a.v))) return false;
    sn_tensor z = onnx_attend(&a);
    return z && onnx_set(c, 0, sn_merge_heads(z));
}

bool onnx_ms_attention(onnx_call *c) {
    sn_tensor x = onnx_in(c, 0), w = onnx_in(c, 1), bias = onnx_in_or_null(c, 2);
    return attend_packed(c, sn_linear(x, sn_swap(w, 0, 1), bias), 3, 4, 5);
}

/* The same of integers with scales and zero points. */
bool onnx_ms_q_attention(onnx_call *c) {
    sn_tensor scale = sn_mul(onnx_beside(c, 3, true), onnx_beside(c, 4, false));
    sn_tensor y = onnx_integer_product(c, onnx_in(c, 0), onnx_beside(c, 6, true), 1, 7);
    if (!y) return false;
    y = sn_mul(sn_cast(y, SN_F32), scale);
    return attend_packed(c, sn_add(y, onnx_in(c, 2)), 5, 8, 0);
}

bool onnx_ms_multi_head(onnx_call *c) {
    sn_tensor q = onnx_in(c, 0), bias = onnx_in_or_null(c, 3), past = onnx_in_or_null(c, 6);
    const int64_t heads = onnx_int(c, "num_heads", 0);
    if (heads < 1) return onnx_fail(c, "num_heads is missing");
    sn_tensor part[3] = {q, onnx_in_or_null(c, 1), onnx_in_or_null(c, 2)};
    if (!part[1] && sn_rank_of(q) == 5) { /* [B, T, heads, 3, d] */
        for (int i = 0; i < 3; i++) part[i] = sn_swap(sn_index(q, 3, i), 1, 2);
    } else if (part[1] && sn_rank_of(part[1]) == 5) { /* [B, S, heads, 2, d] */
        sn_tensor both = part[1];
        for (int i = 0; i < 2; i++) part[i + 1] = sn_swap(sn_index(both, 3, i), 1, 2);
    }
    if (!part[1] || !part[2]) return onnx_fail(c, "its keys or values are missing");
    sn_dim at = 0;
    for (int i = 0; i < 3; i++) {
        const bool flat = sn_rank_of(part[i]) == 3; /* else keys of a cache, or packed */
        const sn_dim d = sn_dim_of(part[i], -1), n = flat ? d : sn_dim_mul(c->m, heads, d);
        if (bias) {
            sn_tensor b = sn_slice(bias, 0, at, n);
            part[i] = sn_add(part[i], flat ? b : sn_expand(sn_reshape(b, heads, d), 1));
        }
        at = sn_dim_add(c->m, at, n);
        part[i] = onnx_split_heads(c, part[i], heads);
    }
    onnx_attention a = {.c = c,
                        .q = part[0],
                        .scale = onnx_float(c, "scale", 0),
                        .causal = onnx_int(c, "unidirectional", 0),
                        .bias = onnx_in_or_null(c, 5),
                        .left = -1,
                        .right = -1,
                        .past = past ? sn_dim_of(past, 2) : 0};
    a.k = onnx_append(c, 6, part[1], 1);
    a.v = onnx_append(c, 7, part[2], 2);
    if (!key_mask(c, 4, sn_dim_of(a.k, 2), &a.visible)) return false;
    sn_tensor y = onnx_attend(&a);
    return y && onnx_set(c, 0, sn_merge_heads(y));
}

/* The cache of input i with the new rows of sequence b from row first[b] on, as output `out`. */
static sn_tensor extend(onnx_call *c, int i, sn_tensor x, sn_tensor first, int out) {
    sn_tensor past = onnx_in_or_null(c, i);
    if (past) {
        past = sn_pad(past, 2, 0, sn_dim_of(x, 2), 0);
        x = sn_update_rows(past, 2, x, first);
    }
    if (out < c->node->out.n) onnx_set(c, out, x);
    return x;
}

/* Sequence b has seqlens_k[b] + 1 keys with the new ones; the first prompt may be padded on the right. */
bool onnx_ms_group_query(onnx_call *c) {
    const int64_t heads = onnx_int(c, "num_heads", 0), kv = onnx_int(c, "kv_num_heads", 0);
    const int64_t window = onnx_int(c, "local_window_size", -1);
    sn_tensor part[3] = {onnx_in(c, 0), onnx_in_or_null(c, 1), onnx_in_or_null(c, 2)};
    if (heads < 1 || kv < 1 || heads % kv)
        return onnx_fail(c, "num_heads is not a multiple of kv_num_heads");
    if (onnx_given(c, 12) || onnx_given(c, 14) || onnx_int(c, "qk_output", 0) ||
        onnx_int(c, "sliding_window_cache", 0))
        return onnx_fail(c, "quantised caches, sliding_window_cache, qk_output and norms of "
                            "queries and keys are not supported");
    if (!part[1]) { /* packed */
        sn_tensor all = part[0];
        const sn_dim d = sn_dim_quot(c->m, sn_dim_of(all, 2), heads + 2 * kv);
        const sn_dim n = sn_dim_mul(c->m, d, heads), m = sn_dim_mul(c->m, d, kv);
        part[0] = sn_slice(all, 2, 0, n);
        part[1] = sn_slice(all, 2, n, m);
        part[2] = sn_slice(all, 2, sn_dim_add(c->m, n, m), m);
    }
    if (!part[2]) return onnx_fail(c, "its values are missing");
    for (int i = 0; i < 3; i++) part[i] = sn_split_heads(part[i], i ? kv : heads);
    const sn_dim T = sn_dim_of(part[0], 2);
    sn_tensor last = sn_cast(onnx_in(c, 5), SN_I32);
    if (sn_rank_of(last) != 1) last = sn_reshape(last, SN_REST);
    sn_tensor first = sn_sub(last, sn_dim_tensor(c->m, SN_I32, sn_dim_sub(c->m, T, 1)));
    first = onnx_given(c, 3) ? sn_max(first, 0) : NULL;
    if (onnx_int(c, "do_rotary", 0)) {
        sn_tensor at = onnx_in_or_null(c, 9), t = sn_expand(sn_arange(c->m, SN_I32, T), 0);
        if (!at) at = first ? sn_add(sn_expand(first, 1), t) : t;
        sn_tensor cosine = onnx_rows_at(c, onnx_in(c, 7), at);
        sn_tensor sine = onnx_rows_at(c, onnx_in(c, 8), at);
        const sn_dim width = sn_dim_mul(c->m, sn_dim_of(cosine, -1), 2);
        const bool pairs = onnx_int(c, "rotary_interleaved", 0);
        for (int i = 0; i < 2; i++) part[i] = onnx_rotate(c, part[i], cosine, sine, width, pairs);
    }
    onnx_attention a = {.c = c,
                        .q = part[0],
                        .scale = onnx_float(c, "scale", 0),
                        .cap = onnx_float(c, "softcap", 0),
                        .causal = onnx_int(c, "causal", 1),
                        .left = window > 0 ? window - 1 : -1,
                        .right = -1,
                        .first = first,
                        .bias = onnx_in_or_null(c, 10),
                        .sink = onnx_in_or_null(c, 11)};
    if (!a.sink && onnx_int(c, "smooth_softmax", 0)) a.sink = sn_full(c->m, SN_F32, 0, heads);
    if (!a.causal) a.keys = sn_add(last, 1);
    a.k = extend(c, 3, part[1], first, 1);
    a.v = extend(c, 4, part[2], first, 2);
    sn_tensor y = onnx_attend(&a);
    return y && onnx_set(c, 0, sn_merge_heads(y));
}

/* ---- weights in blocks ---- */

/* Integers of `bits` bits, several to a byte, the lowest first: along a new last axis unless they are bytes. */
static sn_tensor unpack(onnx_call *c, sn_tensor x, int64_t bits) {
    return bits == 8 ? x : sn_stack(-1, sn_and(x, 15), sn_shift_right(x, 4));
}

/* x times w^T, where w [N, K] is (integers - zero points) scales, each of a block along K. What has to do with
 * weights only is computed once, when a session is opened. */
bool onnx_ms_matmul_n_bits(onnx_call *c) {
    const int64_t K = onnx_int(c, "K", 0), N = onnx_int(c, "N", 0), bits = onnx_int(c, "bits", 4),
                  size = onnx_int(c, "block_size", 0);
    sn_tensor x = onnx_in(c, 0), w = onnx_in(c, 1), scale = onnx_in(c, 2),
              zero = onnx_in_or_null(c, 3), bias = onnx_in_or_null(c, 5);
    if (bits != 4 && bits != 8) return onnx_fail(c, "%lld bits are not supported", (long long)bits);
    if (K < 1 || N < 1 || size < 1 || (K | N | size) > INT32_MAX || onnx_given(c, 4))
        return onnx_fail(c, "g_idx is not supported; K, N, block_size must be from 1 to 2^31 - 1");
    const int64_t blocks = (K + size - 1) / size, middle = bits == 4 ? 8 : 128;
    const sn_dtype type = sn_dtype_of(scale);
    w = sn_reshape(unpack(c, w, bits), N, blocks, size);
    scale = sn_reshape(scale, N, blocks, 1);
    sn_tensor y = sn_cast(w, type);
    if (!zero)
        y = sn_sub(y, (double)middle);
    else if (sn_dtype_of(zero) == SN_U8) {
        zero = sn_reshape(unpack(c, zero, bits), N, SN_REST);
        if (sn_dim_of(zero, 1) != blocks) zero = sn_slice(zero, 1, 0, blocks);
        y = sn_sub(y, sn_expand(sn_cast(zero, type), 2));
    } else
        y = sn_sub(y, sn_reshape(zero, N, blocks, 1));
    y = sn_reshape(sn_mul(y, scale), N, blocks * size);
    if (blocks * size != K) y = sn_slice(y, 1, 0, K);
    return onnx_set(c, 0, sn_linear(x, y, bias));
}

/* ---- products ---- */

/* A factor as the attributes want it: batches: the first axis becomes the last but one; swap: the last two change places. */
static sn_tensor factor(onnx_call *c, int i, const char *batches, const char *swap) {
    sn_tensor x = onnx_in(c, i);
    const int rank = sn_rank_of(x);
    if (onnx_int(c, batches, 0))
        for (int a = 0; a + 2 < rank; a++) x = sn_swap(x, a, a + 1);
    return onnx_int(c, swap, 0) && rank > 1 ? sn_swap(x, -1, -2) : x;
}

/* alpha x y, with transposed factors */
bool onnx_ms_matmul(onnx_call *c) {
    sn_tensor x = factor(c, 0, "transBatchA", "transA");
    sn_tensor y = onnx_product(c, x, factor(c, 1, "transBatchB", "transB"));
    const double alpha = onnx_float(c, "alpha", 1);
    return y && onnx_set(c, 0, alpha == 1 ? y : sn_mul(y, alpha));
}

/* Conv, to which input 3 is added, or with the flag Gemm; then an activation. */
bool onnx_ms_activated(onnx_call *c) {
    static const struct {
        const char *name;
        sn_tensor (*fn)(sn_loc, sn_tensor);
    } acts[] = {{"Relu", sn_relu_at}, {"Sigmoid", sn_sigmoid_at}, {"Tanh", sn_tanh_at}};
    const char *name = onnx_text(c, "activation", "");
    const bool gemm = c->row->flag;
    size_t i = 0;
    while (i < sizeof acts / sizeof *acts && strcmp(acts[i].name, name) != 0) i++;
    if (i == sizeof acts / sizeof *acts && *name)
        return onnx_fail(c, "the activation '%s' is not supported", name);
    if (!(gemm ? onnx_gemm(c) : onnx_conv(c))) return false;
    sn_tensor y = onnx_tensor_of(c, c->out[0]), more = gemm ? NULL : onnx_in_or_null(c, 3);
    if (more) y = sn_add(y, more);
    return onnx_set(c, 0, *name ? acts[i].fn(c->at, y) : y);
}

/* ---- norms ---- */

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
