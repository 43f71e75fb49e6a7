/* encoder_lm.c: an encoder made from its description (encoder_lm.h). Line numbers are those of
 * [PH22 A9]; the published weights have more: token types, a norm after the embeddings, a bias of
 * the logits. */
#include "frontend/encoder_lm.h"
#include "frontend/causal_lm.h"

#include <math.h>
#include <stdio.h>

/* ---- the config ---- */

static const sn_weight *find(const sn_weights *w, const char *prefix, const char *name) {
    char text[256];
    if (!w || !name) return NULL;
    snprintf(text, sizeof text, "%s%s.weight", prefix, name);
    return sn_weights_find(w, text);
}

/* Whether the config's "architectures" is [TASK + suffix], as in BertForTokenClassification. */
static bool is_for(const encoder_family *f, sn_config *c, const char *suffix) {
    char json[128];
    snprintf(json, sizeof json, "[\"%s%s\"]", f->names.task, suffix);
    return sn_config_equals(c, "architectures", json);
}

/* The kind of classifier, and the number of its classes. */
static void read_labels(const encoder_family *f, sn_config *c, const sn_weights *w, encoder_lm *g) {
    const encoder_names *n = &f->names;
    if (is_for(f, c, "ForTokenClassification"))
        g->per_token = true;
    else if (w && !is_for(f, c, "ForSequenceClassification"))
        g->per_token =
            find(w, "", "classifier") && !find(w, g->pooler_in_prefix ? g->prefix : "", n->pooler);
    const sn_weight *head = find(w, "", g->per_token ? "classifier" : n->classifier);
    int64_t labels = head && head->rank == 2 ? head->shape[0] : 0;
    g->labels = sn_config_int_or(c, "num_labels", labels, 0, 1 << 24);
}

static encoder_lm read_config(const encoder_family *f, sn_config *c, const sn_weights *w) {
    encoder_lm g = f->usual;
    g.names = &f->names;
    config_read(c, f->keys, &g);
    if (!g.d_embed) g.d_embed = g.d;
    if (g.buckets % 4)
        sn_config_problem(c, "\"relative_attention_num_buckets\" is no multiple of 4");
    const char *heads = "num_attention_heads", *width = "hidden_size";
    for (const config_key *k = f->keys; k->key; k++) {
        if (k->field == offsetof(encoder_lm, heads)) heads = k->key;
        if (k->field == offsetof(encoder_lm, d)) width = k->key;
    }
    sn_config_divides(c, heads, g.heads, width, g.d);
    if (g.context <= g.padding + 1)
        sn_config_problem(c, "a table of %lld positions has none after the padding's, %lld",
                          (long long)g.context, (long long)g.padding);
    bool bare = !w || find(w, "", "embeddings.word_embeddings");
    g.prefix = bare ? "" : f->names.prefix;
    char gamma[128];
    snprintf(gamma, sizeof gamma, "%sembeddings.LayerNorm.gamma", g.prefix);
    g.gamma = w && sn_weights_find(w, gamma);
    read_labels(f, c, w, &g);
    return g;
}

/* ---- parts ---- */

static sn_tensor activate(const encoder_lm *g, encoder_act *act, sn_tensor x) {
    return (act ? act : causal_act_fns[g->act])(SN_HERE, x);
}

static sn_tensor norm(const encoder_lm *g, sn_tensor x, const char *name) {
    if (!g->gamma) return sn_nn_layer_norm(x, name, g->eps);
    sn_module *m = sn_module_of(x);
    sn_scope_push(m, "%s", name);
    sn_dim d = sn_dim_of(x, -1);
    sn_tensor gamma = sn_param(m, "gamma", SN_F32, d), beta = sn_param(m, "beta", SN_F32, d);
    sn_scope_pop(m);
    return sn_layer_norm(x, gamma, beta, g->eps);
}

/* A layer: its number, and the scope of its parameters, which layers may share. */
typedef struct layer_place {
    int number, group, inner;
} layer_place;

static void open_layer(const encoder_lm *g, sn_module *m, layer_place at) {
    sn_scope_push(m, "%s.%d", g->names->layers, at.group);
    if (g->groups) sn_scope_push(m, "%s.%d", g->names->inner, at.inner);
}

