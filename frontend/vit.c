/* vit.c: the vision transformer (Dosovitskiy et al. 2021): an image is a sequence of patches in
 * raster order, and the encoder of [PH22 A9] classifies it. Norms before the sublayers as
 * published, or after them; a class token in front, or the mean over all. Config keys are Hugging
 * Face's, and "norm_order", "pooling", "image_mean", "image_std"; parameter names are our own. */
#include "frontend/keys.h"
#include "frontend/models.h"

typedef struct vit {
    int64_t image, patch, channels, labels, layers, heads, d, d_mlp, tokens;
    double eps, mean, std;
    int post, act;
    bool class_token;
} vit;

static const char *const acts[] = {"gelu", NULL}, *const orders[] = {"pre", "post", NULL},
                         *const pools[] = {"cls", "mean", NULL};
static const config_key keys[] = {INT_KEY(vit, image, "image_size", 1, 1 << 14),
                                  INT_KEY(vit, patch, "patch_size", 1, 1 << 14),
                                  INT_KEY_OR(vit, channels, "num_channels", 3, 1, 1 << 10),
                                  INT_KEY(vit, labels, "num_labels", 1, 1 << 24),
                                  INT_KEY(vit, layers, "num_hidden_layers", 1, 1 << 12),
                                  INT_KEY(vit, heads, "num_attention_heads", 1, 1 << 12),
                                  INT_KEY(vit, d, "hidden_size", 1, 1 << 20),
                                  INT_KEY(vit, d_mlp, "intermediate_size", 1, 1 << 22),
                                  FLOAT_KEY_OR(vit, eps, "layer_norm_eps", 1e-12, 0, 1),
                                  FLOAT_KEY_OR(vit, mean, "image_mean", 0.5, -1e6, 1e6),
                                  FLOAT_KEY_OR(vit, std, "image_std", 0.5, 1e-6, 1e6),
                                  CHOICE_KEY_OR(vit, post, "norm_order", orders, 0),
                                  CHOICE_KEY_OR(vit, act, "hidden_act", acts, 0),
                                  BOOL_KEY_OR(vit, class_token, "use_cls_token", true),
                                  END_KEYS};

static vit read_config(sn_config *c) {
    vit g = {0};
    config_read(c, keys, &g);
    if ((sn_config_choice_or(c, "pooling", pools, !g.class_token) == 0) != g.class_token)
        sn_config_problem(c, "\"pooling\" \"cls\" and \"use_cls_token\" belong together");
    sn_config_divides(c, "patch_size", g.patch, "image_size", g.image);
    sn_config_divides(c, "num_attention_heads", g.heads, "hidden_size", g.d);
    g.tokens = g.image / g.patch * (g.image / g.patch) + g.class_token;
    return g;
}

/* pixels [B, C, H, W] in 0 .. 1 -> [B, tokens, d]. Dropout after the sum with the positions, after
 * every dense layer except q, k and v, and on the weights of attention (Dosovitskiy et al. 2021,
 * appendix B.1) */
static sn_tensor embed(const vit *g, const sn_forward_ctx *s) {
    sn_tensor pixels = sn_input(s->m, "pixels", SN_F32, s->B, g->channels, g->image, g->image);
    sn_tensor patches = sn_image_patches(sn_div(sn_sub(pixels, g->mean), g->std), g->patch);
    patches =
        sn_reshape(patches, s->B, g->tokens - g->class_token, g->channels * g->patch * g->patch);
    sn_tensor x = sn_nn_linear(patches, "patch_embed.proj", g->d, SN_BIAS);
    if (g->class_token) {
        sn_tensor first = sn_param(s->m, "cls_token", SN_F32, 1, 1, g->d);
        x = sn_concat(1, sn_broadcast(first, s->B, 1, g->d), x);
    }
    x = sn_add(x, sn_param(s->m, "pos_embed", SN_F32, 1, g->tokens, g->d));
    return sn_forward_dropout(s, x);
}

static sn_tensor attend(const vit *g, const sn_forward_ctx *s, sn_tensor x) {
    sn_tensor w = sn_param(s->m, "attn.in_proj_weight", SN_F32, 3 * g->d, g->d),
              b = sn_param(s->m, "attn.in_proj_bias", SN_F32, 3 * g->d), part[3];
    sn_split(sn_linear(x, w, b), 2, 3, part); /* q|k|v */
    for (int i = 0; i < 3; i++) part[i] = sn_split_heads(part[i], g->heads);
    sn_tensor y = sn_model_attention(s->training, part[0], part[1], part[2], .causal = false);
    y = sn_nn_linear(sn_merge_heads(y), "attn.out_proj", g->d, SN_BIAS);
    return sn_forward_dropout(s, y);
}

static sn_tensor feed_forward(const vit *g, const sn_forward_ctx *s, sn_tensor x) {
    x = sn_forward_dropout(s, sn_gelu(sn_nn_linear(x, "ffn.fc1", g->d_mlp, SN_BIAS)));
    return sn_forward_dropout(s, sn_nn_linear(x, "ffn.fc2", g->d, SN_BIAS));
}

static sn_tensor norm(const vit *g, sn_tensor x, const char *name, bool here) {
    return here ? sn_nn_layer_norm(x, name, g->eps) : x;
}

static sn_tensor encode(const void *config, const sn_forward_ctx *s) {
    const vit *g = config;
    sn_tensor x = embed(g, s);
    for (int l = 0; l < g->layers; l++) { /* A9 lines 5 to 8 */
        sn_scope_push(s->m, "encoder.%d", l);
        x = sn_add(x, attend(g, s, norm(g, x, "norm1", !g->post)));
        x = norm(g, x, "norm1", g->post);
        x = sn_add(x, feed_forward(g, s, norm(g, x, "norm2", !g->post)));
        x = norm(g, x, "norm2", g->post);
        sn_scope_pop(s->m);
        sn_name(x, "block%d", l);
    }
    return sn_nn_layer_norm(x, "norm", g->eps);
}

static sn_tensor classify(const void *config, const sn_forward_ctx *s) {
    const vit *g = config;
    sn_tensor x = encode(g, s);
    x = g->class_token ? sn_index(x, 1, 0) : sn_mean(x, 1);
    return sn_nn_linear(x, "classifier", g->labels, SN_BIAS);
}

void sn_vit_build(sn_config *c, const sn_model_options *o, sn_model *out) {
    vit g = read_config(c);
    out->vocab = out->labels = g.labels, out->context = g.tokens;
    out->layers = g.layers, out->heads = g.heads, out->d_model = g.d;
    out->image = g.image, out->channels = g.channels;
    if (!sn_config_check(c, NULL)) return;
    sn_encoder e = {.config = &g, .encode = encode, .logits = classify, .classifies = SN_CLASSIFY};
    sn_encoder_entries(out->module, &e, o);
}
