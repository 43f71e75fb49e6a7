/* seq2seq_lm.c: an encoder-decoder made from its description (seq2seq_lm.h). The encoder runs once,
 * then tokens one by one [PH22 A15]: "prefill", "decode". Line numbers are those of [PH22 A8]. */
#include "frontend/seq2seq_lm.h"
#include "frontend/buckets.h"
#include "frontend/causal_lm.h"
#include "frontend/front.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the config ---- */

static const sn_weight *find(const sn_weights *w, const char *prefix, const char *name) {
    char text[400];
    snprintf(text, sizeof text, "%s%s.weight", prefix, name);
    return w ? sn_weights_find(w, text) : NULL;
}

/* Names that depend on the file: it may lack the prefix, may have the table of tokens under the
 * name of one stack only, and may hold sinusoids as a table. */
static void find_names(seq2seq_lm *g, const sn_weights *w) {
    seq2seq_names *n = &g->names;
    static const char *const tables[] = BOTH_STACKS("embed_tokens");
    char query[200];
    g->prefix = n->prefix;
    if (!w) return;
    snprintf(query, sizeof query, "%s.0.%s.%s", n->layers[DECODER], n->self, n->q);
    if (find(w, "", query)) g->prefix = "";
    bool shared = !strcmp(n->embed[ENCODER], n->embed[DECODER]);
    for (int s = 0; s < STACKS && shared && !find(w, g->prefix, n->embed[DECODER]); s++)
        if (find(w, g->prefix, tables[s])) n->embed[ENCODER] = n->embed[DECODER] = tables[s];
    if (n->positions[ENCODER] && g->positions == POSITIONS_SINES &&
        find(w, g->prefix, n->positions[ENCODER]))
        g->positions = POSITIONS_LEARNED;
}

/* The keys that set the fields at these places. */
static const char *key_of(const seq2seq_family *f, size_t field) {
    const config_key *k = f->keys;
    while (k->key && k->field != field) k++;
    return k->key;
}

static void complete(const seq2seq_family *f, sn_config *c, seq2seq_lm *g) {
    if (!g->source_vocab) g->source_vocab = g->vocab;
    const char *width = key_of(f, offsetof(seq2seq_lm, d));
    for (int s = 0; s < STACKS && !g->d_head; s++)
        sn_config_divides(c, key_of(f, offsetof(seq2seq_lm, heads) + (size_t)s * sizeof *g->heads),
                          g->heads[s], width, g->d);
    if (g->names.distances && (g->buckets % 4 || g->farthest <= g->buckets / 2))
        sn_config_problem(c, "%lld buckets cannot tell distances up to %lld", (long long)g->buckets,
                          (long long)g->farthest);
    if (g->positions != POSITIONS_LEARNED && g->positions != POSITIONS_NONE &&
        (g->d % 2 || g->d < 4))
        sn_config_problem(c, "sinusoidal positions need an even \"%s\" of at least 4", width);
}

/* ---- parts ---- */

/* To the columns of an MLP; from them, or from heads: what a mesh axis "tensor" divides. */
static sn_tensor columns(const seq2seq_lm *g, sn_tensor x, const char *name, int64_t n_out) {
    return sn_nn_linear(x, name, n_out, SN_COLUMNS | (g->no_biases ? 0 : SN_BIAS));
}
static sn_tensor rows(const seq2seq_lm *g, sn_tensor x, const char *name, int64_t n_out) {
    return sn_nn_linear(x, name, n_out, SN_ROWS | (g->no_biases ? 0 : SN_BIAS));
}

static sn_tensor norm(const seq2seq_lm *g, sn_tensor x, const char *name) {
    if (!name) return x;
    return g->rms_norm ? sn_nn_rms_norm(x, name, g->eps) : sn_nn_layer_norm(x, name, g->eps);
}

/* The input of a sublayer from the residual stream x, and the stream after its update. */
static sn_tensor enter(const seq2seq_lm *g, sn_tensor x, const char *name) {
    return g->pre_norm ? norm(g, x, name) : x;
}
static sn_tensor leave(const seq2seq_lm *g, const sn_training *t, sn_tensor x, sn_tensor update,
                       const char *name) {
    x = sn_add(x, sn_training_dropout(update, t));
    return g->pre_norm ? x : norm(g, x, name);
}

/* ---- embedding ---- */

/* Sinusoids [T, d]: all sines, then all cosines. */
static sn_tensor sines(const seq2seq_lm *g, sn_tensor pos) {
    sn_module *m = sn_module_of(pos);
    int64_t half = g->d / 2, steps = g->positions == POSITIONS_SINES ? half : half - 1;
    sn_tensor j = sn_cast(sn_arange(m, SN_I32, half), SN_F32);
    sn_tensor rate = sn_exp(sn_mul(j, -log(10000) / (double)steps));
    sn_tensor angle = sn_mul(sn_expand(sn_cast(pos, SN_F32), 1), rate);
    return sn_concat(1, sn_sin(angle), sn_cos(angle));
}