static void close_layer(const encoder_lm *g, sn_module *m) {
    if (g->groups) sn_scope_pop(m);
    sn_scope_pop(m);
}

static void open_attention(const encoder_lm *g, sn_module *m, layer_place at) {
    open_layer(g, m, at);
    sn_scope_push(m, "attention");
}

static void close_attention(const encoder_lm *g, sn_module *m) {
    sn_scope_pop(m);
    close_layer(g, m);
}

/* Distances of more than this many tokens have the bias of the farthest. */
enum { FARTHEST = 128 };

/* The score with the bias of its distance [Raffel et al. 2020, section 2.1]: half of the buckets
 * are for keys on each side; half of these are one distance each, the others ever wider ranges. */
static sn_tensor add_distance(const sn_score_ctx *c) {
    const encoder_lm *g = c->user;
    int64_t side = g->buckets / 2, exact = side / 2;
    sn_tensor ahead = sn_sub(c->k, c->q), far = sn_abs(ahead), range = sn_min(far, (double)exact);
    for (int64_t i = 1; i < side - exact; i++) {
        double part = (double)i / (double)(side - exact);
        double first = ceil((double)exact * pow((double)FARTHEST / (double)exact, part) - 1e-9);
        range = sn_add(range, sn_cast(sn_ge(far, first), SN_I32));
    }
    sn_tensor bucket = sn_where(sn_gt(ahead, 0), sn_add(range, (double)side), range);
    return sn_add(c->score, sn_at(c->captured[1], bucket, c->h));
}

/* A5 with Z = X; Mask hides the padding */
static sn_tensor attend(const encoder_lm *g, const sn_forward_ctx *s, sn_tensor x,
                        sn_tensor lengths, layer_place at) {
    const encoder_names *n = g->names;
    sn_module *m = s->m;
    sn_tensor distances =
        n->distances ? sn_param(m, n->distances, SN_F32, g->buckets, g->heads) : NULL;
    open_attention(g, m, at);
    sn_tensor q = sn_split_heads(sn_nn_linear(x, n->q, g->d, SN_BIAS), g->heads);
    sn_tensor k = sn_split_heads(sn_nn_linear(x, n->k, g->d, SN_BIAS), g->heads);
    sn_tensor v = sn_split_heads(sn_nn_linear(x, n->v, g->d, SN_BIAS), g->heads);
    close_attention(g, m);
    /* the tap is named by the layer, which is not the scope of shared parameters */
    sn_scope_push(m, "%s.%d.attention", g->groups ? "encoder.layer" : n->layers, at.number);
    sn_attention_args args = {.q = q, .k = k, .v = v, .user = g};
    if (distances) args.score = add_distance, args.captured[1] = distances;
    sn_tensor y = sn_merge_heads(sn_padded_attention_at(SN_HERE, s->training, &args, lengths));
    sn_scope_pop(m);
    open_attention(g, m, at);
    y = sn_nn_linear(y, n->o, g->d, SN_BIAS);
    close_attention(g, m);
    return y;
}

/* Lines 5 to 8 */
static sn_tensor layer(const encoder_lm *g, const sn_forward_ctx *s, sn_tensor x, sn_tensor lengths,
                       layer_place at) {
    const encoder_names *n = g->names;
    sn_tensor y = sn_forward_dropout(s, attend(g, s, x, lengths, at));
    open_layer(g, s->m, at);
    x = norm(g, sn_add(x, y), n->attn_norm);
    y = activate(g, NULL, sn_nn_linear(x, n->up, g->d_mlp, SN_BIAS));
    y = sn_forward_dropout(s, sn_nn_linear(y, n->down, g->d, SN_BIAS));
    x = norm(g, sn_add(x, y), n->mlp_norm);
    close_layer(g, s->m);
    return x;
}

