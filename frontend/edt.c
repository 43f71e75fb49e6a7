/* edt.c: the encoder-decoder transformer of [PH22 A8], as Vaswani et al. published it in 2017:
 * norms after the residuals, ReLU, learned or sinusoidal positions; by config also with the norms
 * first and one after each stack, two vocabularies, scaled embeddings and a bias at the end, as
 * OpenNMT trains it. The encoder runs once, then tokens one by one [PH22 A15]: "prefill", "decode".
 * Parameter names are our own; config keys are those of the Marian models where there are some. */
#include "frontend/keys.h"
#include "frontend/models.h"

#include <math.h>

enum { LEARNED, SINUSOID, CONCATENATED };

typedef struct edt {
    int64_t vocab, source_vocab, context, layers_enc, layers_dec, heads, d, d_mlp, start;
    double eps;
    int positions, pre;
    bool tied, shared, final_norm, scaled, output_bias;
    sn_encoder_decoder frame;
} edt;

static const char *const positions[] = {"learned", "sinusoid", "sinusoid_concatenated", NULL},
                         *const orders[] = {"post", "pre", NULL};
static const config_key keys[] = {INT_KEY(edt, vocab, "vocab_size", 1, 1 << 24),
                                  INT_KEY_OR(edt, source_vocab, "source_vocab_size", 0, 1, 1 << 24),
                                  INT_KEY(edt, context, "max_position_embeddings", 1, 1 << 24),
                                  INT_KEY(edt, layers_enc, "encoder_layers", 1, 1 << 12),
                                  INT_KEY(edt, layers_dec, "decoder_layers", 1, 1 << 12),
                                  INT_KEY(edt, heads, "attention_heads", 1, 1 << 12),
                                  INT_KEY(edt, d, "d_model", 1, 1 << 20),
                                  INT_KEY(edt, d_mlp, "ffn_dim", 1, 1 << 22),
                                  INT_KEY_OR(edt, start, "position_start", 0, 0, 1),
                                  FLOAT_KEY_OR(edt, eps, "layer_norm_eps", 1e-5, 0, 1),
                                  CHOICE_KEY_OR(edt, positions, "positions", positions, LEARNED),
                                  CHOICE_KEY_OR(edt, pre, "norm_order", orders, 0),
                                  BOOL_KEY_OR(edt, tied, "tie_word_embeddings", true),
                                  BOOL_KEY_OR(edt, scaled, "scale_embedding", false),
                                  BOOL_KEY_OR(edt, output_bias, "output_bias", false),
                                  END_KEYS};

static edt read_config(sn_config *c) {
    edt g = {0};
    config_read(c, keys, &g);
    g.shared = !g.source_vocab;
    if (g.shared) g.source_vocab = g.vocab;
    g.final_norm = sn_config_bool_or(c, "final_layer_norm", g.pre);
    sn_config_divides(c, "attention_heads", g.heads, "d_model", g.d);
    if (g.positions != LEARNED && (g.d % 2 || g.d < 4))
        sn_config_problem(c, "sinusoidal positions need an even \"d_model\" of at least 4");
    return g;
}

/* ---- positions and norms ---- */

/* OpenNMT's sinusoids [T, d]: all sines, then all cosines, wavelengths from 2 pi to 10000 2 pi. */
static sn_tensor concatenated_sinusoid(sn_tensor pos, int64_t d) {
    sn_module *m = sn_module_of(pos);
    sn_tensor j = sn_cast(sn_arange(m, SN_I32, d / 2), SN_F32);
    sn_tensor rate = sn_exp(sn_mul(j, -log(10000) / (double)(d / 2 - 1)));
    sn_tensor angle = sn_mul(sn_expand(sn_cast(pos, SN_F32), 1), rate);
    return sn_concat(1, sn_sin(angle), sn_cos(angle));
}

/* tokens [B, T] at positions past, past + 1, … -> [B, T, d] */
static sn_tensor embed(const edt *g, sn_tensor tokens, sn_dim past, bool source) {
    sn_module *m = sn_module_of(tokens);
    sn_tensor pos = sn_add(sn_arange(m, SN_I32, sn_dim_of(tokens, 1)), past);
    const char *table = g->shared ? "embed_tokens"
                        : source  ? "encoder.embed_tokens"
                                  : "decoder.embed_tokens";
    sn_tensor e = sn_nn_embedding(tokens, table, source ? g->source_vocab : g->vocab, g->d);
    if (g->scaled) e = sn_mul(e, sqrt((double)g->d));
    if (g->positions == LEARNED)
        return sn_add(e, sn_nn_embedding(pos, "embed_positions", g->context, g->d));
    pos = sn_add(pos, (double)g->start);
    return sn_add(e, g->positions == SINUSOID ? sn_sinusoid(pos, g->d, (double)g->context, false)
                                              : concatenated_sinusoid(pos, g->d));
}

/* The input of a sublayer from the residual stream x, and the stream after its update. */
static sn_tensor enter(const edt *g, sn_tensor x, const char *norm) {
    return g->pre ? sn_nn_layer_norm(x, norm, g->eps) : x;
}
static sn_tensor leave(const edt *g, const sn_training *t, sn_tensor x, sn_tensor update,
                       const char *norm) {
    x = sn_add(x, sn_training_dropout(update, t));
    return g->pre ? x : sn_nn_layer_norm(x, norm, g->eps);
}

/* ---- sublayers ---- */

static sn_tensor heads_of(const edt *g, sn_tensor x, const char *name) {
    return sn_split_heads(sn_nn_linear(x, name, g->d, SN_BIAS), g->heads);
}

/* A5 for given keys and values. lengths: Mask hides the padding of Z; NULL: Mask[t, t'] =
 * [[t <= t']] */
