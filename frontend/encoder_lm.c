/* encoder_lm.c: an encoder made from its description (encoder_lm.h). Line numbers are those of
 * [PH22 A9]; the published weights have more: token types, a norm after the embeddings, a bias of
 * the logits. */
#include "frontend/encoder_lm.h"
#include "frontend/causal_lm.h"
#include "frontend/front.h"

#include <stdio.h>
#include <string.h>

/* ---- the config ---- */

/* The key that sets a field; NULL: none does. */
static const char *key_of(const encoder_family *f, size_t field) {
    const config_key *k = f->keys;
    while (k->key && k->field != field) k++;
    return k->key;
}

static bool has(const sn_weights *w, const char *prefix, const char *table, const char *part) {
    char name[256];
    snprintf(name, sizeof name, "%sembeddings.%s.%s", prefix, table, part);
    return w && sn_weights_find(w, name);
}

static encoder_lm read_config(const encoder_family *f, sn_config *c, const sn_model_options *o) {
    const sn_weights *w = o->weights;
    encoder_lm g = f->usual;
    g.names = &f->names;
    config_read(c, f->keys, &g);
    if (!g.d_embed) g.d_embed = g.d;
    sn_config_divides(c, key_of(f, offsetof(encoder_lm, heads)), g.heads,
                      key_of(f, offsetof(encoder_lm, d)), g.d);
    if (f->finish) f->finish(c, o, &g);
    if (!g.no_position_table && g.context <= g.padding + 1)
        sn_config_problem(c, "a table of %lld positions has none after the padding's, %lld",
                          (long long)g.context, (long long)g.padding);
    g.prefix = !w || has(w, "", f->names.tokens, "weight") ? "" : f->names.prefix;
    g.gamma = f->names.embed_norm && has(w, g.prefix, f->names.embed_norm, "gamma");
    encoder_read_head(c, w, &g);
    sentence_read(c, g.d, &g.sentence);
    return g;
}

/* ---- parts ---- */

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

static bool has_window(const encoder_lm *g, int layer) {
    if (!g->window) return false;
    return g->n_layer_types ? g->layer_type[layer] == 1 : layer % g->full_every != 0;
}

/* q, k, v [B, H, T, d_head], rotated where positions are */
static void project(const encoder_lm *g, const sn_forward_ctx *s, sn_tensor x, bool windowed,
                    sn_tensor part[3]) {
    const encoder_names *n = g->names;
    const char *const name[] = {n->q, n->k, n->v};
    const int64_t widths[] = {g->d, g->d, g->d};
    front_divides(s->m, "heads", g->heads);
    if (n->qkv)
        sn_split(encoder_columns(x, n->qkv, 3, widths, g->attn_bias), 2, 3, part);
    else
        for (int i = 0; i < 3; i++) part[i] = encoder_columns(x, name[i], 1, widths, g->attn_bias);
    for (int i = 0; i < 3; i++) part[i] = sn_split_heads(part[i], g->heads);
    static const rope_scaling plain = {.scale = 1};
    bool local = windowed && g->local_base > 0;
    for (int i = 0; g->rotary && i < 2; i++)
        part[i] = rope_apply(part[i], sn_arange(s->m, SN_I32, s->T), g->d / g->heads, false,
                             local ? g->local_base : g->base, local ? &plain : &g->rope);
}

/* A5 with Z = X; Mask hides the padding */
static sn_tensor attend(const encoder_lm *g, const sn_forward_ctx *s, sn_tensor x,
                        const encoder_shared *shared, layer_place at) {
    const encoder_names *n = g->names;
    sn_module *m = s->m;
    bool windowed = has_window(g, at.number);
    sn_tensor part[3];
    project(g, s, x, windowed, part);
    sn_attention_args args = {.q = part[0], .k = part[1], .v = part[2]};
    encoder_score(g, s, shared, windowed, &args);
    close_layer(g, m);
    /* the tap is named by the layer, which is not the scope of shared parameters */
    sn_scope_push(m, "%s.%d.attention", g->groups ? "encoder.layer" : n->layers, at.number);
    sn_tensor y = sn_merge_heads(sn_model_attention_at(SN_HERE, s->training, &args));
    sn_scope_pop(m);
    open_layer(g, m, at);
    return sn_forward_dropout(s, encoder_rows(y, n->o, g->d, g->attn_bias));
}

static sn_tensor feed_forward(const encoder_lm *g, const sn_forward_ctx *s, sn_tensor x) {
    const encoder_names *n = g->names;
    sn_tensor h[2] = {NULL};
    const int64_t half[] = {g->d_mlp, g->d_mlp};
    if (n->gate_up)
        sn_split(encoder_columns(x, n->gate_up, 2, half, g->mlp_bias), 2, 2, h);
    else
        h[0] = encoder_columns(x, n->gate ? n->gate : n->up, 1, half, g->mlp_bias);
    if (n->gate) h[1] = encoder_columns(x, n->up, 1, half, g->mlp_bias);
    h[0] = encoder_activate(g, NULL, h[0]);
    x = encoder_rows(h[1] ? sn_mul(h[0], h[1]) : h[0], n->down, g->d, g->mlp_bias);
    return sn_forward_dropout(s, x);
}

