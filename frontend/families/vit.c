/* vit.c: encoders of images: the vision transformer (Dosovitskiy et al. 2021), DeiT (Touvron et al.
 * 2021), whose second token learns from a teacher, and DINOv2 (Oquab et al. 2024), with scales of
 * what a sublayer adds, and positions that are interpolated for images of another size.
 * A vision transformer may also have Sinter's earlier names, as in examples/models/mnist-vit: then
 * it normalises pixels by the config's image_mean and image_std, its norms may follow the sublayers
 * ("norm_order": "post"), and the mean over all tokens may stand for the image. */
#include "frontend/causal_lm.h"
#include "frontend/families/families.h"
#include "frontend/tower.h"

#define VIT_NAMES                                                                                  \
    .layers = "encoder.layer", .q = "attention.attention.query", .k = "attention.attention.key",   \
    .v = "attention.attention.value", .o = "attention.output.dense",                               \
    .patch = "embeddings.patch_embeddings.projection",                                             \
    .positions = "embeddings.position_embeddings", .norm = "layernorm"
#define VIT_LAYER_NAMES                                                                            \
    .attn_norm = "layernorm_before", .mlp_norm = "layernorm_after", .up = "intermediate.dense",    \
    .down = "output.dense"

static const tower_names vit_names = {
    .prefix = "vit.", VIT_NAMES, VIT_LAYER_NAMES, .first = {"embeddings.cls_token"}};
static const tower_names deit_names = {
    .prefix = "deit.",
    VIT_NAMES,
    VIT_LAYER_NAMES,
    .first = {"embeddings.cls_token", "embeddings.distillation_token"}};
#define DINOV2_NAMES                                                                               \
    .prefix = "dinov2.", VIT_NAMES, .first = {"embeddings.cls_token"}, .attn_norm = "norm1",       \
    .mlp_norm = "norm2", .attn_scale = "layer_scale1.lambda1", .mlp_scale = "layer_scale2.lambda1"
static const tower_names dinov2_names = {DINOV2_NAMES, .up = "mlp.fc1", .down = "mlp.fc2"},
                         dinov2_gated_names = {DINOV2_NAMES, .up = "mlp.weights_in",
                                               .down = "mlp.weights_out"};
#define EARLIER_NAMES                                                                              \
    .prefix = "", .layers = "encoder", .qkv = "attn", .attn_norm = "norm1", .mlp_norm = "norm2",   \
    .up = "ffn.fc1", .down = "ffn.fc2", .patch = "patch_embed.proj", .positions = "pos_embed",     \
    .norm = "norm"
static const tower_names earlier_names = {EARLIER_NAMES, .first = {"cls_token"}},
                         earlier_mean_names = {EARLIER_NAMES};

static const config_key vit_keys[] = {TOWER_SIZE_KEYS(12, 12, 768, 3072, 1e-12, ACT_GELU),
                                      TOWER_IMAGE_KEYS(16),
                                      BOOL_KEY_OR(tower, qkv_bias, "qkv_bias", true), END_KEYS};
static const config_key dinov2_keys[] = {TOWER_SIZE_KEYS(12, 12, 768, 0, 1e-6, ACT_GELU),
                                         TOWER_IMAGE_KEYS(14),
                                         FLOAT_KEY_OR(tower, mlp_ratio, "mlp_ratio", 4, 0.01, 1024),
                                         BOOL_KEY_OR(tower, gated, "use_swiglu_ffn", false),
                                         BOOL_KEY_OR(tower, qkv_bias, "qkv_bias", true),
                                         END_KEYS};
static const char *const orders[] = {"pre", "post", NULL}, *const pools[] = {"cls", "mean", NULL};
static const config_key earlier_keys[] = {FLOAT_KEY_OR(tower, mean, "image_mean", 0.5, -1e6, 1e6),
                                          FLOAT_KEY_OR(tower, std, "image_std", 0.5, 1e-6, 1e6),
                                          CHOICE_KEY_OR(tower, post, "norm_order", orders, 0),
                                          END_KEYS};

/* What is made of the hidden states. */
typedef enum image_head {
    HEAD_FIRST,    /* classes of the first token, or of the mean */
    HEAD_TWO,      /* mean of the classes of the first and of the second token */
    HEAD_WITH_MEAN /* classes of the first token beside the mean of the patches */
} image_head;

typedef struct image_model {
    tower tower;
    image_head head;
} image_model;

/* ---- entries ---- */

static sn_tensor encode(const void *config, const sn_forward_ctx *s) {
    return tower_encode_image(&((const image_model *)config)->tower, s);
}

/* The state that stands for the image [B, d]. */
static sn_tensor pool(const image_model *g, sn_tensor hidden) {
    return g->tower.mean_pool ? sn_mean(hidden, 1) : sn_index(hidden, 1, 0);
}

