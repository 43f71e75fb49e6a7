/* vit.c: the vision transformer (Dosovitskiy et al. 2021): an image is a sequence of patches in
 * raster order, and the encoder of [PH22 A9] classifies it. Norms before the sublayers as
 * published, or after them; a class token in front, or the mean over all. Config keys are Hugging
 * Face's, and "norm_order", "pooling", "image_mean", "image_std"; parameter names are our own. */
#include "frontend/models.h"

typedef struct vit {
    int64_t image, patch, channels, labels, layers, heads, d, d_mlp, tokens;
    double eps, mean, std;
    bool pre, class_token;
    const sn_training *training; /* of the entry that is being built; NULL: none */
} vit;

static vit read_config(sn_config *c) {
    static const char *const acts[] = {"gelu", NULL};
    static const char *const orders[] = {"pre", "post", NULL};
    static const char *const pools[] = {"cls", "mean", NULL};
    vit g = {.image = sn_config_int(c, "image_size", 1, 1 << 14),
             .patch = sn_config_int(c, "patch_size", 1, 1 << 14),
             .channels = sn_config_int_or(c, "num_channels", 3, 1, 1 << 10),
             .labels = sn_config_int(c, "num_labels", 1, 1 << 24),
             .layers = sn_config_int(c, "num_hidden_layers", 1, 1 << 12),
             .heads = sn_config_int(c, "num_attention_heads", 1, 1 << 12),
             .d = sn_config_int(c, "hidden_size", 1, 1 << 20),
             .d_mlp = sn_config_int(c, "intermediate_size", 1, 1 << 22),
             .eps = sn_config_float_or(c, "layer_norm_eps", 1e-12, 0, 1),
             .mean = sn_config_float_or(c, "image_mean", 0.5, -1e6, 1e6),
             .std = sn_config_float_or(c, "image_std", 0.5, 1e-6, 1e6),
             .pre = sn_config_choice_or(c, "norm_order", orders, 0) == 0};
    g.class_token = sn_config_bool_or(c, "use_cls_token", true);
    bool first = sn_config_choice_or(c, "pooling", pools, g.class_token ? 0 : 1) == 0;
    sn_config_choice_or(c, "hidden_act", acts, 0);
    if (first != g.class_token)
        sn_config_problem(c, "\"pooling\" \"cls\" and \"use_cls_token\" belong together");
    sn_config_divides(c, "patch_size", g.patch, "image_size", g.image);
    sn_config_divides(c, "num_attention_heads", g.heads, "hidden_size", g.d);
    g.tokens = g.image / g.patch * (g.image / g.patch) + g.class_token;
    return g;
}

sn_tensor sn_image_patches(sn_tensor image, int64_t size) {
    sn_module *m = sn_module_of(image);
    sn_dim n = sn_dim_of(image, 0), c = sn_dim_of(image, 1);
    sn_dim rows = sn_dim_quot(m, sn_dim_of(image, 2), size),
           columns = sn_dim_quot(m, sn_dim_of(image, 3), size);
    sn_tensor x = sn_reshape(image, n, c, rows, size, columns, size);
    x = sn_transpose(x, 0, 2, 4, 1, 3, 5);
    return sn_reshape(x, n, sn_dim_mul(m, rows, columns), c, size, size);
}

/* After the sum with the positions, every dense layer but that of q, k and v (Dosovitskiy et al.
 * 2021, appendix B.1), and on the weights of attention. */
static sn_tensor drop(const vit *g, sn_tensor x) {
    return sn_training_dropout(x, g->training);
}

/* pixels [B, C, H, W] in 0 .. 1 -> [B, tokens, d] */
static sn_tensor embed(const vit *g, sn_tensor pixels) {
    sn_module *m = sn_module_of(pixels);
    sn_dim B = sn_dim_of(pixels, 0);
    sn_tensor patches = sn_image_patches(sn_div(sn_sub(pixels, g->mean), g->std), g->patch);
    patches = sn_reshape(patches, B, g->tokens - g->class_token, g->channels * g->patch * g->patch);
    sn_tensor x = sn_nn_linear(patches, "patch_embed.proj", g->d, SN_BIAS);
    if (g->class_token) {
        sn_tensor first = sn_param(m, "cls_token", SN_F32, 1, 1, g->d);
        x = sn_concat(1, sn_broadcast(first, B, 1, g->d), x);
    }
    return drop(g, sn_add(x, sn_param(m, "pos_embed", SN_F32, 1, g->tokens, g->d)));
}

