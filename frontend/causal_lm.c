/* causal_lm.c: a decoder made from its description (causal_lm.h). Line numbers are those of
 * [PH22 A10]. */
#include "frontend/causal_lm.h"
#include "frontend/front.h"

#include <math.h>
#include <string.h>

/* ---- the config ---- */

/* x sigmoid(1.702 x) (Hendrycks & Gimpel 2016) */
static sn_tensor quick_gelu(sn_loc at, sn_tensor x) {
    (void)at;
    return sn_mul(x, sn_sigmoid(sn_mul(x, 1.702)));
}

const char *const causal_acts[] = {"silu",  "gelu", "gelu_pytorch_tanh", "gelu_new", "gelu_fast",
                                   "swish", "relu", "quick_gelu",        NULL};
sn_tensor (*const causal_act_fns[])(sn_loc, sn_tensor) = {
    sn_silu_at,      sn_gelu_at, sn_gelu_tanh_at, sn_gelu_tanh_at,
    sn_gelu_tanh_at, sn_silu_at, sn_relu_at,      quick_gelu};
const char *const qkv_layouts[] = {"side_by_side", "by_group", NULL};
static const struct {
    const char *name;
    causal_layer type;
} layer_types[] = {{"full_attention", FULL_ATTENTION},
                   {"sliding_attention", SLIDING_ATTENTION},
                   {"linear_attention", RECURRENT},
                   {"mamba", RECURRENT},
                   {"attention", FULL_ATTENTION}};
enum { LAYER_TYPES = sizeof layer_types / sizeof *layer_types };

/* The key that sets a field; NULL: none does. */
static const char *key_of(const causal_family *f, size_t field) {
    const config_key *k = f->keys;
    while (k->key && k->field != field) k++;
    return k->key;
}

/* Reads "layer_types", unless `finish` has; checks what it needs. */
static void read_layer_types(sn_config *c, causal_lm *g) {
    const char *names[LAYER_TYPES + 1] = {NULL};
    int kept = 0, kind[LAYER_TYPES]; /* those that the family has */
    for (int i = 0; i < LAYER_TYPES; i++)
        if (layer_types[i].type != RECURRENT || g->recurrent.mix)
            names[kept] = layer_types[i].name, kind[kept++] = layer_types[i].type;
    bool given = g->n_layer_types > 0;
    if (g->recurrent.mix && causal_act_fns[g->act] != sn_silu_at)
        sn_config_problem(c, "\"hidden_act\" must be \"silu\", which recurrent layers use");
    if (!given)
        g->n_layer_types =
            sn_config_choice_list(c, "layer_types", names, g->layer_type, MAX_LAYER_TYPES);
    if (g->n_layer_types && (int64_t)g->n_layer_types != g->layers)
        sn_config_problem(c, "\"layer_types\" has %zu entries for %lld layers", g->n_layer_types,
                          (long long)g->layers);
    for (size_t i = 0; i < g->n_layer_types; i++) {
        if (!given) g->layer_type[i] = kind[g->layer_type[i]];
        if (g->layer_type[i] == SLIDING_ATTENTION && !g->window)
            sn_config_problem(c, "\"layer_types\" has sliding attention without a window");
    }
}

/* Derives sizes from others and checks that they match. */
static void complete(const causal_family *f, sn_config *c, causal_lm *g) {
    if (!g->kv_heads) g->kv_heads = g->heads;
    const char *heads = key_of(f, offsetof(causal_lm, heads)),
               *kv_heads = key_of(f, offsetof(causal_lm, kv_heads));
    if (kv_heads) sn_config_divides(c, kv_heads, g->kv_heads, heads, g->heads);
    if (!g->d_head) sn_config_divides(c, heads, g->heads, key_of(f, offsetof(causal_lm, d)), g->d);
    if (!g->d_head) g->d_head = g->d / g->heads;
    if (!g->d_mlp) g->d_mlp = 4 * g->d;
    if (!g->d_embed) g->d_embed = g->d;
    if (g->rotary_part > 0) g->rotary = (int64_t)((double)g->d_head * g->rotary_part);
    if (!g->rotary) g->rotary = g->d_head;
    if (g->positions == ROTARY && g->rotary % 2)
        sn_config_problem(c, "an odd number of elements of each head, %lld, cannot be rotated",
                          (long long)g->rotary);
    if (g->positions == ROTARY && g->rotary > g->d_head)
        sn_config_problem(c, "%lld elements of heads of width %lld cannot be rotated",
                          (long long)g->rotary, (long long)g->d_head);
    read_layer_types(c, g);
    expert_check(c, &g->experts);
}

