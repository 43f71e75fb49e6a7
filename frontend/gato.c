/* gato.c: Gato: [PH22 A10] with line 2 replaced by an embedding for each modality (Reed et al.
 * 2022, sections 2.1, 2.2, appendix C.3). A position is of one kind: 0  text: a token, id 0 .. text
 * - 1 1  discrete: a value 0 .. discrete_values - 1; its id follows the text's 2  continuous: a
 * number, squeezed by sgn(x) ln(mu |x| + 1) / ln(mu M + 1) into -1 .. 1 and cut into bins; ids
 * follow the discrete ones 3  image: a square of pixels, through a ResNet block (v2: group norm,
 * GELU, convolution, twice), flattened and mapped, plus learned embeddings of its row and column
 * Inputs beside tokens [B, T] (text and discrete): kinds i32 and values f32 [B, T]; images f32
 * [N, C, H, W] in 0 .. 1; patches i32 [B, T], which one of all images' squares in raster order.
 * What is predicted are the ids; targets that are none (-1: images, observations) are masked out of
 * the loss. Entry loss also gives the means over the targets of each modality: text, discrete,
 * continuous. Config keys: GPT-2's (vocab_size counts text), and those read below. */
#include "frontend/decoder.h"

#include <math.h>

typedef struct gato {
    int64_t text, discrete, bins, image, patch, channels, filters, groups;
    double mu, M;
} gato;

static gato read_own(sn_config *c) {
    gato g = {.discrete = sn_config_int_or(c, "discrete_values", 1024, 1, 1 << 24),
              .bins = sn_config_int_or(c, "continuous_bins", 1024, 1, 1 << 24),
              .mu = sn_config_float_or(c, "mu_law_mu", 100, 1e-6, 1e12),
              .M = sn_config_float_or(c, "mu_law_m", 256, 1e-6, 1e12),
              .image = sn_config_int_or(c, "image_size", 224, 1, 1 << 14),
              .patch = sn_config_int_or(c, "patch_size", 16, 2, 1 << 10),
              .channels = sn_config_int_or(c, "num_channels", 3, 1, 1 << 10),
              .filters = sn_config_int_or(c, "resnet_filters", 96, 1, 1 << 14),
              .groups = sn_config_int_or(c, "resnet_groups", 32, 1, 1 << 14)};
    if (g.image % g.patch || g.patch % 2)
        sn_config_problem(c, "\"patch_size\" = %lld must be even and divide \"image_size\" = %lld",
                          (long long)g.patch, (long long)g.image);
    sn_config_divides(c, "resnet_groups", g.groups, "resnet_filters", g.filters);
    return g;
}

/* ---- images ---- */

/* x [n, C, h, w]: groups of channels get mean 0 and variance 1 (Wu & He 2018) */
static sn_tensor group_norm(const gato *g, sn_tensor x, const char *name) {
    sn_module *m = sn_module_of(x);
    sn_dim n = sn_dim_of(x, 0), h = sn_dim_of(x, 2), w = sn_dim_of(x, 3);
    sn_scope_push(m, "%s", name);
    sn_tensor gain = sn_param(m, "weight", SN_F32, g->filters, 1, 1),
              bias = sn_param(m, "bias", SN_F32, g->filters, 1, 1);
    sn_scope_pop(m);
    sn_tensor y = sn_layer_norm(sn_reshape(x, n, g->groups, SN_REST), NULL, NULL, 1e-5);
    return sn_add(sn_mul(sn_reshape(y, n, g->filters, h, w), gain), bias);
}

static sn_tensor convolve(const gato *g, sn_tensor x, const char *name, int64_t n_in,
                          int64_t stride) {
    sn_module *m = sn_module_of(x);
    sn_scope_push(m, "%s", name);
    sn_tensor w = sn_param(m, "weight", SN_F32, g->filters, n_in, 3, 3),
              b = sn_param(m, "bias", SN_F32, g->filters);
    sn_scope_pop(m);
    return sn_conv2d(x, w, b, .stride = {stride, stride}, .padding = {1, 1});
}

/* images [N, C, H, W] -> an embedding of every square [N squares, d] */
static sn_tensor embed_images(const decoder *a, sn_tensor images) {
    const gato *g = a->own;
    int64_t side = g->image / g->patch, half = g->patch / 2;
    sn_dim n = sn_dim_mul(sn_module_of(images), sn_dim_of(images, 0), side * side);
    sn_tensor x = sn_mul(sn_sub(sn_mul(images, 2), 1), 1 / sqrt((double)g->patch));
    x = sn_reshape(sn_image_patches(x, g->patch), n, g->channels, g->patch, g->patch);
    x = convolve(g, x, "resnet.conv_in", g->channels, 2); /* [n, filters, patch / 2, patch / 2] */
    sn_tensor y = sn_gelu(group_norm(g, x, "resnet.norm1"));
    y = sn_gelu(group_norm(g, convolve(g, y, "resnet.conv1", g->filters, 1), "resnet.norm2"));
    x = sn_add(x, convolve(g, y, "resnet.conv2", g->filters, 1));
    return sn_nn_linear(sn_reshape(x, n, g->filters * half * half), "resnet.out", a->d, SN_BIAS);
}

