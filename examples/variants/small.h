/* small.h: shared by the language models of this folder, so that each file shows only its variant:
 * a decoder over bytes [PH22 A10] that consists of attention and feed-forward parts. */
#ifndef SMALL_H
#define SMALL_H

#include <sinter/models.h>

#ifndef WIDTH /* can be overridden: -DWIDTH=… */
#define WIDTH 64
#define VOCAB 256
#define HEADS 4
#define LAYERS 2
#define CONTEXT 256
#endif
enum { HEAD = WIDTH / HEADS, HIDDEN = 4 * WIDTH };

/* A part of a layer: x [B, T, WIDTH] -> [B, T, WIDTH]. */
typedef sn_tensor part_fn(const sn_forward_ctx *s, sn_tensor x);

typedef struct small {
    part_fn *attend, *feed;
    bool positions; /* adds learned positional embeddings [PH22 A2] */
} small;

typedef struct qkv {
    sn_tensor q, k, v; /* [B, HEADS, T, HEAD] */
} qkv;

/* Queries, keys and values from one product [PH22 A4 lines 1 to 3]. */
static inline qkv project(sn_tensor x) {
    sn_tensor part[3];
    sn_split(sn_nn_linear(x, "qkv", 3 * WIDTH, SN_BIAS), 2, 3, part);
    return (qkv){sn_split_heads(part[0], HEADS), sn_split_heads(part[1], HEADS),
                 sn_split_heads(part[2], HEADS)};
}

/* With caches: appends keys and values and returns all cached ones. */
static inline qkv remember(const sn_forward_ctx *s, qkv p) {
    return (qkv){p.q, sn_append_kv(s, p.k, "keys"), sn_append_kv(s, p.v, "values")};
}

/* Concatenates the heads and applies the output projection [PH22 A5 lines 3, 4]. */
static inline sn_tensor join(sn_tensor y) {
    return sn_nn_linear(sn_merge_heads(y), "out", WIDTH, SN_BIAS);
}

/* Attention to all tokens so far, the attention part of a plain decoder. */
static inline sn_tensor causal_attention(const sn_forward_ctx *s, sn_tensor x) {
    qkv p = remember(s, project(x));
    return join(sn_attention(p.q, p.k, p.v, .causal = true));
}

static inline sn_tensor feed_forward(const sn_forward_ctx *s, sn_tensor x) {
    (void)s;
    sn_tensor h = sn_gelu(sn_nn_linear(x, "up", HIDDEN, SN_BIAS));
    return sn_nn_linear(h, "down", WIDTH, SN_BIAS);
}

static inline sn_tensor embed(const sn_forward_ctx *s, bool positions) {
    sn_tensor x = sn_nn_embedding(s->tokens, "embed", VOCAB, WIDTH);
    return positions ? sn_add(x, sn_nn_embedding(s->pos, "positions", CONTEXT, WIDTH)) : x;
}

/* x + y, with dropout of y in training. */
static inline sn_tensor add_part(const sn_forward_ctx *s, sn_tensor x, sn_tensor y) {
    return sn_add(x, sn_forward_dropout(s, y));
}

/* Pre-norm layers: x + part(norm(x)). */
static inline sn_tensor small_layers(const void *config, const sn_forward_ctx *s) {
    const small *c = config;
    sn_tensor x = embed(s, c->positions);
    for (int l = 0; l < LAYERS; l++) {
        sn_scope_push(s->m, "layer%d", l);
        x = add_part(s, x, c->attend(s, sn_nn_layer_norm(x, "norm1", 1e-5)));
        sn_tensor n = sn_nn_layer_norm(x, "norm2", 1e-5);
        x = add_part(s, x, c->feed ? c->feed(s, n) : feed_forward(s, n));
        sn_scope_pop(s->m);
    }
    return x;
}

static inline sn_tensor small_logits(const void *config, sn_tensor x) {
    (void)config;
    return sn_nn_linear(sn_nn_layer_norm(x, "norm", 1e-5), "head", VOCAB, 0);
}

static inline void small_model(sn_module *m, const sn_model_options *o, const small *c) {
    sn_decoder d = {c, small_layers, small_logits, CONTEXT, LAYERS};
    sn_decoder_entries(m, &d, o);
}

#endif