/* ---- parts ---- */

static sn_tensor linear(sn_tensor x, const char *name, int64_t n_out, bool bias) {
    return sn_nn_linear(x, name, n_out, bias ? SN_BIAS : 0);
}

/* Maps to heads and to the columns of an MLP, and back: what a mesh axis "tensor" divides. */
static sn_tensor columns(sn_tensor x, const char *name, int64_t n_out, bool bias) {
    return sn_nn_linear(x, name, n_out, SN_COLUMNS | (bias ? SN_BIAS : 0));
}
static sn_tensor rows(sn_tensor x, const char *name, int64_t n_out, bool bias) {
    return sn_nn_linear(x, name, n_out, SN_ROWS | (bias ? SN_BIAS : 0));
}

static sn_tensor norm(const causal_lm *g, sn_tensor x, const char *name) {
    if (!name) return x;
    if (g->norm == RMS_NORM) return sn_nn_rms_norm(x, name, g->eps);
    if (g->norm == LAYER_NORM && !g->norm_without_bias) return sn_nn_layer_norm(x, name, g->eps);
    sn_module *m = sn_module_of(x);
    sn_scope_push(m, "%s", name);
    sn_tensor w = sn_param(m, "weight", SN_F32, sn_dim_of(x, -1));
    sn_scope_pop(m);
    return g->norm == LAYER_NORM ? sn_layer_norm(x, w, NULL, g->eps)
                                 : sn_rms_norm(x, sn_add(w, 1), g->eps);
}

static bool has_window(const causal_lm *g, int layer) {
    if (!g->window) return false;
    if (g->n_layer_types) return g->layer_type[layer] == SLIDING_ATTENTION;
    return layer >= g->first_windowed && !(g->full_every && (layer + 1) % g->full_every == 0);
}

/* ---- attention: line 6 ---- */

/* Head h's slope [Press et al. 2022]: 2^(-8 (h + 1) / n) of n heads, n the largest power of two up
 * to the number of heads, then those between them: 2^(-4 (2 (h - n) + 1) / n). */
static sn_tensor slope(const causal_lm *g, sn_tensor h) {
    int64_t n = 1;
    while (2 * n <= g->heads) n *= 2;
    double scale = (g->alibi_scale > 0 ? g->alibi_scale : 8) / (double)n;
    sn_tensor i = sn_cast(h, SN_F32);
    sn_tensor first = sn_exp2(sn_mul(sn_add(i, 1), -scale));
    if (n == g->heads) return first;
    sn_tensor between = sn_exp2(sn_mul(sn_add(sn_mul(sn_sub(i, (double)n), 2), 1), -scale / 2));
    return sn_where(sn_lt(h, (double)n), first, between);
}

static double score_scale(const causal_lm *g) {
    return g->score_scale > 0 ? g->score_scale : 1 / sqrt((double)g->d_head);
}

static sn_tensor change_score(const sn_score_ctx *c) {
    const causal_lm *g = c->user;
    sn_tensor s = c->score;
    if (g->score_cap > 0) s = sn_mul(sn_tanh(sn_mul(s, 1 / g->score_cap)), g->score_cap);
    if (g->positions != ALIBI) return s;
    sn_tensor bias = sn_mul(slope(g, c->h), sn_cast(sn_query_key_distance(c), SN_F32));
    return sn_sub(s, g->alibi_before_scaling ? sn_mul(bias, score_scale(g)) : bias);
}

/* Whether the ranks of a mesh divide the heads of keys and values. If there are fewer than ranks, each
 * rank has all of them. */
