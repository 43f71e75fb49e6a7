/* recurrent.h: what the recurrent layers of this folder share: a matrix that each head carries along the
 * sequence, and past tokens that short convolutions see. Decoding keeps both as states. */
#ifndef RECURRENT_H
#define RECURRENT_H

#include "small.h"

#include <math.h>

/* Vectors of one element as columns and rows of the carry; q S. */
static inline sn_tensor col(sn_tensor x) {
    return sn_expand(x, -1);
}
static inline sn_tensor row(sn_tensor x) {
    return sn_expand(x, -2);
}
static inline sn_tensor times_state(sn_tensor q, sn_tensor S) {
    return sn_squeeze(sn_matmul(row(q), S), -2);
}

/* [B, ...] of zeros; with caches what the run before has left. */
#define carry_of(s, name, ...)                                                                     \
    ((s)->capacity ? sn_state((s)->m, name, SN_F32, (s)->B, __VA_ARGS__)                           \
                   : sn_full((s)->m, SN_F32, 0, (s)->B, __VA_ARGS__))

/* Runs the body over the axis of tokens, axis 2, and keeps the carry. x: NULL-terminated. */
static inline sn_tensor recur(const sn_forward_ctx *s, sn_tensor carry, sn_scan_fn body,
                              const void *user, sn_tensor const *x) {
    sn_scan_args a = {.carry = {carry}, .axis = 2, .body = body, .user = user};
    for (int i = 0; x[i]; i++) a.x[i] = x[i];
    sn_scanned r = sn_scan_at(SN_HERE, &a);
    if (s->capacity) sn_assign(carry, r.carry[0]);
    return r.y[0];
}

/* x [B, T, C] after the `more` tokens before it: [B, more + T, C]. */
static inline sn_tensor with_past(const sn_forward_ctx *s, sn_tensor x, const char *name,
                                  int64_t more) {
    sn_tensor past = carry_of(s, name, more, sn_dim_of(x, 2)), all = sn_concat(1, past, x);
    if (s->capacity) sn_assign(past, sn_slice(all, 1, s->T, more));
    return all;
}

/* x [B, T, C] of the token before each; zeros before the first. */
static inline sn_tensor before(const sn_forward_ctx *s, sn_tensor x, const char *name) {
    return sn_slice(with_past(s, x, name, 1), 1, 0, s->T);
}

/* A causal convolution of each channel over 4 tokens, each `every` after the one before, then SiLU. */
static inline sn_tensor convolution(const sn_forward_ctx *s, sn_tensor x, const char *name,
                                    int64_t every) {
    sn_scope_push(s->m, "%s", name);
    sn_tensor weight = sn_param(s->m, "weight", SN_F32, 4, sn_dim_of(x, 2)), y = NULL;
    sn_tensor all = with_past(s, x, "past", 3 * every);
    for (int i = 0; i < 4; i++) {
        sn_tensor term = sn_mul(sn_slice(all, 1, every * i, s->T), sn_slice(weight, 0, i, 1));
        y = y ? sn_add(y, term) : term;
    }
    sn_scope_pop(s->m);
    return sn_silu(y);
}

/* Queries, keys and values of short convolutions. */
static inline qkv convolved(const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor part[3];
    sn_split(convolution(s, sn_nn_linear(x, "qkv", 3 * WIDTH, 0), "conv", 1), 2, 3, part);
    return (qkv){sn_split_heads(part[0], HEADS), sn_split_heads(part[1], HEADS),
                 sn_split_heads(part[2], HEADS)};
}

/* v [B, HEADS, T, HEAD] and a column of ones, whose sums are those of the weights. */
static inline sn_tensor with_ones(sn_tensor v) {
    sn_module *m = sn_module_of(v);
    return sn_concat(3, v, sn_full(m, SN_F32, 1, sn_dim_of(v, 0), HEADS, sn_dim_of(v, 2), 1));
}

static inline sn_tensor unit(sn_tensor x) {
    return sn_div(x, sn_sqrt(sn_add(sn_sum_keep(sn_square(x), -1), 1e-6)));
}

/* One number for each head, [B, T, HEADS] as [B, HEADS, T]. */
static inline sn_tensor by_head(sn_tensor x) {
    return sn_swap(x, 1, 2);
}

/* Angles of HEAD / 2 pairs of channels, which grow by what tokens say times their steps dt [B, HEADS, T]:
 * [B, HEADS, T, HEAD / 2]. */
static inline sn_tensor angles(const sn_forward_ctx *s, sn_tensor x, sn_tensor dt) {
    sn_tensor speed = sn_expand(sn_tanh(sn_nn_linear(x, "angles", HEAD / 2, 0)), 1);
    sn_tensor start = carry_of(s, "angle", HEADS, HEAD / 2);
    sn_tensor angle = sn_cumsum(sn_mul(sn_mul(speed, col(dt)), M_PI), 2);
    angle = sn_mod(sn_add(angle, sn_expand(start, 2)), 2 * M_PI);
    if (s->capacity) sn_assign(start, sn_index(angle, 2, sn_dim_sub(s->m, s->T, 1)));
    return angle;
}

/* x [.., HEAD], rotated by angles [.., HEAD / 2]. */
static inline sn_tensor rotated(sn_tensor x, sn_tensor angle) {
    sn_tensor a = sn_slice(x, -1, 0, HEAD / 2), b = sn_slice(x, -1, HEAD / 2, HEAD / 2);
    sn_tensor cosine = sn_cos(angle), sine = sn_sin(angle);
    return sn_concat(-1, sn_sub(sn_mul(a, cosine), sn_mul(b, sine)),
                     sn_add(sn_mul(a, sine), sn_mul(b, cosine)));
}

/* Body of a loop with one pair an element, S ← α S + kᵀ v, y = q S; x: q, k, v [B, HEADS, HEAD], α [B, HEADS]. */
static inline void pair_step(sn_scan_step *s) {
    sn_tensor kept = sn_mul(sn_expand(col(s->x[3]), -1), s->carry[0]);
    s->next[0] = sn_add(kept, sn_mul(col(s->x[1]), row(s->x[2])));
    s->y[0] = times_state(s->x[0], s->next[0]);
}

/* Each head normalised by itself, gated, and joined. */
static inline sn_tensor gated_output(sn_tensor y, sn_tensor x) {
    y = sn_merge_heads(sn_nn_rms_norm(y, "head_norm", 1e-5));
    sn_tensor gate = sn_silu(sn_nn_linear(x, "gate", WIDTH, 0));
    return sn_nn_linear(sn_mul(y, gate), "out", WIDTH, 0);
}

#endif