/* What is added to the embeddings at positions past, past + 1, …: [T, d] */
static sn_tensor places(const seq2seq_lm *g, sn_module *m, sn_dim T, sn_dim past, int stack) {
    sn_tensor pos = sn_add(sn_arange(m, SN_I32, T), past);
    if (g->position_start) pos = sn_add(pos, (double)g->position_start);
    if (g->positions == POSITIONS_LEARNED)
        return sn_nn_embedding(pos, g->names.positions[stack], g->context + g->position_start,
                               g->d);
    return g->positions == POSITIONS_SINUSOID ? sn_sinusoid(pos, g->d, (double)g->context, false)
                                              : sines(g, pos);
}

/* tokens [B, T] at positions past, past + 1, … -> [B, T, d] */
static sn_tensor embed(const seq2seq_lm *g, sn_tensor tokens, sn_dim past, int stack) {
    const seq2seq_names *n = &g->names;
    int64_t vocab = stack == ENCODER ? g->source_vocab : g->vocab;
    sn_tensor e = front_vocabulary(SN_HERE, tokens, n->embed[stack], vocab, g->d);
    if (g->scale_embedding) e = sn_mul(e, sqrt((double)g->d));
    if (g->positions != POSITIONS_NONE)
        e = sn_add(e, places(g, sn_module_of(tokens), sn_dim_of(tokens, 1), past, stack));
    return norm(g, e, n->embed_norm[stack]);
}

/* Spectrograms [B, mel, 2 length] -> [B, length, d]: convolutions over three frames, the second of
 * stride 2 (Radford et al. 2022, section 2.2) */
static sn_tensor embed_sound(const seq2seq_lm *g, sn_tensor x) {
    const seq2seq_names *n = &g->names;
    sn_module *m = sn_module_of(x);
    sn_dim B = sn_dim_of(x, 0);
    x = sn_reshape(x, B, g->mel, 1, 2 * g->length);
    for (int i = 0; i < 2; i++) {
        int64_t in = i ? g->d : g->mel;
        sn_scope_push(m, "%s", n->conv[i]);
        sn_tensor w = sn_reshape(sn_param(m, "weight", SN_F32, g->d, in, 3), g->d, in, 1, 3),
                  b = sn_param(m, "bias", SN_F32, g->d);
        sn_scope_pop(m);
        x = sn_gelu(sn_conv2d(x, w, b, .stride = {1, i + 1}, .padding = {0, 1}));
    }
    x = sn_transpose(sn_reshape(x, B, g->d, g->length), 0, 2, 1);
    sn_scope_push(m, "%s", n->positions[ENCODER]);
    x = sn_add(x, sn_param(m, "weight", SN_F32, g->length, g->d));
    sn_scope_pop(m);
    return x;
}

/* ---- sublayers ---- */

static int64_t head_width(const seq2seq_lm *g, int stack) {
    return g->d_head ? g->d_head : g->d / g->heads[stack];
}

static sn_tensor heads_of(const seq2seq_lm *g, int stack, sn_tensor x, const char *name) {
    int64_t heads = g->heads[stack], width = heads * head_width(g, stack);
    bool bias = !g->no_biases && !(g->no_k_bias && name == g->names.k);
    front_divides(sn_module_of(x), "heads", heads);
    return sn_split_heads(sn_nn_linear(x, name, width, SN_COLUMNS | (bias ? SN_BIAS : 0)), heads);
}

/* The biases of a stack's scores by distance [buckets, heads]; NULL: none. */
static sn_tensor distances(const seq2seq_lm *g, sn_module *m, int stack, int layer) {
    if (!g->names.distances) return NULL;
    sn_scope_push(m, "%s.%d", g->names.layers[stack], g->distances_in_each_layer ? layer : 0);
    sn_scope_push(m, "%s.%s", g->names.self, g->names.distances);
    sn_tensor table = sn_param(m, "weight", SN_F32, g->buckets, g->heads[stack]);
    sn_scope_pop(m);
    sn_scope_pop(m);
    return table;
}

static sn_tensor add_distance(const sn_score_ctx *c) {
    const seq2seq_lm *g = c->user;
    bool causal = !c->captured[1]; /* the encoder's first one is `lengths` */
    const distance_buckets b = {g->buckets, g->farthest, causal};
    sn_tensor bucket = distance_bucket(&b, sn_neg(sn_query_key_distance(c)));
    return sn_add(c->score, sn_at(c->captured[causal ? 0 : 1], bucket, c->h));
}