static bool kv_divided(const causal_lm *g, sn_module *m) {
    int64_t ranks = sn_mesh_size(m, FRONT_TENSOR);
    if (!front_divides(m, "heads", g->heads) || g->kv_heads % ranks == 0) return true;
    return ranks % g->kv_heads != 0 && front_divides(m, "heads of keys and values", g->kv_heads);
}

/* part: queries, keys, values, [B, T, heads d_head] each */
static void project(const causal_lm *g, sn_tensor x, sn_tensor part[3]) {
    const causal_names *n = &g->names;
    int64_t width[3] = {g->heads * g->d_head * (g->gated ? 2 : 1), g->kv_heads * g->d_head,
                        g->kv_heads * g->d_head};
    const char *const names[3] = {n->q, n->k, n->v};
    sn_module *m = sn_module_of(x);
    bool divided = kv_divided(g, m), grouped = g->layout == QKV_BY_GROUP;
    int64_t together = width[0] + 2 * width[1];
    int flags = (g->qkv_bias ? SN_BIAS : 0) | (divided ? SN_COLUMNS : 0);
    sn_tensor all = !n->qkv   ? NULL
                    : grouped ? front_linear(SN_HERE, x, n->qkv, flags, 1, &together)
                              : front_linear(SN_HERE, x, n->qkv, flags, 3, width);
    sn_dim B = sn_dim_of(x, 0), T = sn_dim_of(x, 1);
    int64_t per_group = g->heads / g->kv_heads, at[3] = {0, width[0], width[0] + width[1]};
    bool by_group = all && grouped;
    if (by_group) all = sn_reshape(all, B, T, g->kv_heads, per_group + 2, g->d_head);
    for (int i = 0; i < 3; i++) {
        part[i] = by_group        ? sn_slice(all, 3, i ? per_group + i - 1 : 0, i ? 1 : per_group)
                  : all           ? sn_slice(all, 2, at[i], width[i])
                  : i && !divided ? linear(x, names[i], width[i], g->qkv_bias)
                                  : columns(x, names[i], width[i], g->qkv_bias);
        if (by_group) part[i] = sn_reshape(part[i], B, T, width[i]);
        if (g->clip > 0) part[i] = sn_max(sn_min(part[i], g->clip), -g->clip);
    }
}

/* x [B, H, T, d]: its first elements rotated by the positions. */
static sn_tensor rotate(const causal_lm *g, const sn_forward_ctx *s, sn_tensor x, bool local) {
    static const rope_scaling plain = {.scale = 1};
    bool sliding = local && g->local_base > 0;
    return rope_apply(x, s->pos, g->rotary, g->interleaved, sliding ? g->local_base : g->base,
                      sliding ? &plain : &g->rope);
}

/* Queries or keys of all heads [B, H, T, d_head], normed and rotated. */
static sn_tensor place(const causal_lm *g, const sn_forward_ctx *s, sn_tensor x, int64_t heads,
                       const char *name, bool local) {
    if (g->norm_whole_qk) x = norm(g, x, name);
    x = sn_split_heads(x, heads);
    if (!g->norm_whole_qk) x = norm(g, x, name);
    return g->positions == ROTARY ? rotate(g, s, x, local) : x;
}

static sn_tensor is_chosen(const sn_score_ctx *c) {
    return sn_at(c->captured[0], c->b, c->q, c->k);
}

static sn_tensor is_there(const sn_score_ctx *c) {
    return sn_at(c->captured[0], c->b, c->k);
}

/* Attention of queries, keys and values of all heads, to the tokens seen; chosen [B, T, Tk]: of these, or NULL. */
static sn_tensor attend_seen(const causal_lm *g, const sn_forward_ctx *s, sn_tensor q, sn_tensor k,
                             sn_tensor v, bool local, sn_tensor chosen) {
    bool changed = g->score_cap > 0 || g->positions == ALIBI;
    sn_tensor sink = g->names.sinks ? sn_param(s->m, g->names.sinks, SN_F32, g->heads) : NULL;
    return sn_forward_attention(s, q, k, v, .causal = true, .window = local ? g->window : 0,
                                .scale = g->score_scale, .score = changed ? change_score : NULL,
                                .user = g, .sink = sink, .mask = chosen ? is_chosen : NULL,
                                .captured = {chosen});
}