/* Lines 2, 3 */
static sn_tensor embed(const encoder_lm *g, const sn_forward_ctx *s) {
    sn_module *m = s->m;
    sn_tensor tokens = sn_input(m, "tokens", SN_I32, s->B, s->T),
              types = g->types ? sn_input(m, "types", SN_I32, s->B, s->T) : NULL,
              pos = sn_arange(m, SN_I32, s->T);
    if (g->padding >= 0) pos = sn_add(pos, (double)g->padding + 1);
    sn_scope_push(m, "embeddings");
    sn_tensor x = sn_nn_embedding(tokens, "word_embeddings", g->vocab, g->d_embed);
    x = sn_add(x, sn_nn_embedding(pos, "position_embeddings", g->context, g->d_embed));
    if (types) x = sn_add(x, sn_nn_embedding(types, "token_type_embeddings", g->types, g->d_embed));
    x = sn_forward_dropout(s, norm(g, x, "LayerNorm"));
    sn_scope_pop(m);
    /* ALBERT's map exists at any width, ELECTRA's only between different ones */
    bool mapped = g->names->project && (g->groups || g->d_embed != g->d);
    return mapped ? sn_nn_linear(x, g->names->project, g->d, SN_BIAS) : x;
}

/* X after the last layer [B, T, d] */
static sn_tensor encode(const void *config, const sn_forward_ctx *s) {
    const encoder_lm *g = config;
    sn_module *m = s->m;
    sn_scope_params(m, g->prefix);
    sn_tensor x = embed(g, s), lengths = sn_input(m, "lengths", SN_I32, s->B);
    int64_t inner = g->groups ? g->inner : 1;
    for (int64_t l = 0; l < g->layers; l++) /* line 4 */
        for (int64_t i = 0; i < inner; i++) {
            int64_t group = g->groups ? l * g->groups / g->layers : l;
            layer_place at = {(int)(l * inner + i), (int)group, (int)i};
            x = layer(g, s, x, lengths, at);
            sn_name(x, "block%d", at.number);
        }
    return x;
}

/* ---- heads ---- */

/* Lines 10 to 12 without the softmax: logits of every position */
static sn_tensor unembed(const encoder_lm *g, sn_module *m, sn_tensor x) {
    const encoder_names *n = g->names;
    sn_scope_params(m, "");
    x = activate(g, g->head_act, sn_nn_linear(x, n->head_dense, g->d_embed, SN_BIAS));
    x = norm(g, x, n->head_norm);
    sn_tensor bias = sn_param(m, n->head_bias, SN_F32, g->vocab);
    sn_scope_params(m, g->tied ? g->prefix : "");
    const char *table = g->tied ? "embeddings.word_embeddings" : n->head_table;
    sn_scope_push(m, "%s", table);
    sn_tensor w = sn_param(m, "weight", SN_F32, g->vocab, g->d_embed);
    sn_scope_pop(m);
    return sn_linear(x, w, bias);
}

/* [B, T, V]; [B, labels] of a classifier of texts, from the first token's state [PH22 section 3];
 * [B, T, labels] of one of tokens */
static sn_tensor logits(const void *config, const sn_forward_ctx *s) {
    const encoder_lm *g = config;
    const encoder_names *n = g->names;
    sn_tensor x = encode(g, s);
    if (!g->labels) return unembed(g, s->m, x);
    if (!g->per_token) {
        sn_scope_params(s->m, g->pooler_in_prefix ? g->prefix : "");
        x = g->pool_act(SN_HERE, sn_nn_linear(sn_index(x, 1, 0), n->pooler, g->d, SN_BIAS));
    }
    sn_scope_params(s->m, "");
    const char *name = g->per_token ? "classifier" : n->classifier;
    return sn_nn_linear(sn_forward_dropout(s, x), name, g->labels, SN_BIAS);
}

void encoder_lm_build(const encoder_family *f, sn_config *c, const sn_model_options *o,
                      sn_model *out) {
    encoder_lm g = read_config(f, c, o->weights);
    int64_t context = g.context - g.padding - 1;
    out->vocab = g.vocab, out->context = context, out->labels = g.labels;
    out->layers = g.layers, out->heads = g.heads, out->d_model = g.d;
    out->per_token = g.labels && g.per_token;
    if (!sn_config_check(c, NULL)) return;
    bool head = !o->weights || g.labels || sn_weights_find(o->weights, f->names.head_bias);
    sn_encoder e = {&g, encode, head ? logits : NULL, context, true, g.labels ? SN_CLASSIFY : 0};
    sn_encoder_entries(out->module, &e, o);
}