static sn_tensor classify(const void *config, const sn_forward_ctx *s) {
    const image_model *g = config;
    const tower *t = &g->tower;
    sn_tensor hidden = encode(g, s), x = pool(g, hidden);
    sn_scope_params(s->m, "");
    if (g->head == HEAD_TWO) {
        sn_tensor second = sn_index(hidden, 1, 1);
        x = sn_nn_linear(x, "cls_classifier", t->labels, SN_BIAS);
        second = sn_nn_linear(second, "distillation_classifier", t->labels, SN_BIAS);
        return sn_mul(sn_add(x, second), 0.5);
    }
    if (g->head == HEAD_WITH_MEAN) {
        int64_t first = tower_first(t);
        x = sn_concat(1, x, sn_mean(sn_slice(hidden, 1, first, tower_tokens(t) - first), 1));
    }
    return sn_nn_linear(x, "classifier", t->labels, SN_BIAS);
}

static void build(sn_config *c, image_model *g, const sn_model_options *o, sn_model *out) {
    tower *t = &g->tower;
    const char *head = g->head == HEAD_TWO ? "cls_classifier.weight" : "classifier.weight";
    const sn_weight *w = o->weights ? sn_weights_find(o->weights, head) : NULL;
    t->labels = sn_config_int_or(c, "num_labels", w && w->rank == 2 ? w->shape[0] : 0, 1, 1 << 24);
    tower_complete(c, t);
    t->prefix = tower_prefix(t->names, o->weights, t->names->patch);
    out->vocab = out->labels = t->labels, out->context = tower_tokens(t);
    out->layers = t->layers, out->heads = t->heads, out->d_model = t->d;
    out->image = t->image, out->channels = t->channels, out->normalises = t->std > 0;
    if (!sn_config_check(c, NULL)) return;
    bool classifies = t->labels && (!o->weights || w);
    sn_encoder e = {.config = g,
                    .encode = encode,
                    .logits = classifies ? classify : NULL,
                    .classifies = SN_CLASSIFY};
    sn_encoder_entries(out->module, &e, o);
    if (!(o->entries & SN_EMBED)) return;
    sn_forward_ctx s = {.m = out->module, .B = sn_symbol(out->module, "B", 1, o->max_batch)};
    sn_entry_begin(s.m, "embed_image");
    sn_output("embedding", tower_unit(pool(g, encode(g, &s))));
}

/* ---- the families ---- */

/* Whether the model has Sinter's earlier names: by its weights, else by keys that only it has. */
static bool is_earlier(const sn_config *c, const sn_weights *w) {
    if (w) return sn_weights_find(w, "patch_embed.proj.weight");
    return sn_config_has(c, "norm_order") || sn_config_has(c, "use_cls_token") ||
           sn_config_has(c, "pooling") || sn_config_has(c, "image_std");
}

void sn_vit_build(sn_config *c, const sn_model_options *o, sn_model *out) {
    image_model g = {.tower = {.names = &vit_names}};
    tower *t = &g.tower;
    config_read(c, vit_keys, t);
    sn_config_divides(c, "patch_size", t->patch, "image_size", t->image);
    if (is_earlier(c, o->weights)) {
        config_read(c, earlier_keys, t);
        bool first = sn_config_bool_or(c, "use_cls_token", true);
        if ((sn_config_choice_or(c, "pooling", pools, !first) == 0) != first)
            sn_config_problem(c, "\"pooling\" \"cls\" and \"use_cls_token\" belong together");
        t->names = first ? &earlier_names : &earlier_mean_names;
        t->mean_pool = !first;
        t->flat_patch = true;
    }
    build(c, &g, o, out);
}

void sn_deit_build(sn_config *c, const sn_model_options *o, sn_model *out) {
    image_model g = {.tower = {.names = &deit_names}};
    config_read(c, vit_keys, &g.tower);
    bool one = o->weights ? sn_weights_find(o->weights, "classifier.weight") != NULL : false;
    g.head = one ? HEAD_FIRST : HEAD_TWO;
    build(c, &g, o, out);
}

void sn_dinov2_build(sn_config *c, const sn_model_options *o, sn_model *out) {
    image_model g = {.tower = {.names = &dinov2_names}, .head = HEAD_WITH_MEAN};
    tower *t = &g.tower;
    config_read(c, dinov2_keys, t);
    t->d_mlp = (int64_t)((double)t->d * t->mlp_ratio);
    if (t->gated) {
        t->d_mlp = (t->d_mlp * 2 / 3 + 7) / 8 * 8;
        t->names = &dinov2_gated_names;
    }
    if (t->patch <= t->image) t->table = t->image / t->patch;
    if (o->image) t->image = o->image;
    build(c, &g, o, out);
}
