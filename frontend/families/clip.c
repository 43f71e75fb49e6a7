/* clip.c: pairs of an image tower and a text tower whose embeddings are compared: CLIP (Radford et
 * al. 2021) and SigLIP (Zhai et al. 2023), which has no class token, reads an image through a
 * query that attends to all patches, and judges each pair by itself. */
#include "frontend/causal_lm.h"
#include "frontend/families/families.h"
#include "frontend/front.h"
#include "frontend/tower.h"

#define PAIR_LAYER_NAMES                                                                           \
    .layers = "encoder.layers", .q = "self_attn.q_proj", .k = "self_attn.k_proj",                  \
    .v = "self_attn.v_proj", .o = "self_attn.out_proj", .attn_norm = "layer_norm1",                \
    .mlp_norm = "layer_norm2", .up = "mlp.fc1", .down = "mlp.fc2"
#define PAIR_IMAGE_NAMES                                                                           \
    PAIR_LAYER_NAMES, .patch = "embeddings.patch_embedding",                                       \
                      .positions = "embeddings.position_embedding.weight",                         \
                      .norm = "post_layernorm"

static const tower_names clip_image_names = {PAIR_IMAGE_NAMES,
                                             .first = {"embeddings.class_embedding"},
                                             .start_norm = "pre_layrnorm"},
                         siglip_image_names = {PAIR_IMAGE_NAMES},
                         text_names = {PAIR_LAYER_NAMES, .norm = "final_layer_norm"};

#define TEXT_KEYS(vocab_, context_)                                                                \
    INT_KEY_OR(tower, vocab, "vocab_size", vocab_, 1, 1 << 24),                                    \
        INT_KEY_OR(tower, context, "max_position_embeddings", context_, 1, 1 << 24)
static const config_key clip_image_keys[] = {
    TOWER_SIZE_KEYS(12, 12, 768, 3072, 1e-5, ACT_QUICK_GELU), TOWER_IMAGE_KEYS(32), END_KEYS};
static const config_key clip_text_keys[] = {TOWER_SIZE_KEYS(12, 8, 512, 2048, 1e-5, ACT_QUICK_GELU),
                                            TEXT_KEYS(49408, 77), END_KEYS};
static const config_key siglip_image_keys[] = {
    TOWER_SIZE_KEYS(12, 12, 768, 3072, 1e-6, ACT_GELU_TANH), TOWER_IMAGE_KEYS(16), END_KEYS};
static const config_key siglip_text_keys[] = {
    TOWER_SIZE_KEYS(12, 12, 768, 3072, 1e-6, ACT_GELU_TANH), TEXT_KEYS(32000, 64),
    INT_KEY_OR(tower, project, "projection_size", 0, 1, 1 << 20),
    INT_KEY_OR(tower, padding, "pad_token_id", 1, 0, 1 << 24), END_KEYS};

typedef struct pair {
    tower image, text;
    bool sigmoid; /* SigLIP */
} pair;

/* ---- embeddings ---- */

/* A query that all images share attends to the patches [B, T, d] -> [B, d]. */
static sn_tensor attention_pool(const tower *g, const sn_forward_ctx *s, sn_tensor x) {
    sn_scope_push(s->m, "head");
    sn_tensor probe = sn_broadcast(sn_param(s->m, "probe", SN_F32, 1, 1, g->d), s->B, 1, g->d);
    x = tower_packed_attention(g, s, "attention", probe, x);
    sn_tensor y = sn_nn_layer_norm(x, "layernorm", g->eps);
    y = causal_act_fns[g->act](SN_HERE, sn_nn_linear(y, "mlp.fc1", g->d_mlp, SN_BIAS));
    x = sn_add(x, sn_nn_linear(y, "mlp.fc2", g->d, SN_BIAS));
    sn_scope_pop(s->m);
    return sn_squeeze(x, 1);
}

/* [B, width], of norm 1 */
static sn_tensor embed_image(const pair *g, const sn_forward_ctx *s) {
    sn_scope_push(s->m, "vision_model");
    sn_tensor x = tower_encode_image(&g->image, s);
    if (g->sigmoid) x = attention_pool(&g->image, s, x);
    sn_scope_pop(s->m);
    if (!g->sigmoid) x = sn_nn_linear(sn_index(x, 1, 0), "visual_projection", g->image.project, 0);
    return tower_unit(x);
}

/* SigLIP reads texts of full length: tokens [B, T] with padding in place of those from `lengths` on,
 * and after them. */
static sn_tensor fill_up(const tower *g, const sn_forward_ctx *s, sn_tensor tokens,
                         sn_tensor lengths) {
    sn_tensor inside = sn_lt(sn_arange(s->m, SN_I32, s->T), sn_expand(lengths, 1));
    tokens = sn_where(inside, tokens, (double)g->padding);
    return sn_pad(tokens, 1, 0, sn_dim_sub(s->m, g->context, s->T), (double)g->padding);
}

/* Row lengths[b] - 1 of x [B, T, d]: the last token of each text */
static sn_tensor last_row(const sn_forward_ctx *s, sn_tensor x, sn_tensor lengths) {
    sn_tensor t = sn_add(sn_arange(s->m, SN_I32, s->T), 1);
    sn_tensor is_last = sn_expand(sn_eq(t, sn_expand(lengths, 1)), 2);
    return sn_sum(sn_where(is_last, x, 0.0), 1);
}

/* tokens [B, T], lengths [B] -> [B, width], of norm 1. What follows a text does not matter to CLIP:
 * a token sees those before it only. */