/* Squares' embeddings at the positions [B, T] that hold them, with row and column. */
static sn_tensor embed_patches(const decoder *a, const sn_forward_ctx *s) {
    const gato *g = a->own;
    int64_t side = g->image / g->patch;
    sn_dim N = sn_symbol(s->m, "N", 1, 1024);
    sn_tensor images = sn_input(s->m, "images", SN_F32, N, g->channels, g->image, g->image);
    sn_tensor which = sn_input(s->m, "patches", SN_I32, s->B, s->T);
    sn_tensor place = sn_mod(which, (double)(side * side));
    sn_tensor x = sn_embedding(sn_name(embed_images(a, images), "squares"), which);
    x = sn_add(x, sn_nn_embedding(sn_div(place, (double)side), "patch_row", side, a->d));
    return sn_add(x, sn_nn_embedding(sn_mod(place, (double)side), "patch_column", side, a->d));
}

/* ---- ids ---- */

/* values -> bins 0 .. bins - 1 */
static sn_tensor mu_law(const gato *g, sn_tensor x) {
    sn_tensor y = sn_log(sn_add(sn_mul(sn_abs(x), g->mu), 1));
    y = sn_mul(sn_sign(x), sn_mul(y, 1 / log(g->M * g->mu + 1)));
    y = sn_max(sn_min(y, 1), -1);
    y = sn_floor(sn_mul(sn_add(y, 1), (double)g->bins / 2));
    return sn_cast(sn_min(y, (double)(g->bins - 1)), SN_I32);
}

/* Line 2 */
static sn_tensor embed(const decoder *a, const sn_forward_ctx *s) {
    const gato *g = a->own;
    sn_tensor kinds = sn_input(s->m, "kinds", SN_I32, s->B, s->T),
              values = sn_input(s->m, "values", SN_F32, s->B, s->T);
    sn_tensor ids = sn_add(mu_law(g, values), (double)(g->text + g->discrete));
    ids = sn_where(sn_eq(kinds, 1), sn_add(s->tokens, (double)g->text), ids);
    ids = sn_where(sn_eq(kinds, 0), s->tokens, ids);
    ids = sn_where(sn_eq(kinds, 3), 0, ids);
    sn_tensor e = sn_nn_embedding(sn_name(ids, "ids"), "wte", a->vocab, a->d);
    e = sn_where(sn_expand(sn_eq(kinds, 3), 2), embed_patches(a, s), e);
    return sn_add(e, sn_expand(sn_nn_embedding(s->pos, "wpe", a->context, a->d), 0));
}

/* ---- the loss, by modality ---- */

/* Mean of the losses whose targets are in [lo, hi); 0 without any */
static sn_tensor mean_within(sn_tensor loss, sn_tensor targets, int64_t lo, int64_t hi) {
    sn_tensor in = sn_and(sn_ge(targets, (double)lo), sn_lt(targets, (double)hi));
    sn_tensor n = sn_sum_all(sn_cast(in, SN_F32));
    return sn_div(sn_sum_all(sn_where(in, loss, 0)), sn_max(n, 1));
}

static void build_loss(const decoder *a, sn_module *m, const sn_model_options *o, int64_t context) {
    const gato *g = a->own;
    sn_dim B = sn_symbol(m, "B", 1, o->max_batch), T = sn_symbol(m, "T", 1, context);
    sn_entry_begin(m, "loss");
    sn_forward_ctx s = {.m = m, .B = B, .T = T, .pos = sn_arange(m, SN_I32, T)};
    s.tokens = sn_input(m, "tokens", SN_I32, B, T);
    sn_tensor targets = sn_input(m, "targets", SN_I32, B, T);
    sn_tensor loss = sn_cross_entropy(decoder_unembed(a, decoder_layers(a, &s)), targets);
    sn_output("loss", loss);
    sn_output("text", mean_within(loss, targets, 0, g->text));
    sn_output("discrete", mean_within(loss, targets, g->text, g->text + g->discrete));
    sn_output("continuous", mean_within(loss, targets, g->text + g->discrete, a->vocab));
}

void sn_gato_build(sn_config *c, const sn_model_options *o, sn_model *out) {
    decoder a = decoder_read(c, o);
    gato g = read_own(c);
    g.text = a.vocab;
    a.vocab += g.discrete + g.bins;
    a.own = &g;
    a.embed = embed;
    out->image = g.image, out->channels = g.channels;
    sn_model_options rest = *o;
    rest.entries &= ~SN_LOSS;
    decoder_build(&a, c, &rest, out);
    if (sn_config_check(c, NULL) && o->entries & SN_LOSS)
        build_loss(&a, out->module, o, o->context ? o->context : a.context);
}