/* Rows [1, 1, Tk, n] of a cache at index [1, chosen], in that order; those behind it are the last one. */
static sn_tensor take_chosen(sn_tensor rows, sn_tensor index) {
    sn_dim Tk = sn_dim_of(rows, 2), n = sn_dim_of(rows, 3);
    index = sn_min(index, sn_dim_sub(sn_module_of(rows), Tk, 1));
    return sn_expand(sn_gather(sn_reshape(rows, Tk, n), 0, index), 1);
}

/* Queries and keys of the indexer, never interleaved. */
static sn_tensor rotate_index(const void *config, const sn_forward_ctx *s, sn_tensor x) {
    const causal_lm *g = config;
    return rope_apply(x, s->pos, g->rotary, false, g->base, &g->rope);
}

/* Caches hold latents. One new token attends to them directly; many tokens, for which the scores
 * are most of the work, attend to the keys and values of the heads, computed from them. */
static sn_tensor attend_latent(const causal_lm *g, const sn_forward_ctx *s, sn_tensor x,
                               bool local) {
    const latent_attention *a = &g->latent;
    latent_parts p = latent_project(a, x, g->heads);
    sn_tensor chosen =
        a->indexer.scope ? indexer_choose(&a->indexer, s, x, p.query, rotate_index, g) : NULL;
    if (g->positions == ROTARY)
        p.q[1] = rotate(g, s, p.q[1], local), p.key = rotate(g, s, p.key, local);
    bool one = s->capacity && s->T == 1, gathers = chosen && indexer_gathers(s);
    if (s->capacity) {
        sn_tensor rows = sn_append_kv(s, latent_row(&p), "kv_cache");
        latent_take_rows(a, &p, gathers ? take_chosen(rows, chosen) : rows);
    }
    sn_tensor part[3];
    (one ? latent_absorb : latent_expand)(a, &p, g->heads, part);
    sn_tensor q = sn_name(part[0], "q"), k = sn_name(part[1], "k"), v = sn_name(part[2], "v"), y;
    if (gathers)
        y = sn_attention(q, k, v, .scale = g->score_scale, .mask = is_there,
                         .captured = {sn_le(chosen, s->pos)});
    else
        y = attend_seen(g, s, q, k, v, local, chosen);
    return one ? latent_values(a, y, g->heads) : y;
}

/* q [B, T, H 2 d_head], a gate beside each query: removes the gates, [B, H, T, d_head]. */
static sn_tensor take_gate(const causal_lm *g, sn_tensor *q) {
    sn_dim B = sn_dim_of(*q, 0), T = sn_dim_of(*q, 1);
    sn_tensor all = sn_reshape(*q, B, T, g->heads, 2 * g->d_head);
    sn_tensor gate = sn_slice(all, 3, g->d_head, g->d_head);
    *q = sn_reshape(sn_slice(all, 3, 0, g->d_head), B, T, g->heads * g->d_head);
    return sn_swap(gate, 1, 2);
}

static sn_tensor attend_heads(const causal_lm *g, const sn_forward_ctx *s, sn_tensor x,
                              bool local) {
    const causal_names *n = &g->names;
    sn_tensor part[3];
    project(g, x, part);
    sn_tensor gate = g->gated ? take_gate(g, &part[0]) : NULL;
    part[0] = place(g, s, part[0], g->heads, n->q_norm, local);
    part[1] = place(g, s, part[1], g->kv_heads, n->k_norm, local);
    part[2] = sn_split_heads(part[2], g->kv_heads);
    sn_tensor q = sn_name(part[0], "q"), k = sn_name(part[1], "k"), v = sn_name(part[2], "v");
    k = sn_append_kv(s, k, "k_cache");
    v = sn_append_kv(s, v, "v_cache");
    sn_tensor y = attend_seen(g, s, q, k, v, local, NULL);
    return gate ? sn_mul(y, sn_sigmoid(gate)) : y;
}