static sn_tensor embed_text(const pair *g, const sn_forward_ctx *s) {
    const tower *t = &g->text;
    sn_module *m = s->m;
    sn_tensor tokens = sn_input(m, "tokens", SN_I32, s->B, s->T),
              lengths = sn_input(m, "lengths", SN_I32, s->B);
    sn_scope_push(m, "text_model");
    sn_dim T = g->sigmoid ? t->context : s->T;
    if (g->sigmoid) tokens = fill_up(t, s, tokens, lengths);
    sn_scope_push(m, "embeddings");
    sn_tensor x = sn_nn_embedding(tokens, "token_embedding", t->vocab, t->d);
    x = sn_add(x, sn_nn_embedding(sn_arange(m, SN_I32, T), "position_embedding", t->context, t->d));
    sn_scope_pop(m);
    x = tower_layers(t, s, x);
    x = g->sigmoid ? sn_index(x, 1, t->context - 1) : last_row(s, x, lengths);
    if (g->sigmoid) x = sn_nn_linear(x, "head", t->project, SN_BIAS);
    sn_scope_pop(m);
    if (!g->sigmoid) x = sn_nn_linear(x, "text_projection", t->project, 0);
    return tower_unit(x);
}

/* Images [B] by texts [N] -> [B, N] */
static sn_tensor compare(const pair *g, sn_tensor images, sn_tensor texts) {
    sn_module *m = sn_module_of(images);
    sn_tensor x = sn_einsum("id,td->it", images, texts);
    if (!g->sigmoid) return sn_mul(x, sn_exp(sn_param(m, "logit_scale", SN_F32, SN_SCALAR)));
    x = sn_mul(x, sn_exp(sn_param(m, "logit_scale", SN_F32, 1)));
    return sn_add(x, sn_param(m, "logit_bias", SN_F32, 1));
}

static void add_entries(const pair *g, sn_module *m, const sn_model_options *o) {
    int64_t context = o->context ? o->context : g->text.context;
    sn_forward_ctx image = {.m = m, .B = sn_symbol(m, "B", 1, o->max_batch)}, text = image;
    text.T = sn_symbol(m, "T", 1, context);
    if (o->entries & (SN_EMBED | SN_ENCODE)) {
        sn_entry_begin(m, "embed");
        sn_output("embedding", embed_text(g, &text));
        sn_entry_begin(m, "embed_image");
        sn_output("embedding", embed_image(g, &image));
    }
    if (!(o->entries & (SN_FORWARD | SN_CLASSIFY))) return;
    text.B = sn_symbol(m, "N", 1, o->max_batch);
    sn_entry_begin(m, "forward");
    sn_output("logits", compare(g, embed_image(g, &image), embed_text(g, &text)));
}

/* ---- configs ---- */

/* The section `key` of the config, whose mistakes and unknown keys are the config's. */
static void read_tower(sn_config *c, const char *key, const char *legacy, const config_key *keys,
                       tower *out) {
    sn_error err = {0};
    sn_config *s = sn_config_section(c, key), *over = sn_config_section(c, legacy);
    if (!s || !over) { /* recorded */
        sn_config_free(s);
        sn_config_free(over);
        return;
    }
    sn_config_merge(s, over);
    config_read(s, keys, out);
    tower_complete(s, out);
    front_check_keys(s, out->context);
    sn_config_has(s, "tie_word_embeddings"); /* read: there is no head to tie */
    const char *unread = sn_model_unknown_key(s, 0);
    if (unread) sn_config_problem(s, "\"%s\" is not read: is it misspelt?", unread);
    if (!sn_config_check(s, &err)) sn_config_problem(c, "%s", err.message);
    sn_config_free(s);
    sn_config_free(over);
}

static void build(sn_config *c, pair *g, const sn_model_options *o, sn_model *out) {
    const tower *t = &g->text, *v = &g->image;
    out->vocab = t->vocab, out->context = t->context;
    out->layers = t->layers, out->heads = t->heads, out->d_model = t->d;
    out->image = v->image, out->channels = v->channels;
    out->compares = g->sigmoid ? SN_COMPARES_EACH : SN_COMPARES_ALL;
    if (sn_config_check(c, NULL)) add_entries(g, out->module, o);
}

void sn_clip_build(sn_config *c, const sn_model_options *o, sn_model *out) {
    pair g = {.image = {.names = &clip_image_names,
                        .qkv_bias = true,
                        .no_patch_bias = true,
                        .vector_first = true,
                        .flat_positions = true},
              .text = {.names = &text_names, .qkv_bias = true, .causal = true}};
    read_tower(c, "vision_config", "vision_config_dict", clip_image_keys, &g.image);
    read_tower(c, "text_config", "text_config_dict", clip_text_keys, &g.text);
    g.image.project = g.text.project = sn_config_int_or(c, "projection_dim", 512, 1, 1 << 20);
    build(c, &g, o, out);
}

void sn_siglip_build(sn_config *c, const sn_model_options *o, sn_model *out) {
    pair g = {.image = {.names = &siglip_image_names, .qkv_bias = true, .flat_positions = true},
              .text = {.names = &text_names, .qkv_bias = true},
              .sigmoid = true};
    read_tower(c, "vision_config", "vision_config_dict", siglip_image_keys, &g.image);
    read_tower(c, "text_config", "text_config_dict", siglip_text_keys, &g.text);
    if (!g.text.project) g.text.project = g.text.d;
    if (g.text.project != g.image.d)
        sn_config_problem(c, "embeddings of texts have %lld elements, those of images %lld",
                          (long long)g.text.project, (long long)g.image.d);
    build(c, &g, o, out);
}
