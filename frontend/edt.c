/* edt.c: the encoder-decoder transformer of [PH22 A8], as Vaswani et al. published it in 2017:
 * norms after the residuals, ReLU, learned or sinusoidal positions; by config also with the norms
 * first and one after each stack, two vocabularies, scaled embeddings and a bias at the end, as
 * OpenNMT trains it. The encoder runs once, then tokens one by one [PH22 A15]: "prefill", "decode".
 * Parameter names are our own; config keys are those of the Marian models where there are some. */
#include "frontend/models.h"

#include <math.h>

enum { LEARNED, SINUSOID, CONCATENATED };

typedef struct edt {
    int64_t vocab, source_vocab, context, layers_enc, layers_dec, heads, d, d_mlp, start;
    double eps;
    int positions;
    bool tied, shared, pre, final_norm, scaled, output_bias;
    const sn_training *training; /* of the entry that is being built; NULL: none */
} edt;

static edt read_config(sn_config *c) {
    static const char *const positions[] = {"learned", "sinusoid", "sinusoid_concatenated", NULL};
    static const char *const orders[] = {"post", "pre", NULL};
    edt g = {.vocab = sn_config_int(c, "vocab_size", 1, 1 << 24),
             .context = sn_config_int(c, "max_position_embeddings", 1, 1 << 24),
             .layers_enc = sn_config_int(c, "encoder_layers", 1, 1 << 12),
             .layers_dec = sn_config_int(c, "decoder_layers", 1, 1 << 12),
             .heads = sn_config_int(c, "attention_heads", 1, 1 << 12),
             .d = sn_config_int(c, "d_model", 1, 1 << 20),
             .d_mlp = sn_config_int(c, "ffn_dim", 1, 1 << 22),
             .start = sn_config_int_or(c, "position_start", 0, 0, 1),
             .eps = sn_config_float_or(c, "layer_norm_eps", 1e-5, 0, 1),
             .positions = sn_config_choice_or(c, "positions", positions, LEARNED),
             .tied = sn_config_bool_or(c, "tie_word_embeddings", true),
             .pre = sn_config_choice_or(c, "norm_order", orders, 0) == 1,
             .shared = !sn_config_has(c, "source_vocab_size"),
             .scaled = sn_config_bool_or(c, "scale_embedding", false),
             .output_bias = sn_config_bool_or(c, "output_bias", false)};
    g.source_vocab = sn_config_int_or(c, "source_vocab_size", g.vocab, 1, 1 << 24);
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

static sn_tensor drop(const edt *g, sn_tensor x) {
    return sn_training_dropout(x, g->training);
}

/* What a sublayer reads of the stream x, and the stream after it gave `update`. */
static sn_tensor enter(const edt *g, sn_tensor x, const char *norm) {
    return g->pre ? sn_nn_layer_norm(x, norm, g->eps) : x;
}
static sn_tensor leave(const edt *g, sn_tensor x, sn_tensor update, const char *norm) {
    x = sn_add(x, drop(g, update));
    return g->pre ? x : sn_nn_layer_norm(x, norm, g->eps);
}

/* ---- sublayers ---- */

static sn_tensor inside(const sn_score_ctx *c) {
    return sn_lt(c->k, sn_at(c->captured[0], c->b));
}

static sn_tensor heads_of(const edt *g, sn_tensor x, const char *name) {
    return sn_split_heads(sn_nn_linear(x, name, g->d, SN_BIAS), g->heads);
}

/* A5 for given keys and values. lengths: Mask hides the padding of Z; NULL: Mask[t, t'] = [[t <=
 * t']] */
static sn_tensor attend(const edt *g, sn_tensor x, sn_tensor k, sn_tensor v, sn_tensor lengths) {
    const sn_training *t = g->training;
    sn_tensor q = heads_of(g, x, "q");
    sn_tensor y = lengths ? sn_model_attention(t, q, k, v, .mask = inside, .captured = {lengths})
                          : sn_model_attention(t, q, k, v, .causal = true);
    return sn_nn_linear(sn_merge_heads(y), "out", g->d, SN_BIAS);
}

static sn_tensor feed_forward(const edt *g, sn_tensor x) {
    return sn_nn_linear(sn_relu(sn_nn_linear(x, "mlp1", g->d_mlp, SN_BIAS)), "mlp2", g->d, SN_BIAS);
}

/* ---- the two stacks ---- */

static sn_tensor encode(const edt *g, sn_tensor source, sn_tensor lengths) {
    sn_module *m = sn_module_of(source);
    sn_tensor z = drop(g, embed(g, source, 0, true)); /* lines 1 to 3 */
    for (int l = 0; l < g->layers_enc; l++) {
        sn_scope_push(m, "encoder.%d", l);
        sn_tensor n = enter(g, z, "norm1");
        sn_scope_push(m, "attn");
        n = attend(g, n, heads_of(g, n, "k"), heads_of(g, n, "v"), lengths);
        sn_scope_pop(m);
        z = leave(g, z, n, "norm1");                                     /* lines 5, 6 */
        z = leave(g, z, feed_forward(g, enter(g, z, "norm2")), "norm2"); /* lines 7, 8 */
        sn_scope_pop(m);
    }
    if (g->final_norm) z = sn_nn_layer_norm(z, "encoder.norm", g->eps);
    return sn_name(z, "encoded");
}

/* What the decoder attends to: Z itself, or what earlier entries left in the states. */
typedef struct memory {
    sn_tensor z;             /* [B, S, d]; NULL: keys and values come from the states */
    sn_tensor lengths;       /* [B] of the sources */
    sn_dim S, past;          /* tokens of the source; of X before this one */
    int64_t batch, capacity; /* of the states; 0: no states */
} memory;

/* A state [batch, H, capacity, d/H] of the scope. */
static sn_tensor cache_state(const edt *g, sn_module *m, const char *name, int64_t batch,
                             int64_t capacity) {
    return sn_state(m, name, SN_F32, batch, g->heads, capacity, g->d / g->heads);
}

static sn_tensor attend_self(const edt *g, sn_tensor x, const memory *y) {
    sn_tensor k = heads_of(g, x, "k"), v = heads_of(g, x, "v");
    if (y->capacity) {
        k = sn_kv_cache(k, "k_cache", y->past, y->capacity);
        v = sn_kv_cache(v, "v_cache", y->past, y->capacity);
    }
    return attend(g, x, k, v, NULL);
}

/* The rows of X that belong to one source (its beams) are as many queries to it. */
static sn_tensor attend_cross(const edt *g, sn_tensor x, const memory *y) {
    sn_module *m = sn_module_of(x);
    if (y->z) return attend(g, x, heads_of(g, y->z, "k"), heads_of(g, y->z, "v"), y->lengths);
    sn_tensor k = sn_slice(cache_state(g, m, "k_cache", y->batch, y->capacity), 2, 0, y->S);
    sn_tensor v = sn_slice(cache_state(g, m, "v_cache", y->batch, y->capacity), 2, 0, y->S);
    sn_tensor rows = sn_reshape(x, y->batch, SN_REST, g->d);
    return sn_reshape(attend(g, rows, k, v, y->lengths), sn_dim_of(x, 0), 1, g->d);
}

static sn_tensor decode(const edt *g, sn_tensor tokens, const memory *y) {
    sn_module *m = sn_module_of(tokens);
    sn_tensor x = drop(g, embed(g, tokens, y->past, false)); /* lines 10 to 12 */
    for (int l = 0; l < g->layers_dec; l++) {
        sn_scope_push(m, "decoder.%d", l);
        sn_tensor n = enter(g, x, "norm3");
        sn_scope_push(m, "attn");
        n = attend_self(g, n, y);
        sn_scope_pop(m);
        x = leave(g, x, n, "norm3"); /* lines 14, 15 */
        n = enter(g, x, "norm4");
        sn_scope_push(m, "cross");
        n = attend_cross(g, n, y);
        sn_scope_pop(m);
        x = leave(g, x, n, "norm4");                                     /* lines 16, 17 */
        x = leave(g, x, feed_forward(g, enter(g, x, "norm5")), "norm5"); /* lines 18, 19 */
        sn_scope_pop(m);
    }
    if (g->final_norm) x = sn_nn_layer_norm(x, "decoder.norm", g->eps);
    const char *table = !g->tied    ? "lm_head.weight"
                        : g->shared ? "embed_tokens.weight"
                                    : "decoder.embed_tokens.weight";
    sn_tensor bias = g->output_bias ? sn_param(m, "lm_head.bias", SN_F32, g->vocab) : NULL;
    return sn_linear(x, sn_param(m, table, SN_F32, g->vocab, g->d), bias); /* line 21, logits */
}

/* logits of all tokens, the source given */
static sn_tensor translate(const edt *g, sn_tensor source, sn_tensor lengths, sn_tensor tokens) {
    memory y = {.z = encode(g, source, lengths), .lengths = lengths};
    return decode(g, tokens, &y);
}

/* ---- A15: the encoder once, then token by token ---- */

/* Every decoder layer's keys and values of Z, into the states. */
static void remember_source(const edt *g, sn_tensor z, int64_t capacity) {
    sn_module *m = sn_module_of(z);
    for (int l = 0; l < g->layers_dec; l++) {
        sn_scope_push(m, "decoder.%d.cross", l);
        sn_kv_cache(heads_of(g, z, "k"), "k_cache", 0, capacity);
        sn_kv_cache(heads_of(g, z, "v"), "v_cache", 0, capacity);
        sn_scope_pop(m);
    }
}

/* Row i goes on where row parents[i] was. */
static void reorder(const edt *g, sn_tensor parents, int64_t rows, int64_t capacity) {
    static const char *const names[] = {"k_cache", "v_cache"};
    sn_module *m = sn_module_of(parents);
    for (int l = 0; l < g->layers_dec; l++) {
        sn_scope_push(m, "decoder.%d.attn", l);
        for (int i = 0; i < 2; i++) {
            sn_tensor state = cache_state(g, m, names[i], rows, capacity);
            sn_assign(state, sn_gather(state, 0, parents));
        }
        sn_scope_pop(m);
    }
}

static void build_cached(const edt *g, sn_module *m, const sn_model_options *o, int64_t most) {
    int64_t rows = o->batch * o->beams;
    sn_dim S = sn_symbol(m, "S", 1, most), P = sn_symbol(m, "P", 0, most - 1);
    sn_entry_begin(m, "prefill");
    sn_tensor source = sn_input(m, "source", SN_I32, o->batch, S),
              lengths = sn_input(m, "lengths", SN_I32, o->batch);
    sn_tensor z = encode(g, source, lengths);
    remember_source(g, z, most);
    sn_output("hidden", z);
    sn_entry_begin(m, "decode");
    memory y = {.lengths = lengths, .S = S, .past = P, .batch = o->batch, .capacity = most};
    sn_tensor tokens = sn_input(m, "tokens", SN_I32, rows, 1);
    sn_output("logits", sn_squeeze(decode(g, tokens, &y), 1));
    sn_entry_begin(m, "reorder");
    sn_tensor parents = sn_input(m, "parents", SN_I32, rows);
    reorder(g, parents, rows, most);
    sn_output("parents", parents);
}

void sn_edt_build(sn_config *c, const sn_model_options *o, sn_model *out) {
    edt g = read_config(c);
    out->vocab = g.vocab, out->source_vocab = g.source_vocab, out->context = g.context;
    out->layers = g.layers_enc + g.layers_dec, out->heads = g.heads, out->d_model = g.d;
    if (!sn_config_check(c, NULL)) return;
    sn_module *m = out->module;
    int64_t most = o->context ? o->context : g.context;
    sn_dim B = sn_symbol(m, "B", 1, o->max_batch), S = sn_symbol(m, "S", 1, most),
           T = sn_symbol(m, "T", 1, most);
    sn_tensor source = sn_input(m, "source", SN_I32, B, S),
              lengths = sn_input(m, "lengths", SN_I32, B);
    sn_tensor tokens = sn_input(m, "tokens", SN_I32, B, T);
    if (o->entries & SN_ENCODE) {
        sn_entry_begin(m, "encode");
        sn_output("hidden", encode(&g, source, lengths));
    }
    if (o->entries & SN_FORWARD) {
        sn_entry_begin(m, "forward");
        sn_output("logits", translate(&g, source, lengths, tokens));
    }
    if (o->entries & SN_LOSS) { /* A11 line 5 */
        sn_entry_begin(m, "loss");
        sn_tensor logits = translate(&g, source, lengths, tokens);
        sn_output("loss", sn_cross_entropy(logits, sn_input(m, "targets", SN_I32, B, T)));
    }
    if (o->entries & SN_TRAIN) { /* A11 */
        edt training = g;
        training.training = o->training;
        sn_training_begin(m, o->training);
        sn_training_end(translate(&training, source, lengths, tokens), o->training);
    }
    if (o->entries & SN_CACHED) build_cached(&g, m, o, most);
}