static sn_tensor attend(const causal_lm *g, const sn_forward_ctx *s, sn_tensor x, int layer) {
    if (g->n_layer_types && g->layer_type[layer] == RECURRENT) {
        sn_scope_push(s->m, "%s", g->recurrent.scope);
        sn_tensor mixed = g->recurrent.mix(&g->recurrent, s, x);
        sn_scope_pop(s->m);
        return mixed;
    }
    bool local = has_window(g, layer);
    sn_tensor y = (g->latent.kv_down ? attend_latent : attend_heads)(g, s, x, local);
    return rows(sn_name(sn_merge_heads(y), "y"), g->names.o, g->d, g->o_bias);
}

/* ---- the MLP: line 8 ---- */

static sn_tensor plain_mlp(const causal_lm *g, sn_tensor x) {
    const causal_names *n = &g->names;
    sn_tensor h[2];
    if (n->gate_up) {
        const int64_t half[] = {g->d_mlp, g->d_mlp};
        int flags = SN_COLUMNS | (g->mlp_bias ? SN_BIAS : 0);
        sn_split(front_linear(SN_HERE, x, n->gate_up, flags, 2, half), 2, 2, h);
    } else {
        h[0] = columns(x, n->gate ? n->gate : n->up, g->d_mlp, g->mlp_bias);
        h[1] = n->gate ? columns(x, n->up, g->d_mlp, g->mlp_bias) : NULL;
    }
    h[0] = causal_act_fns[g->act](SN_HERE, h[0]);
    return rows(h[1] ? sn_mul(h[0], h[1]) : h[0], n->down, g->d, g->mlp_bias);
}

static sn_tensor feed_forward(const causal_lm *g, sn_tensor x, int layer) {
    if (!expert_layer(&g->experts, layer)) return plain_mlp(g, x);
    sn_tensor y = expert_apply(&g->experts, x, causal_act_fns[g->act]);
    return g->experts.plain_too ? sn_add(y, plain_mlp(g, x)) : y;
}

/* ---- layers ---- */

/* The residual stream x plus a scaled update, with dropout. */
static sn_tensor add(const causal_lm *g, const sn_forward_ctx *s, sn_tensor x, sn_tensor update) {
    if (g->residual_scale > 0) update = sn_mul(update, g->residual_scale);
    return sn_add(x, sn_forward_dropout(s, update));
}

static sn_tensor layer(const causal_lm *g, const sn_forward_ctx *s, sn_tensor x, int l) {
    const causal_names *n = &g->names;
    if (g->block == POST_NORM) {
        x = sn_name(norm(g, add(g, s, x, attend(g, s, x, l)), n->before_attn), "attnResid");
        return sn_name(norm(g, add(g, s, x, feed_forward(g, x, l)), n->before_mlp), "mlpResid");
    }
    sn_tensor in = norm(g, x, n->before_attn); /* line 5 */
    sn_tensor y = norm(g, attend(g, s, in, l), n->after_attn);
    if (g->block == PARALLEL) {
        sn_tensor z = feed_forward(g, n->before_mlp ? norm(g, x, n->before_mlp) : in, l);
        return sn_name(add(g, s, add(g, s, x, y), z), "mlpResid");
    }
    x = sn_name(add(g, s, x, y), "attnResid"); /* line 6 */
    if (!n->down && !expert_layer(&g->experts, l)) return x;
    y = feed_forward(g, norm(g, x, n->before_mlp), l); /* line 7 */
    y = norm(g, y, n->after_mlp);
    return sn_name(add(g, s, x, y), "mlpResid"); /* line 8 */
}

static sn_tensor embed(const causal_lm *g, const sn_forward_ctx *s) { /* lines 2, 3 */
    const causal_names *n = &g->names;
    sn_tensor x = front_vocabulary(SN_HERE, s->tokens, n->embed, g->vocab, g->d_embed);
    if (n->embed_in && g->d_embed != g->d) x = linear(x, n->embed_in, g->d, false);
    if (g->embed_scale > 0) x = sn_mul(x, g->embed_scale);
    if (g->positions == LEARNED) {
        sn_tensor pos = sn_add(s->pos, (double)g->position_offset);
        x = sn_add(x, sn_nn_embedding(pos, n->positions, g->context + g->position_offset, g->d));
    }
    return sn_forward_dropout(s, sn_name(norm(g, x, n->embed_norm), "tok_emb"));
}