/* Lines 5 to 8 */
static sn_tensor layer(const encoder_lm *g, const sn_forward_ctx *s, sn_tensor x,
                       const encoder_shared *shared, layer_place at) {
    const encoder_names *n = g->names;
    open_layer(g, s->m, at);
    if (g->pre_norm) {
        sn_tensor y = at.number ? encoder_norm(g, x, n->attn_norm) : x;
        x = sn_add(x, attend(g, s, y, shared, at));
        x = sn_add(x, feed_forward(g, s, encoder_norm(g, x, n->mlp_norm)));
    } else {
        x = encoder_norm(g, sn_add(x, attend(g, s, x, shared, at)), n->attn_norm);
        x = encoder_norm(g, sn_add(x, feed_forward(g, s, x)), n->mlp_norm);
    }
    close_layer(g, s->m);
    return x;
}

/* Lines 2, 3 */
static sn_tensor embed(const encoder_lm *g, const sn_forward_ctx *s) {
    const encoder_names *n = g->names;
    sn_module *m = s->m;
    sn_tensor tokens = sn_input(m, "tokens", SN_I32, s->B, s->T),
              types = g->types ? sn_input(m, "types", SN_I32, s->B, s->T) : NULL,
              pos = sn_arange(m, SN_I32, s->T);
    if (g->padding >= 0) pos = sn_add(pos, (double)g->padding + 1);
    sn_scope_push(m, "embeddings");
    sn_tensor x = front_vocabulary(SN_HERE, tokens, n->tokens, g->vocab, g->d_embed);
    if (!g->no_position_table)
        x = sn_add(x, sn_nn_embedding(pos, "position_embeddings", g->context, g->d_embed));
    if (types) x = sn_add(x, sn_nn_embedding(types, "token_type_embeddings", g->types, g->d_embed));
    bool inside = n->project && !strncmp(n->project, "embeddings.", 11);
    /* ALBERT's map exists at any width, ELECTRA's and DeBERTa's only between different ones */
    bool mapped = n->project && (g->groups || g->d_embed != g->d);
    if (mapped && inside) x = encoder_linear(x, n->project + 11, g->d, !g->project_without_bias);
    if (!n->outer_norm) x = sn_forward_dropout(s, encoder_norm(g, x, n->embed_norm));
    sn_scope_pop(m);
    if (n->outer_norm) x = sn_forward_dropout(s, encoder_norm(g, x, n->outer_norm));
    return mapped && !inside ? encoder_linear(x, n->project, g->d, !g->project_without_bias) : x;
}

/* X after the last layer [B, T, d] */
static sn_tensor encode(const void *config, const sn_forward_ctx *s) {
    const encoder_lm *g = config;
    sn_module *m = s->m;
    sn_scope_params(m, g->prefix);
    sn_tensor x = embed(g, s);
    encoder_shared shared = encoder_share(g, s);
    int64_t inner = g->groups ? g->inner : 1;
    for (int64_t l = 0; l < g->layers; l++) /* line 4 */
        for (int64_t i = 0; i < inner; i++) {
            int64_t group = g->groups ? l * g->groups / g->layers : l;
            layer_place at = {(int)(l * inner + i), (int)group, (int)i};
            x = layer(g, s, x, &shared, at);
            sn_name(x, "block%d", at.number);
        }
    return g->names->norm ? encoder_norm(g, x, g->names->norm) : x;
}

static sn_tensor logits(const void *config, const sn_forward_ctx *s) {
    return encoder_logits(config, s, encode(config, s));
}

static sn_tensor embedding(const void *config, sn_tensor hidden, sn_tensor lengths) {
    const encoder_lm *g = config;
    return sentence_embed(&g->sentence, hidden, lengths);
}

void encoder_lm_build(const encoder_family *f, sn_config *c, const sn_model_options *o,
                      sn_model *out) {
    encoder_lm g = read_config(f, c, o);
    int64_t context = g.no_position_table ? g.context : g.context - g.padding - 1;
    out->vocab = g.vocab, out->context = context, out->labels = g.labels;
    out->layers = g.layers, out->heads = g.heads, out->d_model = g.d;
    out->per_token = g.task >= TOKEN_CLASSES;
    out->spans = g.task == SPANS;
    if (!sn_config_check(c, NULL)) return;
    bool head = !o->weights || g.labels || encoder_has_masked_head(&g, o->weights);
    sn_encoder e = {
        &g, encode, head ? logits : NULL, context, true, g.labels ? SN_CLASSIFY : 0, embedding};
    sn_encoder_entries(out->module, &e, o);
}