static sn_tensor attend(const edt *g, const sn_training *t, sn_tensor x, sn_tensor k, sn_tensor v,
                        sn_tensor lengths) {
    sn_tensor q = heads_of(g, x, "q");
    sn_tensor y = lengths ? sn_padded_attention(t, lengths, q, k, v)
                          : sn_model_attention(t, q, k, v, .causal = true);
    return sn_nn_linear(sn_merge_heads(y), "out", g->d, SN_BIAS);
}

static sn_tensor feed_forward(const edt *g, sn_tensor x) {
    return sn_nn_linear(sn_relu(sn_nn_linear(x, "mlp1", g->d_mlp, SN_BIAS)), "mlp2", g->d, SN_BIAS);
}

/* ---- the two stacks ---- */

static sn_tensor encode(const void *config, const sn_training *t, sn_tensor source,
                        sn_tensor lengths) {
    const edt *g = config;
    sn_module *m = sn_module_of(source);
    sn_tensor z = sn_training_dropout(embed(g, source, 0, true), t); /* lines 1 to 3 */
    for (int l = 0; l < g->layers_enc; l++) {
        sn_scope_push(m, "encoder.%d", l);
        sn_tensor n = enter(g, z, "norm1");
        sn_scope_push(m, "attn");
        n = attend(g, t, n, heads_of(g, n, "k"), heads_of(g, n, "v"), lengths);
        sn_scope_pop(m);
        z = leave(g, t, z, n, "norm1");                                     /* lines 5, 6 */
        z = leave(g, t, z, feed_forward(g, enter(g, z, "norm2")), "norm2"); /* lines 7, 8 */
        sn_scope_pop(m);
    }
    if (g->final_norm) z = sn_nn_layer_norm(z, "encoder.norm", g->eps);
    return sn_name(z, "encoded");
}

static sn_tensor attend_self(const edt *g, const sn_training *t, sn_tensor x, const sn_source *y) {
    sn_tensor k = heads_of(g, x, "k"), v = heads_of(g, x, "v");
    if (y->capacity) {
        k = sn_kv_cache(k, "k_cache", y->past, y->capacity);
        v = sn_kv_cache(v, "v_cache", y->past, y->capacity);
    }
    return attend(g, t, x, k, v, NULL);
}

/* The rows of X that belong to one source, its beams, are queries to the same keys. */
static sn_tensor attend_cross(const edt *g, const sn_training *t, sn_tensor x, const sn_source *y) {
    sn_module *m = sn_module_of(x);
    if (y->z) return attend(g, t, x, heads_of(g, y->z, "k"), heads_of(g, y->z, "v"), y->lengths);
    sn_tensor k = sn_cached_source(&g->frame, m, "k_cache", y),
              v = sn_cached_source(&g->frame, m, "v_cache", y);
    sn_tensor rows = sn_reshape(x, y->batch, SN_REST, g->d);
    return sn_reshape(attend(g, t, rows, k, v, y->lengths), sn_dim_of(x, 0), 1, g->d);
}

static sn_tensor decode(const void *config, const sn_training *t, sn_tensor tokens,
                        const sn_source *y) {
    const edt *g = config;
    sn_module *m = sn_module_of(tokens);
    sn_tensor x = sn_training_dropout(embed(g, tokens, y->past, false), t); /* lines 10 to 12 */
    for (int l = 0; l < g->layers_dec; l++) {
        sn_scope_push(m, "decoder.%d", l);
        sn_tensor n = enter(g, x, "norm3");
        sn_scope_push(m, "attn");
        n = attend_self(g, t, n, y);
        sn_scope_pop(m);
        x = leave(g, t, x, n, "norm3"); /* lines 14, 15 */
        n = enter(g, x, "norm4");
        sn_scope_push(m, "cross");
        n = attend_cross(g, t, n, y);
        sn_scope_pop(m);
        x = leave(g, t, x, n, "norm4");                                     /* lines 16, 17 */
        x = leave(g, t, x, feed_forward(g, enter(g, x, "norm5")), "norm5"); /* lines 18, 19 */
        sn_scope_pop(m);
    }
    if (g->final_norm) x = sn_nn_layer_norm(x, "decoder.norm", g->eps);
    const char *table = !g->tied    ? "lm_head.weight"
                        : g->shared ? "embed_tokens.weight"
                                    : "decoder.embed_tokens.weight";
    sn_tensor bias = g->output_bias ? sn_param(m, "lm_head.bias", SN_F32, g->vocab) : NULL;
    return sn_linear(x, sn_param(m, table, SN_F32, g->vocab, g->d), bias); /* line 21, logits */
}

/* Every decoder layer's keys and values of Z, into the states. */
static void cache_source(const void *config, sn_tensor z, int64_t capacity) {
    const edt *g = config;
    sn_module *m = sn_module_of(z);
    for (int l = 0; l < g->layers_dec; l++) {
        sn_scope_push(m, "decoder.%d.cross", l);
        sn_kv_cache(heads_of(g, z, "k"), "k_cache", 0, capacity);
        sn_kv_cache(heads_of(g, z, "v"), "v_cache", 0, capacity);
        sn_scope_pop(m);
    }
}

void sn_edt_build(sn_config *c, const sn_model_options *o, sn_model *out) {
    edt g = read_config(c);
    out->vocab = g.vocab, out->source_vocab = g.source_vocab, out->context = g.context;
    out->layers = g.layers_enc + g.layers_dec, out->heads = g.heads, out->d_model = g.d;
    if (!sn_config_check(c, NULL)) return;
    g.frame = (sn_encoder_decoder){&g,        encode,       decode,  cache_source,
                                   g.context, g.layers_dec, g.heads, g.d / g.heads};
    sn_encoder_decoder_entries(out->module, &g.frame, o);
}
