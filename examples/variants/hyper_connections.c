/* hyper_connections.c: the residual stream is N vectors that a layer mixes: it reads a weighted sum of
 * them, adds its result to each with a weight, and mixes them by a matrix whose rows and columns sum to 1,
 * so that the stream neither grows nor fades. All weights depend on the token. Xie et al. 2025, "mHC:
 * Manifold-constrained hyper-connections". formula: X ← post ⊗ layer(pre · X) + C X, C = Sinkhorn(σ(…)) */
#include "small.h"

enum { N = 4, ALL = 2 * N + N * N, ROUNDS = 4 };
static const double EPS = 1e-6;

/* Part i of u, n numbers from `first` on, scaled, shifted and through a sigmoid. */
static sn_tensor weights(const sn_forward_ctx *s, sn_tensor u, int i, int64_t first, int64_t n) {
    sn_tensor scale = sn_slice(sn_param(s->m, "scale", SN_F32, 3), 0, i, 1);
    sn_tensor bias = sn_slice(sn_param(s->m, "bias", SN_F32, ALL), 0, first, n);
    return sn_add(sn_sigmoid(sn_add(sn_mul(sn_slice(u, 2, first, n), scale), bias)), EPS);
}

/* u [B, T, N N] as a matrix, divided by the sums of its rows and of its columns in turn: [B, T, N, N]. */
static sn_tensor doubly_stochastic(const sn_forward_ctx *s, sn_tensor u) {
    sn_tensor c[N][N], all[N * N + 1] = {NULL};
    for (int i = 0; i < N * N; i++) c[i / N][i % N] = sn_slice(u, 2, i, 1);
    for (int round = 0; round < 2 * ROUNDS; round++)
        for (int i = 0; i < N; i++) {
            sn_tensor *line[N], sum = NULL;
            for (int j = 0; j < N; j++) line[j] = round % 2 ? &c[j][i] : &c[i][j];
            for (int j = 0; j < N; j++) sum = sum ? sn_add(sum, *line[j]) : *line[j];
            for (int j = 0; j < N; j++) *line[j] = sn_div(*line[j], sn_add(sum, EPS));
        }
    for (int i = 0; i < N * N; i++) all[i] = c[i / N][i % N];
    return sn_reshape(sn_concat_at(SN_HERE, 2, all), s->B, s->T, N, N);
}

/* X [B, T, N, WIDTH] after a part of a layer. */
static sn_tensor connect(const sn_forward_ctx *s, sn_tensor X, part_fn *part, const char *name) {
    sn_scope_push(s->m, "%s", name);
    sn_tensor flat = sn_reshape(X, s->B, s->T, N * WIDTH);
    sn_tensor u = sn_nn_linear(sn_nn_rms_norm(flat, "flat_norm", 1e-6), "mix", ALL, 0);
    sn_tensor pre = weights(s, u, 0, 0, N), post = weights(s, u, 1, N, N);
    sn_tensor C = doubly_stochastic(s, weights(s, u, 2, 2 * N, N * N));
    sn_tensor x = sn_sum(sn_mul(sn_expand(pre, 3), X), 2);
    sn_tensor y = sn_forward_dropout(s, part(s, sn_nn_layer_norm(x, "norm", 1e-5)));
    sn_scope_pop(s->m);
    return sn_add(sn_mul(sn_expand(post, 3), sn_expand(y, 2)), sn_matmul(C, X));
}

static sn_tensor layers(const void *config, const sn_forward_ctx *s) {
    (void)config;
    sn_tensor X = sn_broadcast(sn_expand(embed(s, true), 2), s->B, s->T, N, WIDTH);
    for (int l = 0; l < LAYERS; l++) {
        sn_scope_push(s->m, "layer%d", l);
        X = connect(s, connect(s, X, causal_attention, "attend"), feed_forward, "feed");
        sn_scope_pop(s->m);
    }
    return sn_sum(sn_mul(X, sn_sigmoid(sn_param(s->m, "collapse", SN_F32, N, 1))), 2);
}

SN_MODEL(m, o) {
    sn_decoder d = {NULL, layers, small_logits, CONTEXT, LAYERS};
    sn_decoder_entries(m, &d, o);
}