static sn_tensor layers(const void *config, const sn_forward_ctx *s) {
    const causal_lm *g = config;
    sn_scope_params(s->m, g->prefix);
    sn_tensor x = embed(g, s);
    sn_record_hidden(s, 0, x);
    for (int l = 0; l < g->layers; l++) { /* line 4 */
        sn_scope_push(s->m, "%s.%d", g->names.layers, l);
        x = layer(g, s, x, l);
        sn_scope_pop(s->m);
        sn_record_hidden(s, l + 1, sn_name(x, "block%d", l));
    }
    return x;
}

static sn_tensor unembed(const void *config, sn_tensor x) {
    const causal_lm *g = config;
    const causal_names *n = &g->names;
    sn_module *m = sn_module_of(x);
    sn_scope_params(m, g->prefix);
    x = sn_name(norm(g, x, g->no_final_norm ? NULL : n->norm), "norm"); /* line 10 */
    if (n->embed_out && g->d_embed != g->d) x = linear(x, n->embed_out, g->d_embed, false);
    if (!g->tied) sn_scope_params(m, g->head_prefix);
    sn_scope_push(m, "%s", g->tied ? n->embed : n->head);
    sn_tensor w = sn_param(m, "weight", SN_F32, g->vocab, g->d_embed);
    sn_tensor b = g->head_bias ? sn_param(m, "bias", SN_F32, g->vocab) : NULL;
    sn_scope_pop(m);
    w = sn_shard(w, 0, FRONT_TENSOR);
    if (b) b = sn_shard(b, 0, FRONT_TENSOR);
    sn_tensor logits = sn_linear(x, w, b);
    if (g->logit_scale > 0) logits = sn_mul(logits, g->logit_scale);
    if (g->logit_cap > 0) logits = sn_mul(sn_tanh(sn_mul(logits, 1 / g->logit_cap)), g->logit_cap);
    sn_name(sn_softmax(logits, -1), "probs"); /* line 11 */
    return sn_name(logits, "lm_head");
}

static bool has_table(const sn_weights *w, const char *prefix, const causal_names *n) {
    char name[128];
    snprintf(name, sizeof name, "%s%s.weight", prefix, n->embed);
    return sn_weights_find(w, name);
}

/* Where the weights have the model and its head. Files of a model without its head lack the first part of the
 * prefix, those of pictures and texts have longer ones. */
static void find_prefix(causal_lm *g, const sn_weights *w) {
    static const struct {
        const char *model, *head;
    } parts[] = {{"language_model.model.", "language_model."}, {"model.language_model.", ""}};
    g->prefix = g->names.prefix, g->head_prefix = "";
    const char *p = g->prefix;
    while (w && *p && !has_table(w, p, &g->names)) p = strchr(p, '.') + 1;
    if (*p || (w && has_table(w, p, &g->names))) g->prefix = p;
    for (size_t i = 0; w && i < sizeof parts / sizeof *parts; i++)
        if (has_table(w, parts[i].model, &g->names))
            g->prefix = parts[i].model, g->head_prefix = parts[i].head;
}

void causal_lm_build(const causal_family *f, sn_config *c, const sn_model_options *o,
                     sn_model *out) {
    causal_lm g = f->usual;
    g.names = f->names;
    config_read(c, f->keys, &g);
    if (f->finish) f->finish(c, o, &g);
    g.rotary_part = rope_rotary_part(c, g.rotary_part);
    complete(f, c, &g);
    int64_t context = g.context;
    rope_shape shape = {g.rotary, g.context, o->context};
    g.rope.scale = 1;
    if (g.positions == ROTARY) rope_scaling_read(c, &shape, &g.base, &context, &g.rope);
    if (g.rope.local_base > 0) g.local_base = g.rope.local_base;
    find_prefix(&g, o->weights);
    out->vocab = g.vocab, out->context = o->context ? g.context : context;
    out->layers = g.layers, out->heads = g.heads, out->d_model = g.d;
    out->tied = g.tied, out->recurrent = g.recurrent.mix != NULL;
    if (!sn_config_check(c, NULL)) return;
    sn_decoder d = {&g, layers, unembed, o->context ? o->context : context, g.layers};
    sn_decoder_entries(out->module, &d, o);
}
