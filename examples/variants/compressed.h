/* compressed.h: what the compressed attentions of DeepSeek-V4 share: entries that stand for windows of tokens,
 * one head of keys that are the values, too, and heads that leave in groups. DeepSeek-AI 2026, "DeepSeek-V4". */
#ifndef COMPRESSED_H
#define COMPRESSED_H

#include "small.h"

#include <math.h>

enum { ROTARY = HEAD / 2, GROUPS = 2, RANK = WIDTH / 4, WINDOW = 32, ROWS = 64 };

/* x [.., T, d], whose last ROTARY columns are rotated. */
static inline sn_tensor rotated(sn_tensor x, sn_tensor pos) {
    sn_dim rest = sn_dim_sub(sn_module_of(x), sn_dim_of(x, -1), ROTARY);
    return sn_concat(-1, sn_slice(x, -1, 0, rest), sn_rope(sn_slice(x, -1, rest, ROTARY), pos));
}

/* x [B, T, width] of all tokens so far. */
static inline sn_tensor so_far(const sn_forward_ctx *s, sn_tensor x, const char *name) {
    return sn_squeeze(sn_append_kv(s, sn_expand(x, 1), name), 1);
}

/* x [B, T, parts width] as windows of n tokens, the last one filled up, plus `place` if it is not NULL: [B, E, parts
 * n, width]. With two parts the first one is that of the window before, `none` for the first window. */
static inline sn_tensor windows(sn_tensor x, sn_tensor place, int64_t n, int parts, double none) {
    sn_module *m = sn_module_of(x);
    sn_dim E = sn_dim_quot_up(m, sn_dim_of(x, 1), n), B = sn_dim_of(x, 0);
    sn_tensor part[2];
    x = sn_pad(x, 1, 0, sn_dim_sub(m, sn_dim_mul(m, E, n), sn_dim_of(x, 1)), 0);
    x = sn_reshape(x, B, E, n, SN_REST);
    if (place) x = sn_add(x, place);
    if (parts == 1) return x;
    sn_split(x, 3, 2, part);
    return sn_concat(2, sn_slice(sn_pad(part[0], 1, 1, 0, none), 1, 0, E), part[1]);
}

/* x [B, H, T, ..] as blocks of ROWS tokens, the last one filled up: [B, H, C, ROWS, ..]. */
static inline sn_tensor blocks(sn_tensor x) {
    sn_module *m = sn_module_of(x);
    sn_dim T = sn_dim_of(x, 2), C = sn_dim_quot_up(m, T, ROWS);
    x = sn_pad(x, 2, 0, sn_dim_sub(m, sn_dim_mul(m, C, ROWS), T), 0);
    return sn_reshape(x, sn_dim_of(x, 0), sn_dim_of(x, 1), C, ROWS, SN_REST);
}

/* An entry for each window of n tokens, [B, E, width]: means of values with weights for each channel. */
static inline sn_tensor compress(const sn_forward_ctx *s, sn_tensor x, const char *name, int64_t n,
                                 int64_t width, int parts) {
    sn_scope_push(s->m, "%s", name);
    sn_tensor value = so_far(s, sn_nn_linear(x, "value", parts * width, 0), "values");
    sn_tensor weight = so_far(s, sn_nn_linear(x, "weight", parts * width, 0), "weights");
    sn_tensor place = sn_param(s->m, "place", SN_F32, n, parts * width);
    weight = sn_softmax(windows(weight, place, n, parts, -1e30), 2);
    sn_tensor y = sn_sum(sn_mul(weight, windows(value, NULL, n, parts, 0)), 2);
    y = sn_nn_rms_norm(y, "norm", 1e-6);
    sn_scope_pop(s->m);
    return rotated(y, sn_mul(sn_arange(s->m, SN_I32, sn_dim_of(y, 1)), n));
}

/* Queries [B, HEADS, T, HEAD]; keys of all tokens so far, [B, 1, T, HEAD]. */
static inline sn_tensor queries(const sn_forward_ctx *s, sn_tensor x, const char *name) {
    return rotated(sn_split_heads(sn_nn_linear(x, name, WIDTH, 0), HEADS), s->pos);
}
static inline sn_tensor keys(const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor k = sn_nn_rms_norm(sn_nn_linear(x, "key", HEAD, 0), "key_norm", 1e-6);
    return sn_append_kv(s, rotated(sn_expand(k, 1), s->pos), "keys");
}

/* y [B, HEADS, T, HEAD], turned back, in groups of heads that have a matrix of low rank each. */
static inline sn_tensor leave(const sn_forward_ctx *s, sn_tensor y) {
    y = sn_merge_heads(rotated(y, sn_neg(s->pos)));
    y = sn_reshape(y, s->B, s->T, GROUPS, WIDTH / GROUPS);
    y = sn_einsum("btgi,gri->btgr", y,
                  sn_param(s->m, "down", SN_F32, GROUPS, RANK, WIDTH / GROUPS));
    return sn_nn_linear(sn_reshape(y, s->B, s->T, GROUPS * RANK), "out", WIDTH, 0);
}

#endif