/* A5 for given keys and values. lengths: Mask hides the padding of Z, which sound has not; NULL:
 * Mask[t, t'] = [[t <= t']] */
static sn_tensor attend(const seq2seq_lm *g, const sn_training *t, int stack, sn_tensor x,
                        sn_tensor k, sn_tensor v, sn_tensor lengths, sn_tensor table) {
    sn_tensor q = heads_of(g, stack, x, g->names.q);
    sn_attention_args a = {.q = q, .k = k, .v = v, .scale = g->score_scale, .user = g};
    if (table) a.score = add_distance, a.captured[lengths ? 1 : 0] = table;
    a.causal = !lengths;
    sn_tensor y = lengths && !g->mel ? sn_padded_attention_at(SN_HERE, t, &a, lengths)
                                     : sn_model_attention_at(SN_HERE, t, &a);
    return rows(g, sn_merge_heads(y), g->names.o, g->d);
}

/* Lines 7, 8 or 18, 19 */
static sn_tensor feed_forward(const seq2seq_lm *g, const sn_training *t, sn_tensor x, int stack) {
    const seq2seq_names *n = &g->names;
    sn_module *m = sn_module_of(x);
    sn_tensor y = enter(g, x, n->mlp_norm[stack]);
    if (n->mlp[stack]) sn_scope_push(m, "%s", n->mlp[stack]);
    sn_tensor h = columns(g, y, n->gate ? n->gate : n->up, g->d_mlp[stack]);
    h = causal_act_fns[g->act](SN_HERE, h);
    if (n->gate) h = sn_mul(h, columns(g, y, n->up, g->d_mlp[stack]));
    y = rows(g, h, n->down, g->d);
    if (n->mlp[stack]) sn_scope_pop(m);
    return leave(g, t, x, y, n->mlp_norm[stack]);
}

/* ---- the two stacks ---- */

static sn_tensor encode(const void *config, const sn_training *t, sn_tensor source,
                        sn_tensor lengths) {
    const seq2seq_lm *g = config;
    const seq2seq_names *n = &g->names;
    sn_module *m = sn_module_of(source);
    sn_scope_params(m, g->prefix);
    sn_tensor z = g->mel ? embed_sound(g, source) : embed(g, source, 0, ENCODER); /* lines 1 to 3 */
    z = sn_training_dropout(z, t);
    for (int l = 0; l < g->layers[ENCODER]; l++) {
        sn_tensor table = distances(g, m, ENCODER, l);
        sn_scope_push(m, "%s.%d", n->layers[ENCODER], l);
        sn_tensor x = enter(g, z, n->self_norm[ENCODER]);
        sn_scope_push(m, "%s", n->self);
        x = attend(g, t, ENCODER, x, heads_of(g, ENCODER, x, n->k), heads_of(g, ENCODER, x, n->v),
                   lengths, table);
        sn_scope_pop(m);
        z = leave(g, t, z, x, n->self_norm[ENCODER]); /* lines 5, 6 */
        z = feed_forward(g, t, z, ENCODER);
        sn_scope_pop(m);
    }
    return sn_name(norm(g, z, n->norm[ENCODER]), "encoded");
}

static sn_tensor attend_self(const seq2seq_lm *g, const sn_training *t, sn_tensor x,
                             const sn_source *y, sn_tensor table) {
    sn_tensor k = heads_of(g, DECODER, x, g->names.k), v = heads_of(g, DECODER, x, g->names.v);
    if (y->capacity) {
        k = sn_kv_cache(k, "k_cache", y->past, y->capacity);
        v = sn_kv_cache(v, "v_cache", y->past, y->capacity);
    }
    return attend(g, t, DECODER, x, k, v, NULL, table);
}

/* The rows of X that belong to one source, its beams, are queries to the same keys. */
static sn_tensor attend_cross(const seq2seq_lm *g, const sn_training *t, sn_tensor x,
                              const sn_source *y) {
    sn_module *m = sn_module_of(x);
    const seq2seq_names *n = &g->names;
    if (y->z)
        return attend(g, t, DECODER, x, heads_of(g, DECODER, y->z, n->k),
                      heads_of(g, DECODER, y->z, n->v), y->lengths, NULL);
    sn_tensor k = sn_cached_source(&g->frame, m, "k_cache", y),
              v = sn_cached_source(&g->frame, m, "v_cache", y);
    sn_tensor rows = sn_reshape(x, y->batch, SN_REST, g->d);
    rows = attend(g, t, DECODER, rows, k, v, y->lengths, NULL);
    return sn_reshape(rows, sn_dim_of(x, 0), 1, g->d);
}