static sn_tensor attend(const vit *g, sn_tensor x) {
    sn_module *m = sn_module_of(x);
    sn_tensor w = sn_param(m, "attn.in_proj_weight", SN_F32, 3 * g->d, g->d),
              b = sn_param(m, "attn.in_proj_bias", SN_F32, 3 * g->d), part[3];
    sn_split(sn_linear(x, w, b), 2, 3, part); /* q|k|v */
    for (int i = 0; i < 3; i++) part[i] = sn_split_heads(part[i], g->heads);
    sn_tensor y = sn_model_attention(g->training, part[0], part[1], part[2], .causal = false);
    return drop(g, sn_nn_linear(sn_merge_heads(y), "attn.out_proj", g->d, SN_BIAS));
}

static sn_tensor feed_forward(const vit *g, sn_tensor x) {
    sn_tensor h = drop(g, sn_gelu(sn_nn_linear(x, "ffn.fc1", g->d_mlp, SN_BIAS)));
    return drop(g, sn_nn_linear(h, "ffn.fc2", g->d, SN_BIAS));
}

static sn_tensor norm(const vit *g, sn_tensor x, const char *name, bool here) {
    return here ? sn_nn_layer_norm(x, name, g->eps) : x;
}

static sn_tensor encode(const vit *g, sn_tensor pixels) {
    sn_module *m = sn_module_of(pixels);
    sn_tensor x = embed(g, pixels);
    for (int l = 0; l < g->layers; l++) { /* A9 lines 5 to 8 */
        sn_scope_push(m, "encoder.%d", l);
        x = sn_add(x, attend(g, norm(g, x, "norm1", g->pre)));
        x = norm(g, x, "norm1", !g->pre);
        x = sn_add(x, feed_forward(g, norm(g, x, "norm2", g->pre)));
        x = norm(g, x, "norm2", !g->pre);
        sn_scope_pop(m);
        sn_name(x, "block%d", l);
    }
    return sn_nn_layer_norm(x, "norm", g->eps);
}

static sn_tensor classify(const vit *g, sn_tensor pixels) {
    sn_tensor x = encode(g, pixels);
    x = g->class_token ? sn_index(x, 1, 0) : sn_mean(x, 1);
    return sn_nn_linear(x, "classifier", g->labels, SN_BIAS);
}

void sn_vit_build(sn_config *c, const sn_model_options *o, sn_model *out) {
    vit g = read_config(c);
    out->vocab = g.labels, out->context = g.tokens;
    out->layers = g.layers, out->heads = g.heads, out->d_model = g.d;
    out->labels = g.labels, out->image = g.image, out->channels = g.channels;
    if (!sn_config_check(c, NULL)) return;
    sn_module *m = out->module;
    sn_dim B = sn_symbol(m, "B", 1, o->max_batch);
    sn_tensor pixels = sn_input(m, "pixels", SN_F32, B, g.channels, g.image, g.image);
    if (o->entries & SN_ENCODE) {
        sn_entry_begin(m, "encode");
        sn_output("hidden", encode(&g, pixels));
    }
    if (o->entries & (SN_FORWARD | SN_CLASSIFY)) {
        sn_entry_begin(m, "forward");
        sn_output("logits", classify(&g, pixels));
    }
    if (o->entries & SN_LOSS) {
        sn_entry_begin(m, "loss");
        sn_tensor targets = sn_input(m, "targets", SN_I32, B);
        sn_output("loss", sn_cross_entropy(classify(&g, pixels), targets));
    }
    if (o->entries & SN_TRAIN) {
        g.training = o->training;
        sn_training_begin(m, o->training);
        sn_training_end(classify(&g, pixels), o->training);
    }
}