static sn_tensor output_bias(const seq2seq_lm *g, sn_module *m) {
    const seq2seq_names *n = &g->names;
    if (!g->output_bias) return NULL;
    if (n->head_bias) return sn_reshape(sn_param(m, n->head_bias, SN_F32, 1, g->vocab), g->vocab);
    sn_scope_push(m, "%s", n->head);
    sn_tensor bias = sn_param(m, "bias", SN_F32, g->vocab);
    sn_scope_pop(m);
    return bias;
}

/* Line 21, logits */
static sn_tensor unembed(const seq2seq_lm *g, sn_tensor x) {
    const seq2seq_names *n = &g->names;
    sn_module *m = sn_module_of(x);
    if (g->head_scale > 0) x = sn_mul(x, g->head_scale);
    if (!g->tied) sn_scope_params(m, "");
    sn_scope_push(m, "%s", g->tied ? n->embed[DECODER] : n->head);
    sn_tensor w = sn_param(m, "weight", SN_F32, g->vocab, g->d);
    sn_scope_pop(m);
    sn_scope_params(m, "");
    sn_tensor bias = output_bias(g, m);
    if (bias) bias = sn_shard(bias, 0, FRONT_TENSOR);
    return sn_linear(x, sn_shard(w, 0, FRONT_TENSOR), bias);
}

static sn_tensor decode(const void *config, const sn_training *t, sn_tensor tokens,
                        const sn_source *y) {
    const seq2seq_lm *g = config;
    const seq2seq_names *n = &g->names;
    sn_module *m = sn_module_of(tokens);
    sn_scope_params(m, g->prefix);
    sn_tensor x = sn_training_dropout(embed(g, tokens, y->past, DECODER), t); /* lines 10 to 12 */
    for (int l = 0; l < g->layers[DECODER]; l++) {
        sn_tensor table = distances(g, m, DECODER, l);
        sn_scope_push(m, "%s.%d", n->layers[DECODER], l);
        sn_tensor in = enter(g, x, n->self_norm[DECODER]);
        sn_scope_push(m, "%s", n->self);
        in = attend_self(g, t, in, y, table);
        sn_scope_pop(m);
        x = leave(g, t, x, in, n->self_norm[DECODER]); /* lines 14, 15 */
        in = enter(g, x, n->cross_norm);
        sn_scope_push(m, "%s", n->cross);
        in = attend_cross(g, t, in, y);
        sn_scope_pop(m);
        x = leave(g, t, x, in, n->cross_norm); /* lines 16, 17 */
        x = feed_forward(g, t, x, DECODER);
        sn_scope_pop(m);
    }
    return unembed(g, norm(g, x, n->norm[DECODER]));
}

/* Every decoder layer's keys and values of Z, into the states. */
static void cache_source(const void *config, sn_tensor z, int64_t capacity) {
    const seq2seq_lm *g = config;
    sn_module *m = sn_module_of(z);
    for (int l = 0; l < g->layers[DECODER]; l++) {
        sn_scope_push(m, "%s.%d.%s", g->names.layers[DECODER], l, g->names.cross);
        sn_kv_cache(heads_of(g, DECODER, z, g->names.k), "k_cache", 0, capacity);
        sn_kv_cache(heads_of(g, DECODER, z, g->names.v), "v_cache", 0, capacity);
        sn_scope_pop(m);
    }
}

void seq2seq_lm_build(const seq2seq_family *f, sn_config *c, const sn_model_options *o,
                      sn_model *out) {
    seq2seq_lm g = f->usual;
    g.names = f->names;
    config_read(c, f->keys, &g);
    if (f->finish) f->finish(c, o, &g);
    complete(f, c, &g);
    find_names(&g, o->weights);
    out->vocab = g.vocab, out->source_vocab = g.source_vocab, out->context = g.context;
    out->layers = g.layers[ENCODER] + g.layers[DECODER];
    out->heads = g.heads[DECODER], out->d_model = g.d;
    out->tied = g.tied;
    if (g.mel) out->source_vocab = 0, out->mel = g.mel, out->frames = 2 * g.length;
    if (!sn_config_check(c, NULL)) return;
    g.frame = (sn_encoder_decoder){.config = &g,
                                   .encode = encode,
                                   .decode = decode,
                                   .cache_source = cache_source,
                                   .context = g.context,
                                   .mel = g.mel,
                                   .length = g.length,
                                   .layers = g.layers[DECODER],
                                   .heads = g.heads[DECODER],
                                   .d_head = head_width(&g, DECODER),
                                   .layer_scope = g.names.layers[DECODER],
                                   .self_scope = g.names.self,
                                   .cross_scope = g.names.cross};
    sn_encoder_decoder_entries(out->module, &g.frame, o);
}
